// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress: polls shared memory and the rails, and hands what they report to the messenger.
//!
//! Whole messages with a posted receive are delivered in place, while their port is entered ([`Receiver`]); all others
//! after the poll, in order of arrival, with the PML entered, so messages keep their order although Open MPI's
//! callbacks may poll again. Called by Open MPI ([`pml_progress`]), blocking calls ([`until`]), and the BTL's waits
//! ([`begin`]). Grade: hot. Threads: any; one polls at a time. Tests: `pml/tests.rs`, and the MPI programs of
//! `hw-tests`.

use std::ffi::c_int;
use std::hint::cold_path;

use engine::events;
use engine::messenger::events::Completed;
use engine::messenger::host::Memory;
use engine::messenger::rails::completions::{self, ByRail};
use engine::messenger::receive::search::{self, Deferred};
use engine::messenger::route::Route;
use engine::transport::{Arrived, Completion, Polled, TakesMessages, TakesRequests, Token};
use ibex_ffi::openmpi::sys;

use super::communicator::Communicator;
use super::instance::{Pml, Rail, State, pml};
use super::leave::{leave, leave_call};
use super::ports::{local, memory};
use crate::runtime::device::Port;
use crate::runtime::exclusive::Entered;
use crate::runtime::frame::Frame;
use crate::runtime::guard::{self, fence};
pub(crate) use crate::runtime::idle::Idle;
use crate::runtime::poller;
use crate::runtime::token::{Face, Tag};
use crate::runtime::watch::SAFETY;

/// `pml_progress`. Returns the number of events.
pub(crate) extern "C" fn pml_progress() -> c_int {
    fence("pml_progress", 0, || {
        if guard::broken() {
            // After a panic, which was reported, other processes would wait for this one for ever.
            // SAFETY: ends the process.
            unsafe { sys::ibex_abort(1) };
        }
        if !events::is_idle() {
            show();
        }
        let Some(pml) = pml() else { return 0 };
        if pml.has_one_rail() {
            poller::note_poll();
        }
        let Some(mut state) = pml.try_enter() else { return 0 };
        let count = poll(pml, &mut state);
        leave(pml, state);
        count as c_int
    })
}

#[cold]
#[inline(never)]
fn show() {
    poller::watch_polls();
    events::deliver_due(SAFETY);
    events::progress(SAFETY);
}

/// Takes one batch of completions from each rail. Returns their number.
#[inline(never)]
pub(crate) fn poll(pml: &Pml, state: &mut State) -> usize {
    poll_here::<false>(pml, state)
}

/// [`poll`] of one batch, inlined into its callers. `TOLD`: in a blocking receive while a tool listens.
#[inline(always)]
pub(crate) fn poll_here<const TOLD: bool>(pml: &Pml, state: &mut State) -> usize {
    if let Some(rail) = pml.only_rail() {
        poll_rail::<false, TOLD, false>(pml, state, 0, rail)
    } else {
        cold_path();
        pml.poll_more()(pml, state)
    }
}

/// Polls shared memory and all rails; if `WATCHED`, with the adapters' timestamps of completions.
pub(crate) fn poll_more<const WATCHED: bool>(pml: &Pml, state: &mut State) -> usize {
    if WATCHED && events::is_idle() {
        watch_polls(false);
    }
    let mut count = 0;
    if let Some(shared) = pml.shared_memory() {
        count = local::poll(pml, state, shared);
        if count > 0 {
            state.has_more |= state.busy.polled(1);
        }
        if !state.quiet.are_due() {
            return count;
        }
    }
    let of_rails = match pml.rails() {
        [only] => poll_rail::<false, false, WATCHED>(pml, state, 0, only),
        rails => {
            let each = rails.iter().enumerate();
            each.map(|(index, rail)| poll_rail::<true, false, WATCHED>(pml, state, index, rail)).sum()
        }
    };
    state.quiet.have_reported(of_rails);
    poller::note_poll();
    count + of_rails
}

