// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completion queues (`fi_cq(3)`): endpoints push [`Completion`]s, programs read them. Reading an empty queue makes the
//! endpoints that are bound to it progress.
//!
//! `entries.rs` has what C calls, and the formats. A queue grows as long as nobody reads it. Grade: hot. Threads: any.
//! Tests: `entries.rs`.

mod entries;

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::domain::Domain;
use crate::endpoint::members::Members;
use crate::entry::Result;
use crate::fid::Class;
use crate::sys;
use crate::wait::{self, Wait};

pub(crate) use entries::{copy, open};

/// The end of an operation, as a program reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    /// The program's context of the operation, an address.
    pub(crate) context: usize,
    /// `FI_TAGGED | FI_RECV`, ...
    pub(crate) flags: u64,
    /// Number of bytes that were received.
    pub(crate) length: usize,
    /// Address of the received data, of a buffer for several messages; else 0.
    pub(crate) buffer: usize,
    /// Remote CQ data.
    pub(crate) data: u64,
    /// The message's tag.
    pub(crate) tag: u64,
    /// Source of a received message, in the address vector.
    pub(crate) source: sys::fi_addr_t,
}

impl Default for Completion {
    fn default() -> Self {
        let source = sys::FI_ADDR_NOTAVAIL;
        Completion { context: 0, flags: 0, length: 0, buffer: 0, data: 0, tag: 0, source }
    }
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure<'a> {
    /// `FI_E*`.
    pub(crate) error: u32,
    /// Number of bytes of the message that had no room (`olen`).
    pub(crate) excess: usize,
    /// The reason for people.
    pub(crate) text: &'a str,
}

/// An operation that failed, as it waits to be read.
struct Failed {
    /// Number of completions before it, counted as `taken` is.
    before: u64,
    completion: Completion,
    error: u32,
    excess: usize,
    /// Number of its reason (`prov_errno`).
    reason: usize,
}

#[derive(Default)]
struct Completions {
    completed: VecDeque<Completion>,
    failed: VecDeque<Failed>,
    /// Number of completions that the program has read.
    taken: u64,
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
    format: sys::fi_cq_format,
    completions: Mutex<Completions>,
    /// The endpoints that push to it.
    pub(crate) endpoints: Members,
    /// What threads sleep on until there is an entry.
    pub(crate) wait: Option<Wait>,
    signals: Signals,
    _domain: Arc<Domain>,
}

impl Class for CompletionQueue {
    type Fid = sys::fid_cq;

    const NUMBER: u32 = sys::FI_CLASS_CQ;
}

impl CompletionQueue {
    /// Makes a queue whose entries have this format.
    pub(crate) fn new(domain: Arc<Domain>, format: sys::fi_cq_format, wait: Option<Wait>) -> Self {
        let format = if format == sys::FI_CQ_FORMAT_UNSPEC { sys::FI_CQ_FORMAT_TAGGED } else { format };
        let (completions, endpoints, signals) = Default::default();
        CompletionQueue { format, completions, endpoints, wait, signals, _domain: domain }
    }

    /// Adds the completion of a successful operation.
    #[inline]
    pub(crate) fn push(&self, completion: &Completion) {
        self.completions.lock().completed.push_back(*completion);
        self.wait.iter().for_each(Wait::wake);
    }

    /// Adds the completion of an operation that failed.
    #[cold]
    pub(crate) fn push_failure(&self, completion: Completion, failure: Failure<'_>) {
        let (Failure { error, excess, text }, mut completions) = (failure, self.completions.lock());
        let before = completions.taken + completions.completed.len() as u64;
        let reasons = &mut completions.reasons;
        let known = reasons.iter().position(|known| known.to_bytes() == text.as_bytes()).unwrap_or_else(|| {
            reasons.push(CString::new(text).unwrap_or_default());
            reasons.len() - 1
        });
        completions.failed.push_back(Failed { before, completion, error, excess, reason: known + 1 });
        drop(completions);
        self.wait.iter().for_each(Wait::wake);
    }

    /// [`Self::take`] that sleeps until there is a completion or a failure, [`Self::signal`] is called, or the time-out
    /// (milliseconds) has passed.
    fn take_or_sleep(&self, count: usize, timeout: i32, mut with: impl FnMut(usize, &Completion)) -> Result<usize> {
        let wait = self.wait.as_ref().ok_or(sys::FI_EINVAL)?;
        let (deadline, signals) = (wait::deadline(timeout), self.signals.count.load(Ordering::SeqCst));
        loop {
            let armed = wait.arm(&self.endpoints);
            match self.take(count, &mut with) {
                Err(sys::FI_EAGAIN) => {}
                result => return result,
            }
            if self.signals.is_new.swap(false, Ordering::SeqCst) || self.signals.count.load(Ordering::SeqCst) != signals
            {
                return Err(sys::FI_EAGAIN);
            }
            wait.sleep(armed, deadline)?;
        }
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
        self.wait.as_ref().ok_or(sys::FI_EINVAL)?.arm(&self.endpoints);
        let completions = self.completions.lock();
        Ok(completions.completed.is_empty() && completions.failed.is_empty())
    }

    /// Takes up to `count` completions, oldest first, those behind a failure once that was read. With a `count` of 0
    /// the endpoints progress.
    #[inline]
    fn take(&self, count: usize, mut with: impl FnMut(usize, &Completion)) -> Result<usize> {
        let mut completions = self.completions.lock();
        if count == 0 || completions.completed.is_empty() && completions.failed.is_empty() {
            drop(completions);
            self.endpoints.progress();
            completions = self.completions.lock();
        }
        let mut most = count;
        if let Some(Failed { before, .. }) = completions.failed.front() {
            let before = (before - completions.taken) as usize;
            if before == 0 {
                return Err(sys::FI_EAVAIL);
            }
            most = most.min(before);
        }
        if completions.completed.is_empty() {
            return Err(sys::FI_EAGAIN);
        }
        let mut taken = 0;
        while taken < most
            && let Some(completion) = completions.completed.front()
        {
            with(taken, completion);
            completions.completed.pop_front();
            taken += 1;
        }
        completions.taken += taken as u64;
        Ok(taken)
    }

    /// Takes the oldest failure.
    fn take_failure(&self) -> Result<Failed> {
        self.completions.lock().failed.pop_front().ok_or(sys::FI_EAGAIN)
    }

    /// Calls `with` with the text of a reason.
    fn reason<T>(&self, number: i32, with: impl FnOnce(&CStr) -> T) -> T {
        let completions = self.completions.lock();
        let known = usize::try_from(number).ok().and_then(|number| completions.reasons.get(number.checked_sub(1)?));
        with(known.map_or(c"no further reason is known", CString::as_c_str))
    }
}
