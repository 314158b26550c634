// SPDX-License-Identifier: MIT OR Apache-2.0
//! An OTF2 archive that is being written: a buffer and a file for each location, then the definitions of all.
//!
//! Called by `ibex-export`. Path: setup. Threads: one; the library's handles are not shared (`Archive` is neither `Send`
//! nor `Sync`, as it holds pointers). Memory: [`CHUNK`] bytes for each location. Rules that the blocks below cite:
//! R1: `opened` is open from [`Archive::create`] to `close`, which takes it away; R2: each of `writers` belongs to the
//! open archive and is closed before it; R3: `attributes` lives until `Drop`, and each event that is written with it
//! empties it; R4: texts are copied by the library before a call returns. Tests: in export/tests.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};

use super::buffers::{FLUSH, MEMORY};
use super::error::Otf2Error;
use super::symbols::{AttributeList, Code, EvtWriter, Functions, GlobalDefWriter, RawArchive, SUCCESS, functions};

/// `OTF2_CHUNK_SIZE_MIN`.
const CHUNK: u64 = 256 * 1024;
/// `OTF2_CHUNK_SIZE_DEFINITIONS_DEFAULT`.
const CHUNK_OF_DEFINITIONS: u64 = 4 * 1024 * 1024;
const FILEMODE_WRITE: u8 = 0;
const SUBSTRATE_POSIX: u8 = 1;
const COMPRESSION_NONE: u8 = 1;
const UNDEFINED: u32 = u32::MAX;
const TYPE_UINT32: u8 = 3;
const TYPE_UINT64: u8 = 4;
const TYPE_STRING: u8 = 11;
const PARADIGM_MPI: u8 = 4;

/// An archive that is being written.
pub struct Archive {
    functions: &'static Functions,
    opened: Option<NonNull<RawArchive>>,
    /// By location.
    writers: Vec<NonNull<EvtWriter>>,
    attributes: NonNull<AttributeList>,
}

/// What a message event says.
#[derive(Debug, Clone, Copy)]
pub struct Communication {
    /// The other process's rank in the communicator.
    pub peer: u32,
    /// The communicator's number.
    pub communicator: u32,
    /// The tag. The format has no negative ones: they are written in two's complement.
    pub tag: i32,
    /// Bytes.
    pub bytes: u64,
    /// What names the request, among those of the process.
    pub request: u64,
}

/// The value of an attribute.
#[derive(Debug, Clone, Copy)]
pub enum Value {
    /// A number.
    Number(u32),
    /// The number of a string.
    String(u32),
}

impl Archive {
    /// Makes the folder and begins an archive of this name in it.
    ///
    /// # Errors
    /// No library; the folder exists or cannot be made.
    pub fn create(folder: &Path, name: &str) -> Result<Archive, Otf2Error> {
        let functions = functions()?;
        let what = "begin an archive";
        let failed = || Otf2Error::Failed { what, why: "see that the folder can be made and written to".to_owned() };
        let path = CString::new(folder.as_os_str().as_bytes())
            .map_err(|_| Otf2Error::Text(folder.to_string_lossy().into_owned()))?;
        let name = text(name)?;
        // SAFETY: takes nothing.
        let attributes = NonNull::new(unsafe { (functions.new_attributes)() }).ok_or_else(failed)?;
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
        let raw = archive.raw().map_err(|_| failed())?;
        // SAFETY: R1; the callbacks are static.
        archive.check(what, unsafe { (functions.set_flush)(raw, &raw const FLUSH, ptr::null_mut()) })?;
        // SAFETY: R1; the callbacks are static.
        archive.check(what, unsafe { (functions.set_memory)(raw, &raw const MEMORY, ptr::null_mut()) })?;
        // SAFETY: R1.
        archive.check(what, unsafe { (functions.set_serial)(raw) })?;
        // SAFETY: R1.
        archive.check(what, unsafe { (functions.open_events)(raw) })?;
        Ok(archive)
    }

