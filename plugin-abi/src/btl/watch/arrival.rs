// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages that have arrived whole and are yet to be shown: what need not be done between a message and who waits for
//! it, is not.
//!
//! Such a message with the adapter's stamp is only noted when it arrives: when it did is known whenever it is shown,
//! and no other event is of the same message. Shown it is by the next call of progress, before that polls, or when
//! [`ROOM`] are noted, in the order of arrival; until then the port's source waits for it
//! ([`engine::events::begin_batch`]). Called by `incoming`. Path: behind the branch of a site, [`note`] between a
//! message and its receive: one lock, a copy of its header, no allocation. Threads: any; the lock is held while what
//! was noted is staged, and no callback runs then. Tests: `hw-tests/mpi/events.c`.

use std::sync::atomic::{AtomicBool, Ordering};

use arrayvec::ArrayVec;
use engine::events::{self, PolledBatch, SourceId};
use engine::peer::PeerName;
use parking_lot::Mutex;

use super::ob1::LONGEST as LOOKED_AT;
use super::stamp::Stamp;
use crate::runtime::ports::MAX_PORTS;

/// How many messages may be noted.
const ROOM: usize = 64;

/// A message that has arrived.
pub(super) struct Arrival {
    pub(super) peer: PeerName,
    pub(super) tag: u8,
    /// Its length, bytes.
    pub(super) length: u32,
    start: [u8; LOOKED_AT],
    /// The port's source and the adapter's raw ticks, where it stamps.
    pub(super) stamp: Stamp,
}

impl Arrival {
    /// # Safety
    /// `length` bytes from `start` on may be read, and no adapter writes there.
    #[inline]
    pub(super) unsafe fn new(peer: PeerName, tag: u8, (start, length): (*const u8, u32), stamp: Stamp) -> Arrival {
        let mut arrival = Arrival { peer, tag, length, start: [0; LOOKED_AT], stamp };
        // SAFETY: the caller says that `length` bytes may be read; no more are looked at, and the array has room.
        unsafe { start.copy_to_nonoverlapping(arrival.start.as_mut_ptr(), arrival.looked_at()) };
        arrival
    }

    #[inline]
    fn looked_at(&self) -> usize {
        (self.length as usize).min(LOOKED_AT)
    }

    /// Its first bytes, as many of them as are looked at.
    pub(super) fn start(&self) -> &[u8] {
        &self.start[..self.looked_at()]
    }
}

struct Noted {
    arrivals: ArrayVec<Arrival, ROOM>,
    /// What the engine said when the first was noted ([`events::activation_epoch`]).
    since: u64,
    /// For the first of each source: what makes the source wait for all.
    taken: ArrayVec<(SourceId, PolledBatch), MAX_PORTS>,
}

static NOTED: Mutex<Noted> =
    Mutex::new(Noted { arrivals: ArrayVec::new_const(), since: 0, taken: ArrayVec::new_const() });

/// Whether any is noted.
static ANY: AtomicBool = AtomicBool::new(false);

impl Noted {
    /// Shows all, in the order of arrival.
    fn show(&mut self, show: impl Fn(&Arrival, u64)) {
        self.arrivals.iter().for_each(|arrival| show(arrival, self.since));
        self.arrivals.clear();
        for (source, taken) in self.taken.drain(..) {
            events::end_batch(source, taken);
        }
        ANY.store(false, Ordering::Relaxed);
    }
}

/// Notes one of a source, behind those noted already, which are shown where there is no room, or where nobody listened
/// for a while since then.
pub(super) fn note(arrival: Arrival, source: SourceId, show: impl Fn(&Arrival, u64)) {
    let mut noted = NOTED.lock();
    let activation_epoch = events::activation_epoch();
    if noted.arrivals.is_full() || noted.since != activation_epoch {
        noted.show(show);
        noted.since = activation_epoch;
    }
    noted.arrivals.push(arrival);
    if noted.taken.iter().all(|(known, _)| *known != source)
        && let Some(taken) = events::begin_batch(source)
    {
        // There is no port more.
        let _ = noted.taken.try_push((source, taken));
    }
    ANY.store(true, Ordering::Relaxed);
}

/// Shows what is noted, each with what the engine said when it was noted ([`engine::events::activation_epoch`]).
#[inline]
pub(super) fn show(show: impl Fn(&Arrival, u64)) {
    if ANY.load(Ordering::Relaxed) {
        NOTED.lock().show(show);
    }
}
