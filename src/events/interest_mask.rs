// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one word that every site and every call of progress looks at: who is listened to, and what waits to be
//! delivered.
//!
//! Owns [`MASK`]: below [`MESSAGES_REGISTERED`] a bit for each type of the engine's that somebody listens to (set by
//! `registry.rs`), from [`BUFFERS`] on what there is to do (set and taken back by `deliver.rs` and `thread.rs`).
//! Progress looks at all of it at once ([`is_idle`]) and then knows that none of the sites on its way has anything to
//! say.
//!
//! Path: [`interest`], [`has_interest`] and [`is_idle`] hot: one load, one branch; nothing in a build without the
//! feature `events`. Threads: any. Tests: `tests/registrations.rs`, `tests/raise.rs`.

use std::sync::atomic::{AtomicU64, Ordering};

use super::event_type::TypeId;
use super::table::{EagerChosen, MsgArrived, Payload, RAISED, RendezvousChosen, XferBegin, XferContinue, XferEnd};

/// Something is in a buffer, or was lost.
pub(super) const BUFFERS: u64 = 1 << 31;
/// A port's source holds events.
pub(super) const PORTS: u64 = BUFFERS << 1;
/// A freed registration is on its way out.
pub(super) const FREES: u64 = BUFFERS << 2;
/// A port's clock goes round so fast that it is followed at every poll, while somebody listens.
pub(super) const CLOCKS: u64 = BUFFERS << 3;
/// A port's source holds so much that it must be looked at before it has no room.
pub(super) const NEARLY_FULL: u64 = BUFFERS << 4;
/// A thread in which events wait; the bits from here up count them.
const STAGING_THREAD: u64 = BUFFERS << 5;

/// There is a registration for messages, whether it is active now or not: those under way are followed, so that it is
/// told of the rest of a message when it becomes active.
const MESSAGES_REGISTERED: u64 = BUFFERS >> 1;

/// The types' bits.
const TYPE_BITS: u64 = MESSAGES_REGISTERED - 1;

/// What sites look at: the rest is for who delivers.
const INTEREST: u64 = TYPE_BITS | MESSAGES_REGISTERED;

const _: () = assert!(1 << RAISED <= MESSAGES_REGISTERED, "a bit for each type that the engine raises");

static MASK: AtomicU64 = AtomicU64::new(0);

/// The types that tell of messages, whose pieces are followed from one event to the next.
const MESSAGE_TYPES: u64 = 1 << XferBegin::TYPE.index()
    | 1 << XferContinue::TYPE.index()
    | 1 << XferEnd::TYPE.index()
    | 1 << MsgArrived::TYPE.index()
    | 1 << EagerChosen::TYPE.index()
    | 1 << RendezvousChosen::TYPE.index();

/// Of the types somebody listens to: those with a registration that takes what the adapter stamps as it happens, and
/// those with one that takes it by its stamp.
static IMMEDIATE: AtomicU64 = AtomicU64::new(0);
static ORDERED: AtomicU64 = AtomicU64::new(0);

/// How often somebody registered for messages when nobody had.
static ACTIVATION_EPOCH: AtomicU64 = AtomicU64::new(0);

/// The types somebody listens to, at one moment: for a place with several sites, which then share the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterestMask(u64);

impl InterestMask {
    /// None.
    pub(super) const NONE: InterestMask = InterestMask(0);

    /// Whether somebody listens to events of this type.
    #[must_use]
    #[inline]
    pub const fn has(self, event_type: TypeId) -> bool {
        self.0 >> event_type.index() & 1 != 0
    }

    /// Whether somebody listens to messages.
    #[must_use]
    #[inline]
    pub const fn has_messages(self) -> bool {
        self.0 & MESSAGE_TYPES != 0
    }

    /// Whether messages are followed from one of their pieces to the next: somebody is registered for them, and may
    /// listen or not.
    #[must_use]
    #[inline]
    pub const fn is_registered_for_messages(self) -> bool {
        self.0 & MESSAGES_REGISTERED != 0
    }

    /// Whether somebody listens to events of any of these types, a bit each at its place in the table.
    #[must_use]
    #[inline]
    pub(crate) const fn has_any(self, types: u64) -> bool {
        self.0 & types != 0
    }
}

#[inline]
fn mask() -> u64 {
    if cfg!(feature = "events") { MASK.load(Ordering::Relaxed) } else { 0 }
}

/// The types somebody listens to now. One load.
#[must_use]
#[inline]
pub fn interest() -> InterestMask {
    InterestMask(mask() & INTEREST)
}

/// Whether somebody listens to anything, or is registered for messages: all that a site of the shortest path does while
/// nobody does. One comparison.
#[must_use]
#[inline]
pub fn has_interest() -> bool {
    mask() & INTEREST != 0
}

