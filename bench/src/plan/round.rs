// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a round of a plan starts, in order, and how many values that yields.
//!
//! Transports take turns at each size, and each comes first in its turn: what the machine does meanwhile hits all alike.
//!
//! Grade: setup. Called by [`crate::run`]. Tests: at the end of this file.

use super::Plan;
use super::step::Step;
use crate::catalogue::device_kind::Kind;
use crate::catalogue::transport::{self, Transport};
use crate::catalogue::{By, Calls, RAW, RawProgram, Test};
use crate::programs::instructions::Count;

/// Tests that one start of a program measures, so that what they are compared with follows at once.
static GROUPS: [&[&str]; 8] = [
    &["latency"],
    &["bandwidth", "bidirectional_bandwidth"],
    &["message_rate"],
    &["put_latency", "get_latency", "put_bandwidth", "get_bandwidth"],
    &["outstanding_rate"],
    &["communicator"],
    &["instructions", "nonblocking_instructions"],
    &["host_latency", "host_bandwidth"],
];

impl Plan {
    /// Everything a round, from 1, starts, in order.
    pub(crate) fn round(&self, round: usize) -> Vec<Step> {
        let mut steps: Vec<Step> = GROUPS.iter().flat_map(|group| self.group(round, group)).collect();
        if self.is_of_events() && round == 1 {
            steps.push(Step::SmallBuffer);
            if self.tests.iter().any(|test| test.by == By::InstructionCounter(Calls::Blocking)) {
                let counts = transport::EVENTS_OF_MATCHING.map(Count::of_short_blocking);
                steps.extend(counts.map(Step::Instructions));
            }
        }
        steps
    }

    /// How many values all rounds yield.
    #[must_use]
    pub fn values(&self) -> usize {
        (1..=self.rounds).flat_map(|round| self.round(round)).map(|step| step.values()).sum()
    }

    /// The name and the size of each value that a step yields.
    pub(crate) fn names_of(&self, step: &Step) -> Vec<(String, u64)> {
        match step {
            Step::Raw { program, bytes } => vec![(program.name.to_owned(), *bytes)],
            Step::Instructions(count) => vec![(count.test().to_owned(), count.bytes)],
            Step::Mpi { tests, bytes, .. } => tests.iter().map(|test| (test.name.to_owned(), *bytes)).collect(),
            Step::UcxPerftest { test, bytes } => vec![(test.name.to_owned(), *bytes)],
            Step::HostMemory => {
                let tests = self.tests.iter().filter(|test| test.by == By::HostMemory);
                tests.map(|test| (test.name.to_owned(), test.sizes.0)).collect()
            }
            Step::SmallBuffer => Vec::new(),
        }
    }

