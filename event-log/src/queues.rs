// SPDX-License-Identifier: MIT OR Apache-2.0
//! The maximum lengths of the matching queues, from the events' elements. Called by `writer.rs`. Grade: pending.
//! Threads: the owner's. Tests: below.

use ibex_trace::{EventType, Values};

/// Names of elements, and of their largest values.
const ELEMENTS: [(&str, &str); 2] =
    [("posted", "most receives that waited"), ("unexpected", "most messages unexpected")];

/// Largest values; `None` if no type has the element.
pub(crate) struct Longest([Option<u64>; ELEMENTS.len()]);

impl Longest {
    pub(crate) fn new(types: &[EventType]) -> Longest {
        Longest(ELEMENTS.map(|(name, _)| types.iter().any(|kind| kind.element(name).is_some()).then_some(0)))
    }

    pub(crate) fn see(&mut self, kind: &EventType, values: &Values) {
        for (longest, (name, _)) in self.0.iter_mut().zip(ELEMENTS) {
            if let Some(longest) = longest
                && let Some(place) = kind.element(name)
            {
                *longest = (*longest).max(values[place]);
            }
        }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let said = |(longest, (_, what)): (&Option<u64>, (&str, &str))| longest.map(|most| format!("# {what}: {most}"));
        self.0.iter().zip(ELEMENTS).filter_map(said).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pairs::tests::made;

    #[test]
    fn the_maximum_of_each_queue_is_printed_if_events_have_its_length() {
        let types = [made("a", &["posted"]), made("b", &["other"])];
        let mut longest = Longest::new(&types);
        for (kind, length) in [(0, 3), (0, 7), (1, 99), (0, 2)] {
            let mut values = Values::default();
            values[0] = length;
            longest.see(&types[kind], &values);
        }
        assert_eq!(longest.lines(), ["# most receives that waited: 7"]);
        assert!(Longest::new(&types[1..]).lines().is_empty());
    }
}
