// SPDX-License-Identifier: MIT OR Apache-2.0
//! One-sided operations of an endpoint with itself: the processor copies the bytes. Keys, bounds and rights are checked
//! as the adapter checks those of others.
//!
//! Called by `rma`. Grade: pending. Threads: the one that has entered the endpoint. Tests: `hw-tests/libfabric`.

use ibex::libfabric::OURSELVES;

use super::segments::{Span, segments};
use super::{Direction, REFUSED, Transfer, notice};
use crate::host::{Shared, State};

/// Does an operation of this endpoint with itself, which ends at once.
pub(super) fn transfer(state: &mut State, shared: &Shared, of: &Transfer<'_>) {
    let Transfer { direction, end, .. } = *of;
    let regions = &state.others.domain.regions;
    let may = of
        .remote
        .iter()
        .filter(|remote| remote.length > 0)
        .all(|remote| regions.check(remote.key, (remote.address, remote.length), direction.access()));
    if !may {
        return super::report(&state.reports, direction.flags(), end, Some(REFUSED));
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
    super::report(&state.reports, direction.flags(), end, None);
    if let Some(notice) = of.notice() {
        notice::report(state, shared, OURSELVES, &notice);
    }
}
