// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests, and the programs without MPI with which each is compared. Read by [`crate::plan`] and by all forms of the
//! report. Grade: setup. Tests: below.

mod device_kind;
pub(crate) mod implementation;
pub(crate) mod transport;

pub use device_kind::Kind;
pub use implementation::{Family, Mpi, Stock};
pub use transport::Transport;

#[derive(Debug)]
pub(crate) struct Test {
    /// Name in the program that measures it and in the report.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// Exact description of the measured operation.
    pub(crate) note: &'static str,
    /// The same operation over transports without MPI.
    pub(crate) compared: &'static [(Transport, &'static str)],
    pub(crate) metric: Metric,
    pub(crate) by: By,
    /// Programs of perftest with which it is compared: the one with the better value counts.
    pub(crate) raw: &'static [&'static str],
    /// Smallest and largest size.
    pub(crate) sizes: (u64, u64),
    /// Sizes of a first table; the bandwidth of short messages is their rate.
    pub(crate) few: &'static [u64],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// `ibex_mpi_bench`, two-sided.
    Messages,
    /// `ibex_mpi_bench`, one-sided.
    OneSided,
    /// `ibex_mpi_bench`, by ibex' PML alone: how it reads long messages.
    Reads,
    /// `ibex_mpi_instructions`, or `ibex_fi_instructions`, under an instruction counter.
    InstructionCounter(Calls),
    /// `ibex_fi_latency`: messages by libfabric's calls over ibex' provider, without MPI.
    Libfabric,
    /// `host_memory_ratios`, without MPI.
    HostMemory,
}

impl By {
    pub(crate) fn is_of_libfabric(self) -> bool {
        [Self::Libfabric, Self::InstructionCounter(Calls::Libfabric)].contains(&self)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Calls {
    Blocking,
    /// `MPI_Isend`, `MPI_Irecv` and a wait for each.
    Nonblocking,
    /// Those of libfabric, by ibex' provider, without MPI.
    Libfabric,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    HalfRoundTrip,
    /// Time of an operation that is not a message, until it is complete.
    Completion,
    Bandwidth,
    MessageRate,
    /// User-space instructions of sending and receiving a message.
    Instructions,
}

impl Metric {
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::HalfRoundTrip | Self::Completion => "us",
            Self::Bandwidth => "MB/s",
            Self::MessageRate => "msg/s",
            Self::Instructions => "instructions",
        }
    }

    pub(crate) fn better<T>(self, values: impl Iterator<Item = (T, f64)>) -> Option<(T, f64)> {
        match self {
            Self::Bandwidth | Self::MessageRate => values.max_by(|a, b| a.1.total_cmp(&b.1)),
            Self::HalfRoundTrip | Self::Completion | Self::Instructions => values.min_by(|a, b| a.1.total_cmp(&b.1)),
        }
    }
}

#[derive(Debug)]
pub(crate) struct RawProgram {
    /// Name in the report: the program, and its options beyond device, size and iterations.
    pub(crate) name: &'static str,
    pub(crate) reads: Reads,
}

/// Column of a table of perftest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    TypicalLatency,
    Bandwidth,
    MessageRate,
    /// Time of one message if only one is in flight: the inverse of the message rate.
    TimePerMessage,
}

impl Reads {
    /// Whether the next message waits for the one before.
    pub(crate) fn one_at_a_time(self) -> bool {
        matches!(self, Self::TypicalLatency | Self::TimePerMessage)
    }
}

const UP_TO_4_MIB: (u64, u64) = (1, 4 << 20);

impl Test {
    /// Makes a test of messages of 8 bytes that is compared with no program without MPI.
    const fn new(name: &'static str, title: &'static str, note: &'static str, metric: Metric) -> Self {
        Self { name, title, note, compared: &[], metric, by: By::Messages, raw: &[], sizes: (8, 8), few: &[8] }
    }

    const fn by(self, by: By) -> Self {
        Self { by, ..self }
    }

