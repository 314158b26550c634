// SPDX-License-Identifier: MIT OR Apache-2.0
//! From which length on a queue is searched by indexes (`index.rs`).
//!
//! A search goes through the list first, and has the index built that it needs when it has looked at [`LONG`] entries
//! in vain. So a queue whose head is what is asked for, the case of messages and receives in one order, stays a list
//! however long it is, and a short queue costs what a list costs. The indexes are given up when the queue is [`SHORT`].
//! Between the two lie as many entries as pay for building them.
//!
//! Used by `posted.rs` and `unexpected.rs`.

/// A search that has looked at as many entries in vain goes on by an index.
pub(super) const LONG: u32 = 16;

/// A queue of so few entries needs no index.
pub(super) const SHORT: u32 = 4;

const _: () = assert!(SHORT < LONG / 2, "a queue between the two pays for its indexes");
