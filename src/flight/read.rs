// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading a file of the flight recorder, of a process that writes it still or of one that is gone.
//!
//! What is read may be anything: its size, magic, version and sums are looked at before any of it is believed. Called by
//! the command. Path: setup. Tests: `tests.rs`.

use super::counts::EVENTS;
use super::entry::Entry;
use super::layout::{self, BLOCK, ENTRIES, ENTRY, GID, MAGIC, NAME, PORT_NAME, PORTS, REASON, VERSION, WORDS, at};
use super::peers::{self, PeerFlight};
use super::words::{started, unpack};
use crate::counters::COUNTERS;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// What a process did last.
#[derive(Debug, Clone)]
pub struct Flight {
    /// Its number.
    pub pid: u32,
    /// Open MPI's job.
    pub job: u32,
    /// Its rank.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// Its program.
    pub program: String,
    /// Whether it is alive, if it is one of this host.
    pub is_alive: bool,
    /// What failed last, as ibex told it; empty: nothing did.
    pub reason: String,
    /// What must be added to a time of its clock, ns, to have that since 1970.
    pub to_unix: u64,
    /// Its ports.
    pub ports: Vec<PortFlight>,
    /// Its peers, in the order of their names and ports.
    pub peers: Vec<PeerFlight>,
    /// Whether there are more peers than the file has room for.
    pub has_more_peers: bool,
    /// Counts of its events, as [`EVENTS`] names them.
    pub events: [u64; EVENTS.len()],
    /// How many entries it made in all.
    pub made: u64,
    /// Those of the last [`ENTRIES`] that are whole, oldest first.
    pub entries: Vec<Entry>,
    /// How many of these are not: it died while it wrote, or writes.
    pub torn: u64,
}

/// A port of a process.
#[derive(Debug, Clone)]
pub struct PortFlight {
    /// Its place among the process's.
    pub index: u8,
    /// Device and port.
    pub name: String,
    /// Its GID when it was opened.
    pub gid: [u8; 16],
    /// When its counts were copied, by the host's monotonic clock, ns; `None`: there are none yet.
    pub time: Option<u64>,
    /// Its counts, in the order of [`COUNTERS`]; empty where the process has other ones than this program.
    pub counts: Vec<u64>,
}

impl PortFlight {
    /// A count by its name; 0 where there is none.
    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        let place = COUNTERS.iter().position(|row| row.name == name);
        place.and_then(|place| self.counts.get(place)).copied().unwrap_or(0)
    }
}

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FlightError {
    /// It cannot be opened or read.
    #[error("{0} cannot be read: {1}")]
    Io(PathBuf, #[source] io::Error),
    /// It does not begin as one.
    #[error("{0} is no file of ibex' flight recorder")]
    Foreign(PathBuf),
    /// Of a host of the other byte order.
    #[error("{0} was written on a host of the other byte order; read it there")]
    ByteOrder(PathBuf),
    /// Of another ibex.
    #[error("{0} has version {1} of the format, and this ibex reads version {VERSION}: use the ibex that wrote it")]
    Version(PathBuf, u64),
    /// It ends too soon.
    #[error("{0} is cut off: it has {1} bytes of {whole}", whole = WORDS * 8)]
    Truncated(PathBuf, u64),
    /// Its header does not add up.
    #[error("{0} is damaged: its header, of {header} bytes, does not agree with its sum", header = at::SUM * 8)]
    Damaged(PathBuf),
}

impl Flight {
    /// Reads a file.
    ///
    /// # Errors
    /// It is none, or not whole: [`FlightError`].
    pub fn read(path: &Path) -> Result<Flight, FlightError> {
        let mut bytes = Vec::new();
        let most = (WORDS * 8) as u64;
        File::open(path)
            .and_then(|file| file.take(most).read_to_end(&mut bytes))
            .map_err(|error| FlightError::Io(path.into(), error))?;
        let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_ne_bytes(*bytes)).collect();
        match words.as_slice() {
            [MAGIC, VERSION, ..] => {}
            [MAGIC, version, ..] => return Err(FlightError::Version(path.into(), *version)),
            [first, ..] if first.swap_bytes() == MAGIC => return Err(FlightError::ByteOrder(path.into())),
            [MAGIC] => return Err(FlightError::Truncated(path.into(), bytes.len() as u64)),
            _ => return Err(FlightError::Foreign(path.into())),
        }
        if words.len() < WORDS {
            return Err(FlightError::Truncated(path.into(), bytes.len() as u64));
        }
        if layout::sum(words[..at::SUM].iter().copied()) != words[at::SUM] {
            return Err(FlightError::Damaged(path.into()));
        }
        Ok(Flight::of(&words))
    }

    /// Of all words of a file whose header is sound.
    fn of(words: &[u64]) -> Flight {
        let pid = words[at::PROCESS] as u32;
        let made = words[at::ENTRIES];
        let first = made.saturating_sub(ENTRIES as u64);
        // A number of entries that no process has made is damage: then there are none.
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
            has_more_peers: words[at::PEERS_LEFT_OUT] != 0,
            ports: (0..PORTS).filter_map(|index| port(words, index)).collect(),
            events: std::array::from_fn(|index| words[process + index]),
            made,
            torn: looked_at - entries.len() as u64,
            entries,
        }
    }

    /// The name of a port, by its place; empty where there is none.
    #[must_use]
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
