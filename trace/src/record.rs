// SPDX-License-Identifier: MIT OR Apache-2.0
//! An event in memory, between the recorder's callback and the writer: 32 bytes if its values are small. Packs the
//! values of an event into one or more [`Record`]s, and unpacks them. A value takes as many bytes as it needs; a code
//! of three bits says how many. If 16 bytes do not hold all values of an event, records without a head follow. A record
//! does not contain the thread, because a batch belongs to one thread. Path: [`Layout::pack_into`] is hot (the
//! recorder's callback): no allocation, no lock. Threads: plain data. Tests: below.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::head::{Element, EventType, MOST_ELEMENTS};

const MOST_RECORDS: usize = 5;

/// Offset of the values, after ticks and the word of codes, type and source.
const VALUES_AT: usize = 16;

/// Number of bytes of values in the first record of an event.
const IN_FIRST: usize = size_of::<Record>() - VALUES_AT;

/// Most bytes of an event's values, plus eight for the width of one load.
const MOST_BYTES: usize = MOST_ELEMENTS * 8 + 8;

const IN_FURTHER: usize = size_of::<Record>();

/// All values of an event, each as its 64 bits: a signed one sign-extended.
pub type Values = [u64; MOST_ELEMENTS];

/// An event, or the continuation of the previous record.
///
/// Words of the first of an event: ticks; codes of the values' sizes (bits 0 to 47, three for each), type (48 to 55),
/// source (56 to 63); values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Record {
    /// The content, little-endian, as four words.
    pub words: [u64; 4],
}

impl Record {
    /// Time in ticks of the source.
    #[inline]
    pub fn ticks(&self) -> u64 {
        u64::from_le(self.words[0])
    }

    #[inline]
    fn head(&self) -> u64 {
        u64::from_le(self.words[1])
    }

    /// The number of the type.
    #[inline]
    pub fn event_type(&self) -> u8 {
        (self.head() >> 48) as u8
    }

    /// The number of the source.
    #[inline]
    pub fn source(&self) -> u8 {
        (self.head() >> 56) as u8
    }

    /// The number of records of the event that begins here.
    #[inline]
    pub fn records(&self) -> usize {
        let bytes = length_of_all(self.head());
        if bytes <= IN_FIRST { 1 } else { 1 + (bytes - IN_FIRST).div_ceil(IN_FURTHER) }
    }
}

/// Memory for a packed event: the longest event, plus the excess of one store.
pub type Room = [Record; MOST_RECORDS + 1];

/// How the events of a type are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    event_type: u8,
    elements: u8,
    /// Bit n: element n is signed.
    signed: u16,
}

impl Layout {
    /// The layout of the type with this number. Elements beyond [`MOST_ELEMENTS`] are left out.
    pub fn new(event_type: u8, of: &EventType) -> Layout {
        let elements = of.elements.len().min(MOST_ELEMENTS);
        let bit = |(place, element): (usize, &Element)| u16::from(element.kind.is_signed()) << place;
        let signed = of.elements.iter().take(elements).enumerate().map(bit).sum();
        Layout { event_type, elements: elements as u8, signed }
    }

    /// Returns the number of elements.
    #[inline]
    pub fn elements(self) -> usize {
        usize::from(self.elements)
    }

    /// The records of an event. Values beyond the type's elements are ignored.
    pub fn pack(self, source: u8, ticks: u64, values: &Values) -> Vec<Record> {
        let mut room = Room::default();
        let used = self.pack_into(source, ticks, |element| values[element], &mut room);
        room[..used].to_vec()
    }

    /// Packs an event in place, and returns the number of records. Bytes after the last value have no meaning. Never
    /// reads what it has written, because a load that covers several pending stores would stall.
    #[inline]
    pub fn pack_into(self, source: u8, ticks: u64, value: impl Fn(usize) -> u64, room: &mut Room) -> usize {
        let (mut at, mut codes) = (VALUES_AT, 0);
        let mut signed = self.signed;
        let bytes: &mut [u8; size_of::<Room>()] = zerocopy::transmute_mut!(room);
        for element in 0..self.elements() {
            let value = value(element);
            let folded = if signed & 1 == 1 { fold(value) } else { value };
            signed >>= 1;
            let code = code(folded);
            codes |= u64::from(code) << (3 * element);
            // Store eight bytes at once; the next value overwrites the excess.
            if let Some(eight) = bytes[at..].first_chunk_mut() {
                *eight = folded.to_le_bytes();
            }
            at += length(code);
        }
        let head = codes | u64::from(self.event_type) << 48 | u64::from(source) << 56;
        (room[0].words[0], room[0].words[1]) = (ticks.to_le(), head.to_le());
        at.div_ceil(size_of::<Record>())
    }

    /// Writes the zigzag-encoded values ([`fold`]) of the first event to a row of the columns, `apart` words apart.
    #[inline]
    pub(crate) fn unpack(self, records: &[Record], columns: &mut [u64], apart: usize, row: usize) {
        let bytes = records.as_bytes();
        let codes = records[0].head();
        if let Some(values) = bytes.get(VALUES_AT..).and_then(<[u8]>::first_chunk::<{ IN_FIRST + 8 }>)
            && self.take_out(codes, values, columns, (row, apart)) <= IN_FIRST
        {
            return;
        }
        // The event has several records, or is the last one.
        let mut values = [0_u8; MOST_BYTES];
        let count = (bytes.len() - VALUES_AT).min(MOST_BYTES);
        values[..count].copy_from_slice(&bytes[VALUES_AT..VALUES_AT + count]);
        self.take_out(codes, &values, columns, (row, apart));
    }

