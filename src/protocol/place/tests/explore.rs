// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every history up to a number of sends, receives and whatever else there is: each state once.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::moves::{Choices, Move, patterns};
use super::world::{Budget, LeftOut, Seen, World};

/// What an exploration has found.
pub(super) struct Found {
    pub(super) states: usize,
    pub(super) seen: Seen,
}

/// What must not happen, and by which moves it does.
#[derive(Debug)]
pub(super) struct Counterexample {
    pub(super) what: String,
    pub(super) moves: Vec<Move>,
}

/// Two tags, all receives that there are of them, and no lengths: a sender may leave any message unplaced.
pub(super) fn choices(in_order: bool) -> Choices {
    Choices { patterns: patterns(1, &[0, 1]), tags: vec![0, 1], rooms: vec![1], lengths: vec![1], most: 8, in_order }
}

/// Which states are looked at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum First {
    /// Those of the shortest histories.
    Shortest,
    /// The last that was reached: few are kept.
    Last,
}

/// Looks at all states that can be reached.
pub(super) fn explore(start: World, choices: &Choices, first: First) -> Result<Found, Counterexample> {
    let mut known = HashSet::from([fingerprint(&start.shape())]);
    let mut reached_by: Vec<(u32, Option<Move>)> = vec![(0, None)];
    let mut next = VecDeque::from([(0_u32, start)]);
    let mut seen = Seen::default();
    while let Some((number, world)) = if first == First::Last { next.pop_back() } else { next.pop_front() } {
        for step in world.moves(choices) {
            let mut after = world.clone();
            after.seen = Seen::default();
            if let Err(what) = after.step(step) {
                return Err(Counterexample { what, moves: moves_to(&reached_by, number, step) });
            }
            seen.add(after.seen);
            if known.insert(fingerprint(&after.shape())) {
                next.push_back((reached_by.len() as u32, after));
                reached_by.push((number, Some(step)));
            }
        }
    }
    Ok(Found { states: reached_by.len(), seen })
}

/// 128 bits of a shape: that two of many millions of states have the same is out of the question.
fn fingerprint(shape: &[u8]) -> [u64; 2] {
    [0, 1].map(|number: u64| {
        let mut hasher = DefaultHasher::new();
        number.hash(&mut hasher);
        shape.hash(&mut hasher);
        hasher.finish()
    })
}

fn moves_to(reached_by: &[(u32, Option<Move>)], mut number: u32, last: Move) -> Vec<Move> {
    let mut moves = vec![last];
    while let (before, Some(step)) = reached_by[number as usize] {
        moves.push(step);
        number = before;
    }
    moves.reverse();
    moves
}

/// `IBEX_PLACE_DEPTH`: so many more sends, receives and offers than a test has time for.
fn deeper() -> u16 {
    std::env::var("IBEX_PLACE_DEPTH").ok().and_then(|depth| depth.parse().ok()).unwrap_or(0)
}

/// Two sends and receives, and what is given.
fn explored(name: &str, budget: Budget, in_order: bool) -> Seen {
    let many = 2 + deeper();
    let budget = Budget { posts: many, sends: many, offers: many + 1, ..budget };
    explored_from(name, &World::new(1, budget, LeftOut::Nothing), &choices(in_order))
}

/// Begins where nothing was offered ever, and where the sender counts.
fn explored_from(name: &str, world: &World, choices: &Choices) -> Seen {
    let mut seen = Seen::default();
    for counts in [false, true] {
        let mut start = world.clone();
        if counts {
            start.begin_counting();
        }
        match explore(start, choices, First::Last) {
            Ok(found) => {
                println!("{name}: {} states, {:?}", found.states, found.seen);
                seen.add(found.seen);
            }
            Err(found) => panic!("{}: {:#?}", found.what, found.moves),
        }
    }
    assert!(seen.placed > 0 && seen.refused > 0 && seen.used_up > 0, "{seen:?}");
    seen
}

#[test]
#[cfg_attr(miri, ignore = "thousands of states take Miri minutes")]
fn every_message_goes_where_matching_says_whatever_crosses() {
    explored("matching", Budget { others: 1, ..Budget::NONE }, false);
}

#[test]
#[cfg_attr(miri, ignore = "thousands of states take Miri minutes")]
fn messages_of_two_senders_go_where_matching_says() {
    let many = 2 + deeper();
    let budget = Budget { posts: many, sends: many, offers: many + 1, ..Budget::NONE };
    let choices = Choices { patterns: patterns(2, &[0]), tags: vec![0], ..choices(false) };
    explored_from("two senders", &World::new(2, budget, LeftOut::Nothing), &choices);
}

#[test]
#[cfg_attr(miri, ignore = "thousands of states take Miri minutes")]
fn a_receiver_that_offers_when_it_posts_knows_enough_of_what_is_posted_before() {
    let more = deeper();
    let budget =
        Budget { posts: 3 + more, sends: 1 + more, offers: 4 + more, refusals: 1, cancels: more, ..Budget::NONE };
    let world = World { offers_at_once: true, ..World::new(1, budget, LeftOut::Nothing) };
    explored_from("at once", &world, &choices(false));
}

#[test]
#[cfg_attr(miri, ignore = "thousands of states take Miri minutes")]
fn a_receive_is_cancelled_or_has_its_message_and_never_both() {
    let seen = explored("cancel", Budget { cancels: 1, ..Budget::NONE }, false);
    assert!(seen.cancelled > 0 && seen.received_instead > 0, "{seen:?}");
}

#[test]
#[cfg_attr(miri, ignore = "thousands of states take Miri minutes")]
fn a_sender_may_refuse_and_stop_whenever_it_likes() {
    explored("refuse, stop", Budget { refusals: 1, stops: 1, ..Budget::NONE }, false);
}

#[test]
#[cfg_attr(miri, ignore = "thousands of states take Miri minutes")]
fn a_connection_may_be_lost_at_any_time_and_a_cancel_ends_with_it() {
    let seen = explored("loss", Budget { cancels: 1, losses: 1, ..Budget::NONE }, true);
    assert!(seen.cancelled > 0 && seen.sent_again > 0, "{seen:?}");
}

#[test]
#[cfg_attr(miri, ignore = "thousands of states take Miri minutes")]
fn a_context_may_be_used_again_while_offers_of_its_former_life_are_under_way() {
    explored("lives", Budget { lives: 1, ..Budget::NONE }, false);
}
