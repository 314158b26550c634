// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the sites of the plugin do while a tool listens: everything behind their branch.
//!
//! A site is one comparison ([`engine::events::has_interest`]); what is called from it is here, out of the way of the path
//! that nobody watches. `ob1` reads the headers of messages, `transfer` knows which message they belong to, `arrival` keeps what may be
//! shown later. Tools' callbacks run in here, so nothing is called while the port is entered. Path: behind the branch of a site; no allocation in steady state.
//! Threads: any. Tests: in the two files, and `hw-tests/mpi/events.c`, which compares what is shown with what was sent.

mod arrival;
mod fragment;
pub(crate) mod ob1;
mod transfer;

use std::cell::Cell;
use std::ffi::c_void;

use engine::event::{EndpointId, Event, Failed};
use engine::events::{
    self, AtomicComplete, AtomicStarted, EagerChosen, EventGroup, GetComplete, GetStarted, HostTimestamp, MsgArrived,
    Payload, PutComplete, PutStarted, RegistrationEvict, RegistrationMiss, RendezvousChosen, Safety, SourceId,
    XferBegin, XferContinue, XferEnd,
};
use engine::peer::PeerName;
use ibex_ffi::openmpi::sys;
use ibex_ffi::verbs::Status;

use crate::module::Module;
use arrival::Arrival;
use ob1::Header;
use transfer::{Read, Step};

/// What callbacks must be fit for in a call of Open MPI's: MPI is on the stack.
pub(crate) const SAFETY: Safety = Safety::MpiRestricted;

/// Bytes of a message that are looked at.
const LOOKED_AT: usize = ob1::LONGEST;

/// When the adapter says that something was completed: the port's source, and its raw ticks.
pub(crate) type Stamp = Option<(SourceId, u64)>;

thread_local! {
    /// Of the completion whose callback runs in this thread.
    static STAMP: Cell<Stamp> = const { Cell::new(None) };

    /// When this thread began to post a message.
    static POSTING: Cell<Option<HostTimestamp>> = const { Cell::new(None) };
}

/// Raises events with the adapter's stamp where there is one, else as of this moment of the host's clock.
fn tell(group: EventGroup, stamp: Stamp, moment: impl FnOnce() -> HostTimestamp) {
    match stamp {
        Some((source, raw)) => group.raise_stamped(source, raw, None, SAFETY),
        None => group.raise(moment, SAFETY),
    }
}

/// This thread begins to post a message.
#[cold]
#[inline(never)]
pub(crate) fn posting() {
    POSTING.set(events::interest().has_messages().then(events::host_timestamp));
}

/// When it did; now, where nobody listened then.
pub(crate) fn posting_began() -> HostTimestamp {
    POSTING.take().unwrap_or_else(events::host_timestamp)
}

/// A message that is being sent.
pub(crate) struct Outgoing {
    moment: HostTimestamp,
    /// What it is of a transfer.
    step: Step,
    protocol: Protocol,
}

/// Whether a message with this tag is all of a message of MPI's, so that nothing else will ever be said of it.
pub(crate) fn is_whole(tag: u8) -> bool {
    tag == ob1::MATCH
}

/// Whether a message with this tag is to be looked at: somebody listens to messages, or it says something of one that is followed.
fn is_of_use(tag: u8) -> bool {
    let active = events::interest();
    active.has_messages() || active.is_registered_for_messages() && !is_whole(tag)
}

/// How the sender of a message has chosen to send it; told with its first piece.
#[derive(Clone, Copy)]
enum Protocol {
    Eager,
    Rendezvous,
    /// It was told before.
    Chosen,
}

