// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a bench measures in which order: sizes, rounds, and what each round starts.
//!
//! A machine's speed drifts, so everything is measured in several rounds, and within a round all transports of one
//! group of tests follow each other closely. Latencies, which are short and judged closely, may have more rounds than
//! the rest.
//!
//! Grade: setup. Carried out by [`super::run`]. Tests: at the end of this file.

use super::catalogue::{self, By, RAW, RawProgram, Test};
use super::engine;
use super::instructions::{Calls, Count};
use super::report::LeftOut;
use super::transport::{self, Transport};
use anyhow::{Result, bail};

/// What sort of device is measured: it decides what is worth measuring, and in which time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The kernel's software adapter in a virtual machine: slow.
    SoftRoce,
    /// Emulated adapters: as fast as memory, on any machine.
    SoftHca,
    /// An adapter.
    Adapter,
}

impl Kind {
    /// What the numbers of such a device mean.
    pub(crate) fn remark(self) -> &'static str {
        match self {
            Self::SoftRoce => {
                "These numbers come from a software adapter: use them to compare software overhead, not to \
                 predict the speed of an adapter."
            }
            Self::SoftHca => {
                "These numbers come from an emulated adapter, which moves data with the processor: use them to compare software \
                 overhead, not to predict the speed of an adapter."
            }
            Self::Adapter => "Both ranks are on this machine.",
        }
    }

    /// What is measured unless the arguments say otherwise, as far as it is there ([`super::available`]).
    pub(crate) fn transports(self) -> Vec<Transport> {
        match self {
            Self::SoftHca => vec![
                Transport::Ibex,
                Transport::IbexBtl,
                Transport::Raw,
                Transport::Engine,
                Transport::Openib,
                Transport::Ucx,
                Transport::Ofi,
                Transport::OfiBtl,
                Transport::UcxPerftest,
                Transport::Tcp,
            ],
            Self::SoftRoce | Self::Adapter => {
                vec![Transport::Ibex, Transport::IbexBtl, Transport::Raw, Transport::Engine, Transport::Tcp]
            }
        }
    }

    /// Whether a test makes sense on such a device: instructions are only counted where a message arrives at once, and
    /// the host's memory is what only emulated adapters are made of.
    pub(crate) fn has(self, test: &Test) -> bool {
        self == Self::SoftHca || matches!(test.by, By::Messages | By::OneSided)
    }
}

/// Tests that one start of a program measures, so that what they are compared with follows at once.
static GROUPS: [&[&str]; 6] = [
    &["latency"],
    &["bandwidth", "bidirectional_bandwidth"],
    &["message_rate"],
    &["put_latency", "get_latency", "put_bandwidth", "get_bandwidth"],
    &["instructions", "nonblocking_instructions"],
    &["host_latency", "host_bandwidth"],
];

/// What to measure, as the arguments say.
#[derive(Debug)]
pub struct Plan {
    kind: Kind,
    /// In the order of the report.
    pub(crate) tests: Vec<&'static Test>,
    /// What to measure them over.
    pub(crate) transports: Vec<Transport>,
    /// Message sizes, ascending.
    pub(crate) sizes: Vec<u64>,
    /// How often latencies are measured; at least as often as the rest.
    pub(crate) rounds: usize,
    rounds_of_the_rest: usize,
    rounds_of_instructions: usize,
    /// How long the MPI program measures each latency, and each other value.
    seconds_per_row: (f64, f64),
    /// What was not there to be planned.
    pub(crate) left_out: Vec<LeftOut>,
}

/// Instructions are counted twice: enough to see that the counts repeat.
const ROUNDS_OF_INSTRUCTIONS: usize = 2;

/// On emulated adapters: a start of perftest measures for some hundredths of a second, and takes up to one and a half.
const ROUNDS_OF_RAW: usize = 2;

