// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data of a message in user memory: in one piece, or with gaps.
//!
//! In one piece it is its first byte and a length. With gaps Open MPI's convertor packs and unpacks it, in order: a
//! convertor that unpacks out of order goes wrong (a basic element that is cut), so that none is asked to. A convertor
//! is made for one message, and one way. Grade: hot for data in one piece, else pending. Threads: any. Tests: below, and
//! `pt2pt_datatypes.c` in `hw-tests/mpi`.

use std::ffi::c_void;
use std::ptr::NonNull;

use ibex_ffi::openmpi::sys;

/// The user's data as MPI describes it.
#[derive(Clone, Copy)]
pub(crate) struct Data {
    pub(crate) buffer: *mut c_void,
    pub(crate) count: usize,
    pub(crate) datatype: *mut sys::ompi_datatype_t,
}

/// Where the bytes of the data are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    /// The first byte; null for data with gaps, of which there is some.
    pub(crate) start: *mut u8,
    /// Bytes of a message of it.
    pub(crate) length: usize,
}

impl Extent {
    /// Of no bytes.
    pub(crate) const EMPTY: Extent = Extent { start: std::ptr::dangling_mut(), length: 0 };

    /// Of data with gaps, or of none: the buffer of a barrier is null.
    #[cold]
    fn with_gaps(length: usize) -> Extent {
        if length == 0 { Extent::EMPTY } else { Extent { start: std::ptr::null_mut(), length } }
    }
}

impl Data {
    /// Where it is. An empty message has no gaps, and its buffer is not looked at.
    ///
    /// # Safety
    /// P4: the datatype is a live one of Open MPI's.
    #[inline(always)]
    pub(crate) unsafe fn extent(&self) -> Extent {
        // SAFETY: P4: a live datatype; fields that nobody writes once it is committed.
        let (flags, size, first) = unsafe {
            let datatype = &raw const (*self.datatype).super_;
            (u32::from((*datatype).flags), (*datatype).size, (*datatype).true_lb)
        };
        let length = size * self.count;
        let in_one_piece = flags & sys::OPAL_DATATYPE_FLAG_NO_GAPS != 0
            || (flags & sys::OPAL_DATATYPE_FLAG_CONTIGUOUS != 0 && self.count <= 1);
        let start = self.buffer.wrapping_byte_offset(first).cast::<u8>();
        if in_one_piece && !start.is_null() { Extent { start, length } } else { Extent::with_gaps(length) }
    }
}

/// A convertor of Open MPI's over the data of one message.
pub(crate) struct Convertor(Box<sys::opal_convertor_t>);

impl Convertor {
    /// One that packs. `None`: Open MPI has no memory for it.
    ///
    /// # Safety
    /// P2: the data may be read as long as this lives.
    pub(crate) unsafe fn packing(data: &Data) -> Option<Self> {
        let mut convertor = Box::<sys::opal_convertor_t>::new_uninit();
        // SAFETY: storage of its size, which is constructed by the call; P2: the data, of a live datatype.
        let code = unsafe { sys::ibex_convertor_send(convertor.as_mut_ptr(), data.datatype, data.count, data.buffer) };
        // SAFETY: constructed, whatever the code.
        let convertor = Convertor(unsafe { convertor.assume_init() });
        (code == sys::OPAL_SUCCESS).then_some(convertor)
    }

    /// One that unpacks. `None`: as above.
    ///
    /// # Safety
    /// P2: the data may be written as long as this lives.
    pub(crate) unsafe fn unpacking(data: &Data) -> Option<Self> {
        let mut convertor = Box::<sys::opal_convertor_t>::new_uninit();
        // SAFETY: storage of its size, which is constructed by the call; P2: the data, of a live datatype.
        let code =
            unsafe { sys::ibex_convertor_receive(convertor.as_mut_ptr(), data.datatype, data.count, data.buffer) };
        // SAFETY: constructed, whatever the code.
        let convertor = Convertor(unsafe { convertor.assume_init() });
        (code == sys::OPAL_SUCCESS).then_some(convertor)
    }

    /// Packs up to `room` bytes to `to`. Returns how many: fewer where an element would be cut.
    ///
    /// # Safety
    /// It was made by [`Self::packing`]; `to` may be written for `room` bytes.
    pub(crate) unsafe fn pack(&mut self, to: *mut u8, room: usize) -> usize {
        let mut piece = sys::iovec { iov_base: to.cast(), iov_len: room };
        let (mut pieces, mut bytes) = (1, room);
        // SAFETY: made to pack; one piece, writable for its length; counts that live.
        let code =
            unsafe { sys::opal_convertor_pack(&raw mut *self.0, &raw mut piece, &raw mut pieces, &raw mut bytes) };
        if code < 0 { 0 } else { bytes }
    }

