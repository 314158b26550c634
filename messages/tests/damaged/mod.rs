// SPDX-License-Identifier: MIT OR Apache-2.0
//! Damaged, truncated, foreign and future traces, and some that no recorder writes; by a seed. Used by `any_bytes.rs`
//! and the command's tests.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::fs;
use std::path::Path;

#[path = "../../../trace/tests/sealed/mod.rs"]
mod sealed;

use sealed::seal;

use super::simulated::{Numbers, Process, WHOLE, Written, envelope, types, world, write};

pub(crate) const RANKS: u32 = 3;

/// Returns the events of messages around a ring of ranks, some of them unexpected.
pub(crate) fn job(rounds: i64) -> Vec<Process> {
    let mut processes = world(RANKS as usize);
    let ranks = i64::from(RANKS);
    for round in 0..rounds {
        let (sender, receiver) = (round % ranks, (round + 1) % ranks);
        let (sent, posted) = (envelope(receiver, round % 4, 1 << (round % 20)), envelope(sender, round % 4, 1 << 20));
        let (of, time) = (envelope(sender, round % 4, 1 << (round % 20)), round * 1000);
        if round % 3 == 0 {
            processes[sender as usize].send(time, &sent);
            let message = processes[receiver as usize].arrive(time + 100, &of, None);
            processes[receiver as usize].take(time + 200, &posted, (message, &of));
        } else {
            let request = processes[receiver as usize].post(time, &posted);
            processes[sender as usize].send(time + 100, &sent);
            processes[receiver as usize].arrive(time + 300, &of, Some((request, &posted)));
        }
    }
    processes
}

/// Returns events of every type with random values in random order.
pub(crate) fn nonsense(numbers: &mut Numbers) -> Vec<Process> {
    let names = types();
    let mut processes = vec![Process::default(); RANKS as usize];
    for process in &mut processes {
        for _ in 0..200 {
            process.thread = numbers.below(3) as u32;
            let name = names[numbers.below(names.len() as i64) as usize];
            let values: Vec<i64> = (0..11).map(|_| value(numbers)).collect();
            let time = numbers.below(1 << 30) - (1 << 29);
            process.raise(name, time, &values);
        }
    }
    processes
}

/// Returns mostly small numbers, now and then extremes.
fn value(numbers: &mut Numbers) -> i64 {
    match numbers.below(20) {
        0 => i64::MAX,
        1 => i64::MIN,
        2 => -1,
        3 => i64::from(u32::MAX),
        4 => 1 << numbers.below(63),
        _ => numbers.below(4),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Damage {
    Flipped,
    CutOff,
    Overwritten,
    /// A block is missing, or comes twice.
    Moved,
    Emptied,
    Foreign,
    Future,
    Doubled,
    /// Bytes are changed, and the checksums fit.
    Sealed,
    Nonsense,
}

pub(crate) const ALL: [Damage; 10] = [
    Damage::Flipped,
    Damage::CutOff,
    Damage::Overwritten,
    Damage::Moved,
    Damage::Emptied,
    Damage::Foreign,
    Damage::Future,
    Damage::Doubled,
    Damage::Sealed,
    Damage::Nonsense,
];

impl Damage {
    /// Whether the file differs from the recorder's, so that the reader must report a fault.
    pub(crate) fn is_told(self) -> bool {
        !matches!(self, Damage::Sealed | Damage::Nonsense)
    }
}

/// Writes the traces of a job to a folder, and damages the one of rank 1. Returns its name.
pub(crate) fn make(folder: &Path, damage: Damage, seed: u64) -> String {
    let mut numbers = Numbers(seed);
    let processes = if damage == Damage::Nonsense { nonsense(&mut numbers) } else { job(60) };
    let mut files = Vec::new();
    for (rank, process) in (0..).zip(&processes) {
        let how = Written { block: 64, is_finished: numbers.below(4) > 0, ..WHOLE };
        files.push(write(folder, (rank, RANKS), process, &how));
    }
    let mut bytes = fs::read(&files[1]).expect("written");
    harm(&mut bytes, damage, &mut numbers);
    fs::write(&files[1], &bytes).expect("a folder of the test's own");
    if damage == Damage::Doubled {
        fs::copy(&files[1], folder.join("another.ibex")).expect("a folder of the test's own");
    }
    files[1].file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn blocks(bytes: &[u8]) -> Vec<usize> {
    bytes.windows(4).enumerate().filter(|(_, four)| *four == b"\xb1OCK").map(|(at, _)| at).collect()
}

fn harm(bytes: &mut Vec<u8>, damage: Damage, numbers: &mut Numbers) {
    let length = bytes.len();
    let mut place = |from: usize| from + numbers.below((length - from) as i64) as usize;
    // The head comes before; without it nothing is readable.
    let events = blocks(bytes).get(2).copied().unwrap_or(16);
    match damage {
        Damage::Flipped => bytes[place(events)] ^= 1 << (length % 8),
        Damage::CutOff => bytes.truncate(place(1)),
        Damage::Overwritten => {
            let (at, count) = (place(events), 1 + place(0) % 200);
            let end = length.min(at + count);
            bytes[at..end].iter_mut().for_each(|byte| *byte = !*byte);
        }
        Damage::Moved => {
            let starts = blocks(bytes);
            let at = 1 + place(0) % (starts.len() - 2);
            let block = bytes[starts[at]..starts[at + 1]].to_vec();
            if place(0).is_multiple_of(2) {
                bytes.splice(starts[at]..starts[at], block);
            } else {
                drop(bytes.drain(starts[at]..starts[at + 1]));
            }
        }
        Damage::Emptied => bytes.clear(),
        Damage::Foreign => *bytes = b"\x7fELF what another program has written".to_vec(),
        Damage::Future => {
            bytes[8] = 9;
            let sum = crc32c::crc32c(&bytes[..12]);
            bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        }
        Damage::Sealed => {
            for _ in 0..=place(0) % 4 {
                bytes[place(16)] = place(0) as u8;
            }
            seal(bytes);
        }
        Damage::Doubled | Damage::Nonsense => {}
    }
}
