// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packs text into words and back, and reads `/proc`. Path: cold. Tests: `tests.rs`.

use std::fs;

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
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The second field, a name in parentheses, may hold anything.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    // A process that has ended and was not waited for counts as gone.
    if fields.trim_start().starts_with(['Z', 'X']) {
        return 0;
    }
    fields.split_whitespace().nth(19).and_then(|field| field.parse().ok()).unwrap_or(0)
}
