// SPDX-License-Identifier: MIT OR Apache-2.0
//! The peers in the file: the state of each connection, and the number of requests posted to it. A port copies the data
//! of some of its connections when it copies its counts, so posting a request costs nothing more. A peer has a row per
//! port, which it keeps while the process lives. `transport/port/fail.rs` writes, the command reads. Grade: pending.
//! Threads: the port's thread writes a row; any thread may claim one. Tests: `tests.rs`.

use super::layout::{PEERS, PORTS, ROW, at};
use super::recorder::{Recorder, current};
use crate::peer::PeerName;
use ibex_ffi::clock::monotonic;
use std::sync::atomic::{AtomicU64, Ordering};

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerState {
    /// The handshake is in progress; requests wait.
    Connecting,
    /// Requests are posted.
    Ready,
    /// It is ready, and new messages use another port.
    Diverted,
    /// It has failed.
    Failed,
}

impl PeerState {
    /// The states in the order of their numbers in the file.
    const ALL: [PeerState; 4] = [PeerState::Connecting, PeerState::Ready, PeerState::Diverted, PeerState::Failed];

    /// Name of the state, for programs and people.
    pub fn name(self) -> &'static str {
        match self {
            PeerState::Connecting => "connecting",
            PeerState::Ready => "ready",
            PeerState::Diverted => "diverted",
            PeerState::Failed => "failed",
        }
    }
}

/// A port's data of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerFlight {
    /// The peer.
    pub peer: PeerName,
    /// Index of the port among the process's.
    pub port: u8,
    /// State of the connection.
    pub state: PeerState,
    /// Queue pairs of the connection, here and there; 0: unknown yet.
    pub queue_pairs: (u32, u32),
    /// Posted requests. When written: since the connection began, wrapping; when read: since the process began.
    pub posted: u64,
    /// Number of posted requests that are not known to be done.
    pub in_flight: u32,
    /// Number of requests that wait to be posted.
    pub waiting: u32,
    /// Number of hellos that asked the peer for the connection.
    pub asked: u32,
    /// Acknowledgement time-out: 4.096 us * 2^`timeout`; 0: not connected yet.
    pub timeout: u8,
    /// Most retries of a packet.
    pub retries: u8,
    /// Time of this copy by the host's monotonic clock, ns. Ignored when written.
    pub time: u64,
}

/// Ranks from here on get no row.
const MOST_RANKS: u32 = (1 << 28) - 1;

/// Rows that are tried for a peer.
const TRIES: usize = 16;

/// The first word of a row: job, port and rank of its peer. Not 0.
fn key(peer: PeerName, port: u8) -> Option<u64> {
    let fits = peer.rank < MOST_RANKS && usize::from(port) < PORTS;
    fits.then(|| u64::from(peer.job) << 32 | u64::from(port) << 28 | u64::from(peer.rank + 1))
}

/// Copies a port's data of a peer to the file.
#[cold]
pub fn show_peer(peer: &PeerFlight) {
    if let Some(recorder) = current() {
        recorder.show_peer(peer, monotonic());
    }
}

impl Recorder {
    pub(super) fn show_peer(&self, peer: &PeerFlight, now: u64) {
        let Some(row) = key(peer.peer, peer.port).and_then(|key| self.row(key)) else {
            return self.set(at::PEERS_LEFT_OUT, 1);
        };
        let queue_pairs = u64::from(peer.queue_pairs.0) | u64::from(peer.queue_pairs.1) << 32;
        let [_, time, numbers, posted, last, at_work, asked, _] = row;
        // The connection counts from its own beginning, in 32 bits: requests since the last copy are added.
        let before = last.load(Ordering::Relaxed);
        let is_same = numbers.load(Ordering::Relaxed) as u32 == peer.queue_pairs.0;
        let since = if is_same { (peer.posted as u32).wrapping_sub(before as u32) } else { peer.posted as u32 };
        posted.store(posted.load(Ordering::Relaxed) + u64::from(since), Ordering::Relaxed);
        let state = peer.state as u64 | u64::from(peer.timeout) << 8 | u64::from(peer.retries) << 16;
        last.store(u64::from(peer.posted as u32) | state << 32, Ordering::Relaxed);
        numbers.store(queue_pairs, Ordering::Relaxed);
        at_work.store(u64::from(peer.in_flight) | u64::from(peer.waiting) << 32, Ordering::Relaxed);
        asked.store(peer.asked.into(), Ordering::Relaxed);
        time.store(now, Ordering::Release);
    }

    /// The row of a peer, a new one if it has none; `None` if there is no room.
    fn row(&self, key: u64) -> Option<&[AtomicU64; ROW]> {
        for number in 0..TRIES {
            let place = at::PEERS + place(key, number) * ROW;
            let row: &[AtomicU64; ROW] = self.words.get(place..)?.first_chunk()?;
            match row[0].compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(row),
                Err(found) if found == key => return Some(row),
                Err(_) => {}
            }
        }
        None
    }
}

fn place(key: u64, number: usize) -> usize {
    // Consecutive ranks have consecutive rows.
    let first = (key as u32 & MOST_RANKS) as usize + (key >> 28) as usize % PORTS * (PEERS / 4 + 1);
    (first + number) % PEERS
}

pub(super) fn read(words: &[u64]) -> Vec<PeerFlight> {
    let rows = words.get(at::PEERS..at::PEERS + PEERS * ROW).unwrap_or_default().as_chunks::<ROW>().0;
    let mut peers: Vec<PeerFlight> = rows.iter().filter_map(of_row).collect();
    peers.sort_by_key(|peer| (peer.peer, peer.port));
    peers
}

/// `None` for an unused row, one that was never written, or damage.
fn of_row(row: &[u64; ROW]) -> Option<PeerFlight> {
    let [key, time, numbers, posted, last, at_work, asked, _] = *row;
    let rank = (key as u32 & MOST_RANKS).checked_sub(1)?;
    if time == 0 {
        return None;
    }
    Some(PeerFlight {
        peer: PeerName { job: (key >> 32) as u32, rank },
        port: (key >> 28 & 0xf) as u8,
        state: *PeerState::ALL.get((last >> 32 & 0xff) as usize)?,
        queue_pairs: (numbers as u32, (numbers >> 32) as u32),
        posted,
        in_flight: at_work as u32,
        waiting: (at_work >> 32) as u32,
        asked: asked as u32,
        timeout: (last >> 40) as u8,
        retries: (last >> 48) as u8,
        time,
    })
}
