// SPDX-License-Identifier: MIT OR Apache-2.0
//! Atomics on this process' own memory, by the adapter.
//!
//! osc/rdma names no endpoint and no registration for memory that the process reaches itself: its own, and on one node
//! that of `MPI_Win_allocate`'s windows. Other processes reach the same memory by the adapter, whose atomics are none
//! for the processor. So it does these too: the memory is registered (a hit in the cache, as the window is registered
//! already), and the operation goes to the process itself. Grade: pending. Threads: any. Tests:
//! `hw-tests/mpi/rma_atomics.c`.

use std::ffi::{c_int, c_void};

use ibex_ffi::openmpi::process::Process;
use ibex_ffi::openmpi::sys;

use super::module::Module;
use super::rdma::RdmaRequest;
use crate::runtime::guard::fence;
use crate::runtime::memory::Registered;
use crate::runtime::modex;

/// What is to be done when such an operation is done.
struct Finish {
    registered: Registered,
    function: sys::mca_btl_base_rdma_completion_fn_t,
    context: *mut c_void,
}

/// Starts with `start` an operation for which Open MPI gave no remote handle. `OPAL_ERR_OUT_OF_RESOURCE` where the
/// memory cannot be registered now: osc/rdma tries again, where any other code would make it use the processor beside
/// the adapter.
///
/// # Safety
/// M1, M3; `request` is one of `size` bytes of this process at its remote address.
#[cold]
pub(crate) unsafe fn start(mut request: RdmaRequest, start: impl FnOnce(RdmaRequest) -> c_int) -> c_int {
    fence("an atomic on own memory", sys::OPAL_ERROR, || {
        // SAFETY: M1.
        let module = unsafe { Module::from_raw(request.call.btl) };
        let target = std::ptr::with_exposed_provenance_mut::<c_void>(request.remote_address as usize);
        let access = sys::MCA_BTL_REG_FLAG_ACCESS_ANY;
        // SAFETY: M3: memory of a window, which lives until its operations are done.
        let Some(registered) = (unsafe { module.memory().register(target, request.size, access) }) else {
            return sys::OPAL_ERR_OUT_OF_RESOURCE;
        };
        let (function, context) = (request.call.callback, request.call.context);
        let finish = Box::into_raw(Box::new(Finish { registered, function, context }));
        request.remote_handle = registered.handle().as_ptr().cast();
        request.call.callback = Some(finished);
        request.call.context = finish.cast();
        let code = match own_endpoint(module) {
            Some(peer) => {
                request.call.peer = peer;
                start(request)
            }
            None => sys::OPAL_ERR_OUT_OF_RESOURCE,
        };
        if code != sys::OPAL_SUCCESS {
            // SAFETY: made above; what was not started calls nobody back, and no work request names the registration.
            unsafe { module.memory().put_back(Box::from_raw(finish).registered) };
        }
        code
    })
}

/// The endpoint by which this process reaches itself.
fn own_endpoint(module: &Module) -> Option<*mut sys::mca_btl_base_endpoint_t> {
    let me = modex::from_openmpi(Process::me()?.name());
    let id = module.enter()?.port.peer(me, module.index);
    Some(module.pointer(id))
}

/// Such an operation is done (`btl.h`, `mca_btl_base_rdma_completion_fn_t`).
unsafe extern "C" fn finished(
    btl: *mut sys::mca_btl_base_module_t,
    peer: *mut sys::mca_btl_base_endpoint_t,
    local_address: *mut c_void,
    local_handle: *mut sys::mca_btl_base_registration_handle_t,
    context: *mut c_void,
    data: *mut c_void,
    status: c_int,
) {
    fence("the end of an atomic on own memory", (), || {
        // SAFETY: made by `start` for this operation, which is done once.
        let finish = unsafe { Box::from_raw(context.cast::<Finish>()) };
        // SAFETY: M1; no work request names the registration any more.
        unsafe { Module::from_raw(btl).memory().put_back(finish.registered) };
        if let Some(function) = finish.function {
            // SAFETY: the callback and arguments that Open MPI gave.
            unsafe { function(btl, peer, local_address, local_handle, finish.context, data, status) };
        }
    });
}
