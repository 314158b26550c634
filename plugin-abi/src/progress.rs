// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress: takes what has happened on each port and tells Open MPI.
//!
//! Called by Open MPI's progress engine, all the time. A batch of events is taken inside the module's `Exclusive`; the
//! callbacks (a message received, a send done, a put done, a peer lost) run outside of it, as they call ibex again, progress
//! included; then, inside again, records are given back, and by the next poll the receive slots. Grade: hot. Threads: any; with several, one takes a
//! port's batch at a time, and ob1's sequence numbers put messages in order.

use std::ffi::{CString, c_int};
use std::ptr::null_mut;

use engine::event::{Batch, EndpointId, Event, Failed};
use engine::events::{self, PolledBatch, SourceId};
use engine::port::Port;
use ibex_ffi::openmpi::sys;

use crate::descriptor::{self, Descriptor};
use crate::detour::{self, Again};
use crate::module::{Module, State};
use crate::rdma::{Call, Operation};
use crate::token::{Record, record};
use crate::{failures, guard, modex, watch};

/// What one call of progress works with while the port is not entered.
pub(crate) struct Turn {
    batch: Batch,
    /// A received message as its callback is shown it, and the one segment it has.
    arrived: sys::mca_btl_base_descriptor_t,
    segment: sys::mca_btl_base_segment_t,
}

/// The turns not in use. As many exist as progress was ever nested, or called by threads at once: mostly one.
#[derive(Default)]
pub(crate) struct Turns {
    spare: Option<Box<Turn>>,
    #[allow(clippy::vec_box, reason = "a pointer is moved in and out, not half a kibibyte")]
    more: Vec<Box<Turn>>,
}

// SAFETY: what a turn points to is its own.
unsafe impl Send for Turn {}

impl Turns {
    #[inline]
    fn take(&mut self) -> Box<Turn> {
        self.spare.take().unwrap_or_else(|| self.take_more())
    }

    #[cold]
    fn take_more(&mut self) -> Box<Turn> {
        self.more.pop().unwrap_or_else(|| {
            // SAFETY: C structures of integers and pointers, for which zero is a value.
            let (arrived, segment) = unsafe { std::mem::zeroed() };
            Box::new(Turn { batch: Batch::new(), arrived, segment })
        })
    }

    /// The batch of the spare turn is released by the next poll; any other one at once, as it may not be used again for long.
    #[inline]
    fn give_back(&mut self, mut turn: Box<Turn>, port: &mut Port) {
        if self.spare.is_some() || port.is_short_of_receives() {
            port.release(&mut turn.batch);
        }
        if self.spare.is_none() {
            self.spare = Some(turn);
        } else {
            self.more.push(turn);
        }
    }
}

/// What the callbacks of a batch have left to be given back, as chains through the records themselves.
struct Finished {
    descriptors: *mut Descriptor,
    operations: *mut Operation,
}

/// Moves one port on. Returns how many events there were. `WATCHED`: a tool listens, or did a moment ago; without it no site
/// in here looks whether one does.
#[inline]
pub(crate) fn progress<const WATCHED: bool>(module: &Module) -> c_int {
    // Another thread is at it, or this call comes from within an engine call: nothing to do here.
    let Some(mut state) = module.try_enter() else {
        return 0;
    };
    let State { port, turns, .. } = &mut *state;
    let mut turn = turns.take();
    let count = if WATCHED { port.poll_watched(&mut turn.batch) } else { port.poll(&mut turn.batch) };
    if count == 0 {
        turns.give_back(turn, port);
        return 0;
    }
    // While no other thread polls this port.
    let stamped = if WATCHED { taken(module) } else { None };
    drop(state);

    let mut finished = Finished { descriptors: null_mut(), operations: null_mut() };
    let Turn { batch, arrived, segment } = &mut *turn;
    for event in batch.events() {
        if let Event::Received { immediate, addr, len, .. } = *event {
            if WATCHED {
                // SAFETY: the bytes are in a receive slot that is not posted until `release` (R2).
                unsafe { watch::arrived(module, event, stamp(module, batch, event)) };
            }
            segment.seg_addr.lval = addr;
            segment.seg_len = u64::from(len);
            arrived.des_segments = segment;
            arrived.des_segment_count = 1;
            received(module, immediate.tag(), arrived);
        } else {
            happened::<WATCHED>(module, batch, event, &mut finished);
        }
    }
    give_back(module, turn, &finished);
    if let Some((source, taken)) = stamped {
        events::end_batch(source, taken);
    }
    count as c_int
}

/// Says that events of what was polled will follow.
#[cold]
#[inline(never)]
fn taken(module: &Module) -> Option<(SourceId, PolledBatch)> {
    let source = module.source()?;
    Some((source, events::begin_batch(source)?))
}

