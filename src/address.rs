// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one process tells all others about its ports before anyone speaks: the modex.
//!
//! Owns [`PortAddress`], its bytes, and the pairing of local with remote ports ([`pair`]). The plugin publishes what
//! [`encode_ports`] makes and hands what it got to [`decode_ports`]; the handshake carries one [`PortAddress`] as well.
//!
//! Bytes: fixed size, versioned, little-endian; GIDs and IP addresses stay in network order, as the adapter and the network
//! have them. What arrives is checked here before anyone uses it; no input panics. Link layer, GID type and MTU are the
//! integers of verbs.h, with names below.
//!
//! Path: setup. Threads: plain data. Tests: at the end of the file.

use std::net::Ipv6Addr;

/// `IBV_LINK_LAYER_INFINIBAND`: addressed by LID.
pub const LINK_INFINIBAND: u8 = 1;
/// `IBV_LINK_LAYER_ETHERNET`: RoCE, addressed by GID.
pub const LINK_ETHERNET: u8 = 2;

/// `IBV_GID_TYPE_IB`: a GID of an InfiniBand port.
pub const GID_IB: u8 = 0;
/// `IBV_GID_TYPE_ROCE_V1`: RoCE in Ethernet frames of its own type; does not pass IP routers.
pub const GID_ROCE_V1: u8 = 1;
/// `IBV_GID_TYPE_ROCE_V2`: RoCE in UDP, port 4791.
pub const GID_ROCE_V2: u8 = 2;

/// Queue pair numbers and packet sequence numbers have 24 bits.
pub const MAX_24_BIT: u32 = 0x00ff_ffff;
/// How many IP addresses a port address has room for.
pub const TCP_ADDRESSES: usize = 4;
/// How many ports one process can publish.
pub const MAX_PORTS: usize = 64;

/// The first bytes of the modex: `ibex`.
const MAGIC: [u8; 4] = *b"ibex";
/// The version of these bytes. Another one is refused: the peer is then reached by another BTL.
pub const VERSION: u8 = 1;
/// Magic, version, count, size of an entry (2).
const HEADER_SIZE: usize = 8;

/// The bytes of an MTU as the code verbs.h has for it (`IBV_MTU_256` = 1 ... `IBV_MTU_4096` = 5); `None` for another code.
#[must_use]
pub const fn mtu_bytes(code: u8) -> Option<u32> {
    if matches!(code, 1..=5) { Some(128 << code) } else { None }
}

/// The code verbs.h has for an MTU of so many bytes; `None` when there is none.
#[must_use]
pub const fn mtu_code(bytes: u32) -> Option<u8> {
    match bytes {
        256 => Some(1),
        512 => Some(2),
        1024 => Some(3),
        2048 => Some(4),
        4096 => Some(5),
        _ => None,
    }
}

/// Where one port of one process is reached.
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
    /// The GID the port was given, in network order.
    pub gid: [u8; 16],
    /// The first half of the port's GID as a number (`fe80::` = `0xfe80_0000_0000_0000`); 0 on Ethernet.
    pub subnet_prefix: u64,
    /// The number of the datagram queue pair that takes handshakes; 0: there is none.
    pub ud_qpn: u32,
    /// The TCP port that takes handshakes; 0: there is none.
    pub tcp_port: u16,
    /// The IP addresses of the host, IPv4 ones mapped into IPv6 (`::ffff:a.b.c.d`); unused ones are zero and come last.
    pub tcp_addresses: [[u8; 16]; TCP_ADDRESSES],
    /// A random number of this life of this port, never 0: a handshake for an earlier life is known by it.
    pub instance: u64,
    /// A number of the host: equal means that loopback reaches the peer.
    pub host: u64,
}

/// The peer's bytes cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AddressError {
    /// Shorter or longer than what it says it holds.
    #[error(
        "the address has {got} bytes instead of {wanted}: it was cut or is not ibex's; check that all nodes have the same ibex"
    )]
    Length {
        /// Bytes that were there.
        got: usize,
        /// Bytes there should be.
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
        /// The peer's.
        got: u8,
    },
    /// A field holds what it cannot.
    #[error("the address has {value:#x} as {field}: it was damaged, or the peer's ibex is faulty")]
    Field {
        /// The field's name.
        field: &'static str,
        /// What it holds.
        value: u64,
    },
}

impl PortAddress {
    /// Bytes of one encoded port address.
    pub const SIZE: usize = 120;

