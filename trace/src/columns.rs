// SPDX-License-Identifier: MIT OR Apache-2.0
//! One column: the values of one element in the events of a block. Stores each value as its excess over the least
//! value, or each step as its excess over the least step. All have the width of the greatest; first come the lowest
//! bytes of all, then the next ones: `zstd` compresses such planes well; both directions are loops without a branch.
//! Equal values or steps take only a head. Path: pending; ten times per event. Threads: plain data. Tests: below.

use crate::parse::{Bytes, Malformed, push_varint};

/// Code of values above the least one. The lower half of the code is the number of bytes of each.
const VALUES: u8 = 0x00;

const STEPS: u8 = 0x10;

fn width(value: u64) -> usize {
    (71 - value.leading_zeros() as usize) / 8
}

/// Appends a column to `to`; an empty one has no bytes.
pub(crate) fn encode(values: &[u64], to: &mut Vec<u8>) {
    let Some(&first) = values.first() else { return };
    // Finds the bits that differ without comparisons, so several values at a time.
    let differs = values.iter().fold(0, |differs, value| differs | (value ^ first));
    if differs < 0x100 {
        // If values are equal, except perhaps for the lowest byte, steps would not be smaller.
        let least = if differs == 0 { first } else { first & !0xff };
        encode_values(values, least, width(differs), to);
        return;
    }
    let (mut least, mut most) = (first, first);
    let (mut least_step, mut most_step) = (i64::MAX, i64::MIN);
    let mut before = first;
    for &value in &values[1..] {
        (least, most) = (least.min(value), most.max(value));
        let step = value.wrapping_sub(before).cast_signed();
        (least_step, most_step) = (least_step.min(step), most_step.max(step));
        before = value;
    }
    let value_width = width(most - least);
    let step_width = width(most_step.wrapping_sub(least_step).cast_unsigned());
    // Steps have eight bytes more in the head.
    if step_width < value_width {
        encode_steps(values, least_step, step_width, to);
    } else {
        encode_values(values, least, value_width, to);
    }
}

fn encode_values(values: &[u64], least: u64, width: usize, to: &mut Vec<u8>) {
    to.push(VALUES | width as u8);
    push_varint(to, least);
    for (plane, bytes) in planes(values.len(), width, to) {
        for (byte, value) in bytes.iter_mut().zip(values) {
            *byte = ((value - least) >> (plane * 8)) as u8;
        }
    }
}

fn encode_steps(values: &[u64], least: i64, width: usize, to: &mut Vec<u8>) {
    to.push(STEPS | width as u8);
    push_varint(to, values[0]);
    to.extend_from_slice(&least.to_le_bytes());
    let least = least.cast_unsigned();
    for (plane, bytes) in planes(values.len() - 1, width, to) {
        for (byte, (value, before)) in bytes.iter_mut().zip(values[1..].iter().zip(values)) {
            *byte = (value.wrapping_sub(*before).wrapping_sub(least) >> (plane * 8)) as u8;
        }
    }
}

fn planes(count: usize, width: usize, to: &mut Vec<u8>) -> impl Iterator<Item = (usize, &mut [u8])> {
    let begin = to.len();
    to.resize(begin + count * width, 0);
    // A width of 0 has no planes.
    to[begin..].chunks_exact_mut(count.max(1)).enumerate()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Column {
    Same(u64),
    Values(Vec<u64>),
}

impl Column {
    #[inline]
    pub(crate) fn value(&self, row: usize) -> u64 {
        match self {
            Column::Same(value) => *value,
            Column::Values(values) => values[row],
        }
    }
}

pub(crate) fn decode(count: usize, from: &mut Bytes<'_>) -> Result<Column, Malformed> {
    if count == 0 {
        return Ok(Column::Same(0));
    }
    let code = from.u8()?;
    let bytes = usize::from(code & 0x0f);
    if bytes > 8 {
        return Err(Malformed("a column of numbers of at most 8 bytes"));
    }
    match code & 0xf0 {
        VALUES => {
            let least = from.varint()?;
            if bytes == 0 {
                return Ok(Column::Same(least));
            }
            let mut values = vec![least; count];
            add_planes(&mut values, bytes, from)?;
            Ok(Column::Values(values))
        }
        STEPS => {
            let first = from.varint()?;
            let least = from.u64()?;
            let mut values = vec![least; count];
            values[0] = first;
            add_planes(&mut values[1..], bytes, from)?;
            let mut sum = 0_u64;
            for value in &mut values {
                sum = sum.wrapping_add(*value);
                *value = sum;
            }
            Ok(Column::Values(values))
        }
        _ => Err(Malformed("a column of values or of steps")),
    }
}

fn add_planes(values: &mut [u64], bytes: usize, from: &mut Bytes<'_>) -> Result<(), Malformed> {
    for plane in 0..bytes {
        let stored = from.take(values.len())?;
        for (value, byte) in values.iter_mut().zip(stored) {
            *value = value.wrapping_add(u64::from(*byte) << (plane * 8));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(values: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(values, &mut bytes);
        bytes
    }

    fn both_ways(values: &[u64]) {
        let bytes = encoded(values);
        let mut rest = Bytes(&bytes);
        let column = decode(values.len(), &mut rest).expect("decodes");
        assert_eq!(rest.end(), Ok(()));
        let got: Vec<u64> = (0..values.len()).map(|row| column.value(row)).collect();
        assert_eq!(got, values);
    }

    #[test]
    fn equal_values_and_equal_steps_take_a_few_bytes() {
        assert_eq!(encoded(&[77; 1000]).len(), 2);
        assert!(encoded(&(0..1000).map(|number| number * 64).collect::<Vec<_>>()).len() < 12);
        assert!(encoded(&(0..1000).map(|number| (1 << 40) + number % 7).collect::<Vec<_>>()).len() < 1010);
    }

    #[test]
    fn decode_returns_extreme_values() {
        for values in [
            &[u64::MAX][..],
            &[0, u64::MAX, 0],
            &[u64::MAX, 0],
            &[1 << 63, 0, 1 << 63, u64::MAX],
            &[5, 4, 3, 2, 1, 0, u64::MAX],
        ] {
            both_ways(values);
        }
        both_ways(&[]);
    }

    #[test]
    fn decode_refuses_foreign_codes_and_too_few_bytes() {
        for bytes in [&[][..], &[0x20, 1], &[0x09, 1], &[0x02, 1, 0, 0, 0], &[0x11, 1, 0]] {
            assert!(decode(2, &mut Bytes(bytes)).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_encoded_column_decodes(values in proptest::collection::vec(any::<u64>(), 0..50), shift in 0..64_u32) {
            both_ways(&values.iter().map(|value| value >> shift).collect::<Vec<_>>());
            both_ways(&values);
        }

        #[test]
        fn no_bytes_make_it_panic(count in 0..100_usize, bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(count, &mut Bytes(&bytes));
        }
    }
}