/// What the adapter stamped an event of a batch with, while a tool listens.
#[cold]
#[inline(never)]
fn stamp(module: &Module, batch: &Batch, event: &Event) -> watch::Stamp {
    module.source().zip(batch.stamp(event))
}

/// Something other than a message.
#[inline(never)]
fn happened<const WATCHED: bool>(module: &Module, batch: &Batch, event: &Event, finished: &mut Finished) {
    match *event {
        Event::Completed { token, to, outcome } => {
            let mut complete = || match record(token) {
                Some(Record::Descriptor(descriptor)) => {
                    let descriptor = descriptor.as_ptr();
                    let status = match outcome {
                        Ok(()) => sys::OPAL_SUCCESS,
                        // SAFETY: the engine gives a token back once, and it was one of this module's descriptors.
                        Err(failed) => match unsafe { not_sent(module, descriptor, to, failed) } {
                            Some(status) => status,
                            None => return,
                        },
                    };
                    // SAFETY: as above.
                    unsafe { sent(module, descriptor, to, status, finished) };
                }
                // SAFETY: as above, an operation.
                Some(Record::Operation(operation)) => unsafe {
                    done(module, operation.as_ptr(), to, outcome, finished);
                },
                None => {}
            };
            if WATCHED {
                if let Some(Record::Operation(operation)) = record(token) {
                    // SAFETY: as above; its callback has not been called.
                    let call = unsafe { (*operation.as_ptr()).call };
                    // SAFETY: as it was given with the operation.
                    unsafe { watch::completing(module, to, call.callback, call.data) };
                }
                watch::with_stamp(stamp(module, batch, event), complete);
            } else {
                complete();
            }
        }
        Event::PeerFailed { peer } => peer_failed(module, peer),
        Event::LinkChanged { is_up } => detour::link_changed(module, is_up),
        Event::Received { .. } => {}
    }
}

/// A message did not reach its peer by this port: how its send ended all the same; `None`: it is under way again.
///
/// # Safety
/// As of [`sent`].
#[cold]
#[inline(never)]
unsafe fn not_sent(module: &Module, descriptor: *mut Descriptor, to: EndpointId, failed: Failed) -> Option<c_int> {
    // SAFETY: this function's own rule.
    match unsafe { detour::again(module, to, descriptor, failed) } {
        Again::UnderWay => return None,
        Again::Sent => return Some(sys::OPAL_SUCCESS),
        Again::Failed => {}
    }
    if !failed.posted && failures::has_failed(module, to) {
        // Open MPI need not have asked to hear of it, and the peer would wait for it.
        lost(module, to);
    }
    // SAFETY: as above.
    let is_told = unsafe { (*descriptor).callback_wanted };
    Some(if is_told { failures::failed(module, to, failed) } else { sys::OPAL_ERROR })
}

/// How a request ended, as Open MPI says it. That it failed Open MPI hears after the user.
#[inline]
fn status(module: &Module, to: EndpointId, outcome: Result<(), Failed>) -> c_int {
    match outcome {
        Ok(()) => sys::OPAL_SUCCESS,
        Err(failed) => failures::failed(module, to, failed),
    }
}

/// A message came in: the upper layer's callback for its tag.
#[inline]
fn received(module: &Module, tag: u8, arrived: &mut sys::mca_btl_base_descriptor_t) {
    let trigger =
        (&raw const sys::mca_btl_base_active_message_trigger).cast::<sys::mca_btl_active_message_callback_t>();
    if u32::from(tag) >= sys::MCA_BTL_TAG_MAX {
        return;
    }
    // SAFETY: a table of MCA_BTL_TAG_MAX entries; written at start, before messages of that tag are sent.
    let callback = unsafe { trigger.add(usize::from(tag)).read() };
    let Some(function) = callback.cbfunc else {
        return;
    };
    // SAFETY: the callback registered for the tag, which reads the descriptor within this call only (btl.h); the bytes are in a
    // receive slot that is not posted until `release` (R2).
    unsafe { function(module.as_raw(), tag, arrived, callback.cbdata) };
}

