// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress: takes what has happened on each rail and deals with it; tells Open MPI of it when nothing is entered any more.
//!
//! [`poll`] takes a batch of events and deals with all the PML's in order, inside; so messages keep their order though
//! Open MPI's callbacks come back here. [`leave`] gives up the right to the PML and does what had to wait for that: callbacks,
//! events of another face, the end of the job. A blocking call polls here first, and lets Open MPI's progress engine go on
//! every so often ([`Idle`]). Grade: hot. Threads: any; one polls at a time.

use std::ffi::c_int;
use std::ptr::NonNull;

use engine::events;
use engine::transport::{Arrived, Batch, Completion, EndpointId, Failed, Polled, Port, TakesMessages, Token};
use ibex_ffi::openmpi::sys;

use super::buffer::{Content, SendBuffer};
use super::finish;
use super::incoming::{self, Incoming};
use super::instance::{Pml, Rail, State, pml};
use super::token::{self, Record};
use super::{pieces, reading, resume, transmit};
use crate::runtime::exclusive::Entered;
use crate::runtime::face::Face;
use crate::runtime::failures;
use crate::runtime::guard::{self, fence};
use crate::runtime::progress::{self as faces, Functions};
use crate::runtime::tag::Tag;
use crate::runtime::token::RecordKind;
use crate::runtime::watch::SAFETY;

/// `pml_progress`. Returns the number of events.
pub(crate) unsafe extern "C" fn pml_progress() -> c_int {
    fence("pml_progress", 0, || {
        if guard::broken() {
            // Said already. Nothing is trusted any more, and who waits would wait for ever.
            // SAFETY: ends the process.
            unsafe { sys::ibex_abort(1) };
        }
        if !events::is_idle() {
            show();
        }
        pml().map_or(0, round)
    })
}

/// A tool listens, perhaps to the other face: what it is to be told is delivered.
#[cold]
#[inline(never)]
fn show() {
    faces::show_arrived();
    events::deliver_due(SAFETY);
    events::progress(SAFETY);
}

/// One round of progress.
fn round(pml: &Pml) -> c_int {
    let Some(mut state) = pml.try_enter() else { return 0 };
    let count = poll(pml, &mut state);
    leave(pml, state);
    count as c_int
}

/// Takes what has happened on every rail. Returns how many events there were.
#[inline(never)]
pub(crate) fn poll(pml: &Pml, state: &mut State) -> usize {
    poll_here(pml, state)
}

/// As [`poll`], made a part of its caller: a blocking receive.
#[inline(always)]
pub(crate) fn poll_here(pml: &Pml, state: &mut State) -> usize {
    match pml.only_rail() {
        Some(rail) => poll_rail(pml, state, 0, rail),
        None => poll_several(pml, state),
    }
}

#[inline(never)]
fn poll_several(pml: &Pml, state: &mut State) -> usize {
    pml.rails().iter().enumerate().map(|(index, rail)| poll_rail(pml, state, index, rail)).sum()
}

/// Takes what has happened on one rail. Whole messages that meet their receive are dealt with where the port finds them.
#[inline(always)]
fn poll_rail(pml: &Pml, state: &mut State, index: usize, rail: &Rail) -> usize {
    let Some(mut port) = rail.try_enter() else { return 0 };
    // SAFETY: the PML is entered, and nothing that is called with it from here uses the batch.
    let batch = unsafe { rail.batch() };
    let Polled { taken, reported } = port.poll_direct(batch, Receiver(state));
    if reported > 0 {
        handle_all(pml, state, (index, rail), port, batch);
    }
    taken + reported
}

/// Takes whole messages that meet their receive where the port finds them.
struct Receiver<'a>(&'a mut State);

impl TakesMessages for Receiver<'_> {
    #[inline(always)]
    fn takes(&mut self, arrived: Arrived) -> bool {
        // SAFETY: the bytes are in a receive slot that is not posted before the poll returns (R2).
        unsafe { incoming::is_taken(self.0, arrived) }
    }
}

