// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data of a message, read by Open MPI's datatype engine. A convertor passes over user data in the order in which
//! it is sent; contiguous data can be read in place, other data is packed. Called by plugin-abi's `send` and
//! `descriptor`. Grade: hot (ibex allocates nothing). Threads: the caller's own convertor.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::sys;

/// A convertor lent by Open MPI for the length of one call.
pub struct Convertor<'call> {
    raw: NonNull<sys::opal_convertor_t>,
    lent: PhantomData<&'call mut sys::opal_convertor_t>,
}

/// A message that is contiguous in user memory.
pub struct Message<'convertor> {
    /// Its first byte, whatever the convertor's position.
    pub start: NonNull<u8>,
    /// Number of bytes.
    pub size: usize,
    raw: NonNull<sys::opal_convertor_t>,
    lent: PhantomData<&'convertor mut sys::opal_convertor_t>,
}

impl Message<'_> {
    /// Advances the convertor by up to `size` bytes without copying. Returns their address and number.
    ///
    /// # Errors
    /// The OPAL code with which the datatype engine failed.
    pub fn take(&mut self, size: usize) -> Result<(*const u8, usize), i32> {
        // With a null base the call returns the data's address in user memory (opal_convertor.c, opal_convertor_pack).
        let mut piece = sys::iovec { iov_base: std::ptr::null_mut(), iov_len: size };
        let mut pieces = 1;
        let mut taken = size;
        // SAFETY: initialised, for contiguous data (`Convertor::message`), so it writes only `piece` and the counts.
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
    pub unsafe fn from_raw(raw: *mut sys::opal_convertor_t) -> Option<Self> {
        NonNull::new(raw).map(|raw| Convertor { raw, lent: PhantomData })
    }

    /// The address of the data at the present position in user memory; `None` if it must be packed.
    pub fn contiguous(&self) -> Option<NonNull<u8>> {
        // SAFETY: an initialised convertor (constructor), only read.
        let pointer = unsafe { sys::ibex_convertor_pointer(self.raw.as_ptr()) };
        NonNull::new(pointer.cast())
    }

    /// The whole message if it is contiguous in user memory; `None` if it must be packed.
    pub fn message(&mut self) -> Option<Message<'_>> {
        let mut size = 0;
        // SAFETY: an initialised convertor, only read; the size is a live local.
        let start = unsafe { sys::ibex_convertor_message(self.raw.as_ptr(), &raw mut size) };
        Some(Message { start: NonNull::new(start.cast())?, size, raw: self.raw, lent: PhantomData })
    }

    /// Fills `to` from its start, if there is as much data, and advances by it. Returns the number of bytes.
    ///
    /// # Errors
    /// The OPAL code with which the datatype engine failed.
    pub fn pack(&mut self, to: &mut [MaybeUninit<u8>]) -> Result<usize, i32> {
        let mut piece = sys::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
        let mut pieces = 1;
        let mut packed = to.len();
        // SAFETY: an initialised convertor; the piece is writable for its length; the counts are live locals.
        let code =
            unsafe { sys::opal_convertor_pack(self.raw.as_ptr(), &raw mut piece, &raw mut pieces, &raw mut packed) };
        if code < 0 { Err(code) } else { Ok(packed) }
    }

    /// Number of bytes passed so far.
    pub fn position(&self) -> usize {
        // SAFETY: an initialised convertor, only read.
        unsafe { sys::ibex_convertor_position(self.raw.as_ptr()) }
    }

    /// Goes back to `position`, an earlier value of [`Self::position`].
    pub fn rewind(&mut self, position: usize) {
        // SAFETY: an initialised convertor, lent for this call. An earlier position is valid, so the call cannot fail.
        unsafe { sys::ibex_convertor_rewind(self.raw.as_ptr(), position) };
    }
}
