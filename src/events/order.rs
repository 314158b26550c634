// SPDX-License-Identifier: MIT OR Apache-2.0
//! What makes a source ordered: records are held until none that is earlier can be expected, and come out by timestamp.
//!
//! Completions of several queue pairs come in the order in which the adapter wrote them, which is nearly that of their stamps.
//! A record is let out when one later by the window has come, when it has been held for as long as the window, or when the
//! half of the room is used up. One that is earlier than what is out already is refused ([`Refused`]), and counted by the caller.
//!
//! Path: hot, behind the branch of a site; allocates once, in [`Order::new`]. Threads: one at a time. Units: ticks of the source;
//! holding times in ticks of the host. Tests: `tests/order.rs`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::record::Record;

/// The record cannot be held; it is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is earlier than one that is out already.
    Late,
    /// There is no room.
    Full,
    /// When it happened cannot be told: it may be of an earlier lap of the adapter's clock. Never by [`Order`].
    Unplaced,
}

/// Timestamp, arrival, when held (host), place.
type Held = Reverse<(u64, u64, u64, u32)>;

/// The records of one source that wait for their turn.
#[derive(Debug)]
pub(super) struct Order {
    heap: BinaryHeap<Held>,
    places: Vec<Record>,
    free: Vec<u32>,
    room: usize,
    /// In ticks of the source, and of the host.
    window: (u64, u64),
    arrivals: u64,
    newest: u64,
    /// The timestamp of the last record that is out.
    out: u64,
}

impl Order {
    /// Holds up to `room` records, each at most for `window` (source's ticks, host's ticks).
    pub(super) fn new(room: usize, window: (u64, u64)) -> Order {
        let room = room.max(1);
        Order {
            heap: BinaryHeap::with_capacity(room),
            places: Vec::with_capacity(room),
            free: Vec::with_capacity(room),
            room,
            window,
            arrivals: 0,
            newest: 0,
            out: 0,
        }
    }

    /// Whether so many are held that the earliest goes out before its turn.
    #[inline]
    fn is_crowded(&self) -> bool {
        self.heap.len() > self.room / 2
    }

    /// How many are held.
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Holds a record that came at `host`.
    ///
    /// # Errors
    /// [`Refused`]: an earlier one may not follow what is out, and room is fixed.
    #[inline]
    pub(super) fn hold(&mut self, record: &Record, host: u64) -> Result<(), Refused> {
        if record.timestamp < self.out {
            return Err(Refused::Late);
        }
        if self.heap.len() >= self.room {
            return Err(Refused::Full);
        }
        let place = if let Some(place) = self.free.pop() {
            self.places[place as usize] = *record;
            place
        } else {
            self.places.push(*record);
            self.places.len() as u32 - 1
        };
        self.newest = self.newest.max(record.timestamp);
        self.heap.push(Reverse((record.timestamp, self.arrivals, host, place)));
        self.arrivals += 1;
        Ok(())
    }

    /// Whether the earliest record's turn has come at `host`.
    #[inline]
    pub(super) fn is_due(&self, host: u64) -> bool {
        let Some(&Reverse((timestamp, _, since, _))) = self.heap.peek() else { return false };
        self.is_crowded() || self.newest - timestamp >= self.window.0 || host.saturating_sub(since) >= self.window.1
    }

    /// The earliest record, if its turn has come at `host`.
    #[inline]
    pub(super) fn next(&mut self, host: u64) -> Option<Record> {
        if self.is_due(host) { self.earliest() } else { None }
    }

    /// The earliest record, whether its turn has come or not.
    pub(super) fn earliest(&mut self) -> Option<Record> {
        let Reverse((timestamp, _, _, place)) = self.heap.pop()?;
        self.out = timestamp;
        self.free.push(place);
        Some(self.places[place as usize])
    }
}
