// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text to the user, on standard error, which mpirun forwards.
//!
//! Called by plugin-abi's `messages`. Grade: setup and errors; never on a hot path. Threads: any (one write each).
//!
//! Open MPI's own help system (`opal_show_help`), which would count equal messages of many ranks, is not used: in 4.1 a
//! process hands its text to mpirun through a buffer that may be freed before it is read, and then the text is lost
//! (`orte/util/show_help.c`; mpirun prints "Data unpack would read past end of buffer" instead).

use std::ffi::{CStr, CString};

use super::sys;

const RULE: &str = "--------------------------------------------------------------------------";

/// One line, with the host and process number before it (`opal_output`).
pub fn line(text: &str) {
    let text = CString::new(text.replace('\0', "")).unwrap_or_default();
    // SAFETY: a constant format that takes one string, and that string; stream 0 is Open MPI's own and always open.
    unsafe { sys::opal_output(0, c"%s".as_ptr(), text.as_ptr()) };
}

/// A message of several lines between two rules, as Open MPI's help texts look. Written at once and unbuffered, so that it is
/// seen although the process may end right after.
pub fn banner(text: &str) {
    let text = format!("{RULE}\n{}\n{RULE}\n", text.trim_end());
    // SAFETY: writes bytes that are alive to the process's own stderr; a short or failed write is accepted.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}

/// Whether this process is the first of its job on its host: what is true of the host, one process says for all.
#[must_use]
pub fn first_on_host() -> bool {
    // SAFETY: a plain integer, set before components are opened and never after; 0 where there is no job.
    unsafe { (&raw const sys::opal_process_info.my_local_rank).read() == 0 }
}

/// The host's name as Open MPI knows it; empty outside of a job.
#[must_use]
pub fn host() -> String {
    // SAFETY: a pointer set before components are opened and never after.
    let name = unsafe { (&raw const sys::opal_process_info.nodename).read() };
    if name.is_null() {
        return String::new();
    }
    // SAFETY: a NUL-terminated text that lives as long as the process.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}
