// SPDX-License-Identifier: MIT OR Apache-2.0
//! One start of a program: what is measured by it, over what.
//!
//! Grade: setup. Made by [`super::round`], carried out by [`crate::run`]. Plain data.

use crate::catalogue::transport::Transport;
use crate::catalogue::{RawProgram, Test};
use crate::numbers::size;
use crate::programs::instructions::Count;

/// One start of a program.
#[derive(Debug)]
pub(crate) enum Step {
    /// The MPI program over a transport with one size.
    Mpi { transport: Transport, tests: Vec<&'static Test>, bytes: u64 },
    /// A raw program with one size.
    Raw { program: &'static RawProgram, bytes: u64 },
    /// `ucx_perftest` with a test and one size.
    UcxPerftest { test: &'static Test, bytes: u64 },
    /// Counts instructions over a transport.
    Instructions(Count),
    /// The adapter beside the host's memory.
    HostMemory,
    /// Events through a buffer that is too small.
    SmallBuffer,
}

impl Step {
    /// How many values it yields.
    pub(crate) fn values(&self) -> usize {
        match self {
            Step::Raw { .. } | Step::UcxPerftest { .. } | Step::Instructions(_) => 1,
            Step::Mpi { tests, .. } => tests.len(),
            Step::HostMemory => 4,
            Step::SmallBuffer => 0,
        }
    }

    /// Its name for a reader.
    pub(crate) fn title(&self) -> String {
        match self {
            Step::Mpi { transport, tests, bytes } => {
                format!("MPI over {}: {}, {}", transport.name(), names(tests), size(*bytes))
            }
            Step::SmallBuffer => "events through a buffer that is too small".to_owned(),
            Step::Raw { program, bytes } => format!("{}, {}", program.name, size(*bytes)),
            Step::UcxPerftest { test, bytes } => format!("ucx_perftest: {}, {}", test.name, size(*bytes)),
            Step::Instructions(count) => {
                format!("{}, {}, of MPI over {}", count.test(), size(count.bytes), count.transport.name())
            }
            Step::HostMemory => "the emulated adapter beside the host's memory".to_owned(),
        }
    }
}

fn names(tests: &[&Test]) -> String {
    tests.iter().map(|test| test.name).collect::<Vec<_>>().join(", ")
}
