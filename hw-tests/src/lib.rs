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
//! `wire` and `channel` carry jobs to the [`agent`] of a node, which runs them by [`ibex_jobs`]. Everything is setup
//! grade: it may block, allocate and start processes.

#![forbid(unsafe_code)]

pub mod agent;
mod channel;
pub mod device;
pub mod fabric;
mod folder;
pub mod openmpi;
mod programs;
pub mod runtime_failure;
mod selection;
pub mod vm;
mod wire;

pub use device::Device;
pub use fabric::{Fabric, Options};
pub use folder::Folder;
pub use ibex_jobs::{Ending, Job, Outcome, Running, Stream};
pub use selection::{Selection, TESTS_VARIABLE};