/// Selects the polls that ask for timestamps, while a tool listens, or the others.
fn watch_polls(are_watched: bool) {
    if let Some(pml) = pml() {
        let poll = if are_watched { poll_more::<true> } else { poll_more::<false> };
        pml.poll_by(poll, are_watched);
    }
}

/// Takes a batch of one rail. Delivers whole messages with a posted receive in place; if `TOLD`, delivers a message
/// that raises events after it has left the port.
#[inline(always)]
fn poll_rail<const MULTI_RAIL: bool, const TOLD: bool, const WATCHED: bool>(
    pml: &Pml,
    state: &mut State,
    index: usize,
    rail: &Rail,
) -> usize {
    let Some(mut port) = rail.try_enter() else { return 0 };
    // SAFETY: P3: the PML is entered, and no function that is called from here with it uses the frame.
    let frame = unsafe { rail.frame() };
    let mut deferred = None;
    let receiver = Receiver::<MULTI_RAIL, TOLD> { state, rail: index, deferred: &mut deferred };
    let Polled { taken: done, reported } = if WATCHED {
        port.poll_direct_watched(&mut frame.batch, receiver)
    } else {
        port.poll_direct(&mut frame.batch, receiver)
    };
    if TOLD && let Some(deferred) = &deferred {
        drop(port);
        search::deliver(pml, state, deferred);
        if reported == 0 {
            return done;
        }
        port = rail.enter().expect("it was left here");
    }
    if reported > 0 {
        handle_all::<WATCHED>(pml, state, (index, rail), port, frame);
    }
    done + reported
}

/// Approximate number of polls of a busy port between two checks of its connections.
const BETWEEN_LOOKS: u32 = 256;

/// Delivers whole messages that have a posted receive while the port polls.
struct Receiver<'a, const MULTI_RAIL: bool, const TOLD: bool> {
    state: &'a mut State,
    rail: usize,
    deferred: &'a mut Option<Deferred<&'static Communicator>>,
}

impl<const MULTI_RAIL: bool, const TOLD: bool> TakesMessages for Receiver<'_, MULTI_RAIL, TOLD> {
    type Requests = State;

    #[inline(always)]
    fn requests(&mut self) -> &mut State {
        self.state
    }

    #[inline(always)]
    fn takes(&mut self, arrived: Arrived) -> bool {
        if MULTI_RAIL && !self.state.messenger.rails.multi_rail.may_be_taken(self.rail, arrived.immediate.endpoint()) {
            return false;
        }
        if arrived.immediate.tag() != Tag::PML.0 {
            return false;
        }
        // SAFETY: R1, R2: the adapter has filled the slot, which is posted again only after the poll has returned.
        let bytes = unsafe { received(arrived.addr, arrived.len) };
        let deferred = if TOLD { Some(&mut *self.deferred) } else { None };
        let is_taken = search::is_taken(self.state, bytes, deferred);
        if MULTI_RAIL && is_taken {
            self.state.messenger.rails.multi_rail.count(self.rail, arrived.immediate.endpoint());
        }
        is_taken
    }

    #[cold]
    fn is_busy(&mut self) {
        self.state.has_more |= self.state.busy.polled(BETWEEN_LOOKS);
    }
}

/// Returns the bytes of a message in its receive slot.
///
/// # Safety
/// R1, R2: the adapter has filled the slot, which is not posted again while the bytes are used.
#[inline(always)]
unsafe fn received<'a>(addr: u64, len: u32) -> &'a [u8] {
    // SAFETY: R1, R2: as this function requires.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(addr as usize), len as usize) }
}

/// Takes completions in place: those of the BTL's operations and, with one rail, of the PML's silent send buffers.
impl TakesRequests for State {
    #[inline(always)]
    fn takes_request(&mut self, token: Token) -> bool {
        if let (Some(buffer), [buffers]) = (memory::as_buffer(token), &mut *self.messenger.rails.buffers) {
            return buffers.give_back_silent(buffer);
        }
        let is_taken = self.operations.takes_request(token);
        self.has_more |= is_taken;
        is_taken
    }
}

