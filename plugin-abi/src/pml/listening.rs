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

use engine::events;
use ibex_ffi::openmpi::sys;

use super::communicator::Communicator;
use super::instance::{Pml, pml, set_watched, unwatched};
use super::notify;
use crate::runtime::listeners::{self, Listeners, Raiser};

/// The PML is the one that was chosen: its events are there to be listened to; or it ends.
pub(crate) fn offer(is_chosen: bool) {
    listeners::raised_by(is_chosen.then_some(Raiser { change, queues }));
    if !is_chosen {
        return notify::watch_waits(false);
    }
    if pml().is_some_and(Pml::has_threads) {
        events::set_threads();
    }
    // Somebody may have begun to listen before MPI was initialised.
    change(&mut |_| {});
}

/// # Safety
/// A live communicator, of which a listener is told now; the PML is entered.
unsafe fn queues(comm: *mut sys::ompi_communicator_t) -> [u32; 2] {
    // SAFETY: this function's rule: somebody is told of it, so it is the PML's.
    unsafe { Communicator::of(comm).lengths() }
}

fn change(body: &mut dyn FnMut(bool)) {
    let Some(pml) = pml() else { return body(false) };
    match pml.enter() {
        // Within a callback: who listens is noted, what follows waits until the next change.
        None => body(true),
        Some(state) => {
            body(false);
            let is_watched = listeners::is_anybody();
            if is_watched != unwatched().is_none() {
                set_watched(pml, is_watched);
                notify::watch_waits(is_watched);
            }
            for (_, communicator) in state.contexts.iter() {
                // SAFETY: in the table, so alive; the PML is entered.
                unsafe { follow(communicator.as_ref()) };
            }
        }
    }
}

/// Opens or closes the short cuts of a communicator, as somebody listens or not.
///
/// # Safety
/// It is alive, or about to be in the table; the PML is entered.
pub(crate) unsafe fn follow(communicator: &Communicator) {
    // SAFETY: this function's rule.
    let is_listened_to = unwatched().is_none() && unsafe { Listeners::of(communicator.comm) }.is_some();
    communicator.open_short_cut(!is_listened_to);
    // SAFETY: as above.
    unsafe { communicator.set_watched(is_listened_to) };
}
