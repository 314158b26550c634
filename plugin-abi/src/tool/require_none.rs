// SPDX-License-Identifier: MIT OR Apache-2.0
//! The places where a tool itself has called, so that nothing of MPI is on the stack: callbacks that may do anything
//! are called here.
//!
//! Everything happens within MPI, where such a callback may not run: its events wait. They are delivered at the end of
//! the tool's own calls of the interface ([`deliver`]) and by [`ibex_events_flush`]. Not by the calls that a callback
//! or a signal handler may make, those on an instance and `MPI_T_source_get_timestamp`, which is to be quick as well.
//! Grade: setup. Threads: any; callbacks run in the one that calls. Tests: `tests/require_none.rs`,
//! `hw-tests/tools/mpi_t_require_none.c`.

use std::ffi::c_int;

use engine::events::{self, Safety};

use super::host::{self, Code, initialized};
use crate::runtime::copies;
use crate::runtime::guard::fence;
use crate::runtime::watch;

/// A call of the tool's is about to return.
pub(super) fn deliver() {
    fence("delivering events", (), || {
        if !events::is_idle() && !events::is_delivering() {
            events::deliver_pending(required_safety());
        }
    });
}

/// What this place asks of callbacks. A tool may call the interface in a thread that may not call MPI, or not now.
pub(super) fn required_safety() -> Safety {
    if host::may_call_mpi() { Safety::None } else { watch::SAFETY }
}

/// `ibex_events_flush`: delivers what has happened and waits for delivery, to callbacks of every level.
#[unsafe(no_mangle)]
pub(super) extern "C" fn ibex_events_flush() -> c_int {
    if copies::is_refused() {
        return Code::NotSupported.number();
    }
    let flush = || {
        initialized()?;
        // Within a callback nothing can be delivered.
        if events::flush(Safety::None) { Ok(()) } else { Err(Code::Invalid) }
    };
    match fence("ibex_events_flush", Err(Code::Invalid), flush) {
        Ok(()) => Code::Success.number(),
        Err(code) => code.number(),
    }
}
