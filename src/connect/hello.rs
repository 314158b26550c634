// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one message of the handshake: here I am, this is my queue pair, and this is what I have heard of yours.
//!
//! Owns [`Hello`], its bytes and their checks. Made and read by [`super::handshake`], carried by `ud` and
//! [`super::tcp`].
//!
//! Bytes: fixed size, versioned, little-endian, and sealed with a keyed hash ([`super::key`]) under the key of the port
//! it is for, because anybody may write to a listening port: nothing but the seal is looked at before it is found
//! right. It fits a datagram of the smallest MTU (256 bytes) behind the 40 bytes of a global header. A hello that was
//! decoded comes from the job, is for the life of the port that has the key, and has every field in its range; whether
//! it is of now, the handshake decides.
//!
//! Path: setup. Threads: plain data. Tests: at the end of the file.

use crate::peer::PeerName;
use crate::select::address::{AddressError, MAX_24_BIT, PortAddress};
use crate::select::key::Key;

const MAGIC: [u8; 4] = *b"ibHi";
/// The version of these bytes.
const VERSION: u8 = 3;
/// Flag: the sender knows that its queue pair is in use by the receiver, and needs no answer.
const CONFIRMED: u8 = 1;
/// Flag: [`Declined::ForNow`].
const DECLINED: u8 = 2;
/// Flag: [`Declined::Taken`].
const TAKEN: u8 = 4;
/// Flag: [`Declined::Unmet`].
const UNMET: u8 = 8;
/// Where the port address begins.
const ADDRESS: usize = 52;
/// Where the seal stands: over all bytes before it.
const SEAL: usize = ADDRESS + PortAddress::SIZE;

/// Who we are, in every hello that leaves a port.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Identity {
    /// This process.
    pub name: PeerName,
    /// Which of this process's published ports: its index in the modex.
    pub port: u8,
    /// What this process published about it.
    pub address: PortAddress,
}

/// A queue pair as the handshake speaks of it.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct QpInfo {
    /// Its number: 24 bits, not 0.
    pub qpn: u32,
    /// The packet sequence number its sends begin with: 24 bits.
    pub psn: u32,
    /// Which connection of its process this is: a count that only grows (never 0), so that an old hello is known by it,
    /// even when the adapter uses a queue pair number again.
    pub epoch: u32,
    /// How many reads and atomics it may have in flight (`max_rd_atomic`).
    pub initiator_depth: u8,
    /// How many reads and atomics of the peer it can serve at once (`max_dest_rd_atomic`).
    pub responder_resources: u8,
    /// The sender's own name for the receiver: 24 bits that the receiver's messages shall carry.
    pub endpoint: u32,
}

/// A port will not be connected with the one that asks, but with another of the same process.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Declined {
    /// It is being connected with another one, which may come to nothing.
    ForNow,
    /// It is connected with another one, or has been given up.
    Taken,
    /// No datagram comes through between the two.
    Unmet,
}

impl Declined {
    /// The flags of a hello that says so, or does not.
    fn flag(this: Option<Self>) -> u8 {
        match this {
            None => 0,
            Some(Declined::ForNow) => DECLINED,
            Some(Declined::Taken) => TAKEN,
            Some(Declined::Unmet) => UNMET,
        }
    }

    /// What the flags of a hello say.
    fn of(flags: u8) -> Result<Option<Self>, HelloError> {
        match flags & !CONFIRMED {
            0 => Ok(None),
            DECLINED => Ok(Some(Declined::ForNow)),
            TAKEN => Ok(Some(Declined::Taken)),
            UNMET => Ok(Some(Declined::Unmet)),
            _ => Err(HelloError::Field { field: "flags", value: flags.into() }),
        }
    }
}

/// One message of the handshake.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Hello {
    /// Who sends it, from which port, reached how.
    pub source: Identity,
    /// The instance nonce of the port it is for ([`PortAddress::instance`]).
    pub destination_instance: u64,
    /// The index of the port it is for in the receiver's modex.
    pub destination_port: u8,
    /// The sender's queue pair.
    pub qp: QpInfo,
    /// The number of the receiver's queue pair to which the sender has set its own; 0: none yet.
    pub heard_qpn: u32,
    /// The epoch of that queue pair; 0: none yet.
    pub heard_epoch: u32,
    /// The sender knows that the receiver has set its queue pair to the sender's: no answer is needed.
    pub confirmed: bool,
    /// The sender declines what the receiver has asked for with the queue pair that is named as heard, and asks for
    /// nothing; its own queue pair is none that the receiver is to use.
    pub declined: Option<Declined>,
}

/// Bytes are not a hello.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HelloError {
    /// Too short or too long.
    #[error("a handshake packet has {got} bytes instead of {}: it was cut, or is not ibex's", Hello::SIZE)]
    Length {
        /// Bytes that were there.
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
        /// The peer's.
        got: u8,
    },
    /// Made by somebody who does not know the port's key, or damaged on the way.
    #[error(
        "a handshake packet that says to come from rank {} ({named}) is not sealed with this port's key: whoever sent it is not of \
         this job, or means an earlier process here, or it was damaged on its way",
        named.rank
    )]
    Unsealed {
        /// Whom it names as its sender; not to be believed.
        named: PeerName,
    },
    /// A field holds what it cannot.
    #[error("a handshake packet has {value:#x} as {field}: the peer's ibex is faulty")]
    Field {
        /// The field's name.
        field: &'static str,
        /// What it holds.
        value: u64,
    },
    /// The sender's address does not hold.
    #[error("a handshake packet's sender: {0}")]
    Address(#[from] AddressError),
}

impl Hello {
    /// Bytes of a hello.
    pub const SIZE: usize = SEAL + Key::SIZE;

    /// The bytes of this hello, sealed with the key of the port it is for; see the layout test for their places.
    #[must_use]
    pub fn encode(&self, key: &Key) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = if self.confirmed { CONFIRMED } else { 0 } | Declined::flag(self.declined);
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
        ];
        for (place, word) in words {
            bytes[place..place + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes[16..24].copy_from_slice(&self.destination_instance.to_le_bytes());
        bytes[44] = self.qp.initiator_depth;
        bytes[45] = self.qp.responder_resources;
        // 46..48 stay zero.
        bytes[48..52].copy_from_slice(&self.qp.endpoint.to_le_bytes());
        bytes[ADDRESS..SEAL].copy_from_slice(&self.source.address.encode());
        let seal = key.seal(&bytes[..SEAL]);
        bytes[SEAL..].copy_from_slice(&seal);
        bytes
    }

    /// Reads and checks the bytes of a hello that came to the port that has `key`.
    ///
    /// # Errors
    /// [`HelloError`] when they are not a hello of this version, whole, sealed with the key, and with every field in
    /// its range.
    pub fn decode(bytes: &[u8], key: &Key) -> Result<Hello, HelloError> {
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
        let hello = Hello {
            source: Identity { name, port: bytes[6], address: PortAddress::decode(&bytes[ADDRESS..SEAL])? },
            destination_instance: u64::from(word(bytes, 16)) | u64::from(word(bytes, 20)) << 32,
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

    /// Whether every field holds what it may.
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

fn word(bytes: &[u8; Hello::SIZE], place: usize) -> u32 {
    u32::from_le_bytes([bytes[place], bytes[place + 1], bytes[place + 2], bytes[place + 3]])
}

fn check(field: &'static str, fits: bool, value: u64) -> Result<(), HelloError> {
    if fits { Ok(()) } else { Err(HelloError::Field { field, value }) }
}

#[cfg(test)]
pub(crate) mod tests;