/// One start of a program.
#[derive(Debug)]
pub(crate) enum Step {
    /// The MPI program over a transport.
    Mpi { transport: Transport, tests: Vec<&'static Test>, sizes: Vec<u64>, seconds_per_row: f64 },
    /// A raw program with one size.
    Raw { program: &'static RawProgram, bytes: u64 },
    /// `ucx_perftest`, each test with each of its sizes.
    UcxPerftest { runs: Vec<(&'static Test, u64)> },
    /// The engine of ibex without MPI.
    Engine { tests: Vec<&'static Test>, sizes: Vec<u64>, seconds_per_row: f64 },
    /// Counts instructions over a transport.
    Instructions(Count),
    /// The adapter beside the host's memory.
    HostMemory,
    /// Events through a buffer that is too small.
    SmallBuffer,
}

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Fewer sizes and rounds.
    pub quick: bool,
    /// These tests alone, by name; none: all that the device has.
    pub tests: Vec<String>,
    /// These transports alone; none: those of the kind of device.
    pub transports: Vec<Transport>,
    /// What events cost, over ibex.
    pub events: bool,
    /// These sizes of messages, in bytes, of those that a test has; none: those of the kind of device.
    pub sizes: Vec<u64>,
    /// So many rounds, of everything but instructions; none: as the kind of device needs.
    pub rounds: Option<usize>,
}

/// What is measured of events unless the tests are named.
const OF_EVENTS: [&str; 3] = ["latency", "bandwidth", "instructions"];

/// The tests to run, in the order of the report.
fn tests(kind: Kind, names: &[String]) -> Result<Vec<&'static Test>> {
    let wanted = |name: &str| names.iter().any(|wanted| wanted == name);
    let tests = catalogue::TESTS.iter();
    if names.is_empty() {
        return Ok(tests.filter(|test| kind.has(test)).collect());
    }
    let tests: Vec<_> = tests.filter(|test| wanted(test.name)).collect();
    if let Some(test) = tests.iter().find(|test| !kind.has(test)) {
        bail!("the test {} needs emulated adapters: --device softhca", test.name);
    }
    Ok(tests)
}

/// The same of events: messages alone.
fn tests_of_events(kind: Kind, names: &[String]) -> Result<Vec<&'static Test>> {
    let default = || OF_EVENTS.into_iter().filter(|name| catalogue::test(name).is_some_and(|test| kind.has(test)));
    let names = if names.is_empty() { default().map(str::to_owned).collect() } else { names.to_vec() };
    let tests = tests(kind, &names)?;
    if let Some(test) = tests.iter().find(|test| !matches!(test.by, By::Messages | By::InstructionCounter(_))) {
        bail!("the test {} is not among those of --events", test.name);
    }
    Ok(tests)
}

impl Plan {
    /// The plan for what is asked for.
    ///
    /// # Errors
    /// A test that such a device does not have.
    pub fn chosen(kind: Kind, wanted: &Wanted) -> Result<Self> {
        let mut plan = if wanted.events {
            Self::of_events(kind, wanted.quick, tests_of_events(kind, &wanted.tests)?)
        } else {
            let transports = if wanted.transports.is_empty() { kind.transports() } else { wanted.transports.clone() };
            Self::new(kind, wanted.quick, tests(kind, &wanted.tests)?, transports)
        };
        if !wanted.sizes.is_empty() {
            plan.sizes.clone_from(&wanted.sizes);
            plan.sizes.sort_unstable();
            plan.sizes.dedup();
        }
        if let Some(rounds) = wanted.rounds {
            (plan.rounds, plan.rounds_of_the_rest) = (rounds, rounds);
        }
        if plan.values() == 0 {
            bail!(
                "none of these tests has one of these sizes over one of these transports: there is nothing to measure"
            );
        }
        Ok(plan)
    }

    /// What it measures over.
    #[must_use]
    pub fn transports(&self) -> &[Transport] {
        &self.transports
    }

    /// In how many rounds.
    #[must_use]
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// Whether it compares the adapter with the host's memory, by a program of its own.
    #[must_use]
    pub fn has_host_memory(&self) -> bool {
        self.tests.iter().any(|test| test.by == By::HostMemory)
    }

    /// The plan for a run with all sizes, or for a quick one.
    pub(crate) fn new(kind: Kind, quick: bool, tests: Vec<&'static Test>, transports: Vec<Transport>) -> Self {
        const FEW: &[u64] = &[8, 4 << 10, 64 << 10, 1 << 20];
        const SOME: &[u64] = &[8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 1 << 20, 4 << 20];
        const ALL: &[u64] = &[0, 1, 8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
        let (sizes, rounds, rest, seconds_per_row) = match (kind, quick) {
            (Kind::SoftHca, true) => (FEW, 3, 2, (0.1, 0.05)),
            (Kind::SoftHca, false) => (SOME, 5, 3, (0.1, 0.05)),
            (_, true) => (FEW, 2, 2, (0.2, 0.2)),
            (_, false) => (ALL, 3, 3, (0.3, 0.3)),
        };
        Self {
            kind,
            tests,
            transports,
            sizes: sizes.to_vec(),
            rounds,
            rounds_of_the_rest: rest,
            rounds_of_instructions: ROUNDS_OF_INSTRUCTIONS,
            seconds_per_row,
            left_out: Vec::new(),
        }
    }

    /// The plan for what events cost: small differences, so many short rounds.
    pub(crate) fn of_events(kind: Kind, quick: bool, tests: Vec<&'static Test>) -> Self {
        let (rounds, rounds_of_instructions) = if quick { (5, 1) } else { (8, ROUNDS_OF_INSTRUCTIONS) };
        let plan = Self::new(kind, quick, tests, transport::EVENTS.to_vec());
        Self { rounds, rounds_of_the_rest: rounds, rounds_of_instructions, ..plan }
    }

    /// Whether this is a plan for what events cost.
    pub(crate) fn is_of_events(&self) -> bool {
        self.transports.contains(&Transport::WithoutEvents)
    }

    /// The sizes a test is measured with.
    pub(crate) fn sizes_of(&self, test: &Test) -> impl Iterator<Item = u64> {
        self.sizes.iter().copied().filter(move |size| (test.sizes.0..=test.sizes.1).contains(size))
    }

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
    use super::super::catalogue::TESTS;
    use super::*;

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
        let tests = ["latency", "instructions"].into_iter().filter_map(super::super::catalogue::test).collect();
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

    #[test]
    fn sizes_and_rounds_that_are_asked_for_are_measured_and_a_plan_of_nothing_is_refused() {
        let wanted = Wanted { sizes: vec![64, 8, 64], rounds: Some(1), ..Wanted::default() };
        let plan = Plan::chosen(Kind::Adapter, &wanted).unwrap();
        assert_eq!((&plan.sizes[..], plan.rounds(), plan.round(2).len()), (&[8, 64][..], 1, 0));
        let nothing = Wanted { tests: vec!["message_rate".to_owned()], sizes: vec![1 << 20], ..wanted };
        assert!(Plan::chosen(Kind::Adapter, &nothing).unwrap_err().to_string().contains("nothing to measure"));
    }

    #[test]
    fn the_sizes_the_speed_bars_need_are_in_all_plans() {
        for (kind, quick) in [Kind::SoftRoce, Kind::SoftHca].into_iter().flat_map(|kind| [(kind, false), (kind, true)])
        {
            let plan = Plan::new(kind, quick, vec![], vec![]);
            for size in [8, 64 << 10, 1 << 20] {
                assert!(plan.sizes.contains(&size), "{size}");
            }
        }
    }
}
