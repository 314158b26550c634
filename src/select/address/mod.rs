// SPDX-License-Identifier: MIT OR Apache-2.0
//! The addresses that a process publishes about its ports in the modex.
//!
//! Owns [`PortAddress`], its bytes, and the pairing of local with remote ports ([`pair`]). The plugin publishes
//! [`encode_ports`] and decodes a peer's with [`decode_ports`]; these have an address and a key for each port
//! ([`PortEntry`]). A hello carries a [`PortAddress`] without key. Bytes: fixed size, versioned, little-endian; GIDs
//! and IP addresses in network order. Decoding checks each field; no input makes it panic. Grade: setup. Threads: plain
//! data. `compact.rs` has the shorter form for libfabric. Tests: `address/tests.rs`.

use std::fmt;
use std::net::Ipv6Addr;

use super::key::Key;
use crate::interfaces::TCP_ADDRESSES;

pub use ibex_ffi::verbs::link_layer::{ETHERNET as LINK_ETHERNET, INFINIBAND as LINK_INFINIBAND};

pub mod compact;
#[cfg(test)]
pub(crate) mod tests;

/// `IBV_GID_TYPE_IB`: a GID of an InfiniBand port.
pub const GID_IB: u8 = 0;
/// `IBV_GID_TYPE_ROCE_V1`: RoCE in Ethernet frames of its own type; does not pass IP routers.
pub const GID_ROCE_V1: u8 = 1;
/// `IBV_GID_TYPE_ROCE_V2`: RoCE in UDP, port 4791.
pub const GID_ROCE_V2: u8 = 2;

/// Queue pair numbers and packet sequence numbers have 24 bits.
pub const MAX_24_BIT: u32 = 0x00ff_ffff;
/// Most ports that one process can publish.
pub const MAX_PORTS: usize = 64;

const MAGIC: [u8; 4] = *b"ibex";
/// The version of these bytes. Another BTL must reach a peer with another version.
pub const VERSION: u8 = 3;
/// Magic, version, count, size of an entry (2).
const HEADER_SIZE: usize = 8;

/// The bytes of an MTU code of verbs.h (`IBV_MTU_256` = 1 ... `IBV_MTU_4096` = 5); `None` for another code.
pub const fn mtu_bytes(code: u8) -> Option<u32> {
    if matches!(code, 1..=5) { Some(128 << code) } else { None }
}

/// The code of verbs.h for an MTU of `bytes`; `None` if there is none.
pub(crate) fn mtu_code(bytes: u32) -> Option<u8> {
    (1..=5).find(|code| mtu_bytes(*code) == Some(bytes))
}

/// The address of one port of one process.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct PortAddress {
    /// [`LINK_INFINIBAND`] or [`LINK_ETHERNET`].
    pub link_layer: u8,
    /// [`GID_IB`], [`GID_ROCE_V1`] or [`GID_ROCE_V2`].
    pub gid_type: u8,
    /// The largest packet the port takes, as verbs.h's code: 1 = 256 bytes ... 5 = 4096.
    pub mtu: u8,
    /// The port's local identifier; 0 on Ethernet.
    pub lid: u16,
    /// The port's GID, in network order.
    pub gid: [u8; 16],
    /// Prefix length of the GID's IP subnet (IPv4: 96 plus the netmask's length); 0: unknown, or InfiniBand.
    pub subnet_length: u8,
    /// The first half of the port's GID as a number (`fe80::` = `0xfe80_0000_0000_0000`); 0 on Ethernet.
    pub subnet_prefix: u64,
    /// The number of the datagram queue pair that takes handshakes; 0: there is none.
    pub ud_qpn: u32,
    /// The TCP port that takes handshakes; 0: there is none.
    pub tcp_port: u16,
    /// The IP addresses of the host, IPv4 ones mapped into IPv6 (`::ffff:a.b.c.d`); unused ones are zero and come last.
    pub tcp_addresses: [[u8; 16]; TCP_ADDRESSES],
    /// A random number of this instance of this port, never 0. It exposes a handshake for an earlier instance.
    pub instance: u64,
    /// A number of the host: equal numbers mean that loopback reaches the peer.
    pub host: u64,
}

/// The modex entry of one port: its address, and the key that a hello to it needs.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct PortEntry {
    /// The port's address.
    pub address: PortAddress,
    /// The key that seals hellos to the port. No packet contains it.
    pub key: Key,
}

/// The peer's bytes cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AddressError {
    /// Shorter or longer than its contents should be.
    #[error(
        "the address has {got} bytes instead of {wanted}: it was cut or is not ibex's; check that all nodes have the same ibex"
    )]
    Length {
        /// Bytes that were given.
        got: usize,
        /// Bytes that there should be.
        wanted: usize,
    },
    /// Not ibex's.
    #[error(
        "the address does not begin with \"ibex\": it is another component's; check that all nodes have the same ibex"
    )]
    Magic,
    /// Another version.
    #[error(
        "the peer's ibex publishes addresses of version {got}, this one understands {VERSION}: install the same ibex on all nodes"
    )]
    Version {
        /// The peer's version.
        got: u8,
    },
    /// A field is out of its range.
    #[error("the address has {value:#x} as {field}: it was damaged, or the peer's ibex is faulty")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        value: u64,
    },
}

