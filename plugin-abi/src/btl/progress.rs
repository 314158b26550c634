// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress: takes what has happened on each port and tells Open MPI.
//!
//! Called by Open MPI's progress engine, all the time. Where the PML is in use it polls, and brings what is the BTL's to
//! [`deliver`]; elsewhere a frame of events is taken here, inside the port. The callbacks (a message received; what else
//! there is: `completion`) run outside of it, as they call ibex again, progress included; then, inside again, records are
//! given back, and by the next poll the receive slots. Grade: hot. Threads: any; with several, one takes a port's batch
//! at a time, and ob1's sequence numbers put messages in order.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use engine::events;
use engine::transport::{Batch, Completion, Immediate};
use ibex_ffi::openmpi::release::ReceiveDescriptor;

use super::completion::{FinishedDescriptors, handle_non_message, operations_done, stamp};
use super::module::{self, Module, State};
use super::{failures, watch};
use crate::runtime::frame::Frame;
use crate::runtime::guard::{self, fence};
use crate::runtime::poller::{self, Btl};
use crate::runtime::token::{Face, Tag};
use crate::runtime::watch::SAFETY;

/// See [`progress_watched`].
const BUSY: usize = 4;

static DEFECT_REPORTED: AtomicBool = AtomicBool::new(false);

/// The component is opened: no defect was reported.
pub(crate) fn start_anew() {
    DEFECT_REPORTED.store(false, Ordering::Relaxed);
}

/// Says what the BTL does with what was polled.
pub(crate) fn begin() {
    poller::set_btl(Btl { deliver, operations_done });
}

/// `btl_progress`: moves every port on. Returns the number of events.
pub(crate) unsafe extern "C" fn btl_progress() -> c_int {
    fence("progress", 0, || {
        if guard::broken() {
            return defect();
        }
        if events::is_idle() { progress_all::<false>() } else { progress_watched() }
    })
}

/// Moves every port on.
#[inline]
fn progress_all<const WATCHED: bool>() -> c_int {
    if let Some(pml) = poller::by_pml() {
        // Open MPI's progress engine calls both components; others call this one alone.
        return if poller::take_poll() { 0 } else { (pml.poll)() };
    }
    module::all().map(progress_port::<WATCHED>).sum()
}

/// Moves on the port that a module is of, for who waits for its operations. Returns the number of events.
#[inline]
pub(crate) fn progress_one(module: &Module) -> c_int {
    if !events::is_idle() {
        progress_watched()
    } else if let Some(pml) = poller::by_pml() {
        (pml.poll)()
    } else {
        progress_port::<false>(module)
    }
}

/// Progress while a tool listens. Buffers are delivered when there is nothing else to do; if there always is, at every
/// [`BUSY`]th call.
#[cold]
#[inline(never)]
fn progress_watched() -> c_int {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    poller::watch_polls();
    events::deliver_due(SAFETY);
    let count = progress_all::<true>();
    let calls = CALLS.load(Ordering::Relaxed).wrapping_add(1);
    CALLS.store(calls, Ordering::Relaxed);
    if count == 0 || calls.is_multiple_of(BUSY) || events::is_nearly_full() {
        events::progress(SAFETY);
    }
    count
}

/// After a panic nothing is trusted any more: each port is reported as failed, once.
#[cold]
fn defect() -> c_int {
    if !DEFECT_REPORTED.swap(true, Ordering::Relaxed) {
        module::all().for_each(failures::report_defect);
    }
    0
}

/// Moves one port on. Returns how many events there were. `WATCHED`: a tool listens, or did a moment ago; without it no
/// site in here looks whether one does.
fn progress_port<const WATCHED: bool>(module: &Module) -> c_int {
    // Another thread is at it, or this call comes from within an engine call: nothing to do here.
    let Some(mut state) = module.try_enter() else {
        return 0;
    };
    let State { port, frames, done, .. } = &mut state;
    let mut frame = frames.take();
    let polled = if WATCHED {
        port.poll_direct_watched(&mut frame.batch, &mut **done)
    } else {
        port.poll_direct(&mut frame.batch, &mut **done)
    };
    if polled.reported == 0 {
        frames.give_back(frame, port);
        tell_of_operations(state);
        return 0;
    }
    if WATCHED {
        // While no other thread polls this port.
        frame.polled = module.source().and_then(|source| Some((source, events::begin_batch(source)?)));
    }
    drop(state);

    let finished = handle_all::<WATCHED>(module, &frame);
    let events_to_come = frame.polled.take();
    // `None` would be a call from within an engine call, and those do not call back; the frame would then be lost.
    if let Some(mut state) = module.enter() {
        give_back_descriptors(&mut state, &finished);
        state.frames.give_back(frame, &mut state.port);
        tell_of_operations(state);
    }
    if let Some((source, events_to_come)) = events_to_come {
        events::end_batch(source, events_to_come);
    }
    polled.reported as c_int
}

