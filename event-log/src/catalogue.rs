// SPDX-License-Identifier: MIT OR Apache-2.0
//! The event types and elements, as `MPI_T` describes them, and the values of elements in an event's data.
//!
//! Called by `session.rs`, `recording.rs` and the writing threads. Grade: setup; [`Element::value`] is pending (the
//! writing thread). Threads: plain data. Tests: below.

use ibex_trace::{ElementKind, MOST_ELEMENTS};

use crate::mpi::{self, RawElement};

/// Largest size of an event's data, in words of 8 bytes.
pub(crate) const WORDS: usize = 16;

/// An event type.
#[derive(Debug, Clone)]
pub(crate) struct EventType {
    /// Number in the interface; `None` for a type of this tool.
    pub(crate) index: Option<i32>,
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) elements: Vec<Element>,
}

/// An element of an event type.
#[derive(Debug, Clone)]
pub(crate) struct Element {
    /// Name, or its number if it has none.
    pub(crate) name: String,
    kind: Kind,
    /// Displacement in the event's data, in bytes.
    pub(crate) at: usize,
}

/// Position of an element in an event's data: shifted to the top of a word, and back with its sign.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place {
    word: u8,
    up: u8,
    down: u8,
    is_signed: bool,
}

impl Place {
    /// Returns the element's value in 64 bits.
    #[inline]
    pub(crate) fn value(self, data: &[u64; WORDS]) -> u64 {
        let top = data[usize::from(self.word) % WORDS] << self.up;
        if self.is_signed { (top.cast_signed() >> self.down).cast_unsigned() } else { top >> self.down }
    }
}

/// Type of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    I32,
    U32,
    I64,
    U64,
    /// A datatype that this tool does not know.
    Unknown,
}

pub(crate) fn types() -> Vec<EventType> {
    let read = |index| {
        let raw = mpi::event_type(index).ok()?;
        let elements = raw.elements.into_iter().map(Element::new).collect();
        Some(EventType { index: Some(index), name: raw.name, description: raw.description, elements })
    };
    (0..mpi::type_count()).filter_map(read).collect()
}

impl EventType {
    /// Makes a type of this tool, with elements of 64 bits without a sign.
    pub(crate) fn own(name: &str, description: String, elements: &[&str]) -> EventType {
        let element = |(place, name): (usize, &&str)| {
            Element::new(RawElement { name: (*name).to_owned(), kind: 1, size: 8, at: 8 * place })
        };
        let elements = elements.iter().enumerate().map(element).collect();
        EventType { index: None, name: name.to_owned(), description, elements }
    }

    /// Returns the name without ibex's prefix.
    pub(crate) fn short(&self) -> &str {
        ibex_trace::short(&self.name)
    }

    /// Returns whether an event's data fit a record of this tool.
    pub(crate) fn fits(&self) -> bool {
        self.elements.iter().all(|element| element.kind != Kind::Unknown && element.at + element.size() <= WORDS * 8)
    }

    /// Returns the description for a trace.
    pub(crate) fn recorded(&self) -> ibex_trace::EventType {
        let elements = self.elements.iter().filter_map(Element::recorded).collect();
        ibex_trace::EventType { name: self.name.clone(), description: self.description.clone(), elements }
    }

    /// Returns the positions of the elements in an event's data.
    pub(crate) fn places(&self) -> [Place; MOST_ELEMENTS] {
        std::array::from_fn(|element| self.elements.get(element).map(Element::place).unwrap_or_default())
    }

    /// Returns the index of the element with this name.
    pub(crate) fn element(&self, name: &str) -> Option<usize> {
        self.elements.iter().position(|element| element.name == name)
    }
}

impl Element {
    fn new(raw: RawElement) -> Element {
        let kind = match (raw.kind, raw.size) {
            (0, 4) => Kind::I32,
            (1, 4) => Kind::U32,
            (0, 8) => Kind::I64,
            (1, 8) => Kind::U64,
            _ => Kind::Unknown,
        };
        Element { name: raw.name, kind, at: raw.at }
    }

