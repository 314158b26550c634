// SPDX-License-Identifier: MIT OR Apache-2.0
//! The framing of a file: the preamble, the header of each block with its checksums. docs/trace-format.md has every
//! byte. A block is header, summary, payload; the header's checksum covers both header and summary, so that readers can
//! trust them without the payload. Path: pending. Threads: plain data. Tests: below; tests/damage.rs.

use std::cell::RefCell;
use std::io;

use crate::error::Hex;
use crate::parse::{Bytes, Malformed};

/// The first bytes of a trace. As in PNG, they are not text, and a transfer as text changes them.
pub(crate) const MAGIC: [u8; 8] = *b"\x89IBEX\r\n\x1a";

/// The format that is written, and the latest that is read.
pub const VERSION: u32 = 1;

/// Magic, version, checksum.
pub(crate) const PREAMBLE: usize = 16;

pub(crate) const HEADER: usize = 32;

/// The first bytes of a block, to find the next one after damage.
pub(crate) const MARKER: [u8; 4] = *b"\xb1OCK";

pub(crate) const MOST_SUMMARY: usize = 1 << 15;

/// The longest payload, unpacked: a block of the most events with the most elements takes less.
pub(crate) const MOST_PAYLOAD: usize = 1 << 24;

pub(crate) const HEAD: u8 = 1;
/// Metadata that became known later: JSON.
pub(crate) const NAMES: u8 = 2;
pub(crate) const EVENTS: u8 = 3;
pub(crate) const CLOCKS: u8 = 4;
/// The last block of a finished file; its payload has no meaning.
pub(crate) const END: u8 = 5;
/// Readers skip unknown kinds from here on.
pub(crate) const OPTIONAL: u8 = 0x80;

const PLAIN: u8 = 0;
const ZSTD: u8 = 1;

