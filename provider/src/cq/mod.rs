// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completion queues (`fi_cq(3)`): endpoints push [`Completion`]s, programs read them. Reading an empty queue makes the
//! endpoints that are bound to it progress.
//!
//! `entries.rs` has what C calls, and the formats, `ring.rs` the order. A queue grows as long as nobody reads it.
//! Grade: hot. Threads: any; its completions belong to the one inside the domain. Tests: below, and `entries.rs`.

mod entries;
mod ring;

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::domain::Domain;
use crate::domain::lock::{Guarded, Inside};
use crate::endpoint::members::Members;
use crate::entry::Result;
use crate::fid::Class;
use crate::sys;
use crate::wait::Wait;
use ring::Ring;

pub(crate) use entries::{copy, open};
pub(crate) use ibex::libfabric::{Completion, Failure};

/// Why an operation failed, as it waits to be read.
struct Failed {
    error: u32,
    excess: usize,
    /// Number of its reason (`prov_errno`).
    reason: usize,
}

/// How often a read that finds no completion polls again at most, if the program has read a completion since the last
/// such read.
const POLLS: u32 = 32;

#[derive(Default)]
struct Completions {
    ring: Ring,
    /// How often the last read that found no completion polled again at most.
    polls: u32,
    /// Number of completions that the program had read before that.
    taken: u64,
    /// Of the failures in the ring, in their order.
    failed: VecDeque<Failed>,
    /// Reasons of failures, each with its number as index plus one. There are as many as lost peers, and a few more.
    reasons: Vec<CString>,
}

/// Calls of `fi_cq_signal`.
#[derive(Default)]
struct Signals {
    count: AtomicU64,
    /// Whether no thread has returned because of the last one.
    is_new: AtomicBool,
}

/// A completion queue.
pub(crate) struct CompletionQueue {
    completions: Guarded<Completions>,
    /// The endpoints that push to it.
    pub(crate) endpoints: Members,
    /// What threads sleep on until there is an entry.
    pub(crate) wait: Option<Wait>,
    signals: Signals,
    pub(crate) domain: Arc<Domain>,
}

impl Class for CompletionQueue {
    type Fid = sys::fid_cq;

    const NUMBER: u32 = sys::FI_CLASS_CQ;
}

impl CompletionQueue {
    /// Makes an empty queue.
    pub(crate) fn new(domain: Arc<Domain>, wait: Option<Wait>) -> Self {
        let (completions, endpoints, signals) = Default::default();
        CompletionQueue { completions, endpoints, wait, signals, domain }
    }

