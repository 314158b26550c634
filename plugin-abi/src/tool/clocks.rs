// SPDX-License-Identifier: MIT OR Apache-2.0
//! A call that MPI's documents do not have: the time of an adapter's event on the host's clock. Checks the arguments
//! and calls the engine (`engine::events::to_host`), which correlates the two clocks. Timestamps are converted only on
//! request. Grade: setup. Threads: any. Tests: `tests/tool/calls.c`, `hw-tests/mpi/events.c`.

use std::ffi::c_int;

use engine::events::{self, ConvertedTimestamp};

use super::arguments::Out;
use super::host::{Code, initialized};
use super::mpi_t::source;
use crate::runtime::copies;
use crate::runtime::guard::fence;

/// `ibex_source_to_host`: converts `timestamp` of a source to the clock of the sources whose names begin with `host:`.
/// `error` gets the largest possible error, in ticks of the host's clock, in either direction.
#[unsafe(no_mangle)]
pub(super) extern "C" fn ibex_source_to_host(
    source_index: c_int,
    timestamp: i64,
    host_timestamp: Out<'_, i64>,
    error: Out<'_, i64>,
) -> c_int {
    if copies::is_refused() {
        return Code::NotSupported.number();
    }
    let convert = || {
        initialized()?;
        let source = source(source_index)?;
        let ticks = u64::try_from(timestamp).map_err(|_| Code::Invalid)?;
        host_timestamp.required()?;
        let ConvertedTimestamp { ticks, error: bound } = events::to_host(source, ticks).ok_or(Code::NotSupported)?;
        error.give(|| i64::try_from(bound).unwrap_or(i64::MAX));
        host_timestamp.fill(i64::try_from(ticks).unwrap_or(i64::MAX))?;
        Ok(Code::Success)
    };
    let code = fence("ibex_source_to_host", Err(Code::Invalid), convert);
    code.unwrap_or_else(|code| code).number()
}
