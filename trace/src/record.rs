// SPDX-License-Identifier: MIT OR Apache-2.0
//! An event in memory, between the callback that gets it and the writer: 32 bytes, where its values are small.
//!
//! Owns [`Record`], and how the values of an event are put into one or more ([`Layout::pack`]) and taken out. A value
//! takes as many bytes as it needs, none if it is 0; a code of three bits says how many. Where 16 bytes do not hold all
//! values of an event, records without a head follow its first. The thread is not in it: a batch is of one thread.
//!
//! Path: [`Layout::pack`] is hot (the recorder's callback): no allocation, no lock. Threads: plain data. Tests: below.

use crate::head::EventType;

/// How many elements a type may have.
pub const MOST_ELEMENTS: usize = 16;

/// How many records an event may take.
pub const MOST_RECORDS: usize = 5;

/// How many bytes of values the first record of an event holds.
const IN_FIRST: usize = 16;

/// How many bytes of values a following one holds.
const IN_FURTHER: usize = size_of::<Record>();

/// All values of an event, each as its 64 bits: a signed one sign-extended.
pub type Values = [u64; MOST_ELEMENTS];

/// An event, or what did not fit of the one before.
///
/// Words of the first of an event: ticks; codes of the values' sizes (bits 0 to 47, three for each), type (48 to 55),
/// source (56 to 63); values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Record {
    /// What it holds. A ring of a recorder may keep it as four words.
    pub words: [u64; 4],
}

impl Record {
    /// When, in ticks of the source.
    #[must_use]
    #[inline]
    pub fn ticks(&self) -> u64 {
        self.words[0]
    }

    /// The number of the type.
    #[must_use]
    #[inline]
    pub fn event_type(&self) -> u8 {
        (self.words[1] >> 48) as u8
    }

    /// The number of the source.
    #[must_use]
    #[inline]
    pub fn source(&self) -> u8 {
        (self.words[1] >> 56) as u8
    }

    /// How many records the event takes of which this is the first.
    #[must_use]
    #[inline]
    pub fn records(&self) -> usize {
        let bytes = length_of_all(self.words[1]);
        if bytes <= IN_FIRST { 1 } else { 1 + (bytes - IN_FIRST).div_ceil(IN_FURTHER) }
    }
}

/// The records of one event.
#[derive(Debug, Clone, Copy)]
pub struct Packed {
    records: [Record; MOST_RECORDS],
    used: usize,
}

impl Packed {
    /// Them.
    #[must_use]
    #[inline]
    pub fn records(&self) -> &[Record] {
        &self.records[..self.used]
    }
}

/// What packing needs to know of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    event_type: u8,
    elements: u8,
    /// Bit n: element n is signed.
    signed: u16,
}

impl Layout {
    /// Of the type with this number. Elements beyond [`MOST_ELEMENTS`] are left out; a head with such is refused.
    #[must_use]
    pub fn new(event_type: u8, of: &EventType) -> Layout {
        let elements = of.elements.len().min(MOST_ELEMENTS);
        let bit = |(place, element): (usize, &crate::Element)| u16::from(element.kind.is_signed()) << place;
        let signed = of.elements.iter().take(elements).enumerate().map(bit).sum();
        Layout { event_type, elements: elements as u8, signed }
    }

    /// How many elements there are.
    #[must_use]
    #[inline]
    pub fn elements(self) -> usize {
        usize::from(self.elements)
    }

