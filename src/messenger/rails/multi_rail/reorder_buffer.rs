// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps the order of the messages of one process to another while they move from port to port. A process sends all its
//! messages to a peer by one port, which keeps their order, so messages carry no number. When that port goes down the
//! messages *move*: the following ones, a *segment*, take another port. A segment begins with `Moved`: how often the
//! messages have moved, and how many messages the previous segment had. The receiver counts the messages that it has
//! handled, and holds messages of a later segment until the current one is complete. So the sender need not wait until
//! its messages have arrived. Counts are per pair of processes, over all communicators, and wrap.
//!
//! ```text
//! sender     port 1: a b c ... (the link is down)
//!            port 2:            Moved(segment 1, count 3) d e
//! receiver   port 2: Moved, d and e are held         port 1: a b c      then d e
//! ```
//!
//! If the adapter gives up a message, it is lost, and the sender ends the job. Called by `multi_rail`. Grade: pending;
//! for a peer that has never moved, the receiver only counts. Threads: the owner's. Tests: below.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

/// The receiver's state for a peer whose messages have moved.
#[derive(Debug)]
pub(crate) struct ReorderBuffer<M> {
    /// The segment whose messages are handled now.
    now: u32,
    /// Number of its messages that the receiver has handled.
    dealt_with: u32,
    /// For each port, the segment of the messages that come by it.
    segments: Vec<u32>,
    /// Segments whose number of messages is known, with that number: at most [`AHEAD`], each once.
    ends: Vec<(u32, u32)>,
    /// Messages of later segments, by segment, in order of arrival. No queue is empty.
    held: HashMap<u32, VecDeque<M>>,
}

/// Most segments that a peer is ahead of the current one: it moves when a link changes, which cannot happen more often
/// while an adapter repeats one message.
const AHEAD: u32 = 1 << 12;

impl<M> ReorderBuffer<M> {
    /// Starts with a peer that has sent `received` messages by one of `ports` ports, and has never moved.
    pub(crate) fn new(ports: usize, received: u32) -> Self {
        ReorderBuffer { now: 0, dealt_with: received, segments: vec![0; ports], ends: Vec::new(), held: HashMap::new() }
    }

    /// Notes the arrival of a message by this port. Returns true if it is in turn; else the caller holds it.
    pub(crate) fn arrived(&mut self, port: usize) -> bool {
        let is_its_turn = self.segments[port] == self.now;
        self.dealt_with = self.dealt_with.wrapping_add(u32::from(is_its_turn));
        is_its_turn
    }

    /// Holds a message that came by this port.
    pub(crate) fn hold(&mut self, port: usize, message: M) {
        self.held.entry(self.segments[port]).or_default().push_back(message);
    }

    /// Notes a `Moved` that came by this port: segment `segment` begins there, the previous one has `count` messages.
    /// Ignores it if no peer sends it: the segment has begun already, or is too far ahead.
    pub(crate) fn moved(&mut self, port: usize, segment: u32, count: u32) {
        let previous = segment.wrapping_sub(1);
        if previous.wrapping_sub(self.now) < AHEAD && self.ends.iter().all(|(known, _)| *known != previous) {
            self.segments[port] = segment;
            self.ends.push((previous, count));
        }
    }

    /// Returns the next held message that is in turn now, and counts it.
    pub(crate) fn release(&mut self) -> Option<M> {
        loop {
            if let Entry::Occupied(mut held) = self.held.entry(self.now) {
                self.dealt_with = self.dealt_with.wrapping_add(1);
                let first = held.get_mut().pop_front();
                if held.get().is_empty() {
                    held.remove();
                }
                return first;
            }
            let end = (self.now, self.dealt_with);
            let at = self.ends.iter().position(|known| *known == end)?;
            self.ends.swap_remove(at);
            (self.now, self.dealt_with) = (self.now.wrapping_add(1), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone, Copy)]
    enum Wire {
        Moved(u32, u32),
        Message(u32),
    }

    /// Returns the messages of each port, and their number, if the sender moves to each port of `stays` in turn and
    /// sends that many messages there.
    fn sent(ports: usize, stays: &[(usize, u32)]) -> (Vec<VecDeque<Wire>>, u32) {
        let (mut wires, mut number) = (vec![VecDeque::new(); ports], 0);
        let mut before: Option<(usize, u32)> = None;
        for (segment, (port, count)) in (0..).zip(stays) {
            let port = port % ports;
            if let Some((_, count)) = before {
                wires[port].push_back(Wire::Moved(segment, count));
            }
            for _ in 0..*count {
                wires[port].push_back(Wire::Message(number));
                number += 1;
            }
            before = Some((port, *count));
        }
        (wires, number)
    }

    proptest! {
        #[test]
        fn messages_come_out_in_order_however_ports_are_delayed(
            stays in proptest::collection::vec((0..3_usize, 0..5_u32), 1..20),
            choices in proptest::collection::vec(0..3_usize, 300),
        ) {
            let (mut wires, total) = sent(3, &stays);
            let (mut buffer, mut out) = (ReorderBuffer::new(3, 0), Vec::new());
            let rest = (0..3).flat_map(|port| std::iter::repeat_n(port, 200));
            for port in choices.into_iter().chain(rest) {
                match wires[port].pop_front() {
                    Some(Wire::Moved(segment, count)) => buffer.moved(port, segment, count),
                    Some(Wire::Message(number)) if buffer.arrived(port) => out.push(number),
                    Some(Wire::Message(number)) => buffer.hold(port, number),
                    None => continue,
                }
                while let Some(number) = buffer.release() {
                    out.push(number);
                }
            }
            prop_assert_eq!(out, (0..total).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_message_in_turn_costs_the_same_however_many_wait_for_a_later_segment() {
        const MANY: u32 = 1 << 16;
        let mut buffer = ReorderBuffer::new(2, 0);
        buffer.moved(1, 1, MANY);
        for number in 0..MANY {
            assert!(!buffer.arrived(1));
            buffer.hold(1, number);
        }
        // `release` searches nothing but these two tables, which have an entry per segment, not per message.
        assert_eq!((buffer.held.len(), buffer.ends.len()), (1, 1));
        for _ in 1..MANY {
            assert!(buffer.arrived(0));
            assert_eq!(buffer.release(), None);
        }
        assert!(buffer.arrived(0));
        assert!((0..MANY).eq(std::iter::from_fn(|| buffer.release())));
    }

    #[test]
    fn a_segment_begins_once_and_only_so_far_ahead() {
        for now in [0, u32::MAX - 1] {
            let mut buffer = ReorderBuffer::<()>::new(2, 0);
            (buffer.now, buffer.segments) = (now, vec![now; 2]);
            for segment in (0..=AHEAD + 1).chain([1, AHEAD, 1 << 31, u32::MAX]) {
                buffer.moved(1, now.wrapping_add(segment), 7);
            }
            assert_eq!((buffer.ends.len(), buffer.segments[1]), (AHEAD as usize, now.wrapping_add(AHEAD)));
        }
    }

    #[test]
    fn messages_before_the_first_move_count() {
        let mut buffer = ReorderBuffer::new(2, 5);
        buffer.moved(1, 1, 6);
        assert!(!buffer.arrived(1));
        buffer.hold(1, 'd');
        assert_eq!(buffer.release(), None);
        assert!(buffer.arrived(0));
        assert_eq!((buffer.release(), buffer.release()), (Some('d'), None));
        assert!(buffer.arrived(1));
    }
}
