// SPDX-License-Identifier: MIT OR Apache-2.0
//! `MPI_Pcontrol`, by which a program tells profiling libraries what to do (MPI 3.1, section 14.2.4): 0 stops what is
//! logged and recorded in this process, 1 resumes it, 2 writes what waits to the files. Other levels mean nothing here.
//!
//! Each function overrides the MPI's own and goes on to the next definition of its name, as in `entry.rs`; Fortran's
//! call uses the `PMPI_` name. Grade: setup. Threads: the application's. Tests: tests/log.rs, tests/trace.rs; with a
//! device, hw-tests/tests/device/recorder.rs.

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

/// Exports functions that do so and go on.
macro_rules! controls {
    ($( fn $name:ident = $text:literal )*) => { $(
        /// The MPI's function of this name, with this tool around it. In C it has further arguments, which mean nothing to
        /// this tool or to Open MPI, and are not passed on: a function that does not look at them may be defined
        /// without, as the platforms of Open MPI pass the first argument alike in both.
        ///
        /// # Safety
        /// As the MPI's.
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
            // SAFETY: the function of this name, which has this signature by the standard.
            let next: unsafe extern "C" fn(c_int, ...) -> c_int = unsafe { std::mem::transmute(next) };
            // SAFETY: the caller's level.
            unsafe { next(level) }
        }
    )* };
}

controls! {
    fn MPI_Pcontrol = c"MPI_Pcontrol"
    fn PMPI_Pcontrol = c"PMPI_Pcontrol"
}
