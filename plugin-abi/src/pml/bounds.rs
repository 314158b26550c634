// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of flow control, and its bounds that are not parameters.
//!
//! Used by `flow` and `resume`. Grade: pending. Threads: the one that has entered the PML; [`ROOM`]: any. Tests: below.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::counters::Counters;
use engine::messenger::flow_control::{Kept, Limits, Outgoing};
use engine::messenger::link::{Account, Link};
use engine::messenger::matching::lengths::Level;

use super::request::Request;

/// Memory that is left for unexpected messages, bytes. For tools: in any thread, with or without a PML.
pub(crate) struct Room {
    bound: AtomicU64,
    kept: Level,
}

pub(crate) static ROOM: Room = Room { bound: AtomicU64::new(0), kept: Level::new() };

impl Room {
    /// Begins anew, for a PML that permits `bound` bytes.
    fn begin(&self, bound: u64) {
        self.bound.store(bound, Ordering::Relaxed);
        self.kept.forget();
    }

    fn left(&self, kept: u64) -> u64 {
        self.bound.load(Ordering::Relaxed).saturating_sub(kept)
    }

    pub(crate) fn now(&self) -> u64 {
        self.left(self.kept.show(0)[0])
    }

    /// Returns the minimum since the last reset.
    pub(crate) fn least(&self) -> u64 {
        self.left(self.kept.show(0)[1])
    }

    /// Returns the minimum since the PML began.
    pub(crate) fn least_ever(&self) -> u64 {
        self.left(self.kept.most_ever(0))
    }

    /// Resets the minimum and returns it.
    pub(crate) fn begin_anew(&self) -> u64 {
        self.left(self.kept.begin_anew(0))
    }
}

/// Flow control of this process as receiver and as sender.
pub(crate) struct Flow {
    pub(crate) kept: Kept<Account>,
    pub(crate) outgoing: Outgoing<Account, NonNull<Request>>,
    pub(crate) holders: Holders,
    pub(crate) shown: Arc<Counters>,
    /// Whether a send has found the port's queue full since this process last took all messages.
    pub(crate) is_behind: bool,
}

/// Number of bytes to one peer that may wait for the port: sixteen of the longest eager messages, or many short ones.
const WAITING: u64 = 192 << 10;

/// Number of unanswered announcements to a peer in a communicator: about 128 KiB at the receiver. Unit tests fill it.
const WINDOW: u32 = if cfg!(test) { 8 } else { 1024 };

/// Number of bytes that a message takes beside its data while it waits for the port or for its receive.
pub(crate) const RECORD: u64 = 128;

impl Flow {
    /// Makes the state of a process that stores at most `bound` bytes and publishes its counts in `shown`.
    pub(crate) fn new(bound: u64, shown: Arc<Counters>) -> Self {
        ROOM.begin(bound);
        let limits = Limits { kept: bound, waiting: WAITING.min(bound), window: WINDOW };
        let (kept, outgoing) = (Kept::new(limits), Outgoing::new(limits));
        Flow { kept, outgoing, holders: Holders::default(), shown, is_behind: false }
    }

    /// Forgets a peer that has gone, and the links to it.
    pub(crate) fn forget(&mut self, account: Account, links: &[Link]) {
        self.kept.forget(account);
        self.outgoing.forget(account);
        for link in links {
            self.holders.forget(*link);
        }
    }

    pub(crate) fn show(&self) {
        self.shown.unexpected_memory.store(self.kept.bytes(), Ordering::Relaxed);
        ROOM.kept.set(self.kept.bytes());
    }
}

/// For each link, the communicators that have stored it, to mark it when the peer holds back: rank by context number.
/// The entry of a communicator that has gone stays until its number is reused.
#[derive(Default)]
pub(crate) struct Holders(HashMap<Link, HashMap<u32, i32>>);

impl Holders {
    pub(crate) fn note(&mut self, link: Link, context: u32, rank: i32) {
        self.0.entry(link).or_default().insert(context, rank);
    }

    /// Returns the context numbers of the communicators that have stored a link, each with the rank.
    pub(crate) fn of(&self, link: Link) -> impl Iterator<Item = (u32, i32)> {
        self.0.get(&link).into_iter().flatten().map(|(context, rank)| (*context, *rank))
    }

    pub(crate) fn forget(&mut self, link: Link) {
        self.0.remove(&link);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::transport::EndpointId;

    #[test]
    fn the_least_that_was_left_is_nothing_where_more_was_kept_than_permitted_and_begins_anew_where_it_is_reset() {
        let room = Room { bound: AtomicU64::new(0), kept: Level::new() };
        assert_eq!((room.now(), room.least_ever()), (0, 0), "no PML");
        room.begin(1000);
        assert_eq!((room.now(), room.least(), room.least_ever()), (1000, 1000, 1000));
        for kept in [300, 1200, 100] {
            room.kept.set(kept);
        }
        assert_eq!((room.now(), room.least(), room.least_ever()), (900, 0, 0));
        assert_eq!(room.begin_anew(), 0);
        room.kept.set(400);
        room.kept.set(0);
        assert_eq!((room.now(), room.least(), room.least_ever()), (1000, 600, 0));
        room.begin(500);
        assert_eq!((room.now(), room.least(), room.least_ever()), (500, 500, 500), "another PML");
    }

    #[test]
    fn a_peer_of_a_thousand_is_looked_for_where_it_is_and_nowhere_else() {
        let mut holders = Holders::default();
        let link = |peer| Link::new(0, EndpointId::from_index(peer));
        for peer in 0..1000 {
            // Each is in 100 communicators, except for one that is in three.
            for context in 0..if peer == 7 { 3 } else { 100 } {
                holders.note(link(peer), context, (peer + context) as i32);
                holders.note(link(peer), context, peer as i32);
            }
        }
        let mut places: Vec<_> = holders.of(link(7)).collect();
        places.sort_unstable();
        assert_eq!(places, [(0, 7), (1, 7), (2, 7)]);
        assert_eq!(holders.of(link(8)).count(), 100);
        holders.forget(link(8));
        assert_eq!((holders.of(link(8)).count(), holders.0.len()), (0, 999));
    }
}
