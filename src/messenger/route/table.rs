// SPDX-License-Identifier: MIT OR Apache-2.0
//! The routes to the ranks of a communicator. The host stores them when it has looked a rank up, and marks them
//! ([`Route::marked`]). Grade: hot for [`RouteTable::short_cut`] and [`RouteTable::route`]. Threads: any; the first one
//! that needs a route stores it. Tests: below.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::Route;

/// The route to each rank of a communicator's group, or of an intercommunicator's remote group.
#[derive(Debug)]
pub struct RouteTable {
    routes: Box<[AtomicU64]>,
    /// Bits that the fast path adds to a rank: none, or all while it is closed, so that the rank is outside.
    closed: AtomicUsize,
}

impl RouteTable {
    /// Makes a table for this number of ranks, without routes.
    pub fn new(ranks: usize) -> Self {
        let routes = (0..ranks).map(|_| AtomicU64::new(Route::UNKNOWN.bits())).collect();
        RouteTable { routes, closed: AtomicUsize::new(0) }
    }

    /// Whether the communicator has this rank.
    pub fn has(&self, rank: i32) -> bool {
        (rank as usize) < self.routes.len()
    }

    /// Returns the route to a rank; [`Route::UNKNOWN`] for a rank outside the communicator.
    #[inline]
    pub fn route(&self, rank: i32) -> Route {
        self.at(rank as usize)
    }

    #[inline(always)]
    fn at(&self, index: usize) -> Route {
        // Acquire: the endpoint in the route was made before the route was stored.
        self.routes.get(index).map_or(Route::UNKNOWN, |route| Route::from_bits(route.load(Ordering::Acquire)))
    }

    /// [`Self::route`] for the fast path: [`Route::UNKNOWN`] while it is closed.
    #[inline(always)]
    pub fn short_cut(&self, rank: i32) -> Route {
        // One test for both costs an instruction less than two.
        self.at(rank as usize | self.closed.load(Ordering::Relaxed))
    }

    /// Opens or closes the fast path.
    pub fn open_short_cut(&self, is_open: bool) {
        self.closed.store(if is_open { 0 } else { usize::MAX }, Ordering::Relaxed);
    }

    /// Stores the route to a rank.
    pub fn set(&self, rank: i32, route: Route) {
        if let Some(place) = self.routes.get(rank as usize) {
            place.store(route.bits(), Ordering::Release);
        }
    }

    /// Stores the route that a look-up has found, unless another thread has stored one meanwhile, which may be marked.
    pub fn set_found(&self, rank: i32, route: Route) {
        if let Some(place) = self.routes.get(rank as usize) {
            let unknown = Route::UNKNOWN.bits();
            let _ = place.compare_exchange(unknown, route.bits(), Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Marks the route to a rank, if it is this one: short messages then ask flow control how they go.
    pub fn mark(&self, rank: i32, route: Route) {
        if let Some(place) = self.routes.get(rank as usize) {
            // There is nothing to mark while a thread looks the rank up. Its first message then asks flow control, and
            // stores a marked route (`set_skips_flow_control`).
            let _ = place.compare_exchange(route.bits(), route.marked().bits(), Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::EndpointId;

    #[test]
    fn a_rank_outside_the_communicator_has_no_route() {
        let table = RouteTable::new(2);
        assert!(table.has(0) && table.has(1));
        for rank in [-1, 2, i32::MAX, i32::MIN] {
            assert!(!table.has(rank), "{rank}");
            assert_eq!([table.route(rank), table.short_cut(rank)], [Route::UNKNOWN; 2], "{rank}");
        }
    }

    #[test]
    fn a_closed_short_cut_leads_nowhere_and_the_route_stays() {
        let (table, route) = (RouteTable::new(2), Route::new(0, EndpointId::from_index(7)));
        table.set(1, route);
        assert_eq!(table.short_cut(1), route);
        table.open_short_cut(false);
        assert_eq!([table.short_cut(1), table.route(1)], [Route::UNKNOWN, route]);
        table.open_short_cut(true);
        assert_eq!(table.short_cut(1), route);
    }

    #[test]
    fn a_route_stays_marked_until_set_replaces_it() {
        let (table, route) = (RouteTable::new(2), Route::new(0, EndpointId::from_index(7)));
        table.mark(0, route);
        assert_eq!(table.route(0), Route::UNKNOWN);
        table.set_found(0, route);
        table.mark(0, route);
        assert_eq!([table.route(0), table.short_cut(0)], [route.marked(); 2]);
        assert!(!table.short_cut(0).is_open_single_rail());
        // Another thread, which looked the same rank up, stores its route later. Marking does not touch rank 1's route.
        table.set_found(0, route);
        table.set_found(1, route.as_multi_rail());
        table.mark(1, route);
        table.mark(99, route);
        assert_eq!([table.route(0), table.route(1)], [route.marked(), route.as_multi_rail()]);
        table.mark(1, route.as_multi_rail());
        assert_eq!(table.route(1), route.as_multi_rail().marked());
        table.set(0, route);
        assert_eq!(table.short_cut(0), route);
    }
}