/// Handles a port's completions. Keeps a frame with some for the BTL until [`leave`], and puts another in its place.
#[cold]
#[inline(never)]
fn handle_all<const WATCHED: bool>(
    pml: &Pml,
    state: &mut State,
    (index, rail): (usize, &Rail),
    port: Entered<'_, Port>,
    frame: &mut Box<Frame>,
) {
    let is_short = port.is_short_of_receives();
    let source = if WATCHED { port.source() } else { None };
    // No other thread polls while this one has entered the PML, but one may deliver events.
    let begin = || source.and_then(|source| Some((source, events::begin_batch(source)?)));
    let mut polled = if WATCHED && pml.has_threads() { begin() } else { None };
    drop(port);
    let mut is_for_btl = false;
    for (place, completion) in frame.batch.completions().iter().enumerate() {
        if WATCHED {
            let stamp = source.zip(frame.batch.stamp(place));
            state.messenger.completed = Some(Completed { port: rail.port().index(), stamp });
        }
        if !handle_own(pml, state, index, completion) {
            // The BTL raises its events after the PML was left: those of later completions wait for them.
            polled = polled.or_else(begin);
            is_for_btl = true;
        }
    }
    if WATCHED {
        state.messenger.completed = None;
    }
    if is_for_btl {
        frame.polled = polled;
        frame.rail = index;
        let empty = state.frames.take();
        state.for_btl.push(std::mem::replace(frame, empty));
        state.has_more = true;
        return;
    }
    if let Some((source, batch)) = polled {
        events::end_batch(source, batch);
    }
    if is_short && let Some(mut port) = rail.enter() {
        port.release(&mut frame.batch);
    }
}

/// Handles a completion. Returns false if the BTL must handle it, instead of the PML or as well.
#[inline(always)]
fn handle_own(pml: &Pml, state: &mut State, rail: usize, completion: &Completion) -> bool {
    match *completion {
        Completion::Message { addr, len, immediate, qp_num, .. } => {
            let tag = Tag(immediate.tag());
            if tag.face() != Face::Pml {
                return false;
            }
            // SAFETY: R1, R2: the adapter has filled the slot, which is posted again only after the batch is released.
            let bytes = unsafe { received(addr, len) };
            completions::message(pml, state, bytes, ByRail { rail, immediate, qp_num });
            true
        }
        Completion::Request { token, to, outcome } => {
            let Some(record) = State::record_of(token) else { return false };
            completions::request(pml, state, (rail, to), record, outcome);
            true
        }
        Completion::PeerFailed { peer } => {
            completions::peer_failed(pml, state, Route::new(rail, peer));
            false
        }
        Completion::LinkChanged { is_up } => {
            completions::link_changed(pml, state, rail, is_up);
            false
        }
    }
}

/// Polls until the request of a blocking call is finished; leaves the PML between the rounds.
#[inline(always)]
pub(crate) fn until<'pml>(
    pml: &'pml Pml,
    mut state: Entered<'pml, State>,
    is_finished: impl Fn(&mut State) -> bool,
    poll: impl Fn(&Pml, &mut State) -> usize,
) -> Entered<'pml, State> {
    let mut idle = Idle::new();
    loop {
        let count = poll(pml, &mut state);
        if is_finished(&mut state) {
            return state;
        }
        leave_call(pml, state);
        if count == 0 {
            idle.nothing_happened();
        }
        // This call had entered the PML, so no call above it on the stack has.
        state = pml.enter().expect("nothing calls back from inside");
        if is_finished(&mut state) {
            return state;
        }
    }
}

/// Makes the PML poll for the BTL as well.
pub(crate) fn begin() {
    let poll = || {
        let Some(pml) = pml() else { return 0 };
        let Some(mut state) = pml.try_enter() else { return 0 };
        // The caller waits for a rail, so rails are polled even if shared memory is busy.
        state.quiet.have_reported(1);
        let count = poll_here::<false>(pml, &mut state);
        leave(pml, state);
        count as c_int
    };
    poller::set_pml(poller::Pml { poll, watch_polls: || watch_polls(true) });
}
