// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of a trace: a file that stays open or is opened for each reading, or memory. Called by `contents.rs` and
//! `reader.rs`. Path: setup. Threads: any; reading moves no position. Tests: the callers'.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Error;

#[derive(Debug)]
pub(crate) struct Storage {
    name: PathBuf,
    length: u64,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Memory(Vec<u8>),
    Open(File),
    /// A file that is opened for each reading, because the number of open files is limited.
    Closed,
}

impl Storage {
    pub(crate) fn open(name: &Path) -> Result<Storage, Error> {
        let refused = |cause| refused("open", name, cause);
        let file = File::open(name).map_err(refused)?;
        let length = file.metadata().map_err(refused)?.len();
        Ok(Storage { name: name.to_owned(), length, bytes: Bytes::Open(file) })
    }

    pub(crate) fn memory(name: &str, bytes: Vec<u8>) -> Storage {
        Storage { name: name.into(), length: bytes.len() as u64, bytes: Bytes::Memory(bytes) }
    }

    /// Opens the file for each reading from now on.
    pub(crate) fn close(&mut self) {
        if let Bytes::Open(_) = self.bytes {
            self.bytes = Bytes::Closed;
        }
    }

    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// The bytes from `offset` on: `most`, or as many as there are.
    pub(crate) fn read(&self, offset: u64, most: u64) -> Result<Vec<u8>, Error> {
        let count = most.min(self.length.saturating_sub(offset)) as usize;
        let from_file = |file: &File| {
            let mut bytes = vec![0; count];
            file.read_exact_at(&mut bytes, offset).map(|()| bytes)
        };
        let read = match &self.bytes {
            Bytes::Memory(bytes) => {
                let first = offset.min(self.length) as usize;
                Ok(bytes[first..first + count].to_vec())
            }
            Bytes::Open(file) => from_file(file),
            Bytes::Closed => File::open(&self.name).and_then(|file| from_file(&file)),
        };
        read.map_err(|cause| refused("read", &self.name, cause))
    }
}

pub(crate) fn refused(action: &'static str, file: &Path, cause: io::Error) -> Error {
    Error::System { action, file: file.to_owned(), cause: Arc::new(cause) }
}
