// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_pd`, and its two relatives that only pass a program's promises to the adapter: thread domains, which change
//! nothing here, and parent domains, which are the protection domain they name. Grade: setup. Threads: any.

use std::ffi::c_int;
use std::sync::Arc;

use crate::engine::{Errno, Pd, Result};
use crate::sys::{ibv_context, ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr};
use crate::verbs::{Handle, adapter, pointer};

pub(crate) type SoftPd = Handle<ibv_pd, Domain>;

pub(crate) struct Domain {
    /// Shared by a protection domain and the parent domains made of it.
    pub(crate) engine: Arc<Pd>,
    /// Whether this is a parent domain: the protection domain stays when it is deallocated.
    parent: bool,
}

pub(crate) unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: `context` is open (rule V).
    let pd = unsafe { adapter(context) }.alloc_pd();
    SoftPd::hand_out(ibv_pd { context, handle: 0 }, Domain { engine: Arc::new(pd), parent: false })
}

/// `ibv_dealloc_pd(3)`: EBUSY while memory, queues or parent domains use it.
pub(crate) unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    let end = |domain: &Domain| match (domain.parent, Arc::strong_count(&domain.engine)) {
        (true, _) => Ok(()),
        (false, 1) => domain.engine.destroy(),
        (false, _) => Err(Errno(libc::EBUSY)),
    };
    // SAFETY: `pd` is allocated, and given up if this succeeds (rule V).
    unsafe { SoftPd::end(pd, end) }
}

pub(crate) unsafe extern "C" fn alloc_td(context: *mut ibv_context, attr: *mut ibv_td_init_attr) -> *mut ibv_td {
    // SAFETY: `attr` is readable (rule V).
    if unsafe { (*attr).comp_mask } != 0 {
        return pointer(Err(Errno(libc::EINVAL)));
    }
    Box::into_raw(Box::new(ibv_td { context }))
}

pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: made by Box in `alloc_td`; the caller gives it up.
    drop(unsafe { Box::from_raw(td) });
    0
}

/// `ibv_alloc_parent_domain(3)`. Allocators are not asked: the adapter keeps its queues in the fabric's memory.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    // SAFETY: `attr` is readable (rule V).
    let attr = unsafe { &*attr };
    let known = crate::sys::IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | crate::sys::IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    let result: Result<*mut ibv_pd> = if attr.pd.is_null() || attr.comp_mask & !known != 0 {
        Err(Errno(libc::EINVAL))
    } else {
        // SAFETY: not null; it is allocated (rule V).
        let engine = unsafe { SoftPd::of(attr.pd) }.engine.clone();
        Ok(SoftPd::hand_out(ibv_pd { context, handle: 0 }, Domain { engine, parent: true }))
    };
    pointer(result)
}
