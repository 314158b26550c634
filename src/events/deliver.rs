// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delivering later: what waits in threads, in ports' sources and in buffers, what was lost, and who is on the way out.
//!
//! Called from progress, where no lock is held ([`progress`]): one load and one branch while there is nothing to do. Buffers are
//! emptied by one thread at a time, so that callbacks that are not thread-safe may run.
//!
//! Path: hot where events flow: no allocation; the registry's lock is taken for a moment, never while a callback runs. Threads:
//! any. Tests: `tests/buffers.rs`, `tests/free.rs`, `tests/ports.rs`.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::attention::{self, CROWDED, FOLLOWING, LEAVING, PORTS, RINGS};
use super::clock::HostClock;
use super::handle::{Audience, Handle};
use super::port::{PortSource, Taken};
use super::registry::{self, Entry, Leaving};
use super::row::Safety;
use super::source::{self, Later, SourceId};
use super::thread::{self, Inside, Thread};

/// The ports' sources that hold events, a bit each.
static HOLDING: AtomicU64 = AtomicU64::new(0);

/// The ports' sources whose clocks must be followed, a bit each.
static FOLLOWED: AtomicU64 = AtomicU64::new(0);

/// Whether a thread empties buffers.
static EMPTYING: AtomicBool = AtomicBool::new(false);

/// With which registration to begin, so that none is always last.
static FIRST: AtomicUsize = AtomicUsize::new(0);

/// How long [`catch_up`] takes at most: longer than events are held.
const CATCH_UP_NS: u64 = 200_000;

/// See [`is_turn`].
const LOOK: usize = 16;

/// How often [`progress`] was called, after polls of all ports; of several threads that do at once not all are counted.
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// How many events [`progress`] delivers at most from buffers.
const BUDGET: usize = 1024;

#[inline]
pub(super) fn flag_port(source: SourceId, is_crowded: bool) {
    HOLDING.fetch_or(1 << source.index(), Ordering::SeqCst);
    attention::flag(PORTS);
    if is_crowded {
        attention::flag(CROWDED);
    }
}

/// A port is open whose clock must be followed while somebody listens.
pub(super) fn follow(source: SourceId) {
    FOLLOWED.fetch_or(1 << source.index(), Ordering::SeqCst);
    attend();
}

/// It is closed.
pub(super) fn unfollow(source: SourceId) {
    FOLLOWED.fetch_and(!(1 << source.index()), Ordering::SeqCst);
}

/// Somebody listens, maybe the first.
pub(super) fn attend() {
    if FOLLOWED.load(Ordering::SeqCst) != 0 {
        attention::flag(FOLLOWING);
    }
}

/// Nobody listens any more, unless somebody just began to.
#[cold]
fn rest() {
    attention::unflag(FOLLOWING);
    if attention::is_any_active() {
        attend();
    }
}

/// Delivers what waits, if anything does. Callbacks run here: the caller holds no lock that a call of ibex from within one could
/// need. `context` says what they must be fit for.
#[inline]
pub fn progress(context: Safety) {
    if attention::is_work() && (is_turn() || attention::is_pressing()) {
        deliver(BUDGET, context);
    }
}

/// Delivers what threads and ports hold as far as its turn has come, and leaves buffers and losses to [`progress`]: before a poll, so that
/// what the poll before has seen is shown then, and neither before who waits for it goes on nor much later. Otherwise as [`progress`].
#[inline]
pub fn show(context: Safety) {
    if attention::is_holding() {
        show_now(context);
    }
}

/// [`show`] behind its branch.
#[cold]
#[inline(never)]
fn show_now(context: Safety) {
    thread::with(&mut (), |thread, ()| {
        if thread.is_busy() {
            return;
        }
        {
            let mut inside = Inside::new(thread);
            inside.run_staged();
            if attention::is_flagged(PORTS) {
                pump(&mut inside, context);
            }
        }
        if attention::is_leaving() {
            settle_in(thread, context);
        }
    });
}

/// The clocks of ports are followed, which must be done now and then: in one of so many calls.
fn is_turn() -> bool {
    let calls = CALLS.load(Ordering::Relaxed).wrapping_add(1);
    CALLS.store(calls, Ordering::Relaxed);
    calls.is_multiple_of(LOOK)
}

