// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of the flight recorder in a folder: their processes, and which files may be removed. A process that dies
//! leaves its file. Each process that begins removes the oldest files of dead processes of its user, down to [`MOST`].
//! Grade: setup. Threads: any; if several remove the same file, one succeeds. Tests: `tests.rs`.

use super::layout::started;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Number of files of dead processes that are kept: 19 MiB.
pub const MOST: usize = 64;

/// The folder, unless a parameter names another.
pub const FOLDER: &str = "/dev/shm";

const PREFIX: &str = "ibex-flight.";

pub(super) fn file_name(job: u32, rank: u32, pid: u32) -> String {
    format!("{PREFIX}{job}.{rank}.{pid}")
}

/// A file, with the data in its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Path of the file.
    pub path: PathBuf,
    /// Open MPI's number of the job.
    pub job: u32,
    /// Rank of the process.
    pub rank: u32,
    /// Id of the process.
    pub pid: u32,
}

impl Found {
    fn at(path: PathBuf) -> Option<Found> {
        let name = path.file_name()?.to_str()?;
        let name = name.strip_prefix('.').unwrap_or(name);
        let mut numbers = name.strip_prefix(PREFIX)?.split('.').map(str::parse);
        let (job, rank, pid) = (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
        numbers.next().is_none().then_some(Found { path, job, rank, pid })
    }

    fn is_finished(&self) -> bool {
        self.path.file_name().is_some_and(|name| !name.as_encoded_bytes().starts_with(b"."))
    }
}

fn all(folder: &Path) -> Vec<Found> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| Found::at(file.path())).collect()
}

/// The files of a folder, in the order of jobs and ranks.
pub fn find(folder: &Path) -> Vec<Found> {
    let mut found: Vec<_> = all(folder).into_iter().filter(Found::is_finished).collect();
    found.sort_by_key(|file| (file.job, file.rank, file.pid));
    found
}

/// Whether a process of this id is alive.
pub fn is_alive(pid: u32) -> bool {
    started(pid) != 0
}

pub(super) fn clear(folder: &Path) {
    let found = all(folder);
    if found.len() <= MOST {
        return;
    }
    let me = fs::metadata("/proc/self").map(|process| process.uid()).ok();
    let mut dead: Vec<(SystemTime, PathBuf)> = found
        .into_iter()
        .filter(|file| !is_alive(file.pid))
        .filter_map(|file| {
            let about = fs::symlink_metadata(&file.path).ok()?;
            let is_ours = about.is_file() && Some(about.uid()) == me;
            is_ours.then_some((about.modified().ok()?, file.path))
        })
        .collect();
    dead.sort();
    let beyond = dead.len().saturating_sub(MOST);
    for (_, path) in &dead[..beyond] {
        let _ = fs::remove_file(path);
    }
}
