// SPDX-License-Identifier: MIT OR Apache-2.0
//! Divides a message among the rails by which its receiver reads it.
//!
//! Each rail is a lane, in the caller's order. A lane gets a share in proportion to its weight, and reads it from front
//! to back, with [`MOST`] reads in flight at most. A lane that has finished its share takes reads from the end of the
//! longest remaining share. The other lanes repeat the reads of a failed lane, which is harmless because a read changes
//! nothing at the sender. A queue pair executes reads in order, so a lane's reads complete in the order of posting.
//! Called by `read.rs`. Grade: pending. Threads: the owner's. Tests: below.

use arrayvec::ArrayVec;

/// Maximum number of a lane's reads in flight.
pub const MOST: usize = 4;

/// Alignment of shares in the message, bytes: a share begins at a page of the sender if the message does.
const ALIGNMENT: u64 = 4096;

/// A contiguous part of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Offset of its first byte in the message.
    pub offset: u64,
    /// Number of bytes.
    pub length: u32,
}

/// A message that is being read. `R` names a rail.
#[derive(Debug)]
pub struct Stripes<R> {
    /// Bytes whose read has not completed.
    left: u64,
    length: u64,
    lanes: Vec<Lane<R>>,
    failed: Vec<Part>,
}

#[derive(Debug)]
struct Lane<R> {
    rail: R,
    weight: u32,
    /// Start of the part of its share that no lane has begun to read.
    next: u64,
    end: u64,
    /// Longest read, bytes.
    longest: u64,
    /// Reads in flight, oldest first.
    under_way: ArrayVec<Part, MOST>,
    has_failed: bool,
}

impl<R> Lane<R> {
    fn rest(&self) -> u64 {
        self.end - self.next
    }
}

impl<R> Stripes<R> {
    /// Starts to read a message of `length` bytes, at least 1. Each rail has its weight and its longest read in bytes;
    /// 0 counts as 1. `None` if there is no rail.
    pub fn new(length: u64, rails: impl Iterator<Item = (R, u32, u32)>) -> Option<Self> {
        let lane = |(rail, weight, longest): (R, u32, u32)| {
            let (weight, longest, under_way) = (weight.max(1), longest.max(1).into(), ArrayVec::new());
            Lane { rail, weight, next: 0, end: 0, longest, under_way, has_failed: false }
        };
        let mut lanes: Vec<_> = rails.map(lane).collect();
        let total: u128 = lanes.iter().map(|lane| u128::from(lane.weight)).sum();
        let (mut weight_before, mut next) = (0, 0);
        for lane in &mut lanes {
            weight_before += u128::from(lane.weight);
            // Less than `length`, because `weight_before` is less than `total`.
            let share = || (u128::from(length) * weight_before / total) as u64;
            let end = if weight_before == total { length } else { share() / ALIGNMENT * ALIGNMENT };
            (lane.next, lane.end) = (next, end);
            next = end;
        }
        (!lanes.is_empty()).then(|| Stripes { left: length, length, lanes, failed: Vec::new() })
    }

    /// Length of the message, bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns the rails, in the order of their lanes.
    pub fn rails(&self) -> impl ExactSizeIterator<Item = &R> {
        self.lanes.iter().map(|lane| &lane.rail)
    }

    /// Returns the next read to post on a lane; `None` if the lane can start none now.
    pub fn next_part(&mut self, lane: usize) -> Option<Part> {
        let Lane { longest, has_failed, ref under_way, .. } = self.lanes[lane];
        if has_failed || under_way.is_full() {
            return None;
        }
        // A lane with reads in flight takes nothing from other shares; else one lane would read all of a short message.
        let is_through = under_way.is_empty();
        let part = self.failed.pop().or_else(|| self.own_part(lane));
        let part = part.or_else(|| if is_through { self.part_of_another(longest) } else { None })?;
        self.lanes[lane].under_way.push(part);
        Some(part)
    }

    fn own_part(&mut self, lane: usize) -> Option<Part> {
        let lane = &mut self.lanes[lane];
        let (offset, length) = (lane.next, lane.rest().min(lane.longest));
        lane.next += length;
        (length > 0).then_some(Part { offset, length: length as u32 })
    }

    fn part_of_another(&mut self, limit: u64) -> Option<Part> {
        let longest = self.lanes.iter_mut().max_by_key(|lane| lane.rest())?;
        let length = longest.rest().min(limit);
        longest.end -= length;
        (length > 0).then_some(Part { offset: longest.end, length: length as u32 })
    }

    /// Notes that the oldest read of a lane has completed, and returns it; `None` if the lane has none in flight.
    pub fn done(&mut self, lane: usize) -> Option<Part> {
        let part = self.lanes[lane].under_way.pop_at(0)?;
        self.left -= u64::from(part.length);
        Some(part)
    }

    /// Whether the whole message has been read.
    pub fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Notes that the lane has failed, because the read that [`Self::next_part`] returned last could not be posted. The
    /// caller asks every other lane for its next read.
    pub fn refused(&mut self, lane: usize) {
        let lane = &mut self.lanes[lane];
        lane.has_failed = true;
        self.failed.extend(lane.under_way.pop());
    }

    /// Notes that the oldest read of a lane has failed, and with it the lane. Returns the read; `None` if none was in
    /// flight. The caller asks every other lane for its next read.
    pub fn failed(&mut self, lane: usize) -> Option<Part> {
        let lane = &mut self.lanes[lane];
        lane.has_failed = true;
        let part = lane.under_way.pop_at(0);
        self.failed.extend(part);
        part
    }

