// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any bytes, read as a trace in each way there is: nothing may panic, run for ever or take all memory.
//!
//! Checksums are not looked at in this build, so that what is behind them is reached. A trace to begin with:
//! `cargo test -p ibex-trace --test round_trip` with `IBEX_TRACE_SEED` set to a file writes one there.

#![no_main]

use ibex_trace::Reader;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(reader) = Reader::from_bytes("fuzz", bytes.to_vec()) else { return };
    for fault in reader.faults() {
        let _ = fault.to_string();
    }
    let _ = reader.counts();
    for event in reader.events().take(1 << 20) {
        let _ = event.map_err(|error| error.to_string());
    }
    let _ = reader.by_time(&(0..)).take(1 << 20).count();
});
