// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fabrics (`fi_fabric(3)`): what domains and event queues belong to. There is one by name, and a program may open it
//! several times. Grade: setup. Threads: any. Tests: `tests/`.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::cntr::Counter;
use crate::cq::CompletionQueue;
use crate::entry::{Result, done, table};
use crate::eq::EventQueue;
use crate::fid::{Class, give, head, object_if, only_closed, pointer};
use crate::{domain, eq, sys};

/// A fabric.
pub(crate) struct Fabric;

impl Class for Fabric {
    type Fid = sys::fid_fabric;

    const NUMBER: u32 = sys::FI_CLASS_FABRIC;
}

static OPERATIONS: sys::fi_ops = only_closed::<Fabric>();

static FUNCTIONS: sys::fi_ops_fabric = table!(fi_ops_fabric {
    domain: domain::open, eq_open: eq::open, trywait: trywait;
    absent: passive_ep, wait_open, domain2,
});

/// `fi_fabric`: the function of the provider by which libfabric opens a fabric.
///
/// # Safety
/// F2.
pub(crate) unsafe extern "C" fn open(
    attributes: *mut sys::fi_fabric_attr,
    place: *mut *mut sys::fid_fabric,
    context: *mut c_void,
) -> c_int {
    done("fi_fabric", || {
        // SAFETY: F2.
        let attributes = unsafe { attributes.as_ref() }.ok_or(sys::FI_EINVAL)?;
        let fid = head::<Fabric>(context, &OPERATIONS);
        let fid = sys::fid_fabric { fid, ops: pointer(&FUNCTIONS), api_version: attributes.api_version };
        // SAFETY: F2.
        unsafe { give(fid, Arc::new(Fabric), place) }
    })
}

/// `fi_trywait`: whether a program may sleep on the descriptors of these queues and counters.
unsafe extern "C" fn trywait(_: *mut sys::fid_fabric, objects: *mut *mut sys::fid, count: c_int) -> c_int {
    done("fi_trywait", || {
        if objects.is_null() {
            return Err(sys::FI_EINVAL);
        }
        let can_sleep = (0..usize::try_from(count).unwrap_or(0)).map(|index| {
            // SAFETY: F2: there are `count` fids; F1 for each.
            unsafe {
                let object = objects.add(index).read();
                if let Some(queue) = object_if::<CompletionQueue>(object) {
                    queue.can_sleep()
                } else if let Some(counter) = object_if::<Counter>(object) {
                    counter.can_sleep()
                } else {
                    object_if::<EventQueue>(object).ok_or(sys::FI_EINVAL)?.can_sleep()
                }
            }
        });
        let all: Vec<bool> = can_sleep.collect::<Result<_>>()?;
        if all.contains(&false) { Err(sys::FI_EAGAIN) } else { Ok(()) }
    })
}
