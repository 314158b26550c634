// SPDX-License-Identifier: MIT OR Apache-2.0
//! The PML: the face for MPI's point-to-point messages themselves, by Open MPI's `ompi/mca/pml/pml.h`.
//!
//! Open MPI's nouns first: `component` (once per process), `module` (what Open MPI calls), `procs` and `context` (processes
//! and communicators come and go), `send`, `receive`, `probe`, `persistent` (its calls), `request`, `communicator`,
//! `datatype` (what they are about). Then what goes on between the calls: `instance` (who may use what), `progress` (what has
//! happened), `incoming` (a message came), `accept` (it met its receive), `reading` and `pieces` (long ones), `transmit` (a
//! message goes), `finish` (a request ends). Processes of the same host: `local` (what comes), `backlog` (what waits), `getting` (long ones), by
//! `shared_memory`. `peer`, `link`, `buffer`, `token`, `arrived` are their records. Which receive
//! takes which message is `engine::matching`'s, what processes say to each other `engine::protocol`'s.

mod accept;
mod arrived;
mod backlog;
mod buffer;
mod choice;
mod communicator;
mod component;
mod context;
mod datatype;
mod finish;
mod getting;
mod incoming;
mod instance;
mod link;
mod local;
mod module;
mod peer;
mod persistent;
mod pieces;
mod probe;
mod procs;
mod progress;
mod quiet;
mod reading;
mod receive;
mod request;
mod send;
mod shared_memory;
mod token;
mod transmit;
