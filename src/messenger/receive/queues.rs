// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queues of a communicator: its posted receives and its unexpected messages ([`Matching`]), with two places in
//! front of the posted receives.
//!
//! A receive that is posted while no other is posted takes a *first place* instead of entering the queue, and a message
//! is compared with it first. A poll looks only at one of the two places. While tools listen, receives take the other
//! one: so the poll finds none, and its caller raises the events. [`Lengths`] shows the lengths to other threads.
//! Called by `search` and `probe`. Grade: hot. Threads: the one that has entered the messenger. Tests: below.

use super::arrived::Arrived;
use super::probe::Found;
use crate::messenger::matching::lengths::Lengths;
use crate::messenger::matching::{
    Envelope, MatchBits, Matching, Message, MessageHandle, Pattern, ReceiveHandle, Searched,
};

/// Name of the receive in a first place. No receive in the queue has it.
pub const FIRST: u64 = u64::MAX;

/// A place for one posted receive.
#[derive(Debug)]
struct FirstPlace<R, E> {
    /// Meaningless without a receive.
    pattern: Pattern<E>,
    receive: Option<R>,
}

impl<R: Copy, E: MatchBits> FirstPlace<R, E> {
    const FREE: Self = FirstPlace { pattern: Pattern::ALL, receive: None };

    #[inline(always)]
    fn takes(&self, envelope: E) -> bool {
        self.receive.is_some() && self.pattern.takes(envelope)
    }
}

/// The queues of a communicator; a receive (`R`) is named by a small value.
#[derive(Debug)]
pub struct Queues<R, E = Envelope> {
    /// First place while no tool listens.
    without_events: FirstPlace<R, E>,
    /// Number of receives in the queue, and 1 more while tools listen, so that [`Self::post`] looks further.
    behind: u32,
    /// First place while tools listen.
    with_events: FirstPlace<R, E>,
    raises_events: bool,
    matching: Matching<R, Arrived, E>,
}

impl<R: Copy + PartialEq, E: MatchBits> Default for Queues<R, E> {
    fn default() -> Self {
        Queues::new()
    }
}

impl<R: Copy + PartialEq, E: MatchBits> Queues<R, E> {
    /// Makes empty queues.
    pub const fn new() -> Self {
        let (without_events, with_events) = (FirstPlace::FREE, FirstPlace::FREE);
        Queues { without_events, behind: 0, with_events, raises_events: false, matching: Matching::new() }
    }

    /// Returns the number of posted receives.
    pub fn posted(&self) -> u32 {
        self.matching.posted() + u32::from(self.first().receive.is_some())
    }

    /// Returns the number of unexpected messages, without those of matched probes.
    pub fn unexpected(&self) -> u32 {
        self.matching.unexpected()
    }

    /// Returns whether there are unexpected messages, those of matched probes included.
    #[inline(always)]
    pub fn has_messages(&self) -> bool {
        self.matching.has_messages()
    }

    fn first(&self) -> &FirstPlace<R, E> {
        if self.raises_events { &self.with_events } else { &self.without_events }
    }

    fn first_mut(&mut self) -> &mut FirstPlace<R, E> {
        if self.raises_events { &mut self.with_events } else { &mut self.without_events }
    }

    // ---- posted receives --------------------------------------------------------------------------------------------

    /// Takes out the posted receive that a message matches; the one in the first place is older than the others.
    /// `EVENTS`: the caller raises the events. Otherwise it finds no receive while tools listen.
    #[inline(always)]
    pub fn take_posted<const EVENTS: bool>(&mut self, lengths: &Lengths, envelope: E) -> Option<R> {
        let first = if EVENTS { self.first_mut() } else { &mut self.without_events };
        if first.takes(envelope) {
            lengths.set_first(false);
            return first.receive.take();
        }
        self.take_queued::<EVENTS>(lengths, envelope)
    }

    #[inline(never)]
    fn take_queued<const EVENTS: bool>(&mut self, lengths: &Lengths, envelope: E) -> Option<R> {
        if self.raises_events && !EVENTS {
            return None;
        }
        let Searched { found, attempts } = self.matching.search_posted(envelope);
        lengths.searched(attempts);
        if found.is_some() {
            self.count(lengths);
        }
        found
    }

    /// Posts a receive, after a search of the unexpected messages. Returns its name, for [`Self::cancel`].
    #[inline(always)]
    pub fn post(&mut self, lengths: &Lengths, pattern: impl Fn() -> Pattern<E>, receive: R) -> u64 {
        if self.without_events.receive.is_some() || self.behind > 0 {
            return self.post_behind(lengths, pattern(), receive);
        }
        self.without_events = FirstPlace { pattern: pattern(), receive: Some(receive) };
        lengths.set_first(true);
        FIRST
    }

