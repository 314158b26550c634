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

use engine::transport::{Refused, Token};
use ibex_ffi::openmpi::process::Process;
use ibex_ffi::openmpi::sys;

use super::atomic_message::{OPERAND, Word};
use super::emulated_atomic;
use super::operation::CallbackArguments;
use super::rdma::{Ends, RdmaRequest};
use crate::btl::module::Module;
use crate::btl::watch::Kind;
use crate::runtime::device::Port;
use crate::runtime::entry::entry7;
use crate::runtime::guard::fence;
use crate::runtime::memory::{Registered, RegistrationHandle};
use crate::runtime::modex;

fn is_of_8_bytes(flags: c_int, remote_address: u64) -> bool {
    let narrow = (sys::MCA_BTL_ATOMIC_FLAG_32BIT | sys::MCA_BTL_ATOMIC_FLAG_FLOAT) as c_int;
    flags & narrow == 0 && remote_address.is_multiple_of(OPERAND as u64)
}

/// `btl_atomic_fop`: adds to remote memory; `local_address` gets the former value.
///
/// # Safety
/// As for [`RdmaRequest::new`], with 8 bytes.
#[allow(clippy::too_many_arguments, reason = "the signature is btl.h's")]
pub(crate) unsafe extern "C" fn btl_atomic_fop<const BY_MESSAGES: bool>(
    module: &Module,
    peer: *mut sys::mca_btl_base_endpoint_t,
    local_address: *mut c_void,
    remote_address: u64,
    local_handle: Option<&RegistrationHandle>,
    remote_handle: Option<&RegistrationHandle>,
    op: sys::mca_btl_base_atomic_op_t,
    operand: u64,
    flags: c_int,
    _order: c_int,
    callback: sys::mca_btl_base_rdma_completion_fn_t,
    context: *mut c_void,
    data: *mut c_void,
) -> c_int {
    let (local, remote) = ((local_address, local_handle), (remote_address, remote_handle));
    // SAFETY: M3: the handles cover the 8 bytes of the result and of the target (btl.h).
    let add = unsafe { RdmaRequest::new((module, peer), local, remote, OPERAND, (callback, context, data)) };
    if op != sys::MCA_BTL_ATOMIC_ADD || !is_of_8_bytes(flags, remote_address) {
        return sys::OPAL_ERR_NOT_SUPPORTED;
    }
    if BY_MESSAGES {
        return emulated_atomic::start("btl_atomic_fop", &add, Word::Add(operand));
    }
    start("btl_atomic_fop", Kind::FetchAdd, add, move |port, ends, token| {
        port.fetch_add(ends.to, ends.local, ends.remote, operand, token)
    })
}

/// `btl_atomic_cswap`: sets remote memory to `value` if it is `compare`; `local_address` gets the former value.
///
/// # Safety
/// As for [`RdmaRequest::new`], with 8 bytes.
#[allow(clippy::too_many_arguments, reason = "the signature is btl.h's")]
pub(crate) unsafe extern "C" fn btl_atomic_cswap<const BY_MESSAGES: bool>(
    module: &Module,
    peer: *mut sys::mca_btl_base_endpoint_t,
    local_address: *mut c_void,
    remote_address: u64,
    local_handle: Option<&RegistrationHandle>,
    remote_handle: Option<&RegistrationHandle>,
    compare: u64,
    value: u64,
    flags: c_int,
    _order: c_int,
    callback: sys::mca_btl_base_rdma_completion_fn_t,
    context: *mut c_void,
    data: *mut c_void,
) -> c_int {
    let (local, remote) = ((local_address, local_handle), (remote_address, remote_handle));
    // SAFETY: M3: the handles cover the 8 bytes of the result and of the target (btl.h).
    let swap = unsafe { RdmaRequest::new((module, peer), local, remote, OPERAND, (callback, context, data)) };
    if !is_of_8_bytes(flags, remote_address) {
        return sys::OPAL_ERR_NOT_SUPPORTED;
    }
    if BY_MESSAGES {
        return emulated_atomic::start("btl_atomic_cswap", &swap, Word::Swap { compare, value });
    }
    start("btl_atomic_cswap", Kind::CompareSwap, swap, move |port, ends, token| {
        port.compare_swap(ends.to, ends.local, ends.remote, (compare, value), token)
    })
}

/// Starts an operation of the adapter: [`RdmaRequest::start`].
#[inline]
fn start(
    name: &'static str,
    kind: Kind,
    request: RdmaRequest<'_>,
    post: impl FnOnce(&mut Port, Ends, Token) -> Result<(), Refused>,
) -> c_int {
    let has_result = !request.call.local_handle.is_null();
    let start = |request: RdmaRequest<'_>| {
        let fits = |module: &Module| has_result && module.has_atomics;
        request.start(name, kind, sys::OPAL_ERR_NOT_SUPPORTED, fits, post)
    };
    if request.remote_handle.is_none() { start_on_own_memory(request, start) } else { start(request) }
}

struct Finish {
    registered: Registered,
    call: CallbackArguments,
}

/// Starts an operation for which Open MPI gave no remote handle. `OPAL_ERR_OUT_OF_RESOURCE`: the memory cannot be
/// registered now, and osc/rdma retries; after any other code it would use the processor beside the adapter.
#[cold]
fn start_on_own_memory(request: RdmaRequest<'_>, start: impl FnOnce(RdmaRequest<'_>) -> c_int) -> c_int {
    fence("an atomic on own memory", sys::OPAL_ERROR, || {
        let module = request.call.module();
        let target = std::ptr::with_exposed_provenance_mut::<c_void>(request.remote_address as usize);
        let access = sys::MCA_BTL_REG_FLAG_ACCESS_ANY;
        // SAFETY: M3: memory of a window, which lives until its operations are complete.
        let Some(registered) = (unsafe { module.memory().register(target, OPERAND, access) }) else {
            return sys::OPAL_ERR_OUT_OF_RESOURCE;
        };
        let finish = Box::into_raw(Box::new(Finish { registered, call: request.call }));
        let mut request = request;
        request.remote_handle = Some(registered.keys());
        request.call.callback = Some(entry7(finished));
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
extern "C" fn finished(
    module: &Module,
    peer: *mut sys::mca_btl_base_endpoint_t,
    _local_address: *mut c_void,
    _local_handle: *mut sys::mca_btl_base_registration_handle_t,
    finish: Box<Finish>,
    _data: *mut c_void,
    status: c_int,
) {
    fence("the end of an atomic on own memory", (), || {
        // SAFETY: R3: the operation is complete, so no work request names the registration.
        unsafe { module.memory().put_back(finish.registered) };
        // SAFETY: the operation is complete, and this is its only callback.
        unsafe { CallbackArguments { peer, ..finish.call }.call(status) };
    });
}
