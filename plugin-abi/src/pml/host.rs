// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open MPI as the messenger's host: the requests and their ends; the ports that the PML lends to the rails, the memory
//! that the adapters access, and the tokens. `communicator`, `peers` and `tools` have the other functions that
//! `engine::messenger` calls.
//!
//! A request without a callback completes at once ([`finish`]). One with a callback goes on a chain, and
//! [`complete_finished`] completes it with nothing entered, because a callback may free its request, start it again,
//! post others and wait for them. Grade: hot. Threads: the one that has entered the PML; [`Process`]: any. Tests:
//! `pml/tests`, and the MPI programs of `hw-tests`.

use engine::messenger::header::MAX_SIZE;
use engine::messenger::host::{self, Data, Host, Memory, Process, Record, Types};
use engine::messenger::matching::Envelope;
use engine::messenger::rails::send_buffers::BufferId;
use engine::messenger::rendezvous::stripes::Part;
use engine::messenger::route::Route;
use engine::messenger::{self, events};
use engine::transport::{ReceivedMessage, Token};
use ibex_ffi::openmpi::sys;
use ibex_ffi::verbs::{Access, InlineSpan, LocalSpan};

use super::datatype::UserData;
use super::instance::{Pml, State};
use super::peers;
use super::request::{Core, Handle, Outcome, Owner, Request, Role, Transfer, release};
use crate::runtime::device::{Adapter, Port};
use crate::runtime::exclusive::Entered;
use crate::runtime::listeners::{Event, Listeners};
use crate::runtime::memory::Registered;
use crate::runtime::messages;
use crate::runtime::token::{self, Face, RecordKind, Tag};
use crate::runtime::variables::now;

// ---- requests -------------------------------------------------------------------------------------------------------

impl Host for State {
    type Data = UserData;

    fn core(&mut self, request: Handle) -> &mut Core {
        self.requests.core(request)
    }

    fn messenger(&mut self) -> &mut messenger::State<State> {
        &mut self.messenger
    }

    fn note(&mut self, receive: Handle, outcome: &Outcome) {
        note(self.requests.get(receive), outcome);
    }

    fn noted(&mut self, receive: Handle) -> ((i32, i32), usize) {
        let status = &self.requests.get(receive).base().req_status;
        ((status.MPI_SOURCE, status.MPI_TAG), status._ucount)
    }

    fn copy(&mut self, send: Handle, receive: Handle) {
        let [from, to] = self.requests.cores([send, receive]);
        if !from.data.copy_to(&mut to.data) {
            note_not_put(self.requests.get(receive));
        }
    }

    fn copy_from_process(&mut self, pml: &Pml, receive: Handle, route: Route, of: (u64, u64)) -> bool {
        peers::copy(pml, self, receive, route, of)
    }

    fn deregister(&mut self, pml: &Pml, rail: usize, registered: Registered) {
        if let Some(rail) = pml.rails().get(rail) {
            // SAFETY: R3: no read of ours is in flight; or the peer has answered the announcement, so it has read the
            // message, or will not read it.
            unsafe { rail.port().memory().put_back(registered) };
        }
    }

    fn cannot_unpack(&mut self, receive: Handle) {
        note_not_put(self.requests.get(receive));
    }

    fn finish(&mut self, request: Handle) {
        finish(self, request);
    }

    #[inline(always)]
    fn finish_with_events(&mut self, listeners: &'static Listeners, receive: Handle) {
        if self.requests.get(receive).shell.owner != Owner::WatchedCall {
            return finish_of_others(self, receive);
        }
        events::raise_to(self, listeners, receive, Event::Complete);
        self.requests.get(receive).set_finished(true);
    }

    /// The job ends once nothing is entered.
    #[cold]
    fn loses_peer(&mut self) {
        self.fails();
    }

    /// The job ends.
    #[cold]
    fn fail(&mut self, _: &Pml, _: Handle, _: Route) {
        self.fails();
    }

    #[cold]
    fn cannot_pack(&mut self, length: usize) {
        fails_for(self, &messages::cannot_pack(length));
    }

    #[cold]
    fn cannot_send(&mut self, _: &Pml, send: Handle, asked: u64) {
        let length = self.core(send).data.length() as u64;
        fails_for(self, &messages::asked_for(asked, length));
    }
}

impl State {
    /// Ends the job, once nothing is entered.
    #[cold]
    pub(crate) fn fails(&mut self) {
        self.has_failed = true;
        self.has_more = true;
    }
}

/// Ends the job for a reason that no port knows. Prints the reason, unless the job ends already.
fn fails_for(state: &mut State, why: &str) {
    if !state.has_failed {
        messages::operation_failed(why);
    }
    state.fails();
}

/// Writes the status of a request.
#[inline]
pub(crate) fn note(request: &mut Request, outcome: &Outcome) {
    let status = &mut request.base().req_status;
    status.MPI_SOURCE = outcome.source;
    status.MPI_TAG = outcome.tag;
    status.MPI_ERROR = if outcome.is_truncated { sys::MPI_ERR_TRUNCATE as i32 } else { sys::OPAL_SUCCESS };
    status._cancelled = 0;
    status._ucount = outcome.length;
}