    /// [`Self::post`] for a caller that raises events.
    #[inline(always)]
    pub fn post_with_events(&mut self, lengths: &Lengths, pattern: Pattern<E>, receive: R) -> u64 {
        if !self.raises_events || self.with_events.receive.is_some() || self.matching.posted() > 0 {
            return self.post_behind(lengths, pattern, receive);
        }
        self.with_events = FirstPlace { pattern, receive: Some(receive) };
        lengths.set_first(true);
        FIRST
    }

    #[inline(never)]
    fn post_behind(&mut self, lengths: &Lengths, pattern: Pattern<E>, receive: R) -> u64 {
        if self.posted() == 0 {
            *self.first_mut() = FirstPlace { pattern, receive: Some(receive) };
            lengths.set_first(true);
            return FIRST;
        }
        let name = self.matching.insert_posted(pattern, receive).bits();
        self.count(lengths);
        name
    }

    /// Posts a receive in the place of the one that a message has just taken out, whose name was `name`. No unexpected
    /// message may match it. Returns its name.
    pub fn put_back(&mut self, lengths: &Lengths, name: u64, pattern: Pattern<E>, receive: R) -> u64 {
        if name == FIRST {
            *self.first_mut() = FirstPlace { pattern, receive: Some(receive) };
            lengths.set_first(true);
            return FIRST;
        }
        let name = self.matching.put_back_posted(pattern, receive).bits();
        self.count(lengths);
        name
    }

    /// Takes a posted receive out; returns false if a message has matched it. `name`: the last result of
    /// [`Self::post`] for this receive. Compares the receive as well, because a receive that matched a message at once
    /// was not posted: its name is then an old one, which another receive may have now.
    pub fn cancel(&mut self, lengths: &Lengths, name: u64, receive: R) -> bool {
        if name != FIRST {
            let is_taken = self.matching.cancel(ReceiveHandle::from_bits(name), receive);
            self.count(lengths);
            return is_taken;
        }
        let is_taken = self.first_mut().receive.take_if(|first| *first == receive).is_some();
        lengths.set_first(self.first().receive.is_some());
        is_taken
    }

    fn count(&mut self, lengths: &Lengths) {
        self.behind = self.matching.posted() + u32::from(self.raises_events);
        lengths.posted(self.matching.posted());
    }

    /// Whether tools listen and the receive in the first place takes this message.
    #[inline(always)]
    pub fn is_for_first(&self, envelope: E) -> bool {
        self.raises_events && self.with_events.takes(envelope)
    }

    /// Notes that tools begin, or cease, to listen: moves the receive in the first place.
    pub fn set_raises_events(&mut self, lengths: &Lengths, raises_events: bool) {
        if self.raises_events != raises_events {
            let first = std::mem::replace(self.first_mut(), FirstPlace::FREE);
            self.raises_events = raises_events;
            *self.first_mut() = first;
            self.count(lengths);
        }
    }

    // ---- unexpected messages ----------------------------------------------------------------------------------------

    /// Takes out the first unexpected message that matches a receive.
    pub fn take_unexpected(&mut self, lengths: &Lengths, pattern: Pattern<E>) -> Option<Message<Arrived, E>> {
        let Searched { found, attempts } = self.matching.search_unexpected(pattern);
        lengths.searched(attempts);
        if let Some(found) = &found {
            lengths.removed(self.unexpected(), found.message.length());
        }
        found
    }

    /// Stores a message that matches no posted receive.
    pub fn insert_unexpected(&mut self, lengths: &Lengths, envelope: E, message: Arrived) {
        let bytes = message.length();
        let _ = self.matching.insert_unexpected(envelope, message);
        lengths.inserted(self.unexpected(), bytes);
    }

    /// Removes and returns the queued messages for which `is_gone` holds: their sender is lost.
    pub(in crate::messenger) fn drop_unexpected(
        &mut self,
        lengths: &Lengths,
        is_gone: impl FnMut(E, &Arrived) -> bool,
    ) -> Vec<Arrived> {
        let dropped = self.matching.drop_unexpected(is_gone);
        for message in &dropped {
            lengths.removed(self.unexpected(), message.length());
        }
        dropped
    }

    /// Returns the message that a receive would get.
    pub(super) fn probe(&mut self, pattern: Pattern<E>) -> Option<Found<E>> {
        let Message { envelope, message } = self.matching.probe(pattern).found?;
        Some(Found { envelope, length: message.length(), message: None })
    }

