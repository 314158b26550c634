// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters (`fi_cntr(3)`): numbers of operations that have ended, or of peers' accesses to memory regions. Reading one
//! makes the endpoints that are bound to it progress, and those that hear of accesses to a region that is.
//!
//! Grade: hot. Threads: any. Tests: `tests/`.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::domain::Domain;
use crate::domain::targets::Targets;
use crate::endpoint::members::Members;
use crate::entry::{Result, call, done, table};
use crate::fid::{self, Class, give, head, object, pointer};
use crate::sys;
use crate::wait::Wait;

/// A counter.
pub(crate) struct Counter {
    value: AtomicU64,
    errors: AtomicU64,
    /// The endpoints that count with it.
    pub(crate) endpoints: Members,
    /// Whether memory regions count, or have counted, with it.
    is_of_regions: AtomicBool,
    /// What threads sleep on until it changes.
    pub(crate) wait: Option<Wait>,
    /// Sum of both numbers when the program last read one.
    seen: AtomicU64,
    pub(crate) domain: Arc<Domain>,
}

impl Class for Counter {
    type Fid = sys::fid_cntr;

    const NUMBER: u32 = sys::FI_CLASS_CNTR;
}

impl Counter {
    pub(crate) fn new(domain: Arc<Domain>, wait: Option<Wait>) -> Self {
        let (value, errors, seen, endpoints, is_of_regions) = Default::default();
        Counter { value, errors, endpoints, is_of_regions, wait, seen, domain }
    }