/// A descriptor's send is done.
///
/// # Safety
/// `descriptor` is the adapter's no more, and one of this module's.
#[inline]
unsafe fn sent(module: &Module, descriptor: *mut Descriptor, to: EndpointId, status: c_int, finished: &mut Finished) {
    // SAFETY: this function's rule: nobody else uses it now.
    let wanted = unsafe { (*descriptor).callback_wanted };
    // SAFETY: as above. Read before the callback, which may free a descriptor that is not ibex's to free.
    let owned = unsafe { (*descriptor).base.des_flags } & sys::MCA_BTL_DES_FLAGS_BTL_OWNERSHIP != 0;
    if wanted {
        // SAFETY: as above.
        let function = unsafe { (*descriptor).base.des_cbfunc };
        if let Some(function) = function {
            // SAFETY: the callback Open MPI set, with what it sent (btl.h, mca_btl_base_completion_fn_t).
            unsafe { function(module.as_raw(), module.pointer(to), descriptor.cast(), status) };
        }
    }
    if owned {
        // SAFETY: ibex's own: Open MPI is through with it.
        if let Some(registered) = unsafe { descriptor::take_registration(descriptor) } {
            // SAFETY: the send that named it is done (R3).
            unsafe { module.memory().put_back(registered) };
        }
        // SAFETY: as above.
        unsafe { (*descriptor).next = finished.descriptors };
        finished.descriptors = descriptor;
    }
}

/// A put, a get or an atomic is done.
///
/// # Safety
/// `operation` is one of this module's, and no request has it as its token any more.
#[inline]
unsafe fn done(
    module: &Module,
    operation: *mut Operation,
    to: EndpointId,
    outcome: Result<(), Failed>,
    finished: &mut Finished,
) {
    // SAFETY: this function's rule.
    let &mut Operation { call, ref mut next, watched } = unsafe { &mut *operation };
    *next = finished.operations;
    finished.operations = operation;
    let Call { callback, context, data, local_address, local_handle, .. } = call;
    let status = status(module, to, outcome);
    if let Some(function) = callback {
        let peer = module.pointer(to);
        // SAFETY: the callback and arguments that Open MPI gave (btl.h, mca_btl_base_rdma_completion_fn_t).
        unsafe { function(module.as_raw(), peer, local_address, local_handle, context, data, status) };
    }
    if call.is_watched {
        // SAFETY: as the call says.
        watch::done(unsafe { watched.assume_init_ref() }, outcome);
    }
}

/// Gives descriptors, records and the turn back.
#[allow(
    clippy::inline_always,
    reason = "a call costs as much as what it does, and there are two callers, one of them cold"
)]
#[inline(always)]
fn give_back(module: &Module, turn: Box<Turn>, finished: &Finished) {
    // `None` would be a call from within an engine call, and those do not call back; the turn would then be lost.
    let Some(mut state) = module.enter() else {
        return;
    };
    let mut descriptor = finished.descriptors;
    while !descriptor.is_null() {
        // SAFETY: on the chain of `sent`: ours.
        let next = unsafe { (*descriptor).next };
        // SAFETY: as above, and the adapter is through with it.
        unsafe { state.descriptors.give_back(descriptor) };
        descriptor = next;
    }
    let mut operation = finished.operations;
    while !operation.is_null() {
        // SAFETY: on the chain of `done`: ours.
        let next = unsafe { (*operation).next };
        // SAFETY: as above.
        unsafe { state.operations.give_back(operation) };
        operation = next;
    }
    let State { port, turns, .. } = &mut *state;
    turns.give_back(turn, port);
}

/// The connection to a peer failed: says so, and tells Open MPI, which ends the job.
#[cold]
fn peer_failed(module: &Module, peer: EndpointId) {
    if !detour::goes_around(module, peer) {
        lost(module, peer);
    }
}

/// Something cannot reach a peer any more: says why, and has Open MPI end the job.
#[cold]
fn lost(module: &Module, peer: EndpointId) {
    let (name, text) = {
        let Some(mut state) = module.enter() else { return };
        failures::tell(&mut state.port);
        let text = state.port.failure(peer).map_or_else(|| state.port.describe(peer), ToString::to_string);
        (state.port.peer_name(peer), text)
    };
    let process = name.and_then(modex::process);
    report(module, process.map_or(null_mut(), ibex_ffi::openmpi::process::Process::as_raw), &text);
}

/// A panic was caught earlier: this port takes no further part.
#[cold]
pub(crate) fn report_defect(module: &Module) {
    debug_assert!(guard::broken(), "called only then");
    report(module, null_mut(), "ibex has a defect, see above");
}

fn report(module: &Module, process: *mut sys::opal_proc_t, text: &str) {
    let Some(function) = module.error_callback() else {
        return;
    };
    // ob1 hands the text to a printf-like function as the format.
    let text = CString::new(format!("ibex: {}", text.replace('%', "%%").replace('\0', ""))).unwrap_or_default();
    // SAFETY: the callback that was registered (btl.h, mca_btl_base_module_error_cb_fn_t); the text outlives the call.
    unsafe { function(module.as_raw(), sys::MCA_BTL_ERROR_FLAGS_FATAL as i32, process, text.as_ptr().cast_mut()) };
}
