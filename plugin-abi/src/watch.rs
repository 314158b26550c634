// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the sites of the plugin do while a tool listens: everything behind their branch.
//!
//! A site is one comparison ([`engine::events::is_any_active`]); what is called from it is here, out of the way of the path
//! that nobody watches. `ob1` reads the headers of messages, `transfer` knows which message they belong to, `arrival` keeps what may be
//! shown later. Tools' callbacks run
//! in here, so nothing is called while the port is entered. Path: behind the branch of a site; no allocation in steady state.
//! Threads: any. Tests: in the two files, and `hw-tests/mpi/events.c`, which compares what is shown with what was sent.

mod arrival;
mod ob1;
mod transfer;

use std::cell::Cell;

use engine::event::{EndpointId, Event, Failed};
use engine::events::{
    self, Active, AtomicComplete, AtomicStarted, EagerChosen, GetComplete, GetStarted, Payload, PutComplete,
    PutStarted, RegistrationEvict, RegistrationMiss, RendezvousChosen, Safety, SourceId, XferBegin, XferContinue,
    XferEnd,
};
use engine::peer::PeerName;
use ibex_ffi::verbs::Status;

use crate::module::Module;
use arrival::Arrival;
use ob1::Header;
use transfer::Step;

/// What callbacks must be fit for in a call of Open MPI's: MPI is on the stack.
pub(crate) const CONTEXT: Safety = Safety::MpiRestricted;

/// Bytes of a message that are looked at.
const LOOKED_AT: usize = ob1::LONGEST;

/// When the adapter says that something was completed: the port's source, and its raw ticks.
pub(crate) type Stamp = Option<(SourceId, u64)>;

thread_local! {
    /// Of the completion whose callback runs in this thread.
    static STAMP: Cell<Stamp> = const { Cell::new(None) };
}

/// Raises an event with the adapter's stamp where there is one, else with the host's.
fn raise_at<P: Payload>(active: Active, stamp: Stamp, make: impl FnOnce() -> P) {
    match stamp {
        Some((source, raw)) => active.stage_stamped(source, raw, None, make),
        None => active.raise(CONTEXT, make),
    }
}

/// A message as it is about to be sent: its first bytes, and its length.
pub(crate) struct Outgoing {
    peer: Option<PeerName>,
    tag: u8,
    start: [u8; LOOKED_AT],
    looked_at: usize,
    length: u64,
}

impl Outgoing {
    /// Of `length` bytes of which `start` are the first.
    ///
    /// # Safety
    /// `start` may be read for `readable` bytes.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn new(
        module: &Module,
        to: EndpointId,
        tag: u8,
        (start, readable): (*const u8, usize),
        length: u64,
    ) -> Outgoing {
        let peer = module.enter().and_then(|state| state.port.peer_name(to));
        let looked_at = readable.min(LOOKED_AT);
        let mut bytes = [0; LOOKED_AT];
        // SAFETY: this function's rule; the local array is no shorter.
        unsafe { start.copy_to_nonoverlapping(bytes.as_mut_ptr(), looked_at) };
        Outgoing { peer, tag, start: bytes, looked_at, length }
    }

    /// It is being sent, or was just posted. Says what it is of a message, but for the end.
    #[cold]
    #[inline(never)]
    pub(crate) fn begins(&self) -> Sent {
        show_arrived();
        let active = events::active();
        let nothing = Sent { active, end: None };
        let Some(peer) = self.peer else { return nothing };
        let Some((header, size)) = ob1::header(self.tag, &self.start[..self.looked_at]) else { return nothing };
        let bytes = self.length.saturating_sub(size as u64);
        let Some(step) = transfer::step(header, bytes, peer, false, events::awakenings()) else { return nothing };
        match header {
            Header::Match(_) => chosen::<EagerChosen>(active, &step),
            Header::Rendezvous { .. } | Header::Get { .. } => chosen::<RendezvousChosen>(active, &step),
            _ => {}
        }
        // The last read of a message is told to its sender from the callback of its completion.
        let stamp = if step.received { STAMP.get() } else { None };
        Sent { active, end: show(active, stamp, &step).map(|end| (end, stamp)) }
    }
}

/// What is left to be said when the message is posted.
pub(crate) struct Sent {
    active: Active,
    end: Option<(XferEnd, Stamp)>,
}

impl Sent {
    /// It is posted.
    #[cold]
    #[inline(never)]
    pub(crate) fn ends(self) {
        if let Some((end, stamp)) = self.end {
            raise_at(self.active, stamp, || end);
        }
    }
}

/// How a message goes.
trait Chosen: Payload {
    fn of(step: &Step) -> Self;
}

/// The structures with the elements of [`Step`], made from it.
macro_rules! chosen {
    ($($type:ident)*) => {$(
        impl Chosen for $type {
            fn of(step: &Step) -> Self {
                let envelope = step.envelope;
                $type {
                    bytes: step.total,
                    context: u32::from(envelope.context),
                    tag: envelope.tag,
                    sequence: u32::from(envelope.sequence),
                    peer: step.peer.rank,
                }
            }
        }
    )*};
}
chosen!(EagerChosen RendezvousChosen);

fn chosen<P: Chosen>(active: Active, step: &Step) {
    active.raise(CONTEXT, || P::of(step));
}

/// The same elements in three types: `$type` of a step with this offset and so many bytes.
macro_rules! piece {
    ($type:ident, $step:expr, $offset:expr, $bytes:expr) => {
        $type {
            request: $step.request,
            message: $step.message,
            offset: $offset,
            bytes: $bytes,
            total: $step.total,
            context: u32::from($step.envelope.context),
            source: $step.envelope.source,
            tag: $step.envelope.tag,
            sequence: u32::from($step.envelope.sequence),
            direction: u32::from($step.received),
            peer: $step.peer.rank,
        }
    };
}

