// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trace of a job: a folder with a file for each process.
//!
//! Opens all of them, and gives their events on one time line. The processes of a host share its monotonic clock: its
//! offset to the calendar is taken from the first of them, so that times of a host stay as exact to each other as they
//! were measured. Hosts are to each other as their calendars are.
//!
//! Path: setup. Threads: any. Tests: tests/folder.rs.

use std::collections::HashMap;
use std::ops::RangeBounds;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::merge::Merge;
use crate::reader::Reader;
use crate::storage::refused;

/// How many files are kept open at once: a process may have 1024, and has others.
const MOST_OPEN: usize = 256;

/// The traces of a job's processes.
#[derive(Debug)]
pub struct Folder {
    readers: Vec<Reader>,
    unreadable: Vec<Error>,
}

impl Folder {
    /// Opens all files of a folder whose names end in `.ibex`.
    ///
    /// # Errors
    /// The folder cannot be read, has no such file, or none of them can be read; then the first says why. If only some
    /// cannot be read, [`Folder::unreadable`] has the reasons.
    pub fn open(folder: &Path) -> Result<Folder, Error> {
        let refused = |cause| refused("read the folder", folder, cause);
        let mut files: Vec<PathBuf> = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(refused)? {
            files.push(entry.map_err(refused)?.path());
        }
        files.retain(|file| file.extension().is_some_and(|extension| extension == "ibex"));
        files.sort();
        let (mut readers, mut unreadable) = (Vec::new(), Vec::new());
        let many = files.len() > MOST_OPEN;
        for file in files {
            match Reader::open(&file) {
                Ok(mut reader) => {
                    if many {
                        reader.close();
                    }
                    readers.push(reader);
                }
                Err(error) => unreadable.push(error),
            }
        }
        if readers.is_empty() {
            let none = || Error::NoTrace { folder: folder.to_owned() };
            return Err(unreadable.into_iter().next().unwrap_or_else(none));
        }
        readers.sort_by_key(|reader| (reader.head().world, reader.head().rank, reader.head().pid));
        Ok(Folder { readers, unreadable })
    }

    /// The files, by world and rank.
    #[must_use]
    pub fn readers(&self) -> &[Reader] {
        &self.readers
    }

    /// Why files could not be opened.
    #[must_use]
    pub fn unreadable(&self) -> &[Error] {
        &self.unreadable
    }

    /// What is added to the times of each file to have nanoseconds since 1970.
    #[must_use]
    pub fn shifts(&self) -> Vec<i64> {
        let mut hosts = HashMap::new();
        let shift = |reader: &Reader| *hosts.entry(reader.head().host.clone()).or_insert(reader.head().calendar);
        self.readers.iter().map(shift).collect()
    }

    /// The events of all files within a range of times, in their order; times are nanoseconds since 1970.
    pub fn events(&self, range: &impl RangeBounds<i64>) -> Merge<'_> {
        Merge::new(&self.readers, self.shifts(), range, self.unreadable.clone())
    }
}

impl Reader {
    /// The events within a range of times, in their order; times are those of the host's monotonic clock. Blocks
    /// beyond the range are not read.
    pub fn by_time(&self, range: &impl RangeBounds<i64>) -> Merge<'_> {
        Merge::new(std::slice::from_ref(self), vec![0], range, Vec::new())
    }
}
