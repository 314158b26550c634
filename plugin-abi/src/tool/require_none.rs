// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls callbacks that may do anything, where a tool itself has called and so nothing of MPI is on the stack. Events
//! happen inside MPI, where such a callback may not run, so they wait. They are delivered at the end of the tool's own
//! calls of the interface ([`deliver`]) and by [`ibex_events_flush`]; but not by calls that a callback or a signal
//! handler may make: those on an instance, and `MPI_T_source_get_timestamp`, which should be quick, too. Called by
//! `mpi_t.rs` and tools. Grade: setup. Threads: any; callbacks run in the calling thread. Tests:
//! `tests/require_none.rs`, `hw-tests/tools/mpi_t_callbacks.c`.

use std::ffi::c_int;

use engine::events::{self, Safety};

use super::host::{self, Code};
use super::mpi_t::answer;
use crate::runtime::guard::fence;
use crate::runtime::watch;

pub(super) fn deliver() {
    fence("delivering events", (), || {
        if !events::is_idle() && !events::is_delivering() {
            events::deliver_pending(required_safety());
        }
    });
}

/// Returns the safety level that callbacks need here. A tool may call in a thread that may not call MPI, or not now.
pub(super) fn required_safety() -> Safety {
    if host::may_call_mpi() { Safety::None } else { watch::SAFETY }
}

/// `ibex_events_flush`: delivers all waiting events, to callbacks of every level.
#[unsafe(no_mangle)]
pub(super) extern "C" fn ibex_events_flush() -> c_int {
    // Nothing can be delivered within a callback.
    answer("ibex_events_flush", || if events::flush(Safety::None) { Ok(()) } else { Err(Code::Invalid.into()) })
}
