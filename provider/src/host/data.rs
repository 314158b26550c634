// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data of a request: memory of the program, in one piece or several, or a copy that the request owns.
//!
//! Made from the arguments of a libfabric call. Grade: hot for one piece, else pending. Threads: the one
//! that has entered the endpoint. Tests: below.

use ibex::libfabric::{self, Data as _};
use ibex::messenger::host;
use ibex_ffi::verbs::InlineSpan;

/// A piece of a program's memory: what an `iovec` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    start: *mut u8,
    length: usize,
}

impl Piece {
    /// # Safety
    /// A1: the memory may be read (of a send) or written (of a receive) until the completion of its operation is
    /// reported, or for an injected one until the call returns.
    pub(crate) const unsafe fn new(start: *mut u8, length: usize) -> Self {
        Piece { start, length }
    }

    pub(crate) const fn length(self) -> usize {
        self.length
    }

    /// Returns the address of the first byte, for the adapter.
    pub(crate) fn address(self) -> usize {
        self.start.expose_provenance()
    }

    /// Returns the piece as a span for a work request that copies it at once.
    #[inline]
    pub(crate) const fn span<'a>(self) -> InlineSpan<'a> {
        // SAFETY: A1 (`new`); the caller posts it within the libfabric call, or copies it while the request lives.
        unsafe { InlineSpan::new(self.start, self.length) }
    }

    fn copy_to(self, offset: usize, to: &mut [u8]) {
        debug_assert!(offset + to.len() <= self.length);
        // SAFETY: A1; the caller stays within the piece. Programs may read their send's memory meanwhile.
        unsafe { std::ptr::copy(self.start.add(offset), to.as_mut_ptr(), to.len()) };
    }

    fn copy_from(self, offset: usize, from: &[u8]) {
        debug_assert!(offset + from.len() <= self.length);
        // SAFETY: A1; the caller stays within the piece, which belongs to this receive until it completes.
        unsafe { std::ptr::copy(from.as_ptr(), self.start.add(offset), from.len()) };
    }

    /// Copies a message to the beginning, as far as there is room.
    #[inline(always)]
    fn put(self, from: &[u8]) {
        let from = &from[..from.len().min(self.length)];
        if let (Some(first), Some(last), 8..=16) = (from.first_chunk::<8>(), from.last_chunk::<8>(), from.len()) {
            // SAFETY: A1; there is room for so many bytes.
            unsafe {
                self.start.cast::<[u8; 8]>().write_unaligned(*first);
                self.start.add(from.len() - 8).cast::<[u8; 8]>().write_unaligned(*last);
            }
        } else {
            self.copy_from(0, from);
        }
    }
}

/// The data of a request.
#[derive(Debug)]
pub(crate) enum Data {
    /// One piece.
    Piece(Piece),
    /// Several pieces, and their length in all.
    Pieces(Box<[Piece]>, usize),
    /// A copy, for an injected send.
    Copied(Box<[u8]>),
}

// SAFETY: A1: the program lends the memory to the operation, whichever thread works on it.
unsafe impl Send for Piece {}

impl libfabric::Piece for Piece {
    #[inline(always)]
    fn length(&self) -> usize {
        self.length
    }

    fn behind(&self, length: usize) -> Self {
        let length = length.min(self.length);
        Piece { start: self.start.wrapping_add(length), length: self.length - length }
    }
}

impl libfabric::Data for Data {
    type Piece = Piece;

    const NONE: Data = Data::Piece(Piece { start: std::ptr::null_mut(), length: 0 });

    #[inline(always)]
    fn set(&mut self, to: Piece) {
        match self {
            Data::Piece(piece) => *piece = to,
            Data::Pieces(..) | Data::Copied(_) => *self = Data::Piece(to),
        }
    }

    fn piece(&self) -> Option<Piece> {
        if let Data::Piece(piece) = self { Some(*piece) } else { None }
    }

    #[inline(always)]
    fn free(&mut self) {
        if !matches!(self, Data::Piece(_)) {
            *self = Data::NONE;
        }
    }

    fn copied(&self) -> Self {
        let mut bytes = vec![0; host::Data::length(self)].into_boxed_slice();
        self.copy_out(0, &mut bytes);
        Data::Copied(bytes)
    }

    fn is_copied(&self) -> bool {
        matches!(self, Data::Copied(_))
    }

    fn copy_of(&mut self, send: &Data) {
        let mut bytes = vec![0; host::Data::length(self).min(host::Data::length(send))];
        send.copy_out(0, &mut bytes);
        self.copy_in(0, &bytes);
    }

    #[inline]
    fn address(&self) -> Option<u64> {
        match self {
            Data::Piece(piece) => Some(piece.address() as u64),
            Data::Copied(bytes) => Some(bytes.as_ptr().expose_provenance() as u64),
            Data::Pieces(..) => None,
        }
    }

    #[inline]
    fn inline<R>(&self, with: impl FnOnce(InlineSpan<'_>) -> R) -> Option<R> {
        match self {
            Data::Piece(piece) => Some(with(piece.span())),
            Data::Copied(bytes) => Some(with((&**bytes).into())),
            Data::Pieces(..) => None,
        }
    }
}

impl Data {
    /// Makes the data of these pieces.
    pub(crate) fn of(pieces: &[Piece]) -> Self {
        match pieces {
            [] => Data::NONE,
            [piece] => Data::Piece(*piece),
            pieces => Data::Pieces(pieces.into(), pieces.iter().map(|piece| piece.length).sum()),
        }
    }

