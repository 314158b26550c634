// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress: takes what has happened on each port and tells Open MPI.
//!
//! Called by Open MPI's progress engine, all the time. A batch of events is taken inside the port; the callbacks (a
//! message received; what else there is: `completion`) run outside of it, as they call ibex again, progress included;
//! then, inside again, records are given back, and by the next poll the receive slots. Grade: hot. Threads: any; with
//! several, one takes a port's batch at a time, and ob1's sequence numbers put messages in order.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use engine::events::{self, PolledBatch, SourceId};
use engine::peer::PeerName;
use engine::transport::{Batch, Completion, Immediate};
use ibex_ffi::openmpi::release::ReceiveDescriptor;

use super::completion::{FinishedDescriptors, handle_non_message, operations_done, stamp};
use super::module::{Module, State};
use super::poll_frame::PollFrame;
use super::{detour, loss, modules, watch};
use crate::runtime::face::Face;
use crate::runtime::guard::{self, fence};
use crate::runtime::progress::{self as faces, Functions, hand_on};
use crate::runtime::tag::Tag;
use crate::runtime::watch::SAFETY;

/// See [`progress_watched`].
const BUSY: usize = 4;

static DEFECT_REPORTED: AtomicBool = AtomicBool::new(false);

/// The component is opened: no defect was reported.
pub(crate) fn start_anew() {
    DEFECT_REPORTED.store(false, Ordering::Relaxed);
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

/// Moves every port on. One alone is the usual case, and need not be counted.
#[inline]
fn progress_all<const WATCHED: bool>() -> c_int {
    match modules::only() {
        Some(module) => progress_port::<WATCHED, false>(module),
        None => progress_several::<WATCHED>(),
    }
}

/// Moves on the port that a module is of, for who waits for its operations. Returns the number of events.
#[inline]
pub(crate) fn progress_one(module: &Module) -> c_int {
    if !events::is_idle() {
        progress_watched()
    } else if modules::are_polled_for() {
        faces::poll(Face::Pml)
    } else {
        progress_for_flush(module)
    }
}

#[inline(never)]
fn progress_for_flush(module: &Module) -> c_int {
    progress_port::<false, true>(module)
}

#[inline(never)]
fn progress_several<const WATCHED: bool>() -> c_int {
    if modules::are_polled_for() {
        // Open MPI's progress engine calls both faces; others call this one alone.
        return if faces::take_poll() { 0 } else { faces::poll(Face::Pml) };
    }
    let mut count = 0;
    for module in modules::all() {
        count += progress_port::<WATCHED, false>(module);
    }
    count
}

/// Progress while a tool listens. What the calls before have seen and not shown, so that who waited for it went on, is
/// shown first. Buffers are delivered when there is nothing else to do; if there always is, at every [`BUSY`]th call.
#[cold]
#[inline(never)]
fn progress_watched() -> c_int {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    faces::show_arrived();
    events::deliver_due(SAFETY);
    let count = progress_all::<true>();
    let calls = CALLS.load(Ordering::Relaxed).wrapping_add(1);
    CALLS.store(calls, Ordering::Relaxed);
    if count == 0 || calls.is_multiple_of(BUSY) || events::is_nearly_full() {
        watch::show_arrived();
        events::progress(SAFETY);
    }
    count
}

/// After a panic nothing is trusted any more: each port is reported as failed, once.
#[cold]
fn defect() -> c_int {
    if !DEFECT_REPORTED.swap(true, Ordering::Relaxed) {
        modules::all().for_each(loss::report_defect);
    }
    0
}

/// Moves one port on. Returns how many events there were. `WATCHED`: a tool listens, or did a moment ago; without it no
/// site in here looks whether one does. `FLUSH`: operations are what is waited for, so that the poll takes them itself;
/// without it they are reported in the batch, as the path of a message is no longer for them.
#[allow(clippy::inline_always, reason = "as for `handle_event`")]
#[inline(always)]
fn progress_port<const WATCHED: bool, const FLUSH: bool>(module: &Module) -> c_int {
    // Another thread is at it, or this call comes from within an engine call: nothing to do here.
    let Some(mut state) = module.try_enter() else {
        return 0;
    };
    let State { port, frames, done, .. } = &mut state;
    let mut frame = frames.take();
    let count = if WATCHED {
        port.poll_watched(&mut frame.batch)
    } else if FLUSH {
        port.poll_direct(&mut frame.batch, &mut **done).reported
    } else {
        port.poll(&mut frame.batch)
    };
    if count == 0 {
        frames.give_back(frame, port);
        if FLUSH {
            tell_of_operations(state);
        }
        return 0;
    }
    // While no other thread polls this port.
    let stamped = if WATCHED { taken(module) } else { None };
    drop(state);

    let mut finished = FinishedDescriptors::NONE;
    let PollFrame { batch, descriptor } = &*frame;
    for item in batch.completions().iter().enumerate() {
        handle_completion::<WATCHED>(module, batch, item, descriptor, &mut finished);
    }
    give_back::<FLUSH>(module, frame, &finished);
    if let Some((source, taken)) = stamped {
        events::end_batch(source, taken);
    }
    count as c_int
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
            // SAFETY: just polled by the BTL, or handed on by another face, which does so with what is the BTL's.
            unsafe { hand_on(tag.face(), module.index(), batch, index) };
            return;
        }
        if WATCHED {
            // SAFETY: the bytes are in a receive slot that is not posted until `release` (R2).
            unsafe { watch_arrival(module, batch, (index, completion), tag) };
        }
        message_received(module, (tag, immediate), descriptor.describe(addr, len));
    } else {
        handle_non_message::<WATCHED>(module, batch, (index, completion), finished);
    }
}

