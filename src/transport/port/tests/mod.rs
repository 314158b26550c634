// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of a port over a simulated adapter that refuses, fails or falls silent: requests, slots and credits.

mod closings;
mod direct;
mod held_back;
mod histories;
mod pair;
mod partings;
mod partners;
mod rails;
mod strangers;
mod turns;

use super::*;
use crate::flight::PeerState;
use crate::transport::adapter::simulated::queue_pair::{QpState, Work};
use crate::transport::adapter::simulated::send_id;
use crate::transport::completion::{Completion, Failed, Token};
use crate::transport::connections::failure::Cause;
use crate::transport::work_request::WrId;
use ibex_ffi::verbs::{AsyncEvent, RemoteSpan, Status, WorkCompletion, async_event};
use pair::{CAPACITY, DEPTH, Pair, SLOTS, Side};

const FLUSHED: Result<(), Failed> = Err(Failed { status: Status::FLUSHED, posted: true });
const UNPOSTED: Result<(), Failed> = Err(Failed { status: Status::FLUSHED, posted: false });

fn state(side: &Side) -> QpState {
    side.script.state().qps[0].state
}

#[test]
fn a_first_message_connects_two_ports_and_arrives() {
    let mut pair = Pair::apart();
    pair.a.send(1).expect("it may wait");
    assert_eq!((state(&pair.a), pair.a.script.posted(0).len()), (QpState::Init, 0));
    pair.carry();
    assert_eq!([state(&pair.a), state(&pair.b)], [QpState::ReadyToSend; 2]);
    pair.transfer();
    pair.a.poll();
    pair.b.poll();
    assert_eq!((pair.a.ended(), pair.b.messages()), (vec![(1, Ok(()))], 1));
}

#[test]
fn a_peer_answers_a_port_at_its_new_datagram_queue_pair() {
    for has_sent_to_the_old_one in [false, true] {
        let mut pair = Pair::apart();
        if has_sent_to_the_old_one {
            pair.b.send(1).expect("it may wait");
            pair.b.script.state().sent.clear();
        }
        pair.a.script.state().ud_qpn = 0x777;
        pair.a.poll();
        pair.a.send(1).expect("it may wait");
        assert!(pair::carry(&mut pair.a, &mut pair.b) > 0);
        pair.b.poll();
        let answered: Vec<u32> = pair.b.script.state().sent.iter().map(|(to, _)| to.ud_qpn).collect();
        assert!(!answered.is_empty() && answered.iter().all(|number| *number == 0x777), "{answered:x?}");
        assert!(pair.b.port.handshakes.active().iter().all(|(_, address)| address.ud_qpn == 0x777));
        pair.carry();
        assert_eq!([state(&pair.a), state(&pair.b)], [QpState::ReadyToSend; 2]);
    }
}

#[test]
fn later_connections_use_the_changed_address_of_a_port() {
    for kind in
        [async_event::LID_CHANGE, async_event::GID_CHANGE, async_event::CLIENT_REREGISTER, async_event::PORT_ACTIVE]
    {
        let mut pair = Pair::apart();
        let gid = [9; 16];
        let choice = PortChoice { gid, gid_index: 5, ..pair.a.port.choice.clone() };
        pair.a.script.state().readdressed = Some(choice.clone());
        pair.a.script.state().async_events = [AsyncEvent { kind, port: 1 }].into();
        pair.a.send(1).expect("it may wait");
        assert_eq!((&pair.a.port.choice, pair.a.count(|counters| &counters.port_events)), (&choice, 1));
        assert!(pair::carry(&mut pair.a, &mut pair.b) > 0);
        pair.b.poll();
        let answered = pair.b.script.state().sent.clone();
        assert!(!answered.is_empty() && answered.iter().all(|(to, _)| to.gid == gid), "{answered:?}");
    }
}

