// SPDX-License-Identifier: MIT OR Apache-2.0
//! Atomics over an adapter that has none: the process that has the memory does them, asked by a message.
//!
//! osc/rdma of Open MPI 4.1 makes a window only over a BTL with atomics, and Debian's configuration leaves it no other
//! component; 5.0 sends such messages itself ([`ATOMICS_BY_MESSAGES`]). As the processor does them, they are atomic with
//! what osc/rdma does by the processor. The target has to be in MPI, as for any message.
//!
//! A request and its answer are messages of the BTL with a tag of ours. What waits for an answer has a record of the
//! module's ([`Operation`]), so that a flush waits for it; the message names it by a number, which is looked up when it
//! comes back. Called by Open MPI as [`super::atomic`] is. Grade: pending. Threads: any. Tests: below, and
//! `hw-tests/mpi/rma_atomics.c` on adapters without atomics.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::peer::PeerName;
use engine::transport::EndpointId;
use ibex_ffi::openmpi::process::Process;
use ibex_ffi::openmpi::release::{ATOMICS_BY_MESSAGES, Receiver, listen, received_by};
use ibex_ffi::openmpi::sys;

use super::atomic::is_of_8_bytes;
use super::descriptor;
use super::module::Module;
use super::operation::{CallbackArguments, Operation};
use super::send::btl_send;
use crate::runtime::guard::fence;
use crate::runtime::modex;

/// The last of the tags that `btl.h` gives BTLs; Open MPI's own take the first.
const TAG: u8 = sys::MCA_BTL_TAG_BTL as u8 + 31;

/// What a process is asked for, or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Add(u64),
    Swap {
        compare: u64,
        value: u64,
    },
    /// What was there before.
    Was(u64),
}

/// A message: what, for which record, and of a request where and from whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message {
    word: Word,
    number: u64,
    address: u64,
    from: PeerName,
    /// Place among the ports that the sender publishes.
    port: u8,
}

/// Bytes of a message.
const SIZE: usize = 48;

impl Message {
    /// Numbers of 8 bytes, little-endian.
    fn bytes(&self) -> [u8; SIZE] {
        let (kind, first, second) = match self.word {
            Word::Add(operand) => (1, operand, 0),
            Word::Swap { compare, value } => (2, compare, value),
            Word::Was(value) => (3, value, 0),
        };
        let from = u64::from(self.from.job) << 32 | u64::from(self.from.rank);
        let words = [kind | u64::from(self.port) << 8, self.number, self.address, from, first, second];
        let mut bytes = [0; SIZE];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// `None`: it is none, or asks for what cannot be atomic.
    fn read(bytes: [u8; SIZE]) -> Option<Message> {
        let word = |index: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 * index + byte]));
        let (kind, port) = (word(0) & 0xff, u8::try_from(word(0) >> 8).ok()?);
        let is_aligned = word(2) != 0 && word(2).is_multiple_of(8);
        let word_of = match kind {
            1 if is_aligned => Word::Add(word(4)),
            2 if is_aligned => Word::Swap { compare: word(4), value: word(5) },
            3 => Word::Was(word(4)),
            _ => return None,
        };
        let from = PeerName { job: (word(3) >> 32) as u32, rank: word(3) as u32 };
        Some(Message { word: word_of, number: word(1), address: word(2), from, port })
    }
}

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
    base.btl_atomic_fop = Some(btl_atomic_fop);
    base.btl_atomic_cswap = Some(btl_atomic_cswap);
    // SAFETY: while MPI is initialised, before a message of this tag is sent.
    unsafe { listen(TAG, received_by::<Asked>()) };
}

/// `btl_atomic_fop`
#[allow(clippy::too_many_arguments, reason = "the signature is btl.h's")]
unsafe extern "C" fn btl_atomic_fop(
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
    if op != sys::MCA_BTL_ATOMIC_ADD || !is_of_8_bytes(flags, remote_address) {
        return sys::OPAL_ERR_NOT_SUPPORTED;
    }
    // SAFETY: M1, M3; without a remote handle the target is this process' own.
    unsafe { start("btl_atomic_fop", call, remote_address, remote_handle.is_null(), Word::Add(operand)) }
}

