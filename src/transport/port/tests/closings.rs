// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a connection over an adapter that loses the unpolled completions of a destroyed queue pair.

use super::*;
use crate::transport::connections::connection::Connection;
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

#[test]
fn a_port_does_not_take_a_late_completion_of_a_replaced_queue_pair_for_its_successors() {
    let mut pair = Pair::connected();
    (2..5).for_each(|token| pair.b.send(token).expect("it goes"));
    pair.a.part();
    pair.a.send(9).expect("it may wait");
    pair.carry();
    let successor = pair.b.script.connected().expect("it took the place of the old one");
    assert_eq!((successor, state(&pair.b)), (1, QpState::Error));
    (5..8).for_each(|token| pair.b.send(token).expect("it goes"));
    assert!(pair.b.script.complete(0, Status::SUCCESS));
    pair.b.script.complete_all(0, Status::FLUSHED);
    (0..4).for_each(|_| pair.b.poll());
    assert_eq!((pair.b.ended(), pair.b.failures()), (vec![(2, Ok(())), (3, FLUSHED), (4, FLUSHED)], 0));
    pair.b.script.complete_all(successor, Status::SUCCESS);
    pair.b.poll();
    assert_eq!(pair.b.ended(), [(5, Ok(())), (6, Ok(())), (7, Ok(()))]);
    assert_eq!((state(&pair.b), pair.b.port.tx.credits()), (QpState::Destroyed, CAPACITY - SLOTS));
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