/// Delivers what waits: all of this thread and of the ports, and up to `budget` events from buffers. From within a callback it
/// does nothing. Otherwise as [`progress`].
#[cold]
pub fn deliver(budget: usize, context: Safety) {
    deliver_counted(budget, context);
}

/// [`deliver`]; returns how many events came from buffers.
pub(super) fn deliver_counted(budget: usize, context: Safety) -> usize {
    thread::with(&mut (), |thread, ()| {
        if thread.is_busy() {
            return 0;
        }
        let count = {
            let mut inside = Inside::new(thread);
            inside.run_staged();
            pump(&mut inside, context);
            empty(&mut inside, budget, context)
        };
        settle_in(thread, context);
        count
    })
}

/// This thread has polled completions of a port, of which events are yet to be raised: until they are [`shown`], what is later waits.
/// To be called before another thread polls the same queue. `None` for what is no port's source.
#[inline]
#[must_use]
pub fn taken(source: SourceId) -> Option<Taken> {
    source.source().port().map(PortSource::taken)
}

/// All events of what was [`taken`] are raised.
#[inline]
pub fn shown(source: SourceId, taken: Taken) {
    if let Some(port) = source.source().port() {
        port.shown(taken);
    }
}

/// Delivers what waits in this thread and what the ports' sources hold, waiting until its turn has come: for who is about to stop
/// listening, so that what has happened is shown. Takes a fifth of a millisecond at most, while more keeps coming. From within a callback it does nothing.
#[cold]
pub fn catch_up(context: Safety) {
    let clock = HostClock::get();
    let limit = clock.now() + clock.ticks(CATCH_UP_NS);
    loop {
        // Looked at before: a thread that had to wait for a processor delivers what has become due.
        let is_last = clock.now() >= limit;
        deliver(0, context);
        if is_last || !attention::is_flagged(PORTS) || thread::is_busy() {
            return;
        }
        std::hint::spin_loop();
    }
}

/// As [`catch_up`], and with what other threads have in hand: all that has happened is shown, unless it is more than comes to an
/// end. Waits for callbacks in other threads: the caller holds nothing that one of them may want.
#[cold]
pub fn catch_up_all(context: Safety) {
    let clock = HostClock::get();
    let limit = clock.now() + clock.ticks(CATCH_UP_NS);
    // After the limit once more: another thread may have been at it since before, and have looked too early.
    let mut rounds = 0;
    while rounds < 2 && !thread::is_busy() {
        let is_held = (0..source::count()).any(|index| {
            let port = SourceId(index as u16).source().port();
            port.is_some_and(PortSource::is_holding)
        });
        if is_held {
            rounds += u32::from(clock.now() >= limit);
            deliver(0, context);
        }
        wait_for_others();
        if !is_held {
            return;
        }
    }
}

/// Waits until each thread that delivers now has done so once. From within a callback it does nothing. As [`catch_up_all`].
#[cold]
pub fn wait_for_others() {
    if !thread::is_busy() {
        let mut others = registry::DELIVERING.grace();
        while !others.is_over() {
            std::thread::yield_now();
        }
    }
}

/// Delivers what the ports' sources hold as far as its turn has come.
pub(super) fn pump(inside: &mut Inside<'_>, context: Safety) {
    if !attention::is_flagged(PORTS | FOLLOWING) {
        return;
    }
    attention::unflag(PORTS | CROWDED);
    let followed = FOLLOWED.load(Ordering::SeqCst);
    if attention::is_flagged(FOLLOWING) && (followed == 0 || !attention::is_any_active()) {
        rest();
    }
    let calls = CALLS.load(Ordering::Relaxed);
    let mut holding = HOLDING.swap(0, Ordering::SeqCst) | followed;
    while holding != 0 {
        let id = SourceId(holding.trailing_zeros() as u16);
        holding &= holding - 1;
        let Some(port) = id.source().port() else { continue };
        port.maintain(calls);
        if port.pump(false, |record| inside.dispatch(record, context, Audience::Ordered)) {
            flag_port(id, false);
        }
    }
}

/// Delivers all that a port's source holds, whether its turn has come or not; what comes later and is earlier is late. Not from
/// within a callback.
pub(super) fn pump_all(source: SourceId, context: Safety) {
    thread::with(&mut (), |thread, ()| {
        if let Some(port) = source.source().port()
            && !thread.is_busy()
        {
            let mut inside = Inside::new(thread);
            port.pump(true, |record| inside.dispatch(record, context, Audience::Ordered));
        }
    });
}