/// Shows a step, but for the end, which is returned. The bytes of a message of one piece are in its begin.
fn show(active: Active, stamp: Stamp, step: &Step) -> Option<XferEnd> {
    if step.first {
        raise_at(active, stamp, || piece!(XferBegin, step, step.offset, step.bytes));
        return step.last.then(|| piece!(XferEnd, step, step.total, 0));
    }
    if step.last {
        return Some(piece!(XferEnd, step, step.offset, step.bytes));
    }
    raise_at(active, stamp, || piece!(XferContinue, step, step.offset, step.bytes));
    None
}

/// A message came, and its callback has not been called yet.
///
/// # Safety
/// The event is of a batch whose slots were not released: the bytes it names may be read, and no adapter writes there.
#[cold]
#[inline(never)]
pub(crate) unsafe fn arrived(module: &Module, event: &Event, stamp: Stamp) {
    let Event::Received { addr, len, immediate, .. } = *event else { return };
    let Some(peer) = sender(module, event) else { return };
    let start = std::ptr::with_exposed_provenance(addr as usize);
    // SAFETY: this function's rule.
    let arrival = unsafe { Arrival::new(peer, immediate.tag(), (start, len), stamp) };
    if stamp.is_some() {
        arrival::note(arrival, events::awakenings(), show_arrival);
    } else {
        show_arrival(&arrival);
    }
}

/// Shows the messages that have arrived and were only noted.
#[cold]
#[inline(never)]
pub(crate) fn show_arrived() {
    arrival::show(events::awakenings(), show_arrival);
}

fn show_arrival(arrival: &Arrival) {
    let Some((header, size)) = ob1::header(arrival.tag, arrival.start()) else { return };
    let bytes = u64::from(arrival.length).saturating_sub(size as u64);
    let Some(step) = transfer::step(header, bytes, arrival.peer, true, events::awakenings()) else { return };
    let active = events::active();
    if let Some(end) = show(active, arrival.stamp, &step) {
        raise_at(active, arrival.stamp, || end);
    }
}

/// Shows all that has happened: for who is about to stop listening. Not from within a callback.
pub(crate) fn catch_up() {
    show_arrived();
    events::catch_up(CONTEXT);
}

fn sender(module: &Module, event: &Event) -> Option<PeerName> {
    let Event::Received { immediate, qp_num, .. } = *event else { return None };
    let state = module.enter()?;
    let endpoint = state.port.sender(immediate, qp_num)?;
    state.port.peer_name(endpoint)
}

/// Runs the callback of a completion with its stamp at hand.
#[cold]
#[inline(never)]
pub(crate) fn with_stamp<R>(stamp: Stamp, run: impl FnOnce() -> R) -> R {
    let before = STAMP.replace(stamp);
    let result = run();
    STAMP.set(before);
    result
}

/// What an operation does to the peer's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Put,
    Get,
    FetchAdd,
    CompareSwap,
}

/// An operation that is watched, until it is done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watched {
    pub(crate) kind: Kind,
    /// Its token: the name of no other among those of the last while.
    pub(crate) operation: u64,
    pub(crate) local: u64,
    pub(crate) remote: u64,
    pub(crate) bytes: u64,
    pub(crate) peer: u32,
}

/// An operation was taken up.
#[cold]
#[inline(never)]
pub(crate) fn started(watched: &Watched) {
    let Watched { operation, local, remote, bytes, peer, .. } = *watched;
    let active = events::active();
    let atomic = |kind| AtomicStarted { operation, local, remote, kind, peer };
    match watched.kind {
        Kind::Put => active.raise(CONTEXT, || PutStarted { operation, local, remote, bytes, peer }),
        Kind::Get => active.raise(CONTEXT, || GetStarted { operation, local, remote, bytes, peer }),
        Kind::FetchAdd => active.raise(CONTEXT, || atomic(0)),
        Kind::CompareSwap => active.raise(CONTEXT, || atomic(1)),
    }
}

/// A watched operation is done.
#[cold]
#[inline(never)]
pub(crate) fn done(watched: &Watched, outcome: Result<(), Failed>) {
    show_arrived();
    let Watched { operation, local, remote, bytes, peer, .. } = *watched;
    let status = outcome.map_or_else(|failed| failed.status, |()| Status::SUCCESS).0;
    let (active, stamp) = (events::active(), STAMP.get());
    let atomic = |kind| AtomicComplete { operation, local, remote, kind, peer, status };
    match watched.kind {
        Kind::Put => raise_at(active, stamp, || PutComplete { operation, local, remote, bytes, peer, status }),
        Kind::Get => raise_at(active, stamp, || GetComplete { operation, local, remote, bytes, peer, status }),
        Kind::FetchAdd => raise_at(active, stamp, || atomic(0)),
        Kind::CompareSwap => raise_at(active, stamp, || atomic(1)),
    }
}

/// Memory is registered with the adapter. Open MPI's cache may hold its lock, so that nothing is delivered here.
#[cold]
#[inline(never)]
pub(crate) fn registered(address: u64, bytes: u64, port: u8) {
    events::stage(CONTEXT, || RegistrationMiss { address, bytes, port: u32::from(port) });
}

/// A registration is taken back. As [`registered`].
#[cold]
#[inline(never)]
pub(crate) fn evicted(address: u64, bytes: u64, port: u8) {
    events::stage(CONTEXT, || RegistrationEvict { address, bytes, port: u32::from(port) });
}
