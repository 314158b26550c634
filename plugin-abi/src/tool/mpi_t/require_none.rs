// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls callbacks that may do anything, while a tool's own call, and so nothing of MPI, is on the stack. Events happen
//! inside MPI, where such a callback may not run, so they wait. The tool's calls of the interface deliver them at their
//! end ([`deliver`]), and so does [`ibex_events_flush`]; but calls that a callback or a signal handler may make do not:
//! those on an instance, and `MPI_T_source_get_timestamp`, which should be quick, too. Called by `mpi_t` and tools.
//! Grade: setup. Threads: any; callbacks run in the calling thread. Tests: `tests/require_none.rs`,
//! `hw-tests/tools/mpi_t_callbacks.c`.

use std::ffi::c_int;

use engine::events::{self, Safety};

use super::answer;
use crate::runtime::guard::fence;
use crate::runtime::watch;
use crate::tool::host::{self, Code};

pub(super) fn deliver() {
    fence("delivering events", (), || {
        if !events::is_idle() && !events::is_delivering() {
            events::deliver_pending(required_safety());
        }
    });
}

/// Returns the safety level that callbacks need here. The tool's thread may not be one that may call MPI now.
pub(super) fn required_safety() -> Safety {
    if host::may_call_mpi() { Safety::None } else { watch::SAFETY }
}

/// `ibex_events_flush`: delivers all waiting events, to callbacks of every level.
#[unsafe(no_mangle)]
pub(in crate::tool) extern "C" fn ibex_events_flush() -> c_int {
    // Nothing can be delivered within a callback.
    answer("ibex_events_flush", || if events::flush(Safety::None) { Ok(()) } else { Err(Code::Invalid.into()) })
}
