// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_srq`: shared receive queues of the basic kind (those of XRC and of tag matching are not emulated).
//! Grade: setup; posting to one is in `post`. Threads: any.

use std::ffi::c_int;

use super::context::SoftContext;
use super::error::{number, pointer};
use super::pd::SoftPd;
use super::registry;
use crate::engine::{Errno, Result, Srq};
use crate::sys::{
    IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_RESERVED, IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR,
    IBV_SRQT_BASIC, ibv_context, ibv_pd, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex,
};

/// A shared receive queue as programs hold it.
#[repr(C)]
pub(crate) struct SoftSrq {
    public: ibv_srq,
    engine: Srq,
    number: u64,
}

impl SoftSrq {
    /// The queue behind a program's pointer.
    ///
    /// # Safety
    /// `srq` is a shared receive queue of this library, not destroyed.
    #[inline]
    pub(crate) unsafe fn of<'a>(srq: *mut ibv_srq) -> &'a SoftSrq {
        // SAFETY: every ibv_srq this library gives out is the first field of a SoftSrq, which nobody writes.
        unsafe { &*srq.cast::<SoftSrq>() }
    }

    /// The engine's object.
    pub(crate) fn engine(&self) -> &Srq {
        &self.engine
    }

    /// By which events name it.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

/// `ibv_create_srq(3)`: writes the granted sizes back.
///
/// # Safety
/// `pd` is allocated; `init` is readable and writable.
pub(crate) unsafe extern "C" fn ibv_create_srq(pd: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    // SAFETY: by the caller's word.
    pointer(unsafe { create(pd, (*init).srq_context, &mut (*init).attr) })
}

unsafe fn create(pd: *mut ibv_pd, user: *mut std::ffi::c_void, attr: &mut ibv_srq_attr) -> Result<*mut ibv_srq> {
    // SAFETY: by the caller's word; a domain keeps its context.
    let (domain, context) = unsafe { (SoftPd::of(pd), SoftPd::of(pd).context()) };
    // SAFETY: as above.
    let hca = unsafe { SoftContext::of(context) }.hca();
    let event_number = registry::reserve();
    let engine = hca.create_srq(domain.engine(), attr.max_wr, attr.max_sge, 0, event_number)?;
    (attr.max_wr, attr.max_sge, _) = engine.query();
    // SAFETY: ibv_srq is integers, pointers, a mutex and a condition that are zero at rest.
    let mut public: ibv_srq = unsafe { std::mem::zeroed() };
    public.context = context;
    public.srq_context = user;
    public.pd = pd;
    public.handle = engine.number();
    let srq = Box::into_raw(Box::new(SoftSrq { public, engine, number: event_number }));
    registry::enter(event_number, srq);
    Ok(srq.cast())
}

/// `ibv_create_srq_ex(3)` for what the inline function does not itself turn into [`ibv_create_srq`].
///
/// # Safety
/// `context` is open; `init` is readable and writable.
pub(crate) unsafe extern "C" fn create_srq_ex(
    _context: *mut ibv_context,
    init: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: by the caller's word.
    let init = unsafe { &mut *init };
    let mask = init.comp_mask;
    let basic = mask & IBV_SRQ_INIT_ATTR_TYPE == 0 || init.srq_type == IBV_SRQT_BASIC;
    let result = if mask >= IBV_SRQ_INIT_ATTR_RESERVED || mask & IBV_SRQ_INIT_ATTR_PD == 0 {
        Err(Errno(libc::EINVAL))
    } else if !basic {
        Err(Errno(libc::EOPNOTSUPP))
    } else {
        // SAFETY: the mask says that there is a domain.
        unsafe { create(init.pd, init.srq_context, &mut init.attr) }
    };
    pointer(result)
}

/// `ibv_get_srq_num(3)`.
///
/// # Safety
/// `srq` is not destroyed; `out` is writable.
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, out: *mut u32) -> c_int {
    // SAFETY: by the caller's word.
    unsafe { out.write(SoftSrq::of(srq).engine.number()) };
    0
}

/// `ibv_modify_srq(3)`: the limit. A queue cannot change its size, as the device's capabilities say.
///
/// # Safety
/// `srq` is not destroyed; `attr` is readable.
pub(crate) unsafe extern "C" fn ibv_modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int {
    let mask = mask as u32;
    if mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) != 0 {
        return number(Err(Errno(libc::EINVAL)));
    }
    if mask & IBV_SRQ_MAX_WR != 0 {
        return number(Err(Errno(libc::EOPNOTSUPP)));
    }
    if mask & IBV_SRQ_LIMIT == 0 {
        return 0;
    }
    // SAFETY: by the caller's word.
    number(unsafe { SoftSrq::of(srq).engine.set_limit((*attr).srq_limit) })
}

/// `ibv_query_srq(3)`.
///
/// # Safety
/// `srq` is not destroyed; `attr` is writable.
pub(crate) unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    // SAFETY: by the caller's word.
    let (max_wr, max_sge, srq_limit) = unsafe { SoftSrq::of(srq) }.engine.query();
    // SAFETY: writable by the caller's word.
    unsafe { attr.write(ibv_srq_attr { max_wr, max_sge, srq_limit }) };
    0
}

/// `ibv_destroy_srq(3)`: EBUSY while a queue pair uses it; waits until its events are acknowledged.
///
/// # Safety
/// `srq` is not destroyed, and given up if this succeeds.
pub(crate) unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    // SAFETY: by the caller's word.
    let queue = unsafe { SoftSrq::of(srq) };
    let result = queue.engine.destroy();
    if result.is_ok() {
        registry::retire(queue.number);
        // SAFETY: made by Box in `create`; the caller gives it up, and no event names it any more.
        drop(unsafe { Box::from_raw(srq.cast::<SoftSrq>()) });
    }
    number(result)
}
