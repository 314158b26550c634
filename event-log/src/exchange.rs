// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the clocks of hosts with MPI messages, at the end of `MPI_Init` and before `MPI_Finalize`, which all ranks
//! call. `intervals.rs` compares them in between, at the address that rank 0 publishes.
//!
//! The first rank of each host asks rank 0 for its clock many times; the fastest round trip counts. All ranks of a host
//! share its clock and its first rank's result. A job on one host exchanges nothing. All must take part, or others
//! would wait for ever, so this happens only if the launcher states that all have the recorder (`IBEX_TRACE_CLOCKS=1`,
//! set by `ibex trace`). The messages use the recorder's own communicator, which it hides ([`Hidden`]). Grade: setup,
//! but for [`Hidden::hides`]: hot. Threads: the one that initialises MPI. Tests: below; tests/trace.rs.

use std::ffi::c_int;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use ibex_trace::{Clock, ClockSample};

use crate::datagrams::NUMBERS;

unsafe extern "C" {
    safe fn ibex_log_meet() -> c_int;
    fn ibex_log_share(mine: *const i64, count: c_int, all: *mut i64) -> c_int;
    fn ibex_log_tell(numbers: *mut i64, count: c_int) -> c_int;
    safe fn ibex_log_answer(rank: c_int) -> c_int;
    fn ibex_log_ask(rank: c_int, rounds: c_int, most: i64, sample: *mut i64) -> c_int;
    safe fn ibex_log_part();
}

const ROUNDS: c_int = 200;

/// Nanoseconds after which a host with a good sample stops asking, because ranks may share a processor.
const MOST: i64 = 50_000_000;

/// State: no communicator is hidden. In 64 bits no context has this number.
const NONE: u64 = u64::MAX;
/// State: all messages are the recorder's or MPI's own, so all are hidden.
const ALL: u64 = u64::MAX - 1;
/// State: as `ALL`; and any context but that of `MPI_COMM_WORLD` is the recorder's.
const LEARNING: u64 = u64::MAX - 2;

pub(crate) static HIDDEN: Hidden = Hidden::new();

/// The communicator, by its context, whose events are not recorded.
pub(crate) struct Hidden {
    state: AtomicU64,
    learnt: AtomicU64,
}

impl Hidden {
    const fn new() -> Hidden {
        Hidden { state: AtomicU64::new(NONE), learnt: AtomicU64::new(NONE) }
    }

    /// Returns whether an event of this context is not recorded.
    #[inline]
    pub(crate) fn hides(&self, context: u64) -> bool {
        match self.state.load(Ordering::Relaxed) {
            NONE => false,
            ALL => true,
            LEARNING => {
                // The context of MPI_COMM_WORLD is 0 in every version of Open MPI.
                if context != 0 {
                    self.learnt.store(context, Ordering::Relaxed);
                }
                true
            }
            hidden => hidden == context,
        }
    }

    fn set(&self, state: u64) {
        self.state.store(state, Ordering::Relaxed);
    }

    /// Hides only the learnt context from now on.
    fn settle(&self) {
        self.set(self.learnt.load(Ordering::Relaxed));
    }
}

struct Refused;

pub(crate) struct Exchange {
    rank: usize,
    /// For each rank the first rank of its host.
    first: Vec<usize>,
}

/// Returns whether ranks may be on several hosts, and the launcher states that all have the recorder.
pub(crate) fn is_wanted(variable: impl Fn(&str) -> Option<String>) -> bool {
    let number = |name| variable(name)?.parse::<u32>().ok();
    let (all, here) = (number("OMPI_COMM_WORLD_SIZE"), number("OMPI_COMM_WORLD_LOCAL_SIZE"));
    let is_one_host = all.is_some() && all == here;
    number("IBEX_TRACE_CLOCKS") == Some(1) && !is_one_host
}

impl Exchange {
    /// Called by all ranks after `MPI_Init`, before any message of the application: makes the communicator, publishes
    /// the addresses of rank 0's host for later, and compares the clocks. `None`: there is one clock, or MPI refuses.
    pub(crate) fn begin(
        (rank, ranks): (u32, u32),
        clock: &(String, String),
        answers: Option<[i64; NUMBERS]>,
    ) -> Option<(Exchange, [i64; NUMBERS], Option<ClockSample>)> {
        HIDDEN.set(ALL);
        let mut begun = None;
        if ibex_log_meet() == 0 {
            HIDDEN.set(LEARNING);
            let mut hasher = DefaultHasher::new();
            clock.hash(&mut hasher);
            if let Some(clocks) = share(&[hasher.finish().cast_signed()], ranks) {
                let exchange = Exchange { rank: rank as usize, first: first_of_each(&clocks) };
                let told = tell(answers.unwrap_or([0; NUMBERS])).unwrap_or([0; NUMBERS]);
                // After the last call inside, messages are the application's again, in ranks without a sample as well.
                let sample = exchange.sample_after(|| HIDDEN.settle()).ok().flatten();
                begun = Some((exchange, told, sample));
            }
        }
        HIDDEN.settle();
        begun
    }