/// The types of which somebody takes what the adapter stamps as it happens. Behind the branch of a site.
#[must_use]
#[inline]
pub fn immediate_interest() -> InterestMask {
    InterestMask(IMMEDIATE.load(Ordering::Relaxed))
}

/// The types of which somebody takes what the adapter stamps by its stamp. Behind the branch of a site.
#[must_use]
#[inline]
pub(crate) fn ordered_interest() -> InterestMask {
    InterestMask(ORDERED.load(Ordering::Relaxed))
}

/// Whether nobody listens to anything and nothing waits to be delivered.
#[must_use]
#[inline]
pub fn is_idle() -> bool {
    mask() == 0
}

/// Whether so much waits to be delivered that it is lost if more comes before [`super::progress`] is called. Hot,
/// behind the branch of a site.
#[must_use]
#[inline]
pub fn is_nearly_full() -> bool {
    mask() & NEARLY_FULL != 0
}

/// Changes whenever somebody registers for messages when nobody had: who keeps something from one event to another
/// forgets it then, as what happened in between was not seen.
#[must_use]
pub fn activation_epoch() -> u64 {
    ACTIVATION_EPOCH.load(Ordering::Relaxed)
}

/// Somebody listens to events of this type, as they happen or by the source's clock, or nobody any more. By one thread
/// at a time: under the registry's lock.
pub(super) fn set_interest(event_type: TypeId, immediate: bool, ordered: bool) {
    if event_type.place_in_matching().is_some() {
        // Its raiser knows, and no site of the engine asks.
        return;
    }
    let bit = 1 << event_type.index();
    for (listens, word) in [(immediate, &IMMEDIATE), (ordered, &ORDERED)] {
        if listens {
            word.fetch_or(bit, Ordering::SeqCst);
        } else {
            word.fetch_and(!bit, Ordering::SeqCst);
        }
    }
    if !immediate && !ordered {
        MASK.fetch_and(!bit, Ordering::SeqCst);
        return;
    }
    MASK.fetch_or(bit, Ordering::SeqCst);
}

/// Whether events of this type are of messages.
pub(super) fn is_of_messages(event_type: TypeId) -> bool {
    MESSAGE_TYPES >> event_type.index() & 1 != 0
}

/// Somebody is registered for messages, or nobody any more. As [`set_interest`].
pub(super) fn set_messages_registered(is_registered: bool) {
    if !is_registered {
        MASK.fetch_and(!MESSAGES_REGISTERED, Ordering::SeqCst);
    } else if MASK.load(Ordering::Relaxed) & MESSAGES_REGISTERED == 0 {
        ACTIVATION_EPOCH.fetch_add(1, Ordering::Relaxed);
        MASK.fetch_or(MESSAGES_REGISTERED, Ordering::SeqCst);
    }
}

/// Says that there is something to do. After what is to be done was stored; sequentially consistent with who takes the
/// bit back and then looks.
#[inline]
pub(super) fn set_pending(work: u64) {
    if MASK.load(Ordering::SeqCst) & work == 0 {
        MASK.fetch_or(work, Ordering::SeqCst);
    }
}

/// Takes back that there is something to do. Returns whether there was.
pub(super) fn clear_pending(work: u64) -> bool {
    MASK.fetch_and(!work, Ordering::SeqCst) & work != 0
}

/// Whether there is this to do.
pub(super) fn is_pending(work: u64) -> bool {
    MASK.load(Ordering::SeqCst) & work != 0
}

/// Whether there is anything to do; hot, as [`is_idle`].
#[inline]
pub(super) fn has_pending() -> bool {
    mask() & !INTEREST != 0
}

/// Whether threads or ports hold events. Hot, as [`is_idle`].
#[inline]
pub(super) fn holds_events() -> bool {
    mask() & (!(STAGING_THREAD - 1) | PORTS) != 0
}

/// Whether there is anything to do but what ports hold. Hot, behind the branch of a site.
#[inline]
pub(super) fn is_urgent() -> bool {
    mask() & !(INTEREST | PORTS | CLOCKS) != 0
}

/// Whether a freed registration is on its way out. Hot, behind the branch of a site.
#[inline]
pub(super) fn has_pending_frees() -> bool {
    mask() & FREES != 0
}

/// A thread has events that wait in it, which it had not.
pub(super) fn add_staging_thread() {
    MASK.fetch_add(STAGING_THREAD, Ordering::SeqCst);
}

/// It has none any more.
pub(super) fn remove_staging_thread() {
    MASK.fetch_sub(STAGING_THREAD, Ordering::SeqCst);
}
