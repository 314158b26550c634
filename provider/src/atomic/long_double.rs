// SPDX-License-Identifier: MIT OR Apache-2.0
//! C's `long double` of x86-64: an x87 number of 10 bytes, in 16. Rust has no such type, so the x87 computes.
//!
//! Called by `arithmetic`. Grade: pending. Threads: plain values. Tests: below, and `tests.rs`.

use std::arch::asm;
use std::cmp::Ordering;

use super::arithmetic::Number;

/// A `long double`.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(super) struct LongDouble([u8; 16]);

/// Computes with two numbers: the instruction takes both from the stack, and leaves the result.
macro_rules! computed {
    ($instruction:literal, $a:expr, $b:expr) => {{
        let (mut a, b) = ($a, $b);
        // SAFETY: both are memory of 16 bytes; the stack of the x87 is empty before and after, as the ABI wants.
        unsafe {
            asm!(
                "fld tbyte ptr [{a}]", "fld tbyte ptr [{b}]", $instruction, "fstp tbyte ptr [{a}]",
                a = in(reg) &raw mut a, b = in(reg) &raw const b,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                options(nostack)
            );
        }
        a
    }};
}

impl Number for LongDouble {
    const ZERO: Self = LongDouble([0; 16]);
    const ONE: Self = LongDouble([0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0x3f, 0, 0, 0, 0, 0, 0]);

    fn plus(self, other: Self) -> Self {
        computed!("faddp", self, other)
    }

    fn minus(self, other: Self) -> Self {
        self.plus(other.negative())
    }

    fn times(self, other: Self) -> Self {
        computed!("fmulp", self, other)
    }

    fn read(bytes: &[u8]) -> Self {
        let mut value = [0; 16];
        value.copy_from_slice(&bytes[..16]);
        LongDouble(value)
    }

    fn write(self, bytes: &mut [u8]) {
        bytes[..16].copy_from_slice(&self.0);
    }
}

impl LongDouble {
    fn negative(mut self) -> Self {
        self.0[9] ^= 0x80;
        self
    }
}

impl PartialOrd for LongDouble {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let (is_unordered, is_equal, is_less): (u8, u8, u8);
        // SAFETY: as above; the comparison takes one number from the stack, and the last instruction the other.
        unsafe {
            asm!(
                "fld tbyte ptr [{b}]", "fld tbyte ptr [{a}]", "fucomip st, st(1)", "setp {p}", "sete {z}", "setb {c}",
                "fstp st(0)",
                a = in(reg) &raw const self.0, b = in(reg) &raw const other.0,
                p = out(reg_byte) is_unordered, z = out(reg_byte) is_equal, c = out(reg_byte) is_less,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                options(nostack, readonly)
            );
        }
        match (is_unordered, is_equal, is_less) {
            (1, ..) => None,
            (_, 1, _) => Some(Ordering::Equal),
            (.., 1) => Some(Ordering::Less),
            _ => Some(Ordering::Greater),
        }
    }
}

impl PartialEq for LongDouble {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl From<f64> for LongDouble {
        fn from(value: f64) -> Self {
            let mut to = [0; 16];
            // SAFETY: memory of 8 and of 16 bytes, and a stack that is empty again.
            unsafe {
                asm!(
                    "fld qword ptr [{from}]", "fstp tbyte ptr [{to}]",
                    from = in(reg) &raw const value, to = in(reg) &raw mut to,
                    out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                    out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                    options(nostack)
                );
            }
            LongDouble(to)
        }
    }

    impl From<LongDouble> for f64 {
        fn from(value: LongDouble) -> Self {
            let mut to = 0.0;
            // SAFETY: as above.
            unsafe {
                asm!(
                    "fld tbyte ptr [{from}]", "fstp qword ptr [{to}]",
                    from = in(reg) &raw const value, to = in(reg) &raw mut to,
                    out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                    out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                    options(nostack)
                );
            }
            to
        }
    }

    #[test]
    fn a_long_double_has_more_digits_than_a_double() {
        assert!(LongDouble::from(1.0) == LongDouble::ONE);
        let tiny = LongDouble::from(f64::EPSILON / 16.0);
        let more = LongDouble::ONE.plus(tiny);
        assert!(more > LongDouble::ONE && more.minus(LongDouble::ONE) == tiny);
        assert!(LongDouble::from(f64::from(more)) == LongDouble::ONE);
        assert!(LongDouble::from(f64::NAN).partial_cmp(&tiny).is_none());
    }
}
