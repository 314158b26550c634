// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a round of a plan starts, in order, and how many values that yields.
//!
//! Grade: setup. Called by [`crate::run`]. Tests: at the end of this file.

use super::Plan;
use super::step::Step;
use crate::catalogue::device_kind::Kind;
use crate::catalogue::transport::{self, Transport};
use crate::catalogue::{By, Calls, RAW, Test};
use crate::programs::engine;
use crate::programs::instructions::Count;

/// Tests that one start of a program measures, so that what they are compared with follows at once.
static GROUPS: [&[&str]; 6] = [
    &["latency"],
    &["bandwidth", "bidirectional_bandwidth"],
    &["message_rate"],
    &["put_latency", "get_latency", "put_bandwidth", "get_bandwidth"],
    &["instructions", "nonblocking_instructions"],
    &["host_latency", "host_bandwidth"],
];

/// On emulated adapters: a start of perftest measures for some hundredths of a second, and takes up to one and a half.
const ROUNDS_OF_RAW: usize = 2;

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
        (1..=self.rounds).flat_map(|round| self.round(round)).map(|step| self.values_of(&step)).sum()
    }

    /// How many values a step yields.
    pub(crate) fn values_of(&self, step: &Step) -> usize {
        match step {
            Step::Raw { .. } | Step::Instructions(_) => 1,
            Step::Mpi { tests, .. } | Step::Engine { tests, .. } => {
                tests.iter().map(|test| self.sizes_of(test).count()).sum()
            }
            Step::UcxPerftest { runs } => runs.len(),
            Step::HostMemory => 4,
            Step::SmallBuffer => 0,
        }
    }

    /// The name and the size of each of them.
    pub(crate) fn names_of(&self, step: &Step) -> Vec<(String, u64)> {
        let of_test = |test: &&'static Test| self.sizes_of(test).map(|bytes| (test.name.to_owned(), bytes));
        match step {
            Step::Raw { program, bytes } => vec![(program.name.to_owned(), *bytes)],
            Step::Instructions(count) => vec![(count.test().to_owned(), count.bytes)],
            Step::Mpi { tests, .. } | Step::Engine { tests, .. } => tests.iter().flat_map(of_test).collect(),
            Step::UcxPerftest { runs } => runs.iter().map(|(test, bytes)| (test.name.to_owned(), *bytes)).collect(),
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
            Step::UcxPerftest { runs } => {
                let mut names: Vec<String> = runs.iter().map(|(test, _)| test.name.to_owned()).collect();
                names.dedup();
                (Transport::UcxPerftest, names)
            }
            Step::Engine { tests, .. } => (Transport::Engine, of(tests)),
            Step::Instructions(count) => (count.transport, vec![count.test().to_owned()]),
            Step::HostMemory => {
                let tests = self.tests.iter().filter(|test| test.by == By::HostMemory);
                (Transport::Raw, tests.map(|test| test.name.to_owned()).collect())
            }
            Step::SmallBuffer => return None,
        })
    }

    fn group(&self, round: usize, names: &[&str]) -> Vec<Step> {
        let tests: Vec<&'static Test> = self.tests.iter().copied().filter(|test| names.contains(&test.name)).collect();
        let Some(first) = tests.first() else { return Vec::new() };
        let (seconds_per_row, rounds) = match (first.name, first.by) {
            ("latency", _) => (self.seconds_per_row.0, self.rounds),
            (_, By::InstructionCounter(_)) => (0.0, self.rounds_of_instructions),
            _ => (self.seconds_per_row.1, self.rounds_of_the_rest),
        };
        if round > rounds {
            return Vec::new();
        }
        if first.by == By::HostMemory {
            return vec![Step::HostMemory];
        }
        let enough = |transport| {
            transport == Transport::Raw
                && self.kind == Kind::SoftHca
                && first.name != "latency"
                && round > ROUNDS_OF_RAW
        };
        let measured = |transport: &Transport| self.measures(*transport, first) && !enough(*transport);
        let mut transports = self.transports.clone();
        if self.is_of_events() {
            // What comes first in a round may be at an advantage: each does in its turn.
            let turn = round % transports.len();
            transports.rotate_left(turn);
        }
        transports
            .into_iter()
            .filter(measured)
            .flat_map(|transport| match (transport, first.by) {
                (Transport::Raw, _) => self.raw(&tests),
                (Transport::UcxPerftest, _) => self.ucx_perftest(&tests),
                (Transport::Engine, _) => self.engine(&tests, seconds_per_row),
                (_, By::InstructionCounter(_)) => self.instructions(&tests, transport),
                _ => vec![Step::Mpi { transport, tests: tests.clone(), sizes: self.sizes.clone(), seconds_per_row }],
            })
            .collect()
    }

    /// Whether a transport has a test. On emulated adapters TCP is there to show the scale, with messages alone; and the
    /// one-sided operations of `ofi` go by `btl/ofi`, which Open MPI 5.0.7 does not survive beside `mtl/ofi` over datagrams:
    /// `ofi-btl` has them.
    fn measures(&self, transport: Transport, test: &Test) -> bool {
        match test.by {
            _ if transport == Transport::Engine => engine::has(test),
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

    /// What the engine has of a group, whose first test it has.
    fn engine(&self, tests: &[&'static Test], seconds_per_row: f64) -> Vec<Step> {
        let tests = tests.iter().copied().filter(|test| engine::has(test)).collect();
        vec![Step::Engine { tests, sizes: self.sizes.clone(), seconds_per_row }]
    }

    /// What is counted over a transport: of events, the shortest message alone, in which they weigh most.
    fn instructions(&self, tests: &[&'static Test], transport: Transport) -> Vec<Step> {
        let of_test = |test: &&'static Test| {
            let By::InstructionCounter(calls) = test.by else { return Vec::new() };
            let sizes = self.sizes_of(test).take(if self.is_of_events() { 1 } else { usize::MAX });
            sizes.map(|bytes| Step::Instructions(Count { transport, calls, bytes })).collect()
        };
        tests.iter().flat_map(of_test).collect()
    }

    /// The raw programs of a group, each with each of its sizes; perftest has no messages of 0 bytes.
    fn raw(&self, tests: &[&'static Test]) -> Vec<Step> {
        let mut steps = Vec::new();
        for program in RAW.iter().filter(|raw| tests.iter().any(|test| test.raw.contains(&raw.name))) {
            let compared = |size: &u64| {
                tests.iter().any(|test| test.raw.contains(&program.name) && self.sizes_of(test).any(|s| s == *size))
            };
            let sizes = self.sizes.iter().copied().filter(|size| *size > 0).filter(compared);
            steps.extend(sizes.map(|bytes| Step::Raw { program, bytes }));
        }
        steps
    }

    fn ucx_perftest(&self, tests: &[&'static Test]) -> Vec<Step> {
        let able = tests.iter().copied().filter(|test| test.ucx.is_some());
        let runs: Vec<_> = able.flat_map(|test| self.sizes_of(test).map(move |bytes| (test, bytes))).collect();
        if runs.is_empty() { Vec::new() } else { vec![Step::UcxPerftest { runs }] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{RAW, TESTS};

    fn plan(kind: Kind) -> Plan {
        Plan::new(kind, false, TESTS.iter().filter(|test| kind.has(test)).collect(), kind.transports())
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
        assert_eq!((mpi(Transport::Ibex), mpi(Transport::Tcp), mpi(Transport::Openib)), (4, 4, 0));
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
        let all = vec!["ibex", "ibex-btl", "openib", "ucx"];
        assert_eq!([1, 2, 3].map(counted), [all.clone(), all, vec![]]);
    }

    #[test]
    fn the_last_rounds_measure_latencies_alone() {
        let plan = plan(Kind::SoftHca);
        let all_latency = plan.round(plan.rounds).iter().all(|step| match step {
            Step::Mpi { tests, .. } | Step::Engine { tests, .. } => tests.iter().all(|test| test.name == "latency"),
            Step::Raw { program, .. } => program.name == "ib_send_lat",
            Step::UcxPerftest { runs } => runs.iter().all(|run| run.0.name == "latency"),
            Step::Instructions(_) | Step::HostMemory | Step::SmallBuffer => false,
        });
        assert!(all_latency && !plan.round(plan.rounds).is_empty());
    }

    #[test]
    fn the_engine_takes_its_turn_with_the_tests_that_it_has() {
        let plan = plan(Kind::SoftHca);
        let steps = plan.round(1);
        let of_engine = |step: &Step| match step {
            Step::Engine { tests, .. } => Some(tests.iter().map(|test| test.name).collect::<Vec<_>>()),
            _ => None,
        };
        let tests: Vec<_> = steps.iter().filter_map(of_engine).collect();
        let one_sided = vec!["put_latency", "get_latency", "put_bandwidth", "get_bandwidth"];
        assert_eq!(tests, [vec!["latency"], vec!["bandwidth"], vec!["message_rate"], one_sided]);
    }

    #[test]
    fn what_events_cost_is_measured_the_six_ways_in_turns() {
        let tests = ["latency", "instructions"].into_iter().filter_map(crate::catalogue::test).collect();
        let plan = Plan::of_events(Kind::SoftHca, false, tests);
        let ways = |round, counted: bool| -> Vec<&str> {
            let steps = plan.round(round).into_iter();
            let way = |step| match step {
                Step::Mpi { transport, .. } => (!counted).then(|| transport.name()),
                Step::Instructions(count) => counted.then(|| count.transport.name()),
                _ => None,
            };
            steps.filter_map(way).collect()
        };
        assert_eq!(ways(6, false), ["without", "unregistered", "callbacks", "buffered", "logger", "recorded"]);
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
