// SPDX-License-Identifier: MIT OR Apache-2.0
//! The descriptor, and the pools of a module, whose slots are for short, eager and longer (`max_send_size`) messages.
//!
//! A descriptor has one registered send slot of the port for life, or, while a message waits for a slot, ordinary
//! memory. It is on the free list of its pool, or belongs to Open MPI, to the engine or to ibex, which then has it as
//! an [`Owned`]. So no reference to it exists while Open MPI writes to it, and no adapter has the message of one that
//! is owned (R2). Called by `descriptor`, `send.rs`, `detour.rs` and `completion.rs`. Grade: hot (a pop, a push, no
//! allocation); an empty pool grows (pending). Threads: the one that has entered the port. Tests:
//! `descriptor/tests.rs`.

use std::mem::offset_of;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use ibex_ffi::openmpi::sys;
use ibex_ffi::verbs::LocalSpan;

use crate::runtime::entry::Argument;
use crate::runtime::free_list::{FreeList, Linked, Owned};
use crate::runtime::memory::Registered;

#[repr(C, align(64))]
pub(crate) struct Descriptor {
    pub(crate) base: sys::mca_btl_base_descriptor_t,
    /// The slot (header and copied data), and user memory that is sent in place.
    segments: [sys::mca_btl_base_segment_t; 2],
    /// The whole slot; empty if the descriptor has `bytes`.
    slot: LocalSpan,
    /// Ordinary memory instead of a slot; shared with the engine once the message is sent.
    bytes: Option<Arc<[u8]>>,
    registered: Option<Registered>,
    /// Next descriptor on the free list, or in the chain of those to give back.
    next: *mut Descriptor,
    pool: PoolName,
    /// Whether `btl_send` has promised a callback to Open MPI.
    pub(crate) callback_wanted: bool,
    /// Tag of a message that waits in the engine.
    pub(crate) tag: u8,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum PoolName {
    Short = 0,
    /// Slots of the larger eager limit.
    Eager = 1,
    Large = 2,
    /// No slots: ordinary memory for short and eager messages that get no slot.
    Unregistered = 3,
}

/// Size in bytes of a short slot: that of ob1's longest control message, with the largest registration handle.
pub(super) const SHORT: usize = 320;

/// Number of slots that each pool has from the start, if its limit permits.
const RESERVED: u32 = 16;

/// Largest number of bytes of slots that are registered at once.
const MOST_AT_ONCE: u32 = 2 << 20;

/// Number of messages without a slot between two requests for completions of unsignalled sends, which visit every peer.
const RECLAIM_INTERVAL: u32 = 64;

// SAFETY: only free lists and chains of descriptors to give back use `next`. A free one points only to its own slot.
unsafe impl Linked for Descriptor {
    const NEXT: usize = offset_of!(Descriptor, next);
}

// SAFETY: a pointer, to Open MPI's part of the descriptor, which is the first field. M2.
unsafe impl Argument<*mut sys::mca_btl_base_descriptor_t> for Owned<Descriptor> {}

/// Descriptors to give back after the callbacks of a batch, linked through the descriptors themselves.
pub(crate) struct FinishedDescriptors(*mut Descriptor);

impl FinishedDescriptors {
    pub(crate) const NONE: FinishedDescriptors = FinishedDescriptors(null_mut());

    #[inline]
    pub(crate) fn push(&mut self, mut descriptor: Owned<Descriptor>) {
        descriptor.next = self.0;
        self.0 = descriptor.into_raw();
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Owned<Descriptor>> {
        // SAFETY: `push` has put it on the chain, so nobody else uses it.
        let descriptor = unsafe { Owned::new(NonNull::new(self.0)?) };
        self.0 = descriptor.next;
        Some(descriptor)
    }
}

pub(crate) trait Slots {
    /// Registers `count` more slots of `size` bytes, which live as long as the descriptors. `None`: not possible now.
    fn grow(&mut self, size: u32, count: u32) -> Option<Vec<LocalSpan>>;