    const fn beside(self, compared: &'static [(Transport, &'static str)], raw: &'static [&'static str]) -> Self {
        Self { compared, raw, ..self }
    }

    const fn of(self, sizes: (u64, u64), few: &'static [u64]) -> Self {
        Self { sizes, few, ..self }
    }
}

const LONG: (u64, u64) = (1 << 20, 64 << 20);
const UNCUT: (Transport, &str) = (Transport::Uncut, "one read of a message");

const FEW: &[u64] = &[8, 4 << 10, 64 << 10, 1 << 20];
const SMALL: &[u64] = &[8, 4 << 10];
const LARGE: &[u64] = &[64 << 10, 1 << 20];

pub(crate) static TESTS: [Test; 17] = [
    Test::new("latency", "Latency", "half a round trip of MPI_Send and MPI_Recv", Metric::HalfRoundTrip)
        .beside(&[(Transport::Raw, "ib_send_lat, typical")], &["ib_send_lat"])
        .of((0, 4 << 20), FEW),
    Test::new("bandwidth", "Bandwidth", "messages one way, 64 in flight", Metric::Bandwidth)
        .beside(&[(Transport::Raw, "the better of ib_write_bw and ib_read_bw")], &["ib_write_bw", "ib_read_bw"])
        .of(UP_TO_4_MIB, LARGE),
    Test::new(
        "bidirectional_bandwidth",
        "Bidirectional bandwidth",
        "messages both ways at once, the sum",
        Metric::Bandwidth,
    )
    .beside(&[(Transport::Raw, "the better of ib_write_bw -b and ib_read_bw -b")], &["ib_write_bw -b", "ib_read_bw -b"])
    .of(UP_TO_4_MIB, LARGE),
    Test::new("message_rate", "Message rate", "small messages one way, 64 in flight", Metric::MessageRate)
        .beside(&[(Transport::Raw, "ib_send_bw, message rate")], &["ib_send_bw"])
        .of((0, 4096), SMALL),
    Test::new("put_latency", "One-sided put, latency", "one MPI_Put and MPI_Win_flush", Metric::Completion)
        .by(By::OneSided)
        .beside(&[(Transport::Raw, "ib_write_bw with one write at a time")], &["ib_write_bw -t 1"])
        .of(UP_TO_4_MIB, FEW),
    Test::new("get_latency", "One-sided get, latency", "one MPI_Get and MPI_Win_flush", Metric::Completion)
        .by(By::OneSided)
        .beside(&[(Transport::Raw, "ib_read_lat, typical")], &["ib_read_lat"])
        .of(UP_TO_4_MIB, FEW),
    Test::new("put_bandwidth", "One-sided put, bandwidth", "MPI_Put, 64 before a flush", Metric::Bandwidth)
        .by(By::OneSided)
        .beside(&[(Transport::Raw, "ib_write_bw")], &["ib_write_bw"])
        .of(UP_TO_4_MIB, FEW),
    Test::new("get_bandwidth", "One-sided get, bandwidth", "MPI_Get, 64 before a flush", Metric::Bandwidth)
        .by(By::OneSided)
        .beside(&[(Transport::Raw, "ib_read_bw")], &["ib_read_bw"])
        .of(UP_TO_4_MIB, FEW),
    Test::new(
        "outstanding_rate",
        "Message rate of many outstanding messages",
        "small messages one way, 8192 in flight",
        Metric::MessageRate,
    ),
    Test::new(
        "pieces",
        "Bandwidth of long messages, in pieces",
        "messages one way, 32 MiB in flight or four messages; read in pieces of pml_ibex_read_size",
        Metric::Bandwidth,
    )
    .by(By::Reads)
    .beside(&[UNCUT], &[])
    .of(LONG, &[1 << 20, 4 << 20, 64 << 20]),
    Test::new(
        "share",
        "A short message behind a long one",
        "a round trip of 8 bytes that begins when a message of this size has been posted",
        Metric::Completion,
    )
    .by(By::Reads)
    .beside(&[UNCUT], &[])
    .of(LONG, &[64 << 20]),
    Test::new(
        "instructions",
        "Instructions per message",
        "user-space instructions of one MPI_Send and one MPI_Recv, without those of the adapter and of the program; \
         the message has always arrived",
        Metric::Instructions,
    )
    .by(By::InstructionCounter(Calls::Blocking))
    .of((8, 512), &[8]),
    Test::new(
        "nonblocking_instructions",
        "Instructions per message, nonblocking",
        "the same of one MPI_Isend, one MPI_Irecv and an MPI_Wait for each",
        Metric::Instructions,
    )
    .by(By::InstructionCounter(Calls::Nonblocking)),
    Test::new(
        "libfabric_instructions",
        "Instructions per message, libfabric",
        "the same of one fi_tsend, one fi_trecv and one fi_cq_read for each, by the provider, with FI_THREAD_DOMAIN",
        Metric::Instructions,
    )
    .by(By::InstructionCounter(Calls::Libfabric)),
    Test::new(
        "libfabric_latency",
        "Latency, libfabric",
        "half a round trip of fi_tinject, or from 4 KiB fi_tsend, and fi_trecv, by the provider, with FI_THREAD_DOMAIN",
        Metric::HalfRoundTrip,
    )
    .by(By::Libfabric)
    .beside(&[(Transport::Raw, "ib_send_lat, typical")], &["ib_send_lat"])
    .of((8, 64 << 10), &[8]),
    Test::new(
        "host_latency",
        "The emulated adapter beside the host's memory, latency",
        "half a round trip between two processes",
        Metric::HalfRoundTrip,
    )
    .by(By::HostMemory)
    .beside(&[(Transport::Raw, "send and receive over verbs"), (Transport::Memory, "a flag in shared memory")], &[]),
    Test::new(
        "host_bandwidth",
        "The emulated adapter beside the host's memory, bandwidth",
        "into another process's memory",
        Metric::Bandwidth,
    )
    .by(By::HostMemory)
    .beside(&[(Transport::Raw, "an RDMA write"), (Transport::Memory, "process_vm_writev")], &[])
    .of((1 << 20, 1 << 20), &[1 << 20]),
];

