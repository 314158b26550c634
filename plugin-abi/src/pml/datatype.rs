// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data of a message in user memory: contiguous, or with gaps.
//!
//! Open MPI's convertor packs and unpacks data with gaps, always in order: out of order it would corrupt a basic
//! element that is split. Grade: hot for contiguous data, else pending. Threads: any. Tests: below, and
//! `pt2pt_datatypes.c` in `hw-tests/mpi`.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use engine::messenger::host::Data;
use ibex_ffi::openmpi::sys;

use super::libmpi;

/// Number of bytes that [`UserData::copy_to`] copies at a time if a side has gaps.
const PIECE: usize = 32 * 1024;

/// The arguments of an MPI call that describe the data.
#[derive(Clone, Copy)]
pub(crate) struct Description {
    pub(crate) buffer: *mut c_void,
    pub(crate) count: usize,
    pub(crate) datatype: *mut sys::ompi_datatype_t,
}

/// Address and length of the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    /// First byte; null for (nonempty) data with gaps.
    pub(crate) start: *mut u8,
    /// Length of the data in a message, bytes.
    pub(crate) length: usize,
}

impl Extent {
    pub(crate) const EMPTY: Extent = Extent { start: std::ptr::dangling_mut(), length: 0 };

    /// Data with gaps, or none: the buffer of a barrier is null.
    #[cold]
    fn with_gaps(length: usize) -> Extent {
        if length == 0 { Extent::EMPTY } else { Extent { start: null_mut(), length } }
    }
}

