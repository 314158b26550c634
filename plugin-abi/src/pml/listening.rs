// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tools begin and cease to listen: the short cuts of short messages are closed and opened again.
//!
//! While anybody listens, to whatever communicator, a receive asks for the PML that is not watched and gets none
//! ([`super::instance::unwatched`]), and the end of a wait is looked at (`notify.rs`). On a communicator that is
//! listened to a short send finds no link ([`Communicator::short_cut`]), and goes a short way of its own, on which the sites are
//! (`send.rs`). A message for it meets what no message is for, instead of its receive
//! ([`Communicator::set_watched`]), and so is not dealt with where the port finds it, but told of and then put where it
//! belongs (`incoming.rs`). Each of these questions the short cut asks anyway, so that it has no instruction for tools.
//! Grade: setup. Threads: any; a change is made inside.
//!
//! **Where callbacks are called that may do anything**: at the end of a call that the program itself has made
//! ([`returns`], [`has_programs`]). The PML is called by libmpi for itself as well, in collective operations, in the
//! making of communicators, for files and windows, where a callback that communicates could do harm. What a program
//! sends and receives itself has a tag of at least 0, or any; what libmpi does has negative ones. So a blocking send or
//! receive, a wait or a test is the program's by the tags that it is of. Nothing is entered then. Grade: pending. Tests:
//! `hw-tests/tools/mpi_t_matching.c`.

use std::ffi::c_void;

use engine::events;
use engine::matching::ANY_TAG;
use ibex_ffi::openmpi::sys;

use super::communicator::Communicator;
use super::instance::{Pml, pml, set_watched, unwatched};
use super::notify;
use super::request::Request;
use crate::runtime::listeners::{self, Listeners, Raiser};
use crate::runtime::watch;

/// The PML is the one that was chosen: its events are there to be listened to; or it ends.
pub(crate) fn offer(is_chosen: bool) {
    listeners::raised_by(is_chosen.then_some(Raiser { change, watch, follow: follow_one, queues }));
    if !is_chosen {
        return notify::watch_waits(false);
    }
    if pml().is_some_and(Pml::has_threads) {
        events::set_threads();
    }
    // Somebody may have begun to listen before MPI was initialised.
    listeners::exclusively(|| {});
}

/// # Safety
/// P3: the PML is entered; a live communicator, of which a listener is told now.
unsafe fn queues(comm: *mut sys::ompi_communicator_t) -> [u32; 2] {
    // SAFETY: P3; it lives, and somebody is told of it, so it is the PML's.
    unsafe { Communicator::of(comm).lengths() }
}

fn change(body: &mut dyn FnMut(bool)) {
    let Some(pml) = pml() else { return body(false) };
    let state = pml.enter();
    // Within a callback none is given.
    body(state.is_none());
}

fn watch(is_watched: bool) -> bool {
    let is_new = is_watched != unwatched().is_none();
    if let Some(pml) = pml()
        && is_new
    {
        set_watched(pml, is_watched);
        notify::watch_waits(is_watched);
    }
    is_new
}

/// # Safety
/// P3: the PML is entered; a live communicator of MPI's.
unsafe fn follow_one(comm: *mut sys::ompi_communicator_t) {
    // SAFETY: P3; it hangs at a live one, so it is alive; null before `pml_add_comm` has it, which looks itself.
    unsafe {
        if let Some(communicator) = (*comm).c_pml_comm.cast::<c_void>().cast::<Communicator>().as_ref() {
            follow(communicator);
        }
    }
}

/// Opens or closes the short cuts of a communicator, as somebody listens or not.
///
/// # Safety
/// P3: the PML is entered; it is alive.
pub(crate) unsafe fn follow(communicator: &Communicator) {
    // SAFETY: P3; it is alive.
    unsafe {
        let is_listened_to = unwatched().is_none() && Listeners::of(communicator.comm).is_some();
        communicator.open_short_cut(!is_listened_to);
        communicator.set_watched(is_listened_to);
    }
}

/// A blocking call of this tag is about to return.
#[inline(always)]
pub(crate) fn returns(tag: i32) {
    if watch::is_due() && is_programs(tag) {
        watch::serve();
    }
}

fn is_programs(tag: i32) -> bool {
    tag >= 0 || tag == ANY_TAG
}

/// Whether the program waits for one of these, as far as they are the PML's.
///
/// # Safety
/// P4: an array of so many requests of MPI's.
pub(crate) unsafe fn has_programs(count: usize, requests: *mut *mut sys::ompi_request_t) -> bool {
    (0..count).any(|index| {
        // SAFETY: P4: so many requests; P1: MPI has them. P3 does not cover this, as the PML is not entered; but nobody
        // writes the tag, which is that of when it was made.
        unsafe {
            let request = Request::from_raw(requests.add(index).read());
            request.is_some_and(|request| is_programs((*request.as_ptr()).tag))
        }
    })
}
