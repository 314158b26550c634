// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests: headers come back as they were encoded, and other bytes are refused.

use super::*;
use crate::messenger::matching::{ADDR_UNSPEC, Tagged};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

fn number() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0), 0..1000_u32, any::<u32>(), Just(u32::MAX)]
}

fn context() -> impl Strategy<Value = u32> {
    prop_oneof![0..10_u32, 0xfff0..0x1000f_u32, 0..1_u32 << CONTEXT, Just((1_u32 << CONTEXT) - 1)]
}

/// Matches of MPI on both sides of each bound of the short form.
fn mpi() -> BoxedStrategy<Match> {
    let rank = prop_oneof![0..10_i32, 0xfff0..0x1000f_i32, 0..=i32::MAX];
    let edge = 1_i32 << 23;
    let tag = prop_oneof![-10..10_i32, edge - 5..edge + 5, -edge - 5..5 - edge, any::<i32>()];
    (context(), rank, tag).prop_map(|(context, rank, tag)| Match::new(context, rank, tag)).boxed()
}

fn tagged() -> BoxedStrategy<Match<Tagged>> {
    let of = |(context, tag, data)| Match { context, envelope: Tagged { source: ADDR_UNSPEC, tag, data } };
    (context(), any::<u64>(), any::<Option<u64>>()).prop_map(of).boxed()
}

fn why() -> impl Strategy<Value = Reason> {
    prop::sample::select(&[Reason::Gaps, Reason::NotRegistered, Reason::HeldBack, Reason::Adapter])
}

fn memory() -> impl Strategy<Value = Memory> {
    prop_oneof![
        (any::<u32>(), 1..=u64::MAX, any::<u64>()).prop_map(|(key, address, length)| {
            // The memory ends within the address space.
            Memory::Readable { key, address, length: length.min(u64::MAX - address) }
        }),
        (why(), any::<u64>()).prop_map(|(why, length)| Memory::Unreadable { why, length }),
    ]
}

fn header<E>(matched: fn() -> BoxedStrategy<Match<E>>) -> impl Strategy<Value = Header<E>>
where
    E: WireEnvelope + 'static,
{
    prop_oneof![
        matched().prop_map(Header::Eager),
        (matched(), number()).prop_map(|(of, request)| Header::Synchronous(of, request)),
        (matched(), number()).prop_map(|(of, request)| Header::Delivered(of, request)),
        (matched(), number(), memory()).prop_map(|(of, request, memory)| Header::ReadyToSend(of, request, memory)),
        (matched(), number(), memory()).prop_map(|(of, request, memory)| Header::ReadyToSendKeyed(of, request, memory)),
        (number(), number()).prop_map(|(segment, count)| Header::Moved { segment, count }),
        (number(), number(), why(), any::<u64>())
            .prop_map(|(request, receive, why, length)| { Header::ClearToSend { request, receive, why, length } }),
        (number(), any::<u64>()).prop_map(|(receive, offset)| Header::Fragment { receive, offset }),
        (number(), any::<u64>()).prop_map(|(request, length)| Header::Finished { request, length }),
        number().prop_map(|request| Header::Acknowledge { request }),
        (any::<u64>(), any::<bool>()).prop_map(|(number, holds_back)| Header::Flow(Word { number, holds_back })),
        number().prop_map(Header::Pending),
        number().prop_map(Header::More),
    ]
}

fn has_data<E>(header: &Header<E>) -> bool {
    matches!(
        header,
        Header::Eager(_)
            | Header::Synchronous(..)
            | Header::Delivered(..)
            | Header::ReadyToSendKeyed(..)
            | Header::Fragment { .. }
    )
}

