// SPDX-License-Identifier: MIT OR Apache-2.0
//! The descriptor, and the pools of a module: slots for control and other short messages, for eager ones, of
//! `max_send_size`.
//!
//! A descriptor is bound for life to one registered send slot of the port, or has ordinary memory of its own while a
//! message waits for which there is no slot; it lies on the free list of its pool, or is Open MPI's, or the adapter's.
//! Grade: hot (a pop, a push, no allocation); an empty pool grows (pending). Threads: inside the port. A descriptor is
//! never behind a reference while it is Open MPI's, which writes to it. Needs no MPI and no device but for [`Slots`].
//! Tests: `tests.rs`.

use std::mem::offset_of;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use ibex_ffi::openmpi::sys;
use ibex_ffi::verbs::LocalSpan;

use crate::runtime::free_list::{FreeList, Linked};
use crate::runtime::memory::Registered;

/// A descriptor: Open MPI's part, then ibex's.
#[repr(C, align(64))]
pub(crate) struct Descriptor {
    pub(crate) base: sys::mca_btl_base_descriptor_t,
    /// The slot (header and copied data), and user memory sent without copying.
    pub(crate) segments: [sys::mca_btl_base_segment_t; 2],
    /// The whole slot; empty where the descriptor has `bytes`.
    slot: LocalSpan,
    /// Memory of no registration, in place of a slot; shared with the engine from when the message is sent.
    bytes: Option<Arc<[u8]>>,
    /// Of the second segment.
    registered: Option<Registered>,
    /// The next on the free list, or on the chain of those to be freed.
    pub(crate) next: *mut Descriptor,
    pool: PoolName,
    /// Whether `btl_send` promised Open MPI its callback.
    pub(crate) callback_wanted: bool,
    /// Of a message that waits in the engine: the tag it is sent with.
    pub(crate) tag: u8,
}

/// Which of a module's pools.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum PoolName {
    /// Slots of [`SHORT`] bytes.
    Short = 0,
    /// Slots of the larger eager limit.
    Eager = 1,
    /// Slots of `max_send_size`.
    Large = 2,
    /// No slots: ordinary memory for short and eager messages that find none.
    Unregistered = 3,
}

/// Bytes of a short slot: of the longest control message of ob1 (header, and a registration handle at its largest).
pub(super) const SHORT: usize = 320;

/// Slots that each pool has from the start, where its limit permits.
const RESERVED: u32 = 16;

/// The most bytes of slots that are made at once.
const MOST_AT_ONCE: u32 = 2 << 20;

/// At every so many messages that find no slot, slots that nobody asked a completion for are asked for: that looks at
/// every peer.
const RECLAIM_INTERVAL: u32 = 64;

// SAFETY: `next` is for free lists and for chains of what is about to be given back. What a free descriptor points to
// is its own slot.
unsafe impl Linked for Descriptor {
    const NEXT: usize = offset_of!(Descriptor, next);
}

/// Where the slots of new descriptors come from: the port.
pub(crate) trait Slots {
    /// Registers `count` more slots of `size` bytes; they stay as long as the descriptors. `None`: they cannot be had
    /// now.
    fn grow(&mut self, size: u32, count: u32) -> Option<Vec<LocalSpan>>;

    /// Makes descriptors that nobody asked a completion for come back sooner. Those that are back already are shown to
    /// `silent`, which takes them where nobody waits to hear of them.
    fn reclaim(&mut self, silent: &mut dyn FnMut(NonNull<Descriptor>) -> bool);
}

/// Descriptors with slots of one size.
struct Pool {
    free: FreeList<Descriptor>,
    /// Bytes of each slot.
    size: usize,
    /// Descriptors made for it.
    made: u32,
}

/// The descriptors of one module.
pub(crate) struct Descriptors {
    pools: [Pool; 4],
    /// How many slots each pool may have; 0: as many as memory can be locked. Each has its own share, as the one could
    /// otherwise take all, and messages of the other size would wait for ever.
    share: u32,
    /// How many at a time.
    step: u32,
    /// How often there was no slot.
    missed: u32,
}

