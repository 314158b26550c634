// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moves bytes between a program's memory and messages: by [`copy`], or, where the data has gaps, by Open MPI's
//! [`Convertor`]. It converts in order: out of order it would corrupt a basic element that is split. Called by
//! `pml/datatype.rs` and `ports/shared_memory.rs`. Grade: hot for [`copy`], else pending. Threads: any. Tests: below,
//! and `pt2pt_datatypes.c` in `hw-tests/mpi`.

use std::ffi::c_void;

use ibex_ffi::openmpi::sys;

use super::libmpi;

pub(crate) struct Convertor(Box<sys::opal_convertor_t>);

impl Convertor {
    /// Makes a convertor that packs the data, or unpacks to it.
    ///
    /// # Safety
    /// While the convertor lives, the datatype does, and the data may be read, or written.
    pub(crate) unsafe fn new(
        is_packing: bool,
        (buffer, count): (*mut c_void, usize),
        datatype: *mut sys::ompi_datatype_t,
    ) -> Option<Self> {
        let mut convertor = Box::<sys::opal_convertor_t>::new_uninit();
        let place = convertor.as_mut_ptr();
        // SAFETY: constructs the convertor in place, even if it fails; datatype and data as this function requires.
        let (code, convertor) = unsafe {
            let code = if is_packing {
                libmpi::ibex_convertor_send(place, datatype, count, buffer)
            } else {
                libmpi::ibex_convertor_receive(place, datatype, count, buffer)
            };
            (code, Convertor(convertor.assume_init()))
        };
        (code == sys::OPAL_SUCCESS).then_some(convertor)
    }

    /// Packs up to the length of `to`. Returns the number of bytes, which is smaller if an element would be split.
    pub(crate) fn pack(&mut self, to: &mut [u8]) -> usize {
        let mut piece = sys::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
        let (mut pieces, mut bytes) = (1, to.len());
        // SAFETY: made to pack (`new`); a piece that is writable for its length; the counts live during the call.
        let code =
            unsafe { libmpi::opal_convertor_pack(&raw mut *self.0, &raw mut piece, &raw mut pieces, &raw mut bytes) };
        if code < 0 { 0 } else { bytes }
    }

    /// Unpacks the next bytes of the message. Returns false if it cannot unpack all of them.
    #[must_use]
    pub(crate) fn unpack(&mut self, from: &[u8]) -> bool {
        let mut piece = sys::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
        let (mut pieces, mut bytes) = (1, from.len());
        // SAFETY: made to unpack (`new`); a piece that is only read; the counts live during the call.
        let code =
            unsafe { libmpi::opal_convertor_unpack(&raw mut *self.0, &raw mut piece, &raw mut pieces, &raw mut bytes) };
        code >= 0 && bytes == from.len()
    }
}

impl Drop for Convertor {
    fn drop(&mut self) {
        // SAFETY: constructed in place, and not used afterwards.
        unsafe { libmpi::ibex_convertor_destruct(&raw mut *self.0) };
    }
}

/// Copies bytes; 8 to 16 of them without a call. Source and destination may overlap, because programs do that in
/// messages to themselves, although MPI forbids it.
///
/// # Safety
/// Both have `length` bytes, which may be read, and written.
#[inline(always)]
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, length: usize) {
    const WORD: usize = size_of::<u64>();
    if length.wrapping_sub(WORD) <= WORD {
        // SAFETY: both have `length` bytes: the first 8 and the last 8, which may overlap.
        unsafe {
            let (first, last) =
                (from.cast::<u64>().read_unaligned(), from.add(length - WORD).cast::<u64>().read_unaligned());
            to.cast::<u64>().write_unaligned(first);
            to.add(length - WORD).cast::<u64>().write_unaligned(last);
        }
    } else {
        // SAFETY: both have `length` bytes.
        unsafe { to.copy_from(from, length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_preserves_the_bytes_even_if_source_and_destination_overlap() {
        let pattern: Vec<u8> = (0..80).collect();
        for length in 0..70 {
            for (to, from) in [(0, 3), (3, 0), (5, 5)] {
                let mut bytes = pattern.clone();
                let start = bytes.as_mut_ptr();
                // SAFETY: both ranges are within `bytes`.
                unsafe { copy(start.add(to), start.add(from), length) };
                assert_eq!(bytes[to..to + length], pattern[from..from + length], "{length} bytes");
            }
        }
    }
}