/// Checks that the encoded header, with the first of the `data` that may follow it, is decoded.
fn comes_back<E: WireEnvelope>(header: Header<E>, data: &[u8]) -> Result<(), TestCaseError> {
    let bytes = header.encode();
    let whole = match header {
        Header::ReadyToSendKeyed(..) => data.len() / PortKey::SIZE * PortKey::SIZE,
        _ if has_data(&header) => data.len(),
        _ => 0,
    };
    let data = &data[..whole];
    let message = [bytes.as_slice(), data].concat();
    prop_assert_eq!(Header::decode(&message), Some((header, data)));
    let eager = if let Header::Eager(of) = header { Some((of, data)) } else { None };
    prop_assert_eq!(E::from_eager(&message), eager);
    Ok(())
}

fn is_refused_if_cut<E: WireEnvelope>(header: Header<E>, cut: prop::sample::Index) -> Result<(), TestCaseError> {
    let bytes = header.encode();
    let cut = &bytes[..cut.index(bytes.len())];
    prop_assert_eq!(Header::<E>::decode(cut), None);
    prop_assert_eq!(E::from_eager(cut), None);
    if !has_data(&header) {
        let longer = [bytes.as_slice(), &[0]].concat();
        prop_assert_eq!(Header::<E>::decode(&longer), None);
    }
    Ok(())
}

fn is_refused_or_encoded_so<E: WireEnvelope>(message: &[u8]) -> Result<(), TestCaseError> {
    if let Some((header, data)) = Header::<E>::decode(message) {
        prop_assert_eq!([header.encode().as_slice(), data].concat(), message);
    }
    Ok(())
}

proptest! {
    #[test]
    fn decode_returns_the_header_and_data(
        (header, tagged) in (header(mpi), header(tagged)),
        data in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        comes_back(header, &data)?;
        comes_back(tagged, &data)?;
        if let Header::Eager(of) = header {
            let eager = EagerSender::new(of.context, of.envelope.source()).header(of.envelope.tag());
            prop_assert_eq!(eager.to_vec(), header.encode().to_vec());
        }
    }

    #[test]
    fn decode_refuses_a_header_that_is_too_short_or_too_long(
        (header, tagged) in (header(mpi), header(tagged)),
        cut in any::<prop::sample::Index>(),
    ) {
        is_refused_if_cut(header, cut)?;
        is_refused_if_cut(tagged, cut)?;
    }

    #[test]
    fn decode_accepts_only_the_bytes_that_encode_makes(
        first in prop_oneof![0..0x40_u8, any::<u8>()],
        rest in prop::collection::vec(prop_oneof![3 => Just(0_u8), 1 => any::<u8>()], 0..MAX_TAGGED_SIZE + 2),
    ) {
        let message = [&[first][..], &rest].concat();
        is_refused_or_encoded_so::<Envelope>(&message)?;
        is_refused_or_encoded_so::<Tagged>(&message)?;
    }
}

const MATCH: Match = Match::new(3, 2, 7);

#[test]
fn every_field_of_the_eager_header_and_of_the_short_form_has_its_bytes() {
    let far = Match::new(0x0010_0001, 0x0102_0304, -1_073_741_822);
    for (header, bytes) in [
        (Header::Eager(MATCH), [0x11, 3, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0]),
        (Header::Eager(far), [0x11, 1, 0, 0x10, 4, 3, 2, 1, 2, 0, 0, 0xc0]),
        (Header::Synchronous(Match::new(3, 2, -2), 9), [2, 2, 0, 3, 0, 0xfe, 0xff, 0xff, 9, 0, 0, 0]),
    ] {
        assert_eq!(header.encode().as_slice(), bytes, "{header:?}");
    }
}

#[test]
fn every_field_of_libfabrics_form_has_its_bytes() {
    let of = |data| Match { context: 0x0003_0201, envelope: Tagged { source: 7, tag: 0x8070_6050_4030_2010, data } };
    let tag = [0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80];
    assert_eq!(Header::Eager(of(None)).encode()[..], [&[1, 1, 2, 3][..], &tag].concat());
    let with_data = [&[0x22, 1, 2, 3][..], &tag, &[9, 0, 0, 0, 0, 0, 0, 0xff], &[6, 0, 0, 0]].concat();
    assert_eq!(Header::Synchronous(of(Some(0xff00_0000_0000_0009)), 6).encode()[..], with_data);
    let delivered = [&[13, 1, 2, 3][..], &tag, &[6, 0, 0, 0]].concat();
    assert_eq!(Header::Delivered(of(None), 6).encode()[..], delivered);
}

