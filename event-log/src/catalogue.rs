// SPDX-License-Identifier: MIT OR Apache-2.0
//! The event types and elements, as `MPI_T` describes them, the choice of the user, and the place of each element in an
//! event's data. Called by `session.rs`, `recording.rs` and `target.rs`. Grade: setup, but [`Place::value`]: hot.
//! Threads: plain data. Tests: below; tests/log.rs, tests/trace.rs.

use ibex_trace::ElementKind::{self, I32, I64, U32, U64};
use ibex_trace::{Chosen, GROUPS, MOST_ELEMENTS, MOST_TYPES};

use crate::mpi;

/// Largest size of an event's data, in words of 8 bytes.
pub(crate) const WORDS: usize = 16;

#[derive(Debug, Clone)]
pub(crate) struct EventType {
    /// Number in the interface; `None` for a type of this tool.
    pub(crate) index: Option<i32>,
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) elements: Vec<Element>,
}

#[derive(Debug, Clone)]
pub(crate) struct Element {
    /// Name, or its number if it has none.
    pub(crate) name: String,
    /// `None`: a datatype that this tool does not know.
    pub(crate) kind: Option<ElementKind>,
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
    #[inline]
    pub(crate) fn value(self, data: &[u64; WORDS]) -> u64 {
        let top = data[usize::from(self.word) % WORDS] << self.up;
        if self.is_signed { (top.cast_signed() >> self.down).cast_unsigned() } else { top >> self.down }
    }
}

pub(crate) fn types() -> Vec<EventType> {
    (0..mpi::type_count()).filter_map(|index| mpi::event_type(index).ok()).collect()
}

/// Returns the types chosen by an environment variable, with room for one more in a trace. Prints unknown names.
pub(crate) fn choose(variable: &str, chosen: &Chosen, types: &[EventType]) -> Vec<EventType> {
    let names: Vec<&str> = types.iter().map(|of| of.name.as_str()).collect();
    let (chosen, unknown) = chosen.choose(&names);
    // All ranks would print the same, so rank 0 does.
    if !unknown.is_empty() && ibex_trace::launched_rank().is_none_or(|rank| rank == 0) {
        let known: Vec<&str> = types.iter().map(EventType::short).collect();
        mpi::complain(&format!(
            "{variable}: there is no event and no group {}; use the groups {}, or the events {}",
            unknown.join(", "),
            GROUPS.join(", "),
            known.join(", ")
        ));
    }
    let (mut fit, strange): (Vec<_>, Vec<_>) =
        chosen.into_iter().map(|index| types[index].clone()).partition(EventType::fits);
    for of in strange {
        mpi::complain(&format!("{variable}: {} has elements that do not fit into a record; it is left out", of.name));
    }
    fit.truncate(MOST_TYPES - 1);
    fit
}

impl EventType {
    /// Makes a type of this tool, with elements of 64 bits without a sign.
    pub(crate) fn own(name: &str, description: String, elements: &[&str]) -> EventType {
        let element =
            |(place, name): (usize, &&str)| Element { name: (*name).to_owned(), kind: Some(U64), at: 8 * place };
        let elements = elements.iter().enumerate().map(element).collect();
        EventType { index: None, name: name.to_owned(), description, elements }
    }

    pub(crate) fn short(&self) -> &str {
        ibex_trace::short(&self.name)
    }

    /// Returns whether an event's data fit a record of this tool.
    fn fits(&self) -> bool {
        let fits = |element: &Element| element.kind.is_some() && element.at + element.size() <= WORDS * 8;
        self.elements.len() <= MOST_ELEMENTS && self.elements.iter().all(fits)
    }

    pub(crate) fn recorded(&self) -> ibex_trace::EventType {
        let elements = self.elements.iter().filter_map(Element::recorded).collect();
        ibex_trace::EventType { name: self.name.clone(), description: self.description.clone(), elements }
    }

    pub(crate) fn places(&self) -> [Place; MOST_ELEMENTS] {
        std::array::from_fn(|element| self.elements.get(element).map(Element::place).unwrap_or_default())
    }
}

impl Element {
    fn size(&self) -> usize {
        if matches!(self.kind, Some(I32 | U32)) { 4 } else { 8 }
    }

    fn place(&self) -> Place {
        let down = if self.size() == 4 { 32 } else { 0 };
        let up = if self.at.is_multiple_of(8) { down } else { 0 };
        Place { word: (self.at / 8) as u8, up, down, is_signed: self.kind.is_some_and(ElementKind::is_signed) }
    }

    fn recorded(&self) -> Option<ibex_trace::Element> {
        // The interface has no units.
        let unit = if matches!(self.name.as_str(), "bytes" | "total" | "offset") { "bytes" } else { "" };
        Some(ibex_trace::Element::new(&self.name, self.kind?, unit))
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match self.kind {
            Some(I32) => "int",
            Some(U32) => "unsigned",
            Some(I64) => "long",
            Some(U64) => "unsigned long",
            None => "?",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(elements: &[(Option<ElementKind>, usize)]) -> EventType {
        let element = |&(kind, at): &(Option<ElementKind>, usize)| Element { name: "e".into(), kind, at };
        EventType { elements: elements.iter().map(element).collect(), ..EventType::own("t", String::new(), &[]) }
    }

    #[test]
    fn a_place_returns_the_value_of_its_element() {
        let made = made(&[(Some(U32), 0), (Some(I32), 4), (Some(I64), 8), (Some(U64), 16)]);
        let mut data = [0; WORDS];
        data[0] = 7 | u64::from((-5_i32).cast_unsigned()) << 32;
        data[1] = u64::MAX;
        data[2] = u64::MAX;
        let (recorded, places) = (made.recorded().elements, made.places());
        let values: Vec<i128> =
            recorded.iter().zip(places).map(|(element, place)| element.kind.number(place.value(&data))).collect();
        assert_eq!(values, [7, -5, -1, i128::from(u64::MAX)]);
    }

    #[test]
    fn fits_recognises_a_type_that_no_record_holds() {
        let all: Vec<_> = (0..=WORDS).map(|word| (Some(U64), word * 8)).collect();
        assert!(made(&all[..WORDS]).fits());
        assert!(!made(&all).fits() && !made(&all[WORDS..]).fits());
        assert!(!made(&[(None, 0)]).fits());
        assert!(!made(&[(Some(U32), 0); MOST_ELEMENTS + 1]).fits());
    }
}
