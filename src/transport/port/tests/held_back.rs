// SPDX-License-Identifier: MIT OR Apache-2.0
//! A peer that acknowledges nothing for long: the limits of posts to it, the counters, and the order of completions.

use super::*;

/// A quarter of the queue, and at least the signal interval.
const WINDOW: usize = 4;

/// A sender with 40 requests for a peer that has acknowledged none for long.
fn held() -> Pair {
    let mut pair = Pair::connected();
    (100..140).for_each(|token| pair.a.send(token).expect("it may wait"));
    assert_eq!(pair.a.script.posted(0).len(), DEPTH as usize);
    (0..20).for_each(|_| pair.a.poll());
    assert_eq!(pair.a.count(|counters| &counters.held_back), 1);
    pair
}

/// The peer's adapter accepts `requests` requests, and the sender polls.
fn take(pair: &mut Pair, requests: usize) {
    (0..requests).for_each(|_| assert!(pair.a.script.complete(0, Status::SUCCESS)));
    pair.a.poll();
}

#[test]
fn a_silent_peer_gets_no_request_until_it_has_acknowledged_all_but_a_quarter_of_a_queue() {
    let mut pair = held();
    take(&mut pair, 2);
    assert_eq!(pair.a.script.posted(0).len(), DEPTH as usize - 2, "posted to a peer that is held back");
    take(&mut pair, DEPTH as usize - 2 - WINDOW);
    assert_eq!(pair.a.script.posted(0).len(), WINDOW);
    take(&mut pair, 1);
    assert_eq!(pair.a.script.posted(0).len(), WINDOW + 1, "it has taken a window's worth, and may have one more");
}

#[test]
fn the_counters_have_the_number_and_duration_of_holds() {
    let mut pair = held();
    let before = pair.a.count(|counters| &counters.held_back_time);
    pair.a.script.state().now += Duration::from_secs(3);
    pair.a.poll();
    let held = pair.a.count(|counters| &counters.held_back_time) - before;
    assert!((3_000_000..3_100_000).contains(&held), "{held} us");
    take(&mut pair, 1);
    let ended = pair.a.count(|counters| &counters.held_back_time);
    pair.a.script.state().now += Duration::from_secs(3);
    pair.a.poll();
    assert_eq!(pair.a.count(|counters| &counters.held_back_time), ended, "it is not held back any more");
    assert_eq!(pair.a.count(|counters| &counters.held_back), 1);
    (0..20).for_each(|_| pair.a.poll());
    assert_eq!(pair.a.count(|counters| &counters.held_back), 2);
}

#[test]
fn a_peer_that_was_held_back_gets_everything_in_order_and_the_whole_queue_again() {
    let mut pair = held();
    let mut most = 0;
    for _ in 0..200 {
        if pair.a.script.posted(0).is_empty() {
            break;
        }
        most = most.max(pair.a.script.posted(0).len());
        take(&mut pair, 1);
    }
    assert_eq!(most, DEPTH as usize);
    assert_eq!(pair.a.ended(), (100..140).map(|token| (token, Ok(()))).collect::<Vec<_>>());
    assert_eq!(pair.a.port.tx.credits(), CAPACITY - SLOTS);
    assert_eq!(pair.a.count(|counters| &counters.waiting), 0);
}

#[test]
fn one_sided_requests_to_a_peer_that_is_held_back_keep_their_place_among_messages() {
    let mut pair = held();
    let (local, remote) = (LocalSpan::EMPTY, ibex_ffi::verbs::RemoteSpan { addr: 0, rkey: 0 });
    pair.a.port.put(pair.a.peer, local, remote, Token(200)).expect("it may wait");
    pair.a.send(201).expect("it may wait");
    pair.a.port.get(pair.a.peer, local, remote, Token(202)).expect("it may wait");
    let mut works = Vec::new();
    while let Some(oldest) = {
        let state = pair.a.script.state();
        state.qps[0].posted.front().cloned()
    } {
        works.push(oldest.work);
        take(&mut pair, 1);
    }
    let [.., Work::Write { .. }, Work::Send { inline, .. }, Work::Read { .. }] = &works[..] else {
        panic!("{works:?}");
    };
    assert_eq!(inline.len(), 1, "the message is in the work request");
    assert_eq!(pair.a.ended().into_iter().map(|(token, _)| token).skip(40).collect::<Vec<_>>(), [200, 201, 202]);
}

#[test]
fn a_peer_that_fails_while_it_is_held_back_gives_every_token_back_once() {
    let mut pair = held();
    pair.a.script.complete(0, Status::RETRY_EXCEEDED);
    pair.a.script.flush();
    pair.a.script.complete_all(0, Status::FLUSHED);
    (0..8).for_each(|_| pair.a.poll());
    assert_eq!(pair.a.tokens(), (100..140).collect::<Vec<_>>());
    assert_eq!(pair.a.failures(), 1);
    assert_eq!(pair.a.count(|counters| &counters.waiting), 0);
}

#[test]
fn messages_that_asked_for_no_completion_never_fill_the_window_of_a_peer_that_was_held_back() {
    let mut pair = held();
    while !pair.a.script.posted(0).is_empty() {
        take(&mut pair, 1);
    }
    for _ in 0..100 {
        if pair.a.post() == Sent::Busy {
            let queue = &pair.a.port.connections.get(pair.a.peer).expect("a connection").queue;
            assert!(queue.is_completion_due());
            take(&mut pair, 1);
            pair.a.script.complete_all(0, Status::SUCCESS);
            pair.a.poll();
        }
    }
}

#[test]
fn the_first_peer_gets_the_shortest_timer_which_is_shown() {
    let pair = Pair::connected();
    assert_eq!(pair.b.script.state().qps[0].rnr_timer, 12);
    assert_eq!(pair.b.count(|counters| &counters.rnr_timer), 640);
}