#[test]
fn an_event_of_another_port_or_kind_leaves_the_address_alone() {
    for (kind, port, counted) in [(async_event::LID_CHANGE, 2, 0), (async_event::PORT_ERR, 1, 1)] {
        let mut pair = Pair::apart();
        let choice = pair.a.port.choice.clone();
        pair.a.script.state().readdressed = Some(PortChoice { gid_index: 5, ..choice.clone() });
        pair.a.script.state().async_events = [AsyncEvent { kind, port }].into();
        pair.a.send(1).expect("it may wait");
        assert_eq!((&pair.a.port.choice, pair.a.count(|counters| &counters.port_events)), (&choice, counted));
    }
}

#[test]
fn adapters_without_atomics_connect_and_those_that_have_them_allow_them() {
    use ibex_ffi::verbs::Access;

    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    for (atomics, access) in [
        (Atomics::None, rights),
        (Atomics::Adapter, rights | Access::REMOTE_ATOMIC),
        (Atomics::Host, rights | Access::REMOTE_ATOMIC),
    ] {
        let mut pair = Pair::with(atomics);
        pair.a.send(1).expect("it may wait");
        pair.carry();
        for side in [&pair.a, &pair.b] {
            assert_eq!((state(side), side.script.state().qps[0].access), (QpState::ReadyToSend, access), "{atomics:?}");
        }
    }
}

#[test]
fn a_full_send_queue_makes_requests_wait_and_a_completion_lets_them_go_in_order() {
    let mut pair = Pair::connected();
    (10..10 + u64::from(DEPTH) + 3).for_each(|token| pair.a.send(token).expect("it may wait"));
    assert_eq!(pair.a.script.posted(0).len(), DEPTH as usize);
    for _ in 0..3 {
        assert!(pair.a.script.complete(0, Status::SUCCESS));
        pair.a.poll();
    }
    pair.a.script.complete_all(0, Status::SUCCESS);
    pair.a.poll();
    let ended: Vec<u64> = pair.a.ended().into_iter().map(|(token, _)| token).collect();
    assert_eq!(ended, (10..10 + u64::from(DEPTH) + 3).collect::<Vec<_>>());
}

#[test]
fn a_port_tries_a_queue_again_that_answers_full_while_a_completion_is_due() {
    let mut pair = Pair::connected();
    pair.a.send(2).expect("it goes");
    pair.a.script.state().answers = [Some(libc::ENOMEM)].into();
    pair.a.send(3).expect("it may wait");
    assert_eq!((pair.a.script.posted(0).len(), pair.a.failures()), (1, 0));
    pair.a.script.complete(0, Status::SUCCESS);
    pair.a.poll();
    assert_eq!(pair.a.script.posted(0).len(), 1);
}

#[test]
fn a_post_that_is_refused_for_another_reason_fails_the_connection_and_all_that_is_on_it() {
    let mut pair = Pair::connected();
    pair.a.send(2).expect("it goes");
    pair.a.script.state().answers = [Some(libc::EINVAL)].into();
    pair.a.send(3).expect("it was taken, and comes back failed");
    assert_eq!(state(&pair.a), QpState::Error);
    pair.a.script.complete_all(0, Status::FLUSHED);
    pair.a.poll();
    pair.a.poll();
    assert_eq!(pair.a.failures(), 1);
    let mut ended = pair.a.ended();
    ended.sort_by_key(|(token, _)| *token);
    assert_eq!(ended, [(2, FLUSHED), (3, UNPOSTED)]);
    assert_eq!(pair.a.send(4), Err(Refused));
    assert!(matches!(pair.a.port.failure(pair.a.peer).expect("it failed").cause, Cause::Post { errno: libc::EINVAL }));
}

