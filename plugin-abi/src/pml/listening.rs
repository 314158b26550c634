// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens and closes the fast paths of short messages when tools start or stop listening.
//!
//! While a tool listens to any communicator, [`super::instance::unwatched`] returns `None`, which blocking receives
//! test, and `notify.rs` watches the end of waits. On a communicator that a tool listens to, short sends find no link
//! ([`Communicator::short_cut`]), and polls find a blocker in the first receive slot ([`Communicator::set_watched`]).
//! Called by `component` ([`offer`]), and through the [`Raiser`] by `runtime/listeners.rs`. Grade: setup. Threads: any;
//! changes are made with the PML entered.
//!
//! **Callbacks that may do anything** run at the end of a call of the program ([`returns`], [`has_programs`]), with
//! nothing entered; not at the end of libmpi's own calls, for collective operations and the like, where a callback that
//! communicates could do harm. The program's messages have a tag of at least 0, or `MPI_ANY_TAG`; those of libmpi have
//! other negative tags. Grade: pending. Tests: `hw-tests/tools/mpi_t_matching.c`.

use std::ffi::c_void;

use engine::events;
use engine::messenger::matching::ANY_TAG;
use ibex_ffi::openmpi::sys;

use super::communicator::Communicator;
use super::instance::{Pml, pml, set_watched, unwatched};
use super::notify;
use super::request::Request;
use crate::runtime::listeners::{self, Listeners, Raiser};
use crate::runtime::watch;

/// Registers this PML as the component that raises the events, if it was selected (`is_chosen`), or withdraws it.
pub(crate) fn offer(is_chosen: bool) {
    listeners::raised_by(is_chosen.then_some(Raiser { change, watch, follow: follow_one, queues }));
    if !is_chosen {
        return notify::watch_waits(false);
    }
    if pml().is_some_and(Pml::has_threads) {
        events::set_threads();
    }
    // A tool may have registered listeners before MPI was initialised: apply them now.
    listeners::exclusively(|| {});
}

/// # Safety
/// P3: the PML is entered. The communicator is alive and is one of this PML's: a listener on it is being called.
unsafe fn queues(comm: *mut sys::ompi_communicator_t) -> [u32; 2] {
    // SAFETY: P3 for the queues; the communicator is alive and the PML's, as this function requires.
    unsafe { Communicator::of(comm).lengths() }
}

fn change(body: &mut dyn FnMut(bool)) {
    let Some(pml) = pml() else { return body(false) };
    let state = pml.enter();
    // `enter` fails only inside a callback, within the PML.
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
/// P3: the PML is entered. A live communicator of MPI's.
unsafe fn follow_one(comm: *mut sys::ompi_communicator_t) {
    // SAFETY: P3; `c_pml_comm` is null until `pml_add_comm` (which calls `follow`), then our box, alive.
    unsafe {
        if let Some(communicator) = (*comm).c_pml_comm.cast::<c_void>().cast::<Communicator>().as_ref() {
            follow(communicator);
        }
    }
}

/// Closes the fast paths of a communicator while a tool listens to it, and opens them otherwise.
pub(crate) unsafe fn follow(communicator: &Communicator) {
    // SAFETY: P3 for listeners and first receive; the communicator is alive, as this function requires.
    unsafe {
        let is_listened_to = unwatched().is_none() && Listeners::of(communicator.comm).is_some();
        communicator.open_short_cut(!is_listened_to);
        communicator.set_watched(is_listened_to);
    }
}

/// Delivers due events at the end of a blocking call with this tag.
#[inline(always)]
pub(crate) fn returns(tag: i32) {
    if watch::is_due() && is_programs(tag) {
        watch::serve();
    }
}

fn is_programs(tag: i32) -> bool {
    tag >= 0 || tag == ANY_TAG
}

/// Whether at least one of these requests is the PML's and belongs to the program (not to libmpi).
pub(crate) unsafe fn has_programs(count: usize, requests: *mut *mut sys::ompi_request_t) -> bool {
    (0..count).any(|index| {
        // SAFETY: P4: the array; P1: MPI holds its requests. The PML is not entered, but a tag is written only when its
        // request is made.
        unsafe {
            let request = Request::from_raw(requests.add(index).read());
            request.is_some_and(|request| is_programs((*request.as_ptr()).core.tag))
        }
    })
}