/// `btl_atomic_cswap`
#[allow(clippy::too_many_arguments, reason = "the signature is btl.h's")]
unsafe extern "C" fn btl_atomic_cswap(
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
    if !is_of_8_bytes(flags, remote_address) {
        return sys::OPAL_ERR_NOT_SUPPORTED;
    }
    let swap = Word::Swap { compare, value };
    // SAFETY: as in `btl_atomic_fop`.
    unsafe { start("btl_atomic_cswap", call, remote_address, remote_handle.is_null(), swap) }
}

/// # Safety
/// M1, M3; `address` is 8 bytes of a window of the peer, or of this process where it `is_own`.
unsafe fn start(name: &'static str, call: CallbackArguments, address: u64, is_own: bool, word: Word) -> c_int {
    fence(name, sys::OPAL_ERROR, || {
        if is_own {
            // SAFETY: this function's rule. Told before this returns: osc/rdma of 4.1 crashes where 1 says so.
            unsafe {
                write_result(&call, done_here(address, word));
                call.call(sys::OPAL_SUCCESS);
            }
            return sys::OPAL_SUCCESS;
        }
        // SAFETY: M1.
        let module = unsafe { Module::from_raw(call.btl) };
        let Some(me) = Process::me() else { return sys::OPAL_ERR_NOT_AVAILABLE };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let Some(state) = module.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
        let operation = state.operations.take();
        // SAFETY: just taken, ours alone.
        unsafe { (&raw mut (*operation.as_ptr()).call).write(call) };
        drop(state);
        waiting().insert(number, Waiting(operation));
        let from = modex::from_openmpi(me.name());
        let code = send(module, call.peer, &Message { word, number, address, from, port: module.index() });
        if code < 0 && waiting().remove(&number).is_some() {
            give_back(module, operation);
            return code;
        }
        sys::OPAL_SUCCESS
    })
}

fn give_back(module: &Module, operation: NonNull<Operation>) {
    if let Some(state) = module.enter() {
        // SAFETY: taken out of the table, so that nothing names it.
        unsafe { state.operations.give_back(operation.as_ptr()) };
    }
}

/// Sends it, or has it wait. Negative: Open MPI's code for why not.
fn send(module: &Module, peer: *mut sys::mca_btl_base_endpoint_t, message: &Message) -> c_int {
    let Some(taken) = descriptor::take(module, SIZE, sys::MCA_BTL_DES_FLAGS_BTL_OWNERSHIP) else {
        return sys::OPAL_ERR_OUT_OF_RESOURCE;
    };
    let bytes = message.bytes();
    // SAFETY: just taken (M2), with room for so many bytes.
    unsafe { descriptor::start(taken).copy_from_nonoverlapping(bytes.as_ptr(), SIZE) };
    // SAFETY: M1, M2: filled, and this module's.
    let code = unsafe { btl_send(module.as_raw(), peer, taken.as_ptr().cast(), TAG) };
    if code < 0 {
        // SAFETY: M2: it was not taken.
        unsafe { descriptor::free(module, taken.as_ptr()) };
    }
    code
}

/// Does it on 8 bytes of this process; returns what was there before.
///
/// # Safety
/// 8 bytes at a multiple of 8 that may be written.
unsafe fn done_here(address: u64, word: Word) -> u64 {
    let place = std::ptr::with_exposed_provenance_mut::<u64>(address as usize);
    // SAFETY: this function's rule.
    let place = unsafe { AtomicU64::from_ptr(place) };
    match word {
        Word::Add(operand) => place.fetch_add(operand, Ordering::SeqCst),
        Word::Swap { compare, value } => {
            place.compare_exchange(compare, value, Ordering::SeqCst, Ordering::SeqCst).unwrap_or_else(|was| was)
        }
        Word::Was(_) => place.load(Ordering::SeqCst),
    }
}

