// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `arithmetic` and `long_double` against tables. Threads: plain values.

use super::arithmetic::{Complex, Datatype, LARGEST, Number};
#[cfg(target_arch = "x86_64")]
use super::long_double::LongDouble;
#[allow(clippy::wildcard_imports, reason = "libfabric's names of operations and types")]
use crate::sys::*;

/// Returns the result of an operation on values of one type.
fn result<T: Number>(datatype: u32, operation: u32, of: [T; 3]) -> Option<T> {
    let datatype = Datatype::of(datatype).expect("a type");
    assert_eq!(datatype.size, size_of::<T>());
    let mut bytes = [[0; LARGEST]; 4];
    for (value, bytes) in of.into_iter().zip(&mut bytes) {
        value.write(bytes);
    }
    let [target, operand, compared, mut result] = bytes;
    let of = [&target, &operand, &compared].map(|bytes| &bytes[..datatype.size]);
    let is = datatype.apply(operation, of, &mut result[..datatype.size]);
    assert_eq!(is, datatype.has(operation));
    is.then(|| T::read(&result))
}

#[test]
fn integers_follow_the_table_of_the_manual_page() {
    // Operation, target, operand, compared: result. The last value of a byte is that of unsigned ones.
    let table: [(u32, [i8; 3], i8, u8); 30] = [
        (FI_MIN, [3, 5, 0], 3, 3),
        (FI_MIN, [3, -1, 0], -1, 3),
        (FI_MAX, [3, 5, 0], 5, 5),
        (FI_MAX, [3, -1, 0], 3, 255),
        (FI_SUM, [127, 1, 0], -128, 128),
        (FI_SUM, [-1, 3, 0], 2, 2),
        (FI_PROD, [100, 3, 0], 44, 44),
        (FI_LOR, [0, 0, 0], 0, 0),
        (FI_LOR, [0, -4, 0], 1, 1),
        (FI_LAND, [4, 2, 0], 1, 1),
        (FI_LAND, [4, 0, 0], 0, 0),
        (FI_LXOR, [4, 2, 0], 0, 0),
        (FI_LXOR, [0, 2, 0], 1, 1),
        (FI_BOR, [5, 3, 0], 7, 7),
        (FI_BAND, [5, 3, 0], 1, 1),
        (FI_BXOR, [5, 3, 0], 6, 6),
        (FI_ATOMIC_READ, [5, 3, 9], 5, 5),
        (FI_ATOMIC_WRITE, [5, 3, 9], 3, 3),
        (FI_CSWAP, [5, 3, 5], 3, 3),
        (FI_CSWAP, [5, 3, 6], 5, 5),
        (FI_CSWAP_NE, [5, 3, 5], 5, 5),
        (FI_CSWAP_NE, [5, 3, 6], 3, 3),
        (FI_CSWAP_LE, [5, 3, 5], 3, 3),
        (FI_CSWAP_LE, [5, 3, -1], 3, 5),
        (FI_CSWAP_LT, [5, 3, 5], 5, 5),
        (FI_CSWAP_GE, [5, 3, 5], 3, 3),
        (FI_CSWAP_GE, [5, 3, -1], 5, 3),
        (FI_CSWAP_GT, [5, 3, 5], 5, 5),
        (FI_CSWAP_GT, [5, 3, 6], 3, 3),
        (FI_MSWAP, [0b1100, 0b1010, 0b0110], 0b1010, 0b1010),
    ];
    for (operation, of, signed, unsigned) in table {
        assert_eq!(result(FI_INT8, operation, of), Some(signed), "{operation} of {of:?}");
        assert_eq!(result(FI_UINT8, operation, of.map(|value| value as u8)), Some(unsigned), "{operation} of {of:?}");
        // Wider types do not wrap around where bytes do.
        let wide = result(FI_INT128, operation, of.map(i128::from)).map(|value| value as i8);
        assert_eq!(wide, Some(signed), "{operation} of {of:?}");
        let wide = result(FI_INT32, operation, of.map(i32::from)).map(|value| value as i8);
        assert_eq!(wide, Some(signed), "{operation} of {of:?}");
    }
    assert_eq!(result(FI_UINT64, FI_SUM, [u64::MAX, 2, 0]), Some(1));
    assert_eq!(result(FI_UINT128, FI_PROD, [1 << 100, 1 << 20, 0]), Some(1_u128 << 120));
    assert_eq!(result(FI_INT16, FI_MIN, [-300, 300, 0]), Some(-300_i16));
    assert_eq!(result(FI_UINT16, FI_MIN, [65000, 300, 0]), Some(300_u16));
    assert_eq!(result(FI_UINT32, FI_MAX, [u32::MAX, 300, 0]), Some(u32::MAX));
    assert_eq!(result(FI_INT64, FI_MAX, [-1, 300, 0]), Some(300_i64));
    assert_eq!(result(FI_INT64, FI_MSWAP + 1, [1_i64; 3]), None);
}