    /// Moves the message that a receive would get out of the queue. Then only its handle leads to it.
    pub(super) fn set_aside(&mut self, lengths: &Lengths, pattern: Pattern<E>) -> Option<Found<E>> {
        let Message { envelope, message: handle } = self.matching.matched_probe(pattern).found?;
        let length = self.aside(handle).map_or(0, |message| message.length());
        lengths.removed(self.unexpected(), length);
        Some(Found { envelope, length, message: Some(handle) })
    }

    /// Returns the message with this handle; `None` if it was taken.
    pub(in crate::messenger) fn aside(&mut self, handle: MessageHandle) -> Option<&mut Arrived> {
        self.matching.message_mut(handle)
    }

    /// Takes the message with this handle; `None` if it was taken before.
    pub(super) fn take_aside(&mut self, handle: MessageHandle) -> Option<Message<Arrived, E>> {
        self.matching.take(handle)
    }

    /// Ends the communicator. Returns the messages that no receive has got.
    pub fn into_messages(self) -> Vec<Message<Arrived, E>> {
        self.matching.into_remains().messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::Random;
    use crate::messenger::matching::lengths::Of;
    use crate::messenger::matching::{ANY_SOURCE, ANY_TAG};

    const ANY: Pattern = Pattern::new(ANY_SOURCE, ANY_TAG);

    /// Queues of receives that are numbers, and their lengths.
    #[derive(Default)]
    struct Numbers(Queues<usize>, Lengths);

    impl Numbers {
        fn post(&mut self, pattern: Pattern, number: usize) -> u64 {
            self.0.post(&self.1, || pattern, number)
        }

        fn post_with_events(&mut self, pattern: Pattern, number: usize) -> u64 {
            self.0.post_with_events(&self.1, pattern, number)
        }

        fn taken(&mut self, source: i32, tag: i32) -> Option<usize> {
            self.0.take_posted::<false>(&self.1, Envelope::new(source, tag))
        }

        fn taken_with_events(&mut self, source: i32, tag: i32) -> Option<usize> {
            self.0.take_posted::<true>(&self.1, Envelope::new(source, tag))
        }

        fn cancels(&mut self, name: u64, number: usize) -> bool {
            self.0.cancel(&self.1, name, number)
        }

        fn set_raises_events(&mut self, raises_events: bool) {
            self.0.set_raises_events(&self.1, raises_events);
        }

        /// Returns the number of posted receives, which other threads see, too.
        fn posted(&self) -> u32 {
            assert_eq!(u64::from(self.0.posted()), self.1.now(Of::Posted));
            self.0.posted()
        }
    }

    #[test]
    fn messages_go_to_receives_in_posting_order_whether_the_receives_are_queued_or_not() {
        let mut of = Numbers::default();
        of.post(Pattern::new(0, 7), 1);
        of.post(ANY, 2);
        of.post(Pattern::new(0, 7), 3);
        assert_eq!(of.taken(1, 7), Some(2));
        assert_eq!(of.taken(0, 7), Some(1));
        // The first place is free, but a younger receive must not be put there.
        of.post(ANY, 4);
        assert_eq!([of.taken(0, 7), of.taken(0, 7), of.taken(0, 7)], [Some(3), Some(4), None]);
    }

    #[test]
    fn a_poll_finds_no_receive_while_events_are_raised_and_receives_keep_their_order() {
        let mut of = Numbers::default();
        let first = of.post(Pattern::new(0, 7), 1);
        of.set_raises_events(true);
        of.set_raises_events(true);
        let second = of.post(ANY, 2);
        of.post(ANY, 3);
        assert_eq!(of.taken(0, 7), None);
        assert_eq!([of.taken_with_events(1, 7), of.taken_with_events(0, 7)], [Some(2), Some(1)]);
        assert!(!of.cancels(first, 1) && !of.cancels(second, 2));
        of.set_raises_events(false);
        assert_eq!([of.taken(0, 7), of.taken(0, 7)], [Some(3), None]);
        // A receive moves between the first places, and can be cancelled in both.
        let name = of.post(ANY, 4);
        of.set_raises_events(true);
        of.set_raises_events(false);
        of.post(ANY, 5);
        assert_eq!([of.taken(0, 7), of.taken(0, 7)], [Some(4), Some(5)]);
        assert!(!of.cancels(name, 4));
        let name = of.post(ANY, 6);
        of.set_raises_events(true);
        assert!(of.cancels(name, 6));
        assert_eq!(of.taken_with_events(0, 7), None);
        // While tools listen, too, a receive that is posted first takes the first place, which is in no queue.
        assert_eq!([7, 8].map(|number| of.post(ANY, number) == FIRST), [true, false]);
        assert_eq!((of.posted(), of.0.is_for_first(Envelope::new(0, 7))), (2, true));
        of.set_raises_events(false);
        assert_eq!(of.posted(), 2);
        of.set_raises_events(true);
        assert_eq!(
            [of.taken_with_events(0, 7), of.taken_with_events(0, 7), of.taken_with_events(0, 7)],
            [Some(7), Some(8), None]
        );
        assert_eq!((of.posted(), of.0.is_for_first(Envelope::new(0, 7))), (0, false));
    }

    /// Any of 40 receives, queued and in the first place, has a successor once it was taken. The queue is long enough
    /// for indexes.
    #[test]
    fn a_receive_that_is_put_back_is_as_old_as_the_one_that_was_taken() {
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let mut of = Numbers::default();
            of.set_raises_events(seed % 2 == 0);
            let mut waiting: Vec<(i32, usize, u64)> = Vec::new();
            for number in 0..40 {
                let tag = random.below(30) as i32;
                waiting.push((tag, number, of.post_with_events(Pattern::new(0, tag), number)));
            }
            for number in 40..400 {
                let tag = random.below(30) as i32;
                let place = waiting.iter().position(|(other, ..)| *other == tag);
                assert_eq!(of.taken_with_events(0, tag), place.map(|place| waiting[place].1), "seed {seed}");
                let Some(place) = place else { continue };
                if random.below(4) == 0 {
                    waiting.remove(place);
                } else {
                    let tag = random.below(30) as i32;
                    let name = of.0.put_back(&of.1, waiting[place].2, Pattern::new(0, tag), number);
                    waiting[place] = (tag, number, name);
                }
                assert_eq!(of.posted() as usize, waiting.len(), "seed {seed}");
            }
            assert!(waiting.iter().all(|(_, number, name)| of.cancels(*name, *number)), "seed {seed}");
        }
    }

