// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages to the user on standard error, which mpirun forwards. Called by plugin-abi's `messages`. Grade: setup and
//! errors. Threads: any (one write each). `opal_show_help` is not used: in 4.1 it may free the text before mpirun reads
//! it, which then prints "Data unpack would read past end of buffer" (`orte/util/show_help.c`).

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{sys, version};

const RULE: &str = "--------------------------------------------------------------------------";

/// Prints a line, with the host and process number before it (`opal_output`).
pub fn line(text: &str) {
    let text = CString::new(text.replace('\0', "")).unwrap_or_default();
    // SAFETY: the constant format has one string, which follows; stream 0 is Open MPI's own and always open.
    unsafe { sys::opal_output(0, c"%s".as_ptr(), text.as_ptr()) };
}

/// Prints lines between two rules: at once and unbuffered, as the process may end right after.
pub fn banner(text: &str) {
    let text = format!("{RULE}\n{}\n{RULE}\n", text.trim_end());
    // SAFETY: the bytes are alive. A short or failed write is accepted.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}

/// Whether this process is the first of the job on this host to call this with `text`. The job's folder, which mpirun
/// removes, gets an empty file for each text; if that fails, every process is the first.
#[must_use]
pub fn first_to_say(text: &str) -> bool {
    let Some(folder) = job_folder() else { return true };
    first_to_make(&folder.join(format!("ibex-said-{:016x}", fingerprint(text))))
}

fn first_to_make(file: &Path) -> bool {
    match File::create_new(file) {
        Ok(_) => true,
        Err(error) => error.kind() != io::ErrorKind::AlreadyExists,
    }
}

/// The folder that mpirun made for the job's processes on this host; `None` outside of a job.
fn job_folder() -> Option<PathBuf> {
    // Another series has it elsewhere in the structure.
    if !version::is_of_series() {
        return None;
    }
    // SAFETY: Open MPI sets this pointer before it opens components, and never again.
    let folder = unsafe { (&raw const sys::opal_process_info.job_session_dir).read() };
    if folder.is_null() {
        return None;
    }
    // SAFETY: a NUL-terminated text that lives as long as the process.
    let folder = unsafe { CStr::from_ptr(folder) };
    Some(PathBuf::from(OsStr::from_bytes(folder.to_bytes())))
}

/// FNV-1a.
fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_prints_a_text_and_each_text_is_printed() {
        let folder = std::env::temp_dir().join(format!("ibex-said-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).expect("a new folder");
        let file = |text| folder.join(fingerprint(text).to_string());
        assert!(first_to_make(&file("a port is missing")));
        assert!(!first_to_make(&file("a port is missing")));
        assert!(first_to_make(&file("another port is missing")));
        std::fs::remove_dir_all(&folder).expect("the folder exists");
        assert!(first_to_make(&file("a port is missing")), "without a folder every process is the first");
        assert!(!folder.exists());
    }
}