/// The right to empty buffers; given back also when a callback panics.
pub(super) struct Emptying;

impl Emptying {
    pub(super) fn try_new() -> Option<Emptying> {
        // Made only where it is had: when it is dropped, the right is given back.
        if EMPTYING.swap(true, Ordering::SeqCst) { None } else { Some(Emptying) }
    }
}

impl Drop for Emptying {
    fn drop(&mut self) {
        EMPTYING.store(false, Ordering::SeqCst);
    }
}

/// Empties buffers, up to so many events.
fn empty(inside: &mut Inside<'_>, budget: usize, context: Safety) -> usize {
    let Some(_emptying) = Emptying::try_new() else { return 0 };
    if !attention::is_flagged(RINGS) || thread::is_one_alone() {
        return 0;
    }
    attention::unflag(RINGS);
    let all = registry::everything();
    let (mut left, first) = (budget, FIRST.fetch_add(1, Ordering::Relaxed));
    for index in 0..all.len() {
        left -= drain(inside, &all[(first + index) % all.len()], context, left);
    }
    budget - left
}

/// The right to take from a registration's buffer.
struct Draining<'a>(&'a Handle);

impl Drop for Draining<'_> {
    fn drop(&mut self) {
        self.0.draining.store(false, Ordering::SeqCst);
    }
}

/// Delivers up to `budget` events from one buffer, and tells what was lost. Returns how many.
pub(super) fn drain(inside: &mut Inside<'_>, entry: &Entry, context: Safety, budget: usize) -> usize {
    let handle = &*entry.handle;
    if handle.ring.is_empty() && !handle.is_losing() {
        return 0;
    }
    if handle.draining.swap(true, Ordering::SeqCst) {
        return 0;
    }
    let draining = Draining(handle);
    let revision = handle.revision.load(Ordering::SeqCst);
    let mut run = Later::new();
    let mut count = 0;
    if let Some(callback) = entry.calls.fit(context) {
        while count < budget && handle.revision.load(Ordering::Relaxed) == revision {
            let Some(record) = handle.ring.pop(|_| handle.used) else { break };
            // A loss is told before what its source raised after it.
            if entry.calls.must_tell(handle) {
                entry.calls.tell(handle, context);
            }
            run.count(record.source);
            count += 1;
            callback(&record, handle, context);
            // What the callback raised; for this registration it waits behind what is in the buffer.
            inside.run_staged();
        }
    }
    drop(run);
    if entry.calls.must_tell(handle) {
        entry.calls.tell(handle, context);
        inside.run_staged();
    }
    drop(draining);
    // Here no callback may be fit for it; elsewhere one may.
    if !handle.ring.is_empty() && !entry.calls.is_empty() {
        attention::flag(RINGS);
    }
    count
}

/// Finishes freed registrations, unless called from within a callback.
pub(super) fn settle(context: Safety) {
    thread::with(&mut (), |thread, ()| {
        if !thread.is_busy() {
            settle_in(thread, context);
        }
    });
}

pub(super) fn settle_in(thread: &Thread, context: Safety) {
    while attention::is_flagged(LEAVING) {
        let Some(emptying) = Emptying::try_new() else { return };
        let Some(leaving) = registry::take_leaving() else { return };
        let unfinished = finish(thread, leaving, context);
        drop(emptying);
        if let Some(leaving) = unfinished {
            registry::put_back(leaving);
            return;
        }
    }
}

/// Delivers the rest of a freed registration's buffer and says that it is gone; gives it back where its buffer is in use.
fn finish(thread: &Thread, mut leaving: Leaving, context: Safety) -> Option<Leaving> {
    let handle = std::sync::Arc::clone(&leaving.entry.handle);
    {
        let mut inside = Inside::new(thread);
        drain(&mut inside, &leaving.entry, context, usize::MAX);
        if handle.draining.load(Ordering::SeqCst) {
            return Some(leaving);
        }
        // No callback is fit for this place: nobody will have the rest.
        while let Some(record) = handle.ring.pop(|_| handle.used) {
            record.source.source().count_dropped_later(1);
            handle.lose(record.source, 1);
        }
        leaving.entry.calls.tell_last(&handle, context);
        inside.run_staged();
        handle.set_freed();
    }
    if let Some(on_free) = leaving.on_free.take() {
        on_free(&handle, context);
    }
    None
}
