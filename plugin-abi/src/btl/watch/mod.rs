// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the sites of the BTL do while a tool listens: everything behind their branch.
//!
//! A site is one comparison ([`engine::events::has_interest`]); what is called from it is here, out of the way of the
//! path that nobody watches: `outgoing`, `incoming` (messages), `operation` (puts, gets, atomics). `ob1` reads the
//! headers of messages, `fragment` what ob1 has noted of them, `transfer` knows which `message` they belong to, and
//! what they are of it (`step`), which `show` tells; `arrival` keeps what may be shown later, `stamp` what the
//! adapter's clock said. None enters the module: callers give the peer. Tools' callbacks run in here, so nothing is
//! called while the port is entered. Path: behind the branch of a site; no allocation in steady state. Threads: any.
//! Tests: in the files, and `hw-tests/mpi/events.c`, which compares what is shown with what was sent.

mod arrival;
mod fragment;
mod hasher;
mod incoming;
mod message;
mod ob1;
mod operation;
mod outgoing;
mod show;
mod stamp;
mod step;
mod transfer;

pub(crate) use incoming::{arrived, show_arrived};
pub(crate) use ob1::{goes_by_any_port, is_fragment};
pub(crate) use operation::{Kind, Watched, completing, done, noted, started};
pub(crate) use outgoing::{Outgoing, posting, posting_began};
pub(crate) use stamp::{Stamp, with_stamp};
pub(crate) use transfer::is_of_use;
