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
use std::ptr::{NonNull, with_exposed_provenance_mut};
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
use super::rdma::RdmaRequest;
use crate::btl::completion::{give_back, operation_done};
use crate::btl::endpoint::endpoint;
use crate::btl::failures;
use crate::btl::module::Module;
use crate::btl::two_sided::descriptor::{self, pool::Descriptor};
use crate::btl::two_sided::send::btl_send;
use crate::btl::watch::{self, Kind, Watched};
use crate::runtime::device::Port;
use crate::runtime::entry::entry13;
use crate::runtime::free_list::Owned;
use crate::runtime::guard::fence;
use crate::runtime::{messages, modex};

/// The last of the tags that `btl.h` gives to BTLs; Open MPI's own BTLs use the first ones.
const TAG: u8 = sys::MCA_BTL_TAG_BTL as u8 + 31;

/// Operations that wait for an answer, by number.
static WAITING: Mutex<BTreeMap<u64, Owned<Operation>>> = Mutex::new(BTreeMap::new());
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
    base.btl_atomic_fop = Some(entry13(btl_atomic_fop::<true>));
    base.btl_atomic_cswap = Some(entry13(btl_atomic_cswap::<true>));
    // SAFETY: MPI is initialised, and no message with this tag has been sent.
    unsafe { listen(TAG, received_by::<Asked>()) };
}

/// Starts an atomic by message, or executes it on memory of this process; `name` is the function that Open MPI called.
pub(super) fn start(name: &'static str, request: &RdmaRequest<'_>, word: Word) -> c_int {
    fence(name, sys::OPAL_ERROR, || {
        let Some(me) = Process::me() else { return sys::OPAL_ERR_NOT_AVAILABLE };
        let me = modex::from_openmpi(me.name());
        let (call, address) = (request.call, request.remote_address);
        if request.remote_handle.is_none() {
            let watched = watched(&call, address, word, || (Some(me), u32::MAX));
            if let Some((watched, moment)) = &watched {
                watch::started(watched, *moment);
            }
            // SAFETY: M3: 8 bytes of this process. The callback runs before this returns, because osc/rdma of 4.1
            // crashes if this returns 1.
            unsafe {
                write_result(&call, done(AtomicU64::from_ptr(with_exposed_provenance_mut(address as usize)), word));
                call.call(sys::OPAL_SUCCESS);
            }
            if let Some((watched, _)) = watched {
                watch::done(&watched, Ok(()), None);
            }
            return sys::OPAL_SUCCESS;
        }
        let module = call.module();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let watched = watched(&call, address, word, || (module.peer_name(endpoint(call.peer)), module.index.into()));
        let Some(state) = module.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
        let mut operation = state.operations.take();
        (operation.call, operation.watched) = (call, watched.map(|(watched, _)| watched));
        drop(state);
        WAITING.lock().insert(number, operation);
        let message = Message { word, number, address, from: me, port: module.index };
        let sent = Envelope::take(module).map(|envelope| envelope.send(call.peer, &message));
        let code = sent.unwrap_or(sys::OPAL_ERR_OUT_OF_RESOURCE);
        if code < 0
            && let Some(operation) = WAITING.lock().remove(&number)
        {
            give_back(operation);
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

/// A descriptor of a module with room for a message, which has not been sent.
struct Envelope<'call> {
    module: &'call Module,
    descriptor: Owned<Descriptor>,
}

impl<'call> Envelope<'call> {
    fn take(module: &'call Module) -> Option<Self> {
        let descriptor = descriptor::take(module, SIZE, sys::MCA_BTL_DES_FLAGS_BTL_OWNERSHIP)?;
        Some(Envelope { module, descriptor })
    }

    fn send(self, peer: *mut sys::mca_btl_base_endpoint_t, message: &Message) -> c_int {
        let Envelope { module, descriptor } = self;
        let (bytes, address) = (message.bytes(), descriptor.as_ptr());
        // SAFETY: R2: `take` has made room for `SIZE` bytes, which no adapter has.
        unsafe { descriptor.start().copy_from_nonoverlapping(bytes.as_ptr(), SIZE) };
        let code = btl_send(module, peer, descriptor, TAG);
        if code < 0
            && let Some(refused) = NonNull::new(address)
        {
            // SAFETY: M2: it is this module's, and `btl_send` has refused it, so nobody else uses it.
            unsafe { descriptor::free(module, Owned::new(refused)) };
        }
        code
    }
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
    let way = asker.zip(Envelope::take(module));
    let (memory, access) = (module.memory(), sys::MCA_BTL_REG_FLAG_ACCESS_ANY);
    let register = |address: u64| {
        let target = with_exposed_provenance_mut::<u64>(address as usize);
        // SAFETY: memory that can be registered is mapped, as long as it is registered; a window is registered already,
        // and found in the cache.
        let held = unsafe { memory.register(target.cast(), OPERAND, access) }?;
        // SAFETY: it is registered for any access until `put_back`, and `served` has checked its alignment.
        Some((unsafe { AtomicU64::from_ptr(target) }, held))
    };
    // SAFETY: R3: no work request names the registration.
    let put_back = |held| _ = unsafe { memory.put_back(held) };
    let send = |(asker, envelope): (_, Envelope), answer: &Message| envelope.send(module.pointer(asker), answer) >= 0;
    let outcome = served(request, way, register, put_back, send);
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
    let Some(operation) = WAITING.lock().remove(&number) else { return };
    // Its module may be another one than that of the answer.
    let call = operation.call;
    let module = call.module();
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
    let Some(operation) = WAITING.lock().remove(&number) else { return };
    // SAFETY: M3: the operation was not complete until now, so its callback has not run.
    unsafe { write_result(&operation.call, value) };
    let call = operation.call;
    operation_done(call.module(), operation, endpoint(call.peer), Ok(()), None);
}
