// SPDX-License-Identifier: MIT OR Apache-2.0
//! RDMA-read rendezvous: the receiver reads a long message from the sender's memory to the user's buffer, without a
//! copy.
//!
//! Both sides register memory through Open MPI's cache; if either cannot, copies are sent (`pieces`). The state machine
//! is `engine::protocol::reading`. Called by `accept`, `incoming` and `progress`. Grade: pending. Threads: the one that
//! has entered the PML. Tests: the MPI programs of `hw-tests`.

use std::ptr::NonNull;

use engine::protocol::header::{Header, Memory};
use engine::protocol::reading::{Part, Reading};
use engine::protocol::transfers::TransferId;
use engine::transport::Failed;
use ibex_ffi::openmpi::sys;
use ibex_ffi::verbs::RemoteSpan;

use super::finish::finish;
use super::flight::Step;
use super::instance::{Pml, Rail, State};
use super::link::Link;
use super::passage::{self, Protocol, Reason};
use super::request::{Request, Transfer};
use super::transfers::Bytes;
use super::watched_reads::WatchedReads;
use super::{flight, resume, routing, striped, transmit, watch};

/// Maximum number of reads of a message that are posted at a time.
const MOST: u32 = 4;

/// Begins to read the first `wanted` bytes (at least 1) of a message. Returns false if the receive's memory cannot be
/// registered.
///
/// # Safety
/// P1: a matched receive into contiguous memory, with no transfer in progress.
pub(crate) unsafe fn begin(
    pml: &Pml,
    state: &mut State,
    request: NonNull<Request>,
    (link, sender, memory): (Link, TransferId, Memory),
    wanted: u64,
) -> bool {
    let Some(rail) = pml.rails().get(link.rail()) else { return false };
    // SAFETY: P1: the receive is not finished; P3.
    let r = unsafe { &mut *request.as_ptr() };
    let access = sys::MCA_RCACHE_ACCESS_LOCAL_WRITE;
    // SAFETY: P2, M3: mapped until the receive is finished, and [`read_done`] ends the registration before.
    let registered = unsafe { rail.port().memory().register(r.extent.start.cast(), wanted as usize, access) };
    let Some(registered) = registered else { return false };
    r.link = link;
    let reading = Reading::new(wanted, rail.read_limit, MOST);
    // SAFETY: P1: the receive is not finished, and its transfer is `Reading` when reads are posted; P3.
    unsafe {
        watch::begins_by(r, Bytes::None.posted(), |r| {
            Some(passage::by(pml, r.link, (Protocol::Read, Reason::Size), 1))
        });
        let watched = WatchedReads::of(r, memory.address, wanted);
        r.transfer = Transfer::Reading { state: reading, sender, from: memory, registered, watched };
        post(rail, state, request);
    }
    true
}

/// Posts as many reads as permitted.
///
/// # Safety
/// P1: a receive whose transfer is `Reading`, by this rail.
unsafe fn post(rail: &Rail, state: &mut State, request: NonNull<Request>) {
    // SAFETY: P1: the receive is not finished; P3.
    let r = unsafe { &mut *request.as_ptr() };
    let Transfer::Reading { state: reading, from, registered, watched, .. } = &mut r.transfer else { return };
    let Some(mut port) = rail.enter() else { return };
    while let Some(part) = reading.next_part() {
        if let Some(watched) = watched {
            watched.started(part);
        }
        let (to, from) = ((r.extent.start, registered.lkey()), RemoteSpan { addr: from.address, rkey: from.key });
        // SAFETY: R3: the part is within the memory registered under that key until the last read is done; R2, P2:
        // until then it belongs to the adapter.
        if !unsafe { transmit::read(&mut port, r.link, part, to, from, request) } {
            if let Some(watched) = watched {
                watched.refused(part);
            }
            transmit::failed(state);
            return;
        }
    }
}

/// A read is done or has failed: continues the transfer, or ends it.
///
/// # Safety
/// P1: the receive to which the read belonged; it is not finished.
pub(crate) unsafe fn read_done(
    pml: &Pml,
    state: &mut State,
    request: NonNull<Request>,
    rail: usize,
    outcome: Result<(), Failed>,
) {
    // SAFETY: P1: the receive is not finished; P3.
    let r = unsafe { &mut *request.as_ptr() };
    if let Transfer::Striped(_) = r.transfer {
        // SAFETY: P1: the read belonged to this receive, whose transfer is `Striped`.
        return unsafe { striped::read_done(pml, state, request, rail, outcome) };
    }
    let Transfer::Reading { state: reading, sender, registered, watched, .. } = &mut r.transfer else { return };
    let Some(rail) = pml.rails().get(r.link.rail()) else { return };
    let part @ Part { offset, length } = reading.done();
    if let Some(watched) = watched {
        watched.done(part, outcome);
    }
    let (moved, is_last) = (Bytes::Of { offset, length: u64::from(length) }.completed(), reading.is_done());
    if outcome.is_err() {
        transmit::failed(state);
    } else if is_last {
        let (sender, registered, length) = (*sender, *registered, reading.length());
        r.transfer = Transfer::None;
        // SAFETY: R3: no read of this receive is in flight.
        unsafe { rail.port().memory().put_back(registered) };
        // SAFETY: P1: the receive is not finished; P3.
        unsafe {
            watch::ends(r, moved);
            flight::note(r, &Step::Fetched(sender, length));
        }
        routing::control(pml, state, r.link, &Header::Finished { request: sender.0, length });
        // SAFETY: P1: the receive has all the data that it wants, and no transfer in progress.
        unsafe { finish(state, request) };
    } else {
        // SAFETY: P1: the receive is still being read; P3.
        unsafe {
            watch::continues(r, moved);
            post(rail, state, request);
        }
    }
}

/// Finishes a send that this process announced: the receiver has read what it wants, or has matched a short message.
pub(crate) fn finished(pml: &Pml, state: &mut State, sender: TransferId) {
    let Some(request) = state.transfers.end(sender) else { return };
    // SAFETY: P1: in `state.transfers` until now; P3.
    let r = unsafe { &mut *request.as_ptr() };
    // SAFETY: P1: the send is not finished.
    let counted = unsafe { resume::counted(r) };
    let transfer = std::mem::replace(&mut r.transfer, Transfer::None);
    let moved = Bytes::Of { offset: 0, length: r.extent.length as u64 }.completed();
    // SAFETY: P1: the send is not finished, and its transfer ends here; P3; R3: the receiver has read.
    unsafe {
        // Raises nothing for a message that was sent whole: its events were raised then.
        watch::ends_by(r, moved, |r| passage::was_read(pml, r, &transfer));
        striped::put_back(pml, r.link, transfer);
        flight::note(r, &Step::Answered { number: sender, wants_copies: false });
        finish(state, request);
    }
    resume::answered(pml, state, counted);
}
