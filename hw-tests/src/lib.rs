// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where device tests and benches run: a [`Fabric`] of one or two nodes that have an RDMA device.
//!
//! ```no_run
//! use hw_tests::{Device, Fabric, Job};
//! let fabric = Fabric::open(&Device::SoftRoce, 1)?;
//! let outcome = fabric.run(&Job::new(["ibv_devinfo", "-d", fabric.device_name()]))?;
//! assert!(outcome.success(), "{outcome}");
//! # Ok::<(), anyhow::Error>(())
//! ```
//!
//! [`fabric`] is the face, which [`Options`] describe; [`job`] says what runs and how it ended, [`Running`] is one that runs; [`device`] names
//! devices; [`vm`] prepares and boots the virtual machines of soft-RoCE, `local` starts the agent of this machine's
//! devices, `programs` finds what both start; [`process`] runs a job on the machine it is on (every agent uses it),
//! `pace` says how much of the time a job had; [`openmpi`] knows which Open MPI is here, and [`runtime_failure`] what
//! is its own fault; [`Selection`] says which of the device tests run; [`wire`] and
//! [`channel`] carry jobs into a guest, [`agent`] receives them there. Everything here is setup grade: it may block,
//! allocate and start processes.

#![forbid(unsafe_code)]

pub mod agent;
pub mod channel;
pub mod device;
pub mod fabric;
pub mod job;
mod local;
pub mod openmpi;
mod options;
mod pace;
pub mod process;
mod programs;
mod running;
pub mod runtime_failure;
mod selection;
pub mod vm;
pub mod wire;

pub use device::Device;
pub use fabric::Fabric;
pub use job::{Ending, Job, Outcome, Stream};
pub use options::{CACHE_VARIABLE, Options};
pub use programs::{AGENT_VARIABLE, SOFTHCA_VARIABLE};
pub use running::Running;
pub use selection::{Selection, TESTS_VARIABLE};
