// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data of a request, in invented memory: in one piece, or in blocks with gaps between them. Grade: test. Threads:
//! one. Tests: below.

use ibex::messenger::host;

use crate::memory::Memory;

/// Bytes of a block of data that has gaps, and from the start of one block to the next.
const BLOCK: usize = 24;
const STRIDE: usize = 32;

/// Initial value of each byte of a receive's memory, and of the gaps of a send's.
const EMPTY: u8 = 0xee;

/// Number of bytes behind the data that no message may change.
const GUARD: usize = 8;

#[derive(Debug, Clone)]
pub(crate) struct Data {
    memory: Memory,
    start: u64,
    length: usize,
    has_gaps: bool,
}

fn place(offset: usize, has_gaps: bool) -> usize {
    if has_gaps { offset / BLOCK * STRIDE + offset % BLOCK } else { offset }
}

/// Returns the memory for `room` bytes of data that begins with `data`.
pub(crate) fn laid_out(data: &[u8], room: usize, has_gaps: bool) -> Vec<u8> {
    let mut bytes = vec![EMPTY; place(room, has_gaps) + GUARD];
    put(&mut bytes, 0, data, has_gaps);
    bytes
}

fn put(bytes: &mut [u8], offset: usize, data: &[u8], has_gaps: bool) {
    if has_gaps {
        data.iter().enumerate().for_each(|(at, byte)| bytes[place(offset + at, true)] = *byte);
    } else {
        bytes[offset..offset + data.len()].copy_from_slice(data);
    }
}

impl Data {
    /// Takes memory for `room` bytes of data that begins with `data`.
    pub(super) fn new(memory: &Memory, data: &[u8], room: usize, has_gaps: bool) -> Self {
        let start = memory.add(laid_out(data, room, has_gaps));
        Data { memory: memory.clone(), start, length: room, has_gaps }
    }

    /// Begins the data with these bytes, and empties the rest, for another use.
    pub(super) fn refill(&self, data: &[u8]) {
        let bytes = laid_out(data, self.length, self.has_gaps);
        self.memory.with(self.start, bytes.len(), |all| all.copy_from_slice(&bytes));
    }

    /// Returns a copy of the memory.
    pub(super) fn copied(&self) -> Box<[u8]> {
        let length = place(self.length, self.has_gaps) + GUARD;
        self.memory.with(self.start, length, |bytes| (&*bytes).into())
    }

    /// Address and length of contiguous data.
    pub(super) fn extent(&self) -> Option<(u64, usize)> {
        (!self.has_gaps).then_some((self.start, self.length))
    }

    /// Gives the memory back. Returns its bytes.
    pub(super) fn free(self) -> Box<[u8]> {
        self.memory.take(self.start)
    }

    fn with<R>(&self, use_it: impl FnOnce(&mut [u8]) -> R) -> R {
        self.memory.with(self.start, place(self.length, self.has_gaps), use_it)
    }

    /// Copies the data from `offset` on, as much as `to` has room for. Returns how much.
    fn copy_to(&self, offset: usize, to: &mut [u8]) -> usize {
        let length = to.len().min(self.length - offset);
        let has_gaps = self.has_gaps;
        self.with(|bytes| {
            if has_gaps {
                (0..length).for_each(|at| to[at] = bytes[place(offset + at, true)]);
            } else {
                to[..length].copy_from_slice(&bytes[offset..offset + length]);
            }
        });
        length
    }

    /// Returns a copy of the data.
    pub(super) fn packed(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length];
        self.copy_to(0, &mut bytes);
        bytes
    }
}

impl host::Data for Data {
    fn length(&self) -> usize {
        self.length
    }

    fn is_contiguous(&self) -> bool {
        !self.has_gaps || self.length == 0
    }

    fn put(&mut self, from: &[u8]) -> bool {
        let (length, has_gaps) = (from.len().min(self.length), self.has_gaps);
        self.with(|bytes| put(bytes, 0, &from[..length], has_gaps));
        true
    }

    fn take_all(&mut self, to: &mut [u8]) -> bool {
        self.copy_to(0, to) == to.len()
    }

    fn take_at(&mut self, offset: u64, to: &mut [u8]) -> usize {
        self.copy_to(offset as usize, to)
    }

    fn put_at(&mut self, offset: u64, from: &[u8]) -> bool {
        assert!(offset as usize + from.len() <= self.length, "a fragment has room");
        let has_gaps = self.has_gaps;
        self.with(|bytes| put(bytes, offset as usize, from, has_gaps));
        true
    }

    fn end(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibex::messenger::host::Data as _;

    #[test]
    fn data_with_gaps_is_packed_and_unpacked_from_any_offset_and_its_gaps_stay() {
        let bytes: Vec<u8> = (0..100).collect();
        for has_gaps in [false, true] {
            let memory = Memory::default();
            let (from, mut to) = (Data::new(&memory, &bytes, 100, has_gaps), Data::new(&memory, &[], 100, has_gaps));
            for offset in (0..100).step_by(7) {
                let mut fragment = [0; 7];
                let length = from.copy_to(offset, &mut fragment);
                assert!(to.put_at(offset as u64, &fragment[..length]));
            }
            assert_eq!(to.packed(), bytes);
            assert_eq!(*to.free(), laid_out(&bytes, 100, has_gaps));
        }
    }
}
