// SPDX-License-Identifier: MIT OR Apache-2.0
//! `btl_atomic_fop` and `btl_atomic_cswap`: the adapter's 64-bit fetch-and-add and compare-and-swap or, with
//! `BY_MESSAGES`, those of the target process (`emulated_atomic`).
//!
//! All other operations, 32-bit and floating-point operands and unaligned addresses return "not supported". Then
//! osc/rdma uses another method, whereas after any other error it retries for ever (`osc_rdma_accumulate.c`,
//! `ompi_osc_rdma_gacc_amo`).
//!
//! osc/rdma gives no endpoint and no registration for memory that the process can access itself: its own and, on one
//! node, that of `MPI_Win_allocate`'s windows. But other processes access the same memory by the adapter, whose atomics
//! are not atomic for the processor. So the adapter executes these, too: the memory is registered (a hit in the cache),
//! and the target is the process itself. Called by Open MPI. Grade: hot; pending for own memory. Threads: any. Tests:
//! `hw-tests/mpi/rma_atomics.c`.

use std::ffi::{c_int, c_void};

use ibex_ffi::openmpi::process::Process;
use ibex_ffi::openmpi::sys;

use super::atomic_message::{OPERAND, Word};
use super::emulated_atomic;
use super::operation::CallbackArguments;
use super::rdma::RdmaRequest;
use crate::btl::module::Module;
use crate::btl::watch::Kind;
use crate::runtime::guard::fence;
use crate::runtime::memory::Registered;
use crate::runtime::modex;

type Opaque = sys::mca_btl_base_registration_handle_t;

fn is_of_8_bytes(flags: c_int, remote_address: u64) -> bool {
    let narrow = (sys::MCA_BTL_ATOMIC_FLAG_32BIT | sys::MCA_BTL_ATOMIC_FLAG_FLOAT) as c_int;
    flags & narrow == 0 && remote_address.is_multiple_of(OPERAND as u64)
}

fn supported(module: &Module, flags: c_int, remote_address: u64, local_handle: *const Opaque) -> bool {
    !local_handle.is_null() && module.has_atomics && is_of_8_bytes(flags, remote_address)
}

/// `btl_atomic_fop`: adds to remote memory; `local_address` gets the former value.
#[allow(clippy::too_many_arguments, reason = "the signature is btl.h's")]
pub(crate) unsafe extern "C" fn btl_atomic_fop<const BY_MESSAGES: bool>(
    btl: *mut sys::mca_btl_base_module_t,
    peer: *mut sys::mca_btl_base_endpoint_t,
    local_address: *mut c_void,
    remote_address: u64,
    local_handle: *mut sys::mca_btl_base_registration_handle_t,
    remote_handle: *mut sys::mca_btl_base_registration_handle_t,
    op: sys::mca_btl_base_atomic_op_t,
    operand: u64,
    flags: c_int,
    _order: c_int,
    callback: sys::mca_btl_base_rdma_completion_fn_t,
    context: *mut c_void,
    data: *mut c_void,
) -> c_int {
    let call = CallbackArguments { btl, peer, callback, context, data, local_address, local_handle, is_watched: false };
    if BY_MESSAGES {
        if op != sys::MCA_BTL_ATOMIC_ADD || !is_of_8_bytes(flags, remote_address) {
            return sys::OPAL_ERR_NOT_SUPPORTED;
        }
        let (is_own, add) = (remote_handle.is_null(), Word::Add(operand));
        // SAFETY: M1, M3: without a remote handle the target is this process.
        return unsafe { emulated_atomic::start("btl_atomic_fop", call, remote_address, is_own, add) };
    }
    let add = RdmaRequest { call, remote_address, remote_handle, size: OPERAND };
    let fits =
        |module: &Module| op == sys::MCA_BTL_ATOMIC_ADD && supported(module, flags, remote_address, local_handle);
    // SAFETY: M1, M3: the handles cover the 8 bytes of the result and of the target (btl.h).
    let start = |add: RdmaRequest| unsafe {
        add.start("btl_atomic_fop", Kind::FetchAdd, sys::OPAL_ERR_NOT_SUPPORTED, fits, |port, ends, token| {
            port.fetch_add(ends.to, ends.local, ends.remote, operand, token)
        })
    };
    // SAFETY: M1, M3: without a remote handle the operation is on 8 bytes of this process.
    if remote_handle.is_null() { unsafe { start_on_own_memory(add, start) } } else { start(add) }
}

