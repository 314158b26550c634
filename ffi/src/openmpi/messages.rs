// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text to the user, by the channels Open MPI uses itself.
//!
//! Called by plugin-abi's `messages`. Grade: setup and errors; never on a hot path. Threads: any (Open MPI's output
//! takes its own lock).

use std::ffi::{CStr, CString, c_char, c_int};

use super::sys;

/// `orte_show_help_norender` of libopen-rte: (file, topic, with error header, text).
type ShowHelp = unsafe extern "C" fn(*const c_char, *const c_char, bool, *const c_char) -> c_int;

const RULE: &str = "--------------------------------------------------------------------------";

/// One line on stderr, with the host and process number before it (`opal_output`).
pub fn line(text: &str) {
    let text = c_string(text);
    // SAFETY: a constant format that takes one string, and that string; stream 0 is Open MPI's own and always open.
    unsafe { sys::opal_output(0, c"%s".as_ptr(), text.as_ptr()) };
}

/// A message of several lines between two rules, as Open MPI shows its help texts.
///
/// Goes to mpirun where there is one, which prints it once and counts the other processes that say the same (`topic`
/// tells which messages are the same); otherwise to stderr.
pub fn banner(topic: &str, text: &str) {
    let text = c_string(&format!("{RULE}\n{}\n{RULE}\n", text.trim_end()));
    let topic = c_string(topic);
    if let Some(show) = show_help() {
        // SAFETY: the signature of the function in orte/util/show_help.h; the three texts outlive the call.
        unsafe { show(c"help-ibex.txt".as_ptr(), topic.as_ptr(), false, text.as_ptr()) };
    } else {
        stderr(&text);
    }
}

/// A message that must be seen although the process may end at once: straight to stderr, between two rules.
pub fn alarm(text: &str) {
    stderr(&c_string(&format!("{RULE}\n{}\n{RULE}\n", text.trim_end())));
}

fn stderr(text: &CStr) {
    // SAFETY: writes a string's bytes to the process's own stderr; a short or failed write is accepted.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.to_bytes().len()) };
}

fn show_help() -> Option<ShowHelp> {
    // Looked up and not linked: the run-time layer is another library, which a process may do without.
    // SAFETY: a constant name, searched in what the process has loaded.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"orte_show_help_norender".as_ptr()) };
    // SAFETY: the symbol of that name has that type in every Open MPI 4; `refusal` has compared the versions.
    (!symbol.is_null()).then(|| unsafe { std::mem::transmute::<*mut libc::c_void, ShowHelp>(symbol) })
}

/// The text without NUL bytes, as C wants it.
fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}