#[test]
fn reals_compare_as_in_c() {
    let table = [
        (FI_MIN, [1.5, -2.0, 0.0], -2.0),
        (FI_MIN, [1.5, f64::NAN, 0.0], 1.5),
        (FI_MAX, [1.5, f64::INFINITY, 0.0], f64::INFINITY),
        (FI_SUM, [1.5, 0.25, 0.0], 1.75),
        (FI_PROD, [1.5, -2.0, 0.0], -3.0),
        (FI_LOR, [0.0, -0.0, 0.0], 0.0),
        (FI_LAND, [f64::NAN, 2.0, 0.0], 1.0),
        (FI_LXOR, [0.5, 0.0, 0.0], 1.0),
        (FI_ATOMIC_READ, [1.5, 2.0, 0.0], 1.5),
        (FI_ATOMIC_WRITE, [1.5, 2.0, 0.0], 2.0),
        (FI_CSWAP, [0.0, 2.0, -0.0], 2.0),
        (FI_CSWAP, [1.0, 2.0, f64::NAN], 1.0),
        (FI_CSWAP_NE, [1.0, 2.0, f64::NAN], 2.0),
        (FI_CSWAP_LE, [1.0, 2.0, 1.0], 2.0),
        (FI_CSWAP_LT, [1.0, 2.0, f64::NAN], 1.0),
        (FI_CSWAP_GE, [1.0, 2.0, f64::NAN], 1.0),
        (FI_CSWAP_GT, [1.0, 2.0, 1.5], 2.0),
    ];
    for (operation, of, expected) in table {
        assert_eq!(result(FI_DOUBLE, operation, of), Some(expected), "{operation} of {of:?}");
        let of = of.map(|value: f64| value as f32);
        assert_eq!(result(FI_FLOAT, operation, of), Some(expected as f32), "{operation} of {of:?}");
        #[cfg(target_arch = "x86_64")]
        {
            let long = result(FI_LONG_DOUBLE, operation, of.map(|value| LongDouble::from(f64::from(value))));
            assert_eq!(long.map(f64::from), Some(expected), "{operation} of {of:?}");
        }
    }
    for operation in [FI_BOR, FI_BAND, FI_BXOR, FI_MSWAP] {
        assert_eq!(result(FI_DOUBLE, operation, [1.0; 3]), None);
    }
}

#[test]
fn complex_numbers_have_no_order_and_no_bits() {
    let of = |real, imaginary| Complex { real, imaginary };
    let (a, b, one, zero) = (of(1.0, 2.0), of(3.0, -1.0), of(1.0, 0.0), of(0.0, 0.0));
    let table = [
        (FI_SUM, [a, b, zero], of(4.0, 1.0)),
        (FI_PROD, [a, b, zero], of(5.0, 5.0)),
        (FI_LOR, [zero, of(0.0, 1.0), zero], one),
        (FI_LAND, [a, zero, zero], zero),
        (FI_LXOR, [a, zero, zero], one),
        (FI_ATOMIC_READ, [a, b, zero], a),
        (FI_ATOMIC_WRITE, [a, b, zero], b),
        (FI_CSWAP, [a, b, a], b),
        (FI_CSWAP, [a, b, one], a),
        (FI_CSWAP_NE, [a, b, one], b),
    ];
    for (operation, of, expected) in table {
        assert!(result(FI_DOUBLE_COMPLEX, operation, of) == Some(expected), "{operation}");
        let narrow = |of: Complex<f64>| Complex { real: of.real as f32, imaginary: of.imaginary as f32 };
        assert!(result(FI_FLOAT_COMPLEX, operation, of.map(narrow)) == Some(narrow(expected)), "{operation}");
        #[cfg(target_arch = "x86_64")]
        {
            let long = |of: Complex<f64>| Complex {
                real: LongDouble::from(of.real),
                imaginary: LongDouble::from(of.imaginary),
            };
            assert!(result(FI_LONG_DOUBLE_COMPLEX, operation, of.map(long)) == Some(long(expected)), "{operation}");
        }
    }
    for operation in [FI_MIN, FI_MAX, FI_BOR, FI_CSWAP_LE, FI_CSWAP_GT, FI_MSWAP] {
        assert!(result(FI_DOUBLE_COMPLEX, operation, [a; 3]).is_none());
    }
    assert!(Datatype::of(FI_UINT128 + 1).is_none() && Datatype::of(FI_VOID).is_none());
}
