// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data of a message in user memory: contiguous, or with gaps.
//!
//! Open MPI's convertor packs and unpacks data with gaps, always in order: out of order it would corrupt a basic
//! element that is split. Grade: hot for contiguous data, else pending. Threads: any. Tests: below, and
//! `pt2pt_datatypes.c` in `hw-tests/mpi`.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use engine::messenger::host::Data;
use ibex_ffi::openmpi::sys;
use ibex_ffi::verbs::InlineSpan;

use super::module::Code;
use crate::runtime::entry::Argument;
use crate::runtime::libmpi;
use crate::runtime::user_memory::{Convertor, copy};

/// Number of bytes that [`UserData::copy_to`] copies at a time if a side has gaps.
const PIECE: usize = 32 * 1024;

/// Argument of MPI: the buffer of a message, whose data the program lends (P2).
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Buffer<P>(P);

// SAFETY: the same pointer.
unsafe impl<T> Argument<*mut T> for Buffer<*mut T> {}
// SAFETY: the same pointer.
unsafe impl<T> Argument<*const T> for Buffer<*const T> {}

impl Buffer<*const c_void> {
    #[inline(always)]
    pub(crate) fn to_send(self) -> Buffer<*mut c_void> {
        Buffer(self.0.cast_mut())
    }
}

/// Argument of MPI: a committed datatype, which lives (M4, P1).
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Datatype(*mut sys::ompi_datatype_t);

// SAFETY: the same pointer.
unsafe impl Argument<*mut sys::ompi_datatype_t> for Datatype {}

impl Datatype {
    #[inline(always)]
    pub(crate) fn raw(self) -> *mut sys::ompi_datatype_t {
        self.0
    }
}

/// The arguments of an MPI call that describe the data. P2 and M4 hold for them.
#[derive(Clone, Copy)]
pub(crate) struct Description {
    buffer: *mut c_void,
    count: usize,
    datatype: Datatype,
}

/// Address and length of the data, which may be read (send) or written (receive) as P2 says. Only this file makes one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    /// First byte; null for (nonempty) data with gaps.
    pub(crate) start: *mut u8,
    /// Length of the data in a message, bytes.
    pub(crate) length: usize,
    is_lent: (),
}

impl Extent {
    pub(crate) const EMPTY: Extent = Extent::new(std::ptr::dangling_mut(), 0);

    #[inline(always)]
    const fn new(start: *mut u8, length: usize) -> Extent {
        Extent { start, length, is_lent: () }
    }

    /// Names the contiguous data of a send, which may be read while this value is used.
    #[inline(always)]
    pub(crate) fn span(&self) -> InlineSpan<'_> {
        debug_assert!(!self.start.is_null(), "data with gaps is packed");
        // SAFETY: P2: so many bytes may be read; a span of no bytes is not read.
        unsafe { InlineSpan::new(self.start, self.length) }
    }

    /// Returns `length` bytes from `offset` on, as many of them as the data has.
    pub(crate) fn part(self, offset: u64, length: usize) -> Extent {
        let offset = self.length.min(offset as usize);
        Extent::new(self.start.wrapping_add(offset), length.min(self.length - offset))
    }

    /// Data with gaps, or none: the buffer of a barrier is null.
    #[cold]
    fn with_gaps(length: usize) -> Extent {
        if length == 0 { Extent::EMPTY } else { Extent::new(null_mut(), length) }
    }
}

impl Description {
    /// # Safety
    /// P2, M4: the data and its datatype live while the value is used.
    #[cfg(test)]
    pub(crate) unsafe fn of_test(buffer: *mut u8, count: usize, datatype: *mut sys::ompi_datatype_t) -> Self {
        Description { buffer: buffer.cast(), count, datatype: Datatype(datatype) }
    }

    #[inline(always)]
    pub(crate) fn new(Buffer(buffer): Buffer<*mut c_void>, count: usize, datatype: Datatype) -> Self {
        Description { buffer, count, datatype }
    }

