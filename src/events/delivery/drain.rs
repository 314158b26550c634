// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delivers events from registrations' buffers in the order of their sources, and reports dropped events. Several
//! buffers may have events of one source, so they are merged: of all buffers with a callback that may run here, the one
//! with the earliest event ([`Order`]) is next. A buffer without such a callback does not hold back the others. One
//! thread at a time empties buffers ([`Emptying`]), so that callbacks that are not thread-safe may run.
//!
//! Called by `deliver.rs` and when a registration is freed. Path: hot where events flow: allocates only for more
//! buffers than ever before. Threads: any; no thread waits for its lock. Tests: `tests/delivery/`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, TryLockError};

use super::direct;
use super::thread::{self, Delivery};
use crate::events::interest_mask::{self, BUFFERS};
use crate::events::registrations::registry::{self, Entry};
use crate::events::registrations::ring::First;
use crate::events::sources::source::BufferedDeliveries;
use crate::events::{Registration, Safety};

/// Locked by the thread that empties buffers. Its working memory stays here, so that it is allocated once.
static EMPTYING: Mutex<Buffers> = Mutex::new(Buffers { earliest: BinaryHeap::new(), members: Vec::new() });

/// The right to empty buffers, given back also if a callback panics.
pub(in crate::events) struct Emptying(MutexGuard<'static, Buffers>);

/// Per buffer with events: position of its first event, place in the list of registrations, revision of its callbacks.
type Heads = BinaryHeap<Reverse<(u64, usize, u64)>>;

struct Buffers {
    earliest: Heads,
    members: Vec<usize>,
}

/// The order in which events of different buffers are delivered. Each buffer and each source has events of one kind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Matching events: they have one source, by whose timestamps they are ordered.
    Matching,
    /// All others: by the numbers that they got when they were put into buffers (`thread.rs`), as timestamps of
    /// different clocks do not compare.
    Others,
}

/// The limit up to which buffers are emptied: a merge could miss an event that arrives during it, and deliver later
/// ones first. An event up to the limit was in its buffer before the limit was read, or its source has buffered nothing
/// since: a source is one control flow, which numbers or stamps an event and buffers it before it begins the next.
#[derive(Clone, Copy)]
pub(in crate::events) struct Until {
    matching: u64,
    others: u64,
}

impl Until {
    pub(in crate::events) fn now() -> Until {
        Until { matching: direct::last_stamp(), others: thread::last_number() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Done,
    /// A callback has changed a registration's callbacks: the new ones get the remaining events.
    Changed,
    /// A thread has not finished adding the first event of a buffer, so the position of that event is unknown.
    Unfinished,
}

impl Emptying {
    pub(in crate::events) fn try_new() -> Option<Emptying> {
        match EMPTYING.try_lock() {
            Ok(buffers) => Some(Emptying(buffers)),
            // State that a panicked callback left is cleared before use.
            Err(TryLockError::Poisoned(poisoned)) => Some(Emptying(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Delivers the events in the buffers up to `until`, at most `budget`, including those of `leaving`, a freed
    /// registration. Returns their number, and whether a thread must finish adding an event before there are more.
    pub(in crate::events) fn empty(
        &mut self,
        delivery: &mut Delivery<'_>,
        budget: usize,
        until: Until,
        safety: Safety,
        leaving: Option<&Entry>,
    ) -> (usize, bool) {
        interest_mask::clear_pending(BUFFERS);
        let (mut count, mut is_unfinished) = (0, false);
        for order in [Order::Matching, Order::Others] {
            loop {
                let all = registry::all_entries();
                let list = List { all: &all, leaving };
                let (delivered, ended) = self.0.merge(list, order, delivery, budget - count, until, safety);
                count += delivered;
                is_unfinished |= ended == Ended::Unfinished;
                if ended != Ended::Changed {
                    break;
                }
            }
        }
        // A callback that is not fit here may be fit elsewhere.
        let waits = |entry: &Entry| !entry.registration.ring.is_empty() && !entry.calls.is_empty();
        if registry::all_entries().iter().any(waits) {
            interest_mask::set_pending(BUFFERS);
        }
        (count, is_unfinished)
    }
}

#[derive(Clone, Copy)]
struct List<'a> {
    all: &'a [Entry],
    leaving: Option<&'a Entry>,
}

impl<'a> List<'a> {
    fn iter(self) -> impl Iterator<Item = &'a Entry> {
        self.all.iter().chain(self.leaving)
    }

    #[inline]
    fn entry(self, place: usize) -> Option<&'a Entry> {
        self.all.get(place).or(self.leaving)
    }
}

struct Draining<'a> {
    list: List<'a>,
    members: &'a [usize],
}

impl<'a> Draining<'a> {
    fn members(&self) -> impl Iterator<Item = &'a Entry> {
        let list = self.list;
        self.members.iter().filter_map(move |place| list.entry(*place))
    }
}

impl Drop for Draining<'_> {
    fn drop(&mut self) {
        self.members().for_each(|entry| entry.registration.draining.store(false, Ordering::SeqCst));
    }
}

