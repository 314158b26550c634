// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tools begin and cease to listen: the short cuts of short messages are closed and opened again.
//!
//! While anybody listens, to whatever communicator, every message goes the long way, on which the sites are (`watch.rs`): a
//! blocking receive asks for the PML that is not watched and gets none ([`super::instance::unwatched`]), a short send finds no link
//! ([`super::communicator::Communicator::short_cut`]), no message is short enough to be dealt with where the port finds it
//! (`incoming.rs`), and the end of a wait is looked at (`notify.rs`). Each of these questions the short cut asks anyway, so that
//! it has no instruction for tools. Grade: setup. Threads: any; a change is made inside.

use super::instance::{Pml, State, pml, set_watched, unwatched};
use super::notify;
use crate::runtime::listeners::{self, Raiser};
use engine::protocol::header::EAGER_SIZE;

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
        Some(mut state) => {
            body(false);
            let is_watched = listeners::is_anybody();
            if is_watched != unwatched().is_none() {
                follow(pml, &mut state, is_watched);
            }
        }
    }
}

fn follow(pml: &'static Pml, state: &mut State, is_watched: bool) {
    set_watched(pml, is_watched);
    state.shortest_direct = if is_watched { usize::MAX } else { EAGER_SIZE };
    for (_, communicator) in state.contexts.iter() {
        // SAFETY: in the table, so alive; the PML is entered.
        unsafe { communicator.as_ref() }.open_short_cut(!is_watched);
    }
    notify::watch_waits(is_watched);
}