    fn size(&self) -> usize {
        match self.kind {
            Kind::I32 | Kind::U32 => 4,
            _ => 8,
        }
    }

    fn place(&self) -> Place {
        let down = if self.size() == 4 { 32 } else { 0 };
        let up = if self.at.is_multiple_of(8) { down } else { 0 };
        let is_signed = matches!(self.kind, Kind::I32 | Kind::I64);
        Place { word: (self.at / 8) as u8, up, down, is_signed }
    }

    /// Returns the description for a trace; `None` for an unknown datatype.
    pub(crate) fn recorded(&self) -> Option<ibex_trace::Element> {
        let kind = match self.kind {
            Kind::I32 => ElementKind::I32,
            Kind::U32 => ElementKind::U32,
            Kind::I64 => ElementKind::I64,
            Kind::U64 => ElementKind::U64,
            Kind::Unknown => return None,
        };
        // The interface has no units.
        let unit = if matches!(self.name.as_str(), "bytes" | "total" | "offset") { "bytes" } else { "" };
        Some(ibex_trace::Element::new(&self.name, kind, unit))
    }

    /// Returns C's name of the type.
    pub(crate) fn type_name(&self) -> &'static str {
        match self.kind {
            Kind::I32 => "int",
            Kind::U32 => "unsigned",
            Kind::I64 => "long",
            Kind::U64 => "unsigned long",
            Kind::Unknown => "?",
        }
    }

    /// Returns the value in an event's data.
    pub(crate) fn value(&self, data: &[u64; WORDS]) -> i128 {
        let word = data[self.at / 8 % WORDS];
        let half = (word >> (self.at % 8 * 8)) as u32;
        match self.kind {
            Kind::I32 => i128::from(half.cast_signed()),
            Kind::U32 => i128::from(half),
            Kind::I64 => i128::from(word.cast_signed()),
            Kind::U64 | Kind::Unknown => i128::from(word),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Makes a type with elements of `name`, `kind` (0 signed, 1 unsigned) and `size`, laid out as in C.
    pub(crate) fn made(name: &str, elements: &[(&str, i32, usize)]) -> EventType {
        let mut at = 0_usize;
        let mut place = |size: usize| {
            at = at.next_multiple_of(size) + size;
            at - size
        };
        let element = |&(name, kind, size): &(&str, i32, usize)| {
            Element::new(RawElement { name: name.to_owned(), kind, size, at: place(size) })
        };
        let elements = elements.iter().map(element).collect();
        EventType { index: None, name: name.to_owned(), description: String::new(), elements }
    }

    #[test]
    fn a_value_is_read_where_its_element_is() {
        let made = made("t", &[("a", 1, 4), ("b", 0, 4), ("c", 0, 8), ("d", 1, 8)]);
        let mut data = [0; WORDS];
        data[0] = 7 | u64::from((-5_i32).cast_unsigned()) << 32;
        data[1] = u64::MAX;
        data[2] = u64::MAX;
        let values: Vec<i128> = made.elements.iter().map(|element| element.value(&data)).collect();
        assert_eq!(values, [7, -5, -1, i128::from(u64::MAX)]);
        let recorded = made.recorded().elements;
        let places = made.places();
        let values: Vec<i128> =
            recorded.iter().zip(places).map(|(element, place)| element.kind.number(place.value(&data))).collect();
        assert_eq!(values, [7, -5, -1, i128::from(u64::MAX)]);
    }

    #[test]
    fn a_type_that_does_not_fit_a_record_is_known_as_such() {
        assert!(made("t", &[("a", 1, 8); WORDS]).fits());
        assert!(!made("t", &[("a", 1, 8); WORDS + 1]).fits());
        assert!(!made("t", &[("a", -1, 4)]).fits());
    }
}
