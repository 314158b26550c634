// SPDX-License-Identifier: MIT OR Apache-2.0
//! The codes that Open MPI is given for what has failed, each after its reason was said (`runtime/failures.rs`).
//!
//! Called by `completion` for completions, by `send`, `rdma` and `descriptor` for calls. Grade: errors. Threads: any;
//! none is in the module. Tests: the device tests in `hw-tests`.

use std::ffi::c_int;

use engine::transport::{EndpointId, Failed};
use ibex_ffi::openmpi::sys;

use super::module::Module;
use crate::runtime::failures;

/// A request did not complete: the code for its callback.
#[cold]
#[inline(never)]
pub(crate) fn failed(module: &Module, to: EndpointId, failed: Failed) -> c_int {
    if let Some(mut state) = module.enter() {
        failures::tell_request(&mut state.port, to, failed);
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
        failures::tell(&mut state.port);
    }
}
