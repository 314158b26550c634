// SPDX-License-Identifier: MIT OR Apache-2.0
//! Flow control of one process: its state as receiver and as sender, and the values that tools read.
//!
//! Used by `messages`, `send` and the host (`holders`, `turns`). Grade: pending. Threads: the owner's; [`ROOM`]: any.
//! Tests: below.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Kept, Limits, Outgoing};
use crate::counters::Counters;
use crate::messenger::matching::lengths::Level;
use crate::messenger::route::{Account, Route};

/// Most unanswered announcements to a peer in a communicator: about 128 KiB at the receiver.
pub const WINDOW: u32 = 1024;

/// Memory that is left for unexpected messages, bytes. For tools: in any thread, with or without a messenger.
#[derive(Debug)]
pub struct Room {
    bound: AtomicU64,
    kept: Level,
}

/// The memory left in this process.
pub static ROOM: Room = Room { bound: AtomicU64::new(0), kept: Level::new() };

impl Room {
    /// Resets everything, for a messenger that permits `bound` bytes.
    fn begin(&self, bound: u64) {
        self.bound.store(bound, Ordering::Relaxed);
        self.kept.forget();
    }

    fn left(&self, kept: u64) -> u64 {
        self.bound.load(Ordering::Relaxed).saturating_sub(kept)
    }

    /// Returns the memory that is left now, bytes.
    pub fn now(&self) -> u64 {
        self.left(self.kept.show(0)[0])
    }

    /// Returns the minimum since the last reset.
    pub fn least(&self) -> u64 {
        self.left(self.kept.show(0)[1])
    }

    /// Returns the minimum since the messenger began.
    pub fn least_ever(&self) -> u64 {
        self.left(self.kept.most_ever(0))
    }

    /// Resets the minimum and returns it.
    pub fn begin_anew(&self) -> u64 {
        self.left(self.kept.begin_anew(0))
    }
}

/// Flow control of this process. `R` names a send.
#[derive(Debug)]
pub struct Flow<R> {
    /// As receiver.
    pub kept: Kept<Account>,
    /// As sender.
    pub outgoing: Outgoing<Account, R>,
    /// Storage of the routes to its peers.
    pub holders: Holders,
    /// Counters of its first port: there tools read how often it held senders back.
    pub shown: Arc<Counters>,
    /// Routes whose turn it is: their peers' pending messages may find room now.
    pub turns: Vec<Route>,
}

/// Memory of an unexpected message without its data, bytes.
pub const RECORD: u64 = 128;

impl<R> Flow<R> {
    /// Makes the state of a process that stores at most `bound` bytes, announces at most `window` messages to a peer in
    /// a communicator, and publishes its counts in `shown`.
    pub fn new(bound: u64, window: u32, shown: Arc<Counters>) -> Self {
        ROOM.begin(bound);
        let limits = Limits { kept: bound, window };
        let (kept, outgoing) = (Kept::new(limits), Outgoing::new(limits));
        Flow { kept, outgoing, holders: Holders::default(), shown, turns: Vec::new() }
    }

    /// Forgets a peer that has gone, and the routes to it.
    pub fn forget(&mut self, account: Account, routes: &[Route]) {
        self.kept.forget(account);
        self.outgoing.forget(account);
        for route in routes {
            self.holders.forget(*route);
        }
    }

    /// Shows tools the memory of unexpected messages.
    pub fn show(&self) {
        self.shown.unexpected_memory.store(self.kept.bytes(), Ordering::Relaxed);
        ROOM.kept.set(self.kept.bytes());
    }
}

/// For each route, the communicators that have stored it (context number, and the peer's rank), so that flow control
/// can mark it there when the peer holds back. The entry of a freed communicator stays until its number is reused.
#[derive(Debug, Default)]
pub struct Holders(HashMap<Route, HashMap<u32, i32>>);

impl Holders {
    /// Notes that a communicator has stored a route, to this rank.
    pub fn note(&mut self, route: Route, context: u32, rank: i32) {
        self.0.entry(route).or_default().insert(context, rank);
    }

    /// Returns the context numbers of the communicators that have stored a route, each with the rank.
    pub fn of(&self, route: Route) -> impl Iterator<Item = (u32, i32)> {
        self.0.get(&route).into_iter().flatten().map(|(context, rank)| (*context, *rank))
    }

    /// Forgets a route.
    pub fn forget(&mut self, route: Route) {
        self.0.remove(&route);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::EndpointId;

    #[test]
    fn the_least_room_is_zero_beyond_the_bound_and_begins_anew_with_a_reset() {
        let room = Room { bound: AtomicU64::new(0), kept: Level::new() };
        assert_eq!((room.now(), room.least_ever()), (0, 0), "no messenger");
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
        assert_eq!((room.now(), room.least(), room.least_ever()), (500, 500, 500), "another messenger");
    }

    #[test]
    fn tools_see_the_memory_of_unexpected_messages() {
        let mut flow = Flow::<u32>::new(1000, 2, Arc::default());
        flow.kept.keep(300);
        flow.show();
        assert_eq!(flow.shown.unexpected_memory.load(Ordering::Relaxed), 300);
    }

    #[test]
    fn holders_searches_only_the_communicators_of_one_route() {
        let mut holders = Holders::default();
        let route = |peer| Route::new(0, EndpointId::from_index(peer));
        for peer in 0..1000 {
            // Each is in 100 communicators, except for one that is in three.
            for context in 0..if peer == 7 { 3 } else { 100 } {
                holders.note(route(peer), context, (peer + context) as i32);
                holders.note(route(peer), context, peer as i32);
            }
        }
        let mut places: Vec<_> = holders.of(route(7)).collect();
        places.sort_unstable();
        assert_eq!(places, [(0, 7), (1, 7), (2, 7)]);
        assert_eq!(holders.of(route(8)).count(), 100);
        holders.forget(route(8));
        assert_eq!((holders.of(route(8)).count(), holders.0.len()), (0, 999));
    }
}
