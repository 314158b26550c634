// SPDX-License-Identifier: MIT OR Apache-2.0
//! Atomics over an adapter that has none: the target process executes them with its processor, on request by message.
//!
//! osc/rdma of Open MPI 4.1 makes a window only over a BTL with atomics, and Debian's configuration has no other
//! component; 5.0 sends such messages itself ([`ATOMICS_BY_MESSAGES`]). The processor executes them, so they are atomic
//! with osc/rdma's accesses by the processor. The target has to call MPI to make progress, as for any message.
//!
//! A request and its answer are messages of the BTL with a tag of ibex (`atomic_message`). Until the answer arrives,
//! the operation has a record of the module ([`Operation`]), so that a flush waits for it; the message names it by a
//! number. An atomic that cannot be executed or answered ends the job with a reason, because osc/rdma would take the
//! result for the former value. Called by [`super::atomic`]. Grade: pending. Threads: any. Tests:
//! `hw-tests/mpi/rma_atomics.c`, `rma_outside.c` and `hw-tests/tools/peruse_operations.c` on adapters without atomics.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::events::{self, HostTimestamp};
use engine::peer::PeerName;
use engine::transport::EndpointId;
use ibex_ffi::openmpi::process::Process;
use ibex_ffi::openmpi::release::{ATOMICS_BY_MESSAGES, Receiver, listen, received_by};
use ibex_ffi::openmpi::sys;
use parking_lot::Mutex;

use super::atomic::{btl_atomic_cswap, btl_atomic_fop};
use super::atomic_message::{Message, OPERAND, SIZE, Word, done, served};
use super::operation::{CallbackArguments, Operation};
use crate::btl::completion::{give_back, operation_done};
use crate::btl::endpoint::endpoint;
use crate::btl::failures;
use crate::btl::module::Module;
use crate::btl::two_sided::descriptor::{self, pool::Descriptor};
use crate::btl::two_sided::send::btl_send;
use crate::btl::watch::{self, Kind, Watched};
use crate::runtime::device::Port;
use crate::runtime::guard::fence;
use crate::runtime::{messages, modex};

/// The last of the tags that `btl.h` gives to BTLs; Open MPI's own BTLs use the first ones.
const TAG: u8 = sys::MCA_BTL_TAG_BTL as u8 + 31;

struct Waiting(NonNull<Operation>);

// SAFETY: only the thread that takes a module's record out of the table uses it.
unsafe impl Send for Waiting {}

static WAITING: Mutex<BTreeMap<u64, Waiting>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Gives a module these atomics if its adapter has none and Open MPI needs them. Setup.
pub(crate) fn stand_in(base: &mut sys::mca_btl_base_module_t) {
    if ATOMICS_BY_MESSAGES {
        base.btl_flags &= !sys::MCA_BTL_FLAGS_ATOMIC_FOPS;
        base.btl_atomic_flags = 0;
        base.btl_atomic_fop = None;
        base.btl_atomic_cswap = None;
        return;
    }
    base.btl_atomic_flags |= sys::MCA_BTL_ATOMIC_SUPPORTS_GLOB;
    base.btl_atomic_fop = Some(btl_atomic_fop::<true>);
    base.btl_atomic_cswap = Some(btl_atomic_cswap::<true>);
    // SAFETY: MPI is initialised, and no message with this tag has been sent.
    unsafe { listen(TAG, received_by::<Asked>()) };
}