/// Notes, after [`note`], that data could not be unpacked: Open MPI has no memory for a convertor (for which its own
/// error is `MPI_ERR_INTERN`, too), or the convertor refuses the datatype.
#[cold]
#[inline(never)]
pub(crate) fn note_not_put(request: &mut Request) {
    let error = &mut request.base().req_status.MPI_ERROR;
    // A truncated receive keeps its error: an element that is cut in the middle cannot be unpacked either.
    if *error == sys::OPAL_SUCCESS {
        *error = sys::MPI_ERR_INTERN as i32;
    }
}

/// Finishes a request that has no transfer in progress: wakes its waiter now, or in [`complete_finished`] if it has a
/// callback. Only its owner uses it afterwards (P1).
#[inline]
pub(crate) fn finish(state: &mut State, request: Handle) {
    let r = state.requests.get(request);
    if r.shell.owner == Owner::Call {
        r.set_finished(true);
    } else {
        finish_of_mpi(state, request);
    }
}

/// [`finish`], apart from the code of a watched blocking call.
#[cold]
#[inline(never)]
fn finish_of_others(state: &mut State, request: Handle) {
    finish(state, request);
}

#[inline(never)]
fn finish_of_mpi(state: &mut State, request: Handle) {
    let r = state.requests.get(request);
    debug_assert!(matches!(r.core.transfer, Transfer::None), "nothing is under way");
    // The copy of a buffered send raises no `Complete`: its original has raised it.
    if r.shell.attached.is_none() {
        events::raise(state, request, Event::Complete);
    }
    let r = state.requests.get(request);
    if r.shell.owner == Owner::WatchedCall {
        r.set_finished(true);
        return;
    }
    if let Role::Send(_) = r.core.role {
        // Sets tag and source for sends, too: callbacks of osc/pt2pt find the purpose of a send by its tag.
        let (source, tag, length) = (r.comm().rank(), r.core.tag, r.core.data.length());
        note(r, &Outcome { source, tag, length, is_truncated: false });
    }
    r.shell.attached = None;
    if r.shell.owner == Owner::Mpi && r.base().req_complete_cb.is_none() {
        return Request::complete(request);
    }
    r.shell.next = None;
    state.has_more = true;
    match state.finished.first {
        None => state.finished.first = Some(request),
        Some(_) => _ = state.finished.last.map(|last| state.requests.get(last).shell.next = Some(request)),
    }
    state.finished.last = Some(request);
}

/// Completes the requests on the chain, in order, with nothing entered. A callback may call this again, and wait for
/// those behind it. Before a request with a callback is complete, only the callback may free it; so the request is
/// alive until the callback returns, and afterwards if the callback returned 0.
#[cold]
#[inline(never)]
pub(crate) fn complete_finished(pml: &Pml) {
    loop {
        let Some(mut state) = pml.enter() else { return };
        let Some(request) = state.finished.first else { return };
        let r = state.requests.get(request);
        let (next, owner) = (r.shell.next, r.shell.owner);
        // From here on, freeing the request also gives it back (`module/persistent.rs`).
        r.set_finished(true);
        let callback = r.base().req_complete_cb.take();
        state.finished.first = next;
        if owner == Owner::Nobody {
            give_back(state, request);
            continue;
        }
        drop(state);
        // SAFETY: P1: its status is filled in, and only this callback may free it, and then does not return 0.
        let is_taken = callback.is_some_and(|callback| unsafe { callback(Request::as_raw(request)) } != 0);
        if !is_taken && let Some(mut state) = pml.enter() {
            // A callback that was set for the request's next use: `ibex_request_complete` would call it now.
            let next = state.requests.get(request).base().req_complete_cb.take();
            // The callback returned 0, so it has not freed the request, and no other thread can now.
            Request::complete(request);
            state.requests.get(request).base().req_complete_cb = next;
        }
    }
}

/// Gives a request back that is finished or was never begun, and to which nothing refers any more (P1). Leaves the PML,
/// and then releases the request's communicator and datatype.
#[inline]
pub(crate) fn give_back(mut state: Entered<'_, State>, request: Handle) {
    let r = state.requests.get(request);
    let references = r.take_references();
    r.core.watched.renew(0);
    state.requests.give_back(request);
    drop(state);
    if let Some(references) = references {
        release(references);
    }
}

// ---- ports and memory -----------------------------------------------------------------------------------------------

impl Types for State {
    type Handle = Handle;
    type Process = Pml;
    type Registration = Registered;
    type Envelope = Envelope;
}

impl Process for Pml {
    const TAG: u8 = Tag::PML.0;

    type Adapter = Adapter;
    type Entered<'a> = Entered<'a, Port>;

    #[inline]
    fn rail_count(&self) -> usize {
        self.rails().len()
    }

    #[inline]
    fn rail(&self, rail: usize) -> Option<&host::Rail> {
        self.rails().get(rail).map(|rail| &rail.properties)
    }

