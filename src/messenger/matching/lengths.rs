// SPDX-License-Identifier: MIT OR Apache-2.0
//! Current and maximum lengths of a communicator's queues, for performance variables (`runtime/variables/queues.rs`).
//! The queues count where a message or receive enters or leaves them. A receive in the first place
//! (`receive/queues.rs`) is in no queue, and a message for it does not count. The thread that has entered the messenger
//! writes, without locked instructions; any thread reads. Grade: pending, hot for [`Lengths::set_first`]. Tests: below,
//! and `hw-tests/tools/mpi_t_queues.c`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A number and its maximum.
#[derive(Debug, Default)]
pub struct Level {
    now: AtomicU64,
    /// Maximum since a tool last reset it.
    most: AtomicU64,
    /// Maximum before that reset.
    most_before: AtomicU64,
}

impl Level {
    /// Starts at 0.
    pub const fn new() -> Self {
        Level { now: AtomicU64::new(0), most: AtomicU64::new(0), most_before: AtomicU64::new(0) }
    }

    /// Resets number and maximum.
    pub fn forget(&self) {
        for number in [&self.now, &self.most, &self.most_before] {
            number.store(0, Ordering::Relaxed);
        }
    }

    /// Sets the level.
    pub fn set(&self, value: u64) {
        self.set_with(value, 0);
    }

    /// Sets the level to `value`. The maximum includes `value + more`, the level just before this call, and the former
    /// value, because a tool that resets the maximum at this moment may have read it.
    fn set_with(&self, value: u64, more: u64) {
        let greatest = (value + more).max(self.now.load(Ordering::Relaxed));
        self.now.store(value, Ordering::Relaxed);
        if greatest > self.most.load(Ordering::Relaxed) {
            self.most.store(greatest, Ordering::Relaxed);
        }
    }

    /// Returns number and maximum since the last reset; both include `more` entries that the level does not count.
    pub fn show(&self, more: u64) -> [u64; 2] {
        let now = self.now.load(Ordering::Relaxed) + more;
        [now, now.max(self.most.load(Ordering::Relaxed))]
    }

    /// Returns the maximum since the start, in spite of resets.
    pub fn most_ever(&self, more: u64) -> u64 {
        self.show(more)[1].max(self.most_before.load(Ordering::Relaxed))
    }

    /// Resets the maximum and returns it. Any thread, one at a time.
    pub fn begin_anew(&self, more: u64) -> u64 {
        let most = self.most.swap(0, Ordering::SeqCst).max(self.show(more)[0]);
        self.most_before.store(most.max(self.most_before.load(Ordering::Relaxed)), Ordering::Relaxed);
        most
    }
}

/// The numbers of which tools can read the current value and the maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Number of posted receives.
    Posted,
    /// Number of unexpected messages.
    Unexpected,
    /// Bytes of unexpected messages.
    Bytes,
}

/// Lengths of a communicator's queues, with the receive in the first place.
#[derive(Debug, Default)]
pub struct Lengths {
    posted: Level,
    unexpected: Level,
    bytes: Level,
    messages: AtomicU64,
    attempts: AtomicU64,
    has_first: AtomicBool,
}

impl Lengths {
    /// Notes that `now` receives are in the queue, beside the one in the first place.
    pub fn posted(&self, now: u32) {
        self.posted.set_with(u64::from(now), self.first());
    }

    /// Notes whether a receive is in the first place.
    #[inline(always)]
    pub fn set_first(&self, is_there: bool) {
        self.has_first.store(is_there, Ordering::Relaxed);
    }

    fn first(&self) -> u64 {
        self.has_first.load(Ordering::Relaxed).into()
    }

