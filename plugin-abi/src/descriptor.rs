// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors: the messages that Open MPI builds in ibex's memory, and where they come from.
//!
//! `btl_alloc`, `btl_free` and `btl_prepare_src`. A descriptor is bound for life to one registered send slot of the port; it
//! lies on the free stack of its pool, or is Open MPI's, or the adapter's. Two pools: slots for eager messages, slots of
//! `max_send_size`. Grade: hot (a pop, a push, no allocation); an empty pool grows (pending). Threads: inside the module's
//! `Exclusive`. A descriptor is never behind a reference, as Open MPI writes to it: its fields are read and written singly.

use std::ffi::c_int;
use std::ptr::{NonNull, null_mut};

use engine::port::Port;
use ibex_ffi::openmpi::convertor::Convertor;
use ibex_ffi::openmpi::sys;
use ibex_ffi::verbs::LocalSpan;

use crate::guard::fence;
use crate::memory::Registered;
use crate::module::{Module, State};

/// A descriptor: Open MPI's part, then ibex's.
#[repr(C, align(64))]
pub(crate) struct Descriptor {
    pub(crate) base: sys::mca_btl_base_descriptor_t,
    /// The slot (header and copied data), and user memory sent without copying.
    pub(crate) segments: [sys::mca_btl_base_segment_t; 2],
    /// The whole slot.
    slot: LocalSpan,
    /// Of the second segment.
    registered: Option<Registered>,
    /// The next on the free stack, or on the chain of those to be freed.
    pub(crate) next: *mut Descriptor,
    pool: PoolName,
    /// Whether `btl_send` promised Open MPI its callback.
    pub(crate) callback_wanted: bool,
}

/// Which of a module's pools.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PoolName {
    /// Slots of the larger eager limit.
    Eager = 0,
    /// Slots of `max_send_size`.
    Large = 1,
}

/// Bytes of the longest control message of ob1 (header, and a registration handle at its largest).
const CONTROL: usize = 320;

/// Descriptors with slots of one size.
struct Pool {
    free: *mut Descriptor,
    /// Bytes of each slot.
    size: usize,
    /// Descriptors made for it.
    made: u32,
}

/// The descriptors of one module.
pub(crate) struct Descriptors {
    pools: [Pool; 2],
    /// Blocks of descriptors, freed with the module.
    slabs: Vec<*mut [Descriptor]>,
    /// How many each pool may have; 0: as many as memory can be locked. Each has its own share, as the one could otherwise
    /// take all, and messages of the other size would wait for ever.
    share: u32,
    /// How many at a time.
    step: u32,
}

// SAFETY: the pointers are to blocks this value owns; they move with it between threads.
unsafe impl Send for Descriptors {}

impl Descriptors {
    /// No descriptor yet; `eager` and `large` are the slot sizes in bytes.
    pub(crate) fn new(eager: usize, large: usize, limit: u32, step: u32) -> Self {
        let pool = |size| Pool { free: null_mut(), size, made: 0 };
        Descriptors {
            pools: [pool(eager), pool(large)],
            slabs: Vec::new(),
            share: limit.div_ceil(2),
            step: step.max(1),
        }
    }

    /// Takes a descriptor whose slot holds `size` bytes. `None`: larger than any slot, or none left and none to be had.
    #[inline]
    pub(crate) fn take(&mut self, port: &mut Port, size: usize, flags: u32) -> Option<NonNull<Descriptor>> {
        let name = if size <= self.pools[PoolName::Eager as usize].size { PoolName::Eager } else { PoolName::Large };
        if size > self.pools[name as usize].size {
            return None;
        }
        let descriptor = match NonNull::new(self.pools[name as usize].free) {
            Some(free) => free,
            None => self.grow(port, name, size)?,
        };
        let raw = descriptor.as_ptr();
        // SAFETY: a descriptor on the free stack is ours alone (M2).
        self.pools[name as usize].free = unsafe { (*raw).next };
        // SAFETY: as above; each write is to one field.
        unsafe { prepare(raw, size, flags) };
        Some(descriptor)
    }

    /// Puts a descriptor back. The registration it has must be put back first ([`take_registration`]).
    ///
    /// # Safety
    /// M2, and the adapter has no work request that names it (R2).
    #[inline]
    pub(crate) unsafe fn give_back(&mut self, descriptor: *mut Descriptor) {
        // SAFETY: this function's own rule.
        let pool = unsafe { (*descriptor).pool };
        // SAFETY: as above.
        unsafe { (*descriptor).next = self.pools[pool as usize].free };
        self.pools[pool as usize].free = descriptor;
    }

