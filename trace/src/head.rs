// SPDX-License-Identifier: MIT OR Apache-2.0
//! Metadata of a file: its process (job, rank, host, program), its event types, the sources with their clocks. [`Head`]
//! is the first block, as JSON, so that fields can be added; later blocks, [`Names`], add data that becomes known
//! later. Path: setup. Threads: plain data. Tests: below; `tests/round_trip.rs`.

use serde::{Deserialize, Serialize};

use crate::record::Layout;

/// The largest number of elements of a type.
pub const MOST_ELEMENTS: usize = 16;

/// Most types of a file: their numbers are a byte.
pub const MOST_TYPES: usize = 256;

/// Most sources of a file: their numbers are a byte.
pub const MOST_SOURCES: usize = 256;

/// The context of tagged messages of libfabric (`fi_tagged(3)`), which no communicator of MPI has: their tags have 64
/// bits, and the numbers of their peers are ranks in the job.
pub const TAGGED: u32 = 0xffff_ff00;

/// The context of messages of libfabric without tags (`fi_msg(3)`).
pub const UNTAGGED: u32 = TAGGED + 1;

/// Metadata of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Head {
    /// The version of ibex that wrote it.
    pub ibex: String,
    /// The job.
    pub job: String,
    /// Number of its `MPI_COMM_WORLD` in the job: 0 is the first, others were spawned.
    pub world: u32,
    /// The rank in it; `None` if unknown.
    pub rank: Option<u32>,
    /// Its number of ranks; `None` if unknown.
    pub ranks: Option<u32>,
    /// The host.
    pub host: String,
    /// Identifies the process's monotonic clock: processes of a job with the same value share one. Empty: the host's.
    pub clock: String,
    /// The process's number on the host.
    pub pid: u32,
    /// The program.
    pub program: String,
    /// The offset of the host's monotonic clock to nanoseconds since 1970.
    pub calendar: i64,
    /// The event types; the index of one is its number.
    pub types: Vec<EventType>,
    /// The sources known when the file is created; the index of one is its number.
    pub sources: Vec<Source>,
}

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
    pub fn new(name: &str, kind: ElementKind, unit: &str) -> Element {
        Element { name: name.to_owned(), kind, unit: unit.to_owned() }
    }
}

impl EventType {
    /// The index of the element of this name.
    pub fn element(&self, name: &str) -> Option<usize> {
        self.elements.iter().position(|element| element.name == name)
    }
}

impl ElementKind {
    /// Whether it can be negative.
    pub fn is_signed(self) -> bool {
        matches!(self, ElementKind::I32 | ElementKind::I64)
    }

    /// The number that a value of an event stands for.
    pub fn number(self, value: u64) -> i128 {
        if self.is_signed() { i128::from(value.cast_signed()) } else { i128::from(value) }
    }
}

/// A source of events, with the clock that stamps them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Its name: `host:0`, `mlx5_0:1`.
    pub name: String,
    /// Its description.
    #[serde(default)]
    pub description: String,
    /// The rate of its clock.
    pub ticks_per_second: u64,
    /// The greatest timestamp that it can give; 0 if unknown.
    #[serde(default)]
    pub max_ticks: u64,
    /// Whether its events are always delivered in the order of their timestamps.
    #[serde(default)]
    pub ordered: bool,
}

/// Metadata that became known after the head was written. Readers ignore unknown fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Names {
    /// Number of the first of `sources`.
    pub first_source: u32,
    /// Further sources, with the following numbers.
    pub sources: Vec<Source>,
    /// Remarks for the reader, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Source {
    /// An unknown source, because its block of names is unreadable.
    pub(crate) fn unknown() -> Source {
        Source { name: "?".to_owned(), description: String::new(), ticks_per_second: 0, max_ticks: 0, ordered: false }
    }
}

impl Head {
    pub(crate) fn fault(&self) -> Option<String> {
        if self.types.len() > MOST_TYPES {
            return Some(format!("{} event types, and there may be {MOST_TYPES}", self.types.len()));
        }
        if self.sources.len() > MOST_SOURCES {
            return Some(format!("{} sources, and there may be {MOST_SOURCES}", self.sources.len()));
        }
        let wide = self.types.iter().find(|of| of.elements.len() > MOST_ELEMENTS)?;
        Some(format!("{} with {} elements, and there may be {MOST_ELEMENTS}", wide.name, wide.elements.len()))
    }

    /// Returns how events of each type are packed.
    pub fn layouts(&self) -> Vec<Layout> {
        self.types.iter().enumerate().map(|(number, of)| Layout::new(number as u8, of)).collect()
    }

    /// The name of the file in a folder: `trace.WORLD.RANK.HOST.PID.ibex`. No two processes of a job have the same.
    pub fn file_name(&self) -> String {
        let rank = self.rank.map_or_else(|| "x".to_owned(), |rank| rank.to_string());
        let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
        let host: String = self.host.chars().take(64).map(plain).collect();
        format!("trace.{}.{rank}.{host}.{}.ibex", self.world, self.pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_after_its_process_and_stays_in_the_folder() {
        let head = Head { rank: Some(3), pid: 77, host: "../n1.site".into(), ..Head::default() };
        assert_eq!(head.file_name(), "trace.0.3.___n1_site.77.ibex");
        assert_eq!(Head { pid: 5, ..Head::default() }.file_name(), "trace.0.x..5.ibex");
    }

    #[test]
    fn a_head_that_no_file_can_have_says_why() {
        let wide = EventType {
            name: "w".into(),
            description: String::new(),
            elements: vec![Element::new("e", ElementKind::U32, ""); MOST_ELEMENTS + 1],
        };
        let head = Head { types: vec![wide], ..Head::default() };
        assert_eq!(head.fault().as_deref(), Some("w with 17 elements, and there may be 16"));
        assert_eq!(Head::default().fault(), None);
    }

    #[test]
    fn a_reader_ignores_unknown_fields_and_missing_ones_are_empty() {
        let head: Head = serde_json::from_str(r#"{"types": [], "communicators": [1, 2]}"#).expect("read");
        assert_eq!(head, Head::default());
    }

    #[test]
    fn the_kind_of_an_element_gives_the_number_of_its_64_bits() {
        assert_eq!(ElementKind::I32.number(u64::MAX), -1);
        assert_eq!(ElementKind::U64.number(u64::MAX), i128::from(u64::MAX));
    }
}
