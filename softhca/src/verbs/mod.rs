// SPDX-License-Identifier: MIT OR Apache-2.0
//! The objects of verbs: their C structures, and the translation between C's arguments and the engine's.
//! What a program holds is a `handle`: C's structure, and behind it the engine's object, which each verb finds. Error
//! codes follow the man pages (section 3): most verbs return an error number, the rest set `errno`.
//!
//! Rule V, which every verb relies on (its `SAFETY` comments name it): a program calls a verb as its man page says. It
//! gives objects that it has from this library, of the kind that the verb is about, and that are not destroyed (so what
//! they were made with, as the context of a domain, is not, either), structures and lists that can be read, and places
//! that can be written, which it leaves alone during the call; and it gives an object up by the verb that ends it, if
//! that succeeds.
//!
//! From the bottom up: `error`, `handle`, `device`, `pd`, `mr`, then `cq` and `qp` with what belongs to them, `events`,
//! and `context`, which gives a program the table of verbs.

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
