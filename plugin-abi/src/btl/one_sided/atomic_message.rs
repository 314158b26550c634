// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages that request an atomic of another process and answer it, and the execution of such a request. Every
//! request has an answer: the former value, or that nothing was executed. Called by `emulated_atomic`, which sends and
//! receives them. Grade: pending. Threads: any. Tests: below.

use std::sync::atomic::{AtomicU64, Ordering};

use engine::peer::PeerName;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Add(u64),
    Swap {
        compare: u64,
        value: u64,
    },
    /// The atomic was executed; the former value.
    Was(u64),
    /// The atomic was not executed, because there is no such memory.
    NotDone,
}

/// A request or an answer: its kind and the number of the origin's record; a request also has address and sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) word: Word,
    pub(super) number: u64,
    pub(super) address: u64,
    pub(super) from: PeerName,
    /// Index among the ports that the sender publishes.
    pub(super) port: u8,
}

pub(super) const SIZE: usize = 48;

/// Size and alignment of an operand in bytes.
pub(super) const OPERAND: usize = 8;

impl Message {
    /// Encodes the message as little-endian numbers of 8 bytes.
    pub(super) fn bytes(&self) -> [u8; SIZE] {
        let (kind, first, second) = match self.word {
            Word::Add(operand) => (1, operand, 0),
            Word::Swap { compare, value } => (2, compare, value),
            Word::Was(value) => (3, value, 0),
            Word::NotDone => (4, 0, 0),
        };
        let from = u64::from(self.from.job) << 32 | u64::from(self.from.rank);
        let words = [kind | u64::from(self.port) << 8, self.number, self.address, from, first, second];
        let mut bytes = [0; SIZE];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(super) fn read(bytes: [u8; SIZE]) -> Option<Message> {
        let word = |index: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 * index + byte]));
        let (kind, port) = (word(0) & 0xff, u8::try_from(word(0) >> 8).ok()?);
        let word_of = match kind {
            1 => Word::Add(word(4)),
            2 => Word::Swap { compare: word(4), value: word(5) },
            3 => Word::Was(word(4)),
            4 => Word::NotDone,
            _ => return None,
        };
        let from = PeerName { job: (word(3) >> 32) as u32, rank: word(3) as u32 };
        Some(Message { word: word_of, number: word(1), address: word(2), from, port })
    }
}

/// Executes a request, and passes the answer to `send`, which returns whether it goes out. `way` is what `send` needs
/// for that; without it nothing is executed. If the origin gets no answer, the error says whether the atomic was
/// executed.
pub(super) fn served<'memory, Way, Held>(
    request: &Message,
    way: Option<Way>,
    register: impl FnOnce(u64) -> Option<(&'memory AtomicU64, Held)>,
    put_back: impl FnOnce(Held),
    send: impl FnOnce(Way, &Message) -> bool,
) -> Result<(), bool> {
    let way = way.ok_or(false)?;
    let word = performed(request, register, put_back);
    if send(way, &Message { word, ..*request }) { Ok(()) } else { Err(word != Word::NotDone) }
}

/// Executes a request, and returns the answer. Like an adapter, does not access memory that `register` refuses, nor an
/// unaligned operand, on which no operation is atomic. The memory is `put_back` afterwards.
fn performed<'memory, Held>(
    request: &Message,
    register: impl FnOnce(u64) -> Option<(&'memory AtomicU64, Held)>,
    put_back: impl FnOnce(Held),
) -> Word {
    if request.address == 0 || !request.address.is_multiple_of(OPERAND as u64) {
        return Word::NotDone;
    }
    let Some((place, held)) = register(request.address) else { return Word::NotDone };
    let was = done(place, request.word);
    put_back(held);
    Word::Was(was)
}

/// Executes an atomic on 8 bytes of this process; returns the former value.
pub(super) fn done(place: &AtomicU64, word: Word) -> u64 {
    match word {
        Word::Add(operand) => place.fetch_add(operand, Ordering::SeqCst),
        Word::Swap { compare, value } => {
            place.compare_exchange(compare, value, Ordering::SeqCst, Ordering::SeqCst).unwrap_or_else(|was| was)
        }
        Word::Was(_) | Word::NotDone => place.load(Ordering::SeqCst),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const FROM: PeerName = PeerName { job: 0xa3f7_0001, rank: 70_000 };

    #[test]
    fn read_decodes_the_message_that_was_encoded() {
        let words = [Word::Add(u64::MAX), Word::Swap { compare: 3, value: 4 }, Word::Was(5), Word::NotDone];
        for (word, address) in words.into_iter().zip([0x7000_0008, 0x7000_0004, 0, 0]) {
            let message = Message { word, number: 9, address, from: FROM, port: 200 };
            assert_eq!(Message::read(message.bytes()), Some(message));
        }
        assert_eq!(Message::read([0; SIZE]), None);
        assert_eq!(Message::read([0xff; SIZE]), None);
    }

    #[test]
    fn each_atomic_returns_the_former_value() {
        let place = AtomicU64::new(5);
        let on = |word| done(&place, word);
        assert_eq!([on(Word::Add(2)), on(Word::Swap { compare: 9, value: 1 })], [5, 7]);
        assert_eq!([on(Word::Swap { compare: 7, value: 1 }), on(Word::Add(u64::MAX))], [7, 1]);
        assert_eq!(place.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn performed_answers_every_request_even_one_that_it_cannot_execute() {
        let place = AtomicU64::new(5);
        let there = place.as_ptr().addr() as u64;
        let taken = Cell::new(0);
        let ask = |address, is_there: bool| {
            let request = Message { word: Word::Add(2), number: 9, address, from: FROM, port: 0 };
            let register = |_| is_there.then(|| (&place, taken.set(taken.get() + 1)));
            performed(&request, register, |()| taken.set(taken.get() - 1))
        };
        assert_eq!([ask(there, false), ask(0, true), ask(there + 4, true)], [Word::NotDone; 3]);
        assert_eq!((place.load(Ordering::Relaxed), ask(there, true)), (5, Word::Was(5)));
        assert_eq!((place.load(Ordering::Relaxed), taken.get()), (7, 0));
    }

    #[test]
    fn a_request_that_gets_no_answer_is_an_error_that_says_whether_it_was_executed() {
        let (place, answered) = (AtomicU64::new(5), Cell::new(None));
        let address = place.as_ptr().addr() as u64;
        let serve = |way: Option<()>, is_there: bool, goes_out: bool| {
            let request = Message { word: Word::Add(2), number: 9, address, from: FROM, port: 0 };
            let send = |(), answer: &Message| {
                answered.set(Some(*answer));
                goes_out
            };
            let register = |_| is_there.then_some((&place, 9));
            let outcome = served(&request, way, register, |held| assert_eq!(held, 9), send);
            let answer: Option<Message> = answered.take();
            assert!(answer.is_none_or(|answer| Message { word: request.word, ..answer } == request));
            (outcome, answer.map(|answer| answer.word), place.load(Ordering::Relaxed))
        };
        assert_eq!(serve(None, true, true), (Err(false), None, 5));
        assert_eq!(serve(Some(()), false, false), (Err(false), Some(Word::NotDone), 5));
        assert_eq!(serve(Some(()), true, false), (Err(true), Some(Word::Was(5)), 7));
        assert_eq!(serve(Some(()), true, true), (Ok(()), Some(Word::Was(7)), 9));
    }
}
