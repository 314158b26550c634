// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a wait for persistent requests, while a tool listens.
//!
//! A request of one message is freed by the wait or test that finds it done, which calls the PML (`persistent.rs`). A
//! persistent one is only made inactive. So while anybody listens, Open MPI's table of these eight functions has ours,
//! which call the former ones and then look for such requests. Grade: setup; the functions are on the way of what is
//! listened to. Threads: any.

use std::ffi::c_int;
use std::sync::OnceLock;

use ibex_ffi::openmpi::sys;

use super::instance::pml;
use super::request::Request;
use super::watch;
use crate::runtime::guard::fence;
use crate::runtime::listeners::Event;

/// Open MPI's own.
static FORMER: OnceLock<sys::ompi_request_fns_t> = OnceLock::new();

/// Looks at the end of waits from now on, or no more.
pub(crate) fn watch_waits(is_watched: bool) {
    let table = &raw mut sys::ompi_request_functions;
    if !is_watched && FORMER.get().is_none() {
        return;
    }
    // SAFETY: Open MPI's table, which it writes when it is initialised alone. Pointers that another thread reads are
    // whole.
    unsafe {
        let former = FORMER.get_or_init(|| table.read());
        table.write_volatile(if is_watched { OURS } else { *former });
    }
}

const OURS: sys::ompi_request_fns_t = sys::ompi_request_fns_t {
    req_test: Some(test),
    req_test_any: Some(test_any),
    req_test_all: Some(test_all),
    req_test_some: Some(test_some),
    req_wait: Some(wait),
    req_wait_any: Some(wait_any),
    req_wait_all: Some(wait_all),
    req_wait_some: Some(wait_some),
};

type Place = *mut *mut sys::ompi_request_t;
type Status = *mut sys::ompi_status_public_t;

/// Calls the former function, and says whose end its caller was told of. Without one, which cannot be, all has failed.
unsafe fn after(
    count: usize,
    requests: Place,
    former: impl FnOnce(&sys::ompi_request_fns_t) -> Option<c_int>,
) -> c_int {
    let code = FORMER.get().and_then(former).unwrap_or(sys::OPAL_ERROR);
    // SAFETY: the caller's array of so many requests.
    fence("the end of a wait", (), || unsafe { notify(count, requests) });
    code
}

/// # Safety
/// An array of so many requests of MPI's.
unsafe fn notify(count: usize, requests: Place) {
    let Some(pml) = pml() else { return };
    let Some(_state) = pml.enter() else { return };
    for index in 0..count {
        // SAFETY: this function's rule.
        let Some(mut request) = (unsafe { Request::from_raw(requests.add(index).read()) }) else { continue };
        // SAFETY: a live request of the PML's, which is entered.
        let request = unsafe { request.as_mut() };
        if request.is_to_notify && request.base().req_state == sys::OMPI_REQUEST_INACTIVE {
            request.is_to_notify = false;
            // SAFETY: as above.
            unsafe { watch::request(request, Event::Notify) };
        }
    }
}

unsafe extern "C" fn test(place: Place, completed: *mut c_int, status: Status) -> c_int {
    // SAFETY: MPI's arguments, handed on.
    unsafe { after(1, place, |former| Some((former.req_test?)(place, completed, status))) }
}

unsafe extern "C" fn test_any(
    count: usize,
    requests: Place,
    index: *mut c_int,
    completed: *mut c_int,
    status: Status,
) -> c_int {
    // SAFETY: as above.
    unsafe { after(count, requests, |former| Some((former.req_test_any?)(count, requests, index, completed, status))) }
}

unsafe extern "C" fn test_all(count: usize, requests: Place, completed: *mut c_int, statuses: Status) -> c_int {
    // SAFETY: as above.
    unsafe { after(count, requests, |former| Some((former.req_test_all?)(count, requests, completed, statuses))) }
}

unsafe extern "C" fn test_some(
    count: usize,
    requests: Place,
    outcount: *mut c_int,
    indices: *mut c_int,
    statuses: Status,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        after(count, requests, |former| Some((former.req_test_some?)(count, requests, outcount, indices, statuses)))
    }
}

unsafe extern "C" fn wait(place: Place, status: Status) -> c_int {
    // SAFETY: as above.
    unsafe { after(1, place, |former| Some((former.req_wait?)(place, status))) }
}

unsafe extern "C" fn wait_any(count: usize, requests: Place, index: *mut c_int, status: Status) -> c_int {
    // SAFETY: as above.
    unsafe { after(count, requests, |former| Some((former.req_wait_any?)(count, requests, index, status))) }
}

unsafe extern "C" fn wait_all(count: usize, requests: Place, statuses: Status) -> c_int {
    // SAFETY: as above.
    unsafe { after(count, requests, |former| Some((former.req_wait_all?)(count, requests, statuses))) }
}

unsafe extern "C" fn wait_some(
    count: usize,
    requests: Place,
    outcount: *mut c_int,
    indices: *mut c_int,
    statuses: Status,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        after(count, requests, |former| Some((former.req_wait_some?)(count, requests, outcount, indices, statuses)))
    }
}