impl Buffers {
    /// Starts a merge of the buffers that have events or losses of this kind and a callback that may run here.
    fn join<'a>(&'a mut self, list: List<'a>, order: Order, safety: Safety) -> (Draining<'a>, &'a mut Heads, Ended) {
        self.members.clear();
        self.earliest.clear();
        for (place, entry) in list.iter().enumerate() {
            let registration = &*entry.registration;
            let has_something = !registration.ring.is_empty() || registration.has_unreported_drops();
            if has_something && order.has(registration) && entry.calls.fit(safety).is_some() {
                registration.draining.store(true, Ordering::SeqCst);
                self.members.push(place);
            }
        }
        let draining = Draining { list, members: &self.members };
        let mut ended = Ended::Done;
        for (&place, entry) in self.members.iter().zip(draining.members()) {
            match order.first(&entry.registration) {
                Some(first) => {
                    let revision = entry.registration.revision.load(Ordering::SeqCst);
                    self.earliest.push(Reverse((first, place, revision)));
                }
                None if entry.registration.ring.is_empty() => {}
                None => ended = Ended::Unfinished,
            }
        }
        (draining, &mut self.earliest, ended)
    }

    fn merge(
        &mut self,
        list: List<'_>,
        order: Order,
        delivery: &mut Delivery<'_>,
        budget: usize,
        until: Until,
        safety: Safety,
    ) -> (usize, Ended) {
        let (draining, heads, mut ended) = self.join(list, order, safety);
        let mut run = BufferedDeliveries::new();
        let mut count = 0;
        while ended == Ended::Done && count < budget {
            let Some(mut earliest) = heads.peek_mut() else { break };
            let Reverse((first, place, revision)) = *earliest;
            if first > order.until(until) {
                break;
            }
            let Some(entry) = list.entry(place) else { break };
            let registration = &*entry.registration;
            if registration.revision.load(Ordering::SeqCst) != revision {
                ended = Ended::Changed;
                break;
            }
            let Some(callback) = entry.calls.fit(safety) else { break };
            let Some(instance) = registration.ring.pop(registration.used) else { break };
            if let Some(next) = order.first(registration) {
                earliest.0.0 = next;
                drop(earliest);
            } else {
                PeekMut::pop(earliest);
                if !registration.ring.is_empty() {
                    ended = Ended::Unfinished;
                }
            }
            // A loss is reported before the later events of its source.
            if entry.calls.must_report_drops(registration) {
                entry.calls.report_drops(registration, safety);
            }
            run.count(instance.source);
            count += 1;
            callback(&instance, registration, safety);
            // Deliver the callback's own events. For a member of the merge they go behind the events in its buffer.
            delivery.deliver_staged();
        }
        drop(run);
        for entry in draining.members() {
            if entry.calls.must_report_drops(&entry.registration) {
                entry.calls.report_drops(&entry.registration, safety);
                delivery.deliver_staged();
            }
        }
        (count, ended)
    }
}

impl Order {
    fn has(self, registration: &Registration) -> bool {
        registration.event_type.place_in_matching().is_some() == (self == Order::Matching)
    }

    /// Position of the first event of a buffer; `None` if there is none, or it is unfinished.
    #[inline]
    fn first(self, registration: &Registration) -> Option<u64> {
        let First { number, timestamp } = registration.ring.first()?;
        Some(if self == Order::Matching { timestamp } else { number })
    }

    fn until(self, until: Until) -> u64 {
        if self == Order::Matching { until.matching } else { until.others }
    }
}

/// Empties buffers, up to `budget` events, unless another thread does.
pub(super) fn empty(delivery: &mut Delivery<'_>, budget: usize, safety: Safety) -> usize {
    let Some(mut emptying) = Emptying::try_new() else { return 0 };
    if !interest_mask::is_pending(BUFFERS) || thread::is_first_thread_in_callback() {
        return 0;
    }
    emptying.empty(delivery, budget, Until::now(), safety, None).0
}
