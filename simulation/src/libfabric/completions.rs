// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the completion queues of a process report: each completion is checked when it is read, its flags, source and
//! length, that it is the only one of its operation, and that an error has a cause. Memory goes as soon as the program
//! has it back. Called by `world`. Grade: test. Threads: one.

use ibex::libfabric::{Completion, Kind, fi};

use super::endpoint::Ended;
use super::world::{Bytes, End, Got, What, World};
use crate::history::Step;

/// Errors by which the operations of a lost peer end: `EIO`, `ETIMEDOUT`, `ECONNREFUSED`, `EHOSTUNREACH`.
const LOST: [u32; 4] = [fi::FI_EIO, 110, 111, 113];

/// Returns the flag of a kind of messages.
const fn flag(kind: Kind) -> u64 {
    match kind {
        Kind::Tagged => fi::FI_TAGGED,
        Kind::Message => fi::FI_MSG,
    }
}

impl World {
    /// Notes what has ended at a process.
    pub(super) fn look(&mut self, at: usize) {
        let Some(endpoint) = &mut self.endpoints[at] else { return };
        let (ended, lost) = (endpoint.take_ended(), endpoint.lost());
        assert!(ended.is_empty() || self.closing[at].is_none(), "an endpoint that is closed reports");
        for peer in lost {
            let peer = peer as usize;
            if self.lost.insert((at, peer)) {
                self.lost.insert((peer, at));
                self.schedule.history.note(Step::Lost { at: at as u32 });
            }
            let has_cause = self.schedule.has_failed || !self.dead.is_empty() || !self.closed.is_empty();
            assert!(has_cause, "process {at} has lost process {peer}, and nothing has failed");
        }
        for ended in ended {
            self.note(at, ended);
        }
    }

    fn note(&mut self, at: usize, (completion, error): Ended) {
        let context = completion.context;
        if context == 0 {
            // An injected message has no context.
            let is_known = error.is_some_and(|(error, _)| LOST.contains(&error));
            assert!(is_known && self.lost.iter().any(|(one, _)| *one == at), "{completion:?}, {error:?}");
            self.anonymous[at] += 1;
        } else if context.is_multiple_of(2) {
            self.note_sent(at, context / 2 - 1, &completion, error);
        } else {
            self.note_got(at, (context - 3) / 2, &completion, error);
        }
    }

    pub(super) fn may_lose(&self, from: usize, to: usize) -> bool {
        let is_gone = |one: &usize| self.dead.contains(one) || self.closed.contains(one);
        is_gone(&from) || is_gone(&to) || self.lost.contains(&(from, to))
    }

    fn note_sent(&mut self, at: usize, message: usize, completion: &Completion, error: Option<(u32, usize)>) {
        let sent = &self.sent[message];
        assert_eq!(
            (completion.flags, sent.from),
            (fi::FI_SEND | flag(sent.kind), at),
            "the completion of send {message}"
        );
        assert!(sent.done.is_none() && !sent.has_failed, "send {message} ends once");
        if let Some((error, _)) = error {
            assert!(LOST.contains(&error), "send {message} fails with {error}");
            assert!(self.may_lose(at, sent.to), "send {message} fails, and its peer is not lost");
            self.schedule.history.note(Step::Failed { at: at as u32, number: 2 * message as u32 });
        } else {
            assert!(sent.is_reported, "send {message} is reported, and did not ask for it");
            let has_polled = self.polled[sent.to] >= sent.begun || sent.to == at || self.closed.contains(&sent.to);
            assert!(
                sent.completes == 0 || has_polled,
                "send {message} is delivered, and its receiver made no progress"
            );
            self.schedule.history.note(Step::Sent { at: at as u32, message: message as u32 });
        }
        let sent = &mut self.sent[message];
        sent.has_failed = error.is_some();
        sent.done = error.is_none().then_some(self.now);
        if let Some(memory) = sent.memory.take() {
            self.free(memory);
        }
    }

