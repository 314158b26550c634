// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors: the messages that Open MPI builds in ibex's memory.
//!
//! `btl_alloc`, `btl_free` and `btl_prepare_src`, which is asked for a message of data that is copied to the
//! descriptor's slot or sent from where it stands. What a descriptor is and where it comes from: `pool.rs`. Grade: hot
//! (no allocation); an empty pool grows (pending). Threads: any; what needs it enters the port. Tests: `tests.rs`.

use std::ffi::c_int;
use std::ptr::{NonNull, null_mut};

use engine::events;
use engine::transport::Port;
use engine::transport::Token;
use ibex_ffi::openmpi::convertor::Convertor;
use ibex_ffi::openmpi::sys;
use ibex_ffi::verbs::LocalSpan;

use super::failures;
use super::module::{Module, State};
use super::token::{Record, record};
use crate::runtime::guard::fence;

pub(crate) mod pool;
#[cfg(test)]
mod tests;

use pool::{Descriptor, Descriptors, take_registration};
pub(crate) use pool::{bytes, length, spans, start};

/// Gives a descriptor that is Open MPI's back to its pool, its registration to the cache.
///
/// # Safety
/// M1, M2; the adapter has no work request that names it (R2, R3).
pub(crate) unsafe fn free(module: &Module, descriptor: *mut Descriptor) -> c_int {
    // SAFETY: M2; the caller gives it back, so that nothing else uses it.
    if let Some(registered) = unsafe { take_registration(descriptor) } {
        // SAFETY: the send that named it is done.
        unsafe { module.memory().put_back(registered) };
    }
    let Some(state) = module.enter() else {
        return sys::OPAL_ERR_OUT_OF_RESOURCE;
    };
    // SAFETY: M2; the caller says that the adapter has no work request that names it (R2).
    unsafe { state.descriptors.give_back(descriptor) };
    sys::OPAL_SUCCESS
}

/// Takes a descriptor of the module's. `None`: as for [`Descriptors::take`], or the port is in use further up.
#[inline]
pub(crate) fn take(module: &Module, size: usize, flags: u32) -> Option<NonNull<Descriptor>> {
    let mut state = module.enter()?;
    let State { port, descriptors, .. } = &mut state;
    descriptors.take(&mut **port, size, flags)
}

/// As [`take`], with a slot.
fn take_slot(module: &Module, size: usize, flags: u32) -> Option<NonNull<Descriptor>> {
    let mut state = module.enter()?;
    let State { port, descriptors, .. } = &mut state;
    descriptors.take_slot(&mut **port, size, flags)
}

impl pool::Slots for Port {
    fn grow(&mut self, size: u32, count: u32) -> Option<Vec<LocalSpan>> {
        Port::grow(self, size, count).ok()
    }

    fn reclaim(&mut self, silent: &mut dyn FnMut(NonNull<Descriptor>) -> bool) {
        Port::reclaim(self, &mut |token| message(token).is_some_and(&mut *silent));
    }
}

/// Takes what the adapter is done with, and moves what waits on, as far as Open MPI need not hear of it now.
#[cold]
pub(crate) fn reap(port: &mut Port, descriptors: &mut Descriptors) {
    port.reap(&mut |token| {
        // SAFETY: the engine shows a token once, when its request is done.
        message(token).is_some_and(|descriptor| unsafe { descriptors.give_back_silent(descriptor) })
    });
}

/// The message a token stands for. None while a tool listens: it is shown the end of each where progress sees it.
fn message(token: Token) -> Option<NonNull<Descriptor>> {
    match record(token) {
        Some(Record::Descriptor(descriptor)) if !events::has_interest() => Some(descriptor),
        _ => None,
    }
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
        let Some(descriptor) = take(module, size, flags) else {
            failures::out_of_slots(module);
            return null_mut();
        };
        descriptor.as_ptr().cast()
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

/// `btl_prepare_src`: a descriptor with `reserve` bytes for a header, and up to `*size` bytes of the convertor's data
/// behind it: in place where that pays, copied otherwise.
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
        let limit = module.max_send_size.saturating_sub(reserve);
        let length = wanted.min(limit);
        let piece = Piece { reserve, length, flags };
        let pays = length >= module.zero_copy_min && length > 0;
        // SAFETY: M1, M3: the convertor has the user's send buffer.
        let zero_copy = if pays { unsafe { in_place(module, &mut data, piece) } } else { None };
        // SAFETY: M1, M3: the convertor has the user's send buffer.
        let prepared = zero_copy.or_else(|| unsafe { copied(module, &mut data, piece) });
        let Some((descriptor, length)) = prepared else {
            failures::out_of_slots(module);
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
    // The whole message is registered, not this piece of it alone: the cache then has the registration for the pieces
    // to come.
    let mut message = data.message()?;
    // SAFETY: M3: user memory of a send, mapped until the descriptor's callback.
    let registered = unsafe { module.memory().register(message.start.as_ptr().cast(), message.size, 0) }?;
    let descriptor = take_slot(module, reserve, flags);
    let taken = descriptor.and_then(|_| message.take(length).ok());
    let (Some(descriptor), Some((place, length))) = (descriptor, taken) else {
        // SAFETY: no work request has named it.
        unsafe { module.memory().put_back(registered) };
        if let Some(descriptor) = descriptor {
            // SAFETY: just taken, never sent.
            unsafe { free(module, descriptor.as_ptr()) };
        }
        return None;
    };
    // SAFETY: just taken; the registration is of the whole message, which these bytes are a piece of.
    unsafe { pool::attach(descriptor, place, length, registered) };
    Some((descriptor, length))
}

/// A descriptor with a copy of the data.
///
/// # Safety
/// M1, M3.
unsafe fn copied(module: &Module, data: &mut Convertor<'_>, piece: Piece) -> Option<(NonNull<Descriptor>, usize)> {
    let Piece { reserve, length, flags } = piece;
    let descriptor = take(module, reserve + length, flags)?;
    // SAFETY: just taken (M2).
    let start = unsafe { start(descriptor) };
    // SAFETY: there is room for `reserve + length` bytes (`take`), ours until it is sent (R2).
    let packed = unsafe { data.pack(start.add(reserve), length) };
    match packed {
        // A convertor that cannot place one element in the room there is makes no progress: better no descriptor.
        Ok(packed) if packed > 0 || length == 0 => {
            // SAFETY: just taken (M2).
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
