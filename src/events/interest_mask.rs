// SPDX-License-Identifier: MIT OR Apache-2.0
//! The word that every site and every call of progress tests: which types have listeners, which deliveries are pending.
//! Owns [`MASK`]: below [`BUFFERS`] one bit per type of the engine that has a listener (set by the registry), from
//! there on the bits of pending work. Grade: hot for [`interest`], [`has_interest`] and [`is_idle`]: one load, one
//! branch; nothing in a build without the feature `events`. Threads: any. Tests: `tests/registrations.rs`,
//! `tests/raise.rs`.

use std::sync::atomic::{AtomicU64, Ordering};

use super::types::table::RAISED;
use super::{GetComplete, GetStarted, MsgArrived, Payload, TypeId, XferBegin, XferContinue, XferEnd};

/// A buffer has events, or losses to report.
pub(super) const BUFFERS: u64 = 1 << 31;
/// A port's source holds events.
pub(super) const PORTS: u64 = BUFFERS << 1;
/// A freed registration has yet to be finished.
pub(super) const FREES: u64 = BUFFERS << 2;
/// A port's clock wraps so fast that every poll samples it while a tool listens.
pub(super) const CLOCKS: u64 = BUFFERS << 3;
/// A port's source is nearly full.
pub(super) const NEARLY_FULL: u64 = BUFFERS << 4;
/// The bits from here up count the threads with staged events.
const STAGING_THREAD: u64 = BUFFERS << 5;

/// The bits of the types, which sites test; the others concern delivery.
const INTEREST: u64 = BUFFERS - 1;

const _: () = assert!(1 << RAISED <= BUFFERS, "a bit for each type that the engine raises");

static MASK: AtomicU64 = AtomicU64::new(0);

const MESSAGE_TYPES: u64 = 1 << XferBegin::TYPE.index()
    | 1 << XferContinue::TYPE.index()
    | 1 << XferEnd::TYPE.index()
    | 1 << MsgArrived::TYPE.index();

const TRANSFER_TYPES: u64 = MESSAGE_TYPES | 1 << GetStarted::TYPE.index() | 1 << GetComplete::TYPE.index();

/// The types of adapter-stamped events with registrations for immediate delivery, and those for delivery by timestamp.
static IMMEDIATE: AtomicU64 = AtomicU64::new(0);
static ORDERED: AtomicU64 = AtomicU64::new(0);

/// A snapshot of the types with listeners, so that several sites share one load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterestMask(u64);

impl InterestMask {
    pub(super) const NONE: InterestMask = InterestMask(0);

    /// Whether this type has a listener.
    #[inline]
    pub const fn has(self, event_type: TypeId) -> bool {
        self.0 >> event_type.index() & 1 != 0
    }

    /// Whether message events have a listener.
    #[inline]
    pub const fn has_messages(self) -> bool {
        self.0 & MESSAGE_TYPES != 0
    }

    /// Whether message events, or those of RDMA reads, have a listener.
    #[inline]
    pub const fn has_transfers(self) -> bool {
        self.0 & TRANSFER_TYPES != 0
    }

    /// Whether any of these types has a listener; a bit each, at its index in the table.
    #[inline]
    pub(crate) const fn has_any(self, types: u64) -> bool {
        self.0 & types != 0
    }
}

#[inline]
fn mask() -> u64 {
    if cfg!(feature = "events") { MASK.load(Ordering::Relaxed) } else { 0 }
}

/// The types with listeners now. One load.
#[inline]
pub fn interest() -> InterestMask {
    InterestMask(mask() & INTEREST)
}

/// Whether any type has a listener: the only test on the shortest path. One comparison.
#[inline]
pub fn has_interest() -> bool {
    mask() & INTEREST != 0
}

/// The types with a listener for immediate delivery of adapter-stamped events. Read only while a tool listens.
#[inline]
pub(crate) fn immediate_interest() -> InterestMask {
    InterestMask(IMMEDIATE.load(Ordering::Relaxed))
}

/// The types with a listener for adapter-stamped events by timestamp. Read only while a tool listens.
#[inline]
pub(crate) fn ordered_interest() -> InterestMask {
    InterestMask(ORDERED.load(Ordering::Relaxed))
}

/// Whether no type has a listener and no delivery is pending.
#[inline]
pub fn is_idle() -> bool {
    mask() == 0
}

/// Whether a port holds so many events that it could lose some before the next call of [`super::progress`]. Hot.
#[inline]
pub fn is_nearly_full() -> bool {
    mask() & NEARLY_FULL != 0
}

/// Sets whether a type has listeners, for immediate delivery or by timestamp. Called under the registry's lock.
pub(super) fn set_interest(event_type: TypeId, immediate: bool, ordered: bool) {
    if event_type.place_in_matching().is_some() {
        // The PML tracks the listeners of matching types itself; no site of the engine tests them.
        return;
    }
    let bit = 1 << event_type.index();
    for (listens, word) in [(immediate, &IMMEDIATE), (ordered, &ORDERED), (immediate || ordered, &MASK)] {
        if listens {
            word.fetch_or(bit, Ordering::SeqCst);
        } else {
            word.fetch_and(!bit, Ordering::SeqCst);
        }
    }
}

/// Marks stored work as pending. Sequentially consistent with a thread that clears the bit and then looks for work.
#[inline]
pub(super) fn set_pending(work: u64) {
    if MASK.load(Ordering::SeqCst) & work == 0 {
        MASK.fetch_or(work, Ordering::SeqCst);
    }
}

pub(super) fn clear_pending(work: u64) -> bool {
    MASK.fetch_and(!work, Ordering::SeqCst) & work != 0
}

pub(super) fn is_pending(work: u64) -> bool {
    MASK.load(Ordering::SeqCst) & work != 0
}

#[inline]
pub(super) fn has_pending() -> bool {
    mask() & !INTEREST != 0
}

/// Whether threads or ports hold events. Hot, as [`is_idle`].
#[inline]
pub(super) fn holds_events() -> bool {
    mask() & (!(STAGING_THREAD - 1) | PORTS) != 0
}

/// Whether any work except that of ports is pending. Hot while a tool listens.
#[inline]
pub(super) fn is_urgent() -> bool {
    mask() & !(INTEREST | PORTS | CLOCKS) != 0
}

/// Whether a thread has staged events, or has left some when it ended.
pub(super) fn has_staging_thread() -> bool {
    MASK.load(Ordering::SeqCst) >= STAGING_THREAD
}

pub(super) fn add_staging_thread() {
    MASK.fetch_add(STAGING_THREAD, Ordering::SeqCst);
}

pub(super) fn remove_staging_thread() {
    MASK.fetch_sub(STAGING_THREAD, Ordering::SeqCst);
}