#[test]
fn an_error_at_one_request_lets_those_before_it_succeed_and_flushes_those_after_it() {
    let mut pair = Pair::connected();
    (2..=5).for_each(|token| pair.a.send(token).expect("it goes"));
    let script = pair.a.script.clone();
    script.complete(0, Status::SUCCESS);
    script.complete(0, Status::RETRY_EXCEEDED);
    script.complete_all(0, Status::FLUSHED);
    pair.a.poll();
    pair.a.poll();
    let reported = pair.a.seen.iter().position(|completion| matches!(completion, Completion::PeerFailed { .. }));
    assert!(reported.is_some_and(|place| place <= 1), "before the failed requests: {:?}", pair.a.seen);
    let failed = Err(Failed { status: Status::RETRY_EXCEEDED, posted: true });
    assert_eq!(pair.a.ended(), [(2, Ok(())), (3, failed), (4, FLUSHED), (5, FLUSHED)]);
    assert_eq!((pair.a.failures(), pair.a.port.tx.credits()), (1, CAPACITY - SLOTS));
    let reasons = pair.a.port.take_unprinted();
    assert!(
        reasons.len() == 1 && reasons[0].contains("RETRY_EXC_ERR") && reasons[0].contains("fabric0:1"),
        "{reasons:?}"
    );
}

#[test]
fn a_completion_of_a_queue_pair_that_is_gone_changes_nothing() {
    let mut pair = Pair::connected();
    pair.a.send(2).expect("it goes");
    let late = WorkCompletion::scripted(send_id(0, 900).0, Status::FLUSHED, 0, None, 0x999);
    let strange = WorkCompletion::scripted(send_id(77, 0).0, Status::SUCCESS, 0, None, 0x999);
    let beyond = WorkCompletion::scripted(send_id(0, 901).0, Status::SUCCESS, 0, None, 0x999);
    pair.a.script.state().completions.extend([late, strange, beyond]);
    pair.a.poll();
    assert_eq!((pair.a.failures(), pair.a.ended()), (0, vec![]));
    pair.a.script.complete(0, Status::SUCCESS);
    pair.a.poll();
    assert_eq!((pair.a.ended(), pair.a.port.tx.credits()), (vec![(2, Ok(()))], CAPACITY - SLOTS));
}

#[test]
fn a_port_drops_a_message_without_immediate_data_and_posts_its_slot_again() {
    let mut pair = Pair::connected();
    for _ in 0..SLOTS {
        pair.b.script.deliver(0, 8, None).expect("a slot");
        pair.b.poll();
    }
    assert_eq!(pair.b.messages(), 0);
    pair.b.poll();
    assert_eq!(pair.b.script.state().receives.len(), SLOTS as usize);
    assert_eq!(pair.b.count(|counters| &counters.malformed), u64::from(SLOTS));
}

#[test]
fn a_receive_queue_that_takes_part_of_a_batch_gets_the_rest_later() {
    let mut pair = Pair::connected();
    pair.b.script.state().takes_receives = Some(1);
    pair.b.deliver(SLOTS);
    (0..4).for_each(|_| pair.b.poll());
    assert_eq!((pair.b.messages(), pair.b.failures()), (SLOTS as usize, 0));
    let (posted, released) = pair.b.port.rx.slots();
    assert_eq!(posted as usize + released, SLOTS as usize);
}

#[test]
fn a_completion_queue_that_breaks_fails_every_connection_with_the_reason() {
    let mut pair = Pair::connected();
    pair.a.script.state().broken_poll = Some(libc::EIO);
    pair.a.poll();
    pair.a.poll();
    assert_eq!(pair.a.failures(), 1);
    let failure = pair.a.port.failure(pair.a.peer).expect("it failed").to_string();
    assert!(failure.contains("polling the completion queue"), "{failure}");
}

#[test]
fn a_request_fails_with_advice_if_the_adapter_has_no_more_queue_pairs() {
    let mut pair = Pair::apart();
    pair.a.script.state().refused_qp = Some(libc::ENOMEM);
    assert_eq!(pair.a.send(1), Err(Refused));
    let failure = pair.a.port.failure(pair.a.peer).expect("it failed").to_string();
    assert!(failure.contains("btl_ibex_send_queue_depth"), "{failure}");
}