impl Outgoing {
    /// Of `length` bytes, of which `readable` may be read from `start` on; begun at `moment`. `None`: there is nothing to be told.
    /// To be made before it is posted, as another thread may then see its answer, unless it [is whole](is_whole).
    ///
    /// # Safety
    /// As said of `start`.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn new(
        module: &Module,
        to: EndpointId,
        tag: u8,
        (start, readable): (*const u8, usize),
        length: u64,
        moment: fn() -> HostTimestamp,
    ) -> Option<Outgoing> {
        if !is_of_use(tag) {
            return None;
        }
        let moment = moment();
        let mut bytes = [0; LOOKED_AT];
        let looked_at = readable.min(LOOKED_AT);
        // SAFETY: this function's rule; the local array is no shorter.
        unsafe { start.copy_to_nonoverlapping(bytes.as_mut_ptr(), looked_at) };
        let (step, protocol) = outgoing(module, to, tag, &bytes[..looked_at], length)?;
        Some(Outgoing { moment, step, protocol })
    }

    /// It is posted.
    #[cold]
    #[inline(never)]
    pub(crate) fn posted(&self) {
        let step = &self.step;
        let mut group = EventGroup::new(events::interest());
        match self.protocol {
            Protocol::Eager => choose::<EagerChosen>(&mut group, step),
            Protocol::Rendezvous => choose::<RendezvousChosen>(&mut group, step),
            Protocol::Chosen => {}
        }
        show(&mut group, step);
        // The last read of a message is told to its sender from the callback of its completion.
        tell(group, if step.received { step.stamp(STAMP.get()) } else { None }, || self.moment);
    }
}

