// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory regions (`fi_mr(3)`). No operation needs one (`mr_mode` 0, and there is no remote memory access yet), so a
//! region only has its key.
//!
//! Grade: setup. Threads: any. Tests: `tests/`.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::domain::Domain;
use crate::entry::{Result, done, table};
use crate::fid::{self, Class, give, head, object};
use crate::sys;

/// A memory region.
pub(crate) struct MemoryRegion {
    _domain: Arc<Domain>,
}

impl Class for MemoryRegion {
    type Fid = sys::fid_mr;

    const NUMBER: u32 = sys::FI_CLASS_MR;
}

static OPERATIONS: sys::fi_ops = fid::only_closed::<MemoryRegion>();

/// The functions of a domain that register memory.
pub(crate) static FUNCTIONS: sys::fi_ops_mr = table!(fi_ops_mr { reg: reg, regv: regv, regattr: regattr; absent: });

/// # Safety
/// F1, F2.
unsafe fn register(domain: *mut sys::fid, key: u64, place: *mut *mut sys::fid_mr, context: *mut c_void) -> Result<()> {
    // SAFETY: F1.
    let region = MemoryRegion { _domain: Arc::clone(unsafe { object::<Domain>(domain) }) };
    let fid = head::<MemoryRegion>(context, &OPERATIONS);
    // SAFETY: F2.
    unsafe { give(sys::fid_mr { fid, mem_desc: std::ptr::null_mut(), key }, Arc::new(region), place) }
}

/// `fi_mr_reg`.
unsafe extern "C" fn reg(
    domain: *mut sys::fid,
    _: *const c_void,
    _: usize,
    _: u64,
    _: u64,
    key: u64,
    _: u64,
    place: *mut *mut sys::fid_mr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: F1, F2.
    done("fi_mr_reg", || unsafe { register(domain, key, place, context) })
}

/// `fi_mr_regv`.
unsafe extern "C" fn regv(
    domain: *mut sys::fid,
    _: *const sys::iovec,
    _: usize,
    _: u64,
    _: u64,
    key: u64,
    _: u64,
    place: *mut *mut sys::fid_mr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: F1, F2.
    done("fi_mr_regv", || unsafe { register(domain, key, place, context) })
}

/// `fi_mr_regattr`.
unsafe extern "C" fn regattr(
    domain: *mut sys::fid,
    attributes: *const sys::fi_mr_attr,
    _: u64,
    place: *mut *mut sys::fid_mr,
) -> c_int {
    done("fi_mr_regattr", || {
        // SAFETY: F2.
        let attributes = unsafe { attributes.as_ref() }.ok_or(sys::FI_EINVAL)?;
        // SAFETY: F1, F2.
        unsafe { register(domain, attributes.requested_key, place, attributes.context) }
    })
}
