// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random histories of a communicator, compared with the model after each step; `PROPTEST_CASES` sets how many (256). A
//! history has phases. A phase prefers posts or arrivals, so that queues grow long, get indexes and become empty again;
//! and it has few or many different envelopes.

use super::Numbered;
use crate::messenger::matching::{
    ANY_SOURCE, ANY_TAG, Envelope, Message, MessageHandle, Pattern, ReceiveHandle, Remains,
};
use proptest::prelude::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    source: i32,
    tag: i32,
    number: u32,
}

/// The matching as two lists, searched from the front: a literal model of MPI's text.
#[derive(Debug, Default)]
struct Model {
    receives: Vec<Entry>,
    messages: Vec<Entry>,
}

fn takes(receive: Entry, message: Entry) -> bool {
    (receive.source == ANY_SOURCE || receive.source == message.source)
        && (receive.tag == message.tag || receive.tag == ANY_TAG && message.tag >= 0)
}

impl Model {
    fn probe(&self, receive: Entry) -> Option<Entry> {
        self.messages.iter().copied().find(|message| takes(receive, *message))
    }

    fn take(&mut self, receive: Entry) -> Option<Entry> {
        let at = self.messages.iter().position(|message| takes(receive, *message))?;
        Some(self.messages.remove(at))
    }

    fn post(&mut self, receive: Entry) -> Option<Entry> {
        let taken = self.take(receive);
        if taken.is_none() {
            self.receives.push(receive);
        }
        taken
    }

    fn arrive(&mut self, message: Entry) -> Option<Entry> {
        let Some(at) = self.receives.iter().position(|receive| takes(*receive, message)) else {
            self.messages.push(message);
            return None;
        };
        Some(self.receives.remove(at))
    }

    fn withdraw(list: &mut Vec<Entry>, number: u32) -> Option<Entry> {
        let at = list.iter().position(|entry| entry.number == number)?;
        Some(list.remove(at))
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Post(i32, i32),
    Arrive(i32, i32),
    Probe(i32, i32),
    MatchedProbe(i32, i32),
    /// Cancels the handle at this fraction (of 2^16) of all handles so far.
    Cancel(u16),
    Take(u16),
}

fn tag() -> impl Strategy<Value = i32> {
    prop_oneof![6 => 0..4_i32, 1 => Just(i32::MAX), 2 => -3..=-2_i32, 1 => Just(i32::MIN)]
}

fn pattern(ranks: i32) -> impl Strategy<Value = (i32, i32)> {
    let source = prop_oneof![4 => 0..ranks, 1 => Just(ANY_SOURCE)];
    (source, prop_oneof![4 => tag(), 1 => Just(ANY_TAG)])
}

/// A step of a phase with these weights of posts and arrivals.
fn step(ranks: i32, posts: u32, arrivals: u32) -> impl Strategy<Value = Step> {
    prop_oneof![
        posts * 4 => pattern(ranks).prop_map(|(source, tag)| Step::Post(source, tag)),
        arrivals * 4 => (0..ranks, tag()).prop_map(|(source, tag)| Step::Arrive(source, tag)),
        2 => pattern(ranks).prop_map(|(source, tag)| Step::Probe(source, tag)),
        1 => pattern(ranks).prop_map(|(source, tag)| Step::MatchedProbe(source, tag)),
        1 => any::<u16>().prop_map(Step::Cancel),
        1 => any::<u16>().prop_map(Step::Take),
    ]
}

fn phase() -> impl Strategy<Value = Vec<Step>> {
    let weights = prop_oneof![Just((1, 1)), Just((6, 1)), Just((1, 6)), Just((1, 0)), Just((0, 1))];
    (prop_oneof![Just(2), Just(40)], weights)
        .prop_flat_map(|(ranks, (posts, arrivals))| prop::collection::vec(step(ranks, posts, arrivals), 1..60))
}

#[derive(Default)]
struct Handles {
    receives: Vec<(ReceiveHandle, u32)>,
    messages: Vec<(MessageHandle, u32)>,
}

fn pick<T: Copy>(of: &[T], part: u16) -> Option<T> {
    of.get((of.len() * usize::from(part)) >> 16).copied()
}

fn entry_of(Message { envelope, message }: Message<u32>) -> Entry {
    Entry { source: envelope.source(), tag: envelope.tag(), number: message }
}

#[derive(Default)]
struct History {
    matching: Numbered,
    model: Model,
    aside: Vec<Entry>,
    handles: Handles,
    next: u32,
}

impl History {
    fn entry(&mut self, source: i32, tag: i32) -> Entry {
        self.next += 1;
        Entry { source, tag, number: self.next }
    }

