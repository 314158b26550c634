// SPDX-License-Identifier: MIT OR Apache-2.0
//! `libibex-log.so`: a tool that writes down the events of ibex, preloaded or linked, without a change of the
//! application.
//!
//! It knows of ibex what any tool can: the calls of plugin-abi/include/ibex_mpi_t.h, through `mpi`. It learns which
//! types, elements and sources there are (`catalogue`), and treats all alike. `entry` stands before `MPI_Init`, so that
//! a process which never calls that is left alone; `session` is what lives from there to the end of the process.
//! Callbacks put events into a `ring`, without a lock, an allocation or a system call: an event may be raised from
//! within `free`. A thread of its own puts them on a common clock (`clock`), writes them (`writer`, `output`) and works
//! out how long pairs took (`pairs`). Beside the text, `recording` makes a trace, and `meeting` has the hosts of a job
//! compare their clocks; `calls` stands before the calls of MPI in which a process can wait. `thread` starts the threads of all three.
//!
//! The environment: `IBEX_LOG_EVENTS`, `IBEX_LOG_FILE` (`settings`). Grade: the callback is hot, the rest setup or
//! pending. Safety, for every unsafe block: **L1** handles, types and user data are made once and live until the
//! process ends; **L2** an event instance is used within its callback only. Tests: in the files; tests/log.rs; with a
//! device, hw-tests/tests/device/tools.rs.

mod calls;
mod catalogue;
mod clock;
mod datagrams;
mod entry;
mod exchange;
mod intervals;
mod listing;
mod meeting;
mod mpi;
mod output;
mod pairs;
mod queues;
mod recorder;
mod recording;
mod ring;
mod rings;
mod session;
mod settings;
mod target;
mod thread;
mod writer;
