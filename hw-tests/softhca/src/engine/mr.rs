// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory regions (and, in `window`, memory windows): keys, bounds and rights, in a table that every process reads.
//!
//! Owns the entries of the region's table. Called by: the C side (register), sendq, recv and wire (check every use).
//! Grade: registration is setup; `find` is hot: one entry (one cache line) read, no lock. An entry is taken by
//! exchanging its key; its fields are written before the key is published, and the key is taken away before they
//! change. A key is the entry's index (24 bits) and a generation (8 bits), so an old key of a used entry is refused.

mod window;

use std::sync::{Mutex, PoisonError};

use super::{
    Errno, Pd, Result,
    codes::access,
    fabric::Fabric,
    pd::InPd,
    process::{Slot, slot_index},
    region::{MAX_MRS, Shared, mr_at, slot_at},
    words::{W32, W64},
};

use crate::behaviour::OptionalAccess;

pub use window::Mw;
pub(crate) use window::{Binding, bind, invalidate, may_invalidate};

/// The key of an entry that is being filled in, or changed.
const TAKEN: u32 = u32::MAX;

#[repr(C, align(64))]
pub(crate) struct MrEntry {
    /// 0 while free.
    key: W32,
    pd: W32,
    access: W32,
    /// Token of the process whose memory it is.
    owner: W32,
    /// In the owner's address space.
    addr: W64,
    len: W64,
    /// What requests call the first byte.
    iova: W64,
    generation: W32,
    /// `REGION`, or the type of a window.
    kind: W32,
    /// Windows: the queue pair they are open to; 0 for all.
    qpn: W32,
    /// Windows: the entry of the region they are bound to; 0 for none.
    bound_to: W32,
    /// Regions: windows bound to them.
    windows: W32,
}

/// `MrEntry::kind`; 1 and 2 are the types of windows.
const REGION: u32 = 0;
/// In `MrEntry::access`: the key may be used locally, as one of a region.
const LOCAL: u32 = 1 << 31;

const _: () = assert!(size_of::<MrEntry>() == 64);

// SAFETY: words only, repr(C), zero is a free entry.
unsafe impl Shared for MrEntry {}

/// The entry that has this key now.
#[inline]
fn entry_of(fabric: &Fabric, key: u32) -> Option<&'static MrEntry> {
    let index = key >> 8;
    if index == 0 || index >= MAX_MRS {
        return None;
    }
    let entry: &MrEntry = fabric.region().at(mr_at(index));
    (entry.key.seen() == key).then_some(entry)
}

/// The address, in its owner's space, of `len` bytes at `at` of the region whose local key is `key`; `None` if the key,
/// the domain, the bounds or the rights do not allow it.
#[inline]
pub(crate) fn find(fabric: &Fabric, key: u32, pd: u32, at: u64, len: u64, need: u32) -> Option<u64> {
    entry_of(fabric, key)?.address(pd, at, len, need | LOCAL)
}

/// The same of the region or window whose remote key is `key`, for a request that queue pair `qpn` answers.
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

    /// Everything but the key, which must not be to be found meanwhile.
    fn describe(&self, pd: &Pd, addr: u64, len: u64, iova: u64, flags: u32) {
        self.pd.set(pd.0.id);
        self.access.set(flags);
        self.owner.set(pd.0.hca.fabric.token());
        self.addr.set(addr);
        self.len.set(len);
        self.iova.set(if flags & access::ZERO_BASED == 0 { iova } else { 0 });
        for word in [&self.kind, &self.qpn, &self.bound_to, &self.windows] {
            word.set(0);
        }
    }
}

/// A memory region.
pub struct Mr {
    key: u32,
    /// Its domain, and the pages it counts as locked; `None` once it has ended.
    holds: Mutex<Option<(InPd, u64)>>,
}

impl Mr {
    pub(crate) fn new(pd: &Pd, addr: u64, len: u64, iova: u64, flags: u32) -> Result<Mr> {
        let fabric = &pd.0.hca.fabric;
        if fabric.has_faults {
            super::faults::on_register(fabric, pd.0.hca.device)?;
        }
        may_register(pd, addr, len, flags)?;
        let pages = fabric.locked.lock(addr, len)?;
        let in_pd = pd.enter();
        let key = take_entry(fabric, |entry| entry.describe(pd, addr, len, iova, flags | LOCAL))
            .inspect_err(|_| fabric.locked.unlock(pages))?;
        if let Some(trace) = &fabric.trace {
            trace.registered(pd.0.hca.spec(), flags, len);
        }
        Ok(Mr { key, holds: Mutex::new(Some((in_pd, pages))) })
    }

