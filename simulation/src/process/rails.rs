// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks what a process keeps of its rails: the home of each peer, the ports that it has given up, and the routes to
//! processes that leave. Called by `world`. Grade: test. Threads: one. Tests: those of the crate.

use ibex::messenger::rails::routes;

use super::{End, Process, name};

impl Process {
    /// Panics if messages to a peer use a port that is down, and there is another one.
    pub(crate) fn check_homes(&self) {
        let ends = self.shared.ends();
        for peer in &self.messenger.rails.multi_rail.peers {
            let of = |end: &&End| peer.routes.contains(&end.route);
            let Some(home) = ends.iter().filter(of).find(|end| end.route == peer.home) else { continue };
            let may_move = !home.has_failed && ends.iter().filter(of).any(|end| end.is_usable);
            assert!(home.is_usable || !may_move, "process {} sends by a port that is down: {peer:?}", self.rank);
        }
    }

    /// Panics unless the process has told of each port that it has given up for a peer, once.
    pub(crate) fn check_given_up(&self) {
        let ends = self.shared.ends();
        for End { rank, route, .. } in &ends {
            let of = |end: &&End| (end.rank, end.route.rail()) == (*rank, route.rail());
            let failed = ends.iter().filter(of).filter(|end| end.has_failed).count();
            let lost = ends.iter().filter(of).filter(|end| end.has_lost).count();
            let told = self.given_up.iter().filter(|told| **told == (route.rail(), *rank)).count();
            let is_right = self.settings.rails == 1 || (failed.saturating_sub(lost)..=failed).contains(&told);
            assert!(is_right, "process {} tells {told} times of {failed} failures of {route:?}", self.rank);
        }
    }

    /// Forgets a process that leaves the job.
    pub(crate) fn forget(&mut self, other: u32) {
        let (shared, other) = (self.shared(), name(other));
        let is_known = self.messenger.rails.known.contains_key(&other);
        let routes = routes::remove(&*shared, self, other);
        let rails = &self.messenger.rails;
        let is_left = rails.known.contains_key(&other) || rails.multi_rail.by_name.contains_key(&other);
        assert!(!is_left && (!is_known || !routes.is_empty()), "a route to {other:?} is left, or was not returned");
    }
}
