// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a bench measures, and in which order: the tests, the raw programs each is compared with, sizes and rounds.
//!
//! A machine's speed drifts, so everything is measured in several rounds, and within a round MPI through ibex, the raw
//! programs and MPI through TCP of one group of tests follow each other closely.
//!
//! Grade: setup. Carried out by [`super::run`]. Tests: at the end of this file.

use super::report::Transport;

/// One test of `ibex_mpi_bench`, and what it is compared with.
#[derive(Debug)]
pub(crate) struct Test {
    /// Its name in the program and in the report.
    pub(crate) name: &'static str,
    /// Its name for a reader.
    pub(crate) title: &'static str,
    /// What exactly is compared.
    pub(crate) note: &'static str,
    /// What its value is.
    pub(crate) metric: Metric,
    /// The raw programs it is compared with: the better of them counts.
    pub(crate) raw: &'static [&'static str],
    /// The sizes it has, inclusive.
    sizes: (u64, u64),
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    /// Half the time of a message there and one back.
    HalfRoundTrip,
    /// A put or a get, until it is complete.
    Completion,
    /// Bytes per time.
    Bandwidth,
    /// Messages per time.
    MessageRate,
}

impl Metric {
    /// Its name in the report.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::HalfRoundTrip => "half_round_trip",
            Self::Completion => "completion",
            Self::Bandwidth => "bandwidth",
            Self::MessageRate => "message_rate",
        }
    }

    /// Its unit in the report.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::HalfRoundTrip | Self::Completion => "us",
            Self::Bandwidth => "MB/s",
            Self::MessageRate => "msg/s",
        }
    }

    /// The best of some values, with what belongs to it.
    pub(crate) fn better<T>(self, values: impl Iterator<Item = (T, f64)>) -> Option<(T, f64)> {
        match self {
            Self::Bandwidth | Self::MessageRate => values.max_by(|a, b| a.1.total_cmp(&b.1)),
            Self::HalfRoundTrip | Self::Completion => values.min_by(|a, b| a.1.total_cmp(&b.1)),
        }
    }
}

/// One way to run a program of perftest.
#[derive(Debug)]
pub(crate) struct RawProgram {
    /// Its name in the report.
    pub(crate) name: &'static str,
    /// The program.
    pub(crate) program: &'static str,
    /// Its options beyond device, size and iterations.
    pub(crate) options: &'static [&'static str],
    /// What is taken from its table.
    pub(crate) reads: Reads,
}

/// What is taken from a table of perftest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// The typical latency: the median.
    TypicalLatency,
    /// The average bandwidth.
    Bandwidth,
    /// The message rate.
    MessageRate,
    /// The time of one message, with one at a time: the inverse of the message rate.
    TimePerMessage,
}

const UP_TO_4_MIB: (u64, u64) = (1, 4 << 20);

