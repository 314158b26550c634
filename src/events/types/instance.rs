// SPDX-License-Identifier: MIT OR Apache-2.0
//! One event: type, source, timestamp, elements, in a fixed number of words. Copied into buffers, passed to callbacks
//! by reference. Grade: hot while a tool listens. Threads: plain data. Tests: `tests/table.rs`.

use super::event_type::{ElementType, TypeId, Value, Words};
use crate::events::SourceId;

/// Most events that one completion or one call raises with one timestamp.
pub(in crate::events) const GROUP_MAX: usize = 3;

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventInstance {
    /// Type of the event.
    pub event_type: TypeId,
    /// Source of the event, whose clock stamped it.
    pub source: SourceId,
    /// Time of the event, in ticks of the source.
    pub timestamp: u64,
    pub(in crate::events) words: Words,
}

impl EventInstance {
    /// The value of element `index`; `None` where the type has no such element.
    pub fn value(&self, index: usize) -> Option<Value> {
        let row = self.event_type.row();
        let at = *row.displacements.get(index)?;
        let word = self.words[at / 8] >> (at % 8 * 8);
        Some(match row.elements[index].element_type {
            ElementType::I32 => Value::I32((word as u32).cast_signed()),
            ElementType::U32 => Value::U32(word as u32),
            ElementType::U64 => Value::U64(word),
        })
    }

    /// Copies all elements in C's layout to the first [`crate::events::EventType::extent`] bytes of `to`, with zeros
    /// between them. Returns false and writes nothing if `to` is shorter.
    #[must_use]
    pub fn copy_to(&self, to: &mut [u8]) -> bool {
        let row = self.event_type.row();
        let Some(to) = to.get_mut(..row.extent) else { return false };
        to.fill(0);
        for (index, &at) in row.displacements.iter().enumerate() {
            match self.value(index) {
                Some(Value::I32(value)) => to[at..at + 4].copy_from_slice(&value.to_ne_bytes()),
                Some(Value::U32(value)) => to[at..at + 4].copy_from_slice(&value.to_ne_bytes()),
                Some(Value::U64(value)) => to[at..at + 8].copy_from_slice(&value.to_ne_bytes()),
                None => {}
            }
        }
        true
    }

    /// Whether the event belongs to the object with this number. An event of an unbound type belongs to every object.
    #[inline]
    pub(in crate::events) fn belongs_to(&self, object: u64) -> bool {
        let Some(index) = self.event_type.row().bound else { return true };
        match self.value(index) {
            Some(Value::I32(value)) => u64::from(value.cast_unsigned()) == object,
            Some(Value::U32(value)) => u64::from(value) == object,
            Some(Value::U64(value)) => value == object,
            None => true,
        }
    }
}
