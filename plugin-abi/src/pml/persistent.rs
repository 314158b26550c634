// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions of a request that Open MPI calls (start, cancel, free), and those that make persistent requests.
//!
//! A persistent buffered send completes at once; another request sends its copy. Grade: hot for free, else pending.
//! Threads: any. Tests: below, `pml/tests.rs`, and `pt2pt_requests.c` in `hw-tests/mpi`.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use ibex_ffi::openmpi::sys;

use super::datatype::Description;
use super::finish::{self, finish};
use super::instance::{pml, unwatched};
use super::libmpi;
use super::ports::rails;
use super::progress::leave;
use super::receive::{self, Wanted, post};
use super::request::{Handle, Mode, Owner, Request, RequestFunctions, Role};
use super::send::{self, Outgoing, hold};
use super::tools::watch;
use crate::runtime::guard::fence;
use crate::runtime::listeners::Event;

pub(crate) const FUNCTIONS: RequestFunctions =
    RequestFunctions { start: Some(pml_start), free: Some(request_free), cancel: Some(request_cancel) };

/// Value of `req_complete` in a completed request.
pub(super) const COMPLETED: usize = 1;

pub(crate) unsafe extern "C" fn pml_isend_init(
    buffer: *const c_void,
    count: usize,
    datatype: *mut sys::ompi_datatype_t,
    to: c_int,
    tag: c_int,
    mode: sys::mca_pml_base_send_mode_t,
    comm: *mut sys::ompi_communicator_t,
    place: *mut *mut sys::ompi_request_t,
) -> c_int {
    fence("pml_isend_init", sys::OPAL_ERROR, || {
        let outgoing = Outgoing { data: Description { buffer: buffer.cast_mut(), count, datatype }, to, tag, comm };
        let Some(request) = take() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
        // SAFETY: P1: just taken; P4: MPI's arguments, and `place` is its out parameter.
        unsafe {
            send::fill(request, &outgoing, send::mode_of(mode), Owner::Mpi);
            make_persistent(request);
            place.write(Request::as_raw(request));
        }
        sys::OPAL_SUCCESS
    })
}

pub(crate) unsafe extern "C" fn pml_irecv_init(
    buffer: *mut c_void,
    count: usize,
    datatype: *mut sys::ompi_datatype_t,
    from: c_int,
    tag: c_int,
    comm: *mut sys::ompi_communicator_t,
    place: *mut *mut sys::ompi_request_t,
) -> c_int {
    fence("pml_irecv_init", sys::OPAL_ERROR, || {
        let wanted = Wanted { data: Description { buffer, count, datatype }, from, tag, comm };
        let Some(request) = take() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
        // SAFETY: P1: just taken; P4: MPI's arguments, and `place` is its out parameter.
        unsafe {
            receive::fill(request, &wanted, Owner::Mpi);
            hold(&mut *request.pointer().as_ptr());
            make_persistent(request);
            place.write(Request::as_raw(request));
        }
        sys::OPAL_SUCCESS
    })
}

fn take() -> Option<Handle> {
    Some(pml()?.enter()?.requests.take())
}

/// # Safety
/// P1: a request that is filled in; only the caller has it.
pub(super) unsafe fn make_persistent(request: Handle) {
    // SAFETY: P1: filled in, and only the caller has it.
    unsafe { libmpi::ibex_request_persist(Request::as_raw(request)) };
}

/// `pml_start`, and `req_start` of each request.
pub(crate) unsafe extern "C" fn pml_start(count: usize, requests: *mut *mut sys::ompi_request_t) -> c_int {
    fence("pml_start", sys::OPAL_ERROR, || {
        for index in 0..count {
            // SAFETY: P4: `requests` has `count` elements.
            let Some(request) = (unsafe { Request::from_raw(requests.add(index).read()) }) else { continue };
            // SAFETY: P4: MPI requires a persistent request that is inactive.
            let code = unsafe { start(request) };
            if code != sys::OPAL_SUCCESS {
                return code;
            }
        }
        sys::OPAL_SUCCESS
    })
}