    /// The column and the tables of a step's values; none where it has no value, and all that it shows depends on it.
    pub(crate) fn column_of(&self, step: &Step) -> Option<(Transport, Vec<String>)> {
        let of = |tests: &[&'static Test]| tests.iter().map(|test| test.name.to_owned()).collect::<Vec<_>>();
        Some(match step {
            Step::Mpi { transport, tests, .. } => (*transport, of(tests)),
            Step::Raw { program, .. } => {
                let tests = self.tests.iter().filter(|test| test.raw.contains(&program.name));
                (Transport::Raw, tests.map(|test| test.name.to_owned()).collect())
            }
            Step::UcxPerftest { test, .. } => (Transport::UcxPerftest, of(&[test])),
            Step::Instructions(count) => (count.transport, vec![count.test().to_owned()]),
            Step::HostMemory => {
                let tests = self.tests.iter().filter(|test| test.by == By::HostMemory);
                (Transport::Raw, tests.map(|test| test.name.to_owned()).collect())
            }
            Step::SmallBuffer => return None,
        })
    }

    /// What measures again what is unsteady, in order: cells, of which [`Self::names_of`] and [`Self::column_of`] speak.
    pub(crate) fn again(&self, is_unsteady: impl Fn(&str, Transport, u64) -> bool) -> Vec<Step> {
        let wanted = |step: &Step| {
            let Some((transport, _)) = self.column_of(step) else { return false };
            self.names_of(step).iter().any(|(name, bytes)| is_unsteady(name, transport, *bytes))
        };
        self.round(1).into_iter().filter(wanted).collect()
    }

    fn group(&self, round: usize, names: &[&str]) -> Vec<Step> {
        let tests: Vec<&'static Test> = self.tests.iter().copied().filter(|test| names.contains(&test.name)).collect();
        let Some(first) = tests.first() else { return Vec::new() };
        let rounds = match (first.name, first.by) {
            ("latency", _) => self.rounds,
            (_, By::InstructionCounter(_)) => self.rounds_of_instructions,
            _ => self.rounds_of_the_rest,
        };
        if round > rounds {
            return Vec::new();
        }
        if first.by == By::HostMemory {
            return vec![Step::HostMemory];
        }
        let mut sizes: Vec<u64> = tests.iter().flat_map(|test| self.sizes_of(test)).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes.into_iter().flat_map(|bytes| self.turns(round, &tests, bytes)).collect()
    }

    /// What measures those of a group's tests that have this size, a transport after the other.
    fn turns(&self, round: usize, tests: &[&'static Test], bytes: u64) -> Vec<Step> {
        let tests: Vec<&'static Test> = tests.iter().copied().filter(|test| self.has(test, bytes)).collect();
        let first = tests[0];
        let mut transports = self.transports.clone();
        if !transports.is_empty() {
            // What comes first may be at an advantage: each does in its turn.
            let turn = round % transports.len();
            transports.rotate_left(turn);
        }
        let steps = |transport| match (transport, first.by) {
            (Transport::Raw, _) => raw(&tests, bytes),
            (Transport::UcxPerftest, _) => {
                let able = tests.iter().filter(|test| test.ucx.is_some());
                able.map(|test| Step::UcxPerftest { test, bytes }).collect()
            }
            (_, By::InstructionCounter(_)) => self.instructions(&tests, transport, bytes),
            _ => vec![Step::Mpi { transport, tests: tests.clone(), bytes }],
        };
        transports.into_iter().filter(|transport| self.measures(*transport, first)).flat_map(steps).collect()
    }

    /// Whether a transport has a test. On emulated adapters TCP is there to show the scale, with messages alone; and the
    /// one-sided operations of `ofi` go by `btl/ofi`, which Open MPI 5.0.7 does not survive beside `mtl/ofi` over datagrams:
    /// `ofi-btl` has them.
    fn measures(&self, transport: Transport, test: &Test) -> bool {
        match test.by {
            By::Messages => true,
            By::OneSided => ![Transport::Tcp, Transport::Ofi].contains(&transport) || self.kind != Kind::SoftHca,
            // Logger and recorder write in a thread of their own, whenever that gets the processor.
            By::InstructionCounter(_) => {
                // Libfabric resends datagrams by a timer: no two counts are alike.
                let is_steady = ![Transport::Tcp, Transport::Logger, Transport::Recorded].contains(&transport);
                transport.is_mpi() && is_steady && !transport.is_ofi()
            }
            By::HostMemory => false,
        }
    }

    /// What is counted over a transport: of events, the shortest message alone, in which they weigh most.
    fn instructions(&self, tests: &[&'static Test], transport: Transport, bytes: u64) -> Vec<Step> {
        let of_test = |test: &&'static Test| {
            let By::InstructionCounter(calls) = test.by else { return None };
            let is_counted = !self.is_of_events() || self.sizes_of(test).next() == Some(bytes);
            is_counted.then_some(Step::Instructions(Count { transport, calls, bytes }))
        };
        tests.iter().filter_map(of_test).collect()
    }
}

/// The raw programs of a group with a size; perftest has no messages of 0 bytes.
fn raw(tests: &[&'static Test], bytes: u64) -> Vec<Step> {
    let wanted = |raw: &&RawProgram| bytes > 0 && tests.iter().any(|test| test.raw.contains(&raw.name));
    RAW.iter().filter(wanted).map(|program| Step::Raw { program, bytes }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{RAW, TESTS};

    fn plan(kind: Kind) -> Plan {
        Plan::new(kind, true, TESTS.iter().filter(|test| kind.has(test)).collect(), kind.transports())
    }

    #[test]
    fn each_test_is_in_one_group() {
        for test in &TESTS {
            assert_eq!(GROUPS.iter().filter(|group| group.contains(&test.name)).count(), 1, "{}", test.name);
        }
    }

    #[test]
    fn an_adapters_round_has_every_test_over_both_mpi_transports_and_every_raw_program() {
        let round = plan(Kind::Adapter).round(1);
        let mpi = |wanted| {
            round.iter().filter(|step| matches!(step, Step::Mpi { transport, .. } if *transport == wanted)).count()
        };
        // Four groups of tests have a step for each size (one group ends at 4 KiB), two tests have one size, and messages of
        // 0 bytes have a latency and a rate.
        assert_eq!((mpi(Transport::Ibex), mpi(Transport::Tcp), mpi(Transport::Openib)), (39, 39, 0));
        for raw in &RAW {
            let starts =
                round.iter().filter(|step| matches!(step, Step::Raw { program, .. } if program.name == raw.name));
            assert!(starts.count() > 0, "{}", raw.name);
        }
        assert!(!round.iter().any(|step| matches!(step, Step::Instructions(_) | Step::HostMemory)));
    }

    #[test]
    fn on_emulated_adapters_instructions_are_counted_twice_over_each_rdma_transport() {
        let plan = plan(Kind::SoftHca);
        let counted = |round| {
            let steps = plan.round(round).into_iter();
            steps
                .filter_map(|step| match step {
                    Step::Instructions(count) if count.bytes == 512 => Some(count.transport.name()),
                    _ => None,
                })
                .collect::<Vec<_>>()
        };
        let each = ["ibex", "ibex-btl", "openib", "ucx"];
        let sorted = |round| {
            let mut names = counted(round);
            names.sort_unstable();
            names
        };
        assert_eq!([1, 2].map(sorted), [each, each]);
        assert!(counted(3).is_empty());
    }

    #[test]
    fn the_last_rounds_measure_latencies_alone() {
        let plan = plan(Kind::SoftHca);
        let all_latency = plan.round(plan.rounds).iter().all(|step| match step {
            Step::Mpi { tests, .. } => tests.iter().all(|test| test.name == "latency"),
            Step::Raw { program, .. } => program.name == "ib_send_lat",
            Step::UcxPerftest { test, .. } => test.name == "latency",
            Step::Instructions(_) | Step::HostMemory | Step::SmallBuffer => false,
        });
        assert!(all_latency && !plan.round(plan.rounds).is_empty());
    }

    #[test]
    fn transports_take_turns_at_each_size_and_each_comes_first_once() {
        let tests = ["latency"].into_iter().filter_map(crate::catalogue::test).collect();
        let plan = Plan::new(Kind::SoftHca, false, tests, vec![Transport::Ibex, Transport::Raw, Transport::Ucx]);
        let order = |round: usize| -> Vec<(Transport, u64)> {
            let steps = plan.round(round).into_iter();
            steps.map(|step| (plan.column_of(&step).unwrap().0, plan.names_of(&step)[0].1)).collect()
        };
        let first = order(3);
        assert_eq!(
            first[..4],
            [(Transport::Ibex, 8), (Transport::Raw, 8), (Transport::Ucx, 8), (Transport::Ibex, 4096)]
        );
        assert_eq!([1, 2, 3].map(|round| order(round)[0].0), [Transport::Raw, Transport::Ucx, Transport::Ibex]);
    }

    #[test]
    fn what_is_unsteady_alone_is_measured_again() {
        let plan = plan(Kind::SoftHca);
        let again = plan.again(|name, transport, bytes| {
            (name, transport, bytes) == ("put_latency", Transport::Ucx, 64)
                || (name, transport, bytes) == ("ib_send_lat", Transport::Raw, 8)
        });
        let titles: Vec<String> = again.iter().map(Step::title).collect();
        assert_eq!(titles[0], "ib_send_lat, 8 B");
        assert!(titles[1].starts_with("MPI over ucx: put_latency") && titles.len() == 2, "{titles:?}");
    }

    #[test]
    fn what_events_cost_is_measured_the_six_ways_in_turns() {
        let tests = ["latency", "instructions"].into_iter().filter_map(crate::catalogue::test).collect();
        let plan = Plan::of_events(Kind::SoftHca, true, tests);
        let ways = |round, counted: bool| -> Vec<&str> {
            let steps = plan.round(round).into_iter();
            let way = |step| match step {
                Step::Mpi { transport, .. } => (!counted).then(|| transport.name()),
                Step::Instructions(count) => counted.then(|| count.transport.name()),
                _ => None,
            };
            steps.filter_map(way).collect()
        };
        assert_eq!(ways(6, false)[..6], ["without", "unregistered", "callbacks", "buffered", "logger", "recorded"]);
        let firsts: Vec<&str> = (1..=6).map(|round| ways(round, false)[0]).collect();
        assert_eq!(firsts, ["unregistered", "callbacks", "buffered", "logger", "recorded", "without"]);
        let of_matching = ["ibex", "elsewhere", "watched", "peruse", "mpi_t", "kept", "delivered"];
        assert_eq!(ways(1, true), [&["unregistered", "callbacks", "buffered", "without"][..], &of_matching].concat());
        assert_eq!(ways(2, true), ["callbacks", "buffered", "without", "unregistered"]);
        let small = |round: usize| plan.round(round).iter().filter(|step| matches!(step, Step::SmallBuffer)).count();
        assert_eq!((small(1), small(2)), (1, 0));
    }

    #[test]
    fn no_raw_program_is_asked_for_a_message_of_0_bytes() {
        assert!(!plan(Kind::Adapter).round(1).iter().any(|step| matches!(step, Step::Raw { bytes: 0, .. })));
    }
}
