// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an atomic operation makes of an element: the arithmetic of `fi_atomic(3)`, as C does it, on values.
//!
//! Integers wrap around. Numbers compare as C compares them, so a NaN is no minimum and equals nothing. Complex numbers
//! have no order, and only integers have bits. Called by `target` and `valid`. Grade: pending. Threads: plain values.
//! Tests: `tests.rs`.

use std::ops::{Add as _, BitAnd, BitOr, BitXor, Mul as _, Not, Sub as _};

#[cfg(target_arch = "x86_64")]
use super::long_double::LongDouble;
use crate::sys;

/// A type of elements.
#[derive(Clone, Copy)]
pub(super) struct Datatype {
    /// Bytes of an element.
    pub(super) size: usize,
    result: fn(sys::fi_op, [&[u8]; 3], &mut [u8]) -> bool,
}

/// Most bytes of an element.
pub(super) const LARGEST: usize = 32;

impl Datatype {
    /// Returns the type with this number (`fi_datatype`).
    pub(super) fn of(number: sys::fi_datatype) -> Option<Datatype> {
        const fn datatype<T>(result: fn(sys::fi_op, [&[u8]; 3], &mut [u8]) -> bool) -> Datatype {
            Datatype { size: size_of::<T>(), result }
        }
        Some(match number {
            sys::FI_INT8 => datatype::<i8>(integer::<i8>),
            sys::FI_UINT8 => datatype::<u8>(integer::<u8>),
            sys::FI_INT16 => datatype::<i16>(integer::<i16>),
            sys::FI_UINT16 => datatype::<u16>(integer::<u16>),
            sys::FI_INT32 => datatype::<i32>(integer::<i32>),
            sys::FI_UINT32 => datatype::<u32>(integer::<u32>),
            sys::FI_INT64 => datatype::<i64>(integer::<i64>),
            sys::FI_UINT64 => datatype::<u64>(integer::<u64>),
            sys::FI_INT128 => datatype::<i128>(integer::<i128>),
            sys::FI_UINT128 => datatype::<u128>(integer::<u128>),
            sys::FI_FLOAT => datatype::<f32>(real::<f32>),
            sys::FI_DOUBLE => datatype::<f64>(real::<f64>),
            sys::FI_FLOAT_COMPLEX => datatype::<Complex<f32>>(complex::<f32>),
            sys::FI_DOUBLE_COMPLEX => datatype::<Complex<f64>>(complex::<f64>),
            #[cfg(target_arch = "x86_64")]
            sys::FI_LONG_DOUBLE => datatype::<LongDouble>(real::<LongDouble>),
            #[cfg(target_arch = "x86_64")]
            sys::FI_LONG_DOUBLE_COMPLEX => datatype::<Complex<LongDouble>>(complex::<LongDouble>),
            _ => return None,
        })
    }

    /// Whether elements of this type have this operation (`fi_op`).
    pub(super) fn has(self, operation: sys::fi_op) -> bool {
        let zero = &[0; LARGEST][..self.size];
        self.apply(operation, [zero; 3], &mut [0; LARGEST][..self.size])
    }

    /// Computes the new value of a target from its old value, the operand and the value that it is compared with. Each
    /// slice is one element. Returns false if the type has no such operation.
    pub(super) fn apply(self, operation: sys::fi_op, of: [&[u8]; 3], result: &mut [u8]) -> bool {
        (self.result)(operation, of, result)
    }
}

/// A number as its bytes in memory.
pub(super) trait Number: Copy + PartialEq {
    const ZERO: Self;
    const ONE: Self;

    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// Reads the first bytes.
    fn read(bytes: &[u8]) -> Self;
    /// Writes the first bytes.
    fn write(self, bytes: &mut [u8]);
}

macro_rules! numbers {
    ($($type:ident: $zero:literal, $one:literal, $plus:ident, $minus:ident, $times:ident;)*) => { $(
        impl Number for $type {
            const ZERO: Self = $zero;
            const ONE: Self = $one;

            fn plus(self, other: Self) -> Self { self.$plus(other) }

            fn minus(self, other: Self) -> Self { self.$minus(other) }

            fn times(self, other: Self) -> Self { self.$times(other) }

            fn read(bytes: &[u8]) -> Self {
                let mut value = [0; size_of::<Self>()];
                value.copy_from_slice(&bytes[..size_of::<Self>()]);
                Self::from_ne_bytes(value)
            }

            fn write(self, bytes: &mut [u8]) { bytes[..size_of::<Self>()].copy_from_slice(&self.to_ne_bytes()); }
        }
    )* };
}