static TESTS: [Test; 8] = [
    Test {
        name: "latency",
        title: "Latency",
        note: "half a round trip of MPI_Send and MPI_Recv; raw: ib_send_lat, typical",
        metric: Metric::HalfRoundTrip,
        raw: &["ib_send_lat"],
        sizes: (0, 4 << 20),
    },
    Test {
        name: "bandwidth",
        title: "Bandwidth",
        note: "messages one way, 64 in flight; raw: the better of ib_write_bw and ib_read_bw",
        metric: Metric::Bandwidth,
        raw: &["ib_write_bw", "ib_read_bw"],
        sizes: UP_TO_4_MIB,
    },
    Test {
        name: "bidirectional_bandwidth",
        title: "Bidirectional bandwidth",
        note: "messages both ways at once, the sum; raw: the better of ib_write_bw -b and ib_read_bw -b",
        metric: Metric::Bandwidth,
        raw: &["ib_write_bw -b", "ib_read_bw -b"],
        sizes: UP_TO_4_MIB,
    },
    Test {
        name: "message_rate",
        title: "Message rate",
        note: "small messages one way, 64 in flight; raw: ib_send_bw, message rate",
        metric: Metric::MessageRate,
        raw: &["ib_send_bw"],
        sizes: (0, 4096),
    },
    Test {
        name: "put_latency",
        title: "One-sided put, latency",
        note: "one MPI_Put and MPI_Win_flush; raw: ib_write_bw with one write at a time",
        metric: Metric::Completion,
        raw: &["ib_write_bw -t 1"],
        sizes: UP_TO_4_MIB,
    },
    Test {
        name: "get_latency",
        title: "One-sided get, latency",
        note: "one MPI_Get and MPI_Win_flush; raw: ib_read_lat, typical",
        metric: Metric::Completion,
        raw: &["ib_read_lat"],
        sizes: UP_TO_4_MIB,
    },
    Test {
        name: "put_bandwidth",
        title: "One-sided put, bandwidth",
        note: "MPI_Put, 64 before a flush; raw: ib_write_bw",
        metric: Metric::Bandwidth,
        raw: &["ib_write_bw"],
        sizes: UP_TO_4_MIB,
    },
    Test {
        name: "get_bandwidth",
        title: "One-sided get, bandwidth",
        note: "MPI_Get, 64 before a flush; raw: ib_read_bw",
        metric: Metric::Bandwidth,
        raw: &["ib_read_bw"],
        sizes: UP_TO_4_MIB,
    },
];

static RAW: [RawProgram; 8] = [
    RawProgram { name: "ib_send_lat", program: "ib_send_lat", options: &[], reads: Reads::TypicalLatency },
    RawProgram { name: "ib_write_bw", program: "ib_write_bw", options: &[], reads: Reads::Bandwidth },
    RawProgram { name: "ib_read_bw", program: "ib_read_bw", options: &[], reads: Reads::Bandwidth },
    RawProgram { name: "ib_write_bw -b", program: "ib_write_bw", options: &["-b"], reads: Reads::Bandwidth },
    RawProgram { name: "ib_read_bw -b", program: "ib_read_bw", options: &["-b"], reads: Reads::Bandwidth },
    RawProgram { name: "ib_send_bw", program: "ib_send_bw", options: &[], reads: Reads::MessageRate },
    RawProgram {
        name: "ib_write_bw -t 1",
        program: "ib_write_bw",
        options: &["-t", "1"],
        reads: Reads::TimePerMessage,
    },
    RawProgram { name: "ib_read_lat", program: "ib_read_lat", options: &[], reads: Reads::TypicalLatency },
];

/// Tests that one start of the MPI program measures, so that what they are compared with follows at once.
static GROUPS: [&[&str]; 4] = [
    &["latency"],
    &["bandwidth", "bidirectional_bandwidth"],
    &["message_rate"],
    &["put_latency", "get_latency", "put_bandwidth", "get_bandwidth"],
];

/// The test of that name.
pub(crate) fn test(name: &str) -> Option<&'static Test> {
    TESTS.iter().find(|test| test.name == name)
}

/// The names of all tests.
pub(crate) fn test_names() -> impl Iterator<Item = &'static str> {
    TESTS.iter().map(|test| test.name)
}