    fn note_got(&mut self, at: usize, index: usize, completion: &Completion, error: Option<(u32, usize)>) {
        let wish = &self.wishes[index];
        let is_claim = wish.claim == Some(End::Waits);
        assert_eq!(wish.at, at);
        assert!(
            wish.end == End::Waits || is_claim || matches!(wish.what, What::Buffer(_)),
            "wish {index} ends once: {wish:?}"
        );
        assert!(wish.memory.is_some() || matches!(wish.what, What::Search(_)), "wish {index} was given back: {wish:?}");
        let extra = completion.flags & (fi::FI_REMOTE_CQ_DATA | fi::FI_MULTI_RECV);
        assert_eq!(completion.flags & !extra, fi::FI_RECV | flag(wish.kind), "the completion of wish {index}");
        let is_released = completion.flags & fi::FI_MULTI_RECV != 0;
        assert!(!is_released || matches!(wish.what, What::Buffer(_)), "wish {index} is no buffer for several messages");
        let (end, got) = match error {
            None => (End::Done, Some(0)),
            Some((fi::FI_ETRUNC, excess)) => (End::Done, Some(excess)),
            Some((fi::FI_ECANCELED, _)) => (End::Cancelled, None),
            Some((fi::FI_ENOMSG, _)) => {
                assert!(matches!(wish.what, What::Search(_)) && !is_claim, "wish {index} finds nothing: {wish:?}");
                (End::Done, None)
            }
            Some((error, _)) => {
                assert!(LOST.contains(&error), "wish {index} fails with {error}");
                (End::Failed, None)
            }
        };
        if end == End::Failed {
            let is_lost = |from: usize| self.may_lose(from, at);
            let sender = if completion.source == fi::FI_ADDR_NOTAVAIL { wish.from } else { None };
            let has_cause = sender.map_or_else(|| (0..self.endpoints.len()).any(is_lost), is_lost);
            assert!(has_cause, "wish {index} fails, and its peer is not lost: {wish:?}");
            self.schedule.history.note(Step::Failed { at: at as u32, number: 2 * index as u32 + 1 });
        }
        let vector = &self.endpoints[at].as_ref().expect("it reports").vector;
        let got = got.map(|excess| {
            assert!(completion.source != fi::FI_ADDR_NOTAVAIL, "the source of wish {index} is in the vector");
            let from = vector.rank_of(completion.source) as usize;
            let offset = match (wish.what, wish.memory) {
                (What::Buffer(_), Some(memory)) => (completion.buffer as u64 - memory) as usize,
                _ => 0,
            };
            let data = (extra & fi::FI_REMOTE_CQ_DATA != 0).then_some(completion.data);
            Got { from, tag: completion.tag, data, length: completion.length + excess, offset }
        });
        if let Some(Got { from, length, .. }) = got {
            let (at, wish, from) = (at as u32, index as u32, from as u32);
            self.schedule.history.note(Step::Received { at, wish, from, length: length as u32 });
        }
        if end == End::Cancelled {
            self.schedule.history.note(Step::Cancelled { at: at as u32, wish: index as u32 });
        }
        let wish = &mut self.wishes[index];
        // A search receives nothing, nor does what discards a claimed message.
        if wish.memory.is_some() {
            wish.counted[usize::from(error.is_some())] += 1;
        }
        if is_claim {
            wish.claim = Some(end);
            assert!(got.is_none_or(|got| wish.got[..] == [got]), "a claimed message differs: {wish:?}, {got:?}");
        } else {
            wish.got.extend(got);
        }
        let is_over = match wish.what {
            // Receives that have matched go on when a buffer is cancelled, or when one of them fails.
            What::Buffer(_) => is_released,
            What::Search(_) => is_claim,
            What::Receive => true,
        };
        let wish = &mut self.wishes[index];
        wish.has_failed |= end == End::Failed;
        if wish.end == End::Waits && (is_over || end == End::Cancelled || matches!(wish.what, What::Search(_))) {
            wish.end = end;
        }
        if is_over && let Some(memory) = self.wishes[index].memory.take() {
            let bytes = self.free(memory);
            self.wishes[index].bytes = Some(Bytes(bytes));
        }
    }
}