    /// Returns the completions.
    #[inline(always)]
    fn completions<'a>(&'a self, _: &'a mut Inside<'_>) -> &'a mut Completions {
        // SAFETY: D1: the caller is inside, and makes no endpoint progress, which pushes, while it uses the result.
        unsafe { self.completions.get() }
    }

    /// Adds the completion of a successful operation.
    ///
    /// # Safety
    /// D1: this thread is inside the queue's domain.
    #[inline(always)]
    pub(crate) unsafe fn push(&self, completion: Completion) {
        // SAFETY: D1.
        unsafe { self.completions.get() }.ring.push(completion);
        self.wait.iter().for_each(Wait::wake);
    }

    /// Adds the completion of an operation that failed.
    ///
    /// # Safety
    /// D1: this thread is inside the queue's domain.
    #[cold]
    pub(crate) unsafe fn push_failure(&self, completion: Completion, failure: Failure<'_>) {
        let Failure { error, excess, text } = failure;
        // SAFETY: D1.
        let Completions { ring, failed, reasons, .. } = unsafe { self.completions.get() };
        let known = reasons.iter().position(|known| known.to_bytes() == text.as_bytes()).unwrap_or_else(|| {
            reasons.push(CString::new(text).unwrap_or_default());
            reasons.len() - 1
        });
        ring.push_failure(completion);
        failed.push_back(Failed { error, excess, reason: known + 1 });
        self.wait.iter().for_each(Wait::wake);
    }

    /// [`Self::take`] that sleeps until there is a completion or a failure, [`Self::signal`] is called, or the time-out
    /// (milliseconds) has passed.
    fn take_or_sleep(&self, count: usize, timeout: i32, mut with: impl FnMut(usize, &Completion)) -> Result<usize> {
        let wait = self.wait.as_ref().ok_or(sys::FI_EINVAL)?;
        let signals = self.signals.count.load(Ordering::SeqCst);
        let arm = |wait: &Wait| wait.arm_with(&self.domain, &self.endpoints);
        wait.until((timeout, sys::FI_EAGAIN), arm, || match self.take(count, &mut with) {
            Err(sys::FI_EAGAIN) => {
                let is_signalled = self.signals.is_new.swap(false, Ordering::SeqCst)
                    || self.signals.count.load(Ordering::SeqCst) != signals;
                is_signalled.then_some(Err(sys::FI_EAGAIN))
            }
            result => Some(result),
        })
    }

    /// Wakes all threads that sleep until there is an entry; if none does, the next one returns at once.
    fn signal(&self) -> Result<()> {
        let wait = self.wait.as_ref().ok_or(sys::FI_EINVAL)?;
        self.signals.is_new.store(true, Ordering::SeqCst);
        self.signals.count.fetch_add(1, Ordering::SeqCst);
        wait.wake_sleepers();
        Ok(())
    }

    /// Whether a program may sleep on the descriptor: there is nothing to read, and what comes makes it readable.
    pub(crate) fn can_sleep(&self) -> Result<bool> {
        self.wait.as_ref().ok_or(sys::FI_EINVAL)?.arm_with(&self.domain, &self.endpoints);
        Ok(self.completions(&mut self.domain.enter()).ring.is_empty())
    }

    /// Takes up to `count` completions, oldest first, those behind a failure once that was read. The endpoints progress
    /// if there is none, or with a `count` of 0.
    #[inline(always)]
    fn take(&self, count: usize, mut with: impl FnMut(usize, &Completion)) -> Result<usize> {
        let mut inside = self.domain.enter();
        if count == 0 || self.completions(&mut inside).ring.is_empty() {
            self.endpoints.progress(&mut inside);
        }
        let taken = self.take_some(&mut inside, count, &mut with);
        if taken > 0 {
            drop(inside);
            return Ok(taken);
        }
        self.take_late(inside, count, with)
    }

    #[inline(always)]
    fn take_some(&self, inside: &mut Inside<'_>, count: usize, with: &mut impl FnMut(usize, &Completion)) -> usize {
        let ring = &mut self.completions(inside).ring;
        let mut taken = 0;
        while taken < count
            && let Some(completion) = ring.take()
        {
            with(taken, completion);
            taken += 1;
        }
        taken
    }

    /// Continues [`Self::take`] when the first poll has found no completion: polls again, and takes what has come.
    /// Errors: `FI_EAGAIN` if nothing has, `FI_EAVAIL` if the oldest entry is a failure.
    #[cold]
    #[inline(never)]
    fn take_late(
        &self,
        mut inside: Inside<'_>,
        count: usize,
        mut with: impl FnMut(usize, &Completion),
    ) -> Result<usize> {
        if count > 0 && self.domain.is_serial() {
            self.poll_again(&mut inside);
        }
        let taken = self.take_some(&mut inside, count, &mut with);
        let ring = &self.completions(&mut inside).ring;
        match (taken, ring.is_empty()) {
            (0, true) => Err(sys::FI_EAGAIN),
            (0, false) if ring.has_failure() => Err(sys::FI_EAVAIL),
            _ => Ok(taken),
        }
    }

    /// Polls again until the adapter has a completion, a few times at most. MPICH yields its processor (`sched_yield`)
    /// after a read that returns nothing, and yielding takes longer than the next message of a ping-pong. Of several
    /// such reads, each polls half as often as the one before it, so a program that waits for something else soon polls
    /// once for each read.
    fn poll_again(&self, inside: &mut Inside<'_>) {
        let Completions { ring, polls, taken, .. } = self.completions(inside);
        if !ring.is_empty() {
            return;
        }
        let is_first = std::mem::replace(taken, ring.taken()) != ring.taken();
        *polls = if is_first { POLLS } else { *polls / 2 };
        let times = *polls;
        _ = (0..times).any(|_| self.endpoints.poll(inside) > 0);
    }

    /// Takes the failure whose turn it is.
    fn take_failure(&self) -> Result<(Completion, Failed)> {
        let mut inside = self.domain.enter();
        let Completions { ring, failed, .. } = self.completions(&mut inside);
        let completion = ring.take_failure().ok_or(sys::FI_EAGAIN)?;
        Ok((completion, failed.pop_front().expect("one for each failure in the ring")))
    }

    /// Calls `with` with the text of a reason.
    fn reason<T>(&self, number: i32, with: impl FnOnce(&CStr) -> T) -> T {
        let mut inside = self.domain.enter();
        let reasons = &self.completions(&mut inside).reasons;
        let known = usize::try_from(number).ok().and_then(|number| reasons.get(number.checked_sub(1)?));
        with(known.map_or(c"no further reason is known", CString::as_c_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::Fabric;

    fn queue(threading: sys::fi_threading) -> CompletionQueue {
        CompletionQueue::new(Arc::new(Domain::new(Arc::new(Fabric), threading, None)), None)
    }

    /// Reads a queue that is empty. Returns how often the read may have polled again.
    fn polls(queue: &CompletionQueue) -> u32 {
        assert_eq!(queue.take(1, |_, _| ()), Err(sys::FI_EAGAIN));
        queue.completions(&mut queue.domain.enter()).polls
    }

    fn read_one(queue: &CompletionQueue) {
        let inside = queue.domain.enter();
        // SAFETY: D1.
        unsafe { queue.push(Completion::default()) };
        drop(inside);
        assert_eq!(queue.take(1, |_, _| ()), Ok(1));
    }

    #[test]
    fn reads_in_vain_poll_again_half_as_often_each_time() {
        let queue = queue(sys::FI_THREAD_DOMAIN);
        assert_eq!(polls(&queue), 0, "nothing has come yet");
        for _ in 0..2 {
            read_one(&queue);
            assert_eq!([(); 4].map(|()| polls(&queue)), [POLLS, POLLS / 2, POLLS / 4, POLLS / 8]);
        }
        assert_eq!((0..POLLS).map(|_| polls(&queue)).last(), Some(0));
    }

    #[test]
    fn no_read_polls_again_while_another_thread_may_wait_to_enter() {
        let queue = queue(sys::FI_THREAD_SAFE);
        read_one(&queue);
        assert_eq!(polls(&queue), 0);
    }
}