    /// Requests completions of unsignalled sends. Passes each descriptor of these pools that is complete already to
    /// `silent`, which takes it if it needs no callback, and returns whether it did.
    fn reclaim(&mut self, silent: &mut dyn FnMut(Owned<Descriptor>) -> bool);
}

struct Pool {
    free: FreeList<Descriptor>,
    /// Size in bytes of each slot.
    size: usize,
    made: u32,
}

pub(crate) struct Descriptors {
    pools: [Pool; 4],
    /// Largest number of slots of each pool; 0: limited only by lockable memory. Each pool has its own share, because
    /// one pool could otherwise take all slots, and messages of the other size would wait for ever.
    share: u32,
    step: u32,
    missed: u32,
}

impl Descriptors {
    /// Makes empty pools; `eager` and `large` are sizes of slots in bytes.
    pub(crate) fn new(eager: usize, large: usize, limit: u32, step: u32) -> Self {
        let pool = |size| Pool { free: FreeList::new(), size, made: 0 };
        let pools = [pool(SHORT), pool(eager.max(SHORT)), pool(large.max(SHORT)), pool(eager.max(SHORT))];
        Descriptors { pools, share: limit.div_ceil(2), step: step.max(1), missed: 0 }
    }

    /// Makes the first descriptors of each pool, before anything is sent. If no more memory can be registered later,
    /// messages wait for these. `register` gets the size of the slots and their number.
    pub(crate) fn reserve<E>(
        &mut self,
        mut register: impl FnMut(u32, u32) -> Result<Vec<LocalSpan>, E>,
    ) -> Result<(), E> {
        for name in [PoolName::Short, PoolName::Eager, PoolName::Large] {
            let count = if self.share == 0 { RESERVED } else { RESERVED.min(self.share) };
            let new = register(self.pools[name as usize].size as u32, count)?;
            self.add(name, &new);
        }
        Ok(())
    }

    /// Takes a descriptor with room for `size` bytes: with a slot or, up to the eager limit, with ordinary memory, in
    /// which the message can wait for a slot. `None`: no slot is free or large enough, and `size` exceeds that limit.
    #[inline]
    pub(crate) fn take(&mut self, slots: &mut impl Slots, size: usize, flags: u32) -> Option<Owned<Descriptor>> {
        match self.take_slot(slots, size, flags) {
            Some(descriptor) => Some(descriptor),
            None => self.take_unregistered(size, flags),
        }
    }

    /// Takes a descriptor whose slot holds `size` bytes. `None`: no slot is free and large enough, or can be made.
    #[inline]
    pub(crate) fn take_slot(&mut self, slots: &mut impl Slots, size: usize, flags: u32) -> Option<Owned<Descriptor>> {
        let name = match size {
            ..=SHORT => PoolName::Short,
            size if size <= self.pools[PoolName::Eager as usize].size => PoolName::Eager,
            _ => PoolName::Large,
        };
        let pool = &mut self.pools[name as usize];
        if size > pool.size {
            return None;
        }
        let free = match pool.free.take() {
            Some(free) => free,
            None => self.grow(slots, name)?,
        };
        // SAFETY: it has just been taken from the list, so nobody else uses it.
        let mut descriptor = unsafe { Owned::new(free) };
        descriptor.prepare(size, flags);
        Some(descriptor)
    }

    /// Takes a descriptor without a slot: its message waits in ordinary memory of just its size, so the locked memory
    /// stays bounded. (ob1 would retry refused messages at every progress, and let later ones overtake them.)
    #[cold]
    fn take_unregistered(&mut self, size: usize, flags: u32) -> Option<Owned<Descriptor>> {
        let name = PoolName::Unregistered;
        if size > self.pools[name as usize].size {
            return None;
        }
        let free = self.pools[name as usize].free.take().or_else(|| {
            self.add(name, &vec![LocalSpan::EMPTY; self.step as usize]);
            self.pools[name as usize].free.take()
        })?;
        // SAFETY: it has just been taken from the list, so nobody else uses it.
        let mut descriptor = unsafe { Owned::new(free) };
        descriptor.prepare(size, flags);
        let bytes = descriptor.bytes.insert(std::iter::repeat_n(0, size).collect());
        let start = Arc::get_mut(bytes).map_or(null_mut(), <[u8]>::as_mut_ptr);
        descriptor.segments[0].seg_addr.lval = start.expose_provenance() as u64;
        Some(descriptor)
    }

