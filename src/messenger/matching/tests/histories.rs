// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random histories of a communicator, compared with the model after each step, for each kind of envelopes
//! (`kinds.rs`); `PROPTEST_CASES` sets how many (256). A history has phases. A phase prefers posts or arrivals, so that
//! queues grow long, get indexed and become empty again; and it has few or many different envelopes.

use super::kinds::{Kind, Libfabric, Mpi};
use crate::messenger::matching::{Matching, Message, MessageHandle, ReceiveHandle, Remains};
use proptest::prelude::*;

/// A receive or a message, in the words of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry<T> {
    what: T,
    number: u32,
}

/// The matching as two lists, searched from the front: a literal model of the text.
#[derive(Debug)]
struct Model<K: Kind> {
    receives: Vec<Entry<K::Receive>>,
    messages: Vec<Entry<K::Message>>,
}

impl<K: Kind> Model<K> {
    fn probe(&self, receive: K::Receive) -> Option<Entry<K::Message>> {
        self.messages.iter().copied().find(|message| K::takes(receive, message.what))
    }

    fn take(&mut self, receive: K::Receive) -> Option<Entry<K::Message>> {
        let at = self.messages.iter().position(|message| K::takes(receive, message.what))?;
        Some(self.messages.remove(at))
    }

    fn post(&mut self, receive: Entry<K::Receive>) -> Option<Entry<K::Message>> {
        let taken = self.take(receive.what);
        if taken.is_none() {
            self.receives.push(receive);
        }
        taken
    }

    fn arrive(&mut self, message: Entry<K::Message>) -> Option<Entry<K::Receive>> {
        let Some(at) = self.receives.iter().position(|receive| K::takes(receive.what, message.what)) else {
            self.messages.push(message);
            return None;
        };
        Some(self.receives.remove(at))
    }
}

fn withdraw<T>(list: &mut Vec<Entry<T>>, number: u32) -> Option<Entry<T>> {
    let at = list.iter().position(|entry| entry.number == number)?;
    Some(list.remove(at))
}

#[derive(Debug, Clone, Copy)]
enum Step<R, M> {
    Post(R),
    Arrive(M),
    Probe(R),
    MatchedProbe(R),
    /// Cancels the handle at this fraction (of 2^16) of all handles so far.
    Cancel(u16),
    Take(u16),
}

type StepOf<K> = Step<<K as Kind>::Receive, <K as Kind>::Message>;

/// A step of a phase with these weights of posts and arrivals.
fn step<K: Kind>(ranks: i32, posts: u32, arrivals: u32) -> impl Strategy<Value = StepOf<K>> {
    prop_oneof![
        posts * 4 => K::receives(ranks).prop_map(Step::Post),
        arrivals * 4 => K::messages(ranks).prop_map(Step::Arrive),
        2 => K::receives(ranks).prop_map(Step::Probe),
        1 => K::receives(ranks).prop_map(Step::MatchedProbe),
        1 => any::<u16>().prop_map(Step::Cancel),
        1 => any::<u16>().prop_map(Step::Take),
    ]
}

fn phase<K: Kind>() -> impl Strategy<Value = Vec<StepOf<K>>> {
    let weights = prop_oneof![Just((1, 1)), Just((6, 1)), Just((1, 6)), Just((1, 0)), Just((0, 1))];
    (prop_oneof![Just(2), Just(40)], weights)
        .prop_flat_map(|(ranks, (posts, arrivals))| prop::collection::vec(step::<K>(ranks, posts, arrivals), 1..60))
}

#[derive(Default)]
struct Handles {
    receives: Vec<(ReceiveHandle, u32)>,
    messages: Vec<(MessageHandle, u32)>,
}

fn pick<T: Copy>(of: &[T], part: u16) -> Option<T> {
    of.get((of.len() * usize::from(part)) >> 16).copied()
}

fn entry_of<K: Kind>(Message { envelope, message }: Message<u32, K::Envelope>) -> Entry<K::Message> {
    Entry { what: K::message(envelope), number: message }
}

struct History<K: Kind> {
    matching: Matching<u32, u32, K::Envelope>,
    model: Model<K>,
    aside: Vec<Entry<K::Message>>,
    handles: Handles,
    next: u32,
}

impl<K: Kind> History<K> {
    fn new() -> Self {
        let model = Model { receives: Vec::new(), messages: Vec::new() };
        History { matching: Matching::new(), model, aside: Vec::new(), handles: Handles::default(), next: 0 }
    }

