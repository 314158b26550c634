// SPDX-License-Identifier: MIT OR Apache-2.0
//! Named pipes in the fabric's folder, by which events reach programs through real descriptors.
//! Owns the pipes that this process reads (`Mailbox`), and a cache of those that it writes (`Pipes`). Called by:
//! completion channels and opened adapters (read), completion queues, queue pairs and timers (write). Grade: setup and
//! events; one `write` per notification, none while the queue is not armed. Thread rule: any thread. A record is one
//! write of less than `PIPE_BUF`, so it is never torn.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{CWD, Mode, mkfifoat};

use crate::engine::{Errno, Result};

/// A record in a pipe: kind and number of its object, the event, and the owner's cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) about: u32,
    pub(crate) id: u32,
    pub(crate) event: u32,
    pub(crate) cookie: u64,
}

/// `Record::about`.
pub(crate) const ABOUT_CQ: u32 = 1;
pub(crate) const ABOUT_QP: u32 = 2;
pub(crate) const ABOUT_SRQ: u32 = 3;
pub(crate) const ABOUT_PORT: u32 = 4;
pub(crate) const ABOUT_DEVICE: u32 = 5;
/// For a service thread, which has to look for commands and timers.
pub(crate) const BELL: Record = Record { about: 6, id: 0, event: 0, cookie: 0 };

impl Record {
    fn words(self) -> [u64; 3] {
        [u64::from(self.about) << 32 | u64::from(self.id), u64::from(self.event), self.cookie]
    }
}

fn path_of(folder: &Path, id: u32) -> PathBuf {
    folder.join(format!("pipe-{id}"))
}

/// A pipe that this process reads. Dropping it removes its file.
pub(crate) struct Mailbox {
    pub(crate) id: u32,
    file: File,
    path: PathBuf,
}

impl Mailbox {
    pub(crate) fn new(folder: &Path, id: u32) -> Result<Mailbox> {
        let path = path_of(folder, id);
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).map_err(std::io::Error::from)?;
        // Opened for reading and writing, so that it neither waits for a writer nor ends when the last writer closes.
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        Ok(Mailbox { id, file, path })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Wakes the thread that waits for a record.
    pub(crate) fn ring(&self) {
        let _is_full = (&self.file).write(BELL.words().map(u64::to_ne_bytes).as_flattened());
    }

    /// Reads the next record, which may be about an object that is gone.
    pub(crate) fn read(&self) -> Result<Record> {
        let mut words = [[0; 8]; 3];
        if (&self.file).read(words.as_flattened_mut())? != 24 {
            return Err(Errno(libc::EIO));
        }
        let [object, event, cookie] = words.map(u64::from_ne_bytes);
        Ok(Record { about: (object >> 32) as u32, id: object as u32, event: event as u32, cookie })
    }
}

pub(crate) fn remove(folder: &Path, id: u32) {
    let _gone = std::fs::remove_file(path_of(folder, id));
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.path);
    }
}

pub(crate) struct Pipes {
    folder: PathBuf,
    open: Mutex<HashMap<u32, File>>,
}

impl Pipes {
    pub(crate) fn new(folder: &Path) -> Pipes {
        Pipes { folder: folder.to_owned(), open: Mutex::default() }
    }

    /// Writes a record to pipe `id`; it is lost if the pipe has no reader or is full.
    #[cold]
    pub(crate) fn send(&self, id: u32, record: Record) {
        if id == 0 {
            return;
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match open.entry(id) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                let path = path_of(&self.folder, id);
                let Ok(file) = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path) else { return };
                entry.insert(file)
            }
        };
        if let Err(error) = file.write(record.words().map(u64::to_ne_bytes).as_flattened())
            && error.raw_os_error() == Some(libc::EPIPE)
        {
            open.remove(&id);
        }
    }
}
