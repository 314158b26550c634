// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job reconstructed from its trace: ranks, communicators, and the life of each message. `model.rs` defines the
//! [`Job`], [`Job::read`] makes it. Path: pending. Threads: plain data. No unsafe code. Tests: in the files; tests/.

#![forbid(unsafe_code)]

mod late;
mod model;
mod read;
#[cfg(any(test, feature = "made"))]
mod synthetic;
mod time;
mod waits;

pub use model::{
    ByAdapter, Call, Communicator, Connection, Fragment, Incident, IncidentKind, Job, Loss, Message, Operation,
    OperationKind, Pause, Port, Protocol, Queue, Rank, Reason, ReceiveSide, Search, SendSide, Wait, WaitKind,
};
pub use time::Time;
pub use waits::ProcessWait;