    #[test]
    fn cancel_succeeds_once_and_never_after_a_match() {
        let mut of = Numbers::default();
        let names = [1, 2].map(|number| of.post(Pattern::new(1, number as i32), number));
        let cancels = [(0, 1), (0, 1), (1, 2), (1, 2)].map(|(at, number)| of.cancels(names[at], number));
        assert_eq!(cancels, [true, false, true, false]);
        let name = of.post(Pattern::new(1, 1), 3);
        assert_eq!(of.taken(1, 1), Some(3));
        assert!(!of.cancels(name, 3));
        of.post(Pattern::new(1, 1), 4);
        assert!(!of.cancels(name, 3), "another receive is in the first place now");
        assert_eq!(of.posted(), 1);
    }

    #[test]
    fn cancelling_a_receive_never_takes_out_another() {
        const RECEIVES: usize = 6;
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let mut below = |limit: usize| random.below(limit as u64) as usize;
            let mut comms = [Numbers::default(), Numbers::default()];
            // Posted receives of each communicator in order; communicator and last name of each receive, which keeps
            // its last name when it matches a message at once.
            let mut waiting: [Vec<usize>; 2] = Default::default();
            let mut of = [0; RECEIVES];
            let mut names = [0; RECEIVES];
            for _ in 0..200 {
                let (at, one) = (below(2), below(RECEIVES));
                match below(5) {
                    0 if waiting.iter().all(|receives| !receives.contains(&one)) => {
                        of[one] = at;
                        let post = if below(2) == 0 { Numbers::post } else { Numbers::post_with_events };
                        names[one] = post(&mut comms[at], ANY, one);
                        waiting[at].push(one);
                    }
                    1 if waiting.iter().all(|receives| !receives.contains(&one)) => of[one] = at,
                    2 => {
                        let expected = (!waiting[at].is_empty()).then(|| waiting[at].remove(0));
                        assert_eq!(comms[at].taken_with_events(0, 7), expected, "seed {seed}");
                    }
                    3 => comms[at].set_raises_events(below(2) == 0),
                    _ => {
                        let place = waiting[of[one]].iter().position(|waits| *waits == one);
                        assert_eq!(comms[of[one]].cancels(names[one], one), place.is_some(), "seed {seed}");
                        place.map(|place| waiting[of[one]].remove(place));
                    }
                }
                assert_eq!(comms[at].posted() as usize, waiting[at].len(), "seed {seed}");
            }
        }
    }
}