/// Starts an atomic by message; `name` is the function that Open MPI called.
///
/// # Safety
/// M1, M3. `address` is that of 8 bytes in a window of the peer or, if `is_own`, of this process.
pub(super) unsafe fn start(
    name: &'static str,
    call: CallbackArguments,
    address: u64,
    is_own: bool,
    word: Word,
) -> c_int {
    fence(name, sys::OPAL_ERROR, || {
        let Some(me) = Process::me() else { return sys::OPAL_ERR_NOT_AVAILABLE };
        let me = modex::from_openmpi(me.name());
        if is_own {
            let watched = watched(&call, address, word, || (Some(me), u32::MAX));
            if let Some((watched, moment)) = &watched {
                watch::started(watched, *moment);
            }
            // SAFETY: M3: 8 bytes of this process. The callback runs before this returns, because osc/rdma of 4.1
            // crashes if this returns 1.
            unsafe {
                write_result(&call, done(address, word));
                call.call(sys::OPAL_SUCCESS);
            }
            if let Some((watched, _)) = watched {
                watch::done(&watched, Ok(()), None);
            }
            return sys::OPAL_SUCCESS;
        }
        // SAFETY: M1.
        let module = unsafe { Module::from_raw(call.btl) };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let watched = watched(&call, address, word, || (module.peer_name(endpoint(call.peer)), module.index.into()));
        let Some(state) = module.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
        let operation = state.operations.take();
        // SAFETY: the record has just been taken, so nobody else uses it.
        unsafe {
            (&raw mut (*operation.as_ptr()).call).write(CallbackArguments { is_watched: watched.is_some(), ..call });
            if let Some((watched, _)) = watched {
                (&raw mut (*operation.as_ptr()).watched).write(MaybeUninit::new(watched));
            }
        }
        drop(state);
        WAITING.lock().insert(number, Waiting(operation));
        let message = Message { word, number, address, from: me, port: module.index };
        // SAFETY: M1: Open MPI's endpoint of this module; M2: just taken.
        let sent = take(module).map(|taken| unsafe { send_in(module, call.peer, taken, &message) });
        let code = sent.unwrap_or(sys::OPAL_ERR_OUT_OF_RESOURCE);
        if code < 0 && WAITING.lock().remove(&number).is_some() {
            // SAFETY: the record is this module's, and has just been taken out of the table.
            unsafe { give_back(module, operation.as_ptr()) };
            return code;
        }
        if let Some((watched, moment)) = watched {
            watch::started(&watched, moment);
        }
        sys::OPAL_SUCCESS
    })
}

fn watched(
    call: &CallbackArguments,
    remote: u64,
    word: Word,
    place: impl FnOnce() -> (Option<PeerName>, u32),
) -> Option<(Watched, HostTimestamp)> {
    if !events::has_interest() {
        return None;
    }
    let kind = if matches!(word, Word::Swap { .. }) { Kind::CompareSwap } else { Kind::FetchAdd };
    let (operation, local) = (watch::operation_number(), call.local_address.addr() as u64);
    let (bytes, (peer, port)) = (OPERAND as u64, place());
    let peer = watch::rank(peer);
    Some((Watched { kind, operation, local, remote, bytes, peer, port }, events::host_timestamp()))
}

fn take(module: &Module) -> Option<NonNull<Descriptor>> {
    descriptor::take(module, SIZE, sys::MCA_BTL_DES_FLAGS_BTL_OWNERSHIP)
}

/// # Safety
/// M1: `peer` is an endpoint of the module; M2: [`take`] took the descriptor from it, and it has not been sent.
unsafe fn send_in(
    module: &Module,
    peer: *mut sys::mca_btl_base_endpoint_t,
    taken: NonNull<Descriptor>,
    message: &Message,
) -> c_int {
    let bytes = message.bytes();
    // SAFETY: M2: `take` has returned it, so it has room for `SIZE` bytes.
    unsafe { descriptor::start(taken).copy_from_nonoverlapping(bytes.as_ptr(), SIZE) };
    // SAFETY: M1, M2: it is filled, and belongs to this module.
    let code = unsafe { btl_send(module.as_raw(), peer, taken.as_ptr().cast(), TAG) };
    if code < 0 {
        // SAFETY: M2: `btl_send` has refused it.
        unsafe { descriptor::free(module, taken.as_ptr()) };
    }
    code
}

/// # Safety
/// The call is not complete, so ibex may write its 8 bytes of result.
unsafe fn write_result(call: &CallbackArguments, value: u64) {
    // SAFETY: M3: the caller says that the call is not complete, so ibex may write the 8 bytes.
    unsafe { call.local_address.cast::<u64>().write_unaligned(value) };
}

