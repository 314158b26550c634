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
use crate::runtime::free_list::Owned;
use crate::runtime::guard::fence;

pub(crate) mod pool;
#[cfg(test)]
mod tests;

use pool::{Descriptor, Descriptors};

/// Gives the registration of a descriptor back to the cache, if it has one.
#[inline]
pub(crate) fn put_back_registration(module: &Module, descriptor: &mut Descriptor) {
    if let Some(registered) = descriptor.take_registration() {
        // SAFETY: R3: no adapter has the message of a descriptor that is owned.
        unsafe { module.memory().put_back(registered) };
    }
}

/// Gives an allocated descriptor back to its pool, and its registration to the cache.
///
/// # Safety
/// M2: the descriptor is this module's.
pub(crate) unsafe fn free(module: &Module, mut descriptor: Owned<Descriptor>) -> c_int {
    put_back_registration(module, &mut descriptor);
    let Some(state) = module.enter() else { return sys::OPAL_ERR_OUT_OF_RESOURCE };
    // SAFETY: M2, as the caller says.
    unsafe { state.descriptors.give_back(descriptor) };
    sys::OPAL_SUCCESS
}

/// Takes a descriptor of the module. `None`: the port is entered further up the stack, or see [`Descriptors::take`].
#[inline]
pub(crate) fn take(module: &Module, size: usize, flags: u32) -> Option<Owned<Descriptor>> {
    let mut state = module.enter()?;
    let State { port, descriptors, .. } = &mut state;
    descriptors.take(&mut **port, size, flags)
}

/// Takes a descriptor with a slot. `None`: the port is entered further up the stack, or see [`Descriptors::take_slot`].
fn take_slot(module: &Module, size: usize, flags: u32) -> Option<Owned<Descriptor>> {
    let mut state = module.enter()?;
    let State { port, descriptors, .. } = &mut state;
    descriptors.take_slot(&mut **port, size, flags)
}

impl pool::Slots for Port {
    fn grow(&mut self, size: u32, count: u32) -> Option<Vec<LocalSpan>> {
        Port::grow(self, size, count).ok()
    }

    fn reclaim(&mut self, silent: &mut dyn FnMut(Owned<Descriptor>) -> bool) {
        Port::reclaim(self, &mut |token| {
            // SAFETY: the engine passes the token of a complete request, so nobody else uses its descriptor.
            message(token).is_some_and(|descriptor| silent(unsafe { Owned::new(descriptor) }))
        });
    }
}

/// Takes completions: gives back descriptors without a callback, and posts waiting requests. Callbacks run in progress.
#[cold]
pub(crate) fn reap(port: &mut Port, descriptors: &mut Descriptors) {
    port.reap(&mut |token| {
        // SAFETY: M2: the engine passes the token of a complete request of this port; nobody else has the descriptor.
        message(token).is_some_and(|descriptor| unsafe { descriptors.give_back_silent(Owned::new(descriptor)) })
    });
}

/// Returns the descriptor of a token; `None` while a tool listens, as only progress raises the events of completions.
fn message(token: Token) -> Option<NonNull<Descriptor>> {
    match record(token) {
        Some(Record::Descriptor(descriptor)) if !events::has_interest() => Some(descriptor),
        _ => None,
    }
}

pub(crate) extern "C" fn btl_alloc(
    module: &Module,
    _endpoint: *mut sys::mca_btl_base_endpoint_t,
    _order: u8,
    size: usize,
    flags: u32,
) -> *mut sys::mca_btl_base_descriptor_t {
    fence("btl_alloc", null_mut(), || {
        let Some(descriptor) = take(module, size, flags) else {
            failures::out_of_slots(module);
            return null_mut();
        };
        descriptor.into_raw().cast()
    })
}