/// `btl_atomic_cswap`: sets remote memory to `value` if it is `compare`; `local_address` gets the former value.
#[allow(clippy::too_many_arguments, reason = "the signature is btl.h's")]
pub(crate) unsafe extern "C" fn btl_atomic_cswap<const BY_MESSAGES: bool>(
    btl: *mut sys::mca_btl_base_module_t,
    peer: *mut sys::mca_btl_base_endpoint_t,
    local_address: *mut c_void,
    remote_address: u64,
    local_handle: *mut sys::mca_btl_base_registration_handle_t,
    remote_handle: *mut sys::mca_btl_base_registration_handle_t,
    compare: u64,
    value: u64,
    flags: c_int,
    _order: c_int,
    callback: sys::mca_btl_base_rdma_completion_fn_t,
    context: *mut c_void,
    data: *mut c_void,
) -> c_int {
    let call = CallbackArguments { btl, peer, callback, context, data, local_address, local_handle, is_watched: false };
    if BY_MESSAGES {
        if !is_of_8_bytes(flags, remote_address) {
            return sys::OPAL_ERR_NOT_SUPPORTED;
        }
        let (is_own, swap) = (remote_handle.is_null(), Word::Swap { compare, value });
        // SAFETY: M1, M3: without a remote handle the target is this process.
        return unsafe { emulated_atomic::start("btl_atomic_cswap", call, remote_address, is_own, swap) };
    }
    let swap = RdmaRequest { call, remote_address, remote_handle, size: OPERAND };
    let fits = |module: &Module| supported(module, flags, remote_address, local_handle);
    // SAFETY: M1, M3: the handles cover the 8 bytes of the result and of the target (btl.h).
    let start = |swap: RdmaRequest| unsafe {
        swap.start("btl_atomic_cswap", Kind::CompareSwap, sys::OPAL_ERR_NOT_SUPPORTED, fits, |port, ends, token| {
            port.compare_swap(ends.to, ends.local, ends.remote, (compare, value), token)
        })
    };
    // SAFETY: M1, M3: without a remote handle the operation is on 8 bytes of this process.
    if remote_handle.is_null() { unsafe { start_on_own_memory(swap, start) } } else { start(swap) }
}

struct Finish {
    registered: Registered,
    function: sys::mca_btl_base_rdma_completion_fn_t,
    context: *mut c_void,
}

/// Starts an operation for which Open MPI gave no remote handle. `OPAL_ERR_OUT_OF_RESOURCE`: the memory cannot be
/// registered now, and osc/rdma retries; after any other code it would use the processor beside the adapter.
///
/// # Safety
/// M1, M3. `request` is for `size` bytes of this process at its remote address.
#[cold]
unsafe fn start_on_own_memory(mut request: RdmaRequest, start: impl FnOnce(RdmaRequest) -> c_int) -> c_int {
    fence("an atomic on own memory", sys::OPAL_ERROR, || {
        // SAFETY: M1.
        let module = unsafe { Module::from_raw(request.call.btl) };
        let target = std::ptr::with_exposed_provenance_mut::<c_void>(request.remote_address as usize);
        let access = sys::MCA_BTL_REG_FLAG_ACCESS_ANY;
        // SAFETY: M3: memory of a window, which lives until its operations are complete.
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
            // SAFETY: made above; no callback has it, as nothing was started; R3: no work request names the memory.
            unsafe { module.memory().put_back(Box::from_raw(finish).registered) };
        }
        code
    })
}

fn own_endpoint(module: &Module) -> Option<*mut sys::mca_btl_base_endpoint_t> {
    let me = modex::from_openmpi(Process::me()?.name());
    let id = module.enter()?.port.peer(me, module.index);
    Some(module.pointer(id))
}

/// Completes an operation on own memory (`btl.h`, `mca_btl_base_rdma_completion_fn_t`).
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
        // SAFETY: `start_on_own_memory` made it for this operation, which completes once.
        let finish = unsafe { Box::from_raw(context.cast::<Finish>()) };
        // SAFETY: M1, R3: the operation is complete, so no work request names the registration.
        unsafe { Module::from_raw(btl).memory().put_back(finish.registered) };
        if let Some(function) = finish.function {
            // SAFETY: the callback with the arguments that Open MPI gave.
            unsafe { function(btl, peer, local_address, local_handle, finish.context, data, status) };
        }
    });
}