    #[inline(always)]
    pub(crate) fn buffer(&self) -> *mut c_void {
        self.buffer
    }

    #[inline(always)]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    #[inline(always)]
    pub(crate) fn datatype(&self) -> Datatype {
        self.datatype
    }

    /// Returns address and length. Empty data has no gaps.
    #[inline(always)]
    pub(crate) fn extent(&self) -> Extent {
        // SAFETY: M4: the datatype is alive; nobody writes these fields once it is committed.
        let (flags, size, first) = unsafe {
            let datatype = &raw const (*self.datatype.0).super_;
            (u32::from((*datatype).flags), (*datatype).size, (*datatype).true_lb)
        };
        let length = size * self.count;
        let in_one_piece = flags & sys::OPAL_DATATYPE_FLAG_NO_GAPS != 0
            || (flags & sys::OPAL_DATATYPE_FLAG_CONTIGUOUS != 0 && self.count <= 1);
        let start = self.buffer.wrapping_byte_offset(first).cast::<u8>();
        if in_one_piece && !start.is_null() { Extent::new(start, length) } else { Extent::with_gaps(length) }
    }
}

/// A copy of a message in the memory that the program has attached (`MPI_Buffer_attach`); dropping it frees it.
pub(crate) struct Attached(NonNull<u8>);

impl Attached {
    /// Packs a message into attached memory.
    ///
    /// # Errors
    /// There is no memory, or the data cannot be packed.
    pub(crate) fn copy(description: &Description) -> Result<(Self, UserData), Code> {
        let mut data = UserData::NONE;
        data.describe(description);
        let length = data.length();
        // SAFETY: Open MPI's allocator, asked for at least one byte.
        let start = unsafe { libmpi::mca_pml_base_bsend_request_alloc_buf(length.max(1)) }.cast::<u8>();
        let copy = Attached(NonNull::new(start).ok_or(Code::NO_BUFFER)?);
        // SAFETY: Open MPI has just returned so many bytes.
        if !data.take_all(unsafe { std::slice::from_raw_parts_mut(start, length) }) {
            return Err(Code::ERROR);
        }
        Ok((copy, UserData { extent: Extent::new(start, length), ..data }))
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // SAFETY: `copy` got this memory from Open MPI, for one message, which has been sent.
        unsafe { libmpi::mca_pml_base_bsend_request_free(self.0.as_ptr().cast()) };
    }
}

/// The data of a request. P2 holds for it until the request is finished.
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
        extent: Extent::new(null_mut(), 0),
        description: Description { buffer: null_mut(), count: 0, datatype: Datatype(null_mut()) },
        convertor: None,
    };

    /// Sets the data, whose description is needed only if it has gaps.
    #[inline(always)]
    pub(crate) fn set(&mut self, description: &Description) {
        self.extent = description.extent();
        if !self.is_contiguous() {
            self.description = *description;
        }
    }

    /// Sets the data and its description.
    #[inline(always)]
    pub(crate) fn describe(&mut self, description: &Description) {
        (self.extent, self.description) = (description.extent(), *description);
    }

    #[inline(always)]
    pub(crate) fn extent(&self) -> Extent {
        self.extent
    }

    #[inline(always)]
    pub(crate) fn description(&self) -> &Description {
        &self.description
    }

    fn convertor(&self, is_packing: bool) -> Option<Convertor> {
        let Description { buffer, count, datatype } = self.description;
        // SAFETY: P2: the data may be read (send) or written (receive); M4: its datatype lives.
        unsafe { Convertor::new(is_packing, (buffer, count), datatype.0) }
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
                self.convertor = self.convertor(true);
            }
            return self.convertor.as_mut().map_or(0, |from| from.pack(to));
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
                self.convertor = self.convertor(false);
            }
            let is_put = self.convertor.as_mut().is_some_and(|to| to.unpack(from));
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
