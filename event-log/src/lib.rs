// SPDX-License-Identifier: MIT OR Apache-2.0
//! `libibex-log.so`: a tool that logs and records the events of ibex, preloaded or linked, without a change of the
//! application. As any tool, it uses the calls of plugin-abi/include/ibex_mpi_t.h, through `mpi`.
//!
//! It treats all types, elements and sources alike (`catalogue`). `entry` overrides `MPI_Init`; from there to the end
//! of the process, `session` writes text and `recording` a trace, one of them or both. They have the same registrations
//! (`listening`), callbacks (`target`) and queues (`rings`). For the text, a thread converts the events to a common
//! clock (`clock`), writes them (`writer`, `output`) and measures pairs (`pairs`). For a trace, `meeting` compares the
//! clocks of the hosts, `calls` records MPI calls, and a thread writes the records as they are (`recorder`).
//!
//! The environment: `settings`. Grade: the callback is hot, the rest setup or pending. Safety, for every unsafe block:
//! **L1** handles, types and user data are made once and live until the process ends; **L2** an event instance is used
//! within its callback only. Tests: in the files; tests/log.rs; hw-tests/tests/device/tools.rs.

mod calls;
mod catalogue;
mod clock;
mod datagrams;
mod entry;
mod exchange;
mod intervals;
mod listening;
mod meeting;
mod mpi;
mod output;
mod pairs;
mod recorder;
mod recording;
mod rings;
mod session;
mod settings;
mod target;
mod thread;
mod writer;