    /// The bytes of this address; see the layout test for their places.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0] = VERSION;
        bytes[1] = self.link_layer;
        bytes[2] = self.gid_type;
        bytes[3] = self.mtu;
        bytes[4..6].copy_from_slice(&self.lid.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.tcp_port.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.ud_qpn.to_le_bytes());
        // 12..16 stay zero.
        bytes[16..32].copy_from_slice(&self.gid);
        bytes[32..40].copy_from_slice(&self.subnet_prefix.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.instance.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.host.to_le_bytes());
        bytes[56..120].copy_from_slice(self.tcp_addresses.as_flattened());
        bytes
    }

    /// Reads and checks the bytes of one address.
    ///
    /// # Errors
    /// [`AddressError`] when the length, the version or a field is not what it may be.
    pub fn decode(bytes: &[u8]) -> Result<PortAddress, AddressError> {
        let bytes: &[u8; Self::SIZE] =
            bytes.try_into().map_err(|_| AddressError::Length { got: bytes.len(), wanted: Self::SIZE })?;
        if bytes[0] != VERSION {
            return Err(AddressError::Version { got: bytes[0] });
        }
        let reserved = u32::from_le_bytes(take(bytes, 12));
        check("a reserved field", reserved == 0, reserved.into())?;
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
            subnet_prefix: u64::from_le_bytes(take(bytes, 32)),
            instance: u64::from_le_bytes(take(bytes, 40)),
            host: u64::from_le_bytes(take(bytes, 48)),
            tcp_addresses,
        };
        address.check()?;
        Ok(address)
    }

    /// Whether every field holds what it may; the layers agree (a LID on InfiniBand, a GID and no LID on Ethernet).
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

    /// Whether a queue pair of this port needs the peer's GID in its packets (a global routing header): always on Ethernet, on
    /// InfiniBand only to another subnet.
    #[must_use]
    pub fn needs_grh(&self, remote: &PortAddress) -> bool {
        self.link_layer == LINK_ETHERNET || self.subnet_prefix != remote.subnet_prefix
    }

    /// Which ports can reach each other: equal means yes, as far as addresses can tell.
    fn network(&self) -> (u8, u64) {
        if self.link_layer == LINK_INFINIBAND {
            return (LINK_INFINIBAND, self.subnet_prefix);
        }
        let ipv4 = Ipv6Addr::from(self.gid).to_ipv4_mapped().is_some();
        (LINK_ETHERNET, u64::from(self.gid_type) << 1 | u64::from(ipv4))
    }
}

/// The `N` bytes at `offset`; both are constants of the layout.
fn take<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[offset..offset + N]);
    field
}

fn check(field: &'static str, fits: bool, value: u64) -> Result<(), AddressError> {
    if fits { Ok(()) } else { Err(AddressError::Field { field, value }) }
}

/// The modex of a process: the bytes it publishes.
///
/// # Panics
/// With more than [`MAX_PORTS`] ports, which no caller has: the choice of ports stops there.
#[must_use]
pub fn encode_ports(ports: &[PortAddress]) -> Vec<u8> {
    assert!(ports.len() <= MAX_PORTS, "{} ports are more than the {MAX_PORTS} of the modex", ports.len());
    let mut bytes = Vec::with_capacity(HEADER_SIZE + ports.len() * PortAddress::SIZE);
    bytes.extend_from_slice(&MAGIC);
    bytes.push(VERSION);
    bytes.push(ports.len() as u8);
    bytes.extend_from_slice(&(PortAddress::SIZE as u16).to_le_bytes());
    for port in ports {
        bytes.extend_from_slice(&port.encode());
    }
    bytes
}

/// Reads and checks the modex of a peer.
///
/// # Errors
/// [`AddressError`] when it is not ibex's, has another version or length, or a port's address does not hold.
pub fn decode_ports(bytes: &[u8]) -> Result<Vec<PortAddress>, AddressError> {
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
    check("size of a port's address", usize::from(size) == PortAddress::SIZE, size.into())?;
    let wanted = HEADER_SIZE + count * PortAddress::SIZE;
    if bytes.len() != wanted {
        return Err(AddressError::Length { got: bytes.len(), wanted });
    }
    ports.chunks_exact(PortAddress::SIZE).map(PortAddress::decode).collect()
}

