// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reason first: why a connection failed is said before Open MPI gets anything that failed for it.
//!
//! ob1 and osc/rdma may end the job at the first error they are handed, in a completion or as the code of a call, with words
//! that name no peer and no port. So whoever hands one on goes through here: `progress` for completions, `send`, `rdma` and
//! `descriptor` for calls. The engine keeps each reason until it is taken. Grade: errors. Threads: any; a reason is said inside
//! the module's `Exclusive`, so that no other thread overtakes it. Tests: the device tests in `hw-tests`.

use std::ffi::c_int;

use engine::event::{EndpointId, Failed};
use engine::port::Port;
use ibex_ffi::openmpi::sys;

use crate::messages;
use crate::module::Module;

/// Says why connections failed since the last time. Returns how many did.
#[cold]
pub(crate) fn tell(port: &mut Port) -> usize {
    let reasons = port.take_untold();
    for reason in &reasons {
        messages::peer_failed(reason);
    }
    reasons.len()
}

/// [`tell`], without this reason, which is told another way.
#[cold]
pub(crate) fn tell_but(port: &mut Port, known: &str) {
    for reason in port.take_untold().iter().filter(|reason| *reason != known) {
        messages::peer_failed(reason);
    }
}

/// A request did not complete: the code for its callback.
#[cold]
#[inline(never)]
pub(crate) fn failed(module: &Module, to: EndpointId, failed: Failed) -> c_int {
    if let Some(mut state) = module.enter()
        && tell(&mut state.port) == 0
        && state.port.failure(to).is_none()
        && !state.port.is_forgotten(to)
    {
        // Its connection was closed, or begun anew by the peer.
        messages::request_failed(&state.port.describe(to), &failed.status);
    }
    sys::OPAL_ERROR
}

/// Whether the connection to a peer has failed.
pub(crate) fn has_failed(module: &Module, to: EndpointId) -> bool {
    module.enter().is_some_and(|state| state.port.failure(to).is_some())
}

/// The engine has refused a request: the code for the call that made it.
#[cold]
#[inline(never)]
pub(crate) fn refused(module: &Module) -> c_int {
    out_of_slots(module);
    sys::OPAL_ERR_UNREACH
}

/// There is no buffer for a message; it may be that a failed connection has them.
#[cold]
#[inline(never)]
pub(crate) fn out_of_slots(module: &Module) {
    if let Some(mut state) = module.enter() {
        tell(&mut state.port);
    }
}
