// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of hellos, and a hello for other tests.

use super::*;
use crate::connect::Random;
use crate::select::address::tests::ethernet;

/// The key of the port that receives the tests' hellos.
pub(crate) const KEY: Key = Key::from_bytes(*b"a key of 16 byte");

/// The sender's key.
const SENDER: Key = Key::from_bytes(*b"key of a sender.");

pub(crate) fn hello() -> Hello {
    Hello {
        source: Identity {
            name: PeerName { job: 0x0102_0304, rank: 0x0506_0708 },
            port: 9,
            address: ethernet(),
            key: SENDER,
        },
        destination_instance: 0x1011_1213_1415_1617,
        destination_port: 10,
        qp: QpInfo {
            qpn: 0x0018_191a,
            psn: 0x001c_1d1e,
            epoch: 0x1f20_2122,
            initiator_depth: 11,
            responder_resources: 12,
            endpoint: 0x002a_2b2c,
        },
        heard_qpn: 0x0023_2425,
        heard_epoch: 0x2627_2829,
        confirmed: true,
        declined: None,
    }
}

#[test]
fn the_layout_of_a_hello_is_these_bytes() {
    let mut wanted = b"ibHi".to_vec();
    wanted.extend([4, 1, 9, 10]); // version, flags, source port, destination port
    wanted.extend([4, 3, 2, 1, 8, 7, 6, 5]); // job, rank
    wanted.extend([0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x10]); // destination instance
    wanted.extend([0x22, 0x21, 0x20, 0x1f]); // epoch
    wanted.extend([0x1a, 0x19, 0x18, 0]); // queue pair number
    wanted.extend([0x1e, 0x1d, 0x1c, 0]); // packet sequence number
    wanted.extend([0x29, 0x28, 0x27, 0x26]); // heard epoch
    wanted.extend([0x25, 0x24, 0x23, 0]); // heard queue pair number
    wanted.extend([11, 12, 0, 0]); // reads and atomics out, in; reserved
    wanted.extend([0x2c, 0x2b, 0x2a, 0]); // endpoint
    wanted.extend(ethernet().encode());
    let instances = [ethernet().instance.to_le_bytes(), 0x1011_1213_1415_1617_u64.to_le_bytes()].concat();
    wanted.extend(SENDER.to_bytes().iter().zip(KEY.seal(&instances)).map(|(byte, mask)| byte ^ mask));
    wanted.extend(KEY.seal(&wanted));
    assert_eq!(hello().encode(&KEY).as_slice(), wanted);
    // It fits the smallest datagram, of 256 bytes.
    assert_eq!((wanted.len(), Hello::SIZE), (204, 204));
    assert_eq!(Hello::decode(&wanted, &KEY), Ok(hello()));
}

#[test]
fn a_hello_says_whether_it_declines_and_for_how_long() {
    for declined in [None, Some(Declined::ForNow), Some(Declined::Taken), Some(Declined::Unmet)] {
        let hello = Hello { declined, ..hello() };
        assert_eq!(Hello::decode(&hello.encode(&KEY), &KEY), Ok(hello));
    }
    assert!(Declined::of(2 | 4).is_err() && Declined::of(16).is_err());
}

#[test]
fn a_hello_does_not_show_the_keys() {
    let bytes = hello().encode(&KEY);
    assert!(!bytes.windows(Key::SIZE).any(|part| part == KEY.to_bytes() || part == SENDER.to_bytes()));
}

#[test]
fn decode_refuses_every_changed_bit() {
    let good = hello().encode(&KEY);
    for bit in 0..good.len() * 8 {
        let mut bytes = good;
        bytes[bit / 8] ^= 1 << (bit % 8);
        let refusal = Hello::decode(&bytes, &KEY).expect_err("changed");
        let wanted = match bit / 8 {
            0..4 => matches!(refusal, HelloError::Magic),
            4 => matches!(refusal, HelloError::Version { .. }),
            _ => matches!(refusal, HelloError::Unsealed { .. }),
        };
        assert!(wanted, "bit {bit}: {refusal}");
    }
}

#[test]
fn decode_refuses_a_hello_sealed_without_the_key_whatever_its_fields() {
    let mut random = Random::new(12);
    for _ in 0..2000 {
        let key = Key::from_bytes(std::array::from_fn(|_| random.number() as u8));
        let refusal = Hello::decode(&hello().encode(&key), &KEY).expect_err("another key");
        assert_eq!(refusal, HelloError::Unsealed { named: hello().source.name });
    }
    let text = HelloError::Unsealed { named: PeerName { job: 0x10001, rank: 77 } }.to_string();
    assert!(text.contains("rank 77 ([[1,1],77])") && text.contains("not of this job"), "{text}");
}

#[test]
fn decode_refuses_every_other_length() {
    let good = [hello().encode(&KEY).as_slice(), &[0; 8]].concat();
    for length in (0..good.len()).filter(|length| *length != Hello::SIZE) {
        assert_eq!(Hello::decode(&good[..length], &KEY), Err(HelloError::Length { got: length }));
    }
}

#[test]
fn decode_distinguishes_another_version_from_damage() {
    let mut bytes = hello().encode(&KEY);
    bytes[4] = 1;
    let refusal = Hello::decode(&bytes, &KEY).expect_err("version 1");
    assert_eq!(refusal, HelloError::Version { got: 1 });
    assert!(refusal.to_string().contains("install the same ibex"), "{refusal}");
}

#[test]
fn decode_checks_every_field_before_use() {
    type Spoil = fn(&mut Hello);
    let spoilt: [(&str, Spoil); 8] = [
        ("queue pair number", |h| h.qp.qpn = 0),
        ("queue pair number", |h| h.qp.qpn = 1 << 24),
        ("packet sequence number", |h| h.qp.psn = 1 << 24),
        ("epoch", |h| h.qp.epoch = 0),
        ("endpoint", |h| h.qp.endpoint = 1 << 24),
        ("heard queue pair number", |h| h.heard_qpn = 1 << 24),
        ("heard epoch", |h| h.heard_epoch = 0),
        ("heard epoch", |h| h.heard_qpn = 0),
    ];
    for (wanted, spoil) in spoilt {
        let mut bad = hello();
        spoil(&mut bad);
        let refusal = Hello::decode(&bad.encode(&KEY), &KEY).expect_err(wanted);
        assert!(matches!(refusal, HelloError::Field { field, .. } if field == wanted), "{wanted}: {refusal}");
    }
    let mut bad = hello();
    bad.source.address.mtu = 0;
    assert!(matches!(Hello::decode(&bad.encode(&KEY), &KEY), Err(HelloError::Address(_))));
}

#[test]
fn no_random_input_panics_even_with_a_right_seal() {
    let mut random = Random::new(11);
    for _ in 0..20_000 {
        let mut bytes = hello().encode(&KEY);
        for _ in 0..=random.below(4) {
            bytes[4 + random.below(SEAL as u64 - 4) as usize] = random.number() as u8;
        }
        let seal = KEY.seal(&bytes[..SEAL]);
        bytes[SEAL..].copy_from_slice(&seal);
        if let Ok(hello) = Hello::decode(&bytes, &KEY) {
            assert_eq!(hello.encode(&KEY), bytes);
        }
    }
}
