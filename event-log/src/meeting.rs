// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the clocks of a job's hosts from `MPI_Init` to `MPI_Finalize`: by MPI messages at both ends
//! (`exchange.rs`), by datagrams in between (`intervals.rs`). A rank that cannot record takes part, too, because others
//! wait for it. Called by `recording.rs`. Grade: setup. Threads: those that initialise MPI, finalise it, and end the
//! process. Tests: tests/trace.rs; hw-tests/tests/device/recorder.rs.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Duration;

use crate::datagrams::{self, Answering, Asking};
use crate::exchange::{self, Exchange};
use crate::intervals::{Found, Intervals, Part};
use crate::{mpi, settings};

/// Shortest interval per host, so that rank 0's host is not kept busy by questions.
const EACH: Duration = Duration::from_millis(20);

/// State between `MPI_Init` and `MPI_Finalize`.
struct Meeting {
    process: u32,
    exchange: Exchange,
    intervals: Option<Intervals>,
}

static MEETING: Mutex<Option<Meeting>> = Mutex::new(None);

/// Compares clocks now, and then at intervals. Called after `MPI_Init` by all ranks of a job that compares clocks.
pub(crate) fn begin(found: fn(Found)) {
    let (Some(rank), Some(ranks)) = (mpi::rank(), mpi::ranks()) else { return };
    if !exchange::is_wanted(settings::variable) {
        return;
    }
    let every = settings::every(settings::variable(settings::EVERY).as_deref());
    // All ranks would print the same, so rank 0 does.
    if every.is_err() && rank == 0 {
        mpi::complain(&format!(
            "{}: expected seconds, or 0 for never; clocks are compared every {} s",
            settings::EVERY,
            settings::EVERY_DEFAULT.as_secs()
        ));
    }
    let every = every.unwrap_or(Some(settings::EVERY_DEFAULT));
    let answering = (rank == 0 && every.is_some()).then(|| Answering::open().ok().map(Arc::new)).flatten();
    let answers = answering.as_ref().map(|answering| answering.told(&datagrams::addresses()));
    let clock = (ibex_trace::host(), ibex_trace::clock());
    // No lock is held meanwhile, because MPI may end the process, which calls `leave`.
    let Some((exchange, told, sample)) = Exchange::begin((rank, ranks), &clock, answers) else { return };
    if let Some(sample) = sample {
        found(Found::Sample(sample));
    }
    let part = match (every, exchange.turn()) {
        (Some(_), Some(_)) if rank == 0 => answering.map(Part::Answers),
        (Some(every), Some((before, hosts))) => {
            let every = every.max(EACH * hosts);
            // The hosts ask at different times.
            let first = every / 2 + every / 2 * before / hosts;
            Asking::new(&told).map(|asking| Part::Asks { asking, every, first })
        }
        _ => None,
    };
    let intervals = part.and_then(|part| Intervals::start(part, found));
    let meeting = Meeting { process: std::process::id(), exchange, intervals };
    *MEETING.lock().unwrap_or_else(PoisonError::into_inner) = Some(meeting);
}

/// Compares clocks a last time. Called before `MPI_Finalize` by all ranks.
pub(crate) fn end(found: fn(Found)) {
    let Some(Meeting { exchange, intervals, .. }) = take() else { return };
    // Rank 0 answers until the others have stopped, which they do before this exchange.
    let (before, after) = if exchange.is_asked() { (None, intervals) } else { (intervals, None) };
    before.into_iter().for_each(Intervals::stop);
    if let Some(sample) = exchange.end() {
        found(Found::Sample(sample));
    }
    after.into_iter().for_each(Intervals::stop);
}

/// Stops the threads. Called when the process ends, maybe without `MPI_Finalize`.
pub(crate) fn leave() {
    take().and_then(|meeting| meeting.intervals).into_iter().for_each(Intervals::stop);
}

fn take() -> Option<Meeting> {
    let mut meeting = match MEETING.try_lock() {
        Ok(meeting) => meeting,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        // Another thread is just beginning or ending.
        Err(TryLockError::WouldBlock) => return None,
    };
    // A forked process has its parent's memory, but not its threads.
    meeting.take_if(|meeting| meeting.process == std::process::id())
}

/// Returns the sentence for the trace of a host that gets no answer from these addresses.
pub(crate) fn unanswered(addresses: &[SocketAddr]) -> String {
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    format!(
        "The clock was compared with rank 0's only at the start and at the end: no answer by UDP from {}; is there a \
         firewall between the hosts?",
        addresses.join(", ")
    )
}
