// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counts in the file: copies of the ports' counters, for `ibex top`. A port copies its own when it checks its
//! connections and some time has passed, so counting costs nothing more; the time of the copy is stored with it. Path:
//! cold. Threads: the port's; any port's thread writes the process's block. Tests: `tests.rs`.

use super::layout::{BLOCK, PORTS, at};
use super::recorder::current;
use crate::counters::{COUNTERS, Counters};
use crate::events;
use ibex_ffi::clock::monotonic;
use std::sync::atomic::Ordering;

const _: () = assert!(COUNTS_OF_EVENTS == EVENTS.len() && COUNTS_OF_EVENTS < BLOCK);
const COUNTS_OF_EVENTS: usize = 4;

/// The counts of events over all sources, in the process's own block.
pub const EVENTS: [&str; COUNTS_OF_EVENTS] = ["events_raised", "events_delivered", "events_dropped", "events_late"];

/// Copies counts of a port and of events, unless the last copy is less than `pause` ns old. Returns whether it copied.
#[cold]
pub fn show(port: u8, counters: &Counters, pause: u64) -> bool {
    let (Some(recorder), port) = (current(), usize::from(port)) else { return false };
    let Some(block) = recorder.words.get(at::COUNTED + port * BLOCK..).filter(|_| port < PORTS) else { return false };
    let now = monotonic();
    if now.saturating_sub(block[0].load(Ordering::Relaxed)) < pause {
        return false;
    }
    for (row, word) in COUNTERS.iter().zip(&block[1..BLOCK]) {
        // The adapter's own count is a file of the kernel, and reading it is a system call.
        let value = if row.name == "receiver_not_ready" { 0 } else { (row.read)(counters) };
        word.store(value, Ordering::Relaxed);
    }
    let mut sums = [0; COUNTS_OF_EVENTS];
    for counts in (0..events::source_count()).filter_map(events::SourceId::from_index).map(events::counts) {
        let each = [counts.raised, counts.delivered, counts.dropped, counts.late];
        sums.iter_mut().zip(each).for_each(|(sum, each)| *sum += each);
    }
    for (index, sum) in sums.into_iter().enumerate() {
        recorder.set(at::COUNTED + PORTS * BLOCK + 1 + index, sum);
    }
    recorder.set(at::COUNTED + PORTS * BLOCK, now);
    block[0].store(now, Ordering::Release);
    true
}
