// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delivers events from registrations' buffers in the order of their sources, and reports dropped events. Several
//! buffers may have events of one source, so they are merged: of all buffers with a callback that may run here, the one
//! with the earliest event is next. A buffer without such a callback does not hold back the others. One thread at a
//! time empties buffers ([`Emptying`]), so that callbacks that are not thread-safe may run.
//!
//! Called by `deliver.rs` and when a registration is freed. Grade: hot where events flow: allocates only for more
//! buffers than ever before. Threads: any; no thread waits for its lock. Tests: `tests/delivery/`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, TryLockError};

use super::direct;
use super::thread::{self, Delivery};
use crate::events::Safety;
use crate::events::interest_mask::{self, BUFFERS};
use crate::events::registrations::registry::{self, Entry};
use crate::events::registrations::ring::Ring;
use crate::events::sources::source::BufferedDeliveries;

/// Locked by the thread that empties buffers. Its working memory stays here, so that it is allocated once.
static EMPTYING: Mutex<Buffers> =
    Mutex::new(Buffers { earliest: BinaryHeap::new(), members: Vec::new(), followers: Vec::new() });

/// The right to empty buffers; a panic in a callback gives it back, too.
pub(in crate::events) struct Emptying(MutexGuard<'static, Buffers>);

/// One key per buffer with events: the number of its first event (possibly an earlier one) in the upper half, the
/// buffer's index among the members in the lower half.
type Heads = BinaryHeap<Reverse<u128>>;

struct Buffers {
    earliest: Heads,
    members: Vec<Member>,
    /// Per member, the two members that last had the event after one of its own.
    followers: Vec<[usize; 2]>,
}

/// A buffer of a merge: its place in the list of registrations, and the revision of its callbacks.
type Member = (usize, u64);

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
            // `join` clears the state that a panicked callback has left.
            Err(TryLockError::Poisoned(poisoned)) => Some(Emptying(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Delivers the events that are in the buffers now, at most `budget`, including those of `leaving`, a freed
    /// registration. Returns their number, and whether a thread must finish adding an event before there are more.
    ///
    /// A merge has a limit, the number of the last event: events get numbers when they enter a buffer, because
    /// timestamps of different clocks do not compare. Matching events have one source and numbers of their own; each
    /// buffer has events of one kind. Without a limit a merge could miss an event that arrives during it, and deliver
    /// later ones first. An event up to the limit was in its buffer before the limit was read, or its source has
    /// buffered nothing since: a source is one control flow, which numbers an event and buffers it before it begins the
    /// next.
    pub(in crate::events) fn empty(
        &mut self,
        delivery: &mut Delivery<'_>,
        budget: usize,
        safety: Safety,
        leaving: Option<&Entry>,
    ) -> (usize, bool) {
        let limits = [(true, direct::last_number()), (false, thread::last_number())];
        interest_mask::clear_pending(BUFFERS);
        let (mut count, mut is_unfinished) = (0, false);
        for kind in limits {
            loop {
                let all = registry::all_entries();
                let list = List { all: &all, leaving };
                let (delivered, ended) = self.0.merge(list, kind, delivery, budget - count, safety);
                count += delivered;
                is_unfinished |= ended == Ended::Unfinished;
                if ended != Ended::Changed {
                    break;
                }
            }
        }
        // These events wait for callbacks that may not run here; another place may permit them.
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
    members: &'a [Member],
}

impl<'a> Draining<'a> {
    fn members(&self) -> impl Iterator<Item = &'a Entry> {
        let list = self.list;
        self.members.iter().filter_map(move |(place, _)| list.entry(*place))
    }

    #[inline]
    fn ring(&self, member: usize) -> Option<&'a Ring> {
        Some(&self.list.entry(self.members.get(member)?.0)?.registration.ring)
    }

    /// The number of the earliest event, and the member that has it.
    fn earliest(&self, heads: &mut Heads) -> Result<(u64, usize), Ended> {
        while let Some(mut top) = heads.peek_mut() {
            let Reverse(key) = *top;
            let member = key as usize;
            match self.ring(member).and_then(Ring::first) {
                Some(first) if first == (key >> 64) as u64 => return Ok((first, member)),
                Some(first) => *top = head(first, member),
                None if self.ring(member).is_none_or(Ring::is_empty) => _ = PeekMut::pop(top),
                None => return Err(Ended::Unfinished),
            }
        }
        Err(Ended::Done)
    }
}

fn head(first: u64, member: usize) -> Reverse<u128> {
    Reverse(u128::from(first) << 64 | member as u128)
}

impl Drop for Draining<'_> {
    fn drop(&mut self) {
        self.members().for_each(|entry| entry.registration.draining.store(false, Ordering::SeqCst));
    }
}

impl Buffers {
    /// Starts a merge of the buffers that have events or losses of this kind and a callback that may run here.
    fn join(&mut self, list: List<'_>, is_matching: bool, safety: Safety) {
        self.members.clear();
        self.earliest.clear();
        for (place, entry) in list.iter().enumerate() {
            let registration = &*entry.registration;
            let has_something = !registration.ring.is_empty() || registration.has_unreported_drops();
            let is_kind = registration.event_type.place_in_matching().is_some() == is_matching;
            if has_something && is_kind && entry.calls.fit(safety).is_some() {
                registration.draining.store(true, Ordering::SeqCst);
                self.earliest.push(head(0, self.members.len()));
                self.members.push((place, registration.revision.load(Ordering::SeqCst)));
            }
        }
        self.followers.clear();
        self.followers.resize(self.members.len(), [0; 2]);
    }

    fn merge(
        &mut self,
        list: List<'_>,
        (is_matching, limit): (bool, u64),
        delivery: &mut Delivery<'_>,
        budget: usize,
        safety: Safety,
    ) -> (usize, Ended) {
        self.join(list, is_matching, safety);
        let draining = Draining { list, members: &self.members };
        let mut run = BufferedDeliveries::new();
        let (mut count, mut ended) = (0, Ended::Done);
        let (mut number, mut member) = (0, 0);
        while count < budget {
            number += 1;
            // The matching event with the next number is the earliest, wherever it is found.
            let has_next = |next: &&usize| is_matching && draining.ring(**next).and_then(Ring::first) == Some(number);
            if let Some(&next) = self.followers.get(member).and_then(|followers| followers.iter().find(has_next)) {
                member = next;
            } else {
                let Ok(earliest) = draining.earliest(&mut self.earliest).map_err(|why| ended = why) else { break };
                self.followers[member] = [earliest.1, self.followers[member][0]];
                (number, member) = earliest;
            }
            if number > limit {
                break;
            }
            let Some(&(place, revision)) = self.members.get(member) else { break };
            let Some(entry) = list.entry(place) else { break };
            let registration = &*entry.registration;
            if registration.revision.load(Ordering::SeqCst) != revision {
                ended = Ended::Changed;
                break;
            }
            let Some(callback) = entry.calls.fit(safety) else { break };
            let Some(instance) = registration.ring.pop(registration.used) else { break };
            // Reports a loss before the later events of its source.
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

/// Empties buffers, up to `budget` events, unless another thread does.
pub(super) fn empty(delivery: &mut Delivery<'_>, budget: usize, safety: Safety) -> usize {
    let Some(mut emptying) = Emptying::try_new() else { return 0 };
    if !interest_mask::is_pending(BUFFERS) || thread::is_first_thread_in_callback() {
        return 0;
    }
    emptying.empty(delivery, budget, safety, None).0
}