    /// Unpacks the next `length` bytes of the message from `from`. False: not all of them.
    ///
    /// # Safety
    /// It was made by [`Self::unpacking`]; `from` may be read for `length` bytes.
    #[must_use]
    pub(crate) unsafe fn unpack(&mut self, from: *const u8, length: usize) -> bool {
        let mut piece = sys::iovec { iov_base: from.cast_mut().cast(), iov_len: length };
        let (mut pieces, mut bytes) = (1, length);
        // SAFETY: made to unpack; one piece, which is only read; counts that live.
        let code =
            unsafe { sys::opal_convertor_unpack(&raw mut *self.0, &raw mut piece, &raw mut pieces, &raw mut bytes) };
        code >= 0 && bytes == length
    }
}

impl Drop for Convertor {
    fn drop(&mut self) {
        // SAFETY: constructed where it is, and not used after.
        unsafe { sys::ibex_convertor_destruct(&raw mut *self.0) };
    }
}

/// Copies `length` bytes of a message, from its first on, to where its receiver wants them. False: not all of them could
/// be put there.
///
/// # Safety
/// P2: `data` may be written for `length` bytes; `extent` is its; `from` may be read for as many.
#[must_use]
#[inline(always)]
pub(crate) unsafe fn put(data: &Data, extent: Extent, from: *const u8, length: usize) -> bool {
    if extent.start.is_null() {
        // SAFETY: P2; `from` has `length` bytes.
        unsafe { put_with_gaps(data, from, length) }
    } else {
        // SAFETY: P2; `from` has `length` bytes.
        unsafe { copy(extent.start, from, length) };
        true
    }
}

/// Copies bytes; of a word or two without a call. They may overlap: MPI forbids that of the buffers of a send and its
/// receive, and programs do it in messages to themselves.
///
/// # Safety
/// `from` may be read for `length` bytes, and `to` written.
#[inline(always)]
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, length: usize) {
    const WORD: usize = size_of::<u64>();
    if length.wrapping_sub(WORD) <= WORD {
        // SAFETY: both have `length` bytes: the first word and the last, which may have bytes in common.
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

/// # Safety
/// P2: `data` may be written for `length` bytes; `from` may be read for as many.
#[cold]
#[inline(never)]
unsafe fn put_with_gaps(data: &Data, from: *const u8, length: usize) -> bool {
    // SAFETY: P2; made to unpack; `from` has `length` bytes.
    unsafe { Convertor::unpacking(data).is_some_and(|mut convertor| convertor.unpack(from, length)) }
}

/// Copies the first `length` bytes of a message, all there are, to a buffer. False where they cannot be packed.
///
/// # Safety
/// P2: `data` may be read; `extent` is its; `to` may be written for `length` bytes, and is apart from it.
#[inline]
pub(crate) unsafe fn take(data: &Data, extent: Extent, to: *mut u8) -> bool {
    match NonNull::new(extent.start) {
        Some(start) => {
            // SAFETY: P2; `to` has room for them, apart from the data.
            unsafe { to.copy_from_nonoverlapping(start.as_ptr(), extent.length) };
            true
        }
        // SAFETY: P2; `to` has room for them.
        None => unsafe { take_with_gaps(data, extent.length, to) },
    }
}

/// # Safety
/// P2: `data` may be read; `to` may be written for `length` bytes.
#[cold]
#[inline(never)]
unsafe fn take_with_gaps(data: &Data, length: usize, to: *mut u8) -> bool {
    // SAFETY: P2; made to pack; `to` has room for `length` bytes.
    unsafe { Convertor::packing(data).is_some_and(|mut convertor| convertor.pack(to, length) == length) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_copied_as_they_were_though_the_places_overlap() {
        let pattern: Vec<u8> = (0..80).collect();
        for length in 0..70 {
            for (to, from) in [(0, 3), (3, 0), (5, 5)] {
                let mut bytes = pattern.clone();
                let start = bytes.as_mut_ptr();
                // SAFETY: within the bytes.
                unsafe { copy(start.add(to), start.add(from), length) };
                assert_eq!(bytes[to..to + length], pattern[from..from + length], "{length} bytes");
            }
        }
    }
}
