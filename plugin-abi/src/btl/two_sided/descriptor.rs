// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors: the messages that Open MPI builds in ibex's memory, by `btl_alloc` or, for data that is either copied
//! to the descriptor's slot or sent in place, by `btl_prepare_src`. `pool.rs` has the descriptor and its pools. Called
//! by Open MPI, `send` and `emulated_atomic`. Grade: hot (no allocation); an empty pool grows (pending). Threads: any;
//! functions that need the port enter it. Tests: `descriptor/tests.rs`.

use std::ffi::c_int;
use std::ptr::{NonNull, null_mut};

use engine::events;
use engine::transport::Token;
use ibex_ffi::openmpi::convertor::Convertor;
use ibex_ffi::openmpi::sys;
use ibex_ffi::verbs::LocalSpan;

use crate::btl::failures;
use crate::btl::module::{Module, State};
use crate::btl::token::{Record, record};
use crate::runtime::device::Port;
use crate::runtime::guard::fence;

pub(crate) mod pool;
#[cfg(test)]
mod tests;

use pool::{Descriptor, Descriptors, take_registration};
pub(crate) use pool::{bytes, length, spans, start};

/// Gives an allocated descriptor back to its pool, and its registration to the cache.
///
/// # Safety
/// M1, M2. No posted work request names the descriptor (R2, R3).
pub(crate) unsafe fn free(module: &Module, descriptor: *mut Descriptor) -> c_int {
    // SAFETY: M2: the caller gives it back, so nobody else uses it.
    if let Some(registered) = unsafe { take_registration(descriptor) } {
        // SAFETY: R3: the caller says that no posted work request names it.
        unsafe { module.memory().put_back(registered) };
    }
    let Some(state) = module.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
    // SAFETY: M2, R2: the caller says that no posted work request names it.
    unsafe { state.descriptors.give_back(descriptor) };
    sys::OPAL_SUCCESS
}

/// Takes a descriptor of the module. `None`: the port is entered further up the stack, or see [`Descriptors::take`].
#[inline]
pub(crate) fn take(module: &Module, size: usize, flags: u32) -> Option<NonNull<Descriptor>> {
    let mut state = module.enter()?;
    let State { port, descriptors, .. } = &mut state;
    descriptors.take(&mut **port, size, flags)
}

/// Takes a descriptor with a slot. `None`: the port is entered further up the stack, or see [`Descriptors::take_slot`].
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

/// Takes completions: gives back descriptors without a callback, and posts waiting requests. Callbacks run in progress.
#[cold]
pub(crate) fn reap(port: &mut Port, descriptors: &mut Descriptors) {
    port.reap(&mut |token| {
        // SAFETY: the engine passes a token once, when its request is complete.
        message(token).is_some_and(|descriptor| unsafe { descriptors.give_back_silent(descriptor) })
    });
}

/// Returns the descriptor of a token; `None` while a tool listens, as only progress raises the events of completions.
fn message(token: Token) -> Option<NonNull<Descriptor>> {
    match record(token) {
        Some(Record::Descriptor(descriptor)) if !events::has_interest() => Some(descriptor),
        _ => None,
    }
}

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

pub(crate) unsafe extern "C" fn btl_free(
    btl: *mut sys::mca_btl_base_module_t,
    descriptor: *mut sys::mca_btl_base_descriptor_t,
) -> c_int {
    fence("btl_free", sys::OPAL_ERROR, || {
        // SAFETY: M1.
        let module = unsafe { Module::from_raw(btl) };
        // SAFETY: M2; Open MPI frees only a descriptor that was never sent, or has completed (btl.h, btl_free).
        unsafe { free(module, descriptor.cast()) }
    })
}

/// `btl_prepare_src`: returns a descriptor with `reserve` bytes for a header, and up to `*size` bytes of the
/// convertor's data behind it: sent in place from `zero_copy_min` on, copied otherwise.
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
        // SAFETY: `size` is the call's in and out parameter.
        let wanted = unsafe { size.read() };
        // SAFETY: the convertor is the caller's during this call.
        let Some(mut data) = (unsafe { Convertor::from_raw(convertor) }) else { return null_mut() };
        let limit = module.max_send_size.saturating_sub(reserve);
        let length = wanted.min(limit);
        let piece = Piece { reserve, length, flags };
        let pays = length >= module.zero_copy_min && length > 0;
        // SAFETY: M1, M3: the convertor describes the user's send buffer.
        let zero_copy = if pays { unsafe { in_place(module, &mut data, piece) } } else { None };
        // SAFETY: M1, M3: the convertor describes the user's send buffer.
        let prepared = zero_copy.or_else(|| unsafe { copied(module, &mut data, piece) });
        let Some((descriptor, length)) = prepared else {
            failures::out_of_slots(module);
            return null_mut();
        };
        // SAFETY: `size` is the call's in and out parameter.
        unsafe { size.write(length) };
        descriptor.as_ptr().cast()
    })
}

/// The arguments of `btl_prepare_src`: size of the header, largest size of the data, and `MCA_BTL_DES_FLAGS_*`.
#[derive(Clone, Copy)]
struct Piece {
    reserve: usize,
    length: usize,
    flags: u32,
}

/// # Safety
/// M1, M3.
unsafe fn in_place(module: &Module, data: &mut Convertor<'_>, piece: Piece) -> Option<(NonNull<Descriptor>, usize)> {
    let Piece { reserve, length, flags } = piece;
    // Registers the whole message, not only this fragment, so the cache has the registration for the next ones.
    let mut message = data.message()?;
    // SAFETY: M3: memory that is to be sent, mapped until the descriptor's callback.
    let registered = unsafe { module.memory().register(message.start.as_ptr().cast(), message.size, 0) }?;
    let descriptor = take_slot(module, reserve, flags);
    let taken = descriptor.and_then(|_| message.take(length).ok());
    let (Some(descriptor), Some((place, length))) = (descriptor, taken) else {
        // SAFETY: R3: no work request has named it.
        unsafe { module.memory().put_back(registered) };
        if let Some(descriptor) = descriptor {
            // SAFETY: M2: it has just been taken, and was never sent.
            unsafe { free(module, descriptor.as_ptr()) };
        }
        return None;
    };
    // SAFETY: M2, M3: it has just been taken; the registration is that of the whole message, which has these bytes.
    unsafe { pool::attach(descriptor, place, length, registered) };
    Some((descriptor, length))
}

/// # Safety
/// M1, M3.
unsafe fn copied(module: &Module, data: &mut Convertor<'_>, piece: Piece) -> Option<(NonNull<Descriptor>, usize)> {
    let Piece { reserve, length, flags } = piece;
    let descriptor = take(module, reserve + length, flags)?;
    // SAFETY: M2: it has just been taken.
    let start = unsafe { start(descriptor) };
    // SAFETY: `take` has made room for `reserve + length` bytes, which no adapter has before the send (R2).
    let packed = unsafe { data.pack(start.add(reserve), length) };
    match packed {
        // A convertor whose next element does not fit would make no progress with an empty fragment.
        Ok(packed) if packed > 0 || length == 0 => {
            // SAFETY: M2: it has just been taken.
            unsafe { (*descriptor.as_ptr()).segments[0].seg_len = (reserve + packed) as u64 };
            Some((descriptor, packed))
        }
        _ => {
            // SAFETY: M2: it was never sent.
            unsafe { free(module, descriptor.as_ptr()) };
            None
        }
    }
}