/// Which remote port each local port connects to: ports of one network (InfiniBand: the subnet; Ethernet: the type of GID) are
/// paired in order, one to one; what is left over has none.
///
/// Both sides compute the same pairs, so nobody need be asked: `pair(a, b)` is the inverse of `pair(b, a)`.
#[must_use]
pub fn pair(local: &[PortAddress], remote: &[PortAddress]) -> Vec<Option<usize>> {
    let mut taken = vec![false; remote.len()];
    local
        .iter()
        .map(|port| {
            let partner =
                (0..remote.len()).find(|&index| !taken[index] && remote[index].network() == port.network())?;
            taken[partner] = true;
            Some(partner)
        })
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::connect::Random;

    /// The address of a RoCE port, of which every field has bytes of its own.
    pub(crate) fn ethernet() -> PortAddress {
        let mut tcp_addresses = [[0; 16]; TCP_ADDRESSES];
        tcp_addresses[0] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2];
        PortAddress {
            link_layer: LINK_ETHERNET,
            gid_type: GID_ROCE_V2,
            mtu: 3,
            lid: 0,
            gid: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 168, 0, 1],
            subnet_prefix: 0,
            ud_qpn: 0x0012_3456,
            tcp_port: 0x789a,
            tcp_addresses,
            instance: 0x1122_3344_5566_7788,
            host: 0x99aa_bbcc_ddee_ff01,
        }
    }

    pub(crate) fn infiniband(subnet_prefix: u64) -> PortAddress {
        let mut gid = [0; 16];
        gid[..8].copy_from_slice(&subnet_prefix.to_be_bytes());
        gid[15] = 7;
        PortAddress {
            link_layer: LINK_INFINIBAND,
            gid_type: GID_IB,
            mtu: 5,
            lid: 0x0102,
            gid,
            subnet_prefix,
            ..ethernet()
        }
    }

    #[test]
    fn the_layout_of_a_port_address_is_these_bytes() {
        let mut wanted = vec![1, 2, 2, 3]; // version, link layer, GID type, MTU
        wanted.extend([0, 0]); // LID
        wanted.extend([0x9a, 0x78]); // TCP port
        wanted.extend([0x56, 0x34, 0x12, 0]); // datagram queue pair
        wanted.extend([0, 0, 0, 0]); // reserved
        wanted.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 168, 0, 1]); // GID
        wanted.extend([0; 8]); // subnet prefix
        wanted.extend([0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]); // instance
        wanted.extend([0x01, 0xff, 0xee, 0xdd, 0xcc, 0xbb, 0xaa, 0x99]); // host
        wanted.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2]); // IP addresses
        wanted.extend([0; 48]);
        assert_eq!(ethernet().encode().as_slice(), wanted);
        assert_eq!(PortAddress::decode(&wanted), Ok(ethernet()));
    }

    #[test]
    fn lid_and_subnet_prefix_are_little_endian() {
        let bytes = infiniband(0xfe80_0000_0000_0001).encode();
        assert_eq!(bytes[1..6], [1, 0, 5, 0x02, 0x01]);
        assert_eq!(bytes[32..40], [1, 0, 0, 0, 0, 0, 0x80, 0xfe]);
        assert_eq!(PortAddress::decode(&bytes), Ok(infiniband(0xfe80_0000_0000_0001)));
    }

    #[test]
    fn the_layout_of_the_modex_is_header_and_entries() {
        let ports = [ethernet(), infiniband(9)];
        let bytes = encode_ports(&ports);
        assert_eq!(bytes[..8], [b'i', b'b', b'e', b'x', 1, 2, 120, 0]);
        assert_eq!(bytes[8..128], ports[0].encode());
        assert_eq!(bytes[128..], ports[1].encode());
        assert_eq!(decode_ports(&bytes), Ok(ports.to_vec()));
        assert_eq!(decode_ports(&encode_ports(&[])), Ok(vec![]));
    }

    #[test]
    fn every_cut_of_a_modex_is_refused() {
        let bytes = encode_ports(&[ethernet(), infiniband(1)]);
        for length in 0..bytes.len() {
            let refusal = decode_ports(&bytes[..length]).expect_err("cut");
            assert!(matches!(refusal, AddressError::Length { got, .. } if got == length), "{refusal}");
        }
        let longer = [bytes, vec![0]].concat();
        assert!(matches!(decode_ports(&longer), Err(AddressError::Length { .. })));
    }

    #[test]
    fn another_version_and_another_component_are_told_apart() {
        let mut bytes = encode_ports(&[ethernet()]);
        bytes[4] = 2;
        let refusal = decode_ports(&bytes).expect_err("version 2");
        assert_eq!(refusal, AddressError::Version { got: 2 });
        assert!(refusal.to_string().contains("install the same ibex on all nodes"), "{refusal}");
        bytes[0] = b'o';
        assert_eq!(decode_ports(&bytes), Err(AddressError::Magic));
    }

    #[test]
    fn every_field_is_checked_before_use() {
        type Spoil = fn(&mut PortAddress);
        let spoilt: [(&str, Spoil); 12] = [
            ("link layer", |a| a.link_layer = 0),
            ("link layer", |a| a.link_layer = 3),
            ("GID type", |a| a.gid_type = GID_IB),
            ("GID type", |a| a.gid_type = 3),
            ("MTU", |a| a.mtu = 0),
            ("MTU", |a| a.mtu = 6),
            ("LID", |a| a.lid = 1),
            ("GID", |a| a.gid = [0; 16]),
            ("subnet prefix", |a| a.subnet_prefix = 1),
            ("datagram queue pair number", |a| a.ud_qpn = 0x0100_0000),
            ("instance", |a| a.instance = 0),
            ("list of IP addresses", |a| a.tcp_addresses[2] = [1; 16]),
        ];
        for (wanted, spoil) in spoilt {
            let mut address = ethernet();
            spoil(&mut address);
            let refusal = PortAddress::decode(&address.encode()).expect_err(wanted);
            assert!(matches!(refusal, AddressError::Field { field, .. } if field == wanted), "{wanted}: {refusal}");
        }
        for lid in [0, 0xc000, 0xffff] {
            let refusal =
                PortAddress::decode(&PortAddress { lid, ..infiniband(1) }.encode()).expect_err("no unicast LID");
            assert!(matches!(refusal, AddressError::Field { field: "LID", .. }), "{refusal}");
        }
    }

    #[test]
    fn no_random_input_panics_and_what_is_accepted_encodes_back() {
        let mut random = Random::new(7);
        let good = encode_ports(&[ethernet(), infiniband(0xfe80 << 48)]);
        let mut accepted = 0;
        for round in 0..200_000_u32 {
            let mut bytes = good.clone();
            if round % 2 == 0 {
                bytes.resize(random.below(300) as usize, 0);
                bytes.fill_with(|| random.number() as u8);
            } else {
                let place = random.below(bytes.len() as u64) as usize;
                bytes[place] = random.number() as u8;
            }
            if let Ok(ports) = decode_ports(&bytes) {
                accepted += 1;
                assert_eq!(encode_ports(&ports), bytes);
            }
        }
        assert!(accepted > 1000, "changed bytes that matter to nobody are accepted: {accepted}");
    }

    #[test]
    fn ports_of_one_subnet_are_paired_in_order() {
        let (a, b) = (infiniband(1), infiniband(2));
        assert_eq!(pair(&[a, b, a], &[b, a, a]), [Some(1), Some(0), Some(2)]);
        assert_eq!(pair(&[a, a, a], &[a]), [Some(0), None, None]);
        assert_eq!(pair(&[a], &[b]), [None]);
        assert_eq!(pair(&[], &[a]), []);
        assert_eq!(pair(&[a], &[]), [None]);
    }

    #[test]
    fn ports_of_different_layers_or_gid_types_are_not_paired() {
        let v4 = ethernet();
        let v6 = PortAddress { gid: [0x20; 16], ..v4 };
        let v1 = PortAddress { gid_type: GID_ROCE_V1, ..v6 };
        let all = [v4, v6, v1, infiniband(1)];
        for (index, port) in all.iter().enumerate() {
            let wanted: Vec<_> = (0..all.len()).map(|other| (other == index).then_some(0)).collect();
            assert_eq!(pair(&all, &[*port]), wanted);
        }
    }

    #[test]
    fn both_sides_compute_the_same_pairs() {
        let mut random = Random::new(3);
        let kinds = [ethernet(), PortAddress { gid: [0x20; 16], ..ethernet() }, infiniband(1), infiniband(2)];
        for _ in 0..5000 {
            let mut ports = |count: u64| -> Vec<_> { (0..count).map(|_| kinds[random.below(4) as usize]).collect() };
            let (a, b) = (ports(5), ports(4));
            let (there, back) = (pair(&a, &b), pair(&b, &a));
            for (index, partner) in there.iter().enumerate() {
                if let Some(partner) = *partner {
                    assert_eq!(back[partner], Some(index));
                    assert_eq!(a[index].network(), b[partner].network());
                }
            }
            assert_eq!(there.iter().flatten().count(), back.iter().flatten().count());
        }
    }

    #[test]
    fn a_global_header_is_for_ethernet_and_for_other_subnets() {
        assert!(ethernet().needs_grh(&ethernet()));
        assert!(!infiniband(1).needs_grh(&infiniband(1)));
        assert!(infiniband(1).needs_grh(&infiniband(2)));
    }

    #[test]
    fn mtu_codes_are_those_of_verbs() {
        for (code, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
            assert_eq!(mtu_bytes(code), Some(bytes));
            assert_eq!(mtu_code(bytes), Some(code));
        }
        assert_eq!((mtu_bytes(0), mtu_bytes(6), mtu_code(9000)), (None, None, None));
    }
}
