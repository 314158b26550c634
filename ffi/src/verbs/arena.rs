// SPDX-License-Identifier: MIT OR Apache-2.0
//! An arena: memory of ibex's own, mapped, registered, and divided into slots of one size.
//!
//! Used by the engine for receive slots, send slots and handshake datagrams. Made at setup or when a pool grows; naming a
//! slot is arithmetic. The bytes are only reached through copies (R1). Sizes in bytes. Tests: device tests in `hw-tests`.

use super::{Access, LocalSpan, MemoryRegion, ProtectionDomain};
use std::io;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

/// Slots start at multiples of this: a cache line.
const ALIGNMENT: usize = 64;

/// Registered memory in slots of one size.
pub struct Arena {
    // Dropped by hand, before the mapping goes: R3.
    region: ManuallyDrop<MemoryRegion>,
    base: NonNull<u8>,
    mapped: usize,
    slot: usize,
    stride: usize,
    count: usize,
    lkey: u32,
}

// SAFETY: the arena owns its mapping; nothing about it is tied to a thread.
unsafe impl Send for Arena {}

impl Arena {
    /// Maps and registers `count` slots of `slot` bytes each, for this process' own sends and receives.
    ///
    /// # Errors
    /// `ENOMEM` where memory, or the limit of locked memory (`ulimit -l`), does not suffice.
    pub fn new(domain: &Arc<ProtectionDomain>, slot: usize, count: usize) -> io::Result<Arena> {
        Self::with_access(domain, slot, count, Access::LOCAL_WRITE)
    }

    /// Maps and registers `count` slots of `slot` bytes each, to which peers get `access` too.
    ///
    /// # Errors
    /// As for [`Arena::new`].
    pub fn with_access(domain: &Arc<ProtectionDomain>, slot: usize, count: usize, access: Access) -> io::Result<Arena> {
        let too_large = || io::Error::from_raw_os_error(libc::ENOMEM);
        let stride = stride(slot);
        let mapped = stride.checked_mul(count).filter(|&bytes| bytes > 0).ok_or_else(too_large)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping at no given address touches nothing that exists.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), mapped, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A child must not share these pages: after a copy on write the adapter would keep the old ones.
        // SAFETY: the range was just mapped and is this arena's.
        unsafe { libc::madvise(base, mapped, libc::MADV_DONTFORK) };
        // SAFETY: the range stays mapped until this arena drops, which deregisters first (R3); it is reached only
        // through copies by raw pointer (R1).
        let region = match unsafe { domain.register(base as usize, mapped, access) } {
            Ok(region) => region,
            Err(error) => {
                // SAFETY: mapped above, used by nobody, unmapped once.
                unsafe { libc::munmap(base, mapped) };
                return Err(error);
            }
        };
        let lkey = region.lkey();
        let base = NonNull::new(base.cast()).ok_or_else(too_large)?;
        Ok(Arena { region: ManuallyDrop::new(region), base, mapped, slot, stride, count, lkey })
    }

    /// How many slots there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The key by which peers name the arena's memory, where they were given access.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.region.rkey()
    }

    /// Bytes that are registered.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.mapped
    }

    /// The span of slot `index`, or `None` beyond the last.
    #[must_use]
    #[inline]
    pub fn span(&self, index: usize) -> Option<LocalSpan> {
        let addr = self.address(index)?;
        // SAFETY: the slot lies in the registered mapping. The engine keeps the arena until its queues are destroyed (R3).
        Some(unsafe { LocalSpan::new(addr, self.slot as u32, self.lkey) })
    }

    /// Where slot `index` starts, or `None` beyond the last.
    #[must_use]
    #[inline]
    pub fn address(&self, index: usize) -> Option<u64> {
        (index < self.count).then(|| self.base.as_ptr() as u64 + (index * self.stride) as u64)
    }

    /// Copies `bytes` into slot `index` at its start; what does not fit is cut off. Returns the span of what was copied.
    pub fn write(&mut self, index: usize, bytes: &[u8]) -> Option<LocalSpan> {
        let span = self.span(index)?.first(bytes.len() as u32);
        // SAFETY: `span` lies in the mapping and has at most `bytes.len()` bytes; the two do not overlap, as no reference
        // to the mapping exists (R1). Whether the device holds the slot (R2) is the engine's bookkeeping; a race would
        // garble bytes of this arena, never other memory.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), span.addr() as *mut u8, span.len() as usize) };
        Some(span)
    }

    /// Copies the bytes of slot `index` from `offset` on into `into`. False where the slot or the range is not there.
    #[must_use]
    pub fn read(&self, index: usize, offset: usize, into: &mut [u8]) -> bool {
        let Some(span) = self.span(index) else { return false };
        if offset.checked_add(into.len()).is_none_or(|end| end > self.slot) {
            return false;
        }
        // SAFETY: offset and length were checked against the slot; `into` is exclusive and outside the mapping (R1).
        unsafe { std::ptr::copy_nonoverlapping((span.addr() as *const u8).add(offset), into.as_mut_ptr(), into.len()) };
        true
    }
}

/// The distance between the starts of two slots: an odd number of cache lines. Slots a power of two apart would all start in the
/// same few sets of every cache, and a message's first bytes would hardly ever be found in one.
fn stride(slot: usize) -> usize {
    let lines = slot.div_ceil(ALIGNMENT);
    (lines | 1) * ALIGNMENT
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: dropped once, here, before the mapping it names goes (R3).
        unsafe { ManuallyDrop::drop(&mut self.region) };
        // SAFETY: mapped in `new`, unmapped once; no span of it is used any more, as the queues went before.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Arena of {} slots of {} bytes", self.count, self.slot)
    }
}