/// Says what the BTL does with what another face has polled.
pub(crate) fn fill_in() {
    let is_polled_for = modules::set_polled_for;
    let show_arrived = watch::show_arrived;
    faces::fill_in(Face::Btl, Functions { handle, operations_done, show_arrived, poll: None, is_polled_for });
}

/// Handles a completion that another face has polled.
///
/// # Safety
/// That of [`hand_on`].
unsafe fn handle(port: u8, batch: &Batch, index: usize) {
    let Some(completion) = batch.completions().get(index) else { return };
    let Some(module) = modules::all().find(|module| module.index() == port) else { return };
    match *completion {
        Completion::PeerFailed { peer } => loss::peer_failed(module, peer),
        Completion::LinkChanged { is_up } => detour::link_changed(module, is_up),
        Completion::Message { .. } => {
            let (descriptor, mut finished) = (ReceiveDescriptor::new(), FinishedDescriptors::NONE);
            descriptor.settle();
            if events::is_idle() {
                handle_completion::<false>(module, batch, (index, completion), &descriptor, &mut finished);
            } else {
                handle_completion::<true>(module, batch, (index, completion), &descriptor, &mut finished);
            }
        }
        Completion::Request { .. } => {
            let mut finished = FinishedDescriptors::NONE;
            if events::is_idle() {
                handle_non_message::<false>(module, batch, (index, completion), &mut finished);
            } else {
                handle_non_message::<true>(module, batch, (index, completion), &mut finished);
            }
            if let Some(mut state) = module.enter() {
                give_back_descriptors(&mut state, &finished);
            }
        }
    }
}

/// Says that events of what was polled will follow.
#[cold]
#[inline(never)]
fn taken(module: &Module) -> Option<(SourceId, PolledBatch)> {
    let source = module.source()?;
    Some((source, events::begin_batch(source)?))
}

/// Shows a message that has come, before its callback.
///
/// # Safety
/// The bytes of the message may be read, and no adapter writes there.
#[cold]
#[inline(never)]
unsafe fn watch_arrival(module: &Module, batch: &Batch, (index, completion): (usize, &Completion), tag: Tag) {
    if watch::is_of_use(tag.0)
        && let Some(peer) = sender(module, completion)
    {
        // SAFETY: this function's rule.
        unsafe { watch::arrived(peer, completion, stamp(module, batch, index)) };
    }
}

/// Who sent a message.
fn sender(module: &Module, completion: &Completion) -> Option<PeerName> {
    let Completion::Message { immediate, qp_num, .. } = *completion else { return None };
    let state = module.enter()?;
    let endpoint = state.port.sender(immediate, qp_num)?;
    state.port.peer_name(endpoint)
}

/// A message came in: the upper layer's callback for its tag.
#[inline]
fn message_received(module: &Module, (Tag(tag), immediate): (Tag, Immediate), arrived: &ReceiveDescriptor) {
    let sender = || module.pointer(immediate.endpoint());
    // SAFETY: a table that has an entry for each tag of the BTL's (`Tag`'s tests compare); the bytes are in a receive
    // slot that is not posted until `release` (R2).
    unsafe { arrived.show(module.as_raw(), tag, sender) };
}

/// Gives descriptors and the frame back, and after the poll of a flush tells of operations.
#[inline(always)]
fn give_back<const FLUSH: bool>(module: &Module, frame: Box<PollFrame>, finished: &FinishedDescriptors) {
    // `None` would be a call from within an engine call, and those do not call back; the frame would then be lost.
    let Some(mut state) = module.enter() else {
        return;
    };
    give_back_descriptors(&mut state, finished);
    state.frames.give_back(frame, &mut state.port);
    if FLUSH {
        tell_of_operations(state);
    }
}

/// Gives back the descriptors that callbacks have left.
#[inline(always)]
fn give_back_descriptors(state: &mut State<'_>, finished: &FinishedDescriptors) {
    let mut descriptor = finished.0;
    while !descriptor.is_null() {
        // SAFETY: on the chain of `send_done`: ours.
        let next = unsafe { (*descriptor).next };
        // SAFETY: as above, and the adapter is through with it.
        unsafe { state.descriptors.give_back(descriptor) };
        descriptor = next;
    }
}
