// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress: polls shared memory and the rails, and hands what they report to the messenger; and leaves the PML, after
//! which callbacks run, frames go to the BTL, and the job ends if it must.
//!
//! Whole messages with a posted receive are delivered in place, while their port is entered; all others after the
//! poll, in order of arrival, with the PML entered, so messages keep their order although callbacks may poll again.
//! Called by Open MPI ([`pml_progress`]), blocking calls ([`until`]), the BTL's waits ([`begin`]), and by all that has
//! entered the PML ([`leave`]). Grade: hot. Threads: any; one polls at a time. Tests: `pml/tests`, and the MPI
//! programs of `hw-tests`.

use std::ffi::c_int;
use std::hint::cold_path;

use engine::events;
use engine::messenger::events::Completed;
use engine::messenger::rails::completions::{self, Receiver};
use engine::messenger::receive::search;
use engine::messenger::send;
use engine::transport::{Polled, TakesRequests, Token};

use super::host;
use super::instance::{Pml, Rail, State, pml};
use super::peers;
use crate::runtime::device::Port;
use crate::runtime::exclusive::Entered;
use crate::runtime::frame::Frame;
use crate::runtime::guard::{self, fence};
pub(crate) use crate::runtime::idle::Idle;
use crate::runtime::watch::SAFETY;
use crate::runtime::{failures, libmpi, poller};

/// `pml_progress`. Returns the number of events.
pub(crate) extern "C" fn pml_progress() -> c_int {
    fence("pml_progress", 0, || {
        if guard::broken() {
            // After a panic, which was reported, other processes would wait for this one for ever.
            libmpi::abort();
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

/// Makes the PML poll for the BTL as well.
pub(crate) fn begin() {
    let poll = || {
        let Some(pml) = pml() else { return 0 };
        let Some(mut state) = pml.try_enter() else { return 0 };
        // The caller waits for a rail, so rails are polled even if shared memory is busy.
        state.poll_interval.note_events(1);
        let count = poll_here::<false>(pml, &mut state);
        leave(pml, state);
        count as c_int
    };
    poller::set_pml(poller::Pml { poll, watch_polls: || watch_polls(true) });
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

// ---- polls ----------------------------------------------------------------------------------------------------------

/// Takes one batch of completions from each rail. Returns their number.
#[inline(never)]
pub(crate) fn poll(pml: &Pml, state: &mut State) -> usize {
    poll_here::<false>(pml, state)
}

/// [`poll`], inlined into its callers. `EVENTS`: in a blocking receive while a tool listens.
#[inline(always)]
pub(crate) fn poll_here<const EVENTS: bool>(pml: &Pml, state: &mut State) -> usize {
    if let Some(rail) = pml.only_rail() {
        poll_rail::<false, EVENTS, false>(pml, state, 0, rail)
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
        count = peers::poll_shared_memory(pml, state, shared);
        if count > 0 {
            state.has_more |= state.busy.polled(1);
        }
        if !state.poll_interval.is_due() {
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
    state.poll_interval.note_events(of_rails);
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

/// Takes a batch of one rail. Delivers whole messages with a posted receive in place; if `EVENTS`, delivers a message
/// that raises events after it has left the port.
#[inline(always)]
fn poll_rail<const MULTI_RAIL: bool, const EVENTS: bool, const WATCHED: bool>(
    pml: &Pml,
    state: &mut State,
    index: usize,
    rail: &Rail,
) -> usize {
    let Some(mut port) = rail.try_enter() else { return 0 };
    // SAFETY: P3: the PML is entered, and no function that is called from here with it uses the frame.
    let frame = unsafe { rail.frame() };
    let mut deferred = None;
    let receiver = Receiver::<_, MULTI_RAIL>::new(state, index, if EVENTS { Some(&mut deferred) } else { None });
    let Polled { taken: done, reported } = if WATCHED {
        port.poll_direct_watched(&mut frame.batch, receiver)
    } else {
        port.poll_direct(&mut frame.batch, receiver)
    };
    if EVENTS && let Some(deferred) = &deferred {
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

/// Takes completions in place: those of the BTL's operations and, with one rail, of the PML's silent send buffers.
impl TakesRequests for State {
    #[inline(always)]
    fn takes_request(&mut self, token: Token) -> bool {
        if let (Some(buffer), [buffers]) = (host::as_buffer(token), &mut *self.messenger.rails.buffers) {
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
        if !completions::handle(pml, state, index, completion) {
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

// ---- leaving --------------------------------------------------------------------------------------------------------

/// Sends messages whose turn it is, and leaves the PML; then calls callbacks, passes frames to the BTL, and ends the
/// job if it must.
#[inline]
pub(crate) fn leave(pml: &Pml, state: Entered<'_, State>) {
    if state.has_more {
        leave_for_more(pml, state);
    }
}

/// [`leave`] for a blocking call. Also calls Open MPI's progress if it is due after many successful polls.
#[inline]
pub(crate) fn leave_call(pml: &Pml, state: Entered<'_, State>) {
    if state.has_more {
        leave_call_for_more(pml, state);
    }
}

#[cold]
#[inline(never)]
fn leave_call_for_more(pml: &Pml, mut state: Entered<'_, State>) {
    let is_due = state.busy.take_due();
    leave_for_more(pml, state);
    if is_due {
        libmpi::progress();
    }
}

#[cold]
#[inline(never)]
fn leave_for_more(pml: &Pml, mut state: Entered<'_, State>) {
    if !state.messenger.flow.turns.is_empty() {
        send::in_turns(pml, &mut *state, |state| {
            state.poll_interval.note_events(1);
            poll_here::<false>(pml, state);
        });
    }
    state.has_more = false;
    let (for_btl, operations, has_failed) = (state.for_btl.take_all(), state.operations.take(), state.has_failed);
    let mut has_finished = state.finished.first.is_some();
    drop(state);
    if has_failed {
        end_job(pml);
    }
    if !operations.is_empty() {
        poller::operations_done(operations);
    }
    for mut frame in for_btl {
        deliver(pml, &mut frame);
        if let Some(mut state) = pml.enter() {
            state.frames.give_back_released(frame);
            has_finished |= state.finished.first.is_some();
        }
    }
    if has_finished {
        host::complete_finished(pml);
    }
}

fn deliver(pml: &Pml, frame: &mut Frame) {
    let rail = &pml.rails()[frame.rail];
    poller::deliver(rail.port().index(), frame);
    if let Some((source, polled)) = frame.polled.take() {
        events::end_batch(source, polled);
    }
    if !frame.batch.clear_of_requests()
        && let Some(mut port) = rail.enter()
    {
        port.release(&mut frame.batch);
    }
}

/// Ends the job, because MPI has no other way to report a lost peer. Prints the reason, unless it was printed.
#[cold]
fn end_job(pml: &Pml) {
    for rail in pml.rails() {
        if let Some(mut port) = rail.enter() {
            failures::print_reasons(&mut port);
        }
    }
    libmpi::abort();
}
