// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trace of a job: a folder with a file for each process. Opens all, and converts their times to one time line
//! (`timeline.rs`): that of the first file's host. Path: setup. Threads: any. Tests: tests/folder.rs.

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::reader::Reader;
use crate::storage::refused;
use crate::timeline::{self, Timeline};

/// Most files kept open at once: a process may have 1024 open files in all.
const MOST_OPEN: usize = 256;

/// The traces of a job's processes.
#[derive(Debug)]
pub struct Folder {
    readers: Vec<Reader>,
    lines: Vec<Timeline>,
    unreadable: Vec<Error>,
}

impl Folder {
    /// Opens all files of a folder whose names end in `.ibex`.
    ///
    /// # Errors
    /// The folder cannot be read, has no such file, or none of the files can be read (the error is the first file's).
    /// If only some cannot be read, [`Folder::unreadable`] has the reasons.
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
        let lines = timeline::of(&readers);
        Ok(Folder { readers, lines, unreadable })
    }

    /// The files, ordered by world and rank.
    pub fn readers(&self) -> &[Reader] {
        &self.readers
    }

    /// Why files could not be opened.
    pub fn unreadable(&self) -> &[Error] {
        &self.unreadable
    }

    /// For each file, the conversion of its times to the common time line, with error bounds.
    pub fn lines(&self) -> &[Timeline] {
        &self.lines
    }

    /// The largest error of a file's times relative to the first file's host, ns; `None`: not compared, or no times.
    pub fn error(&self, file: usize) -> Option<i64> {
        let (reader, line) = (self.readers.get(file)?, self.lines.get(file)?);
        let spans = reader.summaries().flat_map(|summary| &summary.sources);
        let errors = spans.filter_map(|span| {
            let relation = reader.relation(span.source)?;
            line.widest(relation.time(span.first)?, relation.time(span.last)?)
        });
        errors.max()
    }
}
