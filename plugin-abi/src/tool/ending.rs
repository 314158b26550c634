// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a process that has finalised MPI while a tool held Open MPI's components.
//!
//! Components are closed by `MPI_Finalize`, and with them what ibex has open, but not while `MPI_T` is initialised: it
//! counts as a user of theirs, and most tools never finalise it. Such a process has come to a good end, too, and leaves
//! no file of the flight recorder. One that calls `exit` before `MPI_Finalize` has not. Path: setup. Threads: the one
//! that ends the process. Tests: `device/flight.rs` in `hw-tests`.

use engine::flight;

use super::host;
use crate::runtime::guard::fence;

/// Run by the loader when the process ends, or when Open MPI unloads the library; MPI's libraries end after it.
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

extern "C" fn end() {
    fence("ending the process", (), || {
        if host::mpi_was_finalized() {
            flight::end();
        }
    });
}
