// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random histories: longer, of several senders, with lengths. `IBEX_PLACE_HISTORIES` is how many.

use super::moves::{Choices, Move, patterns};
use super::world::{ANY, Budget, LeftOut, Seen, World};

const STEPS: usize = if cfg!(miri) { 100 } else { 2000 };

/// A xorshift generator: histories are the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 33) % limit as u64) as usize
    }
}

/// How often a move is chosen among others: what empties queues more often than what fills them, and what ends offers
/// seldom.
fn weight(step: Move, offers: usize) -> usize {
    match step {
        Move::Offer(_) => 100 * offers,
        Move::Take(_) | Move::Answer(_) | Move::Land { .. } => 100,
        Move::Send { is_written: true, .. } => 60,
        Move::Post { is_offered: true, .. } => 20 * offers,
        Move::Post { source, tag, .. } if source != ANY && tag != ANY => 10,
        Move::Send { .. } => 5,
        Move::Post { .. } | Move::Other { .. } | Move::Create(_) => 1,
        Move::Cancel(_) | Move::Stop(_) | Move::Refuse(_) | Move::Renew(_) | Move::Lose { .. } | Move::Free(_) => 0,
    }
}

fn history(seed: u64, in_order: bool) -> Seen {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let senders = 1 + random.below(3);
    let tags: Vec<i32> = (0..=random.below(3) as i32).collect();
    let patterns = patterns(senders as i32, &tags);
    let choices = Choices { patterns, tags, rooms: vec![1, 2, 3], lengths: vec![1, 2, 3], most: 6, in_order };
    let much = u16::MAX;
    let budget = Budget {
        posts: much,
        sends: much,
        others: much,
        offers: much,
        cancels: much,
        refusals: much,
        stops: much,
        losses: much,
        lives: 0,
    };
    let mut world = World { offers_at_once: seed % 4 > 1, ..World::new(senders, budget, LeftOut::Nothing) };
    let (offers, seldom) = (1 + random.below(3), [50, 500, 5000][random.below(3)]);
    let mut done = Vec::new();
    for _ in 0..STEPS {
        let moves = world.moves(&choices);
        // Once in a while anything.
        let weights: Vec<usize> = match random.below(seldom) {
            0 => vec![1; moves.len()],
            _ => moves.iter().map(|step| weight(*step, offers)).collect(),
        };
        let mut at = random.below(weights.iter().sum::<usize>().max(1));
        let chosen = weights.iter().position(|weight| {
            let is_it = at < *weight;
            at = at.wrapping_sub(*weight);
            is_it
        });
        let Some(step) = chosen.map(|chosen| moves[chosen]) else { continue };
        done.push(step);
        if let Err(what) = world.step(step) {
            let last = &done[done.len().saturating_sub(60)..];
            panic!("history {seed}, step {}: {what}, after {last:?}", done.len());
        }
    }
    world.seen
}

#[test]
fn long_histories_of_several_senders_end_as_matching_says() {
    let count = std::env::var("IBEX_PLACE_HISTORIES").ok().and_then(|count| count.parse().ok());
    let count: u64 = count.unwrap_or(if cfg!(miri) { 2 } else { 100 });
    let mut seen = Seen::default();
    for seed in 0..count {
        seen.add(history(seed, seed % 2 == 0));
    }
    println!("{count} histories of {STEPS} steps: {seen:?}");
    assert!(cfg!(miri) || seen.placed > 0 && seen.refused > 0 && seen.used_up > 0);
}
