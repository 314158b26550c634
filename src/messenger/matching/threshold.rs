// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queue lengths from which on a queue uses indexes (`index.rs`), and below which it drops them. A search that has
//! compared [`LONG`] entries in vain builds the index that it needs. So a queue whose head is always the match, as when
//! messages and receives come in the same order, stays a list at any length. A queue that has shrunk to [`SHORT`]
//! entries drops its indexes. The entries between the two limits pay for building them.

pub(super) const LONG: u32 = 16;

pub(super) const SHORT: u32 = 4;

const _: () = assert!(SHORT < LONG / 2, "a queue between the two pays for its indexes");
