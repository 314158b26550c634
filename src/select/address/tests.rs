// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the modex: its bytes, refusals, and the pairing of ports.

use super::*;
use crate::connect::Random;

/// The address of a RoCE port in which every field has different bytes.
pub(crate) fn ethernet() -> PortAddress {
    let mut tcp_addresses = [[0; 16]; TCP_ADDRESSES];
    tcp_addresses[0] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2];
    PortAddress {
        link_layer: LINK_ETHERNET,
        gid_type: GID_ROCE_V2,
        mtu: 3,
        lid: 0,
        gid: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 168, 0, 1],
        subnet_length: 120,
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
    let (link_layer, gid_type, subnet_length) = (LINK_INFINIBAND, GID_IB, 0);
    PortAddress { link_layer, gid_type, mtu: 5, lid: 0x0102, gid, subnet_length, subnet_prefix, ..ethernet() }
}

#[test]
fn the_layout_of_a_port_address_is_these_bytes() {
    let mut wanted = vec![3, 2, 2, 3]; // version, link layer, GID type, MTU
    wanted.extend([0, 0]); // LID
    wanted.extend([0x9a, 0x78]); // TCP port
    wanted.extend([0x56, 0x34, 0x12, 0]); // datagram queue pair
    wanted.extend([120, 0, 0, 0]); // length of the subnet's prefix, reserved
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
    assert_eq!(bytes[12..16], [0; 4]);
    assert_eq!(bytes[32..40], [1, 0, 0, 0, 0, 0, 0x80, 0xfe]);
    assert_eq!(PortAddress::decode(&bytes), Ok(infiniband(0xfe80_0000_0000_0001)));
}

fn entry(address: PortAddress) -> PortEntry {
    PortEntry { address, key: Key::from_bytes([address.link_layer; 16]) }
}

#[test]
fn the_layout_of_the_modex_is_header_and_entries_of_address_and_key() {
    let ports = [entry(ethernet()), entry(infiniband(9))];
    let bytes = encode_ports(&ports);
    assert_eq!(bytes[..8], [b'i', b'b', b'e', b'x', 3, 2, 136, 0]);
    assert_eq!(bytes[8..128], ports[0].address.encode());
    assert_eq!(bytes[128..144], [LINK_ETHERNET; 16]);
    assert_eq!(bytes[144..264], ports[1].address.encode());
    assert_eq!(bytes[264..], [LINK_INFINIBAND; 16]);
    assert_eq!(decode_ports(&bytes), Ok(ports.to_vec()));
    assert_eq!(decode_ports(&encode_ports(&[])), Ok(vec![]));
}

#[test]
fn decode_ports_refuses_every_cut_of_a_modex() {
    let bytes = encode_ports(&[entry(ethernet()), entry(infiniband(1))]);
    for length in 0..bytes.len() {
        let refusal = decode_ports(&bytes[..length]).expect_err("cut");
        assert!(matches!(refusal, AddressError::Length { got, .. } if got == length), "{refusal}");
    }
    let longer = [bytes, vec![0]].concat();
    assert!(matches!(decode_ports(&longer), Err(AddressError::Length { .. })));
}

#[test]
fn decode_ports_distinguishes_another_version_from_another_component() {
    let mut bytes = encode_ports(&[entry(ethernet())]);
    bytes[4] = 1;
    let refusal = decode_ports(&bytes).expect_err("version 1");
    assert_eq!(refusal, AddressError::Version { got: 1 });
    assert!(refusal.to_string().contains("install the same ibex on all nodes"), "{refusal}");
    bytes[0] = b'o';
    assert_eq!(decode_ports(&bytes), Err(AddressError::Magic));
}

#[test]
fn decode_checks_every_field_before_use() {
    type Spoil = fn(&mut PortAddress);
    let spoilt: [(&str, Spoil); 13] = [
        ("link layer", |a| a.link_layer = 0),
        ("link layer", |a| a.link_layer = 3),
        ("GID type", |a| a.gid_type = GID_IB),
        ("GID type", |a| a.gid_type = 3),
        ("MTU", |a| a.mtu = 0),
        ("MTU", |a| a.mtu = 6),
        ("LID", |a| a.lid = 1),
        ("GID", |a| a.gid = [0; 16]),
        ("length of the subnet's prefix", |a| a.subnet_length = 129),
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
        let refusal = PortAddress::decode(&PortAddress { lid, ..infiniband(1) }.encode()).expect_err("no unicast LID");
        assert!(matches!(refusal, AddressError::Field { field: "LID", .. }), "{refusal}");
    }
    let mut bytes = encode_ports(&[entry(ethernet())]);
    bytes[128..].fill(0);
    assert!(matches!(decode_ports(&bytes), Err(AddressError::Field { field: "key", .. })));
}

#[test]
fn no_random_input_panics_and_accepted_input_encodes_back() {
    let mut random = Random::new(7);
    let good = encode_ports(&[entry(ethernet()), entry(infiniband(0xfe80 << 48))]);
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
    assert!(accepted > 1000, "many changes leave every field valid: {accepted}");
}