    fn post(&mut self, source: i32, tag: i32) {
        let entry = self.entry(source, tag);
        let found = self.matching.search_unexpected(Pattern::new(source, tag)).found;
        if found.is_none() {
            let handle = self.matching.insert_posted(Pattern::new(source, tag), entry.number);
            self.handles.receives.push((handle, entry.number));
        }
        assert_eq!(found.map(entry_of), self.model.post(entry));
    }

    fn arrive(&mut self, source: i32, tag: i32) {
        let entry = self.entry(source, tag);
        let found = self.matching.search_posted(Envelope::new(source, tag)).found;
        if found.is_none() {
            let handle = self.matching.insert_unexpected(Envelope::new(source, tag), entry.number);
            self.handles.messages.push((handle, entry.number));
        }
        assert_eq!(found, self.model.arrive(entry).map(|receive| receive.number));
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Post(source, tag) => self.post(source, tag),
            Step::Arrive(source, tag) => self.arrive(source, tag),
            Step::Probe(source, tag) => {
                let found = self.matching.probe(Pattern::new(source, tag)).found;
                let found =
                    found.map(|Message { envelope, message }| entry_of(Message { envelope, message: *message }));
                assert_eq!(found, self.model.probe(Entry { source, tag, number: 0 }));
            }
            Step::MatchedProbe(source, tag) => {
                let found = self.matching.matched_probe(Pattern::new(source, tag)).found;
                let expected = self.model.take(Entry { source, tag, number: 0 });
                let at = |entry: Entry| Envelope::new(entry.source, entry.tag);
                assert_eq!(found.map(|message| message.envelope), expected.map(at));
                if let (Some(message), Some(entry)) = (found, expected) {
                    assert_eq!(self.matching.message_mut(message.message).copied(), Some(entry.number));
                    self.aside.push(entry);
                }
            }
            Step::Cancel(part) => {
                let Some((handle, number)) = pick(&self.handles.receives, part) else { return };
                let expected = Model::withdraw(&mut self.model.receives, number);
                assert!(!self.matching.cancel(handle, u32::MAX), "another's");
                assert_eq!(self.matching.cancel(handle, number), expected.is_some());
            }
            Step::Take(part) => {
                let Some((handle, number)) = pick(&self.handles.messages, part) else { return };
                let expected = Model::withdraw(&mut self.model.messages, number)
                    .or_else(|| Model::withdraw(&mut self.aside, number));
                assert_eq!(self.matching.take(handle).map(entry_of), expected);
            }
        }
        assert_eq!(self.matching.posted() as usize, self.model.receives.len());
        assert_eq!(self.matching.unexpected() as usize, self.model.messages.len());
    }

    /// Compares the remains with the model's, sorted, because they are in order only within each side.
    fn end(self) {
        let Remains { mut receives, messages } = self.matching.into_remains();
        receives.sort_unstable();
        assert_eq!(receives, self.model.receives.iter().map(|entry| entry.number).collect::<Vec<_>>());
        let mut messages: Vec<Entry> = messages.into_iter().map(entry_of).collect();
        messages.sort_unstable_by_key(|entry| entry.number);
        let mut expected = [self.model.messages, self.aside].concat();
        expected.sort_unstable_by_key(|entry| entry.number);
        assert_eq!(messages, expected);
    }
}

fn run(phases: &[Vec<Step>]) {
    let mut history = History::default();
    for step in phases.iter().flatten() {
        history.step(*step);
    }
    history.end();
}

proptest! {
    #[test]
    #[cfg_attr(miri, ignore = "Miri takes minutes to make a history")]
    fn every_step_of_a_history_has_the_result_of_the_model(phases in prop::collection::vec(phase(), 1..8)) {
        run(&phases);
    }
}
