// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a connection over an adapter that loses the unpolled completions of a destroyed queue pair.

use super::*;
use crate::transport::connections::connection::Connection;
use crate::transport::tx::request::Request;
use crate::transport::work_request::Immediate;

#[test]
fn a_port_posts_the_slots_of_unpolled_messages_again_however_often_it_gives_up_a_peer() {
    let mut pair = Pair::connected();
    for _ in 0..3 * SLOTS {
        let index = pair.b.script.connected().expect("they are connected");
        (0..3).for_each(|_| {
            pair.b.script.deliver(index, 8, Some(0)).expect("the receiver is ready");
        });
        pair.b.part();
        pair.b.script.flush();
        (0..4).for_each(|_| pair.b.poll());
        pair.a.part();
        pair.a.script.flush();
        (0..4).for_each(|_| pair.a.poll());
        pair.a.send(2).expect("it may wait");
        pair.carry();
        pair.transfer();
        pair.a.poll();
    }
    (0..4).for_each(|_| pair.b.poll());
    pair.b.has_all_slots();
    assert_eq!([pair.a.script.living(), pair.b.script.living()], [1; 2]);
}

#[test]
fn a_request_comes_back_when_the_adapter_has_let_go_of_it_and_not_before() {
    let mut pair = Pair::connected();
    (2..5).for_each(|token| pair.a.send(token).expect("it goes"));
    pair.a.port.forget(pair.a.peer);
    (0..8).for_each(|_| pair.a.poll());
    assert_eq!((state(&pair.a), pair.a.ended()), (QpState::Error, vec![]));
    pair.a.script.flush();
    (0..4).for_each(|_| pair.a.poll());
    assert_eq!(state(&pair.a), QpState::Destroyed);
    assert_eq!(pair.a.ended(), [(2, FLUSHED), (3, FLUSHED), (4, FLUSHED)]);
    assert_eq!(pair.a.port.tx.credits(), CAPACITY - SLOTS);
}

#[test]
fn a_port_polls_flushed_receives_behind_the_end_marker_before_it_destroys_the_queue_pair() {
    let mut pair = Pair::connected();
    let number = pair.b.script.state().qps[0].number;
    pair.b.port.forget(pair.b.peer);
    pair.b.script.flush();
    pair.b.poll();
    let slot = pair.b.script.state().receives.pop_front().expect("a slot");
    let late = WorkCompletion::scripted(WrId::receive(slot).0, Status::FLUSHED, 0, None, number);
    pair.b.script.state().completions.push_back(late);
    (0..4).for_each(|_| pair.b.poll());
    assert_eq!(state(&pair.b), QpState::Destroyed);
    pair.b.has_all_slots();
}

#[test]
fn an_adapter_that_never_flushes_holds_a_queue_pair_up_for_a_bounded_time() {
    let mut pair = Pair::connected();
    pair.a.send(2).expect("it goes");
    pair.a.port.forget(pair.a.peer);
    let mut polls = 0;
    while state(&pair.a) != QpState::Destroyed {
        pair.a.poll();
        polls += 1;
        assert!(polls < 10_000, "it waits without an end");
    }
    pair.a.poll();
    assert_eq!((pair.a.ended(), pair.a.port.tx.credits()), (vec![(2, FLUSHED)], CAPACITY - SLOTS));
}

#[test]
fn a_port_drains_a_queue_pair_even_if_its_deadline_passed_without_a_poll() {
    let mut pair = Pair::connected();
    pair.b.deliver(SLOTS);
    pair.b.port.forget(pair.b.peer);
    pair.b.script.flush();
    pair.b.script.state().now += std::time::Duration::from_hours(1);
    (0..6).for_each(|_| pair.b.poll());
    assert_eq!((state(&pair.b), pair.b.script.state().receives.len()), (QpState::Destroyed, SLOTS as usize));
}

#[test]
fn a_port_posts_an_end_marker_as_soon_as_there_is_room() {
    let mut pair = Pair::connected();
    pair.a.script.state().answers = [Some(libc::ENOMEM), Some(libc::ENOMEM)].into();
    pair.a.port.forget(pair.a.peer);
    assert_eq!(pair.a.script.state().qps[0].posted.len(), 0);
    (0..4).for_each(|_| pair.a.poll());
    assert_eq!(pair.a.script.state().qps[0].posted.len(), 1);
    pair.a.script.flush();
    (0..4).for_each(|_| pair.a.poll());
    assert_eq!((state(&pair.a), pair.a.port.tx.credits()), (QpState::Destroyed, CAPACITY - SLOTS));
}

