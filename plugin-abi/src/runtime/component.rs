// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the components of all faces have in common: the fields of their structures, and whether the user named them.
//!
//! Grade: setup. Plain functions. Tests: below.

use std::ffi::{c_char, c_int};

/// A text as a C array, NUL-terminated.
pub(crate) const fn text<const N: usize>(bytes: &[u8]) -> [c_char; N] {
    assert!(bytes.len() < N, "room for the terminating NUL");
    let mut array = [0; N];
    let mut index = 0;
    while index < bytes.len() {
        array[index] = bytes[index] as c_char;
        index += 1;
    }
    array
}

/// The value of decimal digits.
pub(crate) const fn number(digits: &str) -> c_int {
    let digits = digits.as_bytes();
    let mut value = 0;
    let mut index = 0;
    while index < digits.len() {
        value = value * 10 + (digits[index] - b'0') as c_int;
        index += 1;
    }
    value
}

/// Whether the user's list of a framework's components includes ibex, rather than leaving it to the default.
pub(crate) fn names_ibex(list: &str) -> bool {
    !list.trim_start().starts_with('^') && list.split(',').any(|name| name.trim() == "ibex")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_list_that_includes_ibex_asks_for_it() {
        for (list, asked) in [
            ("self,vader,ibex", true),
            ("ibex", true),
            (" ibex , self", true),
            ("^ibex", false),
            ("^tcp,ibex", false),
            ("", false),
            ("ibexx,self", false),
        ] {
            assert_eq!(names_ibex(list), asked, "{list:?}");
        }
    }

    #[test]
    fn digits_are_read_as_the_number_they_are() {
        assert_eq!((number("0"), number("7"), number("120")), (0, 7, 120));
    }
}