    /// Registers more slots and makes descriptors for them, for a message of `wanted` bytes.
    ///
    /// Messages as short as ob1's control messages get one beyond the limit: ob1 tries those again only when another of its
    /// sends completes, which may never be.
    #[cold]
    fn grow(&mut self, port: &mut Port, name: PoolName, wanted: usize) -> Option<NonNull<Descriptor>> {
        let pool = &self.pools[name as usize];
        let unlimited = self.share == 0 || wanted <= CONTROL;
        let left = if unlimited { self.step } else { self.share.saturating_sub(pool.made).min(self.step) };
        let slots = if left == 0 { None } else { port.grow(pool.size as u32, left).ok() };
        let Some(slots) = slots else {
            // Descriptors that nobody asked a completion for come back sooner now.
            port.reclaim();
            return None;
        };
        self.pools[name as usize].made += slots.len() as u32;
        let slab: Vec<Descriptor> = slots.iter().map(|slot| Descriptor::unused(*slot, name)).collect();
        let slab = Box::into_raw(slab.into_boxed_slice());
        for index in 0..slots.len() {
            // SAFETY: within the block just made.
            let descriptor = unsafe { slab.cast::<Descriptor>().add(index) };
            // SAFETY: ours alone; the object header is constructed where it will stay.
            unsafe { sys::ibex_descriptor_construct(&raw mut (*descriptor).base) };
            // SAFETY: the adapter has never been told of it.
            unsafe { self.give_back(descriptor) };
        }
        self.slabs.push(slab);
        NonNull::new(self.pools[name as usize].free)
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        for slab in self.slabs.drain(..) {
            // SAFETY: made by `into_raw` in `grow`; the port is closed, so no adapter and no message needs them.
            drop(unsafe { Box::from_raw(slab) });
        }
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
            registered: None,
            next: null_mut(),
            pool,
            callback_wanted: false,
        }
    }
}

