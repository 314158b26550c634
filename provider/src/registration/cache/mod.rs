// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registrations of an endpoint by their addresses: those in use, and those that are kept for later messages.
//!
//! Kept ranges may overlap, but none contains another. So they end in the order in which they begin, and if any covers
//! some memory, then the last that begins at or before it does. Called by `mod.rs`. Grade: pending (a search of a
//! tree). Threads: the one that has entered the endpoint. Tests: `tests.rs`.

use std::collections::BTreeMap;
use std::ops::Range;

/// What is kept at most of what no message uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) count: usize,
    pub(super) bytes: usize,
}

/// The registrations. `R` is one with the adapter, which ends when it is dropped.
pub(super) struct Cache<R> {
    bound: Bound,
    all: Vec<Option<Entry<R>>>,
    free: Vec<u32>,
    /// Those that messages find, by their first byte.
    found: BTreeMap<usize, u32>,
    /// Those of them that no message uses, by their last use.
    idle: BTreeMap<u64, u32>,
    idle_bytes: usize,
    /// Number of uses that have ended.
    uses: u64,
}

struct Entry<R> {
    region: R,
    range: Range<usize>,
    is_writable: bool,
    /// Number of messages that use it.
    users: u32,
    /// The number of its last use.
    last_use: u64,
    /// Whether messages find it: it ends with its last use otherwise.
    is_kept: bool,
}

impl<R> Cache<R> {
    pub(super) fn new(bound: Bound) -> Self {
        let (found, idle) = (BTreeMap::new(), BTreeMap::new());
        Cache { bound, all: Vec::new(), free: Vec::new(), found, idle, idle_bytes: 0, uses: 0 }
    }

    fn entry(&mut self, place: u32) -> &mut Entry<R> {
        self.all[place as usize].as_mut().expect("it is in use, or kept")
    }

    fn range(&self, place: u32) -> &Range<usize> {
        &self.all[place as usize].as_ref().expect("it is in use, or kept").range
    }

    /// Returns a registration that covers this memory, which one more message uses now.
    pub(super) fn take(&mut self, range: &Range<usize>, is_writable: bool) -> Option<(u32, &R)> {
        let (_, &place) = self.found.range(..=range.start).next_back()?;
        let known = self.entry(place);
        if known.range.end < range.end || is_writable && !known.is_writable {
            return None;
        }
        known.users += 1;
        if known.users == 1 {
            let (last_use, bytes) = (known.last_use, known.range.len());
            self.idle.remove(&last_use);
            self.idle_bytes -= bytes;
        }
        Some((place, &self.entry(place).region))
    }

    /// Adds a registration, which a message uses.
    pub(super) fn add(&mut self, range: Range<usize>, is_writable: bool, region: R) -> u32 {
        let inner = self.found.range(range.start..).map(|(_, place)| *place);
        let inner = inner.take_while(|place| self.range(*place).end <= range.end);
        // A message has found no use for these: it writes, and cannot by the last of them.
        let outer = self.found.range(..=range.start).rev().map(|(_, place)| *place);
        let outer = outer.take_while(|place| self.range(*place).end >= range.end);
        let replaced: Vec<u32> = inner.chain(outer).collect();
        for place in replaced {
            self.forget(place);
        }
        let start = range.start;
        let entry = Some(Entry { region, range, is_writable, users: 1, last_use: 0, is_kept: true });
        let place = self.free.pop().unwrap_or(self.all.len() as u32);
        if place as usize == self.all.len() {
            self.all.push(entry);
        } else {
            self.all[place as usize] = entry;
        }
        self.found.insert(start, place);
        place
    }

    /// Takes back a registration that a message has used. Returns the number of others that had to go.
    pub(super) fn give_back(&mut self, place: u32) -> usize {
        self.uses += 1;
        let last_use = self.uses;
        let known = self.entry(place);
        known.users -= 1;
        if known.users > 0 {
            return 0;
        }
        if !known.is_kept {
            self.end(place);
            return 0;
        }
        known.last_use = last_use;
        let bytes = known.range.len();
        self.idle.insert(last_use, place);
        self.idle_bytes += bytes;
        let mut evicted = 0;
        while self.idle.len() > self.bound.count || self.idle_bytes > self.bound.bytes {
            evicted += usize::from(self.evict());
        }
        evicted
    }

    /// Ends the registration that was unused for longest. Returns false if all are in use.
    pub(super) fn evict(&mut self) -> bool {
        let oldest = self.idle.first_key_value().map(|(_, place)| *place);
        oldest.is_some_and(|place| {
            self.forget(place);
            true
        })
    }

    /// Keeps no registration of this memory: later messages register it anew. Returns the number of those that go.
    pub(super) fn forget_range(&mut self, range: &Range<usize>) -> usize {
        let before = self.found.range(..range.end).rev().map(|(_, place)| *place);
        let stale: Vec<u32> = before.take_while(|place| self.range(*place).end > range.start).collect();
        for &place in &stale {
            self.forget(place);
        }
        stale.len()
    }

    /// Keeps none. Returns the number of those that go.
    pub(super) fn forget_all(&mut self) -> usize {
        self.forget_range(&(0..usize::MAX))
    }

    fn forget(&mut self, place: u32) {
        let known = self.entry(place);
        known.is_kept = false;
        let (start, is_idle, last_use, bytes) =
            (known.range.start, known.users == 0, known.last_use, known.range.len());
        self.found.remove(&start);
        if is_idle {
            self.idle.remove(&last_use);
            self.idle_bytes -= bytes;
            self.end(place);
        }
    }

    fn end(&mut self, place: u32) {
        self.all[place as usize] = None;
        self.free.push(place);
    }
}

#[cfg(test)]
mod tests;
