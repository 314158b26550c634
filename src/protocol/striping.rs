// SPDX-License-Identifier: MIT OR Apache-2.0
//! A receiver that reads a message over several ports: which reads each port carries, when the receiver has all bytes,
//! and how it goes on when a port fails.
//!
//! A *lane* is one of these ports, in the caller's order. Each lane has a share of the message by its weight, and reads
//! the share from its first byte on. A lane that has finished its share takes reads from the end of the longest
//! remaining share, so a lane that is slower than its weight says, or fails, holds up no other. The reads of one lane
//! complete in order, as a queue pair executes them. The other lanes repeat a failed read; reading twice is harmless.
//! Called by `pml/striped.rs`. Pending grade. Threads: the owner's. Tests: at the end of the file.

use super::reading::Part;
use std::collections::VecDeque;

/// Shares begin at multiples of this many bytes: a page of the sender's, if its memory begins with one.
const ALIGNMENT: u64 = 4096;

/// A message that is being read over several lanes.
#[derive(Debug)]
pub struct Striping {
    /// Bytes that have not been read.
    left: u64,
    length: u64,
    /// Most reads in flight on a lane.
    most: usize,
    lanes: Vec<Lane>,
    /// Failed reads that are to be repeated.
    failed: Vec<Part>,
}

#[derive(Debug, Default)]
struct Lane {
    /// The part of its share for which no read has begun.
    next: u64,
    end: u64,
    /// Bytes of the longest read.
    piece: u64,
    /// Reads in flight, oldest first.
    under_way: VecDeque<Part>,
    has_failed: bool,
}

impl Lane {
    fn rest(&self) -> u64 {
        self.end - self.next
    }
}

impl Striping {
    /// Starts to read `length` bytes, at least 1, over lanes given as (weight, longest read), each at least 1, with at
    /// most `most` reads in flight per lane.
    ///
    /// # Panics
    /// There is no lane.
    #[must_use]
    pub fn new(length: u64, lanes: &[(u32, u32)], most: usize) -> Self {
        let total: u128 = lanes.iter().map(|(weight, _)| u128::from((*weight).max(1))).sum();
        let (mut weight_before, mut next) = (0, 0);
        let shares = lanes.iter().map(|(weight, piece)| {
            weight_before += u128::from((*weight).max(1));
            // At most `length`, as `weight_before` is at most `total`.
            let end = (u128::from(length) * weight_before / total) as u64;
            let end = if weight_before == total { length } else { end - end % ALIGNMENT };
            let lane = Lane { next, end, piece: u64::from((*piece).max(1)), ..Lane::default() };
            next = end;
            lane
        });
        let lanes: Vec<_> = shares.collect();
        assert!(!lanes.is_empty(), "a message is read over some lane");
        Striping { left: length, length, most, lanes, failed: Vec::new() }
    }

    /// Bytes of the message.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns the next read to post on a lane; `None` if none may be posted now.
    pub fn next_part(&mut self, lane: usize) -> Option<Part> {
        let Lane { piece, has_failed, ref under_way, .. } = self.lanes[lane];
        if has_failed || under_way.len() >= self.most {
            return None;
        }
        // A lane with reads in flight takes none of another's: it would read all of a message of few pieces alone.
        let is_through = under_way.is_empty();
        let part = self.failed.pop().or_else(|| self.own_part(lane));
        let part = part.or_else(|| if is_through { self.part_of_another(piece) } else { None })?;
        self.lanes[lane].under_way.push_back(part);
        Some(part)
    }

    fn own_part(&mut self, lane: usize) -> Option<Part> {
        let Lane { next, piece, .. } = self.lanes[lane];
        let length = self.lanes[lane].rest().min(piece);
        self.lanes[lane].next += length;
        (length > 0).then_some(Part { offset: next, length: length as u32 })
    }

    fn part_of_another(&mut self, piece: u64) -> Option<Part> {
        let longest = self.lanes.iter_mut().max_by_key(|lane| lane.rest())?;
        let length = longest.rest().min(piece);
        longest.end -= length;
        (length > 0).then_some(Part { offset: longest.end, length: length as u32 })
    }

