// SPDX-License-Identifier: MIT OR Apache-2.0
//! Closes the flight recorder of a process that has finalised MPI while a tool held Open MPI's components.
//! `MPI_Finalize` closes components, unless `MPI_T` is initialised, which uses them, too; most tools never finalise it.
//! Such a process has ended well, so its flight recorder leaves no file; one that calls `exit` before `MPI_Finalize`
//! has not. Grade: setup. Threads: the one that ends the process. Tests: `device/flight.rs` in `hw-tests`.

use engine::flight;

use super::host;
use crate::runtime::guard::fence;

/// The loader runs this when the process ends, or when Open MPI unloads the library; MPI's libraries end after it.
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