    /// Writes the values of these codes, and returns their number of bytes; above `N - 8` the values are invalid.
    #[inline]
    fn take_out<const N: usize>(
        self,
        mut codes: u64,
        bytes: &[u8; N],
        columns: &mut [u64],
        (mut place, apart): (usize, usize),
    ) -> usize {
        let mut at = 0;
        for _ in 0..self.elements {
            let code = codes & 7;
            // Only a value without bytes can begin at the end.
            let eight = bytes[at & (N - 9)..].first_chunk().copied().unwrap_or_default();
            columns[place] = u64::from_le_bytes(eight) & MASKS[code as usize];
            place += apart;
            at += length(code as u8);
            codes >>= 3;
        }
        at
    }

    /// The values of the event at the beginning of `records`; 0 beyond the type's elements.
    pub fn values(self, records: &[Record]) -> Values {
        let mut values = [0; MOST_ELEMENTS];
        self.unpack(records, &mut values, 1, 0);
        std::array::from_fn(|element| self.unfold(element, values[element]))
    }

    #[inline]
    pub(crate) fn unfold(self, element: usize, folded: u64) -> u64 {
        if self.signed >> element & 1 == 1 { (folded >> 1) ^ (folded & 1).wrapping_neg() } else { folded }
    }
}

/// The zigzag encoding of a signed value.
#[inline]
fn fold(value: u64) -> u64 {
    (value << 1) ^ (value.cast_signed() >> 63).cast_unsigned()
}

/// The code for the size of a value: bytes up to 6; 7 stands for 8.
#[inline]
fn code(value: u64) -> u8 {
    ((71 - value.leading_zeros()) / 8).min(7) as u8
}

#[inline]
fn length(code: u8) -> usize {
    usize::from(code) + usize::from(code == 7)
}

const MASKS: [u64; 8] =
    [0, 0xff, 0xffff, 0xff_ffff, 0xffff_ffff, 0xff_ffff_ffff, 0xffff_ffff_ffff, 0xffff_ffff_ffff_ffff];

/// Number of bytes of all values: adds up the sixteen codes of three bits, by twos, by fours, then by a multiplication.
#[inline]
fn length_of_all(word: u64) -> usize {
    const LOW: u64 = 0o1_111_111_111_111_111;
    let codes = word & (LOW * 7);
    let twos = (codes & 0o707_070_707_070_707) + (codes >> 3 & 0o707_070_707_070_707);
    let fours = (twos & 0o77_007_700_770_077) + (twos >> 6 & 0o77_007_700_770_077);
    let sum = (fours.wrapping_mul(0o1_000_100_010_001) >> 36 & 0o7777) as usize;
    // Code 7 stands for 8 bytes.
    let eights = codes & codes >> 1 & codes >> 2 & LOW;
    if eights == 0 { sum } else { sum + eights.count_ones() as usize }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::ElementKind;
    use proptest::prelude::*;

    fn layout(signed: &[bool]) -> Layout {
        let kind = |signed| if signed { ElementKind::I64 } else { ElementKind::U64 };
        let elements = signed.iter().map(|&signed| Element::new("e", kind(signed), "")).collect();
        Layout::new(7, &EventType { name: "t".into(), description: String::new(), elements })
    }

    #[test]
    fn an_event_with_small_values_takes_32_bytes() {
        assert_eq!(size_of::<Record>(), 32);
        // The type with the most elements (docs/events.md), for a message of 8 bytes between two of 1000 ranks.
        let mut values = [0; MOST_ELEMENTS];
        values[..11].copy_from_slice(&[0, 4_000_000_000, 0, 8, 8, 3, 1023, 999, 65535, 1, 1022]);
        assert_eq!(layout(&[false; 11]).pack(3, 1 << 60, &values).len(), 1);
    }

    #[test]
    fn a_code_says_how_many_bytes_a_value_takes() {
        for (value, bytes) in [(0, 0), (1, 1), (255, 1), (256, 2), (1 << 47, 6), (1 << 48, 8), (u64::MAX, 8)] {
            assert_eq!(length(code(value)), bytes, "{value}");
        }
    }

    fn any_value() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0..=64_u32).prop_map(|(value, shift)| value.checked_shr(shift).unwrap_or(0))
    }

    proptest! {
        #[test]
        fn unpacking_returns_the_packed_values(
            signed in proptest::collection::vec(any::<bool>(), 0..=MOST_ELEMENTS),
            values in proptest::collection::vec(any_value(), MOST_ELEMENTS),
            (source, ticks) in any::<(u8, u64)>(),
        ) {
            let layout = layout(&signed);
            let values: Values = values.try_into().expect("as many");
            let packed = layout.pack(source, ticks, &values);
            let first = packed[0];
            prop_assert_eq!((first.event_type(), first.source(), first.ticks()), (7, source, ticks));
            prop_assert_eq!(first.records(), packed.len());
            let mut got = vec![0; signed.len() * 2];
            layout.unpack(&packed, &mut got, 2, 1);
            let got: Vec<u64> = got.into_iter().skip(1).step_by(2).collect();
            for element in 0..signed.len() {
                prop_assert_eq!(layout.unfold(element, got[element]), values[element]);
            }
            prop_assert_eq!(&layout.values(&packed)[..signed.len()], &values[..signed.len()]);
        }
    }
}
