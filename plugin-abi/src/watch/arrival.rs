// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages that have arrived whole and are yet to be shown: what need not be done between a message and who waits for it, is not.
//!
//! Such a message with the adapter's stamp is only noted when it arrives: when it did is known whenever it is shown, and no other event
//! is of the same message. Shown it is by the next progress that finds nothing else to do, or when [`ROOM`] are noted, in the order
//! of arrival. Called by `watch`. Path: behind the branch of a site, [`note`] between a message and its receive: one lock, a copy
//! of its header, no allocation. Threads: any; the lock is held while what was noted is staged, and no callback runs then.
//! Tests: `hw-tests/mpi/events.c`.

use std::sync::atomic::{AtomicBool, Ordering};

use arrayvec::ArrayVec;
use engine::peer::PeerName;
use parking_lot::Mutex;

use super::LOOKED_AT;

/// How many messages may be noted.
const ROOM: usize = 64;

/// A message that has arrived.
#[derive(Clone, Copy)]
pub(super) struct Arrival {
    pub(super) peer: PeerName,
    pub(super) tag: u8,
    /// Its length, bytes.
    pub(super) length: u32,
    start: [u8; LOOKED_AT],
    /// The port's source and the adapter's raw ticks, where it stamps.
    pub(super) stamp: super::Stamp,
}

impl Arrival {
    /// # Safety
    /// `length` bytes from `start` on may be read, and no adapter writes there.
    #[inline]
    pub(super) unsafe fn new(
        peer: PeerName,
        tag: u8,
        (start, length): (*const u8, u32),
        stamp: super::Stamp,
    ) -> Arrival {
        let mut arrival = Arrival { peer, tag, length, start: [0; LOOKED_AT], stamp };
        // SAFETY: this function's rule; the array is no shorter.
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
    /// What the engine said when the first was noted ([`engine::events::awakenings`]).
    since: u64,
}

static NOTED: Mutex<Noted> = Mutex::new(Noted { arrivals: ArrayVec::new_const(), since: 0 });

/// Whether any is noted.
static ANY: AtomicBool = AtomicBool::new(false);

impl Noted {
    /// Shows all, in the order of arrival. Those from before somebody listened again are nobody's.
    fn show(&mut self, awakenings: u64, show: impl Fn(&Arrival)) {
        if self.since == awakenings {
            self.arrivals.iter().for_each(show);
        }
        self.arrivals.clear();
        ANY.store(false, Ordering::Relaxed);
    }
}

/// Notes one, behind those noted already, which are shown where there is no room.
pub(super) fn note(arrival: Arrival, awakenings: u64, show: impl Fn(&Arrival)) {
    let mut noted = NOTED.lock();
    if noted.arrivals.is_full() || noted.since != awakenings {
        noted.show(awakenings, show);
        noted.since = awakenings;
    }
    noted.arrivals.push(arrival);
    ANY.store(true, Ordering::Relaxed);
}

/// Shows what is noted.
#[inline]
pub(super) fn show(awakenings: u64, show: impl Fn(&Arrival)) {
    if ANY.load(Ordering::Relaxed) {
        NOTED.lock().show(awakenings, show);
    }
}
