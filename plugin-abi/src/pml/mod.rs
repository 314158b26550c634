// SPDX-License-Identifier: MIT OR Apache-2.0
//! The PML: the face for MPI's point-to-point messages themselves, by Open MPI's `ompi/mca/pml/pml.h`.
//!
//! Open MPI's nouns first: `component` (once per process, and what Open MPI calls), `context`
//! (processes and communicators come and go), `send`, `receive`, `probe`, `persistent` (its calls), `request`,
//! `communicator`, `members`, `datatype` (what they are about). Then what goes on between the calls: `instance` (who may use
//! what), `progress` (what has happened), `incoming` (a message came), `accept` (it met
//! its receive), `arrived` (it did not), `reading` and `pieces` (long ones), `protocol`, `routing` and `transmit` (a message goes), `flow` and
//! `resume` (or not yet), `finish` (a request ends), `watch` (tools are told of it; `passage`: how a message goes), `listening` and `notify` (what is
//! otherwise while they listen). With several ports: `rails` (which is used), `striped` (long messages by
//! all), `moving` (one that goes down). Processes of the same host: `local` (what comes), `backlog`
//! (what waits), `getting` (long ones), by `shared_memory`. This process: `oneself`. `peer`, `link`, `bounds`, `buffer`, `token`,
//! `several` are their records. Which receive takes which message is `engine::matching`'s, what processes say to
//! each other `engine::protocol`'s.
//!
//! Safety, for every unsafe block in this folder, beside the rules of the crate's head: **P1** a request is alive from
//! when it is taken from `State::requests` until `State::requests` gets it back, which takes having entered the PML, and
//! happens only when it is finished, or was never begun, and nothing names it any more. So who has entered the PML may
//! follow what names one (a queue of its communicator, `State::transfers`, a chain or list of `State`, a token that the
//! engine gives back, the call that has it), and while it is not finished its communicator and datatype live, too, as do the
//! communicators in `State::contexts`. **P2**
//! the memory that a request's or a call's data describes may be read (a send) or written (a receive) until the request is
//! finished or the call returns: MPI forbids the program to touch it meanwhile (MPI 4.1, section 3.7.2). **P3** `State` and
//! what is reached by it (requests, queues and listeners of communicators, send buffers, batches) is used by who holds
//! `Entered<State>` or a `&mut State` of it, and a `&mut Request` made from a pointer is the only one as long as it is used.
//! **P4** the arguments of a function that Open MPI calls are valid as `pml.h` and MPI have it; libmpi has checked them.

mod accept;
mod arrived;
mod backlog;
mod bounds;
mod buffer;
mod communicator;
mod component;
mod context;
mod datatype;
mod finish;
mod first_receive;
mod flight;
mod flow;
mod getting;
mod incoming;
mod instance;
mod lengths;
mod link;
mod listening;
mod local;
mod members;
mod moving;
mod notify;
mod oneself;
mod parting;
mod passage;
mod peer;
mod persistent;
mod pieces;
mod probe;
mod progress;
mod protocol;
mod rails;
mod reading;
mod receive;
mod request;
mod resume;
mod routing;
mod send;
mod several;
mod shared_memory;
mod striped;
mod token;
mod transfers;
mod transmit;
mod variables;
mod watch;
mod watched_reads;
