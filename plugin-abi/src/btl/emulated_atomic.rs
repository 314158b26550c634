// SPDX-License-Identifier: MIT OR Apache-2.0
//! Atomics over an adapter that has none: the process that has the memory does them, asked by a message.
//!
//! osc/rdma of Open MPI 4.1 makes a window only over a BTL with atomics, and Debian's configuration leaves it no other
//! component; 5.0 sends such messages itself ([`ATOMICS_BY_MESSAGES`]). As the processor does them, they are atomic with
//! what osc/rdma does by the processor. The target has to be in MPI, as for any message.
//!
//! A request and its answer are messages of the BTL with a tag of ours (`atomic_message`). What waits for an answer has a
//! record of the module's ([`Operation`]), so that a flush waits for it; the message names it by a number, which is
//! looked up when it comes back. What cannot be done, or cannot be answered, ends the job with a reason, as it does with
//! an adapter's atomics: osc/rdma would take the result for what was there. Tools are told of them as of an adapter's, by
//! the host's clock. Called by [`super::atomic`]. Grade: pending. Threads: any. Tests:
//! `hw-tests/mpi/rma_atomics.c`, `rma_outside.c` and `hw-tests/tools/peruse_operations.c` on adapters without atomics.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::events::{self, HostTimestamp};
use engine::peer::PeerName;
use engine::transport::{EndpointId, Port};
use ibex_ffi::openmpi::process::Process;
use ibex_ffi::openmpi::release::{ATOMICS_BY_MESSAGES, Receiver, listen, received_by};
use ibex_ffi::openmpi::sys;

use super::atomic::{btl_atomic_cswap, btl_atomic_fop};
use super::atomic_message::{Message, OPERAND, SIZE, Word, done, performed};
use super::descriptor::pool::Descriptor;
use super::endpoint::endpoint;
use super::module::Module;
use super::operation::{CallbackArguments, Operation};
use super::send::btl_send;
use super::watch::{self, Kind, Watched};
use super::{descriptor, failures};
use crate::runtime::guard::fence;
use crate::runtime::{messages, modex};

/// The last of the tags that `btl.h` gives BTLs; Open MPI's own take the first.
const TAG: u8 = sys::MCA_BTL_TAG_BTL as u8 + 31;

/// A record that waits for its answer.
struct Waiting(NonNull<Operation>);

// SAFETY: a module's, which whoever takes it out of the table uses alone.
unsafe impl Send for Waiting {}

/// Those under way, by their numbers.
static WAITING: Mutex<BTreeMap<u64, Waiting>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(1);

fn waiting() -> MutexGuard<'static, BTreeMap<u64, Waiting>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives a module these atomics, where its adapter has none and Open MPI does not do without. Setup.
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
    // SAFETY: while MPI is initialised, before a message of this tag is sent.
    unsafe { listen(TAG, received_by::<Asked>()) };
}

/// Starts an atomic by a message; `name` is the function that Open MPI called.
///
/// # Safety
/// M1, M3; `address` is 8 bytes of a window of the peer, or of this process where it `is_own`.
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
            let watched = watched(&call, address, word, || Some(me));
            // SAFETY: M3; 8 bytes of this process. Told before this returns: osc/rdma of 4.1 crashes where 1 says so.
            unsafe {
                write_result(&call, done(address, word));
                call.call(sys::OPAL_SUCCESS);
            }
            if let Some((watched, moment)) = watched {
                watch::started(&watched, moment);
                watch::done(&watched, Ok(()), None);
            }
            return sys::OPAL_SUCCESS;
        }
        // SAFETY: M1.
        let module = unsafe { Module::from_raw(call.btl) };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let watched = watched(&call, address, word, || module.peer_name(endpoint(call.peer)));
        let Some(state) = module.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
        let operation = state.operations.take();
        // SAFETY: just taken, ours alone.
        unsafe {
            (&raw mut (*operation.as_ptr()).call).write(CallbackArguments { is_watched: watched.is_some(), ..call });
            if let Some((watched, _)) = watched {
                (&raw mut (*operation.as_ptr()).watched).write(MaybeUninit::new(watched));
            }
        }
        drop(state);
        waiting().insert(number, Waiting(operation));
        let code = send(module, call.peer, &Message { word, number, address, from: me, port: module.index });
        if code < 0 && waiting().remove(&number).is_some() {
            // SAFETY: this module's, and just taken out of the table.
            unsafe { give_back(module, operation) };
            return code;
        }
        if let Some((watched, moment)) = watched {
            watch::started(&watched, moment);
        }
        sys::OPAL_SUCCESS
    })
}

/// What tools are told of an atomic that begins now, if one listens.
fn watched(
    call: &CallbackArguments,
    remote: u64,
    word: Word,
    peer: impl FnOnce() -> Option<PeerName>,
) -> Option<(Watched, HostTimestamp)> {
    if !events::has_interest() {
        return None;
    }
    let kind = if matches!(word, Word::Swap { .. }) { Kind::CompareSwap } else { Kind::FetchAdd };
    let (operation, local) = (watch::operation_number(), call.local_address.addr() as u64);
    let (bytes, peer) = (OPERAND as u64, watch::rank(peer()));
    Some((Watched { kind, operation, local, remote, bytes, peer }, events::host_timestamp()))
}

