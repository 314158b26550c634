// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one word that every site and every call of progress looks at: who is listened to, and what waits to be delivered.
//!
//! Owns [`WORD`]: below [`RINGS`] a bit for each type that somebody listens to (set by `registry.rs`), from there on what there is
//! to do (set and taken back by `deliver.rs` and `thread.rs`). Progress looks at all of it at once ([`is_quiet`]) and then knows that
//! none of the sites on its way has anything to say.
//!
//! Path: [`active`], [`is_any_active`] and [`is_quiet`] hot: one load, one branch; nothing in a build without the feature `events`.
//! Threads: any. Tests: `tests/handles.rs`, `tests/raise.rs`.

use std::sync::atomic::{AtomicU64, Ordering};

use super::row::TypeId;
use super::table::{COUNT, EagerChosen, Payload, RendezvousChosen, XferBegin, XferContinue, XferEnd};

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

/// The types' bits.
const TYPES: u64 = RINGS - 1;

const _: () = assert!(1 << COUNT <= RINGS, "a bit for each type");

static WORD: AtomicU64 = AtomicU64::new(0);

/// The types that tell of messages, whose pieces are followed from one event to the next.
const TRANSFERS: u64 = 1 << XferBegin::TYPE.index()
    | 1 << XferContinue::TYPE.index()
    | 1 << XferEnd::TYPE.index()
    | 1 << EagerChosen::TYPE.index()
    | 1 << RendezvousChosen::TYPE.index();

/// How often somebody began to listen to messages when nobody had.
static AWAKENINGS: AtomicU64 = AtomicU64::new(0);

/// The types somebody listens to, at one moment: for a place with several sites, which then share the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Active(u64);

impl Active {
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
    Active(word() & TYPES)
}

/// Whether somebody listens to anything: all that a site of the shortest path does while nobody does. One comparison.
#[must_use]
#[inline]
pub fn is_any_active() -> bool {
    word() & TYPES != 0
}

/// Whether somebody listens to events of this type: all that a site does while nobody does.
#[must_use]
#[inline]
pub fn is_active(kind: TypeId) -> bool {
    active().has(kind)
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

/// Changes whenever somebody begins to listen to messages when nobody had: who keeps something from one event to another forgets it then, as
/// what happened in between was not seen.
#[must_use]
pub fn awakenings() -> u64 {
    AWAKENINGS.load(Ordering::Relaxed)
}

/// Somebody listens to events of this type, or nobody any more. By one thread at a time: under the registry's lock.
pub(super) fn listen(kind: TypeId, listens: bool) {
    let bit = 1 << kind.index();
    if !listens {
        WORD.fetch_and(!bit, Ordering::SeqCst);
        return;
    }
    if bit & TRANSFERS != 0 && WORD.load(Ordering::Relaxed) & TRANSFERS == 0 {
        AWAKENINGS.fetch_add(1, Ordering::Relaxed);
    }
    WORD.fetch_or(bit, Ordering::SeqCst);
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
    word() & !TYPES != 0
}

/// Whether there is anything to do but what ports hold. Hot, behind the branch of a site.
#[inline]
pub(super) fn is_pressing() -> bool {
    word() & !(TYPES | PORTS | FOLLOWING) != 0
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