    fn eager_limit(&self, route: Route) -> usize {
        if route.as_local().is_some() {
            return self.shared_memory().map_or(0, |shared| shared.eager_limit);
        }
        let rail = if route == Route::LOOPBACK { 0 } else { route.rail() };
        self.rail(rail).map_or(0, |rail| now::eager_limit(rail.copy_size) - MAX_SIZE)
    }

    #[inline]
    fn enter_port(&self, rail: usize) -> Option<Entered<'_, Port>> {
        self.rails().get(rail)?.enter()
    }
}

impl Memory for State {
    type Received<'m> = &'m [u8];

    fn address(&mut self, request: Handle) -> Option<u64> {
        let start = self.requests.core(request).data.extent().start;
        (!start.is_null()).then(|| start.expose_provenance() as u64)
    }

    fn register(
        &mut self,
        pml: &Pml,
        request: Handle,
        rail: usize,
        length: usize,
        access: Access,
    ) -> Option<Registered> {
        let start = self.requests.core(request).data.extent().start;
        let memory = pml.rails().get(rail)?.port().memory();
        let is_read = access.contains(Access::REMOTE_READ);
        let access = if is_read { sys::MCA_RCACHE_ACCESS_REMOTE_READ } else { sys::MCA_RCACHE_ACCESS_LOCAL_WRITE };
        // SAFETY: P2, M3: the memory is mapped until the request is finished, and the engine ends the registration
        // before.
        unsafe { memory.register(start.cast(), length, access) }
    }

    fn rkey(registered: Registered) -> u32 {
        registered.rkey()
    }

    fn target(&mut self, receive: Handle, Part { offset, length }: Part, registered: Registered) -> LocalSpan {
        let start = self.requests.core(receive).data.extent().start.wrapping_add(offset as usize);
        // SAFETY: R3: the part stays registered under this key until the last read completes; R2, P2: until then it
        // belongs to the adapter.
        unsafe { LocalSpan::new(start.expose_provenance() as u64, length, registered.lkey()) }
    }

    #[inline]
    fn inline<R>(&mut self, send: Handle, post: impl FnOnce(InlineSpan<'_>) -> R) -> Option<R> {
        let extent = self.requests.core(send).data.extent();
        (!extent.start.is_null()).then(|| post(extent.span()))
    }

    #[inline]
    fn fill<R>(&mut self, send: Handle, buffer: LocalSpan, fill: impl FnOnce(&mut UserData, &mut [u8]) -> R) -> R {
        // SAFETY: R1, R2: the port's memory, which only the PML uses, once at a time (P3).
        fill(&mut self.requests.core(send).data, unsafe { buffer.bytes_mut() })
    }

    fn copy_of(&mut self, buffer: LocalSpan) -> Vec<u8> {
        // SAFETY: R1, R2: the port's memory, which only the PML uses, once at a time (P3).
        unsafe { buffer.bytes_mut() }.to_vec()
    }

    #[inline(always)]
    fn received<'m>(&mut self, message: &'m ReceivedMessage) -> &'m [u8] {
        let start = std::ptr::with_exposed_provenance(message.address() as usize);
        // SAFETY: R1, R2: only a port makes a `ReceivedMessage`, for a slot that the adapter has filled, and lends it
        // until it posts the slot again.
        unsafe { std::slice::from_raw_parts(start, message.length() as usize) }
    }

    #[inline]
    fn token(record: Record<Handle>) -> Token {
        match record {
            Record::Buffer(BufferId(index)) => BUFFER.indexed(index),
            Record::Turn => BUFFER.indexed(BufferId::NONE.0),
            Record::Read(request) => REQUEST.token(request.pointer().as_ptr(), READ),
            Record::Sent(request) => REQUEST.token(request.pointer().as_ptr(), SENT),
        }
    }

    #[inline]
    fn record_of(token: Token) -> Option<Record<Handle>> {
        match RecordKind::of(token) {
            BUFFER => Some(match BufferId(token::index(token)) {
                BufferId::NONE => Record::Turn,
                buffer => Record::Buffer(buffer),
            }),
            REQUEST => {
                // SAFETY: P1: only handles become tokens of this kind, and the port has returned this one.
                let request = unsafe { Handle::new(token::record(token)?) };
                Some(if token::number(token) == SENT { Record::Sent(request) } else { Record::Read(request) })
            }
            _ => None,
        }
    }
}

const BUFFER: RecordKind = RecordKind::new(Face::Pml, 0);
const REQUEST: RecordKind = RecordKind::new(Face::Pml, 1);

/// Numbers in the tokens of a request: its message is read, or is sent without a buffer.
const READ: u16 = 0;
const SENT: u16 = 1;

/// Returns the send buffer that a token stands for; [`BufferId::NONE`] for a turn. Cheaper than [`Memory::record_of`].
#[inline]
pub(crate) fn as_buffer(token: Token) -> Option<BufferId> {
    if RecordKind::of(token) == BUFFER { Some(BufferId(token::index(token))) } else { None }
}
