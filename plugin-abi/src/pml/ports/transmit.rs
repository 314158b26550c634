// SPDX-License-Identifier: MIT OR Apache-2.0
//! The short paths of sends without a request: inside the work request, or from a send buffer. Any other message goes by
//! `engine::messenger::send`.
//!
//! Called by `send`. Grade: hot. Threads: the one that has entered the PML; [`at_once`] and [`inline`]: any. Tests: the
//! MPI programs of `hw-tests`.

use engine::messenger::rails::{routes, transmit};
use engine::messenger::route::Route;
use engine::transport::Sent;
use ibex_ffi::verbs::InlineSpan;

use super::memory;
use crate::pml::datatype::Extent;
use crate::pml::instance::{State, pml};
use crate::runtime::device::Port;
use crate::runtime::token::Tag;

/// Sends header and contiguous data inside the work request. Returns false if that cannot be done now.
#[inline(always)]
pub(crate) fn inline(port: &mut Port, route: Route, header: &[u8], extent: Extent) -> bool {
    // SAFETY: P2: the data may be read during the call; a span of no bytes is not read.
    let payload = unsafe { InlineSpan::new(extent.start, extent.length) };
    port.send_inline(route.to(), Tag::PML.0, header.into(), payload) == Ok(Sent::Posted)
}

/// [`inline`] by one port of several, if it is the peer's home.
#[inline(never)]
pub(crate) fn at_once(route: Route, header: &[u8], extent: Extent) -> bool {
    if !route.is_open_multi_rail() {
        return false;
    }
    let Some(rail) = pml().and_then(|pml| pml.rails().get(route.rail())) else { return false };
    let Some(mut port) = rail.enter() else { return false };
    if !port.sent(route.to()).is_home {
        return false;
    }
    if !inline(&mut port, route, header, extent) {
        return false;
    }
    routes::note(&mut port, route, true);
    true
}

/// Sends header and contiguous data from a send buffer. Returns false if that cannot be done now.
#[inline(always)]
pub(crate) fn copied(state: &mut State, port: &mut Port, route: Route, header: &[u8], extent: Extent) -> bool {
    let buffers = &mut state.messenger.rails.buffers[route.rail()];
    let Some((buffer, span)) = buffers.take(port, header.len() + extent.length) else { return false };
    // SAFETY: R1, R2: just taken, so only this call uses the buffer, which is as long as both; P2: the data may be read.
    unsafe {
        let start = memory::start(span);
        start.copy_from_nonoverlapping(header.as_ptr(), header.len());
        start.add(header.len()).copy_from_nonoverlapping(extent.start, extent.length);
    }
    transmit::post::<State>(buffers, port, route, (buffer, span))
}