impl Description {
    /// Returns address and length. Empty data has no gaps.
    #[inline(always)]
    pub(crate) unsafe fn extent(&self) -> Extent {
        // SAFETY: P4: the datatype is alive; nobody writes these fields once it is committed.
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

struct Convertor(Box<sys::opal_convertor_t>);

impl Convertor {
    /// # Safety
    /// P2: the data may be read while the convertor lives.
    unsafe fn packing(&Description { buffer, count, datatype }: &Description) -> Option<Self> {
        // SAFETY: the call constructs the convertor in place; P2: the data may be read; its datatype lives.
        unsafe { Self::made(|place| libmpi::ibex_convertor_send(place, datatype, count, buffer)) }
    }

    /// # Safety
    /// P2: the data may be written while the convertor lives.
    unsafe fn unpacking(&Description { buffer, count, datatype }: &Description) -> Option<Self> {
        // SAFETY: the call constructs the convertor in place; P2: the data may be written; its datatype lives.
        unsafe { Self::made(|place| libmpi::ibex_convertor_receive(place, datatype, count, buffer)) }
    }

    /// # Safety
    /// `construct` constructs a convertor in place, even if it fails.
    unsafe fn made(construct: impl FnOnce(*mut sys::opal_convertor_t) -> c_int) -> Option<Self> {
        let mut convertor = Box::<sys::opal_convertor_t>::new_uninit();
        let code = construct(convertor.as_mut_ptr());
        // SAFETY: P4: Open MPI's function has constructed it in place, even if it has failed.
        let convertor = Convertor(unsafe { convertor.assume_init() });
        (code == sys::OPAL_SUCCESS).then_some(convertor)
    }

    /// Packs up to `room` bytes to `to`. Returns their number, which is smaller if an element would be split.
    ///
    /// # Safety
    /// The convertor was made by [`Self::packing`]; `to` may be written for `room` bytes.
    unsafe fn pack(&mut self, to: *mut u8, room: usize) -> usize {
        let mut piece = sys::iovec { iov_base: to.cast(), iov_len: room };
        let (mut pieces, mut bytes) = (1, room);
        // SAFETY: the convertor packs, into one piece that is writable for its length; the counts live during the call.
        let code =
            unsafe { libmpi::opal_convertor_pack(&raw mut *self.0, &raw mut piece, &raw mut pieces, &raw mut bytes) };
        if code < 0 { 0 } else { bytes }
    }

    /// Unpacks the next `length` bytes of the message from `from`. Returns false if it cannot unpack all of them.
    ///
    /// # Safety
    /// The convertor was made by [`Self::unpacking`]; `from` may be read for `length` bytes.
    #[must_use]
    unsafe fn unpack(&mut self, from: *const u8, length: usize) -> bool {
        let mut piece = sys::iovec { iov_base: from.cast_mut().cast(), iov_len: length };
        let (mut pieces, mut bytes) = (1, length);
        // SAFETY: the convertor unpacks, from one piece that is only read; the counts live during the call.
        let code =
            unsafe { libmpi::opal_convertor_unpack(&raw mut *self.0, &raw mut piece, &raw mut pieces, &raw mut bytes) };
        code >= 0 && bytes == length
    }
}

impl Drop for Convertor {
    fn drop(&mut self) {
        // SAFETY: constructed in place, and not used afterwards.
        unsafe { libmpi::ibex_convertor_destruct(&raw mut *self.0) };
    }
}

/// The data of a request. P2 holds for it from [`Self::set_extent`] and [`Self::describe`] until the request is
/// finished.
#[repr(C)]
pub(crate) struct UserData {
    extent: Extent,
    /// Meaningless for contiguous data of a blocking call.
    description: Description,
    /// Packs or unpacks all fragments of data with gaps, from the first until [`Self::end`].
    convertor: Option<Convertor>,
}

impl UserData {
    pub(crate) const NONE: UserData = UserData {
        extent: Extent { start: null_mut(), length: 0 },
        description: Description { buffer: null_mut(), count: 0, datatype: null_mut() },
        convertor: None,
    };

    /// # Safety
    /// P2: until the request is finished these bytes may be read (send) or written (receive); if there are gaps, they
    /// are those of [`Self::describe`].
    #[inline(always)]
    pub(crate) unsafe fn set_extent(&mut self, extent: Extent) {
        self.extent = extent;
    }

    /// # Safety
    /// P2: until the request is finished this data may be read (send) or written (receive).
    #[inline(always)]
    pub(crate) unsafe fn describe(&mut self, description: Description) {
        self.description = description;
    }

    /// # Safety
    /// P2: until the request is finished this data may be read (send) or written (receive); P4: its datatype lives.
    #[inline(always)]
    pub(crate) unsafe fn set(&mut self, description: Description) {
        // SAFETY: P4, as this function requires.
        (self.extent, self.description) = (unsafe { description.extent() }, description);
    }

    #[inline(always)]
    pub(crate) fn extent(&self) -> Extent {
        self.extent
    }

    #[inline(always)]
    pub(crate) fn description(&self) -> &Description {
        &self.description
    }

    #[cold]
    #[inline(never)]
    fn put_with_gaps(&mut self, from: &[u8]) -> bool {
        let is_put = self.put_at(0, from);
        self.end();
        is_put
    }

    /// Copies this send to a receive, as far as that has room. Returns false if it cannot copy all that fits.
    pub(crate) fn copy_to(&mut self, to: &mut UserData) -> bool {
        let length = self.extent.length.min(to.extent.length);
        if self.is_contiguous() && to.is_contiguous() {
            // SAFETY: P2: both have so many bytes.
            unsafe { copy(to.extent.start, self.extent.start, length) };
            return true;
        }
        let (mut piece, mut offset) = (vec![0; length.min(PIECE)], 0);
        while offset < length {
            let most = piece.len().min(length - offset);
            let packed = self.take_at(offset as u64, &mut piece[..most]);
            if packed == 0 || !to.put_at(offset as u64, &piece[..packed]) {
                break;
            }
            offset += packed;
        }
        self.end();
        to.end();
        offset == length
    }
}

impl Data for UserData {
    #[inline(always)]
    fn length(&self) -> usize {
        self.extent.length
    }

    #[inline(always)]
    fn is_contiguous(&self) -> bool {
        !self.extent.start.is_null()
    }

    #[inline(always)]
    fn put(&mut self, from: &[u8]) -> bool {
        let from = &from[..from.len().min(self.extent.length)];
        if !self.is_contiguous() {
            return self.put_with_gaps(from);
        }
        // SAFETY: P2: the receive has room for so many bytes.
        unsafe { copy(self.extent.start, from.as_ptr(), from.len()) };
        true
    }

    fn take_all(&mut self, to: &mut [u8]) -> bool {
        let is_taken = to.len() == self.extent.length && self.take_at(0, to) == to.len();
        self.end();
        is_taken
    }

    fn take_at(&mut self, offset: u64, to: &mut [u8]) -> usize {
        if !self.is_contiguous() {
            if self.convertor.is_none() {
                // SAFETY: P2: the data of a send.
                self.convertor = unsafe { Convertor::packing(&self.description) };
            }
            // SAFETY: `to` is writable; the convertor of a send packs.
            return self.convertor.as_mut().map_or(0, |from| unsafe { from.pack(to.as_mut_ptr(), to.len()) });
        }
        let offset = offset as usize;
        let length = self.extent.length.saturating_sub(offset).min(to.len());
        // SAFETY: P2: the send has so many bytes from `offset` on, and `to` is not the user's memory.
        unsafe { to.as_mut_ptr().copy_from_nonoverlapping(self.extent.start.wrapping_add(offset), length) };
        length
    }

    fn put_at(&mut self, offset: u64, from: &[u8]) -> bool {
        let offset = offset as usize;
        if from.len() > self.extent.length.saturating_sub(offset) {
            return false;
        }
        if !self.is_contiguous() {
            if offset == 0 {
                // SAFETY: P2: the receive buffer.
                self.convertor = unsafe { Convertor::unpacking(&self.description) };
            }
            // SAFETY: `from` is readable; the convertor of a receive unpacks.
            let unpacks = |to: &mut Convertor| unsafe { to.unpack(from.as_ptr(), from.len()) };
            let is_put = self.convertor.as_mut().is_some_and(unpacks);
            if !is_put {
                self.convertor = None;
            }
            return is_put;
        }
        // SAFETY: P2: there is room for these bytes, and `from` is not the user's memory.
        unsafe { self.extent.start.add(offset).copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        true
    }

    #[inline(always)]
    fn end(&mut self) {
        self.convertor = None;
    }
}

/// Copies bytes; 8 to 16 of them without a call. Source and destination may overlap, because programs do that in
/// messages to themselves, although MPI forbids it.
#[inline(always)]
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, length: usize) {
    const WORD: usize = size_of::<u64>();
    if length.wrapping_sub(WORD) <= WORD {
        // SAFETY: P2: both have `length` bytes: the first 8 and the last 8, which may overlap.
        unsafe {
            let (first, last) =
                (from.cast::<u64>().read_unaligned(), from.add(length - WORD).cast::<u64>().read_unaligned());
            to.cast::<u64>().write_unaligned(first);
            to.add(length - WORD).cast::<u64>().write_unaligned(last);
        }
    } else {
        // SAFETY: P2: both have `length` bytes.
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
