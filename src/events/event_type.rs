// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of an event type: name, description, level, typed elements with displacements, bound object, clock.
//!
//! Owns the vocabulary of the table in `table.rs`: [`EventType`], [`Element`], [`ElementType`], [`Value`],
//! [`StampedBy`], and [`Safety`], MPI's callback safety requirements. Nothing here runs when an event is raised. Path:
//! setup. Threads: plain data. Tests: `tests/table.rs`.

/// How many words of 8 bytes the elements of an event may take.
pub const WORDS: usize = 12;

/// The elements, at their displacements: an element at byte `d` is in word `d / 8`, from bit `d % 8 * 8`.
pub type Words = [u64; WORDS];

/// The place of a type in the table (`table.rs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub(super) u16);

impl TypeId {
    /// Its place in the table.
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What an element is. All are integers in the host's byte order.
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
    /// Its size, and its alignment, in bytes.
    #[must_use]
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
    /// Of a [`ElementType::I32`].
    I32(i32),
    /// Of a [`ElementType::U32`].
    U32(u32),
    /// Of a [`ElementType::U64`].
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
#[derive(Debug, Clone, Copy)]
pub struct Element {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub element_type: ElementType,
    /// What it says, units included.
    pub help: &'static str,
}

/// Whose clock stamps an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StampedBy {
    /// The host's, on the source of the thread in which it happened.
    Host,
    /// The adapter's, on the source of the port, where the adapter stamps completions; else the host's, on the
    /// thread's.
    Adapter,
    /// The host's, on the source of the matching, when a callback asks for it or the event is put into a buffer.
    Raiser,
}

/// An event type.
#[derive(Debug, Clone, Copy)]
pub struct EventType {
    /// Its name, without the prefix `ibex_`.
    pub name: &'static str,
    /// What it tells, and when it fires.
    pub description: &'static str,
    /// Who needs it: the verbosity level of `MPI_T` (MPI 4.1 section 15.3.1), 1 = every user ... 9 = developers of
    /// ibex.
    pub level: u8,
    /// Its elements.
    pub elements: &'static [Element],
    /// Where each element begins in the event's data, bytes; as C would lay out a structure of them.
    pub displacements: &'static [usize],
    /// Where the last element ends, bytes: what a copy of the data takes.
    pub extent: usize,
    /// The element that names the object an event belongs to (the context of a communicator); `None`: bound to no
    /// object.
    pub bound: Option<usize>,
    /// Whose clock stamps it.
    pub stamp: StampedBy,
}

/// What a callback must be fit for; a higher level includes the lower ones (MPI 4.1 section 15.3.8, callback safety).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Safety {
    /// Nothing: it may do anything.
    None,
    /// It calls of MPI only the tool interface's own functions.
    MpiRestricted,
    /// Also, it may run at the same time as itself and other callbacks.
    ThreadSafe,
    /// Also, it may run in a signal handler.
    AsyncSignalSafe,
}

impl Safety {
    /// All, from the least to the most.
    pub const ALL: [Safety; 4] = [Safety::None, Safety::MpiRestricted, Safety::ThreadSafe, Safety::AsyncSignalSafe];

    /// Its place among [`Safety::ALL`].
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Where elements of these kinds begin, laid out as C does.
pub(super) const fn displacements<const N: usize>(kinds: [ElementType; N]) -> [usize; N] {
    let mut at = [0; N];
    let mut next = 0_usize;
    let mut index = 0;
    while index < N {
        let size = kinds[index].size();
        at[index] = next.next_multiple_of(size);
        next = at[index] + size;
        index += 1;
    }
    at
}

/// Where the last of them ends: what a tool that knows displacements and types has room for. C would pad a structure
/// behind it; such padding is nobody's.
pub(super) const fn extent<const N: usize>(kinds: [ElementType; N]) -> usize {
    if N == 0 { 0 } else { displacements(kinds)[N - 1] + kinds[N - 1].size() }
}
