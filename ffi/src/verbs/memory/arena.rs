// SPDX-License-Identifier: MIT OR Apache-2.0
//! An arena: memory of ibex's own, mapped, registered, and divided into slots of one size (`slots.rs`). Used by the
//! engine for receive slots, send slots and handshake datagrams. Made at setup or when a pool grows; naming a slot is
//! hot. The protection domain owns the memory, and every queue keeps its domain, so no work request outlives the memory
//! that it names (R3). Sizes in bytes. Tests: device tests in `hw-tests`; of the slots in `slots.rs`.

use super::mapping::Mapped;
use super::slots::{ALIGNMENT, Slots};
use crate::verbs::{Access, HugePages, LocalSpan, PageKind, ProtectionDomain};
use std::io;
use std::sync::Arc;

/// Registered memory in slots of one size.
#[derive(Debug)]
pub struct Arena {
    slots: Slots,
    lkey: u32,
    rkey: u32,
    bytes: usize,
    kind: PageKind,
    /// Owns the memory.
    _domain: Arc<ProtectionDomain>,
}

// SAFETY: the memory is tied to no thread, and neither is the domain that owns it.
unsafe impl Send for Arena {}

impl Arena {
    /// Maps and registers `count` slots of `slot` bytes each, with `access`, on huge pages if `pages` permits.
    ///
    /// # Errors
    /// `ENOMEM`: too little memory, or the process may lock too little (`ulimit -l`).
    pub fn with(
        domain: &Arc<ProtectionDomain>,
        slot: usize,
        count: usize,
        access: Access,
        pages: HugePages,
    ) -> io::Result<Arena> {
        const { assert!(ALIGNMENT <= 4096, "a mapping starts at a page") };
        let too_large = || io::Error::from_raw_os_error(libc::ENOMEM);
        let bytes = Slots::bytes(slot, count).ok_or_else(too_large)?;
        let memory = domain.map(bytes, pages, access)?;
        // SAFETY: the domain, kept in the arena, keeps so many bytes mapped at a page's start; no references (R1).
        let slots = unsafe { Slots::new(memory.base, slot, count) }.ok_or_else(too_large)?;
        let Mapped { lkey, rkey, bytes, kind, .. } = memory;
        Ok(Arena { slots, lkey, rkey, bytes, kind, _domain: Arc::clone(domain) })
    }

    /// Number of slots.
    pub fn count(&self) -> usize {
        self.slots.count()
    }

    /// Remote key of the memory, for peers if `access` includes them.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Number of registered bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The kind of their pages.
    pub fn pages(&self) -> PageKind {
        self.kind
    }

    /// Number of registered bytes in explicit huge pages: all, or 0.
    pub fn explicit_bytes(&self) -> usize {
        if self.kind == PageKind::Explicit { self.bytes } else { 0 }
    }

    /// The span of slot `index`; `None` beyond the last. It may outlive the arena.
    #[inline]
    pub fn span(&self, index: usize) -> Option<LocalSpan> {
        let addr = self.address(index)?;
        // SAFETY: R1 to R3: registered until no queue of its domain is left; other domains' queues cannot use the key.
        Some(unsafe { LocalSpan::new(addr, self.slots.size() as u32, self.lkey) })
    }

    /// The address of slot `index`; `None` beyond the last.
    #[inline]
    pub fn address(&self, index: usize) -> Option<u64> {
        self.slots.address(index)
    }

    /// Copies as many of `bytes` as fit to slot `index`; returns their span. A send in flight may mix old and new.
    pub fn write(&mut self, index: usize, bytes: &[u8]) -> Option<LocalSpan> {
        let copied = self.slots.write(index, bytes)?;
        Some(self.span(index)?.first(copied as u32))
    }

    /// Copies slot `index` from `offset` on, a multiple of 8. False: no such bytes. May see a message half written.
    #[must_use]
    pub fn read(&self, index: usize, offset: usize, into: &mut [u8]) -> bool {
        self.slots.read(index, offset, into)
    }
}
