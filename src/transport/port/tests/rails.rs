// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interface for a caller with several ports: whether a port is ready, and unposted and lost messages.

use super::*;
use crate::transport::kept::Unposted;
use crate::transport::tx::request::Request;

const KEPT: u8 = 5;
const OTHER: u8 = 6;

impl Side {
    fn send_other(&mut self, token: u64) {
        let bytes: Arc<[u8]> = [0].into();
        self.port.queue_bytes(self.peer, OTHER, (bytes, 1), Token(token), WhenDiverted::Wait).expect("it may wait");
    }

    /// Takes the messages that were never posted; returns their tokens, with which they begin.
    fn unposted(&mut self) -> Vec<u64> {
        let messages = self.port.take_unposted(self.peer);
        let token = |message| match message {
            Unposted::Bytes { bytes, length: 1, token } if u64::from(bytes[0]) == token.0 => token.0,
            other => panic!("{other:?}"),
        };
        messages.into_iter().map(token).collect()
    }

    fn set_link(&mut self, kind: u32) {
        self.script.state().async_events.push_back(AsyncEvent { kind, port: 1 });
        (0..=ASYNC_INTERVAL).for_each(|_| self.poll());
    }
}

#[test]
fn a_requested_port_connects_and_stays_ready_until_it_loses_its_link_or_its_connection() {
    let mut pair = Pair::apart();
    assert!(!pair.a.port.is_ready(pair.a.peer));
    pair.carry();
    assert!(pair.a.port.is_ready(pair.a.peer));
    assert_eq!((state(&pair.a), pair.a.port.partner(pair.a.peer)), (QpState::ReadyToSend, Some(0)));
    for (kind, is_ready) in [(async_event::PORT_ERR, false), (async_event::PORT_ACTIVE, true)] {
        pair.a.set_link(kind);
        assert_eq!((pair.a.port.is_ready(pair.a.peer), pair.a.port.is_down()), (is_ready, !is_ready));
    }
    pair.a.fail_first();
    assert!(!pair.a.port.is_ready(pair.a.peer));
}

#[test]
fn a_port_repeats_that_its_link_is_back_while_peers_are_diverted() {
    let mut pair = Pair::connected();
    pair.a.port.divert_all(|_| false);
    let mut reports_after = |kind| {
        pair.a.seen.clear();
        pair.a.set_link(kind);
        let seen = pair.a.seen.iter();
        let reports = seen.filter_map(|completion| match completion {
            Completion::LinkChanged { is_up } => Some(*is_up),
            _ => None,
        });
        reports.collect::<Vec<_>>()
    };
    assert_eq!([reports_after(async_event::PORT_ERR), reports_after(async_event::LID_CHANGE)], [vec![false], vec![]]);
    let back = [reports_after(async_event::PORT_ACTIVE), reports_after(async_event::LID_CHANGE)];
    assert!(back.iter().all(|reports| reports.first() == Some(&true)), "{back:?}");
    assert_eq!(pair.a.port.undivert(|_| true), 0);
    pair.a.seen.clear();
    pair.a.set_link(async_event::LID_CHANGE);
    assert!(pair.a.seen.is_empty(), "{:?}", pair.a.seen);
}

#[test]
fn messages_that_wait_for_a_connection_and_may_move_come_back_when_peers_are_diverted() {
    let mut pair = Pair::apart();
    pair.a.send(1).expect("it may wait");
    pair.a.send_other(2);
    pair.a.port.divert_all(|tag| tag == KEPT);
    pair.a.poll();
    assert_eq!(pair.a.ended(), [(1, UNPOSTED)]);
    let mut pair = Pair::connected();
    (2..=u64::from(DEPTH) + 2).for_each(|token| pair.a.send(token).expect("it may wait"));
    pair.a.port.divert_all(|_| true);
    pair.a.poll();
    assert!(pair.a.ended().is_empty(), "the connection is made");
}

#[test]
fn a_port_reaches_a_peer_unless_it_has_no_link_or_the_peer_is_diverted_and_knows_what_is_under_way() {
    let name = PeerName { job: 1, rank: 1 };
    // Whether the port reaches the peer, whether the peer is diverted, and whether anything is under way.
    let standing = |pair: &Pair| {
        let (port, peer) = (&pair.a.port, pair.a.peer);
        (port.reaches(name) == Some(peer), port.is_diverted(peer), port.is_busy_with(name))
    };
    let mut pair = Pair::apart();
    assert_eq!(standing(&pair), (true, false, false));
    pair.a.send(1).expect("it may wait");
    assert_eq!(standing(&pair), (true, false, true), "it waits");
    let mut pair = Pair::connected();
    assert_eq!(standing(&pair), (true, false, false));
    pair.a.send(2).expect("it goes");
    assert_eq!(standing(&pair), (true, false, true), "it is not acknowledged");
    pair.a.script.complete(0, Status::SUCCESS);
    pair.a.poll();
    pair.a.port.divert_all(|_| true);
    assert_eq!(standing(&pair), (false, true, false));
    pair.a.port.undivert(|_| true);
    for (kind, is_reached) in [(async_event::PORT_ERR, false), (async_event::PORT_ACTIVE, true)] {
        pair.a.set_link(kind);
        assert_eq!(standing(&pair), (is_reached, false, false));
    }
}