/// `b` sends by a connection that `a` gives up, and `a` connects anew. Then `b` sends once more.
fn replaced(send: impl Fn(&mut Side)) -> Pair {
    let mut pair = Pair::connected();
    send(&mut pair.b);
    pair.a.part();
    pair.a.send(9).expect("it may wait");
    pair.carry();
    assert_eq!((pair.b.script.connected(), state(&pair.b)), (Some(SUCCESSOR), QpState::Error));
    pair.b.send(5).expect("it may wait");
    pair
}

/// The place of the queue pair that replaces the first one.
const SUCCESSOR: usize = 1;

/// The adapter flushes the replaced queue pair.
fn drain(side: &mut Side) {
    side.script.flush();
    (0..4).for_each(|_| side.poll());
    assert_eq!(state(side), QpState::Destroyed);
}

/// A message without a token arrives, and its completion is not reported.
fn deliver_unsignalled(side: &mut Side) {
    assert_eq!(side.post(), Sent::Posted);
    assert!(side.script.complete(0, Status::SUCCESS) && side.script.state().completions.is_empty());
}

#[test]
fn a_replaced_connection_that_has_lost_a_message_with_or_without_a_token_fails_with_a_reason_and_none_overtakes_it() {
    for token in [0, 2] {
        let mut pair = replaced(|side| side.send(token).expect("it goes"));
        drain(&mut pair.b);
        assert_eq!((pair.b.failures(), pair.b.port.take_unprinted().len()), (1, 1));
        assert!(pair.b.ended().contains(&(5, UNPOSTED)));
    }
}

#[test]
fn a_connection_with_nothing_but_a_probe_is_replaced_without_a_failure() {
    let mut pair = replaced(|side| {
        side.port.queue(side.peer, Request::NOTHING).expect("it goes");
        side.poll();
    });
    pair.b.script.complete_all(SUCCESSOR, Status::SUCCESS);
    drain(&mut pair.b);
    assert_eq!((pair.b.failures(), pair.b.ended()), (0, vec![(5, Ok(()))]));
}

#[test]
fn a_connection_waits_for_the_one_that_it_replaces_and_goes_on_even_if_its_port_is_diverted_meanwhile() {
    for is_diverted in [false, true] {
        let mut pair = replaced(deliver_unsignalled);
        if is_diverted {
            pair.b.port.divert_all(|_| false);
        }
        assert_eq!(pair.b.script.posted(SUCCESSOR).len(), 0, "the message may yet prove to be lost");
        drain(&mut pair.b);
        assert_eq!((pair.b.script.posted(SUCCESSOR).len(), pair.b.port.is_ready(pair.b.peer)), (1, !is_diverted));
        pair.b.port.undivert(|_| true);
        assert!(pair.b.port.is_ready(pair.b.peer));
        pair.b.script.complete_all(SUCCESSOR, Status::SUCCESS);
        pair.b.poll();
        assert_eq!((pair.b.failures(), pair.b.ended()), (0, vec![(5, Ok(()))]));
    }
}

#[test]
fn a_connection_fails_if_the_adapter_has_not_flushed_the_one_that_it_replaces_by_the_deadline() {
    let mut pair = replaced(deliver_unsignalled);
    let mut polls = 0;
    while state(&pair.b) != QpState::Destroyed {
        assert_eq!(pair.b.failures(), 0, "the adapter may yet flush it");
        pair.b.poll();
        polls += 1;
        assert!(polls < 10_000, "it waits without an end");
    }
    pair.b.poll();
    assert_eq!((pair.b.failures(), pair.b.ended()), (1, vec![(5, UNPOSTED)]));
}

#[test]
fn a_connection_does_not_fail_if_the_deadline_of_the_one_that_it_replaces_passed_without_a_poll() {
    let mut pair = replaced(deliver_unsignalled);
    pair.b.script.state().now += std::time::Duration::from_hours(1);
    drain(&mut pair.b);
    assert_eq!((pair.b.failures(), pair.b.script.posted(SUCCESSOR).len()), (0, 1));
}

#[test]
fn requests_that_were_lost_with_a_replaced_connection_fail_only_the_connection_that_replaces_it() {
    let mut pair = replaced(|side| (0..2).for_each(|_| assert_eq!(side.post(), Sent::Posted)));
    assert!(pair.b.script.complete(0, Status::FLUSHED));
    pair.b.poll();
    assert_eq!(pair.b.failures(), 1);
    pair.b.port.part(pair.b.peer);
    pair.b.port.rejoin(pair.b.peer);
    pair.b.send(6).expect("by another connection");
    pair.carry();
    drain(&mut pair.b);
    assert_eq!((pair.b.failures(), pair.b.port.is_ready(pair.b.peer)), (1, true));
}

