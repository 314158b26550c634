// SPDX-License-Identifier: MIT OR Apache-2.0
//! The message of the handshake: names the sender, its queue pair, and the receiver's queue pair that it has heard of.
//!
//! Owns [`Hello`], its bytes and their checks. [`super::handshake`] makes and reads hellos; `ud` and `tcp` carry them.
//! Bytes: fixed size, versioned, little-endian, sealed with the receiving port's key ([`crate::select::key`]). Anybody
//! may write to a listening port, so `decode` checks the seal first, right after magic and version. The sender's own
//! key is masked, so that only the receiver reads it, which may not know the sender. A hello fits a datagram of the
//! smallest MTU (256 bytes) behind the 40 bytes of a global header. The handshake decides whether a hello is late.
//! Grade: setup. Threads: plain data. Tests: `hello/tests.rs`.

use crate::peer::PeerName;
use crate::select::address::{AddressError, MAX_24_BIT, PortAddress};
use crate::select::key::{Key, Seal};

const MAGIC: [u8; 4] = *b"ibHi";
const VERSION: u8 = 4;
/// Flag of a confirmed hello. The values of [`Declined`] are the other flags.
const CONFIRMED: u8 = 1;
const ADDRESS: usize = 52;
/// Offset of the sender's key, which is masked.
const SENDER: usize = ADDRESS + PortAddress::SIZE;
/// Offset of the seal, which covers all bytes before it.
const SEAL: usize = SENDER + Key::SIZE;

/// The identity of a port, in every hello that it sends.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Identity {
    /// This process.
    pub name: PeerName,
    /// Index of the port in this process's modex.
    pub port: u8,
    /// The address that this process published for it.
    pub address: PortAddress,
    /// The key that hellos to it need.
    pub key: Key,
}

/// A queue pair in a hello.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct QpInfo {
    /// Number of the queue pair: 24 bits, not 0.
    pub qpn: u32,
    /// First packet sequence number of its sends: 24 bits.
    pub psn: u32,
    /// Number of the connection in its process, increasing, never 0; identifies old hellos even if `qpn` is used again.
    pub epoch: u32,
    /// Reads and atomics that it may have in flight (`max_rd_atomic`).
    pub initiator_depth: u8,
    /// Reads and atomics of the peer that it can serve at once (`max_dest_rd_atomic`).
    pub responder_resources: u8,
    /// The sender's name for the receiver: 24 bits that the receiver's messages carry.
    pub endpoint: u32,
}

/// Why a port refuses to connect with the asking port: it prefers another one of the same process.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Declined {
    /// It is being connected to another one, which may still fail.
    ForNow = 2,
    /// It is connected to another one, or was given up.
    Taken = 4,
    /// Datagrams do not arrive between the two.
    Unmet = 8,
}

impl Declined {
    fn of(flags: u8) -> Result<Option<Self>, HelloError> {
        let flag = flags & !CONFIRMED;
        let reason =
            [Declined::ForNow, Declined::Taken, Declined::Unmet].into_iter().find(|reason| *reason as u8 == flag);
        check("flags", reason.is_some() || flag == 0, flags.into())?;
        Ok(reason)
    }
}

/// One message of the handshake.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Hello {
    /// Process, port and address of the sender.
    pub source: Identity,
    /// The instance nonce of the receiving port ([`PortAddress::instance`]).
    pub destination_instance: u64,
    /// Index of the receiving port in the receiver's modex.
    pub destination_port: u8,
    /// The sender's queue pair.
    pub qp: QpInfo,
    /// Number of the receiver's queue pair to which the sender has set its own; 0: none yet.
    pub heard_qpn: u32,
    /// Epoch of that queue pair; 0: none yet.
    pub heard_epoch: u32,
    /// The sender knows that the receiver has set its queue pair to the sender's: no answer is needed.
    pub confirmed: bool,
    /// Why the sender refuses the request for the queue pair named as heard; the receiver must not use the sender's.
    pub declined: Option<Declined>,
}

/// Bytes are not a hello.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HelloError {
    /// Too short or too long.
    #[error("a handshake packet has {got} bytes instead of {}: it was cut, or is not ibex's", Hello::SIZE)]
    Length {
        /// Number of bytes.
        got: usize,
    },
    /// Not ibex's.
    #[error("a handshake packet does not begin with \"ibHi\": something else wrote to this port")]
    Magic,
    /// Another version.
    #[error(
        "a peer's handshake has version {got}, this ibex understands {VERSION}: install the same ibex on all nodes"
    )]
    Version {
        /// The peer's version.
        got: u8,
    },
    /// Made without the port's key, or damaged on the way.
    #[error(
        "a handshake packet in the name of rank {} ({named}) is not sealed with this port's key: its sender is not of this \
         job, or addressed an earlier process here, or it was damaged on its way",
        named.rank
    )]
    Unsealed {
        /// The sender that it names, unverified.
        named: PeerName,
    },
    /// A field is out of its range.
    #[error("a handshake packet has {value:#x} as {field}: the peer's ibex is faulty")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        value: u64,
    },
    /// The sender's address is invalid.
    #[error("a handshake packet's sender: {0}")]
    Address(#[from] AddressError),
}