/// Deals with what is the BTL's of a frame that the PML has polled. No port is entered.
fn deliver(port: u8, frame: &Frame) {
    let Some(module) = module::all().find(|module| module.index == port) else { return };
    let finished =
        if events::is_idle() { handle_all::<false>(module, frame) } else { handle_all::<true>(module, frame) };
    if let Some(mut state) = module.enter() {
        give_back_descriptors(&mut state, &finished);
    }
}

/// Handles the completions of a frame that are the BTL's, outside of the port. Returns what is to be given back.
#[inline]
fn handle_all<const WATCHED: bool>(module: &Module, frame: &Frame) -> FinishedDescriptors {
    let mut finished = FinishedDescriptors::NONE;
    for item in frame.batch.completions().iter().enumerate() {
        handle_completion::<WATCHED>(module, &frame.batch, item, &frame.descriptor, &mut finished);
    }
    finished
}

/// Leaves the port, and tells of the operations that a poll has taken.
#[inline]
fn tell_of_operations(state: State<'_>) {
    let done = state.done.take();
    drop(state);
    // SAFETY: just taken, and the port was left.
    unsafe { operations_done(&done) };
}

/// Handles one completion, outside of the port.
#[inline(always)]
fn handle_completion<const WATCHED: bool>(
    module: &Module,
    batch: &Batch,
    (index, completion): (usize, &Completion),
    descriptor: &ReceiveDescriptor,
    finished: &mut FinishedDescriptors,
) {
    if let Completion::Message { immediate, addr, len, .. } = *completion {
        let tag = Tag(immediate.tag());
        if tag.face() != Face::Btl {
            // The PML's, which has dealt with it, or is in use no more.
            return;
        }
        if WATCHED {
            watch_arrival(module, batch, (index, completion));
        }
        message_received(module, (tag, immediate), descriptor.describe(addr, len));
    } else {
        handle_non_message::<WATCHED>(module, batch, (index, completion), finished);
    }
}

/// Shows a message that has come, before its callback.
#[cold]
#[inline(never)]
fn watch_arrival(module: &Module, batch: &Batch, (index, completion): (usize, &Completion)) {
    let Completion::Message { immediate, qp_num, len, .. } = *completion else { return };
    if !events::interest().has_messages() {
        return;
    }
    let sender = module.enter().and_then(|state| state.port.peer_name(state.port.sender(immediate, qp_num)?));
    if let Some(sender) = sender {
        watch::arrived(sender.rank, module.index, u64::from(len), stamp(module, batch, index));
    }
}

/// A message came in: the upper layer's callback for its tag.
#[inline]
fn message_received(module: &Module, (Tag(tag), immediate): (Tag, Immediate), arrived: &ReceiveDescriptor) {
    let sender = || module.pointer(immediate.endpoint());
    // SAFETY: a table that has an entry for each tag of the BTL's (`Tag`'s tests compare); the bytes are in a receive
    // slot that is not posted until `release` (R2).
    unsafe { arrived.show(module.as_raw(), tag, sender) };
}

/// Gives back the descriptors that callbacks have left.
#[inline(always)]
fn give_back_descriptors(state: &mut State<'_>, finished: &FinishedDescriptors) {
    let mut descriptor = finished.0;
    while !descriptor.is_null() {
        // SAFETY: on the chain of `send_done`: ours.
        let next = unsafe { (*descriptor).next };
        // SAFETY: on the chain of `send_done`: ours, and the adapter is through with it.
        unsafe { state.descriptors.give_back(descriptor) };
        descriptor = next;
    }
}