    /// Counts the oldest read of a lane as completed, and returns it; `None` if none is in flight.
    pub fn done(&mut self, lane: usize) -> Option<Part> {
        let part = self.lanes[lane].under_way.pop_front()?;
        self.left -= u64::from(part.length);
        Some(part)
    }

    /// Whether all has been read.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Takes back the read that `next_part` returned last for this lane: it could not be posted, and the lane has
    /// failed. The caller then asks the other lanes for their next read.
    pub fn refused(&mut self, lane: usize) {
        let lane = &mut self.lanes[lane];
        lane.has_failed = true;
        self.failed.extend(lane.under_way.pop_back());
    }

    /// Notes that the oldest read of a lane, and thereby the lane, has failed. Returns the read, `None` if none is in
    /// flight. The caller then asks the other lanes for their next read.
    pub fn failed(&mut self, lane: usize) -> Option<Part> {
        let lane = &mut self.lanes[lane];
        lane.has_failed = true;
        let part = lane.under_way.pop_front();
        self.failed.extend(part);
        part
    }

    /// Whether any lane has reads in flight, failed lanes included: until then the adapter may write the memory.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.under_way.is_empty())
    }

    /// Whether all lanes have failed.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.lanes.iter().all(|lane| lane.has_failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a message with each lane at its own pace; the lane `failing.0` fails after `failing.1` reads. Returns the
    /// bytes that each lane has read.
    fn read(length: u64, lanes: &[(u32, u32)], paces: &[usize], failing: Option<(usize, usize)>) -> Vec<u64> {
        let mut striping = Striping::new(length, lanes, 2);
        let mut covered = vec![false; length as usize];
        let (mut carried, mut under_way) = (vec![0; lanes.len()], vec![VecDeque::new(); lanes.len()]);
        let mut reads = vec![0; lanes.len()];
        for round in 1.. {
            assert!(round < 1_000_000, "it never ends");
            for (lane, (_, piece)) in lanes.iter().enumerate() {
                while let Some(part) = striping.next_part(lane) {
                    assert!(part.length > 0 && part.length <= (*piece).max(1));
                    under_way[lane].push_back(part);
                }
                if round % paces[lane] != 0 {
                    continue;
                }
                let Some(part) = under_way[lane].pop_front() else { continue };
                reads[lane] += 1;
                if failing.is_some_and(|(failing, after)| failing == lane && reads[lane] > after) {
                    striping.failed(lane);
                    continue;
                }
                for byte in part.offset..part.offset + u64::from(part.length) {
                    assert!(!std::mem::replace(&mut covered[byte as usize], true), "byte {byte} was read twice");
                }
                carried[lane] += u64::from(part.length);
                assert_eq!(striping.done(lane), Some(part));
                if striping.is_done() {
                    assert!(covered.iter().all(|is_covered| *is_covered) && !striping.is_under_way());
                    return carried;
                }
            }
            assert!(!striping.is_stuck());
        }
        unreachable!()
    }

    #[test]
    fn every_byte_is_read_once_whatever_the_lanes() {
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
    fn a_message_of_few_pieces_is_read_by_all_lanes() {
        let mut striping = Striping::new(4 * 4096, &[(1, 4096), (1, 4096)], 4);
        let parts = [0, 1].map(|lane| std::iter::from_fn(|| striping.next_part(lane)).count());
        assert_eq!(parts, [2, 2]);
    }

    #[test]
    fn what_a_lane_that_fails_has_not_read_the_others_read() {
        for after in [0, 1, 7] {
            let carried = read(300_001, &[(1, 4096), (1, 4096)], &[1, 2], Some((1, after)));
            assert_eq!((carried.iter().sum::<u64>(), carried[1]), (300_001, after as u64 * 4096));
        }
        let mut striping = Striping::new(5, &[(1, 5)], 2);
        assert!(striping.next_part(0).is_some() && !striping.is_stuck());
        striping.failed(0);
        assert!(striping.is_stuck() && !striping.is_under_way() && striping.next_part(0).is_none());
    }
}