#[test]
fn pair_joins_ports_of_one_subnet_in_order() {
    let (a, b) = (infiniband(1), infiniband(2));
    assert_eq!(pair(&[a, b, a], &[b, a, a]), [Some(1), Some(0), Some(2)]);
    assert_eq!(pair(&[a, a, a], &[a]), [Some(0), None, None]);
    assert_eq!(pair(&[a], &[b]), [None]);
    assert_eq!(pair(&[], &[a]), []);
    assert_eq!(pair(&[a], &[]), [None]);
}

#[test]
fn pair_joins_no_ports_of_different_layers_or_gid_types() {
    let v4 = ethernet();
    let v6 = PortAddress { gid: [0x20; 16], ..v4 };
    let v1 = PortAddress { gid_type: GID_ROCE_V1, ..v6 };
    let all = [v4, v6, v1, infiniband(1)];
    for (index, port) in all.iter().enumerate() {
        let wanted: Vec<_> = (0..all.len()).map(|other| (other == index).then_some(0)).collect();
        assert_eq!(pair(&all, &[*port]), wanted);
    }
}

/// A RoCE port whose GID is this IPv4 address, in a subnet of this prefix length.
fn ipv4(address: [u8; 4], bits: u8) -> PortAddress {
    let mut gid = ethernet().gid;
    gid[12..].copy_from_slice(&address);
    PortAddress { gid, subnet_length: 96 + bits, ..ethernet() }
}

/// A RoCE port whose GID is this IPv6 address.
fn ipv6(address: &str) -> PortAddress {
    let gid = address.parse::<Ipv6Addr>().expect("an address").octets();
    PortAddress { gid, subnet_length: 64, ..ethernet() }
}

#[test]
fn pair_joins_roce_ports_of_one_ip_subnet_whatever_their_order() {
    let (a, b, c) = (ipv4([10, 0, 1, 1], 24), ipv4([10, 0, 2, 1], 24), ipv4([10, 0, 3, 1], 24));
    let (other_a, other_b) = (ipv4([10, 0, 1, 2], 24), ipv4([10, 0, 2, 2], 24));
    assert_eq!(pair(&[a, b], &[other_b, other_a]), [Some(1), Some(0)]);
    assert_eq!(pair(&[c, a], &[other_a, other_b]), [Some(1), Some(0)], "the other ports are paired in order");
    assert_eq!(pair(&[a, a, b], &[other_a, other_b, other_a]), [Some(0), Some(2), Some(1)]);
    let wide = ipv4([10, 0, 2, 9], 16);
    assert_eq!(pair(&[a, b], &[wide, other_b]), [Some(0), Some(1)], "another netmask is another subnet");
    let (here, there) = (["2001:db8:1::1", "2001:db8:2::1"].map(ipv6), ["2001:db8:2::2", "2001:db8:1::2"].map(ipv6));
    assert_eq!(pair(&here, &there), [Some(1), Some(0)]);
}

#[test]
fn pair_joins_roce_ports_of_unknown_subnets_in_order() {
    let unknown = |last: u8| PortAddress { subnet_length: 0, ..ipv4([10, 0, last, 1], 24) };
    assert_eq!(pair(&[unknown(1), unknown(2)], &[unknown(2), unknown(1)]), [Some(0), Some(1)]);
    assert_eq!(
        pair(&[unknown(1), ipv4([10, 0, 2, 1], 24)], &[ipv4([10, 0, 2, 2], 24), unknown(9)]),
        [Some(1), Some(0)]
    );
}

#[test]
fn pair_never_joins_a_link_local_port_with_one_that_is_not() {
    let (global, local) = (ipv6("2001:db8::1"), ipv6("fe80::7"));
    assert_eq!(pair(&[local, global], &[global, local]), [Some(1), Some(0)]);
    assert_eq!(pair(&[local], &[global]), [None]);
    assert_eq!(pair(&[ipv4([169, 254, 0, 1], 16)], &[ipv4([10, 0, 0, 1], 8)]), [None]);
}

#[test]
fn both_sides_compute_the_same_pairs() {
    let mut random = Random::new(3);
    let v6 = PortAddress { gid: [0x20; 16], subnet_length: 64, ..ethernet() };
    let kinds = [
        ethernet(),
        PortAddress { subnet_length: 0, ..ethernet() },
        ipv4([192, 168, 1, 9], 24),
        ipv4([192, 168, 0, 9], 16),
        v6,
        PortAddress { gid: [0x21; 16], ..v6 },
        infiniband(1),
        infiniband(2),
    ];
    for _ in 0..5000 {
        let mut ports = |count: u64| -> Vec<_> { (0..count).map(|_| kinds[random.below(8) as usize]).collect() };
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
fn mtu_codes_are_those_of_verbs() {
    for (code, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
        assert_eq!(mtu_bytes(code), Some(bytes));
        assert_eq!(mtu_code(bytes), Some(code));
    }
    assert_eq!((mtu_bytes(0), mtu_bytes(6), mtu_code(9000)), (None, None, None));
}