pub(crate) const FEW_TESTS: [&str; 4] = ["latency", "bandwidth", "message_rate", "instructions"];

pub(crate) static RAW: [RawProgram; 8] = [
    RawProgram { name: "ib_send_lat", reads: Reads::TypicalLatency },
    RawProgram { name: "ib_write_bw", reads: Reads::Bandwidth },
    RawProgram { name: "ib_read_bw", reads: Reads::Bandwidth },
    RawProgram { name: "ib_write_bw -b", reads: Reads::Bandwidth },
    RawProgram { name: "ib_read_bw -b", reads: Reads::Bandwidth },
    RawProgram { name: "ib_send_bw", reads: Reads::MessageRate },
    RawProgram { name: "ib_write_bw -t 1", reads: Reads::TimePerMessage },
    RawProgram { name: "ib_read_lat", reads: Reads::TypicalLatency },
];

pub(crate) fn test(name: &str) -> Option<&'static Test> {
    TESTS.iter().find(|test| test.name == name)
}

pub(crate) fn test_names() -> impl Iterator<Item = &'static str> {
    TESTS.iter().map(|test| test.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_raw_program_that_a_test_names_exists_once() {
        for raw in TESTS.iter().flat_map(|test| test.raw) {
            assert_eq!(RAW.iter().filter(|program| program.name == *raw).count(), 1, "{raw}");
        }
    }

    #[test]
    fn the_better_bandwidth_is_the_larger_and_the_better_latency_the_smaller() {
        let values = || [("a", 2.0), ("b", 1.0)].into_iter();
        assert_eq!(Metric::Bandwidth.better(values()), Some(("a", 2.0)));
        assert_eq!(Metric::HalfRoundTrip.better(values()), Some(("b", 1.0)));
    }
}
