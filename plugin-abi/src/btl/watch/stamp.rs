// SPDX-License-Identifier: MIT OR Apache-2.0
//! The adapter's stamp of the completion whose callback runs in this thread.
//!
//! Path: behind the branch of a site. Threads: each has its own.

use std::cell::Cell;

use engine::events::{EventGroup, HostTimestamp, SourceId};

use crate::runtime::watch::SAFETY;

/// When the adapter says that something was completed: the port's source, and its raw ticks.
pub(crate) type Stamp = Option<(SourceId, u64)>;

thread_local! {
    /// Of the completion whose callback runs in this thread.
    static STAMP: Cell<Stamp> = const { Cell::new(None) };
}

/// The stamp of the completion whose callback runs in this thread.
pub(super) fn current() -> Stamp {
    STAMP.get()
}

/// Runs the callback of a completion with its stamp at hand.
#[cold]
#[inline(never)]
pub(crate) fn with_stamp<R>(stamp: Stamp, run: impl FnOnce() -> R) -> R {
    let before = STAMP.replace(stamp);
    let result = run();
    STAMP.set(before);
    result
}

/// Raises events with the adapter's stamp where there is one, else as of this moment of the host's clock.
pub(super) fn tell(together: EventGroup, stamp: Stamp, moment: impl FnOnce() -> HostTimestamp) {
    match stamp {
        Some((source, raw)) => together.raise_stamped(source, raw, None, SAFETY),
        None => together.raise(moment, SAFETY),
    }
}
