// SPDX-License-Identifier: MIT OR Apache-2.0
//! The compact address of a port: all that a peer needs to connect to it, in 64 bytes, because some MPIs keep no longer
//! addresses. For hosts whose processes own one port per address and exchange addresses by themselves (libfabric).
//!
//! Owns [`CompactAddress`] and its bytes. Little-endian, GID in network order: version 1, flags 1 (bit 0: Ethernet;
//! bits 1 and 2: GID type; bits 3 to 5: MTU), LID (Ethernet: length of the GID's subnet) 2, TCP port 2, datagram queue
//! pair 3, rank 4, instance 8, host 8, key 16, GID 16, reserved 3. There is room for no IP address, so hellos over TCP
//! go to the IP address that a `RoCE` v2 GID is, if the port listens there; other ports have none. Decoding checks each
//! field; no input makes it panic. Grade: setup. Threads: plain data. Tests: at the end of the file.

use super::{
    AddressError, GID_ROCE_V2, LINK_ETHERNET, LINK_INFINIBAND, MAX_24_BIT, PortAddress, PortEntry, check, take,
};
use crate::interfaces::TCP_ADDRESSES;
use crate::peer::PeerName;
use crate::select::key::Key;

/// The version of these bytes. Port addresses of the modex have other lengths.
const VERSION: u8 = 1;

/// The address of a port and of the process that owns it.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct CompactAddress {
    /// The port's address, and the key that a hello to it needs.
    pub entry: PortEntry,
    /// The rank that the process has in its job, for names; a process outside of a job has its process number.
    pub rank: u32,
}

impl CompactAddress {
    /// Number of bytes of an encoded address.
    pub const SIZE: usize = 64;

    /// Returns the name of the port's owner: as different from other names as its instance is.
    pub fn name(&self) -> PeerName {
        name(self.entry.address.instance, self.rank)
    }

    /// Encodes this address. Of the IP addresses only the one that is the GID goes with it.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let PortEntry { address, key } = self.entry;
        let is_ethernet = address.link_layer == LINK_ETHERNET;
        let place = if is_ethernet { address.subnet_length.into() } else { address.lid };
        let takes_tcp = takes_tcp(address.gid_type) && address.tcp_addresses.contains(&address.gid);
        let tcp_port = if takes_tcp { address.tcp_port } else { 0 };
        let mut bytes = [0; Self::SIZE];
        bytes[0] = VERSION;
        bytes[1] = u8::from(is_ethernet) | (address.gid_type & 3) << 1 | (address.mtu & 7) << 3;
        bytes[2..4].copy_from_slice(&place.to_le_bytes());
        bytes[4..6].copy_from_slice(&tcp_port.to_le_bytes());
        bytes[6..9].copy_from_slice(&address.ud_qpn.to_le_bytes()[..3]);
        bytes[9..13].copy_from_slice(&self.rank.to_le_bytes());
        bytes[13..21].copy_from_slice(&address.instance.to_le_bytes());
        bytes[21..29].copy_from_slice(&address.host.to_le_bytes());
        bytes[29..45].copy_from_slice(&key.to_bytes());
        bytes[45..61].copy_from_slice(&address.gid);
        bytes
    }

    /// Decodes and checks an address.
    ///
    /// # Errors
    /// [`AddressError`] if it has another length or version, or a field is out of its range.
    pub fn decode(bytes: &[u8]) -> Result<CompactAddress, AddressError> {
        let bytes: &[u8; Self::SIZE] =
            bytes.try_into().map_err(|_| AddressError::Length { got: bytes.len(), wanted: Self::SIZE })?;
        check("version", bytes[0] == VERSION, bytes[0].into())?;
        let flags = bytes[1];
        check("flags", flags >> 6 == 0, flags.into())?;
        let reserved: [u8; 3] = take(bytes, 61);
        check("a reserved field", reserved == [0; 3], reserved[0].into())?;
        let key: [u8; Key::SIZE] = take(bytes, 29);
        check("key", key != [0; Key::SIZE], 0)?;
        let is_ethernet = flags & 1 != 0;
        let place = u16::from_le_bytes(take(bytes, 2));
        check("length of the subnet's prefix", !is_ethernet || place <= 128, place.into())?;
        let (gid_type, gid): (u8, [u8; 16]) = (flags >> 1 & 3, take(bytes, 45));
        let tcp_port = u16::from_le_bytes(take(bytes, 4));
        check("TCP port", tcp_port == 0 || takes_tcp(gid_type), tcp_port.into())?;
        let mut tcp_addresses = [[0; 16]; TCP_ADDRESSES];
        if tcp_port != 0 {
            tcp_addresses[0] = gid;
        }
        let address = PortAddress {
            link_layer: if is_ethernet { LINK_ETHERNET } else { LINK_INFINIBAND },
            gid_type,
            mtu: flags >> 3,
            lid: if is_ethernet { 0 } else { place },
            gid,
            subnet_length: if is_ethernet { place as u8 } else { 0 },
            subnet_prefix: if is_ethernet { 0 } else { u64::from_be_bytes(take(bytes, 45)) },
            ud_qpn: u32::from_le_bytes(take(bytes, 6)) & MAX_24_BIT,
            tcp_port,
            tcp_addresses,
            instance: u64::from_le_bytes(take(bytes, 13)),
            host: u64::from_le_bytes(take(bytes, 21)),
        };
        address.check()?;
        let entry = PortEntry { address, key: Key::from_bytes(key) };
        Ok(CompactAddress { entry, rank: u32::from_le_bytes(take(bytes, 9)) })
    }
}