    fn entry<T>(&mut self, what: T) -> Entry<T> {
        self.next += 1;
        Entry { what, number: self.next }
    }

    fn post(&mut self, receive: K::Receive) {
        let entry = self.entry(receive);
        let found = self.matching.search_unexpected(K::pattern(receive)).found;
        if found.is_none() {
            let handle = self.matching.insert_posted(K::pattern(receive), entry.number);
            self.handles.receives.push((handle, entry.number));
        }
        assert_eq!(found.map(entry_of::<K>), self.model.post(entry));
    }

    fn arrive(&mut self, message: K::Message) {
        let entry = self.entry(message);
        let found = self.matching.search_posted(K::envelope(message)).found;
        if found.is_none() {
            let handle = self.matching.insert_unexpected(K::envelope(message), entry.number);
            self.handles.messages.push((handle, entry.number));
        }
        assert_eq!(found, self.model.arrive(entry).map(|receive| receive.number));
    }

    fn step(&mut self, step: StepOf<K>) {
        match step {
            Step::Post(receive) => self.post(receive),
            Step::Arrive(message) => self.arrive(message),
            Step::Probe(receive) => {
                let found = self.matching.probe(K::pattern(receive)).found;
                let found =
                    found.map(|Message { envelope, message }| entry_of::<K>(Message { envelope, message: *message }));
                assert_eq!(found, self.model.probe(receive));
            }
            Step::MatchedProbe(receive) => {
                let found = self.matching.matched_probe(K::pattern(receive)).found;
                let expected = self.model.take(receive);
                assert_eq!(found.map(|message| K::message(message.envelope)), expected.map(|entry| entry.what));
                if let (Some(message), Some(entry)) = (found, expected) {
                    assert_eq!(self.matching.message_mut(message.message).copied(), Some(entry.number));
                    self.aside.push(entry);
                }
            }
            Step::Cancel(part) => {
                let Some((handle, number)) = pick(&self.handles.receives, part) else { return };
                let expected = withdraw(&mut self.model.receives, number);
                assert!(!self.matching.cancel(handle, u32::MAX), "another's");
                assert_eq!(self.matching.cancel(handle, number), expected.is_some());
            }
            Step::Take(part) => {
                let Some((handle, number)) = pick(&self.handles.messages, part) else { return };
                let expected = withdraw(&mut self.model.messages, number).or_else(|| withdraw(&mut self.aside, number));
                assert_eq!(self.matching.take(handle).map(entry_of::<K>), expected);
            }
        }
        assert_eq!(self.matching.posted() as usize, self.model.receives.len());
        assert_eq!(self.matching.unexpected() as usize, self.model.messages.len());
        let is_empty = self.model.messages.is_empty() && self.aside.is_empty();
        assert_eq!(self.matching.has_messages(), !is_empty);
    }

    /// Compares the remains with the model's, sorted, because they are in order only within each side.
    fn end(self) {
        let Remains { mut receives, messages } = self.matching.into_remains();
        receives.sort_unstable();
        assert_eq!(receives, self.model.receives.iter().map(|entry| entry.number).collect::<Vec<_>>());
        let mut messages: Vec<Entry<K::Message>> = messages.into_iter().map(entry_of::<K>).collect();
        messages.sort_unstable_by_key(|entry| entry.number);
        let mut expected = [self.model.messages, self.aside].concat();
        expected.sort_unstable_by_key(|entry| entry.number);
        assert_eq!(messages, expected);
    }
}

fn run<K: Kind>(phases: &[Vec<StepOf<K>>]) {
    let mut history = History::<K>::new();
    for step in phases.iter().flatten() {
        history.step(*step);
    }
    history.end();
}

proptest! {
    #[test]
    #[cfg_attr(miri, ignore = "Miri takes minutes to make a history")]
    fn every_step_of_a_history_of_mpi_has_the_result_of_the_model(
        phases in prop::collection::vec(phase::<Mpi>(), 1..8)
    ) {
        run::<Mpi>(&phases);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri takes minutes to make a history")]
    fn every_step_of_a_history_of_libfabric_has_the_result_of_the_model(
        phases in prop::collection::vec(phase::<Libfabric>(), 1..8)
    ) {
        run::<Libfabric>(&phases);
    }
}
