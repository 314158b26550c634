// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps of a round of a plan, in order, and the values that each yields. At each size the transports take turns,
//! and the order rotates, so that other work of the machine affects all alike. Called by [`crate::run`]. Tests: below.

use super::Plan;
use crate::catalogue::{By, Calls, Kind, RAW, RawProgram, Test, Transport, transport};
use crate::numbers::size;
use crate::programs::instructions::Count;

#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) start: Start,
    /// Column of its values.
    pub(crate) transport: Transport,
    /// Tests whose tables get its values; none: the tables of all tests do.
    pub(crate) tests: Vec<&'static str>,
    /// Name of the row, and size, of each value.
    pub(crate) values: Vec<(&'static str, u64)>,
}

#[derive(Debug)]
pub(crate) enum Start {
    /// The MPI program with one size.
    Mpi {
        tests: Vec<&'static Test>,
        bytes: u64,
    },
    /// A raw program with one size.
    Raw {
        program: &'static RawProgram,
        bytes: u64,
    },
    Instructions(Count),
    /// The program of libfabric's calls with one size.
    Libfabric {
        bytes: u64,
    },
    HostMemory,
    SmallBuffer,
}

impl Step {
    /// Makes a start that gives each test one value of this size.
    fn of(start: Start, transport: Transport, tests: &[&'static Test], bytes: u64) -> Self {
        let tests: Vec<&str> = tests.iter().map(|test| test.name).collect();
        let values = tests.iter().map(|name| (*name, bytes)).collect();
        Self { start, transport, tests, values }
    }

    /// Returns the start of MPI over a transport, and that of libfabric's calls, which stand in the column of ibex.
    fn of_messages(tests: &[&'static Test], transport: Transport, bytes: u64) -> Vec<Self> {
        let (of_libfabric, tests): (Vec<_>, Vec<_>) = tests.iter().copied().partition(|test| test.by == By::Libfabric);
        let mpi = || Self::of(Start::Mpi { tests: tests.clone(), bytes }, transport, &tests, bytes);
        let libfabric = || Self::of(Start::Libfabric { bytes }, transport, &of_libfabric, bytes);
        let has_libfabric = transport == Transport::Ibex && !of_libfabric.is_empty();
        (!tests.is_empty()).then(mpi).into_iter().chain(has_libfabric.then(libfabric)).collect()
    }

    fn of_count(count: Count) -> Self {
        let test = count.test();
        let (tests, values) = (vec![test], vec![(test, count.bytes)]);
        Self { start: Start::Instructions(count), transport: count.transport, tests, values }
    }

    pub(crate) fn title(&self) -> String {
        let over = self.transport.name();
        match &self.start {
            Start::Mpi { bytes, .. } => format!("MPI over {over}: {}, {}", self.tests.join(", "), size(*bytes)),
            Start::Raw { program, bytes } => format!("{}, {}", program.name, size(*bytes)),
            Start::Instructions(count) if count.calls == Calls::Libfabric => {
                format!("{}, {}, of the provider", count.test(), size(count.bytes))
            }
            Start::Instructions(count) => format!("{}, {}, of MPI over {over}", count.test(), size(count.bytes)),
            Start::Libfabric { bytes } => format!("{}, {}, of the provider", self.tests.join(", "), size(*bytes)),
            Start::HostMemory => "the emulated adapter beside the host's memory".to_owned(),
            Start::SmallBuffer => "events through a buffer that is too small".to_owned(),
        }
    }
}

/// Groups of tests that one start of a program measures, so that the compared programs follow at once.
static GROUPS: [&[&str]; 8] = [
    &["latency", "libfabric_latency"],
    &["bandwidth", "bidirectional_bandwidth"],
    &["message_rate"],
    &["put_latency", "get_latency", "put_bandwidth", "get_bandwidth"],
    &["outstanding_rate"],
    &["pieces", "share"],
    &["instructions", "nonblocking_instructions", "libfabric_instructions"],
    &["host_latency", "host_bandwidth"],
];

impl Plan {
    pub(crate) fn round(&self, round: usize) -> Vec<Step> {
        let mut steps: Vec<Step> = GROUPS.iter().flat_map(|group| self.group(round, group)).collect();
        if self.is_of_events() && round == 1 {
            steps.push(Step::of(Start::SmallBuffer, Transport::Buffered, &[], 0));
            if self.tests.iter().any(|test| test.by == By::InstructionCounter(Calls::Blocking)) {
                let counts = transport::EVENTS_OF_MATCHING.map(Count::of_short_blocking);
                steps.extend(counts.map(Step::of_count));
            }
        }
        steps
    }

    /// Number of values of all rounds.
    pub fn values(&self) -> usize {
        (1..=self.rounds).flat_map(|round| self.round(round)).map(|step| step.values.len()).sum()
    }

    /// Returns the steps that measure the unsteady values again, in order.
    pub(crate) fn again(&self, is_unsteady: impl Fn(&str, Transport, u64) -> bool) -> Vec<Step> {
        let wanted = |step: &Step| step.values.iter().any(|(name, bytes)| is_unsteady(name, step.transport, *bytes));
        self.round(1).into_iter().filter(wanted).collect()
    }

    fn group(&self, round: usize, names: &[&str]) -> Vec<Step> {
        let tests: Vec<&'static Test> = self.tests.iter().copied().filter(|test| names.contains(&test.name)).collect();
        let Some(first) = tests.first() else { return Vec::new() };
        let rounds = match (first.name, first.by) {
            ("latency", _) | (_, By::Reads | By::Libfabric) => self.rounds,
            (_, By::InstructionCounter(_)) => self.rounds_of_instructions,
            _ => self.rounds_of_the_rest,
        };
        if round > rounds {
            return Vec::new();
        }
        if first.by == By::HostMemory {
            let step = Step::of(Start::HostMemory, Transport::Raw, &tests, 0);
            // One over the adapter, and one in memory.
            let values = tests.iter().flat_map(|test| [(test.name, test.sizes.0); 2]).collect();
            return vec![Step { values, ..step }];
        }
        let mut sizes: Vec<u64> = tests.iter().flat_map(|test| self.sizes_of(test)).collect();
        sizes.sort_unstable();
        sizes.dedup();
        // Pairs of values are compared, so a round has two pairs, and each way comes first once.
        let turns = if first.by == By::Reads { 2 * round..2 * round + 2 } else { round..round + 1 };
        let of_size = |bytes| turns.clone().flat_map(|turn| self.turns(turn, &tests, bytes)).collect::<Vec<_>>();
        sizes.into_iter().flat_map(of_size).collect()
    }

    /// Returns the steps for those of a group's tests that have this size, transport by transport.
    fn turns(&self, round: usize, tests: &[&'static Test], bytes: u64) -> Vec<Step> {
        let tests: Vec<&'static Test> = tests.iter().copied().filter(|test| self.has(test, bytes)).collect();
        let first = tests[0];
        let mut transports = match first.by {
            By::Reads => vec![Transport::Ibex, Transport::Uncut],
            _ => self.transports.clone(),
        };
        if !transports.is_empty() {
            // The first may be at an advantage, so each comes first once.
            let turn = round % transports.len();
            transports.rotate_left(turn);
        }
        let steps = |transport| match (transport, first.by) {
            (Transport::Raw, _) => self.raw(&tests, bytes),
            (_, By::InstructionCounter(_)) => self.instructions(&tests, transport, bytes),
            _ => Step::of_messages(&tests, transport, bytes),
        };
        transports.into_iter().filter(|transport| self.measures(*transport, first)).flat_map(steps).collect()
    }

    /// Whether a transport has a test. On emulated adapters TCP shows the scale, with messages only; and only `ofi-btl`
    /// has one-sided operations, because Open MPI 5.0.7 crashes in `btl/ofi` beside `mtl/ofi` over datagrams.
    fn measures(&self, transport: Transport, test: &Test) -> bool {
        match test.by {
            By::Messages => true,
            By::Reads => self.transports.contains(&Transport::Ibex),
            By::OneSided => ![Transport::Tcp, Transport::Ofi].contains(&transport) || self.kind != Kind::SoftHca,
            // Logger and recorder write in a thread of their own, at any time.
            By::InstructionCounter(_) => {
                // Libfabric resends datagrams by a timer, so counts differ.
                let is_steady = ![Transport::Tcp, Transport::Logger, Transport::Recorded].contains(&transport);
                transport.is_mpi() && is_steady && !transport.is_ofi()
            }
            By::Libfabric => [Transport::Ibex, Transport::Raw].contains(&transport),
            By::HostMemory => false,
        }
    }

    /// Returns the counts over a transport; for events only the shortest message, in which they weigh most. Libfabric's
    /// calls stand in the column of ibex.
    fn instructions(&self, tests: &[&'static Test], transport: Transport, bytes: u64) -> Vec<Step> {
        let of_test = |test: &&'static Test| {
            let By::InstructionCounter(calls) = test.by else { return None };
            let is_counted = !self.is_of_events() || self.sizes_of(test).next() == Some(bytes);
            let is_its = calls != Calls::Libfabric || transport == Transport::Ibex;
            (is_counted && is_its).then(|| Step::of_count(Count { transport, calls, bytes }))
        };
        tests.iter().filter_map(of_test).collect()
    }

    /// Returns the raw programs of a group with a size; perftest has no messages of 0 bytes.
    fn raw(&self, group: &[&'static Test], bytes: u64) -> Vec<Step> {
        let is_wanted = |raw: &&RawProgram| bytes > 0 && group.iter().any(|test| test.raw.contains(&raw.name));
        let step = |program: &'static RawProgram| {
            let tests = self.tests.iter().copied().filter(|test| test.raw.contains(&program.name));
            let step = Step::of(Start::Raw { program, bytes }, Transport::Raw, &tests.collect::<Vec<_>>(), bytes);
            Step { values: vec![(program.name, bytes)], ..step }
        };
        RAW.iter().filter(is_wanted).map(step).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::TESTS;

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
    fn an_adapters_round_has_every_test_over_both_mpi_transports_and_every_raw_program_with_some_bytes() {
        let round = plan(Kind::Adapter).round(1);
        let of_mpi = |step: &&Step| matches!(step.start, Start::Mpi { .. });
        let mpi = |wanted| round.iter().filter(of_mpi).filter(|step| step.transport == wanted).count();
        // Four groups of tests have a step for each size (one ends at 4 KiB), one test has one size, and messages of 0
        // bytes have a latency and a rate; over ibex, three sizes are read twice.
        assert_eq!((mpi(Transport::Ibex), mpi(Transport::Tcp), mpi(Transport::Openib)), (44, 38, 0));
        for raw in &RAW {
            assert!(round.iter().any(|step| step.values[0].0 == raw.name), "{}", raw.name);
        }
        assert!(!round.iter().any(|step| matches!(step.start, Start::Instructions(_) | Start::HostMemory)));
        let is_empty = |step: &Step| step.transport == Transport::Raw && step.values[0].1 == 0;
        assert!(!round.iter().any(is_empty), "a raw program is asked for a message of 0 bytes");
    }

    #[test]
    fn on_emulated_adapters_instructions_are_counted_twice_over_each_rdma_transport() {
        let plan = plan(Kind::SoftHca);
        let counted = |round| {
            let steps = plan.round(round).into_iter().filter(|step| step.values[0] == ("instructions", 512));
            let mut names: Vec<&str> = steps.map(|step| step.transport.name()).collect();
            names.sort_unstable();
            names
        };
        let each = ["ibex", "ibex-btl", "openib", "ucx"];
        assert_eq!([1, 2].map(counted), [each, each]);
        assert!(counted(3).is_empty());
    }

    #[test]
    fn the_last_rounds_measure_latencies_and_pairs_of_reads_alone() {
        let plan = plan(Kind::SoftHca);
        let last = plan.round(plan.rounds);
        let repeated = ["latency", "pieces", "libfabric_latency"];
        assert!(last.iter().all(|step| repeated.contains(&step.tests[0])) && !last.is_empty());
    }

    #[test]
    fn transports_take_turns_at_each_size_and_each_comes_first_once() {
        let tests = ["latency"].into_iter().filter_map(crate::catalogue::test).collect();
        let plan = Plan::new(Kind::SoftHca, false, tests, vec![Transport::Ibex, Transport::Raw, Transport::Ucx]);
        let order = |round: usize| -> Vec<(Transport, u64)> {
            plan.round(round).iter().map(|step| (step.transport, step.values[0].1)).collect()
        };
        let first = order(3);
        assert_eq!(
            first[..4],
            [(Transport::Ibex, 8), (Transport::Raw, 8), (Transport::Ucx, 8), (Transport::Ibex, 4096)]
        );
        assert_eq!([1, 2, 3].map(|round| order(round)[0].0), [Transport::Raw, Transport::Ucx, Transport::Ibex]);
    }

    #[test]
    fn long_messages_are_read_in_pieces_and_uncut_one_after_the_other_and_each_way_comes_first() {
        let steps = plan(Kind::SoftHca).round(1).into_iter().filter(|step| step.values[0] == ("pieces", 64 << 20));
        let steps: Vec<(&str, usize)> = steps.map(|step| (step.transport.name(), step.values.len())).collect();
        assert_eq!(steps, [("ibex", 2), ("uncut", 2), ("uncut", 2), ("ibex", 2)]);
    }

    #[test]
    fn only_unsteady_values_are_measured_again() {
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
    fn the_cost_of_events_is_measured_in_the_six_ways_in_turn() {
        let tests = ["latency", "instructions"].into_iter().filter_map(crate::catalogue::test).collect();
        let plan = Plan::of_events(Kind::SoftHca, true, tests);
        let ways = |round, counted: bool| -> Vec<&str> {
            let is_wanted = |step: &Step| match step.start {
                Start::Mpi { .. } => !counted,
                Start::Instructions(_) => counted,
                _ => false,
            };
            let steps = plan.round(round).into_iter().filter(is_wanted);
            steps.map(|step| step.transport.name()).collect()
        };
        assert_eq!(ways(6, false)[..6], ["without", "unregistered", "callbacks", "buffered", "logger", "recorded"]);
        let firsts: Vec<&str> = (1..=6).map(|round| ways(round, false)[0]).collect();
        assert_eq!(firsts, ["unregistered", "callbacks", "buffered", "logger", "recorded", "without"]);
        let of_matching = transport::EVENTS_OF_MATCHING.map(Transport::name);
        assert_eq!(ways(1, true), [&["unregistered", "callbacks", "buffered", "without"][..], &of_matching].concat());
        assert_eq!(ways(2, true), ["callbacks", "buffered", "without", "unregistered"]);
        let small =
            |round: usize| plan.round(round).iter().filter(|step| matches!(step.start, Start::SmallBuffer)).count();
        assert_eq!((small(1), small(2)), (1, 0));
    }
}