impl Descriptors {
    /// No descriptor yet; `eager` and `large` are the slot sizes in bytes.
    pub(crate) fn new(eager: usize, large: usize, limit: u32, step: u32) -> Self {
        let pool = |size| Pool { free: FreeList::new(), size, made: 0 };
        let pools = [pool(SHORT), pool(eager.max(SHORT)), pool(large.max(SHORT)), pool(eager.max(SHORT))];
        Descriptors { pools, share: limit.div_ceil(2), step: step.max(1), missed: 0 }
    }

    /// Makes the first descriptors of each pool, before anything is sent. Where memory cannot be registered any more
    /// later on, messages wait for these to come back; with none they would wait for ever.
    ///
    /// # Errors
    /// That of `register`, which is given the size and the number of the slots to make.
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

    /// Takes a descriptor with room for `size` bytes: a slot, or where there is none, for a message of up to the eager
    /// limit, ordinary memory, in which it can wait. `None`: larger than any slot, or too large to wait so.
    #[inline]
    pub(crate) fn take(&mut self, slots: &mut impl Slots, size: usize, flags: u32) -> Option<NonNull<Descriptor>> {
        match self.take_slot(slots, size, flags) {
            Some(descriptor) => Some(descriptor),
            None => self.take_unregistered(size, flags),
        }
    }

    /// Takes a descriptor whose slot holds `size` bytes. `None`: larger than any slot, or none left and none to be had.
    #[inline]
    pub(crate) fn take_slot(&mut self, slots: &mut impl Slots, size: usize, flags: u32) -> Option<NonNull<Descriptor>> {
        let name = match size {
            ..=SHORT => PoolName::Short,
            size if size <= self.pools[PoolName::Eager as usize].size => PoolName::Eager,
            _ => PoolName::Large,
        };
        let pool = &mut self.pools[name as usize];
        if size > pool.size {
            return None;
        }
        let descriptor = match pool.free.take() {
            Some(free) => free,
            None => self.grow(slots, name)?,
        };
        // SAFETY: just taken, so ours alone (M2).
        unsafe { prepare(descriptor.as_ptr(), size, flags) };
        Some(descriptor)
    }

    /// Takes a descriptor without a slot: the message waits in ordinary memory, of just its size, so that however many
    /// wait the locked memory stays bounded and none is refused. (A refused one ob1 tries again at every progress, all
    /// of them each time, and lets later ones overtake it.)
    #[cold]
    fn take_unregistered(&mut self, size: usize, flags: u32) -> Option<NonNull<Descriptor>> {
        let name = PoolName::Unregistered;
        if size > self.pools[name as usize].size {
            return None;
        }
        let descriptor = self.pools[name as usize].free.take().or_else(|| {
            self.add(name, &vec![LocalSpan::EMPTY; self.step as usize]);
            self.pools[name as usize].free.take()
        })?;
        // SAFETY: just taken, so ours alone (M2).
        unsafe { prepare(descriptor.as_ptr(), size, flags) };
        // SAFETY: just taken, so ours alone (M2).
        let d = unsafe { &mut *descriptor.as_ptr() };
        let bytes = d.bytes.insert(std::iter::repeat_n(0, size).collect());
        let start = Arc::get_mut(bytes).map_or(null_mut(), <[u8]>::as_mut_ptr);
        d.segments[0].seg_addr.lval = start.expose_provenance() as u64;
        Some(descriptor)
    }

