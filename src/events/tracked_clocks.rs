// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ports whose adapter's clock wraps so fast that it is sampled at every poll while a tool listens. Sets the bit
//! [`CLOCKS`] of the interest mask while there are such a port and such a tool. Path: setup; [`tracked`] hot while a
//! tool listens. Threads: any. Tests: `tests/ports.rs`.

use std::sync::atomic::{AtomicU64, Ordering};

use super::interest_mask::{self, CLOCKS};
use super::source_info::SourceId;

/// The ports' sources whose clocks must be sampled often, a bit each.
static TRACKED: AtomicU64 = AtomicU64::new(0);

pub(super) fn track(source: SourceId) {
    TRACKED.fetch_or(1 << source.index(), Ordering::SeqCst);
    tool_listens();
}

pub(super) fn untrack(source: SourceId) {
    TRACKED.fetch_and(!(1 << source.index()), Ordering::SeqCst);
}

pub(super) fn tool_listens() {
    if TRACKED.load(Ordering::SeqCst) != 0 {
        interest_mask::set_pending(CLOCKS);
    }
}

/// The ports whose clocks are to be sampled now, a bit each. Clears [`CLOCKS`] if there is none, or no tool listens.
#[inline]
pub(super) fn tracked() -> u64 {
    let tracked = TRACKED.load(Ordering::SeqCst);
    if interest_mask::is_pending(CLOCKS) && (tracked == 0 || !interest_mask::has_interest()) {
        no_tool_listens();
    }
    tracked
}

/// Clears [`CLOCKS`], unless a tool has just begun to listen.
#[cold]
fn no_tool_listens() {
    interest_mask::clear_pending(CLOCKS);
    if interest_mask::has_interest() {
        tool_listens();
    }
}