/// # Safety
/// A record of this module's that was taken out of the table, so that nothing names it.
unsafe fn give_back(module: &Module, operation: NonNull<Operation>) {
    if let Some(state) = module.enter() {
        // SAFETY: the caller says that it was taken out of the table, so that nothing names it.
        unsafe { state.operations.give_back(operation.as_ptr()) };
    }
}

/// Sends it, or has it wait. Negative: Open MPI's code for why not.
fn send(module: &Module, peer: *mut sys::mca_btl_base_endpoint_t, message: &Message) -> c_int {
    match take(module) {
        Some(taken) => send_in(module, peer, taken, message),
        None => sys::OPAL_ERR_OUT_OF_RESOURCE,
    }
}

/// A descriptor for a message.
fn take(module: &Module) -> Option<NonNull<Descriptor>> {
    descriptor::take(module, SIZE, sys::MCA_BTL_DES_FLAGS_BTL_OWNERSHIP)
}

/// [`send`] in a descriptor that was taken for it.
fn send_in(
    module: &Module,
    peer: *mut sys::mca_btl_base_endpoint_t,
    taken: NonNull<Descriptor>,
    message: &Message,
) -> c_int {
    let bytes = message.bytes();
    // SAFETY: taken for this (M2), with room for so many bytes.
    unsafe { descriptor::start(taken).copy_from_nonoverlapping(bytes.as_ptr(), SIZE) };
    // SAFETY: M1, M2: filled, and this module's.
    let code = unsafe { btl_send(module.as_raw(), peer, taken.as_ptr().cast(), TAG) };
    if code < 0 {
        // SAFETY: M2: it was not taken.
        unsafe { descriptor::free(module, taken.as_ptr()) };
    }
    code
}

/// # Safety
/// The call is under way: its 8 bytes of result are ibex's.
unsafe fn write_result(call: &CallbackArguments, value: u64) {
    // SAFETY: the caller says that the call is under way: the 8 bytes are ibex's to write (M3).
    unsafe { call.local_address.cast::<u64>().write_unaligned(value) };
}

/// Messages of the tag.
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
            // SAFETY: Open MPI's segments, which last for the call, of which there is one; it is in a receive slot (R2).
            let (bytes, length) = unsafe { ((*segments).seg_addr.pval.cast::<[u8; SIZE]>(), (*segments).seg_len) };
            if length != SIZE as u64 {
                return;
            }
            // SAFETY: so many bytes; M1: only ibex sends with this tag, so that it is a module of ours that has it.
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

/// A peer asks for an atomic, and is answered, whatever comes of it.
fn answer(module: &Module, request: &Message) {
    let asker = module.enter().map(|mut state| state.port.peer(request.from, request.port));
    // What the answer takes is taken first: nothing may be missing once the memory has changed.
    let (Some(asker), Some(taken)) = (asker, take(module)) else {
        return unanswered(module, request, false);
    };
    let access = sys::MCA_BTL_REG_FLAG_ACCESS_ANY;
    // SAFETY: memory that can be registered is there, and as long as it is registered; that of a window is already, and
    // found in the cache. No work request names the registration.
    let word = unsafe {
        let memory = module.memory();
        performed(request, |target| memory.register(target, OPERAND, access), |held| _ = memory.put_back(held))
    };
    if send_in(module, module.pointer(asker), taken, &Message { word, ..*request }) < 0 {
        unanswered(module, request, word != Word::NotDone);
    }
}

/// A peer cannot be answered, and would wait for ever.
#[cold]
fn unanswered(module: &Module, request: &Message, is_done: bool) {
    let place = describe(module, |port| port.peer(request.from, request.port));
    failures::end_job(
        module,
        Some(request.from),
        &messages::atomic_unanswered(&place, request.address, OPERAND, is_done),
    );
}

/// The target of an atomic operation answers that it was not done.
#[cold]
fn refused(number: u64, address: u64) {
    let Some(Waiting(operation)) = waiting().remove(&number) else { return };
    // SAFETY: taken out of the table, so ours alone.
    let call = unsafe { (*operation.as_ptr()).call };
    // SAFETY: M1: its module, which the answer need not have come by.
    let module = unsafe { Module::from_raw(call.btl) };
    let target = endpoint(call.peer);
    let place = describe(module, |_| target);
    failures::end_job(module, module.peer_name(target), &messages::atomic_refused(&place, address, OPERAND));
}

/// An endpoint in words.
fn describe(module: &Module, of: impl FnOnce(&mut Port) -> EndpointId) -> String {
    module.enter().map_or_else(String::new, |mut state| {
        let endpoint = of(&mut state.port);
        state.port.describe(endpoint)
    })
}

/// The answer to a request of this process has come.
fn answered(number: u64, value: u64) {
    let Some(Waiting(operation)) = waiting().remove(&number) else { return };
    // SAFETY: taken out of the table, so ours alone.
    let &Operation { call, watched, .. } = unsafe { operation.as_ref() };
    // SAFETY: under way until now; told once.
    unsafe {
        write_result(&call, value);
        call.call(sys::OPAL_SUCCESS);
    }
    if call.is_watched {
        // SAFETY: `is_watched` says that it was written.
        watch::done(unsafe { watched.assume_init_ref() }, Ok(()), None);
    }
    // SAFETY: taken out of the table, and Open MPI was told. M1: its module's, which the answer need not have come by.
    unsafe { give_back(Module::from_raw(call.btl), operation) };
}