    /// Returns this rank's index among the hosts' first ranks, and their number; `None`: no first rank, or one host.
    pub(crate) fn turn(&self) -> Option<(u32, u32)> {
        let (hosts, before) = (self.others().count() + 1, self.others().filter(|host| *host < self.rank).count());
        let is_first = self.first.get(self.rank) == Some(&self.rank);
        (is_first && hosts > 1).then_some((before as u32, hosts as u32))
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.rank == 0
    }

    /// Called by all ranks before `MPI_Finalize`.
    pub(crate) fn end(self) -> Option<ClockSample> {
        let sample = self.sample_after(|| {});
        ibex_log_part();
        sample.ok().flatten()
    }

    /// Asks or answers. Returns this host's sample; `None` on rank 0's host. Calls `asked` before the last call.
    fn sample_after(&self, asked: impl FnOnce()) -> Result<Option<ClockSample>, Refused> {
        let mut found = [0_i64; 3];
        let mut failed = 0;
        if self.rank == 0 {
            for host in self.others() {
                failed |= ibex_log_answer(host as c_int);
            }
        } else if self.others().any(|host| host == self.rank) {
            // SAFETY: the call writes three numbers, and `found` has three.
            failed |= unsafe { ibex_log_ask(0, ROUNDS, MOST, found.as_mut_ptr()) };
        }
        asked();
        let all = share(&found, self.first.len() as u32).ok_or(Refused)?;
        let first = self.first[self.rank];
        if failed != 0 || first == 0 {
            return Ok(None);
        }
        let [shown, before, after] = all[first * 3..][..3] else { return Err(Refused) };
        let shown = u64::try_from(shown).ok().filter(|shown| *shown > 0);
        Ok(shown.map(|shown| ClockSample { clock: Clock::Rank(0), shown, before, after }))
    }

    /// Returns the first ranks of all hosts but rank 0's.
    fn others(&self) -> impl Iterator<Item = usize> {
        self.first.iter().enumerate().filter(|(rank, first)| rank == *first && *rank != 0).map(|(rank, _)| rank)
    }
}

/// Sends this rank's numbers to all ranks, and returns those of all.
fn share(mine: &[i64], ranks: u32) -> Option<Vec<i64>> {
    let mut all = vec![0; mine.len() * ranks as usize];
    // SAFETY: `all` has room for `mine.len()` numbers of each rank.
    let code = unsafe { ibex_log_share(mine.as_ptr(), mine.len() as c_int, all.as_mut_ptr()) };
    (code == 0).then_some(all)
}

/// Returns rank 0's numbers.
fn tell(mut numbers: [i64; NUMBERS]) -> Option<[i64; NUMBERS]> {
    // SAFETY: `numbers` has `NUMBERS` numbers.
    let code = unsafe { ibex_log_tell(numbers.as_mut_ptr(), NUMBERS as c_int) };
    (code == 0).then_some(numbers)
}

/// Returns for each rank the first one with the same clock.
fn first_of_each(clocks: &[i64]) -> Vec<usize> {
    let mut first = std::collections::HashMap::new();
    clocks.iter().enumerate().map(|(rank, clock)| *first.entry(*clock).or_insert(rank)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rank_of_each_host_asks_and_rank_0_does_not() {
        let first = first_of_each(&[7, 7, -3, 7, -3, 9]);
        assert_eq!(first, [0, 0, 2, 0, 2, 5]);
        let turns = [None, None, Some((0, 3)), None, None, Some((1, 3))];
        for (rank, turn) in turns.into_iter().enumerate().skip(1) {
            assert_eq!(Exchange { rank, first: first.clone() }.turn(), turn, "{rank}");
        }
        assert_eq!(Exchange { rank: 0, first: vec![0, 0] }.turn(), None, "there is one host");
        let exchange = Exchange { rank: 0, first };
        assert_eq!(exchange.others().collect::<Vec<_>>(), [2, 5]);
        assert!(exchange.is_asked() && exchange.turn().is_some());
    }

    #[test]
    fn hidden_hides_only_the_recorders_communicator_once_that_is_known() {
        let hidden = Hidden::new();
        assert!(!hidden.hides(0) && !hidden.hides(4));
        hidden.set(ALL);
        assert!(hidden.hides(0) && hidden.hides(3));
        hidden.set(LEARNING);
        assert!(hidden.hides(0) && hidden.hides(4));
        hidden.settle();
        assert!(hidden.hides(4) && !hidden.hides(0) && !hidden.hides(3));
        // The recorder's messages raise no events here, as with another transport.
        let hidden = Hidden::new();
        hidden.set(LEARNING);
        hidden.settle();
        assert!(!hidden.hides(0) && !hidden.hides(4));
    }

    #[test]
    fn ranks_of_one_host_exchange_nothing_and_neither_do_ranks_without_the_launchers_promise() {
        let wanted = |vouched: Option<&str>, all: Option<&str>, here: &str| {
            is_wanted(|name| match name {
                "IBEX_TRACE_CLOCKS" => vouched.map(str::to_owned),
                "OMPI_COMM_WORLD_SIZE" => all.map(str::to_owned),
                _ => Some(here.to_owned()),
            })
        };
        assert!(wanted(Some("1"), Some("4"), "2") && wanted(Some("1"), None, "2"));
        assert!(!wanted(Some("1"), Some("4"), "4") && !wanted(None, Some("4"), "2") && !wanted(Some("0"), None, "2"));
    }
}
