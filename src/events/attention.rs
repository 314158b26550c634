// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one word that every site and every call of progress looks at: who is listened to, and what waits to be delivered.
//!
//! Owns [`WORD`]: below [`REGISTERED`] a bit for each type that somebody listens to (set by `registry.rs`), from [`RINGS`] on what there is
//! to do (set and taken back by `deliver.rs` and `thread.rs`). Progress looks at all of it at once ([`is_quiet`]) and then knows that
//! none of the sites on its way has anything to say.
//!
//! Path: [`active`], [`is_any_active`] and [`is_quiet`] hot: one load, one branch; nothing in a build without the feature `events`.
//! Threads: any. Tests: `tests/handles.rs`, `tests/raise.rs`.

use std::sync::atomic::{AtomicU64, Ordering};

use super::row::TypeId;
use super::table::{COUNT, EagerChosen, MsgArrived, Payload, RendezvousChosen, XferBegin, XferContinue, XferEnd};

/// Something is in a buffer, or was lost.
pub(super) const RINGS: u64 = 1 << 31;
/// A port's source holds events.
pub(super) const PORTS: u64 = RINGS << 1;
/// A freed registration is on its way out.
pub(super) const LEAVING: u64 = RINGS << 2;
/// A port's clock goes round so fast that it is followed at every poll, while somebody listens.
pub(super) const FOLLOWING: u64 = RINGS << 3;
/// A port's source holds so much that it must be looked at before it has no room.
pub(super) const CROWDED: u64 = RINGS << 4;
/// A thread in which events wait; the bits from here up count them.
const STAGING: u64 = RINGS << 5;

/// There is a registration for messages, whether it is active now or not: those under way are followed, so that it is told of the rest
/// of a message when it becomes active.
const REGISTERED: u64 = RINGS >> 1;

/// The types' bits.
const TYPES: u64 = REGISTERED - 1;

/// What sites look at: the rest is for who delivers.
const SITES: u64 = TYPES | REGISTERED;

const _: () = assert!(1 << COUNT <= REGISTERED, "a bit for each type");

static WORD: AtomicU64 = AtomicU64::new(0);

/// The types that tell of messages, whose pieces are followed from one event to the next.
const TRANSFERS: u64 = 1 << XferBegin::TYPE.index()
    | 1 << XferContinue::TYPE.index()
    | 1 << XferEnd::TYPE.index()
    | 1 << MsgArrived::TYPE.index()
    | 1 << EagerChosen::TYPE.index()
    | 1 << RendezvousChosen::TYPE.index();

/// Of the types somebody listens to: those with a registration that takes what the adapter stamps as it happens, and those with one
/// that takes it by its stamp.
static AS_IT_HAPPENS: AtomicU64 = AtomicU64::new(0);
static ORDERED: AtomicU64 = AtomicU64::new(0);

/// How often somebody registered for messages when nobody had.
static AWAKENINGS: AtomicU64 = AtomicU64::new(0);

/// The types somebody listens to, at one moment: for a place with several sites, which then share the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Active(u64);

impl Active {
    /// None.
    pub(super) const NONE: Active = Active(0);

    /// Whether somebody listens to events of this type.
    #[must_use]
    #[inline]
    pub const fn has(self, kind: TypeId) -> bool {
        self.0 >> kind.index() & 1 != 0
    }

    /// Whether somebody listens to messages.
    #[must_use]
    #[inline]
    pub const fn has_transfers(self) -> bool {
        self.0 & TRANSFERS != 0
    }

    /// Whether messages are followed from one of their pieces to the next: somebody is registered for them, and may listen or not.
    #[must_use]
    #[inline]
    pub const fn follows_transfers(self) -> bool {
        self.0 & REGISTERED != 0
    }

    /// Whether somebody listens to events of any of these types, a bit each at its place in the table.
    #[must_use]
    #[inline]
    pub(crate) const fn has_any(self, types: u64) -> bool {
        self.0 & types != 0
    }
}

#[inline]
fn word() -> u64 {
    if cfg!(feature = "events") { WORD.load(Ordering::Relaxed) } else { 0 }
}

/// The types somebody listens to now. One load.
#[must_use]
#[inline]
pub fn active() -> Active {
    Active(word() & SITES)
}

/// Whether somebody listens to anything, or is registered for messages: all that a site of the shortest path does while nobody
/// does. One comparison.
#[must_use]
#[inline]
pub fn is_any_active() -> bool {
    word() & SITES != 0
}