#[test]
fn a_message_of_one_span_counts_as_copied_and_one_of_two_as_the_users_own() {
    let mut pair = Pair::connected();
    let slots = pair.a.port.grow(8, 2).expect("slots");
    let counts =
        |pair: &Pair| [pair.a.count(|counters| &counters.copy_sent), pair.a.count(|counters| &counters.zero_copy_sent)];
    for (spans, more) in [(1, [1, 0]), (2, [0, 1])] {
        let before = counts(&pair);
        assert_eq!(pair.a.port.send(pair.a.peer, 5, &slots[..spans], Token(2), true), Ok(Sent::Posted));
        assert_eq!(counts(&pair), std::array::from_fn(|kind| before[kind] + more[kind]));
    }
}

#[test]
fn the_flight_recorder_gets_the_state_of_a_peers_connection() {
    let mut pair = Pair::apart();
    assert!(pair.a.port.peer_shown(pair.a.peer).is_none(), "it was never spoken to");
    pair.a.send(1).expect("it waits");
    let shown = |pair: &Pair| pair.a.port.peer_shown(pair.a.peer).expect("it was spoken to");
    assert_eq!((shown(&pair).state, shown(&pair).waiting, shown(&pair).posted), (PeerState::Connecting, 1, 0));
    let mut pair = Pair::connected();
    let before = shown(&pair).posted;
    (0..3).for_each(|_| pair.a.send(2).expect("connected"));
    let ready = shown(&pair);
    assert_eq!((ready.state, ready.waiting, ready.posted), (PeerState::Ready, 0, before + 3));
    let numbers = [&pair.a, &pair.b].map(|side| side.port.queue_pair(side.peer).expect("connected"));
    assert!(ready.in_flight >= 3 && ready.queue_pairs == numbers.into() && ready.timeout != 0);
    pair.a.port.fail(pair.a.peer, Cause::Port("the test".to_owned()));
    assert_eq!(shown(&pair).state, PeerState::Failed);
}

#[test]
fn a_device_that_dies_fails_every_connection_after_so_many_polls_or_so_much_time() {
    for (time, polls) in [(Duration::ZERO, ASYNC_INTERVAL + 1), (ASYNC_PERIOD, CLOCK_INTERVAL)] {
        let mut pair = Pair::connected();
        let kind = async_event::DEVICE_FATAL;
        pair.a.script.state().async_events.push_back(AsyncEvent { kind, port: 0 });
        pair.a.script.state().now += time;
        (0..polls).for_each(|_| pair.a.poll());
        assert_eq!(pair.a.failures(), 1);
        let failure = pair.a.port.failure(pair.a.peer).expect("it failed").to_string();
        assert!(failure.contains("IBV_EVENT_DEVICE_FATAL"), "{failure}");
    }
}

#[test]
fn a_port_asks_its_device_for_events_only_after_some_time() {
    let mut pair = Pair::connected();
    let mut polls = || {
        pair.a.script.state().async_events.push_back(AsyncEvent { kind: async_event::LID_CHANGE, port: 2 });
        (0..=ASYNC_INTERVAL)
            .take_while(|_| {
                pair.a.poll();
                !pair.a.script.state().async_events.is_empty()
            })
            .count()
    };
    polls();
    // The clock is read once in so many polls, and goes on by a millisecond then.
    assert!(polls() > 2 * CLOCK_INTERVAL as usize);
}

#[test]
fn the_flight_recorder_gets_some_peers_at_a_time_in_turn() {
    let mut pair = Pair::apart();
    for rank in 2..100 {
        pair.a.port.peer(PeerName { job: 1, rank }, 0);
    }
    for next in [64, 29, 93] {
        pair.a.port.show_peers();
        assert_eq!(pair.a.port.next_shown, next, "of 99");
    }
}

#[test]
fn reclaim_asks_for_a_completion_where_the_last_requests_have_asked_for_none() {
    let mut pair = Pair::connected();
    let mut posted_after = |posts: bool| {
        if posts {
            pair.a.post();
        }
        pair.a.port.reclaim(&mut |_| false);
        pair.a.script.posted(0).len()
    };
    assert_eq!([false, true, false].map(&mut posted_after), [0, 2, 2]);
}