    /// Counts an unexpected message of `bytes`; `now` are in the queue with it.
    pub fn inserted(&self, now: u32, bytes: usize) {
        self.unexpected.set(u64::from(now));
        self.bytes.set(self.bytes.now.load(Ordering::Relaxed) + bytes as u64);
        self.messages.store(self.messages.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Counts an unexpected message of `bytes` that was taken out; `now` are left.
    pub fn removed(&self, now: u32, bytes: usize) {
        self.unexpected.set(u64::from(now));
        self.bytes.set(self.bytes.now.load(Ordering::Relaxed).saturating_sub(bytes as u64));
    }

    /// Counts a search that compared `attempts` entries.
    pub fn searched(&self, attempts: u32) {
        self.attempts.store(self.attempts.load(Ordering::Relaxed) + u64::from(attempts), Ordering::Relaxed);
    }

    // ---- for any thread; one at a time may reset --------------------------------------------------------------------

    fn level(&self, of: Of) -> (&Level, u64) {
        match of {
            Of::Posted => (&self.posted, self.first()),
            Of::Unexpected => (&self.unexpected, 0),
            Of::Bytes => (&self.bytes, 0),
        }
    }

    /// The length now.
    pub fn now(&self, of: Of) -> u64 {
        let (level, more) = self.level(of);
        level.show(more)[0]
    }

    /// Maximum since the last reset.
    pub fn most(&self, of: Of) -> u64 {
        let (level, more) = self.level(of);
        level.show(more)[1]
    }

    /// Maximum since the communicator was made.
    pub fn most_ever(&self, of: Of) -> u64 {
        let (level, more) = self.level(of);
        level.most_ever(more)
    }

    /// Resets the maximum and returns it.
    pub fn begin_anew(&self, of: Of) -> u64 {
        let (level, more) = self.level(of);
        level.begin_anew(more)
    }

    /// Number of messages that were unexpected.
    pub fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    /// Number of queue entries that searches compared.
    pub fn attempts(&self) -> u64 {
        self.attempts.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(lengths: &Lengths) -> [[u64; 2]; 3] {
        [Of::Posted, Of::Unexpected, Of::Bytes].map(|of| [lengths.now(of), lengths.most(of)])
    }

    #[test]
    fn the_maximum_stays_and_a_receive_outside_the_queue_counts_while_it_lasts() {
        let lengths = Lengths::default();
        lengths.set_first(true);
        assert_eq!(levels(&lengths)[0], [1, 1]);
        for now in [1, 2, 1] {
            lengths.posted(now);
        }
        lengths.set_first(false);
        lengths.posted(2);
        lengths.inserted(1, 8);
        lengths.inserted(2, 100);
        lengths.removed(1, 8);
        lengths.searched(5);
        lengths.searched(2);
        assert_eq!(levels(&lengths), [[2, 3], [1, 2], [100, 108]]);
        assert_eq!((lengths.messages(), lengths.attempts()), (2, 7));
        lengths.set_first(true);
        assert_eq!(levels(&lengths)[0], [3, 3]);
    }

    #[test]
    fn a_reset_maximum_begins_at_the_present_level_and_the_maximum_ever_stays() {
        let lengths = Lengths::default();
        (1..=9).for_each(|now| lengths.inserted(now, 1));
        (3..9).rev().for_each(|now| lengths.removed(now, 1));
        assert_eq!(lengths.begin_anew(Of::Unexpected), 9);
        assert_eq!((lengths.now(Of::Unexpected), lengths.most(Of::Unexpected)), (3, 3));
        lengths.removed(2, 1);
        assert_eq!(lengths.most(Of::Unexpected), 3, "it began there");
        lengths.inserted(3, 1);
        lengths.inserted(4, 1);
        lengths.removed(3, 1);
        assert_eq!((lengths.most(Of::Unexpected), lengths.most_ever(Of::Unexpected)), (4, 9));
        assert_eq!((lengths.most(Of::Bytes), lengths.begin_anew(Of::Unexpected)), (9, 4), "the other began nowhere");
        assert_eq!(lengths.most_ever(Of::Unexpected), 9);
    }

    /// Miri is a thousand times slower.
    const GREATEST: u32 = if cfg!(miri) { 200 } else { 199_999 };

    #[test]
    fn a_reset_in_another_thread_misses_no_maximum() {
        let lengths = Lengths::default();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Each maximum is greater than the one before, and is there only briefly.
                for greatest in 1..=GREATEST {
                    lengths.inserted(greatest, 1);
                    lengths.removed(0, 1);
                }
                is_over.store(true, Ordering::Release);
            });
            let (mut last, mut most) = (0, 0);
            while !is_over.load(Ordering::Acquire) {
                most = lengths.begin_anew(Of::Unexpected).max(most);
                assert!(most >= last, "{most} is less than {last}");
                last = most;
            }
            assert_eq!(lengths.begin_anew(Of::Unexpected).max(most), u64::from(GREATEST));
        });
    }
}
