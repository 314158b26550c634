// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress: polls each port, and calls Open MPI back. Called by Open MPI's progress engine, all the time. While the
//! PML is in use, it polls instead, and calls [`deliver`] for the BTL's completions. Otherwise this file polls into a
//! frame, inside the port. Callbacks (for messages here, for all else in `completion`) run outside the port, because
//! they call ibex again, even progress. Then this file enters the port again and gives back records; the next poll
//! gives back the receive slots. Grade: hot. Threads: any; one at a time polls a port, and ob1's sequence numbers
//! restore the order of messages. Tests: the device tests in `hw-tests`.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use engine::events;
use engine::transport::{Batch, Completion, Immediate};
use ibex_ffi::openmpi::release::ReceiveDescriptor;

use super::completion::{handle_non_message, operations_done, stamp};
use super::module::{self, Module, State};
use super::two_sided::descriptor::pool::FinishedDescriptors;
use super::{failures, watch};
use crate::runtime::frame::Frame;
use crate::runtime::guard::{self, fence};
use crate::runtime::poller::{self, Btl};
use crate::runtime::token::{Face, Tag};
use crate::runtime::watch::SAFETY;

/// Calls of [`progress_watched`] between two deliveries of buffers while every call finds completions.
const BUSY: usize = 4;

static DEFECT_REPORTED: AtomicBool = AtomicBool::new(false);

pub(crate) fn start_anew() {
    DEFECT_REPORTED.store(false, Ordering::Relaxed);
}

/// Registers the functions that process the BTL's completions of the PML's polls.
pub(crate) fn begin() {
    poller::set_btl(Btl { deliver, operations_done });
}

pub(crate) extern "C" fn btl_progress() -> c_int {
    fence("progress", 0, || {
        if guard::broken() {
            return defect();
        }
        if events::is_idle() { progress_all::<false>() } else { progress_watched() }
    })
}

#[inline]
fn progress_all<const WATCHED: bool>() -> c_int {
    if let Some(pml) = poller::by_pml() {
        // Open MPI's progress engine calls both components, so the PML may just have polled; others call only this one.
        return if poller::take_poll() { 0 } else { (pml.poll)() };
    }
    module::all().map(progress_port::<WATCHED>).sum()
}

/// Polls the port of a module, for a caller that waits for its operations. Returns the number of events.
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

/// Progress while a tool listens. Delivers buffers if there is nothing else to do, or at every [`BUSY`]th call.
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

/// Reports each port as failed, once, after a panic, because the state of ibex may be inconsistent.
#[cold]
fn defect() -> c_int {
    if !DEFECT_REPORTED.swap(true, Ordering::Relaxed) {
        module::all().for_each(failures::report_defect);
    }
    0
}

/// Polls one port. Returns the number of events. `WATCHED`: a tool listens, or did so a moment ago. Otherwise no site
/// in here tests for one.
fn progress_port<const WATCHED: bool>(module: &Module) -> c_int {
    // `None`: another thread polls the port, or this call comes from within an engine call.
    let Some(mut state) = module.try_enter() else { return 0 };
    let State { port, frames, done, .. } = &mut state;
    let mut frame = frames.take();
    let polled = if WATCHED {
        port.poll_direct_watched(&mut frame.batch, &mut **done)
    } else {
        port.poll_direct(&mut frame.batch, &mut **done)
    };
    if polled.reported == 0 {
        frames.give_back(frame, port);
        complete_operations(state);
        return 0;
    }
    if WATCHED {
        // Before this thread leaves the port, after which another one may poll it.
        frame.polled = module.source().and_then(|source| Some((source, events::begin_batch(source)?)));
    }
    drop(state);

    let finished = handle_all::<WATCHED>(module, &frame);
    let events_to_come = frame.polled.take();
    // `None`, which would lose the frame, does not happen: the engine does not call back while it has the port.
    if let Some(mut state) = module.enter() {
        give_back_descriptors(&mut state, finished);
        state.frames.give_back(frame, &mut state.port);
        complete_operations(state);
    }
    if let Some((source, events_to_come)) = events_to_come {
        events::end_batch(source, events_to_come);
    }
    polled.reported as c_int
}

/// Processes the BTL's completions in a frame that the PML has polled. No port is entered.
fn deliver(port: u8, frame: &Frame) {
    let Some(module) = module::all().find(|module| module.index == port) else { return };
    let finished =
        if events::is_idle() { handle_all::<false>(module, frame) } else { handle_all::<true>(module, frame) };
    if let Some(mut state) = module.enter() {
        give_back_descriptors(&mut state, finished);
    }
}

/// Processes the BTL's completions of a frame, outside the port. Returns the descriptors to give back.
#[inline]
fn handle_all<const WATCHED: bool>(module: &Module, frame: &Frame) -> FinishedDescriptors {
    let mut finished = FinishedDescriptors::NONE;
    for item in frame.batch.completions().iter().enumerate() {
        handle_completion::<WATCHED>(module, &frame.batch, item, &frame.descriptor, &mut finished);
    }
    finished
}

#[inline]
fn complete_operations(state: State<'_>) {
    let done = state.done.take();
    drop(state);
    operations_done(done);
}

#[inline(always)]
fn handle_completion<const WATCHED: bool>(
    module: &Module,
    batch: &Batch,
    (index, completion): (usize, &Completion),
    descriptor: &ReceiveDescriptor,
    finished: &mut FinishedDescriptors,
) {
    if let Completion::Message { ref message, immediate, .. } = *completion {
        let tag = Tag(immediate.tag());
        if tag.face() != Face::Btl {
            // The PML has processed its message, or is not in use any more.
            return;
        }
        if WATCHED {
            watch_arrival(module, batch, (index, completion));
        }
        message_received(module, (tag, immediate), descriptor.describe(message.address(), message.length()));
    } else {
        handle_non_message::<WATCHED>(module, batch, (index, completion), finished);
    }
}

#[cold]
#[inline(never)]
fn watch_arrival(module: &Module, batch: &Batch, (index, completion): (usize, &Completion)) {
    let Completion::Message { ref message, immediate, qp_num, .. } = *completion else { return };
    if !events::interest().has_messages() {
        return;
    }
    let sender = module.enter().and_then(|state| state.port.peer_name(state.port.sender(immediate, qp_num)?));
    if let Some(sender) = sender {
        watch::arrived(sender.rank, module.index, u64::from(message.length()), stamp(module, batch, index));
    }
}

#[inline]
fn message_received(module: &Module, (Tag(tag), immediate): (Tag, Immediate), arrived: &ReceiveDescriptor) {
    let sender = || module.pointer(immediate.endpoint());
    // SAFETY: Open MPI's table of callbacks has an entry for each tag of the BTL's (`Tag`'s tests compare); R2: the
    // bytes are in a receive slot that is not posted until `release`.
    unsafe { arrived.show(module.as_raw(), tag, sender) };
}

#[inline(always)]
fn give_back_descriptors(state: &mut State<'_>, mut finished: FinishedDescriptors) {
    while let Some(descriptor) = finished.pop() {
        // SAFETY: M2: `finished` has descriptors of this module.
        unsafe { state.descriptors.give_back(descriptor) };
    }
}
