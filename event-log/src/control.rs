// SPDX-License-Identifier: MIT OR Apache-2.0
//! `MPI_Pcontrol`, by which a program controls profiling libraries (MPI 3.1, section 14.2.4): level 0 stops logging and
//! recording in this process, 1 resumes them, 2 writes the waiting events to the files. Other levels are ignored.
//!
//! Each function overrides MPI's own and calls the next definition of its name, as in `entry.rs`; Fortran's call uses
//! the `PMPI_` name. Called by the application. Grade: setup. Threads: the application's. Tests: tests/log.rs,
//! tests/trace.rs; with a device, hw-tests/tests/device/recorder.rs.

use std::ffi::{CStr, c_int};

use crate::{mpi, recording, session};

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

/// Exports functions that call `control` and the next definition.
macro_rules! controls {
    ($( fn $name:ident = $text:literal )*) => { $(
        /// Overrides MPI's function of this name. In C it has further arguments, which neither this tool nor Open MPI
        /// uses, and which are not passed on. The definition may omit them, because the platforms of Open MPI pass the
        /// first argument alike in both cases.
        ///
        /// # Safety
        /// The conditions of MPI's function.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "the MPI's name")]
        pub(crate) unsafe extern "C" fn $name(level: c_int) -> c_int {
            const NAME: &CStr = $text;
            control(level);
            let next = mpi::next(NAME);
            if next.is_null() {
                mpi::complain(concat!("no MPI has ", stringify!($name), ": is it linked statically?"));
                return 1;
            }
            // SAFETY: the function of this name has this signature by the standard.
            let next: unsafe extern "C" fn(c_int, ...) -> c_int = unsafe { std::mem::transmute(next) };
            // SAFETY: the argument is the caller's level.
            unsafe { next(level) }
        }
    )* };
}

controls! {
    fn MPI_Pcontrol = c"MPI_Pcontrol"
    fn PMPI_Pcontrol = c"PMPI_Pcontrol"
}
