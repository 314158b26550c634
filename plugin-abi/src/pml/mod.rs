// SPDX-License-Identifier: MIT OR Apache-2.0
//! The PML: the face for MPI's point-to-point messages themselves, by Open MPI's `ompi/mca/pml/pml.h`.
//!
//! Open MPI's nouns first: `component` (once per process), `module` (what Open MPI calls), `procs` and `context`
//! (processes and communicators come and go), `send`, `receive`, `probe`, `persistent` (its calls), `request`,
//! `communicator`, `members`, `datatype` (what they are about). Then what goes on between the calls: `instance` (who may use
//! what), `progress` (what has happened; `handed_on`: to another face), `incoming` (a message came), `accept` (it met
//! its receive), `unexpected` (it did not), `reading` and `pieces` (long ones), `protocol`, `routing` and `transmit` (a message goes), `flow` and
//! `resume` (or not yet), `finish` (a request ends), `watch` (tools are told of it; `passage`: how a message goes), `listening` and `notify` (what is
//! otherwise while they listen). With several ports: `rails` (which is used), `announcing` and `striped` (long messages
//! by all), `moving` and `merging` (one that goes down). Processes of the same host: `local` (what comes), `backlog`
//! (what waits), `getting` (long ones), by `shared_memory`. This process: `oneself`. `peer`, `link`, `bounds`, `buffer`, `token`, `arrived`,
//! `several`, `reads` are their records. Which receive takes which message is `engine::matching`'s, what processes say to
//! each other `engine::protocol`'s.

mod accept;
mod announcing;
mod arrived;
mod backlog;
mod bounds;
mod buffer;
mod choice;
mod communicator;
mod component;
mod context;
mod datatype;
mod finish;
mod first_receive;
mod flight;
mod flow;
mod foreign;
mod getting;
mod handed_on;
mod holders;
mod incoming;
mod instance;
mod lengths;
mod link;
mod listening;
mod local;
mod members;
mod merging;
mod module;
mod moving;
mod notify;
mod oneself;
mod parting;
mod passage;
mod peer;
mod persistent;
mod pieces;
mod probe;
mod procs;
mod progress;
mod protocol;
mod quiet;
mod rails;
mod reading;
mod reads;
mod receive;
mod request;
mod resume;
mod returning;
mod routing;
mod send;
mod several;
mod shared_memory;
mod striped;
mod token;
mod transmit;
mod unexpected;
mod variables;
mod watch;
