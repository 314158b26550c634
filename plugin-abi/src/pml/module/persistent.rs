// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions of a request that Open MPI calls (start, cancel, free), and those that make persistent requests.
//!
//! A persistent buffered send completes at once; another request sends its copy. Grade: hot for free, else pending.
//! Threads: any. Tests: `pml/tests`, and `pt2pt_requests.c` in `hw-tests/mpi`.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use ibex_ffi::openmpi::sys;

use super::{Answer, Code, answer, enter, receive, send, there};
use crate::pml::communicator::Comm;
use crate::pml::datatype::{Buffer, Datatype, Description};
use crate::pml::host;
use crate::pml::instance::{Pml, pml};
use crate::pml::progress::leave;
use crate::pml::request::{Call, Handle, Owner, Place, RawRequest, RawRequests, Request, Role};
use crate::pml::tools;
use crate::runtime::entry::{entry1, entry2};

/// `req_start`, `req_free` and `req_cancel` of each request.
pub(crate) const FUNCTIONS: (sys::ompi_request_start_fn_t, sys::ompi_request_free_fn_t, sys::ompi_request_cancel_fn_t) =
    (Some(entry2(pml_start)), Some(entry1(request_free)), Some(entry2(request_cancel)));

/// Value of `req_complete` in a completed request.
pub(crate) const COMPLETED: usize = 1;

pub(crate) extern "C" fn pml_isend_init(
    buffer: Buffer<*const c_void>,
    count: usize,
    datatype: Datatype,
    peer: c_int,
    tag: c_int,
    mode: sys::mca_pml_base_send_mode_t,
    comm: Comm,
    place: Place<'_>,
) -> c_int {
    answer("pml_isend_init", || {
        let call = Call { data: Description::new(buffer.to_send(), count, datatype), peer, tag, comm };
        make(Role::Send(send::mode_of(mode)), &call, place)
    })
}

pub(crate) extern "C" fn pml_irecv_init(
    buffer: Buffer<*mut c_void>,
    count: usize,
    datatype: Datatype,
    peer: c_int,
    tag: c_int,
    comm: Comm,
    place: Place<'_>,
) -> c_int {
    answer("pml_irecv_init", || {
        let call = Call { data: Description::new(buffer, count, datatype), peer, tag, comm };
        make(Role::Receive, &call, place)
    })
}

/// Makes a persistent request.
fn make(role: Role, call: &Call, place: Place<'_>) -> Answer {
    let mut state = pml().and_then(Pml::enter).ok_or(Code::NO_RESOURCE)?;
    let request = state.requests.take();
    let r = state.requests.get(request);
    r.fill(role, Owner::Mpi, call);
    r.make_persistent();
    place.write(Request::as_raw(request));
    Ok(())
}

/// `pml_start`, and `req_start` of each request: MPI requires persistent requests that are inactive.
pub(crate) extern "C" fn pml_start(count: usize, requests: RawRequests) -> c_int {
    // SAFETY: M4: `requests` has `count` elements.
    answer("pml_start", || unsafe { requests.ours(count) }.try_for_each(start))
}

/// Starts a persistent request that is inactive.
pub(crate) fn start(request: Handle) -> Answer {
    let pml = there()?;
    let mut state = enter(pml)?;
    let r = state.requests.get(request);
    r.core.watched.renew(0);
    // Each arm activates only where no error can follow, because an active request must complete.
    match r.core.role {
        Role::Receive => {
            activate(r);
            receive::post(pml, &mut state, request);
        }
        Role::Send(mode) => {
            let call = r.call();
            // The PML does not refer to an inactive request, and MPI starts it once.
            drop(state);
            let way;
            (state, way) = send::prepare(pml, &call, mode)?;
            activate(state.requests.get(request));
            send::begin(pml, &mut state, request, way);
        }
    }
    leave(pml, state);
    Ok(())
}

fn activate(request: &mut Request) {
    request.shell.is_to_notify = true;
    request.set_finished(false);
    request.base().req_complete = null_mut();
    request.base().req_state = sys::OMPI_REQUEST_ACTIVE;
    request.base().req_status._cancelled = 0;
}

/// `req_free`: MPI does not use a request any more, finished or not.
extern "C" fn request_free(place: &mut RawRequest) -> c_int {
    answer("freeing a request", || {
        let request = std::mem::replace(place, RawRequest::null()).ours().ok_or(Code::ERROR)?;
        let mut state = enter(pml().ok_or(Code::ERROR)?)?;
        let r = state.requests.get(request);
        // `host::complete_finished` calls a callback, which may free its request, with `is_finished` set and
        // `req_complete` not.
        let is_complete = r.base().req_complete.addr() == COMPLETED || r.is_finished();
        tools::freed(&mut state, request, is_complete);
        if is_complete {
            host::give_back(state, request);
        } else {
            state.requests.get(request).shell.owner = Owner::Nobody;
        }
        Ok(())
    })
}

/// `req_cancel`. Cancels a receive that has not matched; any other request continues.
extern "C" fn request_cancel(request: RawRequest, _flag: c_int) -> c_int {
    answer("cancelling a request", || {
        let (Some(request), Some(pml)) = (request.ours(), pml()) else { return Ok(()) };
        let mut state = enter(pml)?;
        if state.requests.core(request).role == Role::Receive {
            receive::cancel(&mut state, request);
        }
        leave(pml, state);
        Ok(())
    })
}
