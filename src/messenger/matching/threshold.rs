// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queue lengths from which on a queue uses indexes (`index.rs`), and below which it drops them.
//!
//! A search walks the list first. When it has compared [`LONG`] entries in vain, it builds the index that it needs. So
//! a queue whose head is always the match, as when messages and receives come in the same order, stays a list at any
//! length, and a short queue costs what a list costs. A queue that has shrunk to [`SHORT`] entries drops its indexes.
//! The entries between the two limits pay for building them.
//!
//! Used by `posted.rs` and `unexpected.rs`.

/// A search that has compared more entries than this in vain uses an index.
pub(super) const LONG: u32 = 16;

/// A queue of this many entries needs no index.
pub(super) const SHORT: u32 = 4;

const _: () = assert!(SHORT < LONG / 2, "a queue between the two pays for its indexes");
