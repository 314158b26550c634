// SPDX-License-Identifier: MIT OR Apache-2.0
//! An OTF2 archive that is being written: a buffer and a file for each location, then the definitions of all.
//!
//! Called by `../mod.rs`. Path: setup. Threads: one (`Archive` holds pointers, so it is neither `Send` nor `Sync`).
//! Memory: [`CHUNK`] bytes for each location. Rules of the blocks: R1: `opened` is open from [`Archive::create`] to
//! `close`, which takes it away; R2: each of `writers` belongs to the open archive and is closed before it; R3:
//! `attributes` lives until `Drop`, and writing an event with it empties it; R4: the library copies texts before a call
//! returns. Tests: export/tests/otf2.rs.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};

use anyhow::Result;

use super::buffers::{FLUSH, MEMORY};
use super::definitions::Definitions;
use super::symbols::{
    AttributeList, Code, EvtWriter, Functions, RawArchive, SUCCESS, TYPE_UINT64, failed, functions, text,
};

const CHUNK: u64 = 256 * 1024;
const CHUNK_OF_DEFINITIONS: u64 = 4 * 1024 * 1024;
const FILEMODE_WRITE: u8 = 0;
const SUBSTRATE_POSIX: u8 = 1;
const COMPRESSION_NONE: u8 = 1;

pub(crate) struct Archive {
    functions: &'static Functions,
    opened: Option<NonNull<RawArchive>>,
    /// By location.
    writers: Vec<NonNull<EvtWriter>>,
    attributes: NonNull<AttributeList>,
}

/// The content of a message event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Communication {
    /// The other process's rank in the communicator.
    pub(crate) peer: u32,
    pub(crate) communicator: u32,
    /// The tag. The format has no negative ones: they are written in two's complement.
    pub(crate) tag: u32,
    pub(crate) bytes: u64,
    /// Number of the request, unique in its process.
    pub(crate) request: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Value {
    Number(u32),
    Signed(i32),
    String(u32),
}

impl Archive {
    /// Makes the folder and begins an archive of this name in it. Fails without the library, or if the folder exists or
    /// cannot be made.
    pub(crate) fn create(folder: &Path, name: &str) -> Result<Archive> {
        let functions = functions()?;
        let what = "begin an archive";
        let refused = || failed(what, "see that the folder can be made and written to");
        let (path, name) = (text(folder.as_os_str().as_bytes())?, text(name)?);
        // SAFETY: takes nothing.
        let attributes = NonNull::new(unsafe { (functions.new_attributes)() }).ok_or_else(refused)?;
        // SAFETY: both texts end with 0 and are copied (R4); the numbers are the header's.
        let opened = unsafe {
            (functions.open)(
                path.as_ptr(),
                name.as_ptr(),
                FILEMODE_WRITE,
                CHUNK,
                CHUNK_OF_DEFINITIONS,
                SUBSTRATE_POSIX,
                COMPRESSION_NONE,
            )
        };
        let archive = Archive { functions, opened: NonNull::new(opened), writers: Vec::new(), attributes };
        let raw = archive.raw().map_err(|_| refused())?;
        // SAFETY: R1; the callbacks are static.
        functions.check(what, unsafe { (functions.set_flush)(raw, &raw const FLUSH, ptr::null_mut()) })?;
        // SAFETY: R1; the callbacks are static.
        functions.check(what, unsafe { (functions.set_memory)(raw, &raw const MEMORY, ptr::null_mut()) })?;
        // SAFETY: R1.
        functions.check(what, unsafe { (functions.set_serial)(raw) })?;
        // SAFETY: R1.
        functions.check(what, unsafe { (functions.open_events)(raw) })?;
        Ok(archive)
    }

    pub(crate) fn describe(&mut self, creator: &str, description: &str) -> Result<()> {
        let raw = self.raw()?;
        let (creator, description) = (text(creator)?, text(description)?);
        // SAFETY: R1, R4.
        self.functions.check("name its creator", unsafe { (self.functions.set_creator)(raw, creator.as_ptr()) })?;
        // SAFETY: R1, R4.
        self.functions.check("be described", unsafe { (self.functions.set_description)(raw, description.as_ptr()) })
    }

