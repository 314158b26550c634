// SPDX-License-Identifier: MIT OR Apache-2.0
//! The objects of verbs: their C structures, and the translation between C's arguments and the engine's.
//!
//! What a program holds is a `handle`: C's structure, and behind it the engine's object, which each verb finds. Error codes follow the man pages (section 3): most verbs return an error number, the rest set `errno`.
//!
//! From the bottom up: `error`, `handle`, `turn` and `registry` (which objects events may be about), `context` and `device`, `pd`, `mr`,
//! then `cq` and `qp` with what belongs to them, and on top `open`, which gives a program the table of verbs, and
//! `async_event`.

pub(crate) mod async_event;
mod context;
pub(crate) mod cq;
pub(crate) mod device;
pub(crate) mod error;
pub(crate) mod fork;
mod handle;
pub(crate) mod mr;
pub(crate) mod open;
pub(crate) mod pd;
pub(crate) mod qp;
mod registry;
mod turn;