/// The raw programs the tests are compared with, each once.
pub(crate) fn raw_programs(tests: &[&'static Test]) -> Vec<&'static str> {
    let wanted = |raw: &&RawProgram| tests.iter().any(|test| test.raw.contains(&raw.name));
    RAW.iter().filter(wanted).map(|raw| raw.name).collect()
}

/// What to measure, as the arguments say.
#[derive(Debug)]
pub(crate) struct Plan {
    /// In the order of the report.
    pub(crate) tests: Vec<&'static Test>,
    /// What to measure them over.
    pub(crate) transports: Vec<Transport>,
    /// Message sizes, ascending.
    pub(crate) sizes: Vec<u64>,
    /// How often all of it is measured.
    pub(crate) rounds: usize,
    /// How long the MPI program measures each size.
    pub(crate) seconds_per_row: f64,
}

/// One start of a program.
#[derive(Debug)]
pub(crate) enum Step {
    /// The MPI program over a transport.
    Mpi { transport: Transport, tests: Vec<&'static Test>, sizes: Vec<u64> },
    /// A raw program with one size.
    Raw { program: &'static RawProgram, bytes: u64 },
}

impl Plan {
    /// The plan for a run with all sizes, or for a quick one.
    pub(crate) fn new(quick: bool, tests: Vec<&'static Test>, transports: Vec<Transport>) -> Self {
        let (sizes, rounds, seconds_per_row): (&[u64], _, _) = if quick {
            (&[8, 4 << 10, 64 << 10, 1 << 20], 2, 0.2)
        } else {
            (&[0, 1, 8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20], 3, 0.3)
        };
        Self { tests, transports, sizes: sizes.to_vec(), rounds, seconds_per_row }
    }

    /// The sizes a test is measured with.
    pub(crate) fn sizes_of(&self, test: &Test) -> impl Iterator<Item = u64> {
        self.sizes.iter().copied().filter(move |size| (test.sizes.0..=test.sizes.1).contains(size))
    }

    /// Everything one round starts, in order.
    pub(crate) fn round(&self) -> Vec<Step> {
        GROUPS.iter().flat_map(|group| self.group(group)).collect()
    }

    /// How many values one round yields.
    pub(crate) fn values_of_a_round(&self) -> usize {
        self.round().iter().map(|step| self.values_of(step)).sum()
    }

    fn values_of(&self, step: &Step) -> usize {
        match step {
            Step::Raw { .. } => 1,
            Step::Mpi { tests, .. } => tests.iter().map(|test| self.sizes_of(test).count()).sum(),
        }
    }

    fn group(&self, names: &[&str]) -> Vec<Step> {
        let tests: Vec<&'static Test> = self.tests.iter().copied().filter(|test| names.contains(&test.name)).collect();
        if tests.is_empty() {
            return Vec::new();
        }
        self.transports
            .iter()
            .flat_map(|&transport| match transport {
                Transport::Raw => self.raw(&tests),
                _ => vec![Step::Mpi { transport, tests: tests.clone(), sizes: self.sizes.clone() }],
            })
            .collect()
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan::new(false, TESTS.iter().collect(), vec![Transport::Ibex, Transport::Raw, Transport::Tcp])
    }

    #[test]
    fn each_test_is_in_one_group_and_each_raw_program_it_names_exists() {
        for test in &TESTS {
            assert_eq!(GROUPS.iter().filter(|group| group.contains(&test.name)).count(), 1, "{}", test.name);
            for raw in test.raw {
                assert_eq!(RAW.iter().filter(|program| program.name == *raw).count(), 1, "{raw}");
            }
        }
    }

    #[test]
    fn a_round_has_every_test_over_both_mpi_transports_and_every_raw_program() {
        let round = plan().round();
        let mpi = |wanted| {
            round.iter().filter(|step| matches!(step, Step::Mpi { transport, .. } if *transport == wanted)).count()
        };
        assert_eq!((mpi(Transport::Ibex), mpi(Transport::Tcp)), (GROUPS.len(), GROUPS.len()));
        for raw in &RAW {
            let starts =
                round.iter().filter(|step| matches!(step, Step::Raw { program, .. } if program.name == raw.name));
            assert!(starts.count() > 0, "{}", raw.name);
        }
    }

    #[test]
    fn no_raw_program_is_asked_for_a_message_of_0_bytes() {
        assert!(!plan().round().iter().any(|step| matches!(step, Step::Raw { bytes: 0, .. })));
    }

    #[test]
    fn the_sizes_the_speed_bars_need_are_in_both_plans() {
        for quick in [false, true] {
            let plan = Plan::new(quick, vec![], vec![]);
            for size in [8, 64 << 10, 1 << 20] {
                assert!(plan.sizes.contains(&size), "{size}");
            }
        }
    }
}