    /// An event's records. Of `values` so many count as the type has elements.
    #[must_use]
    #[inline]
    pub fn pack(self, source: u8, ticks: u64, values: &Values) -> Packed {
        let mut bytes = [0_u8; IN_FIRST + (MOST_RECORDS - 1) * IN_FURTHER];
        let (mut at, mut codes) = (0, 0);
        for (element, value) in values.iter().take(self.elements()).enumerate() {
            let folded = self.fold(element, *value);
            let code = code(folded);
            codes |= u64::from(code) << (3 * element);
            // Eight bytes at once: those beyond the value's own are 0, and the next one's place.
            bytes[at..at + 8].copy_from_slice(&folded.to_le_bytes());
            at += length(code);
        }
        let head = codes | u64::from(self.event_type) << 48 | u64::from(source) << 56;
        let word = |place: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[place * 8 + byte]));
        let mut packed = Packed { records: [Record::default(); MOST_RECORDS], used: 1 };
        packed.records[0].words = [ticks, head, word(0), word(1)];
        while IN_FIRST + (packed.used - 1) * IN_FURTHER < at {
            let first = 2 + (packed.used - 1) * 4;
            packed.records[packed.used].words = std::array::from_fn(|index| word(first + index));
            packed.used += 1;
        }
        packed
    }

    /// Gives the folded values ([`Layout::fold`]) of the event at the beginning of `records`, which holds all of it.
    #[inline]
    pub(crate) fn unpack(self, records: &[Record], put: impl FnMut(u64)) {
        if let [only] = records {
            let mut bytes = [0_u8; IN_FIRST + 8];
            bytes[..8].copy_from_slice(&only.words[2].to_le_bytes());
            bytes[8..16].copy_from_slice(&only.words[3].to_le_bytes());
            self.take_out(only.words[1], &bytes, put);
        } else {
            let mut bytes = [0_u8; IN_FIRST + (MOST_RECORDS - 1) * IN_FURTHER];
            let words = records.iter().flat_map(|record| record.words).skip(2);
            for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
                place.copy_from_slice(&word.to_le_bytes());
            }
            self.take_out(records[0].words[1], &bytes, put);
        }
    }

    /// The values of these codes. Behind the last byte of any are at least as many as make eight.
    #[inline]
    fn take_out<const N: usize>(self, mut codes: u64, bytes: &[u8; N], mut put: impl FnMut(u64)) {
        let mut at = 0;
        for _ in 0..self.elements {
            let code = codes & 7;
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[at..at + 8]);
            put(u64::from_le_bytes(eight) & MASKS[code as usize]);
            at += length(code as u8);
            codes >>= 3;
        }
    }

    /// A value as it is stored: of a signed one, small numbers of either sign become small.
    #[inline]
    pub(crate) fn fold(self, element: usize, value: u64) -> u64 {
        if self.signed >> element & 1 == 1 { (value << 1) ^ (value.cast_signed() >> 63).cast_unsigned() } else { value }
    }

    /// The value of what is stored.
    #[inline]
    pub(crate) fn unfold(self, element: usize, folded: u64) -> u64 {
        if self.signed >> element & 1 == 1 { (folded >> 1) ^ (folded & 1).wrapping_neg() } else { folded }
    }
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

/// What of eight bytes is the value, by code.
const MASKS: [u64; 8] =
    [0, 0xff, 0xffff, 0xff_ffff, 0xffff_ffff, 0xff_ffff_ffff, 0xffff_ffff_ffff, 0xffff_ffff_ffff_ffff];

/// The bytes of all values, from the word that has their codes. The sum of sixteen numbers of three bits, without a
/// loop: by twos, by fours, then all by a multiplication.
#[inline]
fn length_of_all(word: u64) -> usize {
    const LOW: u64 = 0o1_111_111_111_111_111;
    let codes = word & (LOW * 7);
    let twos = (codes & 0o707_070_707_070_707) + (codes >> 3 & 0o707_070_707_070_707);
    let fours = (twos & 0o77_007_700_770_077) + (twos >> 6 & 0o77_007_700_770_077);
    let sum = (fours.wrapping_mul(0o1_000_100_010_001) >> 36 & 0o7777) as usize;
    // Of 8 bytes the code is 7.
    let eights = codes & codes >> 1 & codes >> 2 & LOW;
    if eights == 0 { sum } else { sum + eights.count_ones() as usize }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::{Element, ElementKind};
    use proptest::prelude::*;

    fn layout(signed: &[bool]) -> Layout {
        let kind = |signed| if signed { ElementKind::I64 } else { ElementKind::U64 };
        let elements = signed.iter().map(|&signed| Element::new("e", kind(signed), "")).collect();
        Layout::new(7, &EventType { name: "t".into(), description: String::new(), elements })
    }

    #[test]
    fn an_event_with_small_values_takes_32_bytes() {
        assert_eq!(size_of::<Record>(), 32);
        // Of the type with the most elements (docs/events.md), a message of 8 bytes between any two of a thousand ranks.
        let mut values = [0; MOST_ELEMENTS];
        values[..11].copy_from_slice(&[0, 4_000_000_000, 0, 8, 8, 3, 1023, 999, 65535, 1, 1022]);
        assert_eq!(layout(&[false; 11]).pack(3, 1 << 60, &values).records().len(), 1);
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
        fn what_is_packed_comes_out(
            signed in proptest::collection::vec(any::<bool>(), 0..=MOST_ELEMENTS),
            values in proptest::collection::vec(any_value(), MOST_ELEMENTS),
            (source, ticks) in any::<(u8, u64)>(),
        ) {
            let layout = layout(&signed);
            let values: Values = values.try_into().expect("as many");
            let packed = layout.pack(source, ticks, &values);
            let first = packed.records()[0];
            prop_assert_eq!((first.event_type(), first.source(), first.ticks()), (7, source, ticks));
            prop_assert_eq!(first.records(), packed.records().len());
            let mut got = Vec::new();
            layout.unpack(packed.records(), |value| got.push(value));
            prop_assert_eq!(got.len(), signed.len());
            for element in 0..signed.len() {
                prop_assert_eq!(layout.unfold(element, got[element]), values[element]);
            }
        }
    }
}