    /// Writes a property of the whole archive. Fails if its name is not of the form `SOMEBODY::SOMETHING`.
    pub(crate) fn property(&mut self, name: &str, value: &str) -> Result<()> {
        let (raw, name, value) = (self.raw()?, text(name)?, text(value)?);
        // SAFETY: R1, R4.
        let done = unsafe { (self.functions.set_property)(raw, name.as_ptr(), value.as_ptr(), true) };
        self.functions.check("write a property", done)
    }

    /// Begins the next location. They are numbered from 0.
    pub(crate) fn location(&mut self) -> Result<u32> {
        let number = self.writers.len();
        // SAFETY: R1; the writer is closed by `close`, and no other has this number.
        let writer = unsafe { (self.functions.event_writer)(self.raw()?, number as u64) };
        let why = || "no more files or memory".to_owned();
        let writer = NonNull::new(writer).ok_or_else(|| failed("begin a location", &why()))?;
        self.writers.push(writer);
        Ok(number as u32)
    }

    pub(crate) fn enter(&mut self, location: u32, time: u64, region: u32, attributes: &[(u32, Value)]) -> Result<()> {
        let list = self.attributes(attributes)?;
        // SAFETY: R2, R3.
        self.wrote(unsafe { (self.functions.enter)(self.writer(location), list, time, region) })
    }

    /// Writes the end of the region that began last.
    pub(crate) fn leave(&mut self, location: u32, time: u64, region: u32) -> Result<()> {
        // SAFETY: R2; no attributes.
        self.wrote(unsafe { (self.functions.leave)(self.writer(location), ptr::null_mut(), time, region) })
    }

    /// Writes that the recording of a location's events goes on, or stops.
    pub(crate) fn measurement(&mut self, location: u32, time: u64, is_on: bool) -> Result<()> {
        const ON: u8 = 1;
        const OFF: u8 = 2;
        let mode = if is_on { ON } else { OFF };
        // SAFETY: R2; no attributes.
        self.wrote(unsafe { (self.functions.measurement)(self.writer(location), ptr::null_mut(), time, mode) })
    }

    pub(crate) fn isend(
        &mut self,
        location: u32,
        time: u64,
        to: &Communication,
        attributes: &[(u32, Value)],
    ) -> Result<()> {
        let list = self.attributes(attributes)?;
        let (writer, tag) = (self.writer(location), to.tag);
        // SAFETY: R2, R3.
        self.wrote(unsafe {
            (self.functions.isend)(writer, list, time, to.peer, to.communicator, tag, to.bytes, to.request)
        })
    }

    pub(crate) fn isend_complete(&mut self, location: u32, time: u64, request: u64) -> Result<()> {
        // SAFETY: R2; no attributes.
        self.wrote(unsafe { (self.functions.isend_complete)(self.writer(location), ptr::null_mut(), time, request) })
    }

    pub(crate) fn irecv_request(&mut self, location: u32, time: u64, request: u64) -> Result<()> {
        // SAFETY: R2; no attributes.
        self.wrote(unsafe { (self.functions.irecv_request)(self.writer(location), ptr::null_mut(), time, request) })
    }

    pub(crate) fn irecv(
        &mut self,
        location: u32,
        time: u64,
        of: &Communication,
        attributes: &[(u32, Value)],
    ) -> Result<()> {
        let list = self.attributes(attributes)?;
        let (writer, tag) = (self.writer(location), of.tag);
        // SAFETY: R2, R3.
        self.wrote(unsafe {
            (self.functions.irecv)(writer, list, time, of.peer, of.communicator, tag, of.bytes, of.request)
        })
    }

    /// Writes the new value of a metric with one member.
    pub(crate) fn metric(&mut self, location: u32, time: u64, metric: u32, value: u64) -> Result<()> {
        let (writer, none, kind) = (self.writer(location), ptr::null_mut(), TYPE_UINT64);
        // SAFETY: R2; one type and one value, both valid for the call. `OTF2_MetricValue` is a union of 8 bytes.
        self.wrote(unsafe { (self.functions.metric)(writer, none, time, metric, 1, &raw const kind, &raw const value) })
    }