    /// Puts a descriptor back. The registration it has must be put back first ([`take_registration`]).
    ///
    /// # Safety
    /// M2, and the adapter has no work request that names it (R2).
    #[inline]
    pub(crate) unsafe fn give_back(&mut self, descriptor: *mut Descriptor) {
        // SAFETY: M2: given back, so that nobody else uses it.
        let pool = unsafe { (*descriptor).pool };
        if pool == PoolName::Unregistered {
            // SAFETY: M2: given back, so that nobody else uses it; who shares the bytes has an `Arc` of its own.
            unsafe { (*descriptor).bytes = None };
        }
        // SAFETY: M2, R2: the caller says that no work request names it; it was taken from the pool it names.
        unsafe { self.pools[pool as usize].free.give_back(descriptor) };
    }

    /// Puts a descriptor back of which the adapter is done with the message, if nobody waits to hear of that. False: it
    /// is not taken.
    ///
    /// # Safety
    /// M2, and the adapter has no work request that names it (R2).
    pub(crate) unsafe fn give_back_silent(&mut self, descriptor: NonNull<Descriptor>) -> bool {
        // SAFETY: M2: the adapter is done with it, so that nobody writes to it.
        let wanted = unsafe { (*descriptor.as_ptr()).callback_wanted };
        if !wanted {
            // SAFETY: M2, R2: the adapter is done with it; what is silent has no registration (`btl_send`).
            unsafe { self.give_back(descriptor.as_ptr()) };
        }
        !wanted
    }

    /// Registers more slots, makes descriptors for them, and takes one.
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

    /// There is no slot, and none to be had.
    fn reclaim(&mut self, slots: &mut impl Slots) {
        let is_due = self.missed.is_multiple_of(RECLAIM_INTERVAL);
        self.missed = self.missed.wrapping_add(1);
        if is_due {
            // SAFETY: the engine shows a token once, when its request is done.
            slots.reclaim(&mut |descriptor| unsafe { self.give_back_silent(descriptor) });
        }
    }

    /// Makes descriptors for new slots.
    fn add(&mut self, name: PoolName, slots: &[LocalSpan]) {
        let pool = &mut self.pools[name as usize];
        pool.made += slots.len() as u32;
        let descriptors = slots.iter().map(|slot| Descriptor::unused(*slot, name)).collect();
        pool.free.add(descriptors, |descriptor| {
            // SAFETY: nobody has it yet; the object header is constructed where it will stay.
            unsafe { sys::ibex_descriptor_construct(&raw mut (*descriptor.as_ptr()).base) };
        });
    }
}

