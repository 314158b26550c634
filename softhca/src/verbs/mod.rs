// SPDX-License-Identifier: MIT OR Apache-2.0
//! The objects of verbs: their C structures, and the translation between C's arguments and the engine's. A program
//! holds a `handle`: C's structure, followed by the engine's object, which each verb finds. Error codes follow the man
//! pages (section 3): most verbs return an error number, the rest set `errno`.
//!
//! Rule V, which every verb relies on (its `SAFETY` comments name it): a program calls a verb as its man page says. It
//! passes objects of the right kind that it got from this library and has not destroyed (so the objects from which they
//! were made, such as the context of a domain, still exist, too). The structures and lists that it passes can be read,
//! the places can be written, and it leaves both alone during the call. It gives up an object by a successful call of
//! the verb that destroys it.
//!
//! From the bottom up: `error`, `handle`, `device`, `pd`, `mr`, then `cq` and `qp` with their parts, `events`, and
//! `context`, which gives a program the table of verbs.

pub(crate) mod context;
pub(crate) mod cq;
pub(crate) mod device;
pub(crate) mod error;
pub(crate) mod events;
pub(crate) mod fork;
mod handle;
pub(crate) mod mr;
pub(crate) mod pd;
pub(crate) mod qp;
#[cfg(test)]
mod tests;

use context::adapter;
use cq::SoftCq;
use error::{minus_one, number, pointer, set_errno};
use events::SoftChannel;
use handle::{Handle, Turn};
use pd::SoftPd;
use qp::ah::SoftAh;
use qp::object::SoftQp;
use qp::srq::{SoftSrq, SoftXrcd};