/// # Safety
/// P4: a persistent request that is inactive.
pub(super) unsafe fn start(request: Handle) -> c_int {
    let Some(pml) = pml() else { return sys::OPAL_ERR_NOT_AVAILABLE };
    // SAFETY: P1: MPI holds it, inactive, and the PML does not refer to it: it is ours though the PML is not entered.
    let r = unsafe { &mut *request.pointer().as_ptr() };
    watch::forget(r);
    // Each arm activates only where no error can follow, because an active request must complete.
    let state = match r.core.role {
        Role::Receive => {
            let Some(mut state) = pml.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
            activate(r);
            post(pml, &mut state, request);
            state
        }
        Role::Send(Mode::Buffered) => {
            let outgoing =
                Outgoing { data: *r.core.data.description(), to: r.core.peer, tag: r.core.tag, comm: r.comm() };
            // SAFETY: P4: the arguments with which it was made; it holds references to their communicator and datatype.
            let (mut state, copy) = match unsafe { send::copy_and_enter(pml, &outgoing) } {
                Ok(entered) => entered,
                Err(code) => return code,
            };
            activate(r);
            watch::request(&mut state, request, Event::Activate);
            let id = if unwatched().is_some() { 0 } else { watch::id(&mut state, request) };
            // SAFETY: P4: the arguments with which it was made, and their copy.
            unsafe { send::send_copy(pml, &mut state, &outgoing, copy, id) };
            finish(&mut state, request);
            state
        }
        Role::Send(_) => {
            // SAFETY: P4: a rank of a communicator that lives, because the request holds a reference.
            let route = unsafe { rails::route(pml, r.comm(), r.core.peer) };
            let Some(mut state) = pml.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
            activate(r);
            send::begin(pml, &mut state, request, route);
            state
        }
    };
    leave(pml, state);
    sys::OPAL_SUCCESS
}

fn activate(request: &mut Request) {
    request.shell.is_to_notify = true;
    request.set_finished(false);
    request.base().req_complete = null_mut();
    request.base().req_state = sys::OMPI_REQUEST_ACTIVE;
    request.base().req_status._cancelled = 0;
}

/// `req_free`: MPI does not use a request any more, finished or not.
unsafe extern "C" fn request_free(place: *mut *mut sys::ompi_request_t) -> c_int {
    fence("freeing a request", sys::OPAL_ERROR, || {
        // SAFETY: P4: `place` has a request.
        let request = unsafe { Request::from_raw(place.read()) };
        // SAFETY: P4: `place` is the out parameter.
        unsafe { place.write(libmpi::ibex_request_null()) };
        let (Some(request), Some(pml)) = (request, pml()) else { return sys::OPAL_ERROR };
        let Some(mut state) = pml.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
        let r = state.requests.get(request);
        // `finish::tell` calls a callback, which may free its request, with `is_finished` set and `req_complete` not.
        let is_complete = r.base().req_complete.addr() == COMPLETED || r.is_finished();
        watch::freed(r, is_complete);
        if is_complete {
            // SAFETY: P1: the request is finished or was never begun, and MPI held it until now.
            unsafe { finish::give_back(state, request) };
        } else {
            r.shell.owner = Owner::Nobody;
        }
        sys::OPAL_SUCCESS
    })
}

/// `req_cancel`. Cancels a receive that has not matched; any other request continues.
unsafe extern "C" fn request_cancel(request: *mut sys::ompi_request_t, _flag: c_int) -> c_int {
    fence("cancelling a request", sys::OPAL_ERROR, || {
        // SAFETY: P4: `request` is a live request.
        let (Some(request), Some(pml)) = (unsafe { Request::from_raw(request) }, pml()) else {
            return sys::OPAL_SUCCESS;
        };
        let Some(mut state) = pml.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
        if state.requests.core(request).role == Role::Receive {
            receive::cancel(&mut state, request);
        }
        leave(pml, state);
        sys::OPAL_SUCCESS
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pml::instance::{self, Pml};

    #[test]
    fn starting_a_buffered_send_without_memory_fails_and_leaves_its_request_inactive() {
        instance::begin(Pml::of_no_rails(false));
        // SAFETY: C structures of integers and (nullable) pointers, for which zero is a value.
        let (mut comm, mut datatype): (sys::ompi_communicator_t, sys::ompi_datatype_t) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        (datatype.super_.flags, datatype.super_.size) = (sys::OPAL_DATATYPE_FLAG_NO_GAPS as u16, 8);
        let mut bytes = [0_u64; 1];
        let data = Description { buffer: bytes.as_mut_ptr().cast(), count: 1, datatype: &raw mut datatype };
        let outgoing = Outgoing { data, to: 0, tag: 3, comm: &raw mut comm };
        let request = take().expect("the PML is there, and nobody is inside");
        // SAFETY: P1: just taken, and the PML lives until the end of the test; P4: arguments as MPI would pass them.
        let code = unsafe {
            send::fill(request, &outgoing, Mode::Buffered, Owner::Mpi);
            make_persistent(request);
            start(request)
        };
        assert_eq!(code, sys::OMPI_ERR_BUFFER, "no buffer is attached");
        let mut state = pml().and_then(Pml::enter).expect("the PML is there, and nobody is inside");
        let of_mpi = state.requests.get(request).base();
        assert_eq!((of_mpi.req_state, of_mpi.req_complete.addr()), (sys::OMPI_REQUEST_INACTIVE, COMPLETED));
        drop(state);
        // SAFETY: no other test uses the process' PML.
        unsafe { instance::end() };
    }
}