#[test]
fn a_request_delivered_before_its_connection_was_replaced_does_not_fail() {
    let mut pair = Pair::connected();
    (2..5).for_each(|token| pair.b.send(token).expect("it goes"));
    let old = pair.b.script.connected().expect("they are connected");
    pair.b.script.complete_all(old, Status::SUCCESS);
    pair.a.part();
    pair.a.send(9).expect("it may wait");
    pair.carry();
    assert_ne!(pair.b.script.connected(), Some(old), "another one took its place");
    pair.b.script.flush();
    (0..4).for_each(|_| pair.b.poll());
    assert_eq!(pair.b.ended(), [(2, Ok(())), (3, Ok(())), (4, Ok(()))]);
    assert_eq!(pair.b.port.tx.credits(), CAPACITY - SLOTS);
}

#[test]
fn a_request_delivered_before_its_peer_was_given_up_does_not_fail() {
    let mut pair = Pair::connected();
    (2..5).for_each(|token| pair.a.send(token).expect("it goes"));
    assert!((0..2).all(|_| pair.a.script.complete(0, Status::SUCCESS)));
    pair.a.port.forget(pair.a.peer);
    pair.a.script.flush();
    (0..4).for_each(|_| pair.a.poll());
    assert_eq!(pair.a.ended(), [(2, Ok(())), (3, Ok(())), (4, FLUSHED)]);
}

#[test]
fn the_end_of_the_port_waits_for_no_flush() {
    let mut pair = Pair::connected();
    pair.a.send(2).expect("it goes");
    pair.a.part();
    pair.a.port.close();
    assert_eq!(pair.a.script.living(), 0);
    pair.a.poll();
    assert_eq!(pair.a.ended(), [(2, FLUSHED)]);
}

#[test]
fn a_port_knows_the_sender_of_a_message_although_its_queue_pair_was_replaced() {
    let mut pair = Pair::connected();
    let immediate = Immediate::new(0, Immediate::endpoint_bits(pair.b.peer.index()));
    let number = |side: &Side| side.port.connections.get(side.peer).map(Connection::number).expect("connected");
    let (index, before) = (pair.b.script.connected().expect("they are connected"), number(&pair.b));
    pair.b.script.deliver(index, 8, Some(immediate.0)).expect("the receiver is ready");
    pair.a.part();
    pair.a.send(2).expect("it may wait");
    pair.carry();
    let after = number(&pair.b);
    assert_ne!(before, after, "it was replaced");
    assert_eq!([before, after].map(|number| pair.b.port.sender(immediate, number)), [Some(pair.b.peer); 2]);
    assert!(!pair.b.port.closing.has(EndpointId::from_index(9), before), "it was never another's");
    pair.b.script.flush();
    (0..8).for_each(|_| pair.b.poll());
    assert_eq!(pair.b.port.sender(immediate, before), None, "it is destroyed");
}

#[test]
fn a_port_posts_what_waits_for_a_peer_before_it_gives_the_peer_up() {
    let mut pair = Pair::connected();
    let tokens = 2..u64::from(DEPTH) + 5;
    tokens.clone().for_each(|token| pair.a.send(token).expect("it may wait"));
    assert!((0..3).all(|_| pair.a.script.complete(0, Status::SUCCESS)));
    pair.a.port.forget(pair.a.peer);
    pair.a.script.flush();
    (0..4).for_each(|_| pair.a.poll());
    let expected = tokens.map(|token| (token, if token < 5 { Ok(()) } else { FLUSHED })).collect::<Vec<_>>();
    assert_eq!(pair.a.ended(), expected);
}

#[test]
fn a_request_delivered_before_the_port_ends_does_not_fail() {
    let mut pair = Pair::connected();
    (2..5).for_each(|token| pair.a.send(token).expect("it goes"));
    pair.a.port.forget(pair.a.peer);
    assert!((0..2).all(|_| pair.a.script.complete(0, Status::SUCCESS)));
    pair.a.poll();
    pair.a.port.close();
    pair.a.poll();
    assert_eq!(pair.a.ended(), [(2, Ok(())), (3, Ok(())), (4, FLUSHED)]);
}

#[test]
fn a_peer_that_is_given_up_while_its_connection_is_being_replaced_leaves_no_queue_pair_behind() {
    let mut pair = Pair::connected();
    pair.a.part();
    pair.a.send(9).expect("it may wait");
    assert!(pair::carry(&mut pair.a, &mut pair.b) > 0);
    pair.b.poll();
    assert_eq!(pair.b.script.living(), 2, "the one in use and its successor");
    pair.b.port.forget(pair.b.peer);
    pair.b.script.flush();
    (0..4).for_each(|_| pair.b.poll());
    assert_eq!(pair.b.script.living(), 0);
}
