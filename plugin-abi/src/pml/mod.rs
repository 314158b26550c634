// SPDX-License-Identifier: MIT OR Apache-2.0
//! The PML: the face for MPI's point-to-point messages themselves, by Open MPI's `ompi/mca/pml/pml.h`.
//!
//! Open MPI's nouns first: `component` (once per process), `module` (what Open MPI calls), `procs` and `context` (processes
//! and communicators come and go), `send`, `receive`, `probe`, `persistent` (its calls), `request`, `communicator`,
//! `datatype` (what they are about). Then what goes on between the calls: `instance` (who may use what), `progress` (what has
//! happened), `incoming` (a message came), `accept` (it met its receive), `reading` and `pieces` (long ones), `protocol` and
//! `transmit` (a message goes), `flow` and `resume` (or not yet), `finish` (a request ends). `peer`, `link`, `bounds`, `buffer`, `token`, `arrived` are their records. Which receive
//! takes which message is `engine::matching`'s, what processes say to each other `engine::protocol`'s.

mod accept;
mod arrived;
mod bounds;
mod buffer;
mod communicator;
mod component;
mod context;
mod datatype;
mod finish;
mod flow;
mod incoming;
mod instance;
mod link;
mod module;
mod peer;
mod persistent;
mod pieces;
mod probe;
mod procs;
mod progress;
mod protocol;
mod reading;
mod receive;
mod request;
mod resume;
mod send;
mod token;
mod transmit;