    /// Gives a descriptor back. The caller has put its registration back ([`Descriptor::take_registration`]).
    ///
    /// # Safety
    /// M2: it was taken from these pools.
    #[inline]
    pub(crate) unsafe fn give_back(&mut self, mut descriptor: Owned<Descriptor>) {
        let pool = descriptor.pool;
        if pool == PoolName::Unregistered {
            // The engine has an `Arc` of its own to the bytes.
            descriptor.bytes = None;
        }
        // SAFETY: M2: the caller says that it was taken from this pool; nobody else uses it (`Owned`).
        unsafe { self.pools[pool as usize].free.give_back(descriptor.into_raw()) };
    }

    /// Gives back a descriptor whose send has completed, if it needs no callback. Returns whether it did.
    ///
    /// # Safety
    /// M2: it was taken from these pools.
    pub(crate) unsafe fn give_back_silent(&mut self, descriptor: Owned<Descriptor>) -> bool {
        let wanted = descriptor.callback_wanted;
        if !wanted {
            // SAFETY: M2: the caller says so. A descriptor without a callback has no registration (`btl_send`).
            unsafe { self.give_back(descriptor) };
        }
        !wanted
    }

    #[cold]
    fn grow(&mut self, slots: &mut impl Slots, name: PoolName) -> Option<NonNull<Descriptor>> {
        let pool = &self.pools[name as usize];
        let step = self.step.max(pool.made / 2).min(MOST_AT_ONCE / pool.size as u32).max(1);
        let count = if self.share == 0 { step } else { step.min(self.share.saturating_sub(pool.made)) };
        let new = if count == 0 { None } else { slots.grow(pool.size as u32, count) };
        match new {
            Some(new) => self.add(name, &new),
            None => self.reclaim(slots),
        }
        self.pools[name as usize].free.take()
    }

    /// Reclaims descriptors of completed sends, because no slot is free and none can be made.
    fn reclaim(&mut self, slots: &mut impl Slots) {
        let is_due = self.missed.is_multiple_of(RECLAIM_INTERVAL);
        self.missed = self.missed.wrapping_add(1);
        if is_due {
            // SAFETY: M2: it is of these pools (`Slots::reclaim`).
            slots.reclaim(&mut |descriptor| unsafe { self.give_back_silent(descriptor) });
        }
    }

    fn add(&mut self, name: PoolName, slots: &[LocalSpan]) {
        let pool = &mut self.pools[name as usize];
        pool.made += slots.len() as u32;
        let descriptors = slots.iter().map(|slot| Descriptor::unused(*slot, name)).collect();
        pool.free.add(descriptors, |descriptor| {
            // SAFETY: nobody else has it yet; the object header is constructed at its final address.
            unsafe { sys::ibex_descriptor_construct(&raw mut (*descriptor.as_ptr()).base) };
        });
    }
}

impl Descriptor {
    fn unused(slot: LocalSpan, pool: PoolName) -> Self {
        // SAFETY: zero is a valid value of this C structure of integers and pointers; it is constructed before its use.
        let base = unsafe { std::mem::zeroed() };
        let segment = sys::mca_btl_base_segment_t { seg_addr: sys::opal_ptr_t { lval: 0 }, seg_len: 0 };
        Descriptor {
            base,
            segments: [segment, segment],
            slot,
            bytes: None,
            registered: None,
            next: null_mut(),
            pool,
            callback_wanted: false,
            tag: 0,
        }
    }