/// Deals with what a port reports. A batch with something for another face is handed on, and replaced.
#[cold]
#[inline(never)]
fn handle_all(
    pml: &Pml,
    state: &mut State,
    (index, rail): (usize, &Rail),
    port: Entered<'_, Port>,
    batch: &mut Box<Batch>,
) {
    let is_short = port.is_short_of_receives();
    drop(port);
    let mut is_for_others = false;
    for completion in batch.completions() {
        is_for_others |= !handle_own(pml, state, index, completion);
    }
    if is_for_others {
        state.handed_on.push((index, std::mem::take(batch)));
        state.has_more = true;
    } else if is_short && let Some(mut port) = rail.enter() {
        port.release(batch);
    }
}

/// Deals with a completion that is the PML's. False: it is, or is as well, another face's.
#[inline(always)]
fn handle_own(pml: &Pml, state: &mut State, rail: usize, completion: &Completion) -> bool {
    match *completion {
        Completion::Message { addr, len, immediate, qp_num, .. } => {
            let tag = Tag(immediate.tag());
            if tag.face() != Face::Pml {
                return false;
            }
            let start = std::ptr::with_exposed_provenance(addr as usize);
            let incoming = Incoming { start, length: len as usize, rail, immediate, qp_num };
            // SAFETY: the bytes are in a receive slot that is not posted before the batch is released (R2).
            unsafe { incoming::message(pml, state, incoming) };
            true
        }
        Completion::Request { token, to, outcome } => handle_request(pml, state, rail, token, to, outcome),
        Completion::PeerFailed { .. } => {
            transmit::failed(state);
            false
        }
        Completion::LinkChanged { .. } => false,
    }
}

#[inline(never)]
fn handle_request(
    pml: &Pml,
    state: &mut State,
    rail: usize,
    token: Token,
    _to: EndpointId,
    outcome: Result<(), Failed>,
) -> bool {
    if RecordKind::of(token).face() != Face::Pml {
        return false;
    }
    match token::record(token) {
        // SAFETY: the engine gives a token back once, and it was one of the PML's.
        Some(Record::Buffer(buffer)) => unsafe { sent(pml, state, rail, buffer, outcome) },
        Some(Record::Read(request)) => {
            // SAFETY: as above.
            unsafe { reading::read_done(pml, state, request, outcome) };
        }
        Some(Record::Sent(request)) if outcome.is_ok() => {
            // SAFETY: as above, of a send whose whole message it was.
            unsafe { resume::message_sent(pml, state, request) };
        }
        Some(Record::Sent(_)) => _ = transmit::failed(state),
        None => {}
    }
    true
}

/// The adapter is through with a buffer.
///
/// # Safety
/// It is one of the PML's, of this rail, and was sent.
unsafe fn sent(pml: &Pml, state: &mut State, rail: usize, buffer: NonNull<SendBuffer>, outcome: Result<(), Failed>) {
    // SAFETY: this function's rule.
    let content = unsafe { (*buffer.as_ptr()).content };
    // SAFETY: as above.
    unsafe { state.buffers[rail].give_back(buffer) };
    if outcome.is_err() {
        transmit::failed(state);
        return;
    }
    match content {
        Content::Silent => {}
        // SAFETY: a send whose whole message it was.
        Content::Message(request) => unsafe { resume::message_sent(pml, state, request) },
        // SAFETY: a piece of this request's.
        Content::Piece(request) => unsafe { pieces::piece_done(pml, state, request) },
    }
}

/// Gives up the right to the PML, and does what had to wait for that.
#[inline]
pub(crate) fn leave(pml: &Pml, state: Entered<'_, State>) {
    if state.has_more {
        leave_for_more(pml, state);
    }
}