/// Returns the name of the process that owns this instance of a port and has this rank in its job.
pub fn name(instance: u64, rank: u32) -> PeerName {
    PeerName { job: (instance ^ instance >> 32) as u32, rank }
}

/// Whether GIDs of this type are IP addresses.
fn takes_tcp(gid_type: u8) -> bool {
    gid_type == GID_ROCE_V2
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ethernet, infiniband};
    use super::*;
    use proptest::prelude::*;

    /// The compact address of a port that listens on its GID too.
    fn compact(mut address: PortAddress) -> CompactAddress {
        address.tcp_addresses[1] = address.gid;
        CompactAddress { entry: PortEntry { address, key: Key::from_bytes([9; 16]) }, rank: 0x0403_0201 }
    }

    /// The address as a peer decodes it: its only IP address is the GID, or it has no TCP port.
    fn seen(of: CompactAddress) -> CompactAddress {
        let mut seen = of;
        let address = &mut seen.entry.address;
        address.tcp_addresses = [[0; 16]; TCP_ADDRESSES];
        if takes_tcp(address.gid_type) {
            address.tcp_addresses[0] = address.gid;
        } else {
            address.tcp_port = 0;
        }
        seen
    }

    #[test]
    fn the_layout_of_a_compact_address_is_these_bytes() {
        let mut wanted = vec![1, 0b01_1101]; // version; Ethernet, RoCE v2, MTU 3
        wanted.extend([120, 0]); // length of the subnet's prefix
        wanted.extend([0x9a, 0x78]); // TCP port
        wanted.extend([0x56, 0x34, 0x12]); // datagram queue pair
        wanted.extend([1, 2, 3, 4]); // rank
        wanted.extend([0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]); // instance
        wanted.extend([0x01, 0xff, 0xee, 0xdd, 0xcc, 0xbb, 0xaa, 0x99]); // host
        wanted.extend([9; 16]); // key
        wanted.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 168, 0, 1]); // GID
        wanted.extend([0; 3]); // reserved
        assert_eq!(compact(ethernet()).encode().as_slice(), wanted);
        let infiniband = compact(infiniband(0xfe80_0000_0000_0001)).encode();
        assert_eq!(infiniband[1..6], [5 << 3, 0x02, 0x01, 0, 0], "MTU 5, LID, no TCP port");
    }

    #[test]
    fn a_peer_decodes_what_the_port_has_encoded() {
        for address in [ethernet(), infiniband(0xfe80_0000_0000_0001)] {
            let address = compact(address);
            let decoded = CompactAddress::decode(&address.encode()).expect("it was just encoded");
            assert_eq!(decoded, seen(address));
            assert_eq!((decoded.name(), decoded.name().rank), (address.name(), 0x0403_0201));
        }
    }

    #[test]
    fn a_port_that_does_not_listen_on_its_gid_has_no_tcp_port() {
        let mut address = compact(ethernet());
        address.entry.address.tcp_addresses[1] = [0; 16];
        assert_eq!(address.encode()[4..6], [0; 2]);
    }

    #[test]
    fn every_instance_has_a_name_of_its_own() {
        assert_ne!(name(1, 0), name(2, 0));
        assert_ne!(name(1 << 32, 0), name(2 << 32, 0));
    }

    #[test]
    fn damaged_bytes_are_refused_and_say_which_field_is_wrong() {
        let of = |change: fn(&mut [u8; 64])| {
            let mut bytes = compact(ethernet()).encode();
            change(&mut bytes);
            CompactAddress::decode(&bytes).expect_err("damaged").to_string()
        };
        for (change, field) in [
            ((|bytes| bytes[0] = 2) as fn(&mut [u8; 64]), "version"),
            (|bytes| bytes[1] |= 0x80, "flags"),
            (|bytes| bytes[1] &= !1, "GID type"),
            (|bytes| bytes[1] &= !0b111_000, "MTU"),
            (|bytes| bytes[2] = 129, "length of the subnet's prefix"),
            (|bytes| bytes[1] = bytes[1] & !6 | 2, "TCP port"),
            (|bytes| bytes[13..21].fill(0), "instance"),
            (|bytes| bytes[29..45].fill(0), "key"),
            (|bytes| bytes[45..61].fill(0), "GID"),
            (|bytes| bytes[63] = 1, "reserved"),
        ] {
            let said = of(change);
            assert!(said.contains(field), "{field}: {said}");
        }
        assert!(matches!(CompactAddress::decode(&[1; 63]), Err(AddressError::Length { got: 63, wanted: 64 })));
        assert!(matches!(CompactAddress::decode(&[]), Err(AddressError::Length { got: 0, wanted: 64 })));
    }

    proptest! {
        #[test]
        fn bytes_of_anybody_are_refused_or_encoded_again_alike(
            mut bytes in prop::collection::vec(any::<u8>(), 64),
            flags in 0..64_u8,
        ) {
            bytes[..2].copy_from_slice(&[VERSION, flags]);
            bytes[61..].fill(0);
            if let Ok(address) = CompactAddress::decode(&bytes) {
                prop_assert_eq!(address.encode().to_vec(), bytes);
            }
        }
    }
}
