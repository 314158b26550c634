// SPDX-License-Identifier: MIT OR Apache-2.0
//! Event types in the metadata of a file. `head.rs` lists them, `record.rs` packs events by them. Path: setup. Threads:
//! plain data. Tests: below.

use serde::{Deserialize, Serialize};

/// The largest number of elements of a type.
pub const MOST_ELEMENTS: usize = 16;

/// An event type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventType {
    /// Its name.
    pub name: String,
    /// Its description.
    #[serde(default)]
    pub description: String,
    /// Its elements.
    #[serde(default)]
    pub elements: Vec<Element>,
}

/// An element of an event type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Element {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: ElementKind,
    /// The unit: `bytes`, or empty.
    #[serde(default)]
    pub unit: String,
}

/// The type of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ElementKind {
    /// Signed, 32 bits.
    I32,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 64 bits.
    I64,
    /// Unsigned, 64 bits.
    U64,
}

impl Element {
    /// Makes an element with this name, kind and unit.
    #[must_use]
    pub fn new(name: &str, kind: ElementKind, unit: &str) -> Element {
        Element { name: name.to_owned(), kind, unit: unit.to_owned() }
    }
}

impl EventType {
    /// The index of the element of this name.
    #[must_use]
    pub fn element(&self, name: &str) -> Option<usize> {
        self.elements.iter().position(|element| element.name == name)
    }
}

impl ElementKind {
    /// Whether it can be negative.
    #[must_use]
    pub fn is_signed(self) -> bool {
        matches!(self, ElementKind::I32 | ElementKind::I64)
    }

    /// The number that a value of an event stands for.
    #[must_use]
    pub fn number(self, value: u64) -> i128 {
        if self.is_signed() { i128::from(value.cast_signed()) } else { i128::from(value) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_64_bits_is_the_number_that_its_kind_makes_of_it() {
        assert_eq!(ElementKind::I32.number(u64::MAX), -1);
        assert_eq!(ElementKind::U64.number(u64::MAX), i128::from(u64::MAX));
    }
}