#[test]
fn a_message_is_unacknowledged_until_its_peer_has_it_or_is_lost() {
    let mut apart = Pair::apart();
    apart.a.send(0).expect("it may wait");
    assert!(apart.a.port.is_unacknowledged(|_| true), "it waits for a connection");

    for status in [Status::SUCCESS, Status::RETRY_EXCEEDED] {
        let mut pair = Pair::connected();
        assert!(!pair.a.port.is_unacknowledged(|_| true));
        assert_eq!(pair.a.post(), Sent::Posted);
        assert!(!pair.a.port.is_unacknowledged(|_| false), "nobody asks for this peer");
        for _ in 0..3 {
            assert!(pair.a.port.is_unacknowledged(|_| true));
        }
        let index = pair.a.script.connected().expect("they are connected");
        assert_eq!(pair.a.script.state().qps[index].posted.len(), 2, "one request asks for the acknowledgement");
        pair.a.script.complete_all(index, status);
        pair.a.poll();
        assert!(!pair.a.port.is_unacknowledged(|_| true));
    }
}

#[test]
fn a_port_tries_a_refused_request_again_only_when_there_may_be_room() {
    let mut pair = Pair::connected();
    pair.a.port.look_pause = 10 * EMPTY_POLL;
    (0..20).for_each(|_| pair.a.poll());
    pair.a.send(2).expect("it goes");
    pair.a.script.state().answers = [Some(libc::ENOMEM); 9].into();
    pair.a.send(3).expect("it may wait");
    (0..5).for_each(|_| pair.a.poll());
    assert_eq!(pair.a.script.state().answers.len(), 8);
    assert!(pair.a.script.complete(0, Status::SUCCESS));
    pair.a.poll();
    assert_eq!(pair.a.script.state().answers.len(), 7);
}

#[test]
fn a_port_puts_as_many_bytes_inline_as_the_adapter_takes_and_refuses_more() {
    let mut pair = Pair::connected();
    let remote = RemoteSpan { addr: 4096, rkey: 7 };
    for (length, put) in [(64, Ok(())), (65, Err(Refused))] {
        let bytes = vec![0; length];
        assert_eq!(pair.a.port.put_inline(pair.a.peer, bytes.as_slice().into(), remote, Token(2)), put);
        assert_eq!(pair.a.script.posted(0).len(), 1);
    }
}

#[test]
fn a_port_probes_a_peer_that_has_had_no_request_for_so_long_unless_an_answer_is_due() {
    let mut pair = Pair::connected();
    pair.a.port.probes = Probes::new(Duration::from_secs(1));
    let mut second = 0;
    let mut posted_by_probe = |pair: &mut Pair| {
        second += 1;
        let before = pair.a.script.posted(0).len();
        pair.a.port.probe(Duration::from_secs(second));
        pair.a.script.posted(0).len() - before
    };
    assert_eq!([(); 3].map(|()| posted_by_probe(&mut pair)), [0, 1, 0], "its answer is due");
    pair.a.script.complete(0, Status::SUCCESS);
    pair.a.poll();
    // A message that asks for no completion shows nothing.
    pair.a.post();
    assert_eq!([(); 3].map(|()| posted_by_probe(&mut pair)), [0, 1, 0]);
}

#[test]
fn a_port_that_finds_messages_looks_after_connections_less_often_than_one_that_waits() {
    let mut pair = Pair::connected();
    (0..2).for_each(|_| pair.b.poll());
    let left = |pair: &Pair| pair.b.port.countdown;
    assert_eq!(left(&pair), 1, "a port that waits checks its connections at each poll, as these are set to");
    for expected in [EMPTY_POLL, EMPTY_POLL - 1, EMPTY_POLL - 2] {
        pair.a.send(2).expect("connected");
        pair.transfer();
        pair.b.poll();
        assert_eq!(left(&pair), expected);
    }
    pair.b.poll();
    assert_eq!(left(&pair), 1);
    pair.b.port.countdown = 3 * EMPTY_POLL;
    pair.b.poll();
    assert_eq!(left(&pair), 2 * EMPTY_POLL, "an empty poll counts as so many");
}