/// # Safety
/// The call is under way: its 8 bytes of result are ibex's.
unsafe fn write_result(call: &CallbackArguments, value: u64) {
    // SAFETY: this function's rule.
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
            // SAFETY: this function's rule; one segment, of a receive slot (R2).
            let (bytes, length) = unsafe { ((*segments).seg_addr.pval.cast::<[u8; SIZE]>(), (*segments).seg_len) };
            if count != 1 || length != SIZE as u64 {
                return;
            }
            // SAFETY: so many bytes; M1: only ibex sends with this tag, so that it is a module of ours that has it.
            let (message, module) = unsafe { (Message::read(bytes.read_unaligned()), Module::from_raw(btl)) };
            match message {
                Some(Message { word: Word::Was(value), number, .. }) => answered(module, number, value),
                Some(request) => answer(module, request),
                None => {}
            }
        });
    }
}

/// A peer asks for an atomic. Memory that cannot be registered is not touched, as an adapter would not.
fn answer(module: &Module, request: Message) {
    let target = std::ptr::with_exposed_provenance_mut::<c_void>(request.address as usize);
    let access = sys::MCA_BTL_REG_FLAG_ACCESS_ANY;
    // SAFETY: registered only as long as it is there: that of a window is already, and found in the cache.
    let Some(registered) = (unsafe { module.memory().register(target, 8, access) }) else { return };
    // SAFETY: memory that is there, at a multiple of 8 (`Message::read`).
    let was = unsafe { done_here(request.address, request.word) };
    // SAFETY: no work request names it.
    unsafe { module.memory().put_back(registered) };
    let Some(peer) = sender(module, &request) else { return };
    // Where it cannot be sent the peer is lost, which is told elsewhere.
    send(module, module.pointer(peer), &Message { word: Word::Was(was), ..request });
}

/// The endpoint of who asks.
fn sender(module: &Module, request: &Message) -> Option<EndpointId> {
    Some(module.enter()?.port.peer(request.from, request.port))
}

/// The answer to a request of this process has come.
fn answered(module: &Module, number: u64, value: u64) {
    let Some(Waiting(operation)) = waiting().remove(&number) else { return };
    // SAFETY: taken out of the table, so ours alone.
    let call = unsafe { (*operation.as_ptr()).call };
    // SAFETY: under way until now; told once.
    unsafe {
        write_result(&call, value);
        call.call(sys::OPAL_SUCCESS);
    }
    give_back(module, operation);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_what_was_written_and_none_where_it_cannot_be_atomic() {
        let from = PeerName { job: 0xa3f7_0001, rank: 70_000 };
        let words = [Word::Add(u64::MAX), Word::Swap { compare: 3, value: 4 }, Word::Was(5)];
        for word in words {
            let message = Message { word, number: 9, address: 0x7000_0008, from, port: 200 };
            assert_eq!(Message::read(message.bytes()), Some(message));
            let odd = Message { address: 0x7000_0004, ..message };
            assert_eq!(Message::read(odd.bytes()).is_some(), matches!(word, Word::Was(_)));
        }
        assert_eq!(Message::read([0; SIZE]), None);
        assert_eq!(Message::read([0xff; SIZE]), None);
    }

    #[test]
    fn each_gives_back_what_was_there() {
        let place = AtomicU64::new(5);
        let address = place.as_ptr().expose_provenance() as u64;
        // SAFETY: of the test's own.
        let on = |word| unsafe { done_here(address, word) };
        assert_eq!([on(Word::Add(2)), on(Word::Swap { compare: 9, value: 1 })], [5, 7]);
        assert_eq!([on(Word::Swap { compare: 7, value: 1 }), on(Word::Add(u64::MAX))], [7, 1]);
        assert_eq!(place.load(Ordering::Relaxed), 0);
    }
}