/// `btl_free`. Open MPI frees only a descriptor that was never sent, or has completed (btl.h).
///
/// # Safety
/// M2: the descriptor is this module's.
pub(crate) unsafe extern "C" fn btl_free(module: &Module, descriptor: Owned<Descriptor>) -> c_int {
    // SAFETY: M2, as the caller says.
    fence("btl_free", sys::OPAL_ERROR, || unsafe { free(module, descriptor) })
}

/// `btl_prepare_src`: returns a descriptor with `reserve` bytes for a header, and up to `*size` bytes of the
/// convertor's data behind it: sent in place from `zero_copy_min` on, copied otherwise.
///
/// # Safety
/// M3: the convertor is null or that of the user's send buffer, and the caller's during this call.
pub(crate) unsafe extern "C" fn btl_prepare_src(
    module: &Module,
    _endpoint: *mut sys::mca_btl_base_endpoint_t,
    convertor: *mut sys::opal_convertor_t,
    _order: u8,
    reserve: usize,
    size: &mut usize,
    flags: u32,
) -> *mut sys::mca_btl_base_descriptor_t {
    fence("btl_prepare_src", null_mut(), || {
        // SAFETY: M3: null, or the caller's during this call.
        let Some(mut data) = (unsafe { Convertor::from_raw(convertor) }) else { return null_mut() };
        let limit = module.max_send_size.saturating_sub(reserve);
        let length = limit.min(*size);
        let piece = Piece { reserve, length, flags };
        let pays = length >= module.zero_copy_min && length > 0;
        let zero_copy = if pays { in_place(module, &mut data, piece) } else { None };
        let prepared = zero_copy.or_else(|| copied(module, &mut data, piece));
        let Some((descriptor, length)) = prepared else {
            failures::out_of_slots(module);
            return null_mut();
        };
        *size = length;
        descriptor.into_raw().cast()
    })
}

/// The arguments of `btl_prepare_src`: size of the header, largest size of the data, and `MCA_BTL_DES_FLAGS_*`.
#[derive(Clone, Copy)]
struct Piece {
    reserve: usize,
    length: usize,
    flags: u32,
}

fn in_place(module: &Module, data: &mut Convertor<'_>, piece: Piece) -> Option<(Owned<Descriptor>, usize)> {
    let Piece { reserve, length, flags } = piece;
    // Registers the whole message, not only this fragment, so the cache has the registration for the next ones.
    let mut message = data.message()?;
    // SAFETY: M3: memory that is to be sent, mapped until the descriptor's callback.
    let registered = unsafe { module.memory().register(message.start.as_ptr().cast(), message.size, 0) }?;
    match take_slot(module, reserve, flags).map(|descriptor| (descriptor, message.take(length))) {
        Some((mut descriptor, Ok((place, length)))) => {
            // SAFETY: M3: the registration is that of the whole message, which has these bytes.
            unsafe { descriptor.attach(place, length, registered) };
            Some((descriptor, length))
        }
        failed => {
            // SAFETY: R3: no work request has named it.
            unsafe { module.memory().put_back(registered) };
            if let Some((descriptor, _)) = failed {
                // SAFETY: M2: it has just been taken from this module.
                unsafe { free(module, descriptor) };
            }
            None
        }
    }
}

fn copied(module: &Module, data: &mut Convertor<'_>, piece: Piece) -> Option<(Owned<Descriptor>, usize)> {
    let Piece { reserve, length, flags } = piece;
    let mut descriptor = take(module, reserve + length, flags)?;
    let behind_header = descriptor.start().wrapping_add(reserve);
    // SAFETY: R2: `take` has made room for `reserve + length` bytes, which no adapter has before the send.
    match data.pack(unsafe { std::slice::from_raw_parts_mut(behind_header.cast(), length) }) {
        // A convertor whose next element does not fit would make no progress with an empty fragment.
        Ok(packed) if packed > 0 || length == 0 => {
            descriptor.set_length(reserve + packed);
            Some((descriptor, packed))
        }
        _ => {
            // SAFETY: M2: it has just been taken from this module.
            unsafe { free(module, descriptor) };
            None
        }
    }
}
