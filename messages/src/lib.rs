// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a job did: its ranks, its communicators, and the life of each message, put together from a trace.
//!
//! A [`Job`] is what every command shows and every export writes: they know of nothing below it, neither events nor
//! files. `model.rs` says what is in it, [`Job::read`] (`read/`) makes it. Path: pending. Threads: plain data. No unsafe code. Tests: in the files; tests/.

#![forbid(unsafe_code)]

mod late;
#[cfg(any(test, feature = "made"))]
mod made;
mod model;
mod read;
mod time;
mod waits;

pub use model::{
    Call, Communicator, Connection, Incident, IncidentKind, Job, Loss, Message, Operation, OperationKind, Port,
    Protocol, Rank, Reason, ReceiveSide, SendSide, Wait, WaitKind,
};
pub use time::Time;
pub use waits::ProcessWait;
