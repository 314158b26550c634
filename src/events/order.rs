// SPDX-License-Identifier: MIT OR Apache-2.0
//! What makes a source ordered: records are held until none that is earlier can be expected, and come out by timestamp.
//!
//! Completions are read in the order in which the adapter wrote them, which is that of their stamps, or nearly; but threads that
//! read some each may hand theirs in in another order, and so may one that reads more while it is at what it has read. So a
//! record is let out when all that was read with it or before it is handed in ([`Order::settle`]); where nobody says so, when one
//! later by the window has come, or when it has been held for as long as the window; or when the half of the room is used up. Where an adapter is
//! seen to write a stamp after a later one, what is handed in is held from then on for as long as it was behind. A record that is
//! earlier than what is out already is refused ([`Refused`]), and counted by the caller.
//!
//! Path: hot, behind the branch of a site; allocates once, in [`Order::new`]. Threads: one at a time. Units: ticks of the source;
//! holding times in ticks of the host. Tests: `tests/order.rs`.

use std::collections::VecDeque;

use super::record::Record;

/// For how many windows a record is held while earlier ones are known to come: a thread may lose its processor with them.
const PATIENCE: u64 = 200;

/// The record cannot be held; it is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is earlier than one that is out already.
    Late,
    /// There is no room.
    Full,
}

/// A record that waits for its turn, since when (host).
#[derive(Debug, Clone, Copy)]
struct Held {
    record: Record,
    since: u64,
}

/// The records of one source that wait for their turn.
#[derive(Debug)]
pub(super) struct Order {
    /// By timestamp; of equal ones the first that came is first. Most come in this order.
    held: VecDeque<Held>,
    room: usize,
    /// In ticks of the source, and of the host.
    window: (u64, u64),
    /// The timestamp of the last record that is out.
    out: u64,
    /// What was held before this moment (host) was handed in together with all that was read before it; and the greatest timestamp of that.
    settled: (u64, u64),
    /// For how long a record is held though all is handed in: how far the adapter has been seen to write behind. As `window`.
    behind: (u64, u64),
}

impl Order {
    /// Holds up to `room` records, each at most for `window` (source's ticks, host's ticks).
    pub(super) fn new(room: usize, window: (u64, u64)) -> Order {
        let room = room.max(1);
        Order { held: VecDeque::with_capacity(room), room, window, out: 0, settled: (0, 0), behind: (0, 0) }
    }

    /// Of what was handed in before `host` it is known that all that was read before is handed in, too.
    #[inline]
    pub(super) fn settle(&mut self, host: u64) {
        if host <= self.settled.0 {
            return;
        }
        let newest = self.held.iter().rev().find(|held| held.since < host).map_or(0, |held| held.record.timestamp);
        self.settled = (host, self.settled.1.max(newest));
    }

    /// A record came that is earlier than one of those that were settled: the adapter has written it late.
    #[cold]
    fn learn(&mut self, timestamp: u64) {
        let behind = (self.settled.1 - timestamp).min(self.window.0);
        if behind > self.behind.0 {
            let rate = self.window.1 as f64 / self.window.0 as f64;
            self.behind = (behind, (behind as f64 * rate).ceil() as u64);
        }
    }

    /// Whether so many are held that the earliest goes out before its turn.
    #[inline]
    fn is_crowded(&self) -> bool {
        self.held.len() > self.room / 2
    }

    /// Whether a good part of the room is used up.
    #[inline]
    pub(super) fn is_filling(&self) -> bool {
        self.held.len() > self.room / 4
    }

    /// How many are held.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Holds a record that came at `host`.
    ///
    /// # Errors
    /// [`Refused`]: an earlier one may not follow what is out, and room is fixed.
    #[inline]
    pub(super) fn hold(&mut self, record: &Record, host: u64) -> Result<(), Refused> {
        if record.timestamp < self.settled.1 {
            self.learn(record.timestamp);
        }
        if record.timestamp < self.out {
            return Err(Refused::Late);
        }
        if self.held.len() >= self.room {
            return Err(Refused::Full);
        }
        let held = Held { record: *record, since: host };
        if self.newest().is_none_or(|newest| newest <= record.timestamp) {
            self.held.push_back(held);
        } else {
            let place = self.held.partition_point(|other| other.record.timestamp <= record.timestamp);
            self.held.insert(place, held);
        }
        Ok(())
    }

    #[inline]
    fn newest(&self) -> Option<u64> {
        self.held.back().map(|held| held.record.timestamp)
    }

    /// Whether the earliest record's turn has come at `host`. `more`: records are known to come that may be earlier.
    #[inline]
    pub(super) fn is_due(&self, host: u64, more: bool) -> bool {
        let (Some(first), Some(newest)) = (self.held.front(), self.newest()) else { return false };
        let (ticks, time) = if first.since < self.settled.0 {
            self.behind
        } else if more {
            (u64::MAX, self.window.1.saturating_mul(PATIENCE))
        } else {
            self.window
        };
        self.is_crowded() || newest - first.record.timestamp >= ticks || host.saturating_sub(first.since) >= time
    }

    /// The earliest record, if its turn has come at `host`.
    #[inline]
    pub(super) fn next(&mut self, host: u64, more: bool) -> Option<Record> {
        if self.is_due(host, more) { self.earliest() } else { None }
    }

    /// The earliest record, whether its turn has come or not.
    #[inline]
    pub(super) fn earliest(&mut self) -> Option<Record> {
        let Held { record, .. } = self.held.pop_front()?;
        self.out = record.timestamp;
        Some(record)
    }
}
