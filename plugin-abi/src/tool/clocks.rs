// SPDX-License-Identifier: MIT OR Apache-2.0
//! What MPI's documents have no call for: when, by the host's clock, an event of an adapter's source happened.
//!
//! Thin, as `mpi_t.rs`: checks the arguments and asks the engine (`engine::events::to_host`), which keeps the relation
//! of the two clocks. No timestamp of an event is converted by itself. Grade: setup. Threads: any. Tests:
//! `tests/tool/calls.c`, `hw-tests/mpi/events.c`.

use std::ffi::c_int;

use engine::events::{self, ConvertedTimestamp};

use super::arguments::{answer, give};
use super::host::{Code, initialized};
use super::mpi_t::source;
use crate::runtime::copies;
use crate::runtime::guard::fence;

/// `ibex_source_to_host`: the time of the sources whose names begin with `host:` at which a source's clock showed
/// `timestamp`, and how many ticks of the host's that may be off, either way.
///
/// # Safety
/// The pointers are null or can be written to.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn ibex_source_to_host(
    source_index: c_int,
    timestamp: i64,
    host_timestamp: *mut i64,
    error: *mut i64,
) -> c_int {
    if copies::is_refused() {
        return Code::NotSupported.number();
    }
    let convert = || {
        initialized()?;
        let source = source(source_index)?;
        let ticks = u64::try_from(timestamp).map_err(|_| Code::Invalid)?;
        if host_timestamp.is_null() {
            return Err(Code::Invalid);
        }
        let ConvertedTimestamp { ticks, error: bound } = events::to_host(source, ticks).ok_or(Code::NotSupported)?;
        // SAFETY: the caller says that each pointer is null or can be written to.
        unsafe {
            give(error, i64::try_from(bound).unwrap_or(i64::MAX));
            Ok(answer(host_timestamp, i64::try_from(ticks).unwrap_or(i64::MAX)))
        }
    };
    let code = fence("ibex_source_to_host", Err(Code::Invalid), convert);
    code.unwrap_or_else(|code| code).number()
}