impl Hello {
    /// Number of bytes of a hello.
    pub const SIZE: usize = SEAL + Key::SIZE;

    /// Encodes this hello, sealed with the key of the receiving port; the layout test shows the offsets.
    pub fn encode(&self, key: &Key) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = if self.confirmed { CONFIRMED } else { 0 } | self.declined.map_or(0, |reason| reason as u8);
        bytes[6] = self.source.port;
        bytes[7] = self.destination_port;
        let words = [
            (8, self.source.name.job),
            (12, self.source.name.rank),
            (24, self.qp.epoch),
            (28, self.qp.qpn),
            (32, self.qp.psn),
            (36, self.heard_epoch),
            (40, self.heard_qpn),
            (48, self.qp.endpoint),
        ];
        for (place, word) in words {
            bytes[place..place + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes[16..24].copy_from_slice(&self.destination_instance.to_le_bytes());
        bytes[44] = self.qp.initiator_depth;
        bytes[45] = self.qp.responder_resources;
        bytes[ADDRESS..SENDER].copy_from_slice(&self.source.address.encode());
        let mask = mask(key, (self.source.address.instance, self.destination_instance));
        bytes[SENDER..SEAL].copy_from_slice(&masked(self.source.key, mask).to_bytes());
        let seal = key.seal(&bytes[..SEAL]);
        bytes[SEAL..].copy_from_slice(&seal);
        bytes
    }

    /// Decodes a hello that came to the port that has `key`. Checks length, version, seal and fields.
    pub(crate) fn decode(bytes: &[u8], key: &Key) -> Result<Hello, HelloError> {
        let bytes: &[u8; Self::SIZE] = bytes.try_into().map_err(|_| HelloError::Length { got: bytes.len() })?;
        if bytes[..4] != MAGIC {
            return Err(HelloError::Magic);
        }
        if bytes[4] != VERSION {
            return Err(HelloError::Version { got: bytes[4] });
        }
        let name = PeerName { job: word(bytes, 8), rank: word(bytes, 12) };
        let (text, seal) = bytes.split_at(SEAL);
        if !seal.try_into().is_ok_and(|seal| key.made(seal, text)) {
            return Err(HelloError::Unsealed { named: name });
        }
        let declined = Declined::of(bytes[5])?;
        check("a reserved field", bytes[46..48] == [0, 0], bytes[46].into())?;
        let address = PortAddress::decode(&bytes[ADDRESS..SENDER])?;
        let destination_instance = u64::from(word(bytes, 16)) | u64::from(word(bytes, 20)) << 32;
        let sender = Key::from_bytes(std::array::from_fn(|index| bytes[SENDER + index]));
        let sender = masked(sender, mask(key, (address.instance, destination_instance)));
        let hello = Hello {
            source: Identity { name, port: bytes[6], address, key: sender },
            destination_instance,
            destination_port: bytes[7],
            qp: QpInfo {
                epoch: word(bytes, 24),
                qpn: word(bytes, 28),
                psn: word(bytes, 32),
                initiator_depth: bytes[44],
                responder_resources: bytes[45],
                endpoint: word(bytes, 48),
            },
            heard_epoch: word(bytes, 36),
            heard_qpn: word(bytes, 40),
            confirmed: bytes[5] & CONFIRMED != 0,
            declined,
        };
        hello.check()?;
        Ok(hello)
    }

    fn check(&self) -> Result<(), HelloError> {
        let qp = &self.qp;
        check("queue pair number", (1..=MAX_24_BIT).contains(&qp.qpn), qp.qpn.into())?;
        check("packet sequence number", qp.psn <= MAX_24_BIT, qp.psn.into())?;
        check("epoch", qp.epoch != 0, 0)?;
        check("endpoint", qp.endpoint <= MAX_24_BIT, qp.endpoint.into())?;
        check("heard queue pair number", self.heard_qpn <= MAX_24_BIT, self.heard_qpn.into())?;
        let heard_fits = (self.heard_qpn == 0) == (self.heard_epoch == 0);
        check("heard epoch", heard_fits, self.heard_epoch.into())
    }
}

/// Returns what hides the key of a sender, for the receiver with this key: the hash of a text that is not a hello. A
/// port hides only one key with it, so it shows nothing of either.
fn mask(key: &Key, (source, destination): (u64, u64)) -> Seal {
    let mut text = [0; 16];
    text[..8].copy_from_slice(&source.to_le_bytes());
    text[8..].copy_from_slice(&destination.to_le_bytes());
    key.seal(&text)
}

/// Hides a key, or shows it again.
fn masked(key: Key, mask: Seal) -> Key {
    let (key, mask) = (u128::from_le_bytes(key.to_bytes()), u128::from_le_bytes(mask));
    Key::from_bytes((key ^ mask).to_le_bytes())
}

fn word(bytes: &[u8; Hello::SIZE], place: usize) -> u32 {
    u32::from_le_bytes([bytes[place], bytes[place + 1], bytes[place + 2], bytes[place + 3]])
}

fn check(field: &'static str, fits: bool, value: u64) -> Result<(), HelloError> {
    if fits { Ok(()) } else { Err(HelloError::Field { field, value }) }
}

#[cfg(test)]
pub(crate) mod tests;
