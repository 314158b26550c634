// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of an event type, for the table in `table.rs`; and [`Safety`], MPI's callback safety requirements. Nothing
//! here runs when an event is raised. Grade: setup. Threads: plain data. Tests: `tests/table.rs`.

/// Number of 8-byte words that the elements of an event may fill.
pub const WORDS: usize = 12;

/// The elements, at their displacements: an element at byte `d` is in word `d / 8`, from bit `d % 8 * 8`.
pub type Words = [u64; WORDS];

/// Position of a type in the table (`table.rs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub(in crate::events) u16);

impl TypeId {
    /// Position in the table.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Type of an element. All are integers in the host's byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementType {
    /// A signed number of 32 bits: C's `int`.
    I32,
    /// An unsigned number of 32 bits: C's `unsigned`.
    U32,
    /// An unsigned number of 64 bits: C's `unsigned long` where pointers have 64 bits.
    U64,
}

impl ElementType {
    /// Size and alignment in bytes.
    pub const fn size(self) -> usize {
        match self {
            ElementType::I32 | ElementType::U32 => 4,
            ElementType::U64 => 8,
        }
    }
}

/// The value of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// Value of a [`ElementType::I32`].
    I32(i32),
    /// Value of a [`ElementType::U32`].
    U32(u32),
    /// Value of a [`ElementType::U64`].
    U64(u64),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::I32(value) => write!(f, "{value}"),
            Value::U32(value) => write!(f, "{value}"),
            Value::U64(value) => write!(f, "{value}"),
        }
    }
}

/// One element of an event type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element {
    /// Name of the element.
    pub name: &'static str,
    /// Type of the element.
    pub element_type: ElementType,
    /// Meaning, with units.
    pub help: &'static str,
}

/// The clock that stamps an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StampedBy {
    /// The host's clock, on the source of the thread in which the event happened.
    Host,
    /// The adapter's clock, on the source of the port, if the adapter stamps completions; else as `Host`.
    Adapter,
    /// The host's clock, on the source of the matching, when a callback asks for it or the event is put into a buffer.
    Raiser,
}

/// An event type.
#[derive(Debug, Clone, Copy)]
pub struct EventType {
    /// Name, without the prefix `ibex_`.
    pub name: &'static str,
    /// Meaning of the event, and the moment when it fires.
    pub description: &'static str,
    /// Audience: the verbosity level of `MPI_T` (MPI 4.1 section 15.3.1), 1 = every user ... 9 = developers of ibex.
    pub level: u8,
    /// The elements.
    pub elements: &'static [Element],
    /// Offset of each element in the event's data, bytes, as C lays out a structure of them.
    pub displacements: &'static [usize],
    /// Offset behind the last element, bytes: the size of a copy of the data.
    pub extent: usize,
    /// The element that names the object of an event (the context of a communicator); `None`: bound to no object.
    pub bound: Option<usize>,
    /// The clock that stamps it.
    pub stamp: StampedBy,
}

/// Safety level that a callback has or a place requires; each includes the lower ones (MPI 4.1 section 15.3.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Safety {
    /// No promise: the callback may do anything.
    None,
    /// The callback calls no functions of MPI but those of the tool interface.
    MpiRestricted,
    /// Also, it may run at the same time as itself and other callbacks.
    ThreadSafe,
    /// Also, it may run in a signal handler.
    AsyncSignalSafe,
}

impl Safety {
    /// All levels, from the lowest to the highest.
    pub const ALL: [Safety; 4] = [Safety::None, Safety::MpiRestricted, Safety::ThreadSafe, Safety::AsyncSignalSafe];

    /// Position in [`Safety::ALL`].
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}
