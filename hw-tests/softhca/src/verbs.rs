// SPDX-License-Identifier: MIT OR Apache-2.0
//! The objects of verbs, one file each: their C structures, and the translation between C's arguments and the engine's.
//!
//! An object that a program holds is the first field of a Rust structure that also owns the engine's object; the
//! program gets a pointer to that field, and each verb turns it back. What the program may read or write in it stays
//! C's type. Error codes follow the man pages (section 3): most verbs return an error number, the rest set `errno`.

pub(crate) mod ah;
pub(crate) mod async_event;
pub(crate) mod channel;
pub(crate) mod context;
pub(crate) mod cq;
pub(crate) mod cq_ex;
pub(crate) mod device;
pub(crate) mod error;
pub(crate) mod limits;
pub(crate) mod mcast;
pub(crate) mod mr;
pub(crate) mod mw;
pub(crate) mod pd;
pub(crate) mod port;
pub(crate) mod post;
pub(crate) mod qp;
pub(crate) mod qp_ex;
pub(crate) mod registry;
pub(crate) mod srq;
pub(crate) mod xrcd;
