// SPDX-License-Identifier: MIT OR Apache-2.0
//! Leaves the PML: sends pending messages whose turn it is, and once nothing is entered calls callbacks, passes frames
//! to the BTL, and ends the job if it must.
//!
//! Called by all that has entered the PML. Grade: hot for [`leave`] and [`leave_call`] without more to do, else
//! pending. Threads: any. Tests: `pml/tests.rs`, and the MPI programs of `hw-tests`.

use std::sync::atomic::Ordering;

use engine::events;
use engine::messenger::send;
use ibex_ffi::openmpi::sys;

use super::finish;
use super::instance::{Pml, Rail, State};
use super::progress::poll_here;
use crate::runtime::exclusive::Entered;
use crate::runtime::frame::Frame;
use crate::runtime::libmpi;
use crate::runtime::{failures, poller};

/// Sends messages whose turn it is, leaves the PML, then calls callbacks, passes frames to the BTL, and ends the job if
/// it must.
#[inline]
pub(crate) fn leave(pml: &Pml, state: Entered<'_, State>) {
    if state.has_more {
        leave_for_more(pml, state);
    }
}

/// Like [`leave`], for a blocking call: also calls Open MPI's progress if the process has long been too busy to do so.
#[inline]
pub(crate) fn leave_call(pml: &Pml, state: Entered<'_, State>) {
    if state.has_more {
        leave_call_for_more(pml, state);
    }
}

#[cold]
#[inline(never)]
fn leave_call_for_more(pml: &Pml, mut state: Entered<'_, State>) {
    let is_due = state.busy.take_due();
    leave_for_more(pml, state);
    if is_due {
        libmpi::progress();
    }
}

#[cold]
#[inline(never)]
fn leave_for_more(pml: &Pml, mut state: Entered<'_, State>) {
    if !state.messenger.flow.turns.is_empty() {
        have_turns(pml, &mut state);
    }
    state.has_more = false;
    let (for_btl, operations, has_failed) = (state.for_btl.take_all(), state.operations.take(), state.has_failed);
    let mut is_to_tell = state.finished.first.is_some();
    drop(state);
    if has_failed {
        end_job(pml);
    }
    if !operations.is_empty() {
        poller::operations_done(operations);
    }
    for mut frame in for_btl {
        deliver(pml, &mut frame);
        if let Some(mut state) = pml.enter() {
            state.frames.give_back_released(frame);
            is_to_tell |= state.finished.first.is_some();
        }
    }
    if is_to_tell {
        finish::tell(pml);
    }
}

fn deliver(pml: &Pml, frame: &mut Frame) {
    let rail = &pml.rails()[frame.rail];
    poller::deliver(rail.port().index(), frame);
    if let Some((source, polled)) = frame.polled.take() {
        events::end_batch(source, polled);
    }
    if !frame.batch.clear_of_requests()
        && let Some(mut port) = rail.enter()
    {
        port.release(&mut frame.batch);
    }
}

/// Ends the job, because MPI has no other way to report a lost peer. Prints the reason, unless it was printed.
#[cold]
fn end_job(pml: &Pml) {
    #[cfg(test)]
    if super::instance::OF_TEST.get().is_some() {
        return super::instance::JOB_HAS_ENDED.set(true);
    }
    for rail in pml.rails() {
        if let Some(mut port) = rail.enter() {
            failures::tell(&mut port);
        }
    }
    // SAFETY: ends the process.
    unsafe { sys::ibex_abort(1) };
}

/// Sends the pending messages whose turn it is.
#[cold]
#[inline(never)]
fn have_turns(pml: &Pml, state: &mut State) {
    let empty_polls = |rail: &Rail| rail.port().counters().empty_polls.load(Ordering::Relaxed);
    let empty = || -> u64 { pml.rails().iter().map(empty_polls).sum() };
    send::in_turns(pml, state, |state| {
        let before = empty();
        state.quiet.have_reported(1);
        poll_here::<false>(pml, state);
        empty() - before == pml.rails().len() as u64
    });
}
