// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failures: prints the reason (`runtime/failures.rs`), then returns Open MPI's code, and reports a lost peer or port
//! to Open MPI, which ends the job. Called by the other files, which have entered no port, because Open MPI's callback
//! runs in here. Grade: setup (errors only). Threads: any. Tests: `hw-tests`.

use std::ffi::{CString, c_int};
use std::ptr::null_mut;

use engine::peer::PeerName;
use engine::transport::{EndpointId, Failed};
use ibex_ffi::openmpi::process::Process;
use ibex_ffi::openmpi::sys;

use super::module::Module;
use super::two_sided::detour;
use crate::runtime::{failures, guard, libmpi, messages, modex};

/// Prints the reason of a failed request, and returns the code for its callback.
#[cold]
#[inline(never)]
pub(crate) fn failed(module: &Module, to: EndpointId, failed: Failed) -> c_int {
    if let Some(mut state) = module.enter() {
        failures::print_reason_of_request(&mut state.port, to, failed);
    }
    sys::OPAL_ERROR
}

pub(crate) fn has_failed(module: &Module, to: EndpointId) -> bool {
    module.enter().is_some_and(|state| state.port.failure(to).is_some())
}

/// Prints the reason of a request that the engine has refused, and returns the code for the call that made it.
#[cold]
#[inline(never)]
pub(crate) fn refused(module: &Module) -> c_int {
    out_of_slots(module);
    sys::OPAL_ERR_UNREACH
}

/// Prints the reasons of failed connections when a message got no slot: failed connections may hold all slots.
#[cold]
#[inline(never)]
pub(crate) fn out_of_slots(module: &Module) {
    if let Some(mut state) = module.enter() {
        failures::print_reasons(&mut state.port);
    }
}

/// Reports the failed connection to a peer, unless another port reaches it. Open MPI ends the job.
#[cold]
pub(crate) fn peer_failed(module: &Module, peer: EndpointId) {
    if !detour::goes_around(module, peer) {
        lost(module, peer);
    }
}

#[cold]
pub(crate) fn lost(module: &Module, peer: EndpointId) {
    let (name, text) = {
        let Some(mut state) = module.enter() else { return };
        failures::print_reasons(&mut state.port);
        let text = state.port.failure(peer).map_or_else(|| state.port.describe(peer), ToString::to_string);
        (state.port.peer_name(peer), text)
    };
    report(module, name.and_then(modex::process), &text);
}

#[cold]
pub(crate) fn end_job(module: &Module, peer: Option<PeerName>, text: &str) {
    messages::operation_failed(text);
    report(module, peer.and_then(modex::process), text);
    // Only ob1 registers a callback; with another PML the job goes on until here.
    libmpi::abort();
}

#[cold]
pub(crate) fn report_defect(module: &Module) {
    debug_assert!(guard::broken(), "called only then");
    report(module, None, "ibex has a defect, see above");
}

fn report(module: &Module, process: Option<Process>, text: &str) {
    let Some(function) = module.error_callback() else { return };
    // ob1 passes the text to a printf-like function as the format.
    let text = CString::new(format!("ibex: {}", text.replace('%', "%%").replace('\0', ""))).unwrap_or_default();
    let process = process.map_or(null_mut(), Process::as_raw);
    // SAFETY: the registered callback (btl.h, mca_btl_base_module_error_cb_fn_t); the text outlives the call.
    unsafe { function(module.as_raw(), sys::MCA_BTL_ERROR_FLAGS_FATAL as i32, process, text.as_ptr().cast_mut()) };
}