    #[inline]
    fn prepare(&mut self, size: usize, flags: u32) {
        self.segments[0].seg_addr.lval = self.slot.addr();
        self.segments[0].seg_len = size as u64;
        self.base.des_segments = self.segments.as_mut_ptr();
        self.base.des_segment_count = 1;
        self.base.des_cbfunc = None;
        self.base.des_flags = flags;
        self.base.order = sys::MCA_BTL_NO_ORDER as u8;
        self.registered = None;
        self.callback_wanted = false;
    }

    /// Makes `length` bytes of user memory the second segment.
    ///
    /// # Safety
    /// M3. `registered` covers the bytes, and is put back after the descriptor's send.
    pub(crate) unsafe fn attach(&mut self, place: *const u8, length: usize, registered: Registered) {
        self.segments[1].seg_addr.lval = place.addr() as u64;
        self.segments[1].seg_len = length as u64;
        self.base.des_segment_count = 2;
        self.registered = Some(registered);
    }

    /// Returns the spans that the adapter gathers: one, or two if user memory is sent in place.
    #[inline]
    pub(crate) fn spans(&self) -> ([LocalSpan; 2], usize) {
        // Open MPI may have shortened the first segment to the actual header; it never lengthens it past the slot.
        let first = self.slot.first(self.segments[0].seg_len as u32);
        match self.registered {
            Some(registered) if self.base.des_segment_count == 2 => {
                let segment = &self.segments[1];
                // SAFETY: M3: inside the registration (`attach`), and memory of a send that is not complete.
                let second = unsafe { LocalSpan::new(address(segment), segment.seg_len as u32, registered.lkey()) };
                ([first, second], 2)
            }
            _ => ([first, LocalSpan::EMPTY], 1),
        }
    }

    #[inline]
    pub(crate) fn take_registration(&mut self) -> Option<Registered> {
        self.registered.take()
    }

    /// Returns the address of the message: in the slot, or in the ordinary memory.
    #[inline]
    pub(crate) fn start(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(address(&self.segments[0]) as usize)
    }

    fn used(&self) -> &[sys::mca_btl_base_segment_t] {
        &self.segments[..self.base.des_segment_count.min(2)]
    }

    pub(crate) fn length(&self) -> u64 {
        self.used().iter().map(|segment| segment.seg_len).sum()
    }

    /// Sets the length of the header and of the data behind it.
    pub(crate) fn set_length(&mut self, length: usize) {
        self.segments[0].seg_len = length as u64;
    }

    /// Copies the message of another descriptor to this one, which has been taken for a message of that length.
    pub(crate) fn copy_from(&mut self, other: &Descriptor) {
        assert!(other.length() <= self.segments[0].seg_len, "taken for a message of that length");
        let mut to = self.start();
        for segment in other.used() {
            let bytes = segment.seg_len as usize;
            let from: *const u8 = std::ptr::with_exposed_provenance(address(segment) as usize);
            // SAFETY: M2, M3: the segments may be read; R2: no adapter has this message (`Owned`); there is room.
            unsafe { to.copy_from_nonoverlapping(from, bytes) };
            to = to.wrapping_add(bytes);
        }
    }

    #[inline]
    pub(crate) fn has_slot(&self) -> bool {
        self.bytes.is_none()
    }

    /// Returns the ordinary memory, if there is some, and the size in bytes of the message in it. The engine, which
    /// shares the memory, only reads it.
    pub(crate) fn bytes(&self) -> Option<(Arc<[u8]>, u32)> {
        // Open MPI may have shortened the segment to the actual header or data.
        Some((self.bytes.clone()?, self.segments[0].seg_len as u32))
    }
}

#[inline]
fn address(segment: &sys::mca_btl_base_segment_t) -> u64 {
    // SAFETY: a union of an integer and a pointer of the same size, so any value is valid.
    unsafe { segment.seg_addr.lval }
}
