// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a file of the flight recorder, of a living process or a dead one, for the command. The file may contain
//! anything: [`Flight::read`] first checks its size, magic, version and sum. Grade: setup. Tests: `tests.rs`.

use super::entry::Entry;
use super::layout::{self, BLOCK, ENTRIES, ENTRY, GID, MAGIC, NAME, PORT_NAME, PORTS, REASON, VERSION, WORDS};
use super::layout::{at, started, unpack};
use super::peers::{self, PeerFlight};
use super::recorder::EVENTS;
use crate::counters::COUNTERS;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The content of a file.
#[derive(Debug, Clone)]
pub struct Flight {
    /// Id of the process.
    pub pid: u32,
    /// Open MPI's number of the job, or another launcher's.
    pub job: u32,
    /// Rank of the process.
    pub rank: u32,
    /// Host of the process.
    pub host: String,
    /// Program of the process.
    pub program: String,
    /// Whether the process is alive, if it is on this host.
    pub is_alive: bool,
    /// The last failure that ibex reported; empty: none.
    pub reason: String,
    /// Offset from a time of the process's clock, ns, to the time since 1970.
    pub to_unix: u64,
    /// The process's ports.
    pub ports: Vec<PortFlight>,
    /// The process's peers, in the order of their names and ports.
    pub peers: Vec<PeerFlight>,
    /// Whether the names of peers have, in place of the job, a number of each peer's port.
    pub names_instances: bool,
    /// Whether there are more peers than the file has room for.
    pub has_more_peers: bool,
    /// Counts of the process's events, as named by [`EVENTS`].
    pub events: [u64; EVENTS.len()],
    /// Number of entries written in all.
    pub made: u64,
    /// The whole entries among the last [`ENTRIES`], oldest first.
    pub entries: Vec<Entry>,
    /// Number of the last `ENTRIES` that are not whole: the process died while it wrote them, or is writing them.
    pub torn: u64,
}

/// A port of a process.
#[derive(Debug, Clone)]
pub struct PortFlight {
    /// Index of the port among the process's.
    pub index: u8,
    /// Device and port.
    pub name: String,
    /// GID of the port when it was opened.
    pub gid: [u8; 16],
    /// Time of the copy of its counts by the host's monotonic clock, ns; `None`: no copy yet.
    pub time: Option<u64>,
    /// Counts of the port, in the order of [`COUNTERS`]; empty if the process has other counts than this program.
    pub counts: Vec<u64>,
}

impl PortFlight {
    /// A count by its name; 0 if there is none.
    pub fn count(&self, name: &str) -> u64 {
        let place = COUNTERS.iter().position(|row| row.name == name);
        place.and_then(|place| self.counts.get(place)).copied().unwrap_or(0)
    }
}

/// A file cannot be read, with the reason.
#[derive(Debug, thiserror::Error)]
#[error("{path} {why}")]
pub struct FlightError {
    path: PathBuf,
    why: String,
}

impl Flight {
    /// Reads a file.
    ///
    /// # Errors
    /// [`FlightError`]: it is no such file, or not whole.
    pub fn read(path: &Path) -> Result<Flight, FlightError> {
        let refused = |why| FlightError { path: path.into(), why };
        let mut bytes = Vec::new();
        let most = (WORDS * 8) as u64;
        File::open(path)
            .and_then(|file| file.take(most).read_to_end(&mut bytes))
            .map_err(|error| refused(format!("cannot be read: {error}")))?;
        let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_ne_bytes(*bytes)).collect();
        let has_sum = |words: &[u64]| layout::sum(words[..at::SUM].iter().copied()) == words[at::SUM];
        let why = match words.as_slice() {
            [MAGIC] | [MAGIC, VERSION, ..] if words.len() < WORDS => {
                format!("is cut off: it has {} bytes of {most}", bytes.len())
            }
            [MAGIC, VERSION, ..] if has_sum(&words) => return Ok(Flight::of(&words)),
            [MAGIC, VERSION, ..] => {
                format!("is damaged: its header, of {} bytes, does not agree with its sum", at::SUM * 8)
            }
            [MAGIC, version, ..] => format!(
                "has version {version} of the format, and this ibex reads version {VERSION}: use the ibex that wrote it"
            ),
            [first, ..] if first.swap_bytes() == MAGIC => {
                "was written on a host of the other byte order; read it there".to_owned()
            }
            _ => "is no file of ibex' flight recorder".to_owned(),
        };
        Err(refused(why))
    }

    fn of(words: &[u64]) -> Flight {
        let pid = words[at::PROCESS] as u32;
        let made = words[at::ENTRIES];
        let first = made.saturating_sub(ENTRIES as u64);
        // More than any process writes: such a number is damage, and counts as no entries.
        let numbers = if made < 1 << 56 { first..made } else { 0..0 };
        let looked_at = numbers.end - numbers.start;
        let entries: Vec<Entry> = numbers.filter_map(|number| entry(words, number)).collect();
        let process = at::COUNTED + PORTS * BLOCK + 1;
        Flight {
            pid,
            job: words[at::JOB] as u32,
            rank: (words[at::PROCESS] >> 32) as u32,
            host: unpack(&words[at::HOST..at::HOST + NAME]),
            program: unpack(&words[at::PROGRAM..at::PROGRAM + NAME]),
            is_alive: words[at::STARTED] != 0 && started(pid) == words[at::STARTED],
            reason: unpack(&words[at::REASON..at::REASON + REASON]),
            to_unix: words[at::UNIX].wrapping_sub(words[at::MONOTONIC]),
            peers: peers::read(words),
            names_instances: words[at::NAMES_INSTANCES] != 0,
            has_more_peers: words[at::PEERS_LEFT_OUT] != 0,
            ports: (0..PORTS).filter_map(|index| port(words, index)).collect(),
            events: std::array::from_fn(|index| words[process + index]),
            made,
            torn: looked_at - entries.len() as u64,
            entries,
        }
    }

    /// The name of a port, by its index; empty if there is none.
    pub fn port_name(&self, index: u8) -> &str {
        self.ports.iter().find(|port| port.index == index).map_or("", |port| &port.name)
    }
}

fn entry(words: &[u64], number: u64) -> Option<Entry> {
    let place = at::RING + number as usize % ENTRIES * ENTRY;
    let [first, others @ ..] = words[place..].first_chunk::<ENTRY>()?;
    if *first == number + 1 { Entry::decode(number, *others) } else { None }
}

fn port(words: &[u64], index: usize) -> Option<PortFlight> {
    let name = at::PORTS + index * PORT_NAME;
    let name = unpack(&words[name..name + PORT_NAME]);
    if name.is_empty() {
        return None;
    }
    let mut gid = [0; 16];
    for (bytes, word) in gid.chunks_mut(8).zip(&words[at::GIDS + index * GID..]) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let block = &words[at::COUNTED + index * BLOCK..][..BLOCK];
    let is_same = words[at::COUNTS] == layout::fingerprint_of_counts();
    let counts = if is_same { block[1..=COUNTERS.len()].to_vec() } else { Vec::new() };
    let time = (block[0] != 0).then_some(block[0]);
    Some(PortFlight { index: index as u8, name, gid, time, counts })
}