    /// Says who made the archive, and what of.
    ///
    /// # Errors
    /// The library refuses.
    pub fn describe(&mut self, creator: &str, description: &str) -> Result<(), Otf2Error> {
        let raw = self.raw()?;
        let (creator, description) = (text(creator)?, text(description)?);
        // SAFETY: R1, R4.
        self.check("name its creator", unsafe { (self.functions.set_creator)(raw, creator.as_ptr()) })?;
        // SAFETY: R1, R4.
        self.check("be described", unsafe { (self.functions.set_description)(raw, description.as_ptr()) })
    }

    /// Writes down a property of the whole archive; its name is `SOMEBODY::SOMETHING`.
    ///
    /// # Errors
    /// The name is not of that form.
    pub fn property(&mut self, name: &str, value: &str) -> Result<(), Otf2Error> {
        let (raw, name, value) = (self.raw()?, text(name)?, text(value)?);
        // SAFETY: R1, R4.
        let done = unsafe { (self.functions.set_property)(raw, name.as_ptr(), value.as_ptr(), true) };
        self.check("write a property", done)
    }

    /// Begins the next location. They are numbered from 0.
    ///
    /// # Errors
    /// The library refuses, for example because no more files can be opened.
    pub fn location(&mut self) -> Result<u32, Otf2Error> {
        let number = self.writers.len();
        // SAFETY: R1; the writer is closed by `close`, and no other has this number.
        let writer = unsafe { (self.functions.event_writer)(self.raw()?, number as u64) };
        let why = || "no more files or memory".to_owned();
        let writer = NonNull::new(writer).ok_or_else(|| Otf2Error::Failed { what: "begin a location", why: why() })?;
        self.writers.push(writer);
        Ok(number as u32)
    }

