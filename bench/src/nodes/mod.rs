// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a bench runs: the one or two nodes with the device, and the jobs that run there.
//!
//! [`job`] is what runs, and who runs it; [`place`] what the caller says of the nodes. [`here`] runs jobs on this
//! machine, [`hosts`] reaches two others; [`sides`] is a program of two; [`processors`] are given to two processes, and [`environment`] is what the
//! numbers depend on.

pub(crate) mod environment;
pub(crate) mod here;
pub(crate) mod hosts;
pub(crate) mod job;
pub(crate) mod place;
pub(crate) mod processors;
pub(crate) mod sides;