/// Makes a descriptor ready for a message of `size` bytes in its slot.
///
/// # Safety
/// M2; nothing else uses the descriptor.
#[inline]
unsafe fn prepare(descriptor: *mut Descriptor, size: usize, flags: u32) {
    // SAFETY: this function's own rule; so for all that follow.
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

/// What the adapter shall gather for a descriptor: one span, or two where user memory is sent without copying.
///
/// # Safety
/// M2; the second segment, if any, is user memory under the descriptor's registration (M3).
#[inline]
pub(crate) unsafe fn spans(descriptor: *const Descriptor) -> ([LocalSpan; 2], usize) {
    // SAFETY: this function's own rule; the descriptor is only read.
    let d = unsafe { &*descriptor };
    // Open MPI shortens the first segment where a header turned out smaller; it never lengthens it past the slot.
    let first = d.slot.first(d.segments[0].seg_len as u32);
    match d.registered {
        Some(registered) if d.base.des_segment_count == 2 => {
            let segment = &d.segments[1];
            // SAFETY: a union of an integer and a pointer of the same size.
            let addr = unsafe { segment.seg_addr.lval };
            // SAFETY: inside the registration (btl_prepare_src made it for exactly these bytes), and user memory of a send
            // under way (M3).
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
    // SAFETY: this function's own rule.
    unsafe { (*descriptor).registered.take() }
}

/// Gives a descriptor that is Open MPI's back to its pool, its registration to the cache.
///
/// # Safety
/// M1, M2; the adapter has no work request that names it (R2, R3).
pub(crate) unsafe fn free(module: &Module, descriptor: *mut Descriptor) -> c_int {
    // SAFETY: this function's own rule.
    if let Some(registered) = unsafe { take_registration(descriptor) } {
        // SAFETY: the send that named it is done.
        unsafe { module.memory().put_back(registered) };
    }
    let Some(mut state) = module.enter() else {
        return sys::OPAL_ERR_OUT_OF_RESOURCE;
    };
    // SAFETY: this function's own rule.
    unsafe { state.descriptors.give_back(descriptor) };
    sys::OPAL_SUCCESS
}

/// Takes a descriptor of the module's. `None`: as for [`Descriptors::take`], or the port is in use further up.
#[inline]
fn take(module: &Module, size: usize, flags: u32) -> Option<NonNull<Descriptor>> {
    let mut state = module.enter()?;
    let State { port, descriptors, .. } = &mut *state;
    descriptors.take(port, size, flags)
}

/// `btl_alloc`: a descriptor with room for `size` bytes, or null.
pub(crate) unsafe extern "C" fn btl_alloc(
    btl: *mut sys::mca_btl_base_module_t,
    _endpoint: *mut sys::mca_btl_base_endpoint_t,
    _order: u8,
    size: usize,
    flags: u32,
) -> *mut sys::mca_btl_base_descriptor_t {
    fence("btl_alloc", null_mut(), || {
        // SAFETY: M1.
        let module = unsafe { Module::from_raw(btl) };
        take(module, size, flags).map_or(null_mut(), |descriptor| descriptor.as_ptr().cast())
    })
}

/// `btl_free`.
pub(crate) unsafe extern "C" fn btl_free(
    btl: *mut sys::mca_btl_base_module_t,
    descriptor: *mut sys::mca_btl_base_descriptor_t,
) -> c_int {
    fence("btl_free", sys::OPAL_ERROR, || {
        // SAFETY: M1.
        let module = unsafe { Module::from_raw(btl) };
        // SAFETY: M2; Open MPI frees what it never sent, or what has completed (btl.h, btl_free).
        unsafe { free(module, descriptor.cast()) }
    })
}

/// `btl_prepare_src`: a descriptor with `reserve` bytes for a header, and up to `*size` bytes of the convertor's data behind
/// it: in place where that pays, copied otherwise.
pub(crate) unsafe extern "C" fn btl_prepare_src(
    btl: *mut sys::mca_btl_base_module_t,
    _endpoint: *mut sys::mca_btl_base_endpoint_t,
    convertor: *mut sys::opal_convertor_t,
    _order: u8,
    reserve: usize,
    size: *mut usize,
    flags: u32,
) -> *mut sys::mca_btl_base_descriptor_t {
    fence("btl_prepare_src", null_mut(), || {
        // SAFETY: M1.
        let module = unsafe { Module::from_raw(btl) };
        // SAFETY: in and out parameter of the call.
        let wanted = unsafe { size.read() };
        // SAFETY: the convertor is the caller's for this call.
        let Some(mut data) = (unsafe { Convertor::from_raw(convertor) }) else {
            return null_mut();
        };
        let limit = module.max_send_size().saturating_sub(reserve);
        let length = wanted.min(limit);
        let piece = Piece { reserve, length, flags };
        let pays = length >= module.zero_copy_min() && length > 0;
        // SAFETY: M1 to M3 as above.
        let zero_copy = if pays { unsafe { in_place(module, &mut data, piece) } } else { None };
        // SAFETY: as above.
        let prepared = zero_copy.or_else(|| unsafe { copied(module, &mut data, piece) });
        let Some((descriptor, length)) = prepared else {
            return null_mut();
        };
        // SAFETY: the out parameter.
        unsafe { size.write(length) };
        descriptor.as_ptr().cast()
    })
}

/// What `btl_prepare_src` is asked for.
#[derive(Clone, Copy)]
struct Piece {
    /// Bytes for a header.
    reserve: usize,
    /// Bytes of data, at most.
    length: usize,
    /// `MCA_BTL_DES_FLAGS_*`.
    flags: u32,
}

/// A descriptor whose second segment is the user's memory.
///
/// # Safety
/// M1, M3.
unsafe fn in_place(module: &Module, data: &mut Convertor<'_>, piece: Piece) -> Option<(NonNull<Descriptor>, usize)> {
    let Piece { reserve, length, flags } = piece;
    // The whole message is registered, not this piece of it alone: the cache then has the registration for the pieces to come.
    let (start, whole) = data.message()?;
    // SAFETY: M3: user memory of a send, mapped until the descriptor's callback.
    let registered = unsafe { module.memory().register(start.as_ptr().cast(), whole, 0) }?;
    let descriptor = take(module, reserve, flags);
    let taken = descriptor.and_then(|_| data.take(length).ok());
    let (Some(descriptor), Some((place, length))) = (descriptor, taken) else {
        // SAFETY: no work request has named it.
        unsafe { module.memory().put_back(registered) };
        if let Some(descriptor) = descriptor {
            // SAFETY: just taken, never sent.
            unsafe { free(module, descriptor.as_ptr()) };
        }
        return None;
    };
    // SAFETY: just taken; nothing else uses it.
    let d = unsafe { &mut *descriptor.as_ptr() };
    d.segments[1].seg_addr.lval = place.addr() as u64;
    d.segments[1].seg_len = length as u64;
    d.base.des_segment_count = 2;
    d.registered = Some(registered);
    Some((descriptor, length))
}

/// A descriptor with the data copied to its slot.
///
/// # Safety
/// M1, M3.
unsafe fn copied(module: &Module, data: &mut Convertor<'_>, piece: Piece) -> Option<(NonNull<Descriptor>, usize)> {
    let Piece { reserve, length, flags } = piece;
    let descriptor = take(module, reserve + length, flags)?;
    // SAFETY: just taken (M2).
    let slot = unsafe { slot(descriptor) };
    // SAFETY: the slot holds `reserve + length` bytes (`take`), and is ours until it is sent (R2).
    let packed = unsafe { data.pack(slot.add(reserve), length) };
    match packed {
        // A convertor that cannot place one element in the room there is makes no progress: better no descriptor.
        Ok(packed) if packed > 0 || length == 0 => {
            // SAFETY: as above.
            unsafe { (*descriptor.as_ptr()).segments[0].seg_len = (reserve + packed) as u64 };
            Some((descriptor, packed))
        }
        _ => {
            // SAFETY: never sent.
            unsafe { free(module, descriptor.as_ptr()) };
            None
        }
    }
}

/// Where a descriptor's slot starts.
///
/// # Safety
/// M2.
#[inline]
pub(crate) unsafe fn slot(descriptor: NonNull<Descriptor>) -> *mut u8 {
    // SAFETY: this function's own rule.
    let slot = unsafe { (*descriptor.as_ptr()).slot };
    std::ptr::with_exposed_provenance_mut(slot.addr() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_mpis_part_of_a_descriptor_stands_first() {
        assert_eq!(std::mem::offset_of!(Descriptor, base), 0);
    }

    #[test]
    fn a_descriptor_fills_four_cache_lines_at_most() {
        assert!(size_of::<Descriptor>() <= 256, "{}", size_of::<Descriptor>());
    }
}