    /// A region begins at a location.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn enter(&mut self, location: u32, time: u64, region: u32) -> Result<(), Otf2Error> {
        // SAFETY: R2; no attributes.
        let done = unsafe { (self.functions.enter)(self.writer(location), ptr::null_mut(), time, region) };
        self.check("write an event", done)
    }

    /// The region that began last ends.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn leave(&mut self, location: u32, time: u64, region: u32) -> Result<(), Otf2Error> {
        // SAFETY: R2; no attributes.
        let done = unsafe { (self.functions.leave)(self.writer(location), ptr::null_mut(), time, region) };
        self.check("write an event", done)
    }

    /// A send begins.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn isend(
        &mut self,
        location: u32,
        time: u64,
        to: &Communication,
        attributes: &[(u32, Value)],
    ) -> Result<(), Otf2Error> {
        let list = self.attributes(attributes)?;
        let (writer, tag) = (self.writer(location), to.tag.cast_unsigned());
        // SAFETY: R2, R3.
        let done =
            unsafe { (self.functions.isend)(writer, list, time, to.peer, to.communicator, tag, to.bytes, to.request) };
        self.check("write an event", done)
    }

    /// A send is done.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn isend_complete(&mut self, location: u32, time: u64, request: u64) -> Result<(), Otf2Error> {
        // SAFETY: R2; no attributes.
        let done = unsafe { (self.functions.isend_complete)(self.writer(location), ptr::null_mut(), time, request) };
        self.check("write an event", done)
    }

    /// A receive begins.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn irecv_request(&mut self, location: u32, time: u64, request: u64) -> Result<(), Otf2Error> {
        // SAFETY: R2; no attributes.
        let done = unsafe { (self.functions.irecv_request)(self.writer(location), ptr::null_mut(), time, request) };
        self.check("write an event", done)
    }

    /// A receive is done.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn irecv(
        &mut self,
        location: u32,
        time: u64,
        of: &Communication,
        attributes: &[(u32, Value)],
    ) -> Result<(), Otf2Error> {
        let list = self.attributes(attributes)?;
        let (writer, tag) = (self.writer(location), of.tag.cast_unsigned());
        // SAFETY: R2, R3.
        let done =
            unsafe { (self.functions.irecv)(writer, list, time, of.peer, of.communicator, tag, of.bytes, of.request) };
        self.check("write an event", done)
    }

    /// A metric of one member has a new value.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn metric(&mut self, location: u32, time: u64, metric: u32, value: u64) -> Result<(), Otf2Error> {
        let (writer, none, kind) = (self.writer(location), ptr::null_mut(), TYPE_UINT64);
        // SAFETY: R2; one type and one value, as said, both valid for the call. `OTF2_MetricValue` is a union of 8 bytes.
        let done = unsafe { (self.functions.metric)(writer, none, time, metric, 1, &raw const kind, &raw const value) };
        self.check("write an event", done)
    }

    /// Writes the rest of all events, then the definitions, and ends the archive.
    ///
    /// # Errors
    /// A file cannot be written, or the definitions fail.
    pub fn finish<E: From<Otf2Error>>(
        mut self,
        define: impl FnOnce(&mut Definitions<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let counts = self.close_events()?;
        self.write_local_definitions(counts.len())?;
        let raw = self.raw()?;
        // SAFETY: R1.
        let writer = unsafe { (self.functions.global_writer)(raw) };
        let what = "write the definitions";
        let writer = NonNull::new(writer).ok_or(Otf2Error::Failed { what, why: "no memory".to_owned() })?;
        define(&mut Definitions { archive: &self, writer, counts: &counts })?;
        // SAFETY: R1; nobody has the writer any more.
        self.check(what, unsafe { (self.functions.close_global_writer)(raw, writer.as_ptr()) })?;
        let archive = self.opened.take();
        // SAFETY: R1: it was open, and is not used after this. R2: no writer is open.
        let closed = archive.map_or(SUCCESS, |archive| unsafe { (self.functions.close)(archive.as_ptr()) });
        Ok(self.check("end the archive", closed)?)
    }

    /// Closes the events of every location; the number of each.
    fn close_events(&mut self) -> Result<Vec<u64>, Otf2Error> {
        let raw = self.raw()?;
        let mut counts = Vec::with_capacity(self.writers.len());
        let mut outcome = Ok(());
        for writer in std::mem::take(&mut self.writers) {
            let mut count = 0;
            // SAFETY: R2; `count` is valid for the call.
            let counted = unsafe { (self.functions.event_count)(writer.as_ptr(), &raw mut count) };
            // SAFETY: R2; it is in no list any more.
            let closed = unsafe { (self.functions.close_event_writer)(raw, writer.as_ptr()) };
            counts.push(count);
            outcome = outcome.and(self.check("write an event", counted)).and(self.check("write events", closed));
        }
        outcome?;
        // SAFETY: R1.
        self.check("end the events", unsafe { (self.functions.close_events)(raw) })?;
        Ok(counts)
    }

    /// Readers want a file of definitions for each location, even if nothing is in it.
    fn write_local_definitions(&self, locations: usize) -> Result<(), Otf2Error> {
        let (raw, what) = (self.raw()?, "write a location's definitions");
        // SAFETY: R1.
        self.check(what, unsafe { (self.functions.open_definitions)(raw) })?;
        for location in 0..locations as u64 {
            // SAFETY: R1.
            let writer = unsafe { (self.functions.definition_writer)(raw, location) };
            let writer = NonNull::new(writer).ok_or(Otf2Error::Failed { what, why: "no file or memory".to_owned() })?;
            // SAFETY: R1; nobody has the writer after this.
            self.check(what, unsafe { (self.functions.close_definition_writer)(raw, writer.as_ptr()) })?;
        }
        // SAFETY: R1.
        self.check(what, unsafe { (self.functions.close_definitions)(raw) })
    }

    fn raw(&self) -> Result<*mut RawArchive, Otf2Error> {
        let closed = || Otf2Error::Failed { what: "write", why: "the archive is not open".to_owned() };
        self.opened.map(NonNull::as_ptr).ok_or_else(closed)
    }

    fn writer(&self, location: u32) -> *mut EvtWriter {
        self.writers[location as usize].as_ptr()
    }

    /// The list with these attributes. An event takes them out again.
    fn attributes(&mut self, attributes: &[(u32, Value)]) -> Result<*mut AttributeList, Otf2Error> {
        let list = self.attributes.as_ptr();
        for (attribute, value) in attributes {
            let added = match value {
                // SAFETY: R3.
                Value::Number(number) => unsafe { (self.functions.add_number)(list, *attribute, *number) },
                // SAFETY: R3.
                Value::String(string) => unsafe { (self.functions.add_string)(list, *attribute, *string) },
            };
            self.check("add an attribute", added)?;
        }
        Ok(list)
    }

    fn check(&self, what: &'static str, code: Code) -> Result<(), Otf2Error> {
        if code == SUCCESS { Ok(()) } else { Err(Otf2Error::Failed { what, why: self.functions.describe(code) }) }
    }
}

