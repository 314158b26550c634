// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads any bytes as a trace in every way: nothing may panic, hang or exhaust memory. This build ignores checksums, so
//! that the code behind them is reached. For a seed, set `IBEX_TRACE_SEED` to a file: the test `round_trip` of
//! ibex-trace writes a trace there.

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