/// The types of which somebody takes what the adapter stamps as it happens. Behind the branch of a site.
#[must_use]
#[inline]
pub fn as_it_happens() -> Active {
    Active(AS_IT_HAPPENS.load(Ordering::Relaxed))
}

/// The types of which somebody takes what the adapter stamps by its stamp. Behind the branch of a site.
#[must_use]
#[inline]
pub(crate) fn ordered() -> Active {
    Active(ORDERED.load(Ordering::Relaxed))
}

/// Whether nobody listens to anything and nothing waits to be delivered.
#[must_use]
#[inline]
pub fn is_quiet() -> bool {
    word() == 0
}

/// Whether so much waits to be delivered that it is lost if more comes before [`super::progress`] is called. Hot, behind the branch of
/// a site.
#[must_use]
#[inline]
pub fn is_crowded() -> bool {
    word() & CROWDED != 0
}

/// Changes whenever somebody registers for messages when nobody had: who keeps something from one event to another forgets it then, as
/// what happened in between was not seen.
#[must_use]
pub fn awakenings() -> u64 {
    AWAKENINGS.load(Ordering::Relaxed)
}

/// Somebody listens to events of this type, as they happen or by the source's clock, or nobody any more. By one thread at a time: under
/// the registry's lock.
pub(super) fn listen(kind: TypeId, as_it_happens: bool, ordered: bool) {
    let bit = 1 << kind.index();
    for (listens, word) in [(as_it_happens, &AS_IT_HAPPENS), (ordered, &ORDERED)] {
        if listens {
            word.fetch_or(bit, Ordering::SeqCst);
        } else {
            word.fetch_and(!bit, Ordering::SeqCst);
        }
    }
    if !as_it_happens && !ordered {
        WORD.fetch_and(!bit, Ordering::SeqCst);
        return;
    }
    WORD.fetch_or(bit, Ordering::SeqCst);
}

/// Whether events of this type are of messages.
pub(super) fn is_of_messages(kind: TypeId) -> bool {
    TRANSFERS >> kind.index() & 1 != 0
}

/// Somebody is registered for messages, or nobody any more. As [`listen`].
pub(super) fn follow_messages(is_registered: bool) {
    if !is_registered {
        WORD.fetch_and(!REGISTERED, Ordering::SeqCst);
    } else if WORD.load(Ordering::Relaxed) & REGISTERED == 0 {
        AWAKENINGS.fetch_add(1, Ordering::Relaxed);
        WORD.fetch_or(REGISTERED, Ordering::SeqCst);
    }
}

/// Says that there is something to do. After what is to be done was stored; sequentially consistent with who takes the bit back
/// and then looks.
#[inline]
pub(super) fn flag(work: u64) {
    if WORD.load(Ordering::SeqCst) & work == 0 {
        WORD.fetch_or(work, Ordering::SeqCst);
    }
}

/// Takes back that there is something to do. Returns whether there was.
pub(super) fn unflag(work: u64) -> bool {
    WORD.fetch_and(!work, Ordering::SeqCst) & work != 0
}

/// Whether there is this to do.
pub(super) fn is_flagged(work: u64) -> bool {
    WORD.load(Ordering::SeqCst) & work != 0
}

/// Whether there is anything to do; hot, as [`is_quiet`].
#[inline]
pub(super) fn is_work() -> bool {
    word() & !SITES != 0
}

/// Whether threads or ports hold events. Hot, as [`is_quiet`].
#[inline]
pub(super) fn is_holding() -> bool {
    word() & (!(STAGING - 1) | PORTS) != 0
}

/// Whether there is anything to do but what ports hold. Hot, behind the branch of a site.
#[inline]
pub(super) fn is_pressing() -> bool {
    word() & !(SITES | PORTS | FOLLOWING) != 0
}

/// Whether a freed registration is on its way out. Hot, behind the branch of a site.
#[inline]
pub(super) fn is_leaving() -> bool {
    word() & LEAVING != 0
}

/// A thread has events that wait in it, which it had not.
pub(super) fn count_staging() {
    WORD.fetch_add(STAGING, Ordering::SeqCst);
}

/// It has none any more.
pub(super) fn count_staged() {
    WORD.fetch_sub(STAGING, Ordering::SeqCst);
}