impl PortAddress {
    /// Number of bytes of one encoded port address.
    pub const SIZE: usize = 120;

    /// Encodes this address; the layout test shows the offsets.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0] = VERSION;
        bytes[1] = self.link_layer;
        bytes[2] = self.gid_type;
        bytes[3] = self.mtu;
        bytes[4..6].copy_from_slice(&self.lid.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.tcp_port.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.ud_qpn.to_le_bytes());
        bytes[12] = self.subnet_length;
        bytes[16..32].copy_from_slice(&self.gid);
        bytes[32..40].copy_from_slice(&self.subnet_prefix.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.instance.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.host.to_le_bytes());
        bytes[56..120].copy_from_slice(self.tcp_addresses.as_flattened());
        bytes
    }

    /// Decodes one address. Checks length, version and fields.
    pub(crate) fn decode(bytes: &[u8]) -> Result<PortAddress, AddressError> {
        let bytes: &[u8; Self::SIZE] =
            bytes.try_into().map_err(|_| AddressError::Length { got: bytes.len(), wanted: Self::SIZE })?;
        if bytes[0] != VERSION {
            return Err(AddressError::Version { got: bytes[0] });
        }
        let [subnet_length, reserved @ ..]: [u8; 4] = take(bytes, 12);
        check("a reserved field", reserved == [0; 3], reserved[0].into())?;
        let (addresses, _) = bytes[56..120].as_chunks::<16>();
        let mut tcp_addresses = [[0; 16]; TCP_ADDRESSES];
        tcp_addresses.copy_from_slice(addresses);
        let address = PortAddress {
            link_layer: bytes[1],
            gid_type: bytes[2],
            mtu: bytes[3],
            lid: u16::from_le_bytes(take(bytes, 4)),
            tcp_port: u16::from_le_bytes(take(bytes, 6)),
            ud_qpn: u32::from_le_bytes(take(bytes, 8)),
            gid: take(bytes, 16),
            subnet_length,
            subnet_prefix: u64::from_le_bytes(take(bytes, 32)),
            instance: u64::from_le_bytes(take(bytes, 40)),
            host: u64::from_le_bytes(take(bytes, 48)),
            tcp_addresses,
        };
        address.check()?;
        Ok(address)
    }

    /// Checks the range of each field, and that the layers agree (a LID on InfiniBand, a GID and no LID on Ethernet).
    fn check(&self) -> Result<(), AddressError> {
        let infiniband = self.link_layer == LINK_INFINIBAND;
        check("link layer", infiniband || self.link_layer == LINK_ETHERNET, self.link_layer.into())?;
        let type_fits =
            if infiniband { self.gid_type == GID_IB } else { matches!(self.gid_type, GID_ROCE_V1 | GID_ROCE_V2) };
        check("GID type", type_fits, self.gid_type.into())?;
        check("MTU", mtu_bytes(self.mtu).is_some(), self.mtu.into())?;
        // InfiniBand specification, 4.1.3: unicast LIDs are 0x0001 to 0xbfff.
        let lid_fits = if infiniband { (1..=0xbfff).contains(&self.lid) } else { self.lid == 0 };
        check("LID", lid_fits, self.lid.into())?;
        check("GID", infiniband || self.gid != [0; 16], 0)?;
        let longest = if infiniband { 0 } else { 128 };
        check("length of the subnet's prefix", self.subnet_length <= longest, self.subnet_length.into())?;
        check("subnet prefix", infiniband || self.subnet_prefix == 0, self.subnet_prefix)?;
        check("datagram queue pair number", self.ud_qpn <= MAX_24_BIT, self.ud_qpn.into())?;
        check("instance", self.instance != 0, 0)?;
        let used = self.ip_addresses().count();
        let gap = self.tcp_addresses[used..].iter().any(|address| *address != [0; 16]);
        check("list of IP addresses", !gap, used as u64)
    }

    /// The host's IP addresses, in the order in which to try them.
    pub fn ip_addresses(&self) -> impl Iterator<Item = Ipv6Addr> + '_ {
        self.tcp_addresses.iter().take_while(|address| **address != [0; 16]).map(|address| Ipv6Addr::from(*address))
    }

    /// Returns the network of the port. Ports of one network may reach each other, if need be through IP routers.
    fn network(&self) -> (u8, u64) {
        if self.link_layer == LINK_INFINIBAND {
            return (LINK_INFINIBAND, self.subnet_prefix);
        }
        let gid = Ipv6Addr::from(self.gid);
        let ipv4 = gid.to_ipv4_mapped();
        // Routers drop packets from a link-local address.
        let is_link_local = ipv4.map_or(gid.is_unicast_link_local(), |ipv4| ipv4.is_link_local());
        (LINK_ETHERNET, u64::from(self.gid_type) << 2 | u64::from(ipv4.is_some()) << 1 | u64::from(is_link_local))
    }

    /// The IP subnet of the GID, address and length; `None` if unknown, and on InfiniBand.
    fn subnet(&self) -> Option<(u128, u8)> {
        let mask = u128::MAX.checked_shl(128_u32.checked_sub(self.subnet_length.into())?)?;
        Some((u128::from_be_bytes(self.gid) & mask, self.subnet_length))
    }

    fn is_in_subnet_of(&self, other: &PortAddress) -> bool {
        self.subnet().is_some_and(|subnet| other.subnet() == Some(subnet))
    }
}