impl Descriptor {
    fn unused(slot: LocalSpan, pool: PoolName) -> Self {
        // SAFETY: a C structure of integers and pointers, for which zero is a value; constructed before use.
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
}

/// Makes a descriptor ready for a message of `size` bytes in its slot.
///
/// # Safety
/// M2; nothing else uses the descriptor.
#[inline]
unsafe fn prepare(descriptor: *mut Descriptor, size: usize, flags: u32) {
    // SAFETY: M2; the caller says that nothing else uses the descriptor.
    let d = unsafe { &mut *descriptor };
    d.segments[0].seg_addr.lval = d.slot.addr();
    d.segments[0].seg_len = size as u64;
    d.base.des_segments = d.segments.as_mut_ptr();
    d.base.des_segment_count = 1;
    d.base.des_cbfunc = None;
    d.base.des_flags = flags;
    d.base.order = sys::MCA_BTL_NO_ORDER as u8;
    d.registered = None;
    d.callback_wanted = false;
}

/// Makes `length` bytes of user memory the second segment of a descriptor.
///
/// # Safety
/// M2, M3; nothing else uses the descriptor, and `registered` covers the bytes.
pub(crate) unsafe fn attach(descriptor: NonNull<Descriptor>, place: *const u8, length: usize, registered: Registered) {
    // SAFETY: M2; the caller says that nothing else uses the descriptor.
    let d = unsafe { &mut *descriptor.as_ptr() };
    d.segments[1].seg_addr.lval = place.addr() as u64;
    d.segments[1].seg_len = length as u64;
    d.base.des_segment_count = 2;
    d.registered = Some(registered);
}

/// What the adapter shall gather for a descriptor: one span, or two where user memory is sent without copying.
///
/// # Safety
/// M2; the second segment, if any, is user memory under the descriptor's registration (M3).
#[inline]
pub(crate) unsafe fn spans(descriptor: *const Descriptor) -> ([LocalSpan; 2], usize) {
    // SAFETY: M2; only read, and nobody writes to a descriptor that is being sent.
    let d = unsafe { &*descriptor };
    // Open MPI shortens the first segment where a header turned out smaller; it never lengthens it past the slot.
    let first = d.slot.first(d.segments[0].seg_len as u32);
    match d.registered {
        Some(registered) if d.base.des_segment_count == 2 => {
            let segment = &d.segments[1];
            // SAFETY: a union of an integer and a pointer of the same size.
            let addr = unsafe { segment.seg_addr.lval };
            // SAFETY: inside the registration (`attach`), and user memory of a send under way (M3).
            let second = unsafe { LocalSpan::new(addr, segment.seg_len as u32, registered.lkey()) };
            ([first, second], 2)
        }
        _ => ([first, LocalSpan::EMPTY], 1),
    }
}

/// Takes out the registration of a descriptor that is about to be given back.
///
/// # Safety
/// M2; nothing else uses the descriptor.
#[inline]
pub(crate) unsafe fn take_registration(descriptor: *mut Descriptor) -> Option<Registered> {
    // SAFETY: M2; the caller says that nothing else uses the descriptor.
    unsafe { (*descriptor).registered.take() }
}

/// Where a descriptor's message starts: its slot, or its memory of no registration.
///
/// # Safety
/// M2.
#[inline]
pub(crate) unsafe fn start(descriptor: NonNull<Descriptor>) -> *mut u8 {
    // SAFETY: M2; only read.
    let segment = unsafe { (*descriptor.as_ptr()).segments[0] };
    // SAFETY: a union of an integer and a pointer of the same size.
    std::ptr::with_exposed_provenance_mut(unsafe { segment.seg_addr.lval } as usize)
}

/// Bytes of a descriptor's message.
///
/// # Safety
/// M2.
pub(crate) unsafe fn length(descriptor: *const Descriptor) -> u64 {
    // SAFETY: M2; only read, and nobody writes to a descriptor that is being sent.
    let d = unsafe { &*descriptor };
    d.segments[..d.base.des_segment_count.min(2)].iter().map(|segment| segment.seg_len).sum()
}

/// Copies a descriptor's message, of one segment or two.
///
/// # Safety
/// M2, M3; no adapter has the message, and there is room for it at `to`, apart from it.
pub(crate) unsafe fn copy(descriptor: *const Descriptor, mut to: *mut u8) {
    // SAFETY: M2; only read, and nobody writes to a descriptor that is being sent.
    let d = unsafe { &*descriptor };
    for segment in &d.segments[..d.base.des_segment_count.min(2)] {
        // SAFETY: a union of an integer and a pointer of the same size.
        let from: *const u8 = std::ptr::with_exposed_provenance(unsafe { segment.seg_addr.lval } as usize);
        let bytes = segment.seg_len as usize;
        // SAFETY: M2, M3: the segments may be read; the caller says that there is room at `to`, apart from them.
        unsafe { to.copy_from_nonoverlapping(from, bytes) };
        to = to.wrapping_add(bytes);
    }
}

/// The memory of no registration that a descriptor has, and how many bytes of it are its message. Who shares it only
/// reads.
///
/// # Safety
/// M2; Open MPI has written the message, and nothing else uses the descriptor.
#[inline]
pub(crate) unsafe fn bytes(descriptor: *const Descriptor) -> Option<(Arc<[u8]>, u32)> {
    // SAFETY: M2; the caller says that nothing else uses the descriptor.
    let d = unsafe { &*descriptor };
    // Open MPI shortens the segment where a header or the data turned out smaller.
    Some((d.bytes.clone()?, d.segments[0].seg_len as u32))
}
