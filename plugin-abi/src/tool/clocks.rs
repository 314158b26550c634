// SPDX-License-Identifier: MIT OR Apache-2.0
//! A call that MPI's documents do not have: the time of an adapter's event on the host's clock.
//!
//! Thin, like `mpi_t.rs`: checks the arguments and calls the engine (`engine::events::to_host`), which correlates the
//! two clocks. Timestamps are converted only on request. Grade: setup. Threads: any. Tests: `tests/tool/calls.c`,
//! `hw-tests/mpi/events.c`.

use std::ffi::c_int;

use engine::events::{self, ConvertedTimestamp};

use super::arguments::{answer, give};
use super::host::{Code, initialized};
use super::mpi_t::source;
use crate::runtime::copies;
use crate::runtime::guard::fence;

/// `ibex_source_to_host`: converts `timestamp` of a source to the clock of the sources whose names begin with `host:`.
/// `error` gets the largest possible error, in ticks of the host's clock, in either direction.
///
/// # Safety
/// Each pointer is null or can be written to.
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