    /// Prepares it to count accesses to a region, of which the domain's `targets` hear.
    pub(crate) fn count_with(&self, targets: &Targets) -> Result<()> {
        self.wait.iter().try_for_each(|wait| wait.add(targets.channels()))?;
        self.is_of_regions.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The endpoints that hear of accesses which it counts.
    fn targets(&self) -> Option<&Members> {
        let targets = self.domain.targets.as_ref().filter(|_| self.is_of_regions.load(Ordering::Relaxed));
        targets.map(|targets| &targets.endpoints)
    }

    /// Makes the endpoints progress, and lets what comes later wake this thread ([`Wait::arm_with`]).
    fn arm(&self, wait: &Wait) -> u64 {
        let wake_ups = wait.arm_with(&self.domain, &self.endpoints);
        self.targets().into_iter().for_each(|targets| targets.arm(&mut self.domain.enter()));
        wake_ups
    }

    /// Counts an operation that has ended.
    #[inline]
    pub(crate) fn count(&self, has_failed: bool) {
        let field = if has_failed { &self.errors } else { &self.value };
        field.fetch_add(1, Ordering::Release);
        self.wait.iter().for_each(Wait::wake);
    }

    /// Returns the successes or errors after the endpoints have progressed.
    fn read(&self, field: &AtomicU64) -> u64 {
        let mut inside = self.domain.enter();
        self.endpoints.progress(&mut inside);
        self.targets().into_iter().for_each(|targets| targets.progress(&mut inside));
        drop(inside);
        self.seen.store(self.sum(), Ordering::Relaxed);
        field.load(Ordering::Acquire)
    }

    fn sum(&self) -> u64 {
        self.value.load(Ordering::Acquire).wrapping_add(self.errors.load(Ordering::Acquire))
    }

    /// Sleeps until the counter has reached a threshold.
    fn wait_for(&self, threshold: u64, timeout: i32) -> Result<()> {
        let wait = self.wait.as_ref().ok_or(sys::FI_EINVAL)?;
        let errors = self.errors.load(Ordering::Acquire);
        let arm = |wait: &Wait| self.arm(wait);
        wait.until((timeout, sys::FI_ETIMEDOUT), arm, || {
            if self.value.load(Ordering::Acquire) >= threshold {
                return Some(Ok(()));
            }
            (self.errors.load(Ordering::Acquire) != errors).then_some(Err(sys::FI_EAVAIL))
        })
    }

    /// Whether a program may sleep on the descriptor: it has read the counter as it is.
    pub(crate) fn can_sleep(&self) -> Result<bool> {
        self.arm(self.wait.as_ref().ok_or(sys::FI_EINVAL)?);
        Ok(self.sum() == self.seen.load(Ordering::Relaxed))
    }
}

static OPERATIONS: sys::fi_ops = table!(fi_ops {
    close: fid::close::<Counter>, control: control;
    absent: bind, ops_open, tostr, ops_set,
});

static FUNCTIONS: sys::fi_ops_cntr = table!(fi_ops_cntr {
    read: read, readerr: readerr, add: add, set: set, adderr: adderr, seterr: seterr, wait: wait_for;
    absent:
});

/// `fi_cntr_open`.
///
/// # Safety
/// F1, F2.
pub(crate) unsafe extern "C" fn open(
    domain: *mut sys::fid_domain,
    attributes: *mut sys::fi_cntr_attr,
    place: *mut *mut sys::fid_cntr,
    context: *mut c_void,
) -> c_int {
    done("fi_cntr_open", || {
        // SAFETY: F1, F2.
        let (domain, attributes) = unsafe { (object::<Domain>(domain), attributes.as_ref()) };
        let attributes = attributes.copied().unwrap_or_default();
        if attributes.events != sys::FI_CNTR_EVENTS_COMP {
            return Err(sys::FI_ENOSYS);
        }
        if attributes.flags != 0 {
            return Err(sys::FI_EBADFLAGS);
        }
        let counter = Arc::new(Counter::new(Arc::clone(domain), Wait::of(attributes.wait_obj)?));
        let fid = head::<Counter>(context, &OPERATIONS);
        // SAFETY: F2.
        unsafe { give(sys::fid_cntr { fid, ops: pointer(&FUNCTIONS) }, counter, place) }
    })
}

// Counters carry no other memory: what an operation has written is ordered by its endpoint's lock.

/// `fi_control`: the wait object.
unsafe extern "C" fn control(counter: *mut sys::fid, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: F1, F2.
    done("fi_control", || unsafe { Wait::control(object::<Counter>(counter).wait.as_ref(), command, argument) })
}

/// `fi_cntr_read`.
unsafe extern "C" fn read(counter: *mut sys::fid_cntr) -> u64 {
    call("fi_cntr_read", || {
        // SAFETY: F1.
        let counter = unsafe { object::<Counter>(counter) };
        Ok(counter.read(&counter.value))
    })
}

/// `fi_cntr_readerr`.
unsafe extern "C" fn readerr(counter: *mut sys::fid_cntr) -> u64 {
    call("fi_cntr_readerr", || {
        // SAFETY: F1.
        let counter = unsafe { object::<Counter>(counter) };
        Ok(counter.read(&counter.errors))
    })
}

/// `fi_cntr_wait`.
unsafe extern "C" fn wait_for(counter: *mut sys::fid_cntr, threshold: u64, timeout: c_int) -> c_int {
    // SAFETY: F1.
    done("fi_cntr_wait", || unsafe { object::<Counter>(counter) }.wait_for(threshold, timeout))
}

macro_rules! changes {
    ($($name:ident: $what:literal, $field:ident.$change:ident;)*) => { $(
        unsafe extern "C" fn $name(counter: *mut sys::fid_cntr, value: u64) -> c_int {
            done($what, || {
                // SAFETY: F1.
                let counter = unsafe { object::<Counter>(counter) };
                let _ = counter.$field.$change(value, Ordering::AcqRel);
                counter.wait.iter().for_each(Wait::wake);
                Ok(())
            })
        }
    )* };
}

changes! {
    add: "fi_cntr_add", value.fetch_add;
    set: "fi_cntr_set", value.swap;
    adderr: "fi_cntr_adderr", errors.fetch_add;
    seterr: "fi_cntr_seterr", errors.swap;
}
