// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limit of open files: the library needs one for each location. Called by `../mod.rs`. Path: setup. Threads: any.
//! Tests: export/tests/otf2.rs.

/// Raises the limit of open files to the hard limit. If that is too low, opening a file fails later.
pub(crate) fn raise_open_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for the call, which fills it.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0 {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: `limit` is valid for the call, which only reads it.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    }
}