    /// Writes the rest of all events, then the definitions, and ends the archive.
    pub(crate) fn finish(mut self, define: impl FnOnce(&mut Definitions<'_>) -> Result<()>) -> Result<()> {
        let counts = self.close_events()?;
        self.write_local_definitions(counts.len())?;
        let raw = self.raw()?;
        // SAFETY: R1.
        let writer = unsafe { (self.functions.global_writer)(raw) };
        let what = "write the definitions";
        let writer = NonNull::new(writer).ok_or_else(|| failed(what, "no memory"))?;
        // SAFETY: the writer is closed below, after the last use of `definitions`.
        let mut definitions = unsafe { Definitions::new(self.functions, writer, &counts) };
        define(&mut definitions)?;
        // SAFETY: R1; `definitions` is not used after this.
        self.functions.check(what, unsafe { (self.functions.close_global_writer)(raw, writer.as_ptr()) })?;
        let archive = self.opened.take();
        // SAFETY: R1: it was open, and is not used after this. R2: no writer is open.
        let closed = archive.map_or(SUCCESS, |archive| unsafe { (self.functions.close)(archive.as_ptr()) });
        self.functions.check("end the archive", closed)
    }

    /// Closes the events of every location; returns the number of each.
    fn close_events(&mut self) -> Result<Vec<u64>> {
        let raw = self.raw()?;
        let mut counts = Vec::with_capacity(self.writers.len());
        let mut outcome = Ok(());
        for writer in std::mem::take(&mut self.writers) {
            let mut count = 0;
            // SAFETY: R2; `count` is valid for the call.
            let counted = unsafe { (self.functions.event_count)(writer.as_ptr(), &raw mut count) };
            // SAFETY: R2; it is no longer in `writers`.
            let closed = unsafe { (self.functions.close_event_writer)(raw, writer.as_ptr()) };
            counts.push(count);
            outcome = outcome
                .and(self.functions.check("write an event", counted))
                .and(self.functions.check("write events", closed));
        }
        outcome?;
        // SAFETY: R1.
        self.functions.check("end the events", unsafe { (self.functions.close_events)(raw) })?;
        Ok(counts)
    }

    /// Writes an empty file of definitions for each location, because readers require one.
    fn write_local_definitions(&self, locations: usize) -> Result<()> {
        let (raw, what) = (self.raw()?, "write a location's definitions");
        // SAFETY: R1.
        self.functions.check(what, unsafe { (self.functions.open_definitions)(raw) })?;
        for location in 0..locations as u64 {
            // SAFETY: R1.
            let writer = unsafe { (self.functions.definition_writer)(raw, location) };
            let writer = NonNull::new(writer).ok_or_else(|| failed(what, "no file or memory"))?;
            // SAFETY: R1; `writer` is not used after this.
            self.functions.check(what, unsafe { (self.functions.close_definition_writer)(raw, writer.as_ptr()) })?;
        }
        // SAFETY: R1.
        self.functions.check(what, unsafe { (self.functions.close_definitions)(raw) })
    }

    fn wrote(&self, code: Code) -> Result<()> {
        self.functions.check("write an event", code)
    }

    fn raw(&self) -> Result<*mut RawArchive> {
        self.opened.map(NonNull::as_ptr).ok_or_else(|| failed("write", "the archive is not open"))
    }

    fn writer(&self, location: u32) -> *mut EvtWriter {
        self.writers[location as usize].as_ptr()
    }

    /// Fills the list with these attributes. An event takes them out again.
    fn attributes(&mut self, attributes: &[(u32, Value)]) -> Result<*mut AttributeList> {
        let list = self.attributes.as_ptr();
        for (attribute, value) in attributes {
            let added = match value {
                // SAFETY: R3.
                Value::Number(number) => unsafe { (self.functions.add_number)(list, *attribute, *number) },
                // SAFETY: R3.
                Value::Signed(number) => unsafe { (self.functions.add_signed)(list, *attribute, *number) },
                // SAFETY: R3.
                Value::String(string) => unsafe { (self.functions.add_string)(list, *attribute, *string) },
            };
            self.functions.check("add an attribute", added)?;
        }
        Ok(list)
    }
}

impl Drop for Archive {
    /// Closes an unfinished archive, whatever the library answers.
    fn drop(&mut self) {
        if let Some(archive) = self.opened.take() {
            for writer in self.writers.drain(..) {
                // SAFETY: R2; it is no longer in `writers`.
                unsafe { (self.functions.close_event_writer)(archive.as_ptr(), writer.as_ptr()) };
            }
            // SAFETY: R1: it was open, and is not used after this.
            unsafe { (self.functions.close)(archive.as_ptr()) };
        }
        // SAFETY: R3: this is its end.
        unsafe { (self.functions.delete_attributes)(self.attributes.as_ptr()) };
    }
}