#[test]
fn the_longest_header_fills_its_room() {
    let memory = Memory::Readable { key: 1, address: 2, length: 3 };
    let of = Match { context: 1, envelope: Tagged { source: 0, tag: 0, data: Some(0) } };
    assert_eq!(Header::ReadyToSendKeyed(of, 4, memory).encode().len(), MAX_TAGGED_SIZE);
    let longest = Header::ReadyToSendKeyed(Match::new(3, 2, i32::MIN), 4, memory).encode();
    assert_eq!(longest.as_slice().len(), MAX_SIZE);
}

#[test]
fn decode_refuses_unknown_kinds_and_flags() {
    let mut message = [0; MAX_SIZE];
    for first in [
        0, 1, 0x0e, 0x10, 0x15, 0x16, 0x18, 0x19, 0x1b, 0x1d, 0x1f, 0x21, 0x22, 0x25, 0x2a, 0x2d, 0x31, 0x41, 0x42,
        0x81, 0xff,
    ] {
        message[0] = first;
        assert_eq!(Header::<Envelope>::decode(&message), None, "{first:#x}");
    }
    assert_eq!(Header::<Envelope>::decode(&[]), None);
}

#[test]
fn decode_refuses_a_field_out_of_its_range() {
    let long = Header::Synchronous(Match::new(3, 1 << 20, 7), 1);
    let up_to_the_end = Header::ReadyToSend(MATCH, 1, Memory::Readable { key: 1, address: u64::MAX - 5, length: 5 });
    for (what, header, at, bits) in [
        ("a negative rank", long, 7, 0x80),
        ("a rank that fits the short form", long, 6, 0x10),
        ("a reserved byte", Header::Finished { request: 1, length: 2 }, 3, 1),
        ("memory past the end", up_to_the_end, 24, 3),
    ] {
        let mut message = header.encode().as_slice().to_vec();
        message[at] ^= bits;
        assert_eq!(Header::<Envelope>::decode(&message), None, "{what}");
    }
}

#[test]
fn decode_refuses_keys_with_a_part_of_one_behind_them() {
    let memory = Memory::Readable { key: 1, address: 2, length: 3 };
    let mut message = Header::ReadyToSendKeyed(MATCH, 1, memory).encode().to_vec();
    for length in 0..3 * PortKey::SIZE {
        let keys = Header::<Envelope>::decode(&message).map(|(_, bytes)| PortKey::decode(bytes).len());
        assert_eq!(keys, (length % PortKey::SIZE == 0).then_some(length / PortKey::SIZE));
        message.push(7);
    }
}

#[test]
fn decode_refuses_a_reason_that_no_process_has() {
    let why = Reason::Adapter;
    let asks = Header::ClearToSend { request: 1, receive: 2, why, length: 3 };
    let announces = Header::ReadyToSend(MATCH, 1, Memory::Unreadable { why, length: 3 });
    for header in [asks, announces] {
        for (code, is_known) in [(why.code(), true), (Reason::Size.code(), false), (u32::MAX, false)] {
            let mut message = header.encode();
            // Both have it at this place.
            message[12..16].copy_from_slice(&code.to_le_bytes());
            assert_eq!(Header::<Envelope>::decode(&message), is_known.then_some((header, &[][..])), "{code}");
        }
    }
}

#[test]
#[should_panic(expected = "cannot be sent")]
fn encode_refuses_a_context_that_no_header_has_room_for() {
    let _ = Header::Eager(Match { context: 1 << CONTEXT, ..MATCH }).encode();
}

#[test]
fn decode_returns_the_encoded_keys_of_ports() {
    let keys = [PortKey { port: 1, key: 0xdead_beef }, PortKey { port: 7, key: 3 }];
    assert_eq!(&*PortKey::decode(&PortKey::encode(&keys)), keys);
}
