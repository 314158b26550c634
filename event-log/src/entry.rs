// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entry points: `MPI_Init`, `MPI_Init_thread`, `MPI_Finalize`, `MPI_Abort`, `MPI_Pcontrol` (MPI 3.1, section 14.2.4),
//! and the end of the process. Each function overrides the MPI's own and calls the next definition of its name: another
//! tool's, or the MPI's. Fortran's calls use the `PMPI_` names. Grade: setup. Threads: the application's. Tests:
//! tests/log.rs, tests/trace.rs; hw-tests/tests/device/tools.rs and recorder.rs.

use std::ffi::{c_char, c_int, c_void};

use ibex_mpi_calls::next::{MISSING, Next};

use crate::{mpi, recording, session};

/// Exports functions that call `before`, the next definition, and `after`.
macro_rules! entries {
    ($( fn $name:ident ($($argument:ident: $type:ty),* $(; $further:tt)?) {
        $before:expr, $after:expr
    } )*) => { $(
        /// Overrides MPI's function of this name.
        ///
        /// # Safety
        /// The conditions of MPI's function.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "the MPI's name")]
        pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            static NEXT: Next = Next::new(stringify!($name));
            let Some(next) = NEXT.find() else { return MISSING };
            // Calls inside this function are not waits of the application.
            let _unrecorded = ibex_mpi_calls::enter_unrecorded(0);
            $before;
            // SAFETY: the function of this name has this signature by the standard.
            let next: unsafe extern "C" fn($($type),* $(, $further)?) -> c_int = unsafe { std::mem::transmute(next) };
            // SAFETY: the arguments are passed on, with the same conditions.
            let code = unsafe { next($($argument),*) };
            $after(code);
            code
        }
    )* };
}

entries! {
    fn MPI_Init (count: *mut c_int, words: *mut *mut *mut c_char) { begin(), initialized }
    fn PMPI_Init (count: *mut c_int, words: *mut *mut *mut c_char) { begin(), initialized }
    fn MPI_Init_thread (
        count: *mut c_int, words: *mut *mut *mut c_char, required: c_int, provided: *mut c_int
    ) { begin(), initialized }
    fn PMPI_Init_thread (
        count: *mut c_int, words: *mut *mut *mut c_char, required: c_int, provided: *mut c_int
    ) { begin(), initialized }
    fn MPI_Finalize () { finalizing(), ignore }
    fn PMPI_Finalize () { finalizing(), ignore }
    fn MPI_Abort (comm: *mut c_void, status: c_int) { finish(), ignore }
    fn PMPI_Abort (comm: *mut c_void, status: c_int) { finish(), ignore }
    // In C these have further arguments, which neither this tool nor Open MPI uses, and which are not passed on. Their
    // definitions may omit them, because the platforms of Open MPI pass the first argument alike in both cases.
    fn MPI_Pcontrol (level: c_int; ...) { control(level), ignore }
    fn PMPI_Pcontrol (level: c_int; ...) { control(level), ignore }
}

fn begin() {
    session::begin();
    recording::begin();
}

fn initialized(code: c_int) {
    if mpi::succeeded(code) {
        session::initialized();
        recording::initialized();
    }
}

fn finalizing() {
    session::finalizing();
    recording::finalizing();
}

/// Level 0 stops logging and recording in this process, 1 resumes them, 2 writes the waiting events to the files.
fn control(level: c_int) {
    match level {
        0 => {
            session::stop();
            recording::stop();
        }
        1 => {
            session::resume();
            recording::resume();
        }
        2 => {
            session::flush();
            recording::flush();
        }
        _ => {}
    }
}

fn finish() {
    session::end();
    recording::end();
}

fn ignore(_: c_int) {}

/// The loader runs this when the process ends: after `main` and its exit handlers, before MPI's libraries end.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

extern "C" fn end() {
    finish();
}
