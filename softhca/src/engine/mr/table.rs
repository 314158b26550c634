// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of memory regions and windows, which every process reads: keys, bounds and rights. Called by: send, recv
//! and wire (check every use), the regions and windows of this folder, burial. Grade: `find` is hot: it reads one entry
//! (one cache line) without a lock; the rest is setup. Thread rule: a thread takes an entry by exchanging its key; it
//! writes the fields before it publishes the key, and takes the key away before it changes them. A key is the entry's
//! index (24 bits) and a generation (8 bits), so an old key of a used entry is refused.

use crate::engine::codes::access;
use crate::engine::memory::layout::{MAX_MRS, mr_at};
use crate::engine::memory::process::slot_index;
use crate::engine::{Errno, Fabric, Result, Shared, W32, W64};

/// The key of an entry that is being filled in, or changed.
pub(super) const TAKEN: u32 = u32::MAX;

#[repr(C, align(64))]
pub(crate) struct MrEntry {
    /// 0 while free.
    pub(super) key: W32,
    pub(super) pd: W32,
    pub(super) access: W32,
    /// Token of the process whose memory it is.
    pub(super) owner: W32,
    /// In the owner's address space.
    pub(super) addr: W64,
    pub(super) len: W64,
    /// Address of the first byte in requests.
    pub(super) iova: W64,
    pub(super) generation: W32,
    /// `REGION`, or the type of a window.
    pub(super) kind: W32,
    /// Windows: the queue pair they are open to; 0 for all.
    pub(super) qpn: W32,
    /// Windows: the entry of the region they are bound to; 0 for none.
    pub(super) bound_to: W32,
    /// Regions: windows bound to them.
    pub(super) windows: W32,
}

/// `MrEntry::kind`; 1 and 2 are the types of windows.
pub(super) const REGION: u32 = 0;
/// Bit of `MrEntry::access`: the key may be used locally, as a region's may.
pub(super) const LOCAL: u32 = 1 << 31;

const _: () = assert!(size_of::<MrEntry>() == 64);

#[derive(Default)]
pub(super) struct Range {
    pub(super) addr: u64,
    pub(super) len: u64,
    pub(super) iova: u64,
}

// SAFETY: words only, repr(C), zero is a free entry.
unsafe impl Shared for MrEntry {}

#[inline]
pub(super) fn entry_of(fabric: &Fabric, key: u32) -> Option<&'static MrEntry> {
    let index = key >> 8;
    if index == 0 || index >= MAX_MRS {
        return None;
    }
    let entry: &MrEntry = fabric.region().at(mr_at(index));
    (entry.key.seen() == key).then_some(entry)
}

/// Returns the address, in its owner's space, of `len` bytes at `at` of the region with local key `key`; `None` if the
/// key, the domain, the bounds or the rights do not allow it.
pub(crate) fn find(fabric: &Fabric, key: u32, pd: u32, at: u64, len: u64, need: u32) -> Option<u64> {
    entry_of(fabric, key)?.address(pd, at, len, need | LOCAL)
}

/// As [`find`], by the remote key of a region or window, for a request that queue pair `qpn` answers.
#[inline]
pub(crate) fn find_remote(fabric: &Fabric, key: u32, pd: u32, qpn: u32, at: u64, len: u64, need: u32) -> Option<u64> {
    let entry = entry_of(fabric, key)?;
    if entry.qpn.get() != 0 && entry.qpn.get() != qpn {
        return None;
    }
    entry.address(pd, at, len, need)
}

impl MrEntry {
    #[inline]
    fn address(&self, pd: u32, at: u64, len: u64, need: u32) -> Option<u64> {
        if self.pd.get() != pd || self.access.get() & need != need {
            return None;
        }
        let offset = at.wrapping_sub(self.iova.get());
        let size = self.len.get();
        (len <= size && offset <= size - len).then(|| self.addr.get() + offset)
    }

    /// A free entry has no owner, so that the burial of its last owner does not take it from the next one.
    pub(super) fn free(&self) {
        self.owner.set(0);
        self.key.publish(0);
    }

    /// Sets everything but the key, which is `TAKEN` meanwhile, so that no request finds the entry.
    pub(super) fn describe(&self, fabric: &Fabric, pd: u32, range: &Range, flags: u32) {
        self.pd.set(pd);
        self.access.set(flags);
        self.owner.set(fabric.token());
        self.addr.set(range.addr);
        self.len.set(range.len);
        self.iova.set(if flags & access::ZERO_BASED == 0 { range.iova } else { 0 });
        for word in [&self.kind, &self.qpn, &self.bound_to, &self.windows] {
            word.set(0);
        }
    }
}

/// Fills a free entry and returns its key. Each process begins its search at another entry, so that they rarely
/// collide. If the process dies before it has written its token to the entry, the entry is lost until the fabric ends.
pub(super) fn take_entry(fabric: &Fabric, fill: impl FnOnce(&MrEntry)) -> Result<u32> {
    let region = fabric.region();
    let slot = fabric.slot_of(fabric.token());
    let first = 1 + slot_index(fabric.token()) * 256;
    for step in 0..MAX_MRS - 1 {
        let index = 1 + (first - 1 + step) % (MAX_MRS - 1);
        let entry: &MrEntry = region.at(mr_at(index));
        if entry.key.get() != 0 {
            continue;
        }
        // Set before the entry is taken: the process that buries this one looks up to this entry.
        slot.mrs_used.raise(step + 1);
        if entry.key.replace(0, TAKEN) {
            fill(entry);
            let generation = (entry.generation.get() + 1) & 0xff;
            entry.generation.set(generation);
            let key = (index << 8) | generation;
            entry.key.publish(key);
            return Ok(key);
        }
    }
    Err(Errno(libc::ENOMEM))
}

/// Returns the entries up to the last one that process `token` has taken.
fn used_by(fabric: &Fabric, token: u32) -> impl Iterator<Item = &'static MrEntry> {
    let index = move |step| 1 + (slot_index(token) * 256 + step) % (MAX_MRS - 1);
    (0..fabric.slot_of(token).mrs_used.get()).map(move |step| fabric.region().at(mr_at(index(step))))
}

pub(crate) fn release_all_of(fabric: &Fabric, token: u32) {
    used_by(fabric, token).filter(|entry| entry.owner.get() == token).for_each(MrEntry::free);
}

/// Whether a window of this process is bound to region `index`. The count alone does not show that: a peer that died
/// within an invalidation has left its window counted.
#[cold]
pub(super) fn is_bound_to(fabric: &Fabric, index: u32) -> bool {
    let may_be = |window: &MrEntry| window.bound_to.get() == index || window.key.get() == TAKEN;
    used_by(fabric, fabric.token()).any(|entry| entry.kind.get() != REGION && may_be(entry))
}