    /// Registers other memory, in another domain or with other rights, under the same key. On failure nothing changes.
    /// # Errors
    /// As for registering; EINVAL if the registration has ended, EBUSY while a memory window is bound to it.
    pub fn change(&self, pd: &Pd, addr: u64, len: u64, iova: u64, flags: u32) -> Result<()> {
        may_register(pd, addr, len, flags)?;
        let mut holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_, before)) = *holds else { return Err(Errno(libc::EINVAL)) };
        let fabric = &pd.0.hca.fabric;
        let pages = fabric.locked.lock(addr, len)?; // for a moment both are locked, as with an adapter
        let entry: &MrEntry = fabric.region().at(mr_at(self.key >> 8));
        // Nobody finds the region while it changes.
        if !self.begin_end(entry) {
            fabric.locked.unlock(pages);
            return Err(Errno(libc::EBUSY));
        }
        entry.describe(pd, addr, len, iova, flags | LOCAL);
        entry.key.publish(self.key);
        fabric.locked.unlock(before);
        *holds = Some((pd.enter(), pages));
        Ok(())
    }

    /// Local key.
    #[must_use]
    pub fn lkey(&self) -> u32 {
        self.key
    }

    /// Remote key.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.key
    }

    /// Nobody finds it any more; `false`, and nothing changes, if windows are bound to it.
    fn begin_end(&self, entry: &MrEntry) -> bool {
        // Who binds a window counts it first and then looks at the key.
        entry.key.swap(TAKEN);
        let is_bound = entry.windows.add(0) != 0;
        if is_bound {
            entry.key.publish(self.key);
        }
        !is_bound
    }

    /// Ends the registration.
    /// # Errors
    /// EBUSY while a memory window is bound to it.
    pub fn destroy(&self) -> Result<()> {
        let mut holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((in_pd, pages)) = &*holds else { return Ok(()) };
        let fabric = &in_pd.0.hca.fabric;
        let entry: &MrEntry = fabric.region().at(mr_at(self.key >> 8));
        if !self.begin_end(entry) {
            return Err(Errno(libc::EBUSY));
        }
        entry.key.publish(0);
        fabric.locked.unlock(*pages);
        *holds = None;
        Ok(())
    }
}

/// Whether this memory may be registered with these rights.
fn may_register(pd: &Pd, addr: u64, len: u64, flags: u32) -> Result<()> {
    let known = access::LOCAL_WRITE
        | access::REMOTE_WRITE
        | access::REMOTE_READ
        | access::REMOTE_ATOMIC
        | access::MW_BIND
        | access::HUGETLB
        | access::ZERO_BASED
        | access::OPTIONAL;
    let is_refused = pd.0.hca.behaviour().optional_access == OptionalAccess::Eopnotsupp;
    if flags & access::ON_DEMAND != 0 || (flags & access::OPTIONAL != 0 && is_refused) {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let remote_writes = flags & (access::REMOTE_WRITE | access::REMOTE_ATOMIC) != 0;
    if flags & !known != 0 || (remote_writes && flags & access::LOCAL_WRITE == 0) || addr.checked_add(len).is_none() {
        return Err(Errno(libc::EINVAL));
    }
    is_mapped(addr, len)
}

/// Fills a free entry and gives its key. Each process looks from its own place on, so that they rarely meet.
fn take_entry(fabric: &Fabric, fill: impl FnOnce(&MrEntry)) -> Result<u32> {
    let region = fabric.region();
    let slot: &Slot = region.at(slot_at(slot_index(fabric.token())));
    let first = 1 + slot_index(fabric.token()) * 256;
    for step in 0..MAX_MRS - 1 {
        let index = 1 + (first - 1 + step) % (MAX_MRS - 1);
        let entry: &MrEntry = region.at(mr_at(index));
        if entry.key.get() == 0 && entry.key.replace(0, TAKEN) {
            // Set before the entry is ours to see for others: whoever buries us looks so far.
            if slot.mrs_used.get() < step + 1 {
                slot.mrs_used.set(step + 1);
            }
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

/// Frees the entries of a dead process.
pub(crate) fn release_all_of(fabric: &Fabric, token: u32) {
    let region = fabric.region();
    let slot: &Slot = region.at(slot_at(slot_index(token)));
    for step in 0..slot.mrs_used.get() {
        let entry: &MrEntry = region.at(mr_at(1 + (slot_index(token) * 256 + step) % (MAX_MRS - 1)));
        if entry.owner.get() == token && entry.key.get() != 0 {
            entry.key.publish(0);
        }
    }
}

/// EFAULT if any page of the range is not mapped, as pinning it would say.
fn is_mapped(addr: u64, len: u64) -> Result<()> {
    const PAGES: u64 = 4096;
    let end = (addr + len).next_multiple_of(4096);
    let mut at = addr & !4095;
    let mut resident = [0_u8; PAGES as usize];
    while at < end {
        let bytes = (end - at).min(PAGES * 4096);
        // SAFETY: mincore writes one byte per page asked for, and `resident` has room for that many.
        let done = unsafe { libc::mincore(at as *mut libc::c_void, bytes as usize, resident.as_mut_ptr()) };
        if done != 0 {
            return Err(Errno(libc::EFAULT));
        }
        at += bytes;
    }
    Ok(())
}