numbers! {
    i8: 0, 1, wrapping_add, wrapping_sub, wrapping_mul;
    u8: 0, 1, wrapping_add, wrapping_sub, wrapping_mul;
    i16: 0, 1, wrapping_add, wrapping_sub, wrapping_mul;
    u16: 0, 1, wrapping_add, wrapping_sub, wrapping_mul;
    i32: 0, 1, wrapping_add, wrapping_sub, wrapping_mul;
    u32: 0, 1, wrapping_add, wrapping_sub, wrapping_mul;
    i64: 0, 1, wrapping_add, wrapping_sub, wrapping_mul;
    u64: 0, 1, wrapping_add, wrapping_sub, wrapping_mul;
    i128: 0, 1, wrapping_add, wrapping_sub, wrapping_mul;
    u128: 0, 1, wrapping_add, wrapping_sub, wrapping_mul;
    f32: 0.0, 1.0, add, sub, mul;
    f64: 0.0, 1.0, add, sub, mul;
}

/// A complex number of C.
#[derive(Clone, Copy, PartialEq)]
#[repr(C)]
pub(super) struct Complex<T> {
    pub(super) real: T,
    pub(super) imaginary: T,
}

impl<T: Number> Number for Complex<T> {
    const ZERO: Self = Complex { real: T::ZERO, imaginary: T::ZERO };
    const ONE: Self = Complex { real: T::ONE, imaginary: T::ZERO };

    fn plus(self, other: Self) -> Self {
        Complex { real: self.real.plus(other.real), imaginary: self.imaginary.plus(other.imaginary) }
    }

    fn minus(self, other: Self) -> Self {
        Complex { real: self.real.minus(other.real), imaginary: self.imaginary.minus(other.imaginary) }
    }

    fn times(self, other: Self) -> Self {
        Complex {
            real: self.real.times(other.real).minus(self.imaginary.times(other.imaginary)),
            imaginary: self.real.times(other.imaginary).plus(self.imaginary.times(other.real)),
        }
    }

    fn read(bytes: &[u8]) -> Self {
        Complex { real: T::read(bytes), imaginary: T::read(&bytes[size_of::<T>()..]) }
    }

    fn write(self, bytes: &mut [u8]) {
        self.real.write(bytes);
        self.imaginary.write(&mut bytes[size_of::<T>()..]);
    }
}

/// Operations of all numbers. The operands are the target, the operand and the value that it is compared with.
fn of_number<T: Number>(operation: sys::fi_op, [target, operand, compared]: [T; 3]) -> Option<T> {
    let truth = |is: bool| if is { T::ONE } else { T::ZERO };
    let [a, b] = [target, operand].map(|value| value != T::ZERO);
    Some(match operation {
        sys::FI_SUM => target.plus(operand),
        sys::FI_PROD => target.times(operand),
        sys::FI_LOR => truth(a || b),
        sys::FI_LAND => truth(a && b),
        sys::FI_LXOR => truth(a != b),
        sys::FI_ATOMIC_WRITE => operand,
        sys::FI_CSWAP if compared == target => operand,
        sys::FI_CSWAP_NE if compared != target => operand,
        sys::FI_ATOMIC_READ | sys::FI_CSWAP | sys::FI_CSWAP_NE => target,
        _ => return None,
    })
}

/// Operations of numbers that have an order.
fn of_ordered<T: Number + PartialOrd>(operation: sys::fi_op, of: [T; 3]) -> Option<T> {
    let [target, operand, compared] = of;
    let is_replaced = match operation {
        sys::FI_MIN => operand < target,
        sys::FI_MAX => operand > target,
        sys::FI_CSWAP_LE => compared <= target,
        sys::FI_CSWAP_LT => compared < target,
        sys::FI_CSWAP_GE => compared >= target,
        sys::FI_CSWAP_GT => compared > target,
        _ => return of_number(operation, of),
    };
    Some(if is_replaced { operand } else { target })
}

/// A number with bits.
trait Bits:
    Number + PartialOrd + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self> + Not<Output = Self>
{
}

impl<T> Bits for T where
    T: Number + PartialOrd + BitAnd<Output = T> + BitOr<Output = T> + BitXor<Output = T> + Not<Output = T>
{
}

fn of_bits<T: Bits>(operation: sys::fi_op, of: [T; 3]) -> Option<T> {
    let [target, operand, compared] = of;
    Some(match operation {
        sys::FI_BOR => target | operand,
        sys::FI_BAND => target & operand,
        sys::FI_BXOR => target ^ operand,
        sys::FI_MSWAP => (operand & compared) | (target & !compared),
        _ => return of_ordered(operation, of),
    })
}

/// Writes the result, if there is one.
fn put<T: Number>(value: Option<T>, result: &mut [u8]) -> bool {
    value.inspect(|value| value.write(result)).is_some()
}

fn integer<T: Bits>(operation: sys::fi_op, of: [&[u8]; 3], result: &mut [u8]) -> bool {
    put(of_bits::<T>(operation, of.map(T::read)), result)
}

fn real<T: Number + PartialOrd>(operation: sys::fi_op, of: [&[u8]; 3], result: &mut [u8]) -> bool {
    put(of_ordered::<T>(operation, of.map(T::read)), result)
}

fn complex<T: Number>(operation: sys::fi_op, of: [&[u8]; 3], result: &mut [u8]) -> bool {
    put(of_number::<Complex<T>>(operation, of.map(Complex::read)), result)
}
