// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data of a message, by Open MPI's datatype engine. A convertor walks user data in the order it is sent;
//! contiguous data can be read in place, other data is packed. Called by plugin-abi's `send` and `descriptor`. Grade:
//! hot (ibex allocates nothing). Threads: the caller's own convertor.

use std::marker::PhantomData;
use std::ptr::NonNull;

use super::sys;

/// A convertor lent by Open MPI for the length of one call.
pub struct Convertor<'call> {
    raw: NonNull<sys::opal_convertor_t>,
    lent: PhantomData<&'call mut sys::opal_convertor_t>,
}

/// A message that stands in one piece in user memory.
pub struct Message<'convertor> {
    /// Its first byte, whatever the convertor's position.
    pub start: NonNull<u8>,
    /// How many bytes it has.
    pub size: usize,
    raw: NonNull<sys::opal_convertor_t>,
    lent: PhantomData<&'convertor mut sys::opal_convertor_t>,
}

impl Message<'_> {
    /// Passes over up to `size` bytes from the convertor's position on, without copying. Returns where and how many.
    ///
    /// # Errors
    /// The OPAL code with which the datatype engine failed.
    pub fn take(&mut self, size: usize) -> Result<(*const u8, usize), i32> {
        // A null base asks for the place of the data in user memory (opal_convertor.c, opal_convertor_pack).
        let mut piece = sys::iovec { iov_base: std::ptr::null_mut(), iov_len: size };
        let mut pieces = 1;
        let mut taken = size;
        // SAFETY: initialised, of contiguous data (`Convertor::message`): writes only the piece and the counts.
        let code =
            unsafe { sys::opal_convertor_pack(self.raw.as_ptr(), &raw mut piece, &raw mut pieces, &raw mut taken) };
        if code < 0 { Err(code) } else { Ok((piece.iov_base.cast_const().cast(), taken)) }
    }
}

impl Convertor<'_> {
    /// Takes the convertor of a BTL call; `None` for null.
    ///
    /// # Safety
    /// A non-null `raw` is an initialised convertor, prepared for sending, that nothing else uses during the call.
    #[must_use]
    pub unsafe fn from_raw(raw: *mut sys::opal_convertor_t) -> Option<Self> {
        NonNull::new(raw).map(|raw| Convertor { raw, lent: PhantomData })
    }

    /// Where the data from the present position on stands in user memory; `None` where it must be packed.
    #[must_use]
    pub fn contiguous(&self) -> Option<NonNull<u8>> {
        // SAFETY: an initialised convertor (constructor), only read.
        let pointer = unsafe { sys::ibex_convertor_pointer(self.raw.as_ptr()) };
        NonNull::new(pointer.cast())
    }

    /// The whole message, where it stands in one piece in user memory; `None` where it must be packed.
    #[must_use]
    pub fn message(&mut self) -> Option<Message<'_>> {
        let mut size = 0;
        // SAFETY: an initialised convertor, only read; the size is a live local.
        let start = unsafe { sys::ibex_convertor_message(self.raw.as_ptr(), &raw mut size) };
        Some(Message { start: NonNull::new(start.cast())?, size, raw: self.raw, lent: PhantomData })
    }

    /// Packs up to `size` bytes to `to`, and moves on behind them. Returns how many bytes it packed.
    ///
    /// # Errors
    /// The OPAL code with which the datatype engine failed.
    ///
    /// # Safety
    /// `to` may be written for `size` bytes and no adapter touches them (R2).
    pub unsafe fn pack(&mut self, to: *mut u8, size: usize) -> Result<usize, i32> {
        let mut piece = sys::iovec { iov_base: to.cast(), iov_len: size };
        let mut pieces = 1;
        let mut packed = size;
        // SAFETY: one piece, which the caller says may be written for its length; the counts are live locals.
        let code =
            unsafe { sys::opal_convertor_pack(self.raw.as_ptr(), &raw mut piece, &raw mut pieces, &raw mut packed) };
        if code < 0 { Err(code) } else { Ok(packed) }
    }

    /// Bytes passed so far.
    #[must_use]
    pub fn position(&self) -> usize {
        // SAFETY: an initialised convertor, only read.
        unsafe { sys::ibex_convertor_position(self.raw.as_ptr()) }
    }

    /// Goes back to `position`, a former answer of [`Self::position`].
    pub fn rewind(&mut self, position: usize) {
        // SAFETY: an initialised convertor that is ours for the call. It cannot fail for a position it had before.
        unsafe { sys::ibex_convertor_rewind(self.raw.as_ptr(), position) };
    }
}
