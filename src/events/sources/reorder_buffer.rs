// SPDX-License-Identifier: MIT OR Apache-2.0
//! Orders the events of a source: holds instances until no earlier one can follow, and releases them by timestamp.
//!
//! Completions are polled nearly in the order of their timestamps. But several threads may submit theirs in another
//! order, and so may a thread that polls again before it has submitted everything. An instance is due when everything
//! polled with or before it is submitted: no batch is open that began before. Open batches delay it for
//! [`Limits::batch`] at most, because their thread may be preempted, and not at all while half of the room is in use.
//! Once an adapter has written a timestamp after a later one, the buffer holds instances for that delay. It refuses an
//! instance earlier than a released one; the caller counts it.
//!
//! Grade: hot while a tool listens; allocates once. Threads: one at a time. Units: ticks of the source; holding times
//! in ticks of the host. Tests: `tests/sources/reorder_buffer.rs`.

use std::collections::VecDeque;

use crate::events::EventInstance;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::events) enum Refused {
    /// It is earlier than a released one.
    Late,
    Full,
}

/// How long and how many instances are held.
#[derive(Debug, Clone, Copy)]
pub(in crate::events) struct Limits {
    /// Number of instances.
    pub(in crate::events) room: usize,
    /// Longest time because of an open batch, ticks of the host.
    pub(in crate::events) batch: u64,
    /// Longest time because the adapter has written timestamps late: in ticks of the source, and of the host.
    pub(in crate::events) lag: (u64, u64),
}

#[derive(Debug, Clone, Copy)]
struct Held {
    instance: EventInstance,
    /// When it was submitted.
    since: u64,
}

#[derive(Debug)]
pub(in crate::events) struct ReorderBuffer {
    /// Sorted by timestamp, equal ones by arrival. Most arrive in this order.
    held: VecDeque<Held>,
    limits: Limits,
    /// Timestamp of the last instance; if none is held, of the last one released.
    newest: u64,
    last_out: u64,
    /// Greatest timestamp of the instances that were complete: everything polled before had been submitted.
    complete: u64,
    /// How long an instance is held after everything was submitted: the longest delay with which the adapter has
    /// written a timestamp. Units as [`Limits::lag`].
    writing_lag: (u64, u64),
}

impl ReorderBuffer {
    pub(in crate::events) fn new(limits: Limits) -> ReorderBuffer {
        let limits = Limits { room: limits.room.max(1), ..limits };
        ReorderBuffer {
            held: VecDeque::with_capacity(limits.room),
            limits,
            newest: 0,
            last_out: 0,
            complete: 0,
            writing_lag: (0, 0),
        }
    }

    /// Notes which instances are complete: those submitted before the oldest open batch began, or all if none is open.
    #[inline]
    pub(in crate::events) fn note_complete(&mut self, oldest: Option<u64>) {
        let newest = match oldest {
            None => self.newest,
            Some(oldest) => self.newest_before(oldest),
        };
        self.complete = self.complete.max(newest);
    }

    #[cold]
    fn newest_before(&self, oldest: u64) -> u64 {
        self.held.iter().rev().find(|held| held.since < oldest).map_or(0, |held| held.instance.timestamp)
    }

    /// Whether [`Self::hold`] needs the time.
    #[inline]
    pub(in crate::events) fn holds_by_time(&self) -> bool {
        self.writing_lag.1 > 0
    }

    /// Learns the delay of an adapter that wrote a timestamp earlier than one of the complete instances.
    #[cold]
    fn learn_writing_lag(&mut self, timestamp: u64) {
        let (ticks, time) = self.limits.lag;
        let behind = (self.complete - timestamp).min(ticks);
        if behind > self.writing_lag.0 {
            let rate = time as f64 / ticks as f64;
            self.writing_lag = (behind, (behind as f64 * rate).ceil() as u64);
        }
    }

    /// Whether more than half of the room is in use: then the earliest instance is due at once.
    #[inline]
    fn is_half_full(&self) -> bool {
        self.held.len() > self.limits.room / 2
    }

    #[inline]
    pub(super) fn is_quarter_full(&self) -> bool {
        self.held.len() > self.limits.room / 4
    }

    pub(in crate::events) fn len(&self) -> usize {
        self.held.len()
    }

    /// Takes an instance that is submitted at `since`: the newest open batch, or if none is open the time, which may be
    /// 0 unless [`Self::holds_by_time`].
    #[inline]
    pub(in crate::events) fn hold(&mut self, instance: &EventInstance, since: u64) -> Result<(), Refused> {
        if instance.timestamp < self.complete {
            self.learn_writing_lag(instance.timestamp);
        }
        if instance.timestamp < self.last_out {
            return Err(Refused::Late);
        }
        if self.held.len() >= self.limits.room {
            return Err(Refused::Full);
        }
        if instance.timestamp >= self.newest {
            self.newest = instance.timestamp;
            self.held.push_back(Held { instance: *instance, since });
        } else {
            self.insert(Held { instance: *instance, since });
        }
        Ok(())
    }

    #[cold]
    fn insert(&mut self, held: Held) {
        let timestamp = held.instance.timestamp;
        let index = self.held.partition_point(|other| other.instance.timestamp <= timestamp);
        self.held.insert(index, held);
    }

    /// Whether the earliest instance is due at `host`, while batches are open since `oldest`.
    #[inline]
    pub(in crate::events) fn is_due(&self, host: u64, oldest: Option<u64>) -> bool {
        let Some(first) = self.held.front() else { return false };
        let is_complete = oldest.is_none_or(|oldest| first.since < oldest);
        if is_complete && !self.holds_by_time() {
            return true;
        }
        let (ticks, time) = if is_complete { self.writing_lag } else { (u64::MAX, self.limits.batch) };
        let is_overtaken = self.newest - first.instance.timestamp >= ticks;
        is_overtaken || host.saturating_sub(first.since) >= time || self.is_half_full()
    }

    #[inline]
    pub(in crate::events) fn pop_due(&mut self, host: u64, oldest: Option<u64>) -> Option<EventInstance> {
        if self.is_due(host, oldest) { self.pop_earliest() } else { None }
    }

    #[inline]
    pub(in crate::events) fn pop_earliest(&mut self) -> Option<EventInstance> {
        let instance = self.held.front()?.instance;
        self.held.pop_front();
        self.last_out = instance.timestamp;
        Some(instance)
    }
}
