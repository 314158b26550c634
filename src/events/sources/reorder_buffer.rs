// SPDX-License-Identifier: MIT OR Apache-2.0
//! Orders the events of a source: holds instances until no earlier one can follow, and releases them by timestamp.
//!
//! Completions are polled nearly in the order of their timestamps. But several threads may submit theirs in another
//! order, and so may a thread that polls again before it has submitted everything. An instance is due when everything
//! polled with or before it is submitted ([`ReorderBuffer::set_complete_until`]). If no caller says so, it is due when
//! an instance later by the window has arrived, when it has been held for the length of the window, or when half of the
//! room is in use. Once an adapter has written a timestamp after a later one, the buffer holds instances for that
//! delay. It refuses an instance earlier than a released one; the caller counts it.
//!
//! Path: hot while a tool listens; allocates once. Threads: one at a time. Units: ticks of the source; holding times in
//! ticks of the host. Tests: `tests/sources/reorder_buffer.rs`.

use std::collections::VecDeque;

use crate::events::EventInstance;

/// Number of windows for which an instance is held while earlier ones are known to come: their thread may be preempted.
const MAX_WINDOWS: u64 = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::events) enum Refused {
    /// It is earlier than a released one.
    Late,
    Full,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    instance: EventInstance,
    since: u64,
}

#[derive(Debug)]
pub(in crate::events) struct ReorderBuffer {
    /// Sorted by timestamp, equal ones by arrival. Most arrive in this order.
    held: VecDeque<Held>,
    room: usize,
    /// In ticks of the source, and in ticks of the host.
    window: (u64, u64),
    last_out: u64,
    /// Host's time up to which instances are complete, so that everything polled before any of them has been submitted;
    /// and the greatest timestamp of these instances.
    complete_until: (u64, u64),
    /// How long an instance is held after everything was submitted: the longest delay with which the adapter has
    /// written a timestamp. Units as `window`.
    writing_lag: (u64, u64),
}

impl ReorderBuffer {
    /// Holds up to `room` instances, each at most for `window` (source's ticks, host's ticks).
    pub(in crate::events) fn new(room: usize, window: (u64, u64)) -> ReorderBuffer {
        let room = room.max(1);
        ReorderBuffer {
            held: VecDeque::with_capacity(room),
            room,
            window,
            last_out: 0,
            complete_until: (0, 0),
            writing_lag: (0, 0),
        }
    }

    /// Notes that the instances submitted before `host` are complete: everything polled earlier has been submitted.
    #[inline]
    pub(in crate::events) fn set_complete_until(&mut self, host: u64) {
        if host <= self.complete_until.0 {
            return;
        }
        let newest = self.held.iter().rev().find(|held| held.since < host).map_or(0, |held| held.instance.timestamp);
        self.complete_until = (host, self.complete_until.1.max(newest));
    }

    /// Learns the delay of an adapter that wrote a timestamp earlier than one of the complete instances.
    #[cold]
    fn learn_writing_lag(&mut self, timestamp: u64) {
        let behind = (self.complete_until.1 - timestamp).min(self.window.0);
        if behind > self.writing_lag.0 {
            let rate = self.window.1 as f64 / self.window.0 as f64;
            self.writing_lag = (behind, (behind as f64 * rate).ceil() as u64);
        }
    }

    /// Whether more than half of the room is in use: then the earliest instance is due at once.
    #[inline]
    fn is_half_full(&self) -> bool {
        self.held.len() > self.room / 2
    }

    #[inline]
    pub(super) fn is_quarter_full(&self) -> bool {
        self.held.len() > self.room / 4
    }

    pub(in crate::events) fn len(&self) -> usize {
        self.held.len()
    }

    #[inline]
    pub(in crate::events) fn hold(&mut self, instance: &EventInstance, host: u64) -> Result<(), Refused> {
        if instance.timestamp < self.complete_until.1 {
            self.learn_writing_lag(instance.timestamp);
        }
        if instance.timestamp < self.last_out {
            return Err(Refused::Late);
        }
        if self.held.len() >= self.room {
            return Err(Refused::Full);
        }
        let held = Held { instance: *instance, since: host };
        if self.newest().is_none_or(|newest| newest <= instance.timestamp) {
            self.held.push_back(held);
        } else {
            let index = self.held.partition_point(|other| other.instance.timestamp <= instance.timestamp);
            self.held.insert(index, held);
        }
        Ok(())
    }

    #[inline]
    fn newest(&self) -> Option<u64> {
        self.held.back().map(|held| held.instance.timestamp)
    }

    /// Whether the earliest instance is due at `host`. `more`: earlier instances are known to come.
    #[inline]
    fn is_due(&self, host: u64, more: bool) -> bool {
        let (Some(first), Some(newest)) = (self.held.front(), self.newest()) else { return false };
        let (ticks, time) = if first.since < self.complete_until.0 {
            self.writing_lag
        } else if more {
            (u64::MAX, self.window.1.saturating_mul(MAX_WINDOWS))
        } else {
            self.window
        };
        self.is_half_full() || newest - first.instance.timestamp >= ticks || host.saturating_sub(first.since) >= time
    }

    #[inline]
    pub(in crate::events) fn pop_due(&mut self, host: u64, more: bool) -> Option<EventInstance> {
        if self.is_due(host, more) { self.pop_earliest() } else { None }
    }

    #[inline]
    pub(in crate::events) fn pop_earliest(&mut self) -> Option<EventInstance> {
        let instance = self.held.front()?.instance;
        self.held.pop_front();
        self.last_out = instance.timestamp;
        Some(instance)
    }
}
