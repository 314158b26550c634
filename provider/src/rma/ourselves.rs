// SPDX-License-Identifier: MIT OR Apache-2.0
//! One-sided operations of an endpoint with itself: the processor copies the bytes. Keys, bounds and rights are checked
//! as the adapter checks those of others.
//!
//! Called by `rma`. Grade: pending. Threads: the one that has entered the endpoint. Tests: `hw-tests/libfabric`.

use super::segments::{Span, segments};
use super::{Direction, REFUSED, Transfer};
use crate::host::{OURSELVES, Shared, State};

impl State {
    /// Does an operation of this endpoint with itself, which ends at once.
    pub(super) fn transfer_to_ourselves(&mut self, shared: &Shared, of: &Transfer<'_>) {
        let Transfer { direction, end, .. } = *of;
        let regions = &self.rma.domain.regions;
        let may = of
            .remote
            .iter()
            .filter(|remote| remote.length > 0)
            .all(|remote| regions.check(remote.key, (remote.address, remote.length), direction.access()));
        if !may {
            return self.reports.end(direction.flags(), end, Some(REFUSED));
        }
        let local = of.local.iter().map(|piece| Span::of_processor(piece.address() as u64, piece.length()));
        for segment in segments(&local.collect::<Vec<_>>(), of.remote, usize::MAX) {
            let (here, there) = (segment.local.address as usize, segment.remote.address as usize);
            let (from, to) = if direction == Direction::Read { (there, here) } else { (here, there) };
            let (from, to) = (std::ptr::with_exposed_provenance::<u8>(from), std::ptr::with_exposed_provenance_mut(to));
            // SAFETY: A1 for the operation's memory. The other side is inside an open region that permits the access,
            // and so is mapped (`mr.rs`).
            unsafe { std::ptr::copy(from, to, segment.local.length) };
        }
        self.reports.end(direction.flags(), end, None);
        if let Some(notice) = of.notice() {
            self.notice(shared, OURSELVES, &notice);
        }
    }
}
