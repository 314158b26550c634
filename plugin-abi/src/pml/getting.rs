// SPDX-License-Identifier: MIT OR Apache-2.0
//! Single-copy read within a host: the shared-memory BTL reads a whole message from the sender's memory to the buffer,
//! mostly within the call. If the kernel forbids it, the receiver asks for copies (`pieces`).
//!
//! Called by `accept`. Grade: pending. Threads: the one that has entered the PML. Tests: `pml/tests.rs`, and
//! `hw-tests/tests/device/local.rs`.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use engine::messenger::header::{Header, Memory};
use engine::messenger::link::Link;
use engine::messenger::transfer_id::TransferId;
use ibex_ffi::openmpi::sys;

use super::finish::finish;
use super::flight::Step;
use super::instance::{Pml, State, pml};
use super::request::{Request, Transfer};
use super::transfers::Bytes;
use super::{flight, pieces, routing, watch};
use crate::runtime::guard::fence;

/// Begins to read the first `wanted` bytes (at least 1) of a message. Returns false if the BTL cannot.
///
/// # Safety
/// P1: a matched receive into contiguous memory, with no transfer in progress.
pub(crate) unsafe fn begin(
    pml: &Pml,
    state: &mut State,
    request: NonNull<Request>,
    (link, sender, memory): (Link, TransferId, Memory),
    wanted: u64,
) -> bool {
    let (Some(shared), Some(from)) = (pml.shared_memory(), link.as_local()) else { return false };
    // SAFETY: P1: the receive is not finished; P3.
    let r = unsafe { &mut *request.as_ptr() };
    r.core.link = link;
    r.core.transfer = Transfer::Getting { sender, length: wanted };
    let (to, data) = ((r.core.extent.start, wanted as usize), request.as_ptr().cast());
    // SAFETY: P1: the receive is not finished; P3.
    unsafe { watch::begins(r, Bytes::None.posted()) };
    // SAFETY: P2: the BTL writes the memory until it calls `done`, and the receive is finished only there.
    let is_begun = pml.within(state, || unsafe { shared.get(from, to, memory.address, Some(done), data) });
    if !is_begun {
        // SAFETY: P1: the receive is not finished, since `done` is not called if nothing is read; P3.
        unsafe { (*request.as_ptr()).core.transfer = Transfer::None };
    }
    is_begun
}

/// `mca_btl_base_rdma_completion_fn_t`: the BTL has read the message, or has failed to.
unsafe extern "C" fn done(
    _btl: *mut sys::mca_btl_base_module_t,
    _endpoint: *mut sys::mca_btl_base_endpoint_t,
    _to: *mut c_void,
    _handle: *mut sys::mca_btl_base_registration_handle_t,
    _context: *mut c_void,
    data: *mut c_void,
    status: c_int,
) {
    fence("the end of a read", (), || {
        let (Some(pml), Some(request)) = (pml(), NonNull::new(data.cast::<Request>())) else { return };
        // SAFETY: P1: `data` is the receive that [`begin`] passed to the BTL, which calls this once.
        pml.with_state(|state| unsafe { finished(pml, state, request, status == sys::OPAL_SUCCESS) });
    });
}

/// # Safety
/// P1: a receive whose transfer is `Getting`.
unsafe fn finished(pml: &Pml, state: &mut State, request: NonNull<Request>, is_read: bool) {
    // SAFETY: P1: the receive is not finished; P3.
    let r = unsafe { &mut *request.as_ptr() };
    let Transfer::Getting { sender, length } = r.core.transfer else { return };
    r.core.transfer = Transfer::None;
    if is_read {
        // SAFETY: P1: the receive is not finished; P3.
        unsafe {
            watch::ends(r, Bytes::Of { offset: 0, length }.posted());
            flight::note(r, &Step::Fetched(sender, length));
        }
        routing::control(pml, state, r.core.link, &Header::Finished { request: sender.0, length });
        // SAFETY: P1: the receive has all the data that it wants, and no transfer in progress.
        unsafe { finish(state, request) };
    } else {
        // SAFETY: P1: a matched receive, now with no transfer in progress.
        unsafe { pieces::ask(pml, state, request, (r.core.link, sender), (length, 0)) };
    }
}