#[cold]
#[inline(never)]
fn leave_for_more(pml: &Pml, mut state: Entered<'_, State>) {
    state.has_more = false;
    let handed_on = std::mem::take(&mut state.handed_on);
    let has_failed = state.has_failed;
    drop(state);
    after(pml, handed_on, has_failed);
}

#[cold]
#[inline(never)]
fn after(pml: &Pml, handed_on: Vec<(usize, Box<Batch>)>, has_failed: bool) {
    if has_failed {
        end_job(pml);
    }
    for (rail, mut batch) in handed_on {
        let rail = &pml.rails()[rail];
        for (index, completion) in batch.completions().iter().enumerate() {
            hand_on(rail.port().index(), &batch, index, completion);
        }
        if let Some(mut port) = rail.enter() {
            port.release(&mut batch);
        }
    }
    finish::tell(pml);
}

/// Gives a completion to the face that it is for.
fn hand_on(port: u8, batch: &Batch, index: usize, completion: &Completion) {
    let face = match *completion {
        Completion::Message { immediate, .. } => Tag(immediate.tag()).face(),
        Completion::Request { token, .. } => RecordKind::of(token).face(),
        Completion::PeerFailed { .. } | Completion::LinkChanged { .. } => {
            // SAFETY: polled by the PML, which has dealt with it.
            return unsafe { faces::tell_others(Face::Pml, port, batch, index) };
        }
    };
    if face != Face::Pml {
        // SAFETY: polled by the PML, and no face has dealt with it.
        unsafe { faces::hand_on(face, port, batch, index) };
    }
}

/// A peer is lost: says why, and ends the job, as MPI has no other way.
#[cold]
fn end_job(pml: &Pml) {
    for rail in pml.rails() {
        if let Some(mut port) = rail.enter() {
            failures::tell(&mut port);
        }
    }
    // SAFETY: ends the process.
    unsafe { sys::ibex_abort(1) };
}

/// Says what the PML does with what another face has polled.
pub(crate) fn fill_in() {
    let poll: Option<fn() -> c_int> = Some(|| pml().map_or(0, round));
    faces::fill_in(Face::Pml, Functions { handle, show_arrived: || {}, poll, is_polled_for: |_| {} });
}

/// Handles a completion that another face has polled.
///
/// # Safety
/// That of [`faces::hand_on`].
unsafe fn handle(port: u8, batch: &Batch, index: usize) {
    let (Some(completion), Some(pml)) = (batch.completions().get(index), pml()) else { return };
    let Some(rail) = pml.rails().iter().position(|rail| rail.port().index() == port) else { return };
    // Another thread may be inside; this one is not, as nothing is called from there.
    let Some(mut state) = pml.enter() else { return };
    handle_own(pml, &mut state, rail, completion);
    leave(pml, state);
}

/// When a call that waits lets Open MPI's own progress engine go on.
pub(crate) struct Idle {
    rounds: u32,
}

/// Rounds in which nothing happened, between two calls of Open MPI's.
const ROUNDS: u32 = 100;

impl Idle {
    pub(crate) const fn new() -> Self {
        Idle { rounds: 0 }
    }

    /// Nothing has happened in a round, and nothing is entered.
    #[inline]
    pub(crate) fn nothing_happened(&mut self) {
        self.rounds += 1;
        // SAFETY: a flag that Open MPI sets while it is initialised.
        let yields = unsafe { (&raw const sys::opal_progress_yield_when_idle).read() };
        if yields || self.rounds >= ROUNDS {
            self.rounds = 0;
            // SAFETY: nothing is entered.
            unsafe { sys::opal_progress() };
        }
    }
}

/// Makes progress until this holds. Nothing is entered.
pub(crate) fn until(pml: &Pml, mut holds: impl FnMut() -> bool) {
    let mut idle = Idle::new();
    while !holds() {
        let Some(mut state) = pml.enter() else { return };
        let count = poll(pml, &mut state);
        leave(pml, state);
        if count == 0 {
            idle.nothing_happened();
        }
    }
}