pub(crate) fn preamble() -> [u8; PREAMBLE] {
    let mut bytes = [0; PREAMBLE];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let sum = crc32c::crc32c(&bytes[..12]);
    bytes[12..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The version in a preamble; an error has the expected and the found checksum.
pub(crate) fn version(bytes: &[u8; PREAMBLE]) -> Result<u32, (u32, u32)> {
    let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let sum = crc32c::crc32c(&bytes[..12]);
    if sum == number(12) { Ok(number(8)) } else { Err((sum, number(12))) }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: u8,
    codec: u8,
    /// The number of the block in the file.
    pub(crate) number: u32,
    pub(crate) summary: u32,
    /// Number of bytes of the payload in the file.
    pub(crate) stored: u32,
    /// Number of bytes of the unpacked payload.
    raw: u32,
    payload_sum: u32,
    sum: u32,
}

/// Why a block cannot be read: the expected content, and the found one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) expected: String,
    pub(crate) found: String,
}

impl Fault {
    pub(crate) fn new(expected: impl Into<String>, found: impl Into<String>) -> Fault {
        Fault { expected: expected.into(), found: found.into() }
    }
}

impl From<Malformed> for Fault {
    fn from(malformed: Malformed) -> Fault {
        Fault::new(malformed.0, "something else")
    }
}

fn checksum_fault(of: &str, computed: u32, stored: u32) -> Fault {
    Fault::new(format!("{of} with the checksum {stored:08x}"), format!("one with {computed:08x}"))
}

/// The compression level of zstd; it keeps up with any recorder.
const LEVEL: i32 = 1;

/// Makes blocks. Reuses its memory from block to block.
pub(crate) struct Framer {
    compressor: Option<zstd::bulk::Compressor<'static>>,
    packed: Vec<u8>,
    next: u32,
}

impl Framer {
    pub(crate) fn new() -> Framer {
        Framer { compressor: zstd::bulk::Compressor::new(LEVEL).ok(), packed: Vec::new(), next: 0 }
    }

    /// Appends a block to `to`. False: it would be too long, and nothing is appended.
    pub(crate) fn frame(&mut self, kind: u8, summary: &[u8], payload: &[u8], to: &mut Vec<u8>) -> bool {
        if payload.len() > MOST_PAYLOAD || summary.len() > MOST_SUMMARY {
            return false;
        }
        self.packed.clear();
        self.packed.reserve(zstd::zstd_safe::compress_bound(payload.len()));
        let compressed = self.compressor.as_mut().and_then(|to| to.compress_to_buffer(payload, &mut self.packed).ok());
        let (codec, stored) = match compressed {
            Some(bytes) if bytes < payload.len() => (ZSTD, &self.packed[..]),
            _ => (PLAIN, payload),
        };
        let mut header = [0; HEADER];
        header[..4].copy_from_slice(&MARKER);
        header[4] = kind;
        header[5] = codec;
        let numbers =
            [self.next, summary.len() as u32, stored.len() as u32, payload.len() as u32, crc32c::crc32c(stored)];
        for (place, number) in header[8..28].chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let sum = crc32c::crc32c_append(crc32c::crc32c(&header[..28]), summary);
        header[28..].copy_from_slice(&sum.to_le_bytes());
        to.extend_from_slice(&header);
        to.extend_from_slice(summary);
        to.extend_from_slice(stored);
        self.next += 1;
        true
    }
}

impl Header {
    /// Decodes the first bytes of a block, which are trusted only after [`Header::check`].
    pub(crate) fn decode(bytes: &[u8]) -> Result<Header, Fault> {
        let mut from = Bytes(bytes);
        let marker = from.take(4)?;
        if marker != MARKER {
            let found = Hex(marker.to_vec()).to_string();
            return Err(Fault::new(format!("a block's marker {}", Hex(MARKER.to_vec())), found));
        }
        let (kind, codec) = (from.u8()?, from.u8()?);
        from.take(2)?;
        let (number, summary, stored, raw) = (from.u32()?, from.u32()?, from.u32()?, from.u32()?);
        let header = Header { kind, codec, number, summary, stored, raw, payload_sum: from.u32()?, sum: from.u32()? };
        if summary as usize > MOST_SUMMARY {
            return Err(Fault::new(format!("a summary of at most {MOST_SUMMARY} bytes"), summary.to_string()));
        }
        if raw as usize > MOST_PAYLOAD {
            return Err(Fault::new(format!("a payload of at most {MOST_PAYLOAD} bytes"), raw.to_string()));
        }
        Ok(header)
    }

    /// Checks that header and summary are unchanged. `bytes` begins with both.
    pub(crate) fn check(&self, bytes: &[u8]) -> Result<(), Fault> {
        let summary = bytes.get(HEADER..HEADER + self.summary as usize).ok_or(Malformed("a whole summary"))?;
        let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..28]), summary);
        if sum == self.sum { Ok(()) } else { Err(checksum_fault("a header", sum, self.sum)) }
    }

    pub(crate) fn length(&self) -> u64 {
        HEADER as u64 + u64::from(self.summary) + u64::from(self.stored)
    }

    pub(crate) fn unpack(&self, stored: &[u8]) -> Result<Vec<u8>, Fault> {
        let sum = crc32c::crc32c(stored);
        if sum != self.payload_sum {
            return Err(checksum_fault("a payload", sum, self.payload_sum));
        }
        let raw = self.raw as usize;
        let payload = match self.codec {
            PLAIN => stored.to_vec(),
            ZSTD => {
                unpack(stored, raw).map_err(|error| Fault::new("a payload that zstd unpacks", error.to_string()))?
            }
            other => return Err(Fault::new("a payload as it is (0) or packed by zstd (1)", other.to_string())),
        };
        if payload.len() == raw {
            Ok(payload)
        } else {
            Err(Fault::new(format!("a payload of {raw} bytes"), format!("one of {}", payload.len())))
        }
    }
}

thread_local! {
    /// One per thread, because creating it takes longer than unpacking a block.
    static UNPACKER: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

fn unpack(stored: &[u8], most: usize) -> io::Result<Vec<u8>> {
    UNPACKER.with_borrow_mut(|unpacker| {
        if unpacker.is_none() {
            *unpacker = Some(zstd::bulk::Decompressor::new()?);
        }
        let unpacker = unpacker.as_mut().ok_or(io::ErrorKind::OutOfMemory)?;
        unpacker.decompress(stored, most)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_returns_its_content_and_its_checksums_find_every_flipped_bit() {
        let payload: Vec<u8> = (0..500_u32).map(|number| (number / 16) as u8).collect();
        let mut block = Vec::new();
        assert!(Framer::new().frame(EVENTS, b"summary", &payload, &mut block));
        let read = |bytes: &[u8]| {
            let header = Header::decode(bytes)?;
            header.check(bytes)?;
            if header.length() != bytes.len() as u64 {
                return Err(Fault::new("", ""));
            }
            header.unpack(&bytes[HEADER + 7..])
        };
        assert_eq!(read(&block), Ok(payload));
        for bit in 0..block.len() * 8 {
            let mut changed = block.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&changed).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_payload_that_unpacks_to_more_than_its_stated_size_is_refused() {
        let packed = zstd::bulk::compress(&vec![0; 100_000], 1).expect("packs");
        assert!(unpack(&packed, 1000).is_err());
        assert_eq!(unpack(&packed, 100_000).expect("unpacks").len(), 100_000);
    }
}
