// SPDX-License-Identifier: MIT OR Apache-2.0
//! The definitions of an archive, which its events name by numbers. Called by `../define.rs` within `Archive::finish`.
//! Path: setup. Threads: one. Rules of the blocks: D1: the writer is open while a [`Definitions`] lives (`archive.rs`
//! closes it afterwards); R4: the library copies texts before a call returns. Tests: export/tests/otf2.rs.

use std::ptr::NonNull;

use anyhow::Result;

use super::symbols::{Code, Functions, GlobalDefWriter, TYPE_UINT64, text};

const UNDEFINED: u32 = u32::MAX;
const TYPE_UINT32: u8 = 3;
const TYPE_INT32: u8 = 7;
const TYPE_STRING: u8 = 11;
const PARADIGM_MPI: u8 = 4;

/// `OTF2_RegionRole`.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(crate) enum Role {
    Function = 1,
    Barrier = 15,
    OneToAll = 23,
    AllToOne = 24,
    AllToAll = 25,
    OtherCollective = 26,
    File = 27,
    PointToPoint = 28,
    OneSided = 29,
    /// A region that is no function of the application.
    Artificial = 31,
}

/// `OTF2_Type` of an attribute.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(crate) enum Kind {
    Number = TYPE_UINT32,
    Signed = TYPE_INT32,
    Text = TYPE_STRING,
}

/// The definitions of an archive. Each comes after those that it names; the caller chooses the numbers.
pub(crate) struct Definitions<'a> {
    functions: &'static Functions,
    writer: *mut GlobalDefWriter,
    counts: &'a [u64],
}

impl<'a> Definitions<'a> {
    /// `counts`: number of events of each location of the archive.
    ///
    /// # Safety D1: the writer is open as long as this lives.
    pub(super) unsafe fn new(
        functions: &'static Functions,
        writer: NonNull<GlobalDefWriter>,
        counts: &'a [u64],
    ) -> Self {
        Definitions { functions, writer: writer.as_ptr(), counts }
    }
}

/// Each function defines one thing, and fails if the file cannot be written.
impl Definitions<'_> {
    /// Defines the clock: ticks per second, first tick, number of ticks, and time of the first, nanoseconds since 1970.
    pub(crate) fn clock(&mut self, resolution: u64, first: u64, length: u64, since_1970: u64) -> Result<()> {
        // SAFETY: D1.
        self.done(unsafe { (self.functions.clock)(self.writer, resolution, first, length, since_1970) })
    }

    pub(crate) fn string(&mut self, number: u32, string: &str) -> Result<()> {
        let string = text(string)?;
        // SAFETY: D1; R4.
        self.done(unsafe { (self.functions.string)(self.writer, number, string.as_ptr()) })
    }

    /// Defines a part of the machine, its kind, and the part that contains it.
    pub(crate) fn tree_node(&mut self, number: u32, name: u32, kind: u32, parent: Option<u32>) -> Result<()> {
        let parent = parent.unwrap_or(UNDEFINED);
        // SAFETY: D1.
        self.done(unsafe { (self.functions.tree_node)(self.writer, number, name, kind, parent) })
    }

    pub(crate) fn process(&mut self, number: u32, name: u32, node: u32) -> Result<()> {
        const PROCESS: u8 = 1;
        // SAFETY: D1.
        self.done(unsafe { (self.functions.location_group)(self.writer, number, name, PROCESS, node, UNDEFINED) })
    }

    pub(crate) fn location(&mut self, number: u32, name: u32, process: u32) -> Result<()> {
        const CPU_THREAD: u8 = 1;
        let (location, count) = (u64::from(number), self.counts[number as usize]);
        // SAFETY: D1.
        self.done(unsafe { (self.functions.location)(self.writer, location, name, CPU_THREAD, count, process) })
    }

    pub(crate) fn region(&mut self, number: u32, name: u32, description: u32, role: Role) -> Result<()> {
        // SAFETY: D1.
        self.done(unsafe {
            (self.functions.region)(
                self.writer,
                number,
                name,
                name,
                description,
                role as u8,
                PARADIGM_MPI,
                0,
                UNDEFINED,
                0,
                0,
            )
        })
    }

    /// Defines the group of all locations that are MPI processes; other groups refer to it.
    pub(crate) fn ranks(&mut self, number: u32, name: u32, locations: &[u64]) -> Result<()> {
        const COMM_LOCATIONS: u8 = 4;
        self.any_group(number, name, COMM_LOCATIONS, locations)
    }

    /// Defines the members of a communicator, by their indexes in [`Definitions::ranks`].
    pub(crate) fn group(&mut self, number: u32, name: u32, ranks: &[u64]) -> Result<()> {
        const COMM_GROUP: u8 = 5;
        self.any_group(number, name, COMM_GROUP, ranks)
    }

    fn any_group(&mut self, number: u32, name: u32, kind: u8, members: &[u64]) -> Result<()> {
        let count = members.len() as u32;
        // SAFETY: D1; `count` members are valid for the call.
        self.done(unsafe {
            (self.functions.group)(self.writer, number, name, kind, PARADIGM_MPI, 0, count, members.as_ptr())
        })
    }

    pub(crate) fn communicator(&mut self, number: u32, name: u32, group: u32) -> Result<()> {
        // SAFETY: D1.
        self.done(unsafe { (self.functions.communicator)(self.writer, number, name, group, UNDEFINED, 0) })
    }

    pub(crate) fn intercommunicator(&mut self, number: u32, name: u32, groups: (u32, u32)) -> Result<()> {
        // SAFETY: D1.
        self.done(unsafe {
            (self.functions.intercommunicator)(self.writer, number, name, groups.0, groups.1, UNDEFINED, 0)
        })
    }

    /// Defines a metric of one member with the same number. A value holds from its event on.
    pub(crate) fn metric(&mut self, number: u32, name: u32, description: u32, unit: u32) -> Result<()> {
        const OTHER: u8 = 0;
        const ABSOLUTE_NEXT: u8 = 1 | 3 << 4;
        const DECIMAL: u8 = 1;
        const ASYNCHRONOUS: u8 = 2;
        const ABSTRACT: u8 = 1;
        // SAFETY: D1.
        self.done(unsafe {
            (self.functions.metric_member)(
                self.writer,
                number,
                name,
                description,
                OTHER,
                ABSOLUTE_NEXT,
                TYPE_UINT64,
                DECIMAL,
                0,
                unit,
            )
        })?;
        // SAFETY: D1; one member, valid for the call.
        self.done(unsafe {
            (self.functions.metric_class)(self.writer, number, 1, &raw const number, ASYNCHRONOUS, ABSTRACT)
        })
    }

    pub(crate) fn attribute(&mut self, number: u32, name: u32, description: u32, kind: Kind) -> Result<()> {
        let kind = kind as u8;
        // SAFETY: D1.
        self.done(unsafe { (self.functions.attribute)(self.writer, number, name, description, kind) })
    }

    fn done(&self, code: Code) -> Result<()> {
        self.functions.check("write a definition", code)
    }
}