#[test]
fn take_unposted_takes_messages_in_order_and_other_requests_go() {
    let mut pair = Pair::apart();
    pair.a.port.keep_unposted(KEPT);
    pair.a.send(1).expect("it may wait");
    pair.a.send_other(9);
    (2..=3).for_each(|token| pair.a.send(token).expect("it may wait"));
    assert_eq!(pair.a.unposted(), [1, 2, 3]);
    assert_eq!(pair.a.unposted(), []);
    assert_eq!(pair.a.count(|counters| &counters.waiting), 1);
    pair.carry();
    pair.transfer();
    pair.a.poll();
    assert_eq!(pair.a.ended(), [(9, Ok(()))]);
}

#[test]
fn take_unposted_takes_of_an_established_connection_the_messages_that_the_adapter_does_not_have() {
    let mut pair = Pair::connected();
    pair.a.port.keep_unposted(KEPT);
    let depth = u64::from(DEPTH);
    (10..10 + depth + 2).for_each(|token| pair.a.send(token).expect("it may wait"));
    assert_eq!((pair.a.unposted(), pair.a.unposted()), (vec![10 + depth, 11 + depth], vec![]));
}

#[test]
fn a_port_keeps_messages_that_wait_when_a_connection_fails_and_returns_no_tokens() {
    let mut pair = Pair::connected();
    pair.a.port.keep_unposted(KEPT);
    let depth = u64::from(DEPTH);
    (10..10 + depth + 2).for_each(|token| pair.a.send(token).expect("it may wait"));
    pair.a.send_other(9);
    pair.a.fail_first();
    assert_eq!(pair.a.tokens(), std::iter::once(9).chain(10..10 + depth).collect::<Vec<_>>());
    assert_eq!(pair.a.unposted(), [10 + depth, 11 + depth]);
    assert_eq!(pair.a.unposted(), []);
}

#[test]
fn a_port_that_keeps_no_messages_returns_all_tokens_as_failed_and_reports_none_lost() {
    let mut pair = Pair::connected();
    let depth = u64::from(DEPTH);
    (10..10 + depth + 2).for_each(|token| pair.a.send(token).expect("it may wait"));
    pair.a.fail_first();
    assert_eq!(pair.a.ended().len() as u64, depth + 2);
    assert_eq!((pair.a.unposted(), pair.a.port.has_lost(pair.a.peer)), (vec![], false));
}

#[test]
fn a_message_that_the_adapter_had_may_be_lost_with_its_connection_unless_it_was_delivered() {
    for is_delivered in [false, true] {
        let mut pair = Pair::connected();
        pair.a.port.keep_unposted(KEPT);
        pair.a.send(2).expect("it goes");
        if is_delivered {
            pair.a.script.complete(0, Status::SUCCESS);
            pair.a.poll();
            pair.a.port.queue(pair.a.peer, Request::NOTHING).expect("it may wait");
            pair.a.poll();
        }
        assert!(!pair.a.port.has_lost(pair.a.peer));
        pair.a.fail_first();
        assert_eq!(pair.a.port.has_lost(pair.a.peer), !is_delivered);
    }
}

#[test]
fn a_message_that_a_replaced_connection_had_may_be_lost_whether_the_successor_fails_for_it_or_with_its_port() {
    for event in [None, Some(async_event::DEVICE_FATAL)] {
        let mut pair = Pair::connected();
        pair.b.port.keep_unposted(KEPT);
        pair.b.send(2).expect("it goes");
        pair.a.part();
        pair.a.send(9).expect("it may wait");
        pair.carry();
        assert!(!pair.b.port.has_lost(pair.b.peer));
        if let Some(event) = event {
            pair.b.set_link(event);
        } else {
            pair.b.script.flush();
            pair.b.poll();
        }
        assert_eq!((pair.b.failures(), pair.b.port.has_lost(pair.b.peer)), (1, true));
    }
}

#[test]
fn a_message_that_was_posted_at_once_counts_if_the_caller_noted_it() {
    for is_noted in [false, true] {
        let mut pair = Pair::connected();
        pair.a.port.keep_unposted(KEPT);
        let slot = pair.a.port.grow(64, 1).expect("a slot")[0];
        assert_eq!(pair.a.port.send(pair.a.peer, KEPT, &[slot], Token(2), true), Ok(Sent::Posted));
        if is_noted {
            pair.a.port.note_message(pair.a.peer);
        }
        pair.a.fail_first();
        assert_eq!(pair.a.port.has_lost(pair.a.peer), is_noted);
    }
}