/// The port's place on the fabric: `LID 7`, `GID fe80::1`.
impl fmt::Display for PortAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lid {
            0 => write!(f, "GID {}", Ipv6Addr::from(self.gid)),
            lid => write!(f, "LID {lid}"),
        }
    }
}

fn take<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[offset..offset + N]);
    field
}

fn check(field: &'static str, fits: bool, value: u64) -> Result<(), AddressError> {
    if fits { Ok(()) } else { Err(AddressError::Field { field, value }) }
}

impl PortEntry {
    /// Number of bytes of one entry: the address, then the key.
    pub const SIZE: usize = PortAddress::SIZE + Key::SIZE;

    fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..PortAddress::SIZE].copy_from_slice(&self.address.encode());
        bytes[PortAddress::SIZE..].copy_from_slice(&self.key.to_bytes());
        bytes
    }

    fn decode(bytes: &[u8; Self::SIZE]) -> Result<PortEntry, AddressError> {
        let address = PortAddress::decode(&bytes[..PortAddress::SIZE])?;
        let key: [u8; Key::SIZE] = take(bytes, PortAddress::SIZE);
        check("key", key != [0; Key::SIZE], 0)?;
        Ok(PortEntry { address, key: Key::from_bytes(key) })
    }
}

/// Encodes the modex of a process.
///
/// # Panics
/// If there are more than [`MAX_PORTS`] ports; the choice of ports stops there.
pub fn encode_ports(ports: &[PortEntry]) -> Vec<u8> {
    assert!(ports.len() <= MAX_PORTS, "{} ports are more than the {MAX_PORTS} of the modex", ports.len());
    let mut bytes = Vec::with_capacity(HEADER_SIZE + ports.len() * PortEntry::SIZE);
    bytes.extend_from_slice(&MAGIC);
    bytes.push(VERSION);
    bytes.push(ports.len() as u8);
    bytes.extend_from_slice(&(PortEntry::SIZE as u16).to_le_bytes());
    for port in ports {
        bytes.extend_from_slice(&port.encode());
    }
    bytes
}

/// Decodes and checks the modex of a peer.
///
/// # Errors
/// [`AddressError`] if it is not ibex's, has another version or length, or a port's address is invalid.
pub fn decode_ports(bytes: &[u8]) -> Result<Vec<PortEntry>, AddressError> {
    let Some((header, ports)) = bytes.split_first_chunk::<HEADER_SIZE>() else {
        return Err(AddressError::Length { got: bytes.len(), wanted: HEADER_SIZE });
    };
    if header[..4] != MAGIC {
        return Err(AddressError::Magic);
    }
    if header[4] != VERSION {
        return Err(AddressError::Version { got: header[4] });
    }
    let count = usize::from(header[5]);
    check("number of ports", count <= MAX_PORTS, count as u64)?;
    let size = u16::from_le_bytes([header[6], header[7]]);
    check("size of a port's entry", usize::from(size) == PortEntry::SIZE, size.into())?;
    let wanted = HEADER_SIZE + count * PortEntry::SIZE;
    if bytes.len() != wanted {
        return Err(AddressError::Length { got: bytes.len(), wanted });
    }
    let (entries, _) = ports.as_chunks::<{ PortEntry::SIZE }>();
    entries.iter().map(PortEntry::decode).collect()
}

/// Pairs local with remote ports, one to one and in order: first ports of one IP subnet, then the remaining ports of
/// one network (InfiniBand: the subnet; Ethernet: the type and family of GID). Leaves the other ports unpaired.
/// `pair(a, b)` is the inverse of `pair(b, a)`, so both sides compute the same pairs.
pub fn pair(local: &[PortAddress], remote: &[PortAddress]) -> Vec<Option<usize>> {
    let mut pairs = vec![None; local.len()];
    let mut taken = vec![false; remote.len()];
    for by_router in [false, true] {
        for (port, partner) in local.iter().zip(&mut pairs).filter(|(_, partner)| partner.is_none()) {
            let reaches =
                |other: &PortAddress| port.network() == other.network() && (by_router || port.is_in_subnet_of(other));
            *partner = (0..remote.len()).find(|&index| !taken[index] && reaches(&remote[index]));
            if let Some(index) = *partner {
                taken[index] = true;
            }
        }
    }
    pairs
}