fn outgoing(module: &Module, to: EndpointId, tag: u8, start: &[u8], length: u64) -> Option<(Step, Protocol)> {
    let peer = module.enter()?.port.peer_name(to)?;
    let (header, size) = ob1::header(tag, start)?;
    let bytes = length.saturating_sub(size as u64);
    let step = transfer::step(header, bytes, peer, false, events::activation_epoch())?;
    let protocol = match header {
        Header::Match(_) => Protocol::Eager,
        Header::Rendezvous { .. } | Header::Get { .. } => Protocol::Rendezvous,
        _ => Protocol::Chosen,
    };
    Some((step, protocol))
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

fn choose<P: Chosen>(group: &mut EventGroup, step: &Step) {
    group.add(|| P::of(step));
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

impl Step {
    /// The adapter's stamp is for the end of a message, and for its arrival. The pieces before it may come by several ports, whose sources are in no order
    /// with each other: they are told by the host's clock, at once, so that nothing overtakes them.
    fn stamp(&self, stamp: Stamp) -> Stamp {
        stamp.filter(|_| self.last)
    }
}

/// The arrival of a message.
fn show_message(group: &mut EventGroup, step: &Step) {
    let envelope = step.envelope;
    group.add(|| MsgArrived {
        message: step.message,
        bytes: step.bytes,
        total: step.total,
        context: u32::from(envelope.context),
        source: envelope.source,
        tag: envelope.tag,
        sequence: u32::from(envelope.sequence),
        peer: step.peer.rank,
    });
}

/// The events of a step but for the arrival of the message. The bytes of a message of one piece are in its begin.
fn show(group: &mut EventGroup, step: &Step) {
    match (step.first, step.last) {
        (true, true) => {
            group.add(|| piece!(XferBegin, step, step.offset, step.bytes));
            group.add(|| piece!(XferEnd, step, step.total, 0));
        }
        (true, false) => group.add(|| piece!(XferBegin, step, step.offset, step.bytes)),
        // What announces a message without bytes of it.
        (false, false) if step.arrives => {}
        (false, false) => group.add(|| piece!(XferContinue, step, step.offset, step.bytes)),
        (false, true) => group.add(|| piece!(XferEnd, step, step.offset, step.bytes)),
    }
}

/// A message came, and its callback has not been called yet.
///
/// # Safety
/// The event is of a batch whose slots were not released: the bytes it names may be read, and no adapter writes there.
#[cold]
#[inline(never)]
pub(crate) unsafe fn arrived(module: &Module, event: &Event, stamp: Stamp) {
    let Event::Received { addr, len, immediate, .. } = *event else { return };
    if !is_of_use(immediate.tag()) {
        return;
    }
    let Some(peer) = sender(module, event) else { return };
    let start = std::ptr::with_exposed_provenance(addr as usize);
    // SAFETY: this function's rule.
    let arrival = unsafe { Arrival::new(peer, immediate.tag(), (start, len), stamp) };
    if let Some((source, _)) = stamp
        && is_whole(arrival.tag)
        && !events::immediate_interest().has_messages()
    {
        arrival::note(arrival, source, show_noted);
    } else if let Some(step) = arrival_step(&arrival) {
        let mut group = EventGroup::new(events::interest());
        if step.arrives {
            show_message(&mut group, &step);
        }
        if !step.last {
            // Its pieces have the host's stamp.
            tell(std::mem::replace(&mut group, EventGroup::new(events::interest())), stamp, events::host_timestamp);
        }
        show(&mut group, &step);
        tell(group, step.stamp(stamp), events::host_timestamp);
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
        let mut group = EventGroup::new(events::interest());
        show_message(&mut group, &step);
        show(&mut group, &step);
        group.stage_stamped(source, raw, None);
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

/// Shows all that has happened: for who is about to stop listening. Not from within a callback.
pub(crate) fn catch_up() {
    show_arrived();
    events::catch_up(SAFETY);
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

/// What ob1 has noted of a read, if it is one of a message.
///
/// # Safety
/// Callback and data of a `btl_get` that has been called and is not complete.
#[cold]
#[inline(never)]
pub(crate) unsafe fn noted(callback: sys::mca_btl_base_rdma_completion_fn_t, data: *mut c_void) -> Option<Read> {
    if !events::interest().is_registered_for_messages() {
        return None;
    }
    // SAFETY: this function's rule.
    unsafe { fragment::read(callback, data) }
}

/// An operation is complete, and its callback has not been called yet: should it be a read of a message that nobody has heard of, it is
/// known what to tell of it.
///
/// # Safety
/// Callback and data are those of the operation.
#[cold]
#[inline(never)]
pub(crate) unsafe fn completing(
    module: &Module,
    with: EndpointId,
    callback: sys::mca_btl_base_rdma_completion_fn_t,
    data: *mut c_void,
) {
    // SAFETY: this function's rule.
    if let Some(read) = unsafe { noted(callback, data) }
        && let Some(from) = module.enter().and_then(|state| state.port.peer_name(with))
    {
        transfer::was_read(from, read, events::activation_epoch());
    }
}

/// An operation on the memory of a process (`None`: not known) was taken up, and posted after `moment`; `read` is what ob1 has noted of it.
#[cold]
#[inline(never)]
pub(crate) fn started(watched: &Watched, with: Option<PeerName>, read: Option<Read>, moment: HostTimestamp) {
    let Watched { operation, local, remote, bytes, peer, .. } = *watched;
    let active = events::interest();
    let mut group = EventGroup::new(active);
    if watched.kind == Kind::Get
        && active.is_registered_for_messages()
        && let Some(step) = with.and_then(|from| transfer::reading(from, remote, read, events::activation_epoch()))
    {
        show(&mut group, &step);
    }
    let atomic = |kind| AtomicStarted { operation, local, remote, bytes, kind, peer };
    match watched.kind {
        Kind::Put => group.add(|| PutStarted { operation, local, remote, bytes, peer }),
        Kind::Get => group.add(|| GetStarted { operation, local, remote, bytes, peer }),
        Kind::FetchAdd => group.add(|| atomic(0)),
        Kind::CompareSwap => group.add(|| atomic(1)),
    }
    group.raise(|| moment, SAFETY);
}

/// A watched operation is done.
#[cold]
#[inline(never)]
pub(crate) fn done(watched: &Watched, outcome: Result<(), Failed>) {
    let Watched { operation, local, remote, bytes, peer, .. } = *watched;
    let status = outcome.map_or_else(|failed| failed.status, |()| Status::SUCCESS).0;
    let mut group = EventGroup::new(events::interest());
    let atomic = |kind| AtomicComplete { operation, local, remote, bytes, kind, peer, status };
    match watched.kind {
        Kind::Put => group.add(|| PutComplete { operation, local, remote, bytes, peer, status }),
        Kind::Get => group.add(|| GetComplete { operation, local, remote, bytes, peer, status }),
        Kind::FetchAdd => group.add(|| atomic(0)),
        Kind::CompareSwap => group.add(|| atomic(1)),
    }
    tell(group, STAMP.get(), events::host_timestamp);
}

/// Memory is registered with the adapter. Open MPI's cache may hold its lock, so that nothing is delivered here.
#[cold]
#[inline(never)]
pub(crate) fn registered(address: u64, bytes: u64, port: u8) {
    events::stage(SAFETY, || RegistrationMiss { address, bytes, port: u32::from(port) });
}

/// A registration is taken back. As [`registered`].
#[cold]
#[inline(never)]
pub(crate) fn evicted(address: u64, bytes: u64, port: u8) {
    events::stage(SAFETY, || RegistrationEvict { address, bytes, port: u32::from(port) });
}