struct Asked;

impl Receiver for Asked {
    unsafe fn received(
        btl: *mut sys::mca_btl_base_module_t,
        _tag: u8,
        segments: *const sys::mca_btl_base_segment_t,
        count: usize,
    ) {
        fence("an atomic by message", (), || {
            if count != 1 {
                return;
            }
            // SAFETY: Open MPI passes one segment, valid during the call; R2: its receive slot is not posted.
            let (bytes, length) = unsafe { ((*segments).seg_addr.pval.cast::<[u8; SIZE]>(), (*segments).seg_len) };
            if length != SIZE as u64 {
                return;
            }
            // SAFETY: the segment has `SIZE` bytes; M1: only ibex sends with this tag, so the module is one of ibex.
            let (message, module) = unsafe { (Message::read(bytes.read_unaligned()), Module::from_raw(btl)) };
            match message {
                Some(Message { word: Word::Was(value), number, .. }) => answered(number, value),
                Some(Message { word: Word::NotDone, number, address, .. }) => refused(number, address),
                Some(request) => answer(module, &request),
                None => {}
            }
        });
    }
}

fn answer(module: &Module, request: &Message) {
    let asker = module.enter().map(|mut state| state.port.peer(request.from, request.port));
    // Takes the descriptor of the answer first, so that it can be sent once the memory has changed.
    let way = asker.zip(take(module));
    let (memory, access) = (module.memory(), sys::MCA_BTL_REG_FLAG_ACCESS_ANY);
    // SAFETY: M1: the asker's endpoint of this module; M2: taken above.
    let send = |(asker, taken), answer: &Message| unsafe { send_in(module, module.pointer(asker), taken, answer) >= 0 };
    // SAFETY: memory that can be registered is mapped, as long as it is registered; a window is registered already, and
    // found in the cache. R3: no work request names the registration.
    let outcome = unsafe {
        served(request, way, |target| memory.register(target, OPERAND, access), |held| _ = memory.put_back(held), send)
    };
    if let Err(is_done) = outcome {
        unanswered(module, request, is_done);
    }
}

/// Ends the job, because a peer cannot be answered and would wait for ever.
#[cold]
fn unanswered(module: &Module, request: &Message, is_done: bool) {
    let place = describe(module, |port| port.peer(request.from, request.port));
    failures::end_job(
        module,
        Some(request.from),
        &messages::atomic_unanswered(&place, request.address, OPERAND, is_done),
    );
}

/// Ends the job, because the target of an atomic answers that it was not executed.
#[cold]
fn refused(number: u64, address: u64) {
    let Some(Waiting(operation)) = WAITING.lock().remove(&number) else { return };
    // SAFETY: the record was taken out of the table, so nobody else uses it.
    let call = unsafe { (*operation.as_ptr()).call };
    // SAFETY: M1: its module, which may be another one than that of the answer.
    let module = unsafe { Module::from_raw(call.btl) };
    let target = endpoint(call.peer);
    let place = describe(module, |_| target);
    failures::end_job(module, module.peer_name(target), &messages::atomic_refused(&place, address, OPERAND));
}

fn describe(module: &Module, of: impl FnOnce(&mut Port) -> EndpointId) -> String {
    module.enter().map_or_else(String::new, |mut state| {
        let endpoint = of(&mut state.port);
        state.port.describe(endpoint)
    })
}

fn answered(number: u64, value: u64) {
    let Some(Waiting(operation)) = WAITING.lock().remove(&number) else { return };
    // SAFETY: the record was taken out of the table, so nobody else uses it.
    let call = unsafe { (*operation.as_ptr()).call };
    // SAFETY: M3: the operation was not complete until now. M1: its module, perhaps not that of the answer.
    unsafe {
        write_result(&call, value);
        operation_done(Module::from_raw(call.btl), operation.as_ptr(), endpoint(call.peer), Ok(()), None);
    }
}
