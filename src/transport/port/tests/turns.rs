// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns of a caller that keeps its messages: their begin, the posts that they permit, and their end.

use super::*;

const TAG: u8 = 5;
const TURN: u64 = 77;
const TURNS: [(u64, Result<(), Failed>); 1] = [(TURN, Ok(()))];

impl Side {
    fn queue_turn(&mut self) {
        self.port.queue_turn(self.peer, TAG, Token(TURN)).expect("it may wait");
    }

    /// Posts messages until there is no room. Returns their number.
    fn post_all(&mut self) -> usize {
        (0..2 * DEPTH).take_while(|_| self.post() == Sent::Posted).count()
    }

    fn posted(&self) -> usize {
        self.script.posted(0).len()
    }

    /// The adapter completes the oldest request, and the port is polled.
    fn complete(&mut self) {
        assert!(self.script.complete(0, Status::SUCCESS));
        self.poll();
    }

    /// Takes the tokens of the turns among the requests that ended since the last call.
    fn turns(&mut self) -> usize {
        self.ended().into_iter().filter(|(token, _)| *token == TURN).count()
    }
}

/// Two ports, one with a full send queue.
fn full() -> Pair {
    let mut pair = Pair::connected();
    (100..100 + u64::from(DEPTH)).for_each(|token| pair.a.send(token).expect("it may wait"));
    assert_eq!((pair.a.posted(), pair.a.post_all()), (DEPTH as usize, 0));
    pair
}

#[test]
fn a_turn_connects_two_ports_and_comes_when_they_are_connected() {
    let mut pair = Pair::apart();
    pair.a.queue_turn();
    pair.a.queue_turn();
    pair.carry();
    assert_eq!(pair.a.ended(), TURNS, "one is queued at a time");
    pair.a.port.begin_turn(pair.a.peer);
    assert_eq!(pair.a.post_all(), DEPTH as usize);
}

#[test]
fn a_turn_comes_with_the_poll_that_finds_room() {
    let mut pair = full();
    pair.a.queue_turn();
    pair.a.poll();
    assert_eq!(pair.a.turns(), 0);
    pair.a.complete();
    assert_eq!(pair.a.turns(), 1);
}

#[test]
fn a_turn_is_behind_earlier_requests_and_before_later_ones() {
    let mut pair = full();
    pair.a.send(10).expect("it may wait");
    pair.a.queue_turn();
    pair.a.send(11).expect("it may wait");
    pair.a.complete();
    assert_eq!((pair.a.posted(), pair.a.turns()), (DEPTH as usize, 0), "10 was posted");
    pair.a.complete();
    assert_eq!((pair.a.posted(), pair.a.turns()), (DEPTH as usize - 1, 1));
    assert_eq!(pair.a.post_all(), 0, "11 waits");
    pair.a.port.begin_turn(pair.a.peer);
    assert_eq!(pair.a.post_all(), 1);
    pair.a.queue_turn();
    pair.a.complete();
    assert_eq!((pair.a.posted(), pair.a.turns()), (DEPTH as usize, 0), "11 was posted");
    pair.a.complete();
    assert_eq!(pair.a.turns(), 1);
}

#[test]
fn turns_one_after_the_other_count_as_one_request_that_waits() {
    let mut pair = full();
    let before = pair.a.count(|counters| &counters.queued);
    for _ in 0..3 {
        pair.a.queue_turn();
        pair.a.complete();
        assert_eq!(pair.a.turns(), 1);
        pair.a.port.begin_turn(pair.a.peer);
        assert_eq!(pair.a.post_all(), 1);
    }
    assert_eq!(pair.a.count(|counters| &counters.queued), before + 1);
    pair.a.port.end_turn(pair.a.peer, Token(TURN));
    pair.a.queue_turn();
    assert_eq!(pair.a.count(|counters| &counters.queued), before + 2);
}

#[test]
fn a_caller_posts_to_a_diverted_peer_in_its_turn() {
    let mut pair = Pair::connected();
    pair.a.port.divert_all(|_| false);
    assert_eq!(pair.a.post_all(), 0);
    pair.a.queue_turn();
    pair.a.poll();
    assert_eq!((pair.a.ended(), pair.a.post_all()), (TURNS.to_vec(), 0));
    pair.a.port.begin_turn(pair.a.peer);
    assert_eq!(pair.a.post_all(), DEPTH as usize);
    pair.a.port.end_turn(pair.a.peer, Token(TURN));
    (0..DEPTH).for_each(|_| pair.a.complete());
    assert_eq!(pair.a.post_all(), 0);
}

#[test]
fn a_caller_without_a_turn_cannot_begin_one() {
    let mut pair = Pair::connected();
    pair.a.port.divert_all(|_| false);
    pair.a.port.begin_turn(pair.a.peer);
    assert_eq!(pair.a.post_all(), 0);
}

#[test]
fn a_turn_fails_with_its_connection_or_is_dropped_with_the_messages_that_the_port_keeps() {
    for keeps in [false, true] {
        let mut pair = full();
        if keeps {
            pair.a.port.keep_unposted(TAG);
        }
        pair.a.queue_turn();
        pair.a.fail_first();
        let turns: Vec<_> = pair.a.ended().into_iter().filter(|(token, _)| *token == TURN).collect();
        assert_eq!(turns, if keeps { vec![] } else { vec![(TURN, UNPOSTED)] });
        assert_eq!(pair.a.port.queue_turn(pair.a.peer, TAG, Token(TURN)), Err(Refused));
    }
}

#[test]
fn take_unposted_drops_a_turn_with_the_messages_that_it_takes() {
    let mut pair = full();
    pair.a.port.keep_unposted(TAG);
    pair.a.queue_turn();
    assert!(pair.a.port.take_unposted(pair.a.peer).is_empty());
    pair.a.complete();
    assert_eq!((pair.a.turns(), pair.a.count(|counters| &counters.waiting)), (0, 0));
    assert_eq!(pair.a.post_all(), 1);
}