    fn copy_out(&self, offset: usize, to: &mut [u8]) {
        match self {
            Data::Piece(piece) => piece.copy_to(offset, to),
            Data::Copied(bytes) => to.copy_from_slice(&bytes[offset..offset + to.len()]),
            Data::Pieces(pieces, _) => {
                let mut to = to;
                for (piece, offset, length) in parts(pieces, offset, to.len()) {
                    let (now, later) = to.split_at_mut(length);
                    piece.copy_to(offset, now);
                    to = later;
                }
            }
        }
    }

    #[cold]
    fn length_of_others(&self) -> usize {
        match self {
            Data::Piece(piece) => piece.length,
            Data::Pieces(_, length) => *length,
            Data::Copied(bytes) => bytes.len(),
        }
    }

    #[inline(never)]
    fn put_in_pieces(&mut self, from: &[u8]) -> bool {
        let length = from.len().min(host::Data::length(self));
        self.copy_in(0, &from[..length]);
        true
    }

    #[inline]
    fn copy_in(&mut self, offset: usize, from: &[u8]) {
        match self {
            Data::Piece(piece) => piece.copy_from(offset, from),
            Data::Copied(bytes) => bytes[offset..offset + from.len()].copy_from_slice(from),
            Data::Pieces(pieces, _) => {
                let mut from = from;
                for (piece, offset, length) in parts(pieces, offset, from.len()) {
                    let (now, later) = from.split_at(length);
                    piece.copy_from(offset, now);
                    from = later;
                }
            }
        }
    }
}

/// Returns the parts of pieces that hold `length` bytes from `offset` on: piece, offset in it, and length.
fn parts(pieces: &[Piece], offset: usize, length: usize) -> impl Iterator<Item = (Piece, usize, usize)> {
    let mut before = 0;
    let end = offset + length;
    pieces.iter().filter_map(move |piece| {
        let (from, to) = (offset.max(before), end.min(before + piece.length));
        let part = (from < to).then(|| (*piece, from - before, to - from));
        before += piece.length;
        part
    })
}

impl host::Data for Data {
    #[inline(always)]
    fn length(&self) -> usize {
        if let Data::Piece(piece) = self { piece.length } else { self.length_of_others() }
    }

    fn is_contiguous(&self) -> bool {
        !matches!(self, Data::Pieces(..))
    }

    #[inline(always)]
    fn put(&mut self, from: &[u8]) -> bool {
        if let Data::Piece(piece) = self {
            piece.put(from);
            return true;
        }
        self.put_in_pieces(from)
    }

    fn take_all(&mut self, to: &mut [u8]) -> bool {
        self.copy_out(0, to);
        true
    }

    fn take_at(&mut self, offset: u64, to: &mut [u8]) -> usize {
        let length = to.len().min(self.length() - offset as usize);
        self.copy_out(offset as usize, &mut to[..length]);
        length
    }

    fn put_at(&mut self, offset: u64, from: &[u8]) -> bool {
        let has_room = offset as usize + from.len() <= self.length();
        if has_room {
            self.copy_in(offset as usize, from);
        }
        has_room
    }

    fn end(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibex::messenger::host::Data as _;

    fn pieces(of: &mut [u8], lengths: &[usize]) -> Data {
        let (mut start, mut pieces) = (of.as_mut_ptr(), Vec::new());
        for length in lengths {
            // SAFETY: the pieces are within `of`, one behind the other, with a byte between them.
            unsafe {
                pieces.push(Piece::new(start, *length));
                start = start.add(length + 1);
            }
        }
        Data::of(&pieces)
    }

    #[test]
    fn data_in_pieces_is_packed_and_unpacked_from_any_offset_and_the_bytes_between_stay() {
        let message: Vec<u8> = (1..=12).collect();
        for lengths in [&[12][..], &[5, 7], &[0, 4, 0, 8], &[1, 1, 10]] {
            let mut memory = [0; 20];
            let mut data = pieces(&mut memory, lengths);
            for (offset, part) in message.chunks(5).enumerate() {
                assert!(data.put_at(offset as u64 * 5, part));
            }
            assert!(!data.put_at(11, &[0, 0]), "there is no room");
            for step in 1..=12 {
                let mut packed = Vec::new();
                while packed.len() < 12 {
                    let mut bytes = vec![0; step];
                    let length = data.take_at(packed.len() as u64, &mut bytes);
                    packed.extend_from_slice(&bytes[..length]);
                }
                assert_eq!(packed, message);
            }
            let mut copy = [0; 12];
            assert!(data.copied().take_all(&mut copy));
            assert_eq!(copy[..], message);
            assert_eq!(memory.iter().map(|byte| u32::from(*byte)).sum::<u32>(), 78, "no byte is written elsewhere");
        }
    }

    #[test]
    fn a_message_that_is_too_long_is_cut() {
        let mut memory = [0; 4];
        let mut data = pieces(&mut memory, &[1, 2]);
        assert!(data.put(&[1, 2, 3, 4, 5]));
        assert_eq!(memory, [1, 0, 2, 3]);
    }
}
