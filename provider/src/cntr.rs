// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters (`fi_cntr(3)`): numbers of operations that have ended. Reading one makes the endpoints that are bound to it
//! progress.
//!
//! Grade: hot. Threads: any. Tests: `tests/`.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::domain::Domain;
use crate::endpoint::members::Members;
use crate::entry::{call, done, table};
use crate::fid::{Class, give, head, object, only_closed, pointer};
use crate::sys;

/// A counter.
pub(crate) struct Counter {
    value: AtomicU64,
    errors: AtomicU64,
    /// The endpoints that count with it.
    pub(crate) endpoints: Members,
    _domain: Arc<Domain>,
}

impl Class for Counter {
    type Fid = sys::fid_cntr;

    const NUMBER: u32 = sys::FI_CLASS_CNTR;
}

impl Counter {
    pub(crate) fn new(domain: Arc<Domain>) -> Self {
        Counter { value: AtomicU64::new(0), errors: AtomicU64::new(0), endpoints: Members::default(), _domain: domain }
    }

    /// Counts an operation that has ended.
    #[inline]
    pub(crate) fn count(&self, has_failed: bool) {
        let field = if has_failed { &self.errors } else { &self.value };
        field.fetch_add(1, Ordering::Release);
    }
}

static OPERATIONS: sys::fi_ops = only_closed::<Counter>();

static FUNCTIONS: sys::fi_ops_cntr = table!(fi_ops_cntr {
    read: read, readerr: readerr, add: add, set: set, adderr: adderr, seterr: seterr;
    absent: wait,
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
        if !matches!(attributes.wait_obj, sys::FI_WAIT_NONE | sys::FI_WAIT_UNSPEC)
            || attributes.events != sys::FI_CNTR_EVENTS_COMP
        {
            return Err(sys::FI_ENOSYS);
        }
        if attributes.flags != 0 {
            return Err(sys::FI_EBADFLAGS);
        }
        let counter = Arc::new(Counter::new(Arc::clone(domain)));
        let fid = head::<Counter>(context, &OPERATIONS);
        // SAFETY: F2.
        unsafe { give(sys::fid_cntr { fid, ops: pointer(&FUNCTIONS) }, counter, place) }
    })
}

// Counters carry no other memory: what an operation has written is ordered by its endpoint's lock.

/// `fi_cntr_read`.
unsafe extern "C" fn read(counter: *mut sys::fid_cntr) -> u64 {
    call("fi_cntr_read", || {
        // SAFETY: F1.
        let counter = unsafe { object::<Counter>(counter) };
        counter.endpoints.progress();
        Ok(counter.value.load(Ordering::Acquire))
    })
}

/// `fi_cntr_readerr`.
unsafe extern "C" fn readerr(counter: *mut sys::fid_cntr) -> u64 {
    // SAFETY: F1.
    call("fi_cntr_readerr", || Ok(unsafe { object::<Counter>(counter) }.errors.load(Ordering::Acquire)))
}

macro_rules! changes {
    ($($name:ident: $what:literal, $field:ident.$change:ident;)*) => { $(
        unsafe extern "C" fn $name(counter: *mut sys::fid_cntr, value: u64) -> c_int {
            done($what, || {
                // SAFETY: F1.
                let _ = unsafe { object::<Counter>(counter) }.$field.$change(value, Ordering::AcqRel);
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
