// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tools begin and cease to listen: the short cuts of short messages are closed and opened again.
//!
//! While anybody listens, to whatever communicator, messages go the long way, on which the sites are (`watch.rs`): a
//! blocking receive asks for the PML that is not watched and gets none ([`super::instance::unwatched`]), a short send
//! finds no link ([`Communicator::short_cut`]), and the end of a wait is looked at (`notify.rs`). A message for a
//! communicator that is listened to meets what no message is for, instead of its receive
//! ([`Communicator::set_watched`]), and so is not dealt with where the port finds it. Each of these questions the short
//! cut asks anyway, so that it has no instruction for tools. Grade: setup. Threads: any; a change is made inside.

use super::communicator::Communicator;
use super::instance::{pml, set_watched, unwatched};
use super::notify;
use crate::runtime::listeners::{self, Listeners, Raiser};

/// The PML is the one that was chosen: its events are there to be listened to; or it ends.
pub(crate) fn offer(is_chosen: bool) {
    listeners::raised_by(is_chosen.then_some(Raiser { change }));
    if !is_chosen {
        notify::watch_waits(false);
    }
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
    let is_watched = unwatched().is_none();
    communicator.open_short_cut(!is_watched);
    // SAFETY: this function's rule.
    let is_listened_to = is_watched && unsafe { Listeners::of(communicator.comm) }.is_some();
    // SAFETY: as above.
    unsafe { communicator.set_watched(is_listened_to) };
}
