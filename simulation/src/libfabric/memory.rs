// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a simulated endpoint's operations: pieces of invented memory. What is freed, or was never given, ends
//! the simulation when it is used. Grade: test. Threads: one. Tests: those of the crate.

use ibex::libfabric;
use ibex::messenger::host;
use ibex::messenger::rendezvous::stripes::Part;
use ibex::transport::ReceivedMessage;
use ibex_ffi::verbs::{Access, InlineSpan, LocalSpan};

use crate::memory::Memory;

/// A piece of invented memory.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) memory: Memory,
    pub(super) start: u64,
    pub(super) length: usize,
}

/// The data of an operation.
#[derive(Debug)]
pub(super) enum Data {
    None,
    Piece(Piece),
    /// Several pieces, and their length in all.
    Pieces(Box<[Piece]>, usize),
    /// A piece that the operation owns.
    Copied(Piece),
}

impl Piece {
    fn with<R>(&self, offset: usize, length: usize, use_them: impl FnOnce(&mut [u8]) -> R) -> R {
        assert!(offset + length <= self.length, "an operation keeps to its memory");
        self.memory.with(self.start + offset as u64, length, use_them)
    }

    /// Calls `with` with its bytes as a span.
    pub(super) fn inline<R>(&self, with: impl FnOnce(InlineSpan<'_>) -> R) -> R {
        let bytes = self.with(0, self.length, |bytes| bytes.to_vec());
        with((&*bytes).into())
    }
}

impl libfabric::Piece for Piece {
    fn length(&self) -> usize {
        self.length
    }

    fn behind(&self, length: usize) -> Self {
        let length = length.min(self.length);
        Piece { memory: self.memory.clone(), start: self.start + length as u64, length: self.length - length }
    }
}

impl Data {
    pub(super) fn of(mut pieces: Vec<Piece>) -> Self {
        if pieces.len() == 1 {
            return Data::Piece(pieces.remove(0));
        }
        let length = pieces.iter().map(|piece| piece.length).sum();
        Data::Pieces(pieces.into(), length)
    }

    fn pieces(&self) -> &[Piece] {
        match self {
            Data::None => &[],
            Data::Piece(piece) | Data::Copied(piece) => std::slice::from_ref(piece),
            Data::Pieces(pieces, _) => pieces,
        }
    }

    /// Calls `use_them` with each part of `length` bytes from `offset` on, and its place among them.
    fn parts(&self, offset: usize, length: usize, mut use_them: impl FnMut(usize, &mut [u8])) {
        let mut before = 0;
        for piece in self.pieces() {
            let (from, to) = (offset.max(before), (offset + length).min(before + piece.length));
            if from < to {
                piece.with(from - before, to - from, |bytes| use_them(from - offset, bytes));
            }
            before += piece.length;
        }
    }

    fn copy_out(&self, offset: usize, to: &mut [u8]) {
        self.parts(offset, to.len(), |place, bytes| to[place..place + bytes.len()].copy_from_slice(bytes));
    }

    fn copy_in(&self, offset: usize, from: &[u8]) {
        self.parts(offset, from.len(), |place, bytes| bytes.copy_from_slice(&from[place..place + bytes.len()]));
    }

    fn bytes(&self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.copy_out(0, &mut bytes);
        bytes
    }
}

impl libfabric::Data for Data {
    type Piece = Piece;

    const NONE: Self = Data::None;

    fn set(&mut self, to: Piece) {
        assert!(matches!(self, Data::None), "a request has no data when it begins");
        *self = Data::Piece(to);
    }

    fn piece(&self) -> Option<Piece> {
        if let Data::Piece(piece) = self { Some(piece.clone()) } else { None }
    }

    fn free(&mut self) {
        if let Data::Copied(Piece { memory, start, .. }) = std::mem::replace(self, Data::None) {
            memory.take(start);
        }
    }

    fn copied(&self) -> Self {
        let length = host::Data::length(self);
        let Some(Piece { memory, .. }) = self.pieces().first() else { return Data::None };
        let start = memory.add(self.bytes(length));
        Data::Copied(Piece { memory: memory.clone(), start, length })
    }

    fn is_copied(&self) -> bool {
        matches!(self, Data::Copied(_))
    }

    fn copy_of(&mut self, send: &Self) {
        let length = host::Data::length(self).min(host::Data::length(send));
        self.copy_in(0, &send.bytes(length));
    }

    fn address(&self) -> Option<u64> {
        match self {
            Data::Piece(piece) | Data::Copied(piece) => Some(piece.start),
            Data::None | Data::Pieces(..) => None,
        }
    }

    fn inline<R>(&self, with: impl FnOnce(InlineSpan<'_>) -> R) -> Option<R> {
        match self {
            Data::None => Some(with(InlineSpan::EMPTY)),
            Data::Piece(piece) | Data::Copied(piece) => Some(piece.inline(with)),
            Data::Pieces(..) => None,
        }
    }
}

impl host::Data for Data {
    fn length(&self) -> usize {
        match self {
            Data::None => 0,
            Data::Piece(piece) | Data::Copied(piece) => piece.length,
            Data::Pieces(_, length) => *length,
        }
    }

    fn is_contiguous(&self) -> bool {
        !matches!(self, Data::Pieces(..))
    }

    fn put(&mut self, from: &[u8]) -> bool {
        self.copy_in(0, &from[..from.len().min(self.length())]);
        true
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
        assert!(offset as usize + from.len() <= self.length(), "a fragment has room");
        self.copy_in(offset as usize, from);
        true
    }

    fn end(&mut self) {}
}

/// The memory of all processes, as the port with this number in the fabric sees it.
pub(super) struct OfPort {
    pub(super) memory: Memory,
    pub(super) place: usize,
}

impl libfabric::Memory for OfPort {
    type Data = Data;
    type Registered = u32;
    type Received<'m> = Vec<u8>;

    fn register(&mut self, data: &Data, length: usize, access: Access) -> Option<u32> {
        let start = libfabric::Data::address(data)?;
        self.memory.register(self.place, (start, length), access)
    }

    fn give_back(&mut self, registered: u32) {
        self.memory.deregister(self.place, registered);
    }

    fn rkey(registered: u32) -> u32 {
        registered
    }

    fn target(&self, data: &Data, Part { offset, length }: Part, registered: u32) -> LocalSpan {
        let start = libfabric::Data::address(data).expect("data that is read is in one piece");
        LocalSpan::simulated(start + offset, length, registered)
    }

    fn fill<R>(&self, buffer: LocalSpan, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        // `fill` uses the same memory, so its lock is not held meanwhile.
        let mut bytes = self.memory.with(buffer.addr(), buffer.len() as usize, |bytes| bytes.to_vec());
        let result = fill(&mut bytes);
        self.memory.with(buffer.addr(), bytes.len(), |to| to.copy_from_slice(&bytes));
        result
    }

    fn received(&self, message: &ReceivedMessage) -> Vec<u8> {
        self.memory.with(message.address(), message.length() as usize, |bytes| bytes.to_vec())
    }
}
