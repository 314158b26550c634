// SPDX-License-Identifier: MIT OR Apache-2.0
//! The layout of a file of the flight recorder: words of 8 bytes, in the byte order of the host that wrote them.
//! `recorder.rs` has the entries, `peers.rs` the peers; a change here needs another [`VERSION`]. Also encodes text and
//! the start time of a process as words. Grade: setup. Threads: plain data. Tests: `tests.rs`.

use crate::counters::COUNTERS;

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"IBEXFLT\0");

pub(super) const VERSION: u64 = 2;

pub(super) mod at {
    pub(in crate::flight) const MAGIC: usize = 0;
    pub(in crate::flight) const VERSION: usize = 1;
    /// The process id in the low half, its rank in the high half.
    pub(in crate::flight) const PROCESS: usize = 2;
    pub(in crate::flight) const JOB: usize = 3;
    /// Start time of the process, as in `/proc/PID/stat`.
    pub(in crate::flight) const STARTED: usize = 4;
    /// The monotonic clock, ns, and the time of day at that moment, ns since 1970.
    pub(in crate::flight) const MONOTONIC: usize = 5;
    pub(in crate::flight) const UNIX: usize = 6;
    /// Fingerprint of the names of the counts.
    pub(in crate::flight) const COUNTS: usize = 7;
    /// Name of the host, and name of the program.
    pub(in crate::flight) const HOST: usize = 8;
    pub(in crate::flight) const PROGRAM: usize = 16;
    /// Sum of the words before this one.
    pub(in crate::flight) const SUM: usize = 24;

    // Words that change while the process lives.
    /// Number of entries so far.
    pub(in crate::flight) const ENTRIES: usize = 32;
    /// 1: the file stays, because the process has reported a failure.
    pub(in crate::flight) const KEPT: usize = 33;
    /// 1: a peer has no row in the table, which is full.
    pub(in crate::flight) const PEERS_LEFT_OUT: usize = 34;
    /// 1: the names of peers have, in place of the job, a number of each peer's port.
    pub(in crate::flight) const NAMES_INSTANCES: usize = 35;
    pub(in crate::flight) const PORTS: usize = 64;
    pub(in crate::flight) const REASON: usize = 128;
    /// Counts of each port, and of the process.
    pub(in crate::flight) const COUNTED: usize = 320;
    pub(in crate::flight) const GIDS: usize = 1408;
    pub(in crate::flight) const RING: usize = 1536;
    pub(in crate::flight) const PEERS: usize = RING + super::ENTRIES * super::ENTRY;
}

/// Words of the texts: name of a host or program, name of a port, reason.
pub(super) const NAME: usize = 8;
pub(super) const PORT_NAME: usize = 4;
pub(super) const REASON: usize = 192;

pub(super) const PORTS: usize = 16;

pub(super) const GID: usize = 2;

/// Words of a block of counts, the time of the copy first; and number of blocks: one per port, and the process's own.
pub(super) const BLOCK: usize = 64;
pub(super) const BLOCKS: usize = PORTS + 1;

pub(super) const ENTRIES: usize = 4096;
pub(super) const ENTRY: usize = 8;

/// Number of rows in the table of peers, one per peer and port, and words of each.
pub(super) const PEERS: usize = 512;
pub(super) const ROW: usize = 8;

pub(super) const WORDS: usize = at::PEERS + PEERS * ROW;

const _: () = {
    assert!(at::PORTS + PORTS * PORT_NAME <= at::REASON);
    assert!(at::REASON + REASON <= at::COUNTED);
    assert!(COUNTERS.len() < BLOCK);
    assert!(at::COUNTED + BLOCKS * BLOCK <= at::GIDS);
    assert!(at::GIDS + PORTS * GID <= at::RING);
};

/// The sum of words; not 0 for a file of zeros.
pub(super) fn sum(words: impl IntoIterator<Item = u64>) -> u64 {
    words
        .into_iter()
        .fold(0x9e37_79b9_7f4a_7c15, |sum, word| (sum ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29))
}

pub(super) fn fingerprint_of_counts() -> u64 {
    sum(COUNTERS.iter().flat_map(|row| row.name.bytes().map(u64::from).chain([256])))
}

pub(super) fn pack<const N: usize>(text: &str) -> [u64; N] {
    let mut end = text.len().min(N * 8);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut words = [0; N];
    for (at, byte) in text.bytes().take(end).enumerate() {
        words[at / 8] |= u64::from(byte) << (at % 8 * 8);
    }
    words
}

/// The text in the words, for a terminal: invalid bytes become replacement characters, control characters are left out.
pub(super) fn unpack(words: &[u64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).chars().filter(|letter| *letter == '\n' || !letter.is_control()).collect()
}

/// Start time of a process, in the kernel's ticks; 0 if there is none.
pub(super) fn started(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The second field, a name in parentheses, may hold anything.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    // A zombie (its parent has not waited for it) counts as gone.
    if fields.trim_start().starts_with(['Z', 'X']) {
        return 0;
    }
    fields.split_whitespace().nth(19).and_then(|field| field.parse().ok()).unwrap_or(0)
}