impl Drop for Archive {
    /// Gives up an archive that was not finished. What the library says of it then is of no use.
    fn drop(&mut self) {
        if let Some(archive) = self.opened.take() {
            for writer in self.writers.drain(..) {
                // SAFETY: R2; it is in no list any more.
                unsafe { (self.functions.close_event_writer)(archive.as_ptr(), writer.as_ptr()) };
            }
            // SAFETY: R1: it was open, and is not used after this.
            unsafe { (self.functions.close)(archive.as_ptr()) };
        }
        // SAFETY: R3: this is its end.
        unsafe { (self.functions.delete_attributes)(self.attributes.as_ptr()) };
    }
}

/// The definitions of an archive. What another names must be defined before it; numbers are the caller's.
pub struct Definitions<'a> {
    archive: &'a Archive,
    writer: NonNull<GlobalDefWriter>,
    counts: &'a [u64],
}

/// Each call defines one thing. Errors: the file cannot be written.
#[allow(clippy::missing_errors_doc)]
impl Definitions<'_> {
    /// The clock: ticks a second, the first tick, how many, and when the first was, in nanoseconds since 1970.
    pub fn clock(&mut self, resolution: u64, first: u64, length: u64, since_1970: u64) -> Result<(), Otf2Error> {
        // SAFETY: the writer is open as long as this lives.
        self.done(unsafe { (self.functions().clock)(self.writer.as_ptr(), resolution, first, length, since_1970) })
    }

    /// A text.
    pub fn string(&mut self, number: u32, string: &str) -> Result<(), Otf2Error> {
        let string = text(string)?;
        // SAFETY: the writer is open as long as this lives; R4.
        self.done(unsafe { (self.functions().string)(self.writer.as_ptr(), number, string.as_ptr()) })
    }

    /// A part of the machine, its kind, and what it is part of.
    pub fn tree_node(&mut self, number: u32, name: u32, kind: u32, parent: Option<u32>) -> Result<(), Otf2Error> {
        let parent = parent.unwrap_or(UNDEFINED);
        // SAFETY: the writer is open as long as this lives.
        self.done(unsafe { (self.functions().tree_node)(self.writer.as_ptr(), number, name, kind, parent) })
    }

    /// A process, on a part of the machine.
    pub fn process(&mut self, number: u32, name: u32, node: u32) -> Result<(), Otf2Error> {
        const PROCESS: u8 = 1;
        let writer = self.writer.as_ptr();
        // SAFETY: the writer is open as long as this lives.
        self.done(unsafe { (self.functions().location_group)(writer, number, name, PROCESS, node, UNDEFINED) })
    }

    /// A location of a process.
    pub fn location(&mut self, number: u32, name: u32, process: u32) -> Result<(), Otf2Error> {
        const CPU_THREAD: u8 = 1;
        let (writer, location) = (self.writer.as_ptr(), u64::from(number));
        let count = self.counts[number as usize];
        // SAFETY: the writer is open as long as this lives.
        self.done(unsafe { (self.functions().location)(writer, location, name, CPU_THREAD, count, process) })
    }

    /// A region, which is made up: no function of the application.
    pub fn region(&mut self, number: u32, name: u32, description: u32) -> Result<(), Otf2Error> {
        const ARTIFICIAL: u8 = 31;
        let writer = self.writer.as_ptr();
        // SAFETY: the writer is open as long as this lives.
        self.done(unsafe {
            (self.functions().region)(
                writer,
                number,
                name,
                name,
                description,
                ARTIFICIAL,
                PARADIGM_MPI,
                0,
                UNDEFINED,
                0,
                0,
            )
        })
    }

    /// The locations that are MPI's processes: a group that all others are chosen from.
    pub fn ranks(&mut self, number: u32, name: u32, locations: &[u64]) -> Result<(), Otf2Error> {
        const COMM_LOCATIONS: u8 = 4;
        self.any_group(number, name, COMM_LOCATIONS, locations)
    }

    /// The members of a communicator, by their places in [`Definitions::ranks`].
    pub fn group(&mut self, number: u32, name: u32, ranks: &[u64]) -> Result<(), Otf2Error> {
        const COMM_GROUP: u8 = 5;
        self.any_group(number, name, COMM_GROUP, ranks)
    }

    fn any_group(&mut self, number: u32, name: u32, kind: u8, members: &[u64]) -> Result<(), Otf2Error> {
        let (writer, count) = (self.writer.as_ptr(), members.len() as u32);
        // SAFETY: the writer is open as long as this lives; so many members are valid for the call.
        self.done(unsafe {
            (self.functions().group)(writer, number, name, kind, PARADIGM_MPI, 0, count, members.as_ptr())
        })
    }

    /// A communicator of a group.
    pub fn communicator(&mut self, number: u32, name: u32, group: u32) -> Result<(), Otf2Error> {
        let writer = self.writer.as_ptr();
        // SAFETY: the writer is open as long as this lives.
        self.done(unsafe { (self.functions().communicator)(writer, number, name, group, UNDEFINED, 0) })
    }

    /// A communicator between two groups.
    pub fn intercommunicator(&mut self, number: u32, name: u32, groups: (u32, u32)) -> Result<(), Otf2Error> {
        let writer = self.writer.as_ptr();
        // SAFETY: the writer is open as long as this lives.
        self.done(unsafe {
            (self.functions().intercommunicator)(writer, number, name, groups.0, groups.1, UNDEFINED, 0)
        })
    }

    /// A metric of one member, whose values hold from the moment of each on; the member has the metric's number.
    pub fn metric(&mut self, number: u32, name: u32, description: u32, unit: u32) -> Result<(), Otf2Error> {
        const OTHER: u8 = 0;
        const ABSOLUTE_NEXT: u8 = 1 | 3 << 4;
        const DECIMAL: u8 = 1;
        const ASYNCHRONOUS: u8 = 2;
        const ABSTRACT: u8 = 1;
        let writer = self.writer.as_ptr();
        // SAFETY: the writer is open as long as this lives.
        self.done(unsafe {
            (self.functions().metric_member)(
                writer,
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
        // SAFETY: the writer is open as long as this lives; one member, valid for the call.
        self.done(unsafe {
            (self.functions().metric_class)(writer, number, 1, &raw const number, ASYNCHRONOUS, ABSTRACT)
        })
    }

    /// An attribute of events; its values are texts or numbers.
    pub fn attribute(&mut self, number: u32, name: u32, description: u32, is_text: bool) -> Result<(), Otf2Error> {
        let (writer, kind) = (self.writer.as_ptr(), if is_text { TYPE_STRING } else { TYPE_UINT32 });
        // SAFETY: the writer is open as long as this lives.
        self.done(unsafe { (self.functions().attribute)(writer, number, name, description, kind) })
    }

    fn functions(&self) -> &'static Functions {
        self.archive.functions
    }

    fn done(&self, code: Code) -> Result<(), Otf2Error> {
        self.archive.check("write a definition", code)
    }
}

fn text(text: &str) -> Result<CString, Otf2Error> {
    CString::new(text).map_err(|_| Otf2Error::Text(text.to_owned()))
}
