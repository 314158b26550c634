// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the clocks of a job's hosts from `MPI_Init` to `MPI_Finalize`: by MPI messages at both ends
//! (`exchange.rs`), and by datagrams in between (`intervals.rs`).
//!
//! A rank that cannot record takes part all the same, because others wait for it. Called by `recording.rs`. Grade:
//! setup. Threads: those that initialise and finalise MPI, and that ends the process. Tests: tests/trace.rs; with a
//! device, hw-tests/tests/device/recorder.rs.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Duration;

use crate::datagrams::{self, Answering, Asking};
use crate::exchange::{self, Exchange, Hidden};
use crate::intervals::{Found, Intervals, Part};
use crate::{mpi, settings};

/// How much time there is for each host's asking at least, so that rank 0's is left to its work.
const EACH: Duration = Duration::from_millis(20);

/// What there is until `MPI_Finalize`.
struct Meeting {
    process: u32,
    exchange: Exchange,
    intervals: Option<Intervals>,
}

static MEETING: Mutex<Option<Meeting>> = Mutex::new(None);

/// After `MPI_Init`, by all ranks of a job whose clocks are to be compared: a first time now, and then at intervals.
pub(crate) fn begin(hidden: &Hidden, found: fn(Found)) {
    let variable = |name: &str| std::env::var(name).ok();
    let (Some(rank), Some(ranks)) = (mpi::rank(), mpi::ranks()) else { return };
    if !exchange::is_wanted(variable) {
        return;
    }
    let every = settings::every(variable(settings::EVERY).as_deref());
    // The same in all ranks: told by one.
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
    let clock = (settings::host(), settings::clock());
    // No lock is held meanwhile: where the MPI ends the process, it comes by here again.
    let Some((exchange, told, sample)) = Exchange::begin((rank, ranks), &clock, answers, hidden) else { return };
    if let Some(sample) = sample {
        found(Found::Sample(sample));
    }
    let part = match (every, exchange.turn()) {
        (Some(_), Some(_)) if rank == 0 => answering.map(Part::Answers),
        (Some(every), Some((before, hosts))) => {
            let every = every.max(EACH * hosts);
            // Not all hosts at once.
            let first = every / 2 + every / 2 * before / hosts;
            Asking::new(&told).map(|asking| Part::Asks { asking, every, first })
        }
        _ => None,
    };
    let intervals = part.and_then(|part| Intervals::start(part, found));
    let meeting = Meeting { process: std::process::id(), exchange, intervals };
    *MEETING.lock().unwrap_or_else(PoisonError::into_inner) = Some(meeting);
}

/// Before `MPI_Finalize`, by all ranks: a last time.
pub(crate) fn end(found: fn(Found)) {
    let Some(Meeting { exchange, intervals, .. }) = take() else { return };
    // Rank 0 answers as long as others may ask: they stop before they come to this exchange.
    let (before, after) = if exchange.is_asked() { (None, intervals) } else { (intervals, None) };
    before.into_iter().for_each(Intervals::stop);
    if let Some(sample) = exchange.end() {
        found(Found::Sample(sample));
    }
    after.into_iter().for_each(Intervals::stop);
}

/// The process ends, maybe without `MPI_Finalize`.
pub(crate) fn leave() {
    take().and_then(|meeting| meeting.intervals).into_iter().for_each(Intervals::stop);
}

fn take() -> Option<Meeting> {
    let mut meeting = match MEETING.try_lock() {
        Ok(meeting) => meeting,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        // Another thread just begins or ends it.
        Err(TryLockError::WouldBlock) => return None,
    };
    // A process that was forked off has the memory of its parent, but not its threads.
    meeting.take_if(|meeting| meeting.process == std::process::id())
}

/// What the trace of a host says that nobody answers.
pub(crate) fn unanswered(addresses: &[SocketAddr]) -> String {
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    format!(
        "The clock was compared with rank 0's only at the start and at the end: no answer by UDP from {}; is there a \
         firewall between the hosts?",
        addresses.join(", ")
    )
}