    /// Whether any lane, failed ones included, has reads in flight. While it has, the memory belongs to the adapter.
    pub fn is_under_way(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.under_way.is_empty())
    }

    /// Whether all lanes have failed.
    pub fn is_stuck(&self) -> bool {
        self.lanes.iter().all(|lane| lane.has_failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    fn over(length: u64, lanes: &[(u32, u32)]) -> Stripes<()> {
        Stripes::new(length, lanes.iter().map(|(weight, piece)| ((), *weight, *piece))).expect("a lane")
    }

    /// Returns the bytes that each lane read. Lane `i` completes a read every `paces[i]` rounds; lane `failing.0` fails
    /// after `failing.1` reads.
    fn read(length: u64, lanes: &[(u32, u32)], paces: &[usize], failing: Option<(usize, usize)>) -> Vec<u64> {
        let mut stripes = over(length, lanes);
        let mut covered = vec![false; length as usize];
        let (mut carried, mut under_way) = (vec![0; lanes.len()], vec![VecDeque::new(); lanes.len()]);
        let mut reads = vec![0; lanes.len()];
        for round in 1.. {
            assert!(round < 1_000_000, "it never ends");
            for (lane, (_, piece)) in lanes.iter().enumerate() {
                while let Some(part) = stripes.next_part(lane) {
                    assert!(part.length > 0 && part.length <= (*piece).max(1));
                    under_way[lane].push_back(part);
                }
                if round % paces[lane] != 0 {
                    continue;
                }
                let Some(part) = under_way[lane].pop_front() else { continue };
                reads[lane] += 1;
                if failing.is_some_and(|(failing, after)| failing == lane && reads[lane] > after) {
                    stripes.failed(lane);
                    continue;
                }
                for byte in part.offset..part.offset + u64::from(part.length) {
                    assert!(!std::mem::replace(&mut covered[byte as usize], true), "byte {byte} was read twice");
                }
                carried[lane] += u64::from(part.length);
                assert_eq!(stripes.done(lane), Some(part));
                if stripes.is_done() {
                    assert!(covered.iter().all(|is_covered| *is_covered) && !stripes.is_under_way());
                    return carried;
                }
            }
            assert!(!stripes.is_stuck());
        }
        unreachable!()
    }

    #[test]
    fn a_lane_reads_in_order_with_at_most_the_permitted_number_in_flight() {
        for (length, piece) in [(1, 1), (10, 3), (9, 3), ((1 << 32) + 5, 1 << 30), (5, u32::MAX)] {
            let (mut stripes, mut begun, mut read, mut under_way) = (over(length, &[(1, piece)]), 0, 0, 0);
            while !stripes.is_done() {
                while let Some(part) = stripes.next_part(0) {
                    assert_eq!(part.offset, begun);
                    assert!(part.length <= piece && part.length > 0);
                    begun += u64::from(part.length);
                    under_way += 1;
                }
                assert!(under_way > 0 && under_way <= MOST);
                under_way -= 1;
                let part = stripes.done(0).expect("one is under way");
                assert_eq!(part.offset, read);
                read += u64::from(part.length);
            }
            assert_eq!((begun, read, under_way), (length, length, 0));
        }
    }

    #[test]
    fn the_lanes_read_every_byte_once_whatever_their_weights() {
        for length in [1, 4095, 4096, 10_000, 300_001] {
            for lanes in
                [&[(1, 4096)][..], &[(1, 4096), (1, 4096)], &[(100, 8192), (25, 1000), (1, 30_000)], &[(0, 0), (9, 64)]]
            {
                let paces: Vec<usize> = (1..=lanes.len()).collect();
                assert_eq!(read(length, lanes, &paces, None).iter().sum::<u64>(), length);
            }
        }
    }

    #[test]
    fn lanes_carry_as_much_as_their_weights_say_and_a_slow_one_less() {
        let carried = read(1 << 20, &[(100, 4096), (300, 4096)], &[3, 1], None);
        assert!(carried[0].abs_diff(1 << 18) <= 4096, "{carried:?}");
        let carried = read(1 << 20, &[(100, 4096), (100, 4096)], &[9, 1], None);
        assert!(carried[0] < 1 << 18, "{carried:?}");
    }

    #[test]
    fn all_lanes_read_a_message_of_few_pieces() {
        let mut stripes = over(4 * 4096, &[(1, 4096), (1, 4096)]);
        let parts = [0, 1].map(|lane| std::iter::from_fn(|| stripes.next_part(lane)).count());
        assert_eq!(parts, [2, 2]);
    }

    #[test]
    fn the_other_lanes_read_the_rest_of_a_failed_lane() {
        for after in [0, 1, 7] {
            let carried = read(300_001, &[(1, 4096), (1, 4096)], &[1, 2], Some((1, after)));
            assert_eq!((carried.iter().sum::<u64>(), carried[1]), (300_001, after as u64 * 4096));
        }
        let mut stripes = over(5, &[(1, 5)]);
        assert!(stripes.next_part(0).is_some() && !stripes.is_stuck());
        stripes.failed(0);
        assert!(stripes.is_stuck() && !stripes.is_under_way() && stripes.next_part(0).is_none());
    }
}
