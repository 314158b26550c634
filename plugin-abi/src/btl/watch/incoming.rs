// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages that arrive while a tool listens.
//!
//! Called by `progress` behind the branch of its site, with the sender's name: the port is not entered, as tools'
//! callbacks run in here. Path: behind the branch of a site. Threads: any. Tests: `hw-tests/mpi/events.c`.

use engine::events::{self, EventGroup};
use engine::peer::PeerName;
use engine::transport::Completion;

use super::arrival::{self, Arrival};
use super::ob1::{self, Header};
use super::show::{show, show_message};
use super::stamp::{self, Stamp};
use super::step::Step;
use super::{fragment, transfer};

/// A message of this peer came, with a tag that [is of use](transfer::is_of_use), and its callback has not been called
/// yet.
///
/// # Safety
/// The completion is of a batch whose slots were not released: the bytes it names may be read, and no adapter writes
/// there.
#[cold]
#[inline(never)]
pub(crate) unsafe fn arrived(peer: PeerName, completion: &Completion, stamp: Stamp) {
    let Completion::Message { addr, len, immediate, .. } = *completion else { return };
    let start = std::ptr::with_exposed_provenance(addr as usize);
    // SAFETY: the caller says that the slots were not released: the bytes may be read, and no adapter writes there.
    let arrival = unsafe { Arrival::new(peer, immediate.tag(), (start, len), stamp) };
    if let Some((source, _)) = stamp
        && ob1::is_whole(arrival.tag)
        && !events::immediate_interest().has_messages()
    {
        arrival::note(arrival, source, show_noted);
    } else if let Some(step) = arrival_step(&arrival) {
        let mut together = EventGroup::new(events::interest());
        if step.arrives {
            show_message(&mut together, &step);
        }
        if !step.last {
            // Its pieces have the host's stamp.
            stamp::tell(
                std::mem::replace(&mut together, EventGroup::new(events::interest())),
                stamp,
                events::host_timestamp,
            );
        }
        show(&mut together, &step);
        stamp::tell(together, step.stamp(stamp), events::host_timestamp);
    }
}

/// Shows the messages that have arrived whole and were only noted.
#[inline]
pub(crate) fn show_arrived() {
    arrival::show(show_noted);
}

/// Shows one that was noted; nothing, if since then nobody has listened for a while.
fn show_noted(arrival: &Arrival, since: u64) {
    let Some((source, raw)) = arrival.stamp else { return };
    if since == events::activation_epoch()
        && let Some(step) = arrival_step(arrival)
    {
        let mut together = EventGroup::new(events::interest());
        show_message(&mut together, &step);
        show(&mut together, &step);
        together.stage_stamped(source, raw, None);
    }
}

/// What a message of ob1's that has arrived is of a message of MPI's.
fn arrival_step(arrival: &Arrival) -> Option<Step> {
    let activation_epoch = events::activation_epoch();
    let (header, size) = ob1::header(arrival.tag, arrival.start())?;
    if let Header::Finished { fragment, .. } = header {
        // SAFETY: it has arrived, and ob1 is told of it after this.
        transfer::is_told(arrival.peer, fragment, || unsafe { fragment::sent(fragment) }, activation_epoch);
    }
    let bytes = u64::from(arrival.length).saturating_sub(size as u64);
    transfer::step(header, bytes, arrival.peer, true, activation_epoch)
}
