// SPDX-License-Identifier: MIT OR Apache-2.0
//! A port's counters, and the table that shows them as performance variables. On every path, hot ones included, only
//! the thread that has the port writes; so an addition is a load, an add and a store, not a locked instruction. Any
//! thread may read them, and may see a count one event old. The plugin counts registrations from any thread, with
//! [`add_shared`]. Grade: hot. Tests: below.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// How a performance variable behaves (the classes of the MPI tool interface, MPI 4.1 section 15.3.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Counts events; only grows. A tool sees the increase since it started its handle.
    Counter,
    /// Adds up bytes; only grows.
    Aggregate,
    /// Adds up time; only grows.
    Timer,
    /// An amount in use now; rises and falls.
    Level,
    /// An amount that exists, in use or not.
    Size,
}

/// One row of the table of performance variables.
pub struct CounterRow {
    /// Name, without the prefix `btl_ibex_`.
    pub name: &'static str,
    /// Class of the variable.
    pub class: Class,
    /// Unit, for people.
    pub unit: &'static str,
    /// What the variable counts.
    pub help: &'static str,
    /// Reads the variable.
    pub read: fn(&Counters) -> u64,
}

macro_rules! counters {
    ($($name:ident: $class:ident $unit:literal $help:literal;)*) => {
        /// The counters of one port.
        #[derive(Debug, Default)]
        pub struct Counters {
            $(#[doc = $help] pub $name: AtomicU64,)*
            adapter: AdapterCount,
        }

        /// Every counter, in the order of display.
        pub static COUNTERS: &[CounterRow] = &[
            $(CounterRow {
                name: stringify!($name),
                class: Class::$class,
                unit: $unit,
                help: $help,
                read: |counters| counters.$name.load(Ordering::Relaxed),
            },)*
            CounterRow {
                name: "receiver_not_ready",
                class: Class::Counter,
                unit: "events",
                help: "Times the port's adapter told a sender to wait because no receive was posted. The adapter counts for all \
                       processes that use the port; where it does not count, this is receives_used_up.",
                read: |counters| {
                    counters.adapter.since_open().unwrap_or_else(|| counters.receives_used_up.load(Ordering::Relaxed))
                },
            },
        ];
    };
}

counters! {
    inline_sent: Counter "messages" "Messages sent inside their work request, without a buffer.";
    inline_bytes: Aggregate "bytes" "Bytes of the messages sent inside their work request.";
    copy_sent: Counter "messages" "Messages copied to a buffer of ibex and sent from it.";
    copy_bytes: Aggregate "bytes" "Bytes of the messages sent from a buffer of ibex.";
    zero_copy_sent: Counter "messages" "Messages sent from the user's own memory.";
    zero_copy_bytes: Aggregate "bytes" "Bytes of the messages sent from the user's own memory.";
    received: Counter "messages" "Messages received.";
    received_bytes: Aggregate "bytes" "Bytes of the messages received.";
    put: Counter "operations" "RDMA writes started.";
    put_bytes: Aggregate "bytes" "Bytes of the RDMA writes started.";
    get: Counter "operations" "RDMA reads started.";
    get_bytes: Aggregate "bytes" "Bytes of the RDMA reads started.";
    atomic: Counter "operations" "64-bit fetch-and-adds and compare-and-swaps started.";
    receives_used_up: Counter "events" "Times this process found all its posted receives used up.";
    queued: Counter "requests" "Sends, puts, gets and atomics that had to wait inside ibex: not connected yet, or no free entry. Sends of the PML that wait for a peer together count as one.";
    held_back: Counter "times" "Times a peer with requests waiting had acknowledged none for 5 ms, and was sent no more until it did: it computes and has no receive slot left, its link is silent, or one-sided requests take so long.";
    held_back_time: Timer "us" "Time for which peers were held back, summed over peers.";
    waiting: Level "requests" "Requests waiting inside ibex now. Sends of the PML that wait for a peer together count as one.";
    send_memory: Size "bytes" "Memory registered for send slots and bounce buffers.";
    receive_memory: Size "bytes" "Memory registered for receive slots.";
    huge_memory: Size "bytes" "Memory of receive slots and send slots in explicit huge pages.";
    connections: Level "connections" "Peers connected now.";
    connected: Counter "connections" "Connections made.";
    failed: Counter "connections" "Connections that failed.";
    handshakes_sent: Counter "packets" "Handshake packets sent, by datagram or TCP.";
    handshakes_received: Counter "packets" "Handshake packets received.";
    handshakes_dropped: Counter "packets" "Handshake packets dropped: malformed, not sealed with this port's key, from outside the job, or late.";
    tcp_refused: Counter "connections" "Accepted TCP connections that were closed because they brought no valid hello or belonged to no handshake in progress.";
    ack_timeout: Level "us" "The longest acknowledgement time-out of the connections made.";
    rnr_timer: Level "us" "The longest time that a peer is told to wait when its message finds no receive slot.";
    registrations: Counter "registrations" "Registrations of user memory made with the adapter.";
    deregistrations: Counter "registrations" "Registrations of user memory taken back.";
    port_events: Counter "events" "Asynchronous events of the port taken from the adapter: its link is lost or back, its LID or a GID has changed.";
    polls: Counter "polls" "Times the completion queue was polled.";
    empty_polls: Counter "polls" "Polls that found the completion queue empty.";
    completions: Counter "completions" "Completions taken from the queue.";
    signalled: Counter "requests" "Work requests posted that ask for a completion.";
    posted: Counter "requests" "Work requests posted.";
    unexpected_memory: Level "bytes" "Memory of the PML for messages without a posted receive, counted at the first port.";
    senders_held_back: Counter "times" "Times the PML held a sender back because unexpected messages took too much memory, counted at the first port.";
    announced_held_back: Counter "messages" "Messages that the PML announced because their receiver held it back, counted at the first port.";
    malformed: Counter "messages" "Messages received that were not ibex's and were dropped.";
}

impl Counters {
    /// Counters at 0, with the present value of the adapter's own count for `port` (from 1) of the device at `sysfs`.
    pub fn new(sysfs: &str, port: u8) -> Self {
        Counters { adapter: AdapterCount::open(sysfs, port), ..Counters::default() }
    }
}

/// The adapter's count of "receiver not ready" answers, a file of the kernel; read only when a tool asks.
#[derive(Debug, Default)]
struct AdapterCount {
    file: Option<PathBuf>,
    at_open: u64,
}

impl AdapterCount {
    const NAMES: [&str; 2] = ["send_rnr_err", "out_of_buffer"];

    fn open(sysfs: &str, port: u8) -> Self {
        let folder = Path::new(sysfs).join(format!("ports/{port}/hw_counters"));
        let found = Self::NAMES.iter().map(|name| folder.join(name)).find_map(|file| Some((read(&file)?, file)));
        found.map_or_else(Self::default, |(at_open, file)| AdapterCount { file: Some(file), at_open })
    }

    fn since_open(&self) -> Option<u64> {
        Some(read(self.file.as_deref()?)?.saturating_sub(self.at_open))
    }
}

fn read(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Adds to a counter that only this thread writes at the moment. Hot.
#[inline]
pub(crate) fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

/// Raises a level that only this thread writes at the moment to at least `to`. Setup.
pub(crate) fn raise(level: &AtomicU64, to: u64) {
    level.store(level.load(Ordering::Relaxed).max(to), Ordering::Relaxed);
}

#[inline]
pub(crate) fn subtract(count: &AtomicU64, less: u64) {
    count.store(count.load(Ordering::Relaxed).saturating_sub(less), Ordering::Relaxed);
}

/// Adds to a counter that several threads may write at once. Setup.
pub fn add_shared(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_row_has_its_own_name_and_reads_its_own_count() {
        let names: HashSet<_> = COUNTERS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), COUNTERS.len());
        let counters = Counters::default();
        add(&counters.get_bytes, 7);
        let set: Vec<_> = COUNTERS.iter().filter(|row| (row.read)(&counters) != 0).map(|row| row.name).collect();
        assert_eq!(set, ["get_bytes"]);
    }

    #[test]
    fn a_level_does_not_fall_below_zero() {
        let level = AtomicU64::new(1);
        subtract(&level, 3);
        assert_eq!(level.load(Ordering::Relaxed), 0);
    }
}
