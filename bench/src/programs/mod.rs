// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs that measure: the command line of each, and what it prints.
//!
//! `ibex_mpi_bench` ([`mpi`]), perftest ([`perftest`], [`ucx_perftest`]),
//! `ibex_mpi_instructions` under valgrind ([`instructions`], `callgrind`), `host_memory_ratios` ([`host_memory`]),
//! the tool `every_event` ([`event_counts`]) and the micro-benchmarks ([`criterion`]). Each gives a
//! [`measurement::Measurement`]. Runs nothing.

mod callgrind;
pub(crate) mod criterion;
pub(crate) mod event_counts;
pub(crate) mod host_memory;
pub(crate) mod instructions;
pub(crate) mod measurement;
pub(crate) mod mpi;
pub(crate) mod perftest;
pub(crate) mod ucx_perftest;
