// SPDX-License-Identifier: MIT OR Apache-2.0
//! The event types of a trace: those of the engine, but that tags have 64 bits, and bits to ignore, in the events of
//! requests and messages; the engine's other events have only half of a tag, which is left out. Grade: setup. Threads:
//! plain data. Tests: below.

use ibex::events::{ElementType, EventInstance, PROTOCOL, TABLE, TypeId, Value};
use ibex_trace::{Chosen, Element, ElementKind, EventType, TAGGED};

/// The context of tagged messages; that of untagged ones follows. The engine numbers them from 0.
pub(crate) const CONTEXT: u32 = TAGGED;

/// The elements of the events of requests and messages, in the order of [`super::Recording::put`].
pub(crate) const MATCHING: usize = ELEMENTS.len();

const ELEMENTS: [(&str, ElementKind); 10] = [
    ("id", ElementKind::U64),
    ("bytes", ElementKind::U64),
    ("buffer", ElementKind::U64),
    ("peer", ElementKind::I32),
    ("tag", ElementKind::U64),
    ("ignore", ElementKind::U64),
    ("operation", ElementKind::U32),
    ("context", ElementKind::U32),
    ("posted", ElementKind::U32),
    ("unexpected", ElementKind::U32),
];

/// Elements that name a peer by the engine's number, or have half of a tag.
const LEFT_OUT: [&str; 2] = ["source", "tag"];

/// A type that is recorded.
pub(super) struct Recorded {
    pub(super) of: TypeId,
    pub(super) described: EventType,
    /// The place of each element in the engine's event.
    places: Vec<usize>,
    /// The element that is a context.
    context: Option<usize>,
}

impl Recorded {
    /// Returns the value of an element in an event of the engine.
    pub(super) fn value(&self, element: usize, of: &EventInstance) -> u64 {
        match of.value(self.places[element]) {
            Some(Value::U32(value)) if self.context == Some(element) => CONTEXT.wrapping_add(value).into(),
            Some(Value::I32(value)) => i64::from(value).cast_unsigned(),
            Some(Value::U32(value)) => value.into(),
            Some(Value::U64(value)) => value,
            None => 0,
        }
    }
}

/// Returns the chosen types of the engine, in the order of its table.
pub(super) fn chosen(by: &Chosen) -> Vec<Recorded> {
    let names: Vec<&str> = TABLE.iter().map(|row| row.name).collect();
    let (chosen, _) = by.choose(&names);
    chosen.into_iter().filter_map(TypeId::from_index).map(recorded).collect()
}

fn recorded(of: TypeId) -> Recorded {
    let row = of.row();
    let is_own = of.place_in_matching().is_some_and(|place| place != PROTOCOL);
    let places: Vec<usize> =
        (0..row.elements.len()).filter(|place| !LEFT_OUT.contains(&row.elements[*place].name)).collect();
    let elements: Vec<Element> = if is_own {
        ELEMENTS.iter().map(|(name, kind)| element(name, *kind)).collect()
    } else {
        places.iter().map(|place| &row.elements[*place]).map(|of| element(of.name, kind(of.element_type))).collect()
    };
    let (name, description) = (format!("ibex_{}", row.name), row.description.to_owned());
    let described = EventType { name, description, elements };
    Recorded { of, context: described.element("context"), described, places }
}

fn element(name: &str, kind: ElementKind) -> Element {
    Element::new(name, kind, if matches!(name, "bytes" | "total" | "offset") { "bytes" } else { "" })
}

const fn kind(of: ElementType) -> ElementKind {
    match of {
        ElementType::I32 => ElementKind::I32,
        ElementType::U32 => ElementKind::U32,
        ElementType::U64 => ElementKind::U64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_has_whole_tags_or_none() {
        let all = chosen(&Chosen::from(Some("all"), ""));
        assert_eq!(all.len(), TABLE.len());
        for Recorded { of, described, places, .. } in &all {
            let tag = described.element("tag").map(|place| described.elements[place].kind);
            let is_own = of.place_in_matching().is_some_and(|place| place != PROTOCOL);
            assert_eq!(tag, is_own.then_some(ElementKind::U64), "{}", described.name);
            assert_eq!(described.element("ignore").is_some(), is_own);
            if !is_own {
                let names = places.iter().map(|place| of.row().elements[*place].name);
                assert!(described.elements.iter().map(|element| element.name.as_str()).eq(names));
            }
        }
    }
}
