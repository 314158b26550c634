// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of an announced message, and the ports by which the receiver can read it: their bytes in the header and
//! behind it. Called by the header, `send` and `rendezvous`. Grade: pending. Threads: plain values. Tests:
//! `header/tests.rs`.

use super::{Bytes, Reader, append};
use crate::messenger::path_taken::Reason;

/// Memory with the data of an announced message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// The receiver may read it.
    Readable {
        /// The remote key.
        key: u32,
        /// Address of the first byte, not 0.
        address: u64,
        /// Number of bytes; the memory ends within the address space.
        length: u64,
    },
    /// The receiver cannot read it.
    Unreadable {
        /// The reason, for events.
        why: Reason,
        /// Number of bytes.
        length: u64,
    },
}

impl Memory {
    /// Returns the number of bytes.
    #[inline]
    pub const fn length(&self) -> u64 {
        match *self {
            Memory::Readable { length, .. } | Memory::Unreadable { length, .. } => length,
        }
    }

    pub(super) fn write(&self, bytes: &mut Bytes) {
        let (key, address, length) = match *self {
            Memory::Readable { key, address, length } => (key, address, length),
            Memory::Unreadable { why, length } => (why.code(), 0, length),
        };
        append(bytes, key.to_le_bytes());
        append(bytes, address.to_le_bytes());
        append(bytes, length.to_le_bytes());
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Option<Memory> {
        let (key, address, length) = (from.u32()?, from.u64()?, from.u64()?);
        if address == 0 {
            return Some(Memory::Unreadable { why: Reason::of_code(key)?, length });
        }
        address.checked_add(length).map(|_| Memory::Readable { key, address, length })
    }
}

/// A port of the sender by which announced data can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortKey {
    /// Number of the port among those that the sender has published.
    pub port: u32,
    /// Remote key of the data at this port.
    pub key: u32,
}

impl PortKey {
    /// Bytes per key behind [`Header::ReadyToSendKeyed`].
    pub const SIZE: usize = 8;

    /// Encodes the keys.
    pub fn encode(keys: &[PortKey]) -> Vec<u8> {
        keys.iter().flat_map(|key| [key.port.to_le_bytes(), key.key.to_le_bytes()]).flatten().collect()
    }

    /// Decodes the bytes of [`PortKey::encode`], behind a header that [`Header::decode`] has accepted.
    pub fn decode(bytes: &[u8]) -> Box<[PortKey]> {
        let (words, _) = bytes.as_chunks::<4>();
        let (pairs, _) = words.as_chunks::<2>();
        let of =
            |[port, key]: &[[u8; 4]; 2]| PortKey { port: u32::from_le_bytes(*port), key: u32::from_le_bytes(*key) };
        pairs.iter().map(of).collect()
    }
}
