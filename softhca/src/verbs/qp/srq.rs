// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_srq`: shared receive queues, plain and of XRC (those of tag matching are not emulated).
//! Grade: setup; posting to one is in `post`. Threads: any.

use std::ffi::{c_int, c_void};

use super::xrcd::SoftXrcd;
use crate::engine::{Errno, Result, Srq};
use crate::sys::{
    IBV_SRQ_INIT_ATTR_CQ, IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_RESERVED, IBV_SRQ_INIT_ATTR_TYPE,
    IBV_SRQ_INIT_ATTR_XRCD, IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR, IBV_SRQT_BASIC, IBV_SRQT_XRC, ibv_context, ibv_pd, ibv_srq,
    ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex,
};
use crate::verbs::context::SoftContext;
use crate::verbs::cq::object::SoftCq;
use crate::verbs::error::{number, pointer};
use crate::verbs::handle::Handle;
use crate::verbs::pd::SoftPd;
use crate::verbs::registry;

/// A shared receive queue as programs hold it.
pub(crate) type SoftSrq = Handle<ibv_srq, SharedQueue>;

/// What is behind it.
pub(crate) struct SharedQueue {
    pub(crate) engine: Srq,
    /// By which events name it.
    pub(crate) number: u64,
}

/// `ibv_create_srq(3)`: writes the granted sizes back.
///
/// # Safety
/// `pd` is allocated; `init` is readable and writable.
pub(crate) unsafe extern "C" fn ibv_create_srq(pd: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    // SAFETY: the caller says that `pd` is allocated, and `init` readable and writable.
    pointer(unsafe { create(pd, (*init).srq_context, &mut (*init).attr) })
}

unsafe fn create(pd: *mut ibv_pd, user: *mut c_void, attr: &mut ibv_srq_attr) -> Result<*mut ibv_srq> {
    // SAFETY: `pd` is allocated, as the callers of `ibv_create_srq` and `create_srq_ex` say, and so its context open.
    let (domain, hca) = unsafe { (SoftPd::of(pd), SoftContext::of((*pd).context).hca()) };
    let event_number = registry::reserve();
    let engine = hca.create_srq(&domain.engine, attr.max_wr, attr.max_sge, 0, event_number)?;
    Ok(hand_out(pd, user, attr, engine, event_number))
}

/// A queue that XRC connections reach.
unsafe fn create_xrc(init: &mut ibv_srq_init_attr_ex) -> Result<*mut ibv_srq> {
    if init.xrcd.is_null() || init.cq.is_null() {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: what the attributes name lives, as the caller of `create_srq_ex` says; so does the domain's context.
    let (pd, hca, xrcd, cq) = unsafe {
        let hca = SoftContext::of((*init.pd).context).hca();
        (SoftPd::of(init.pd), hca, SoftXrcd::of(init.xrcd), &SoftCq::of(init.cq.cast()).engine)
    };
    let event_number = registry::reserve();
    let engine = hca.create_xrc_srq(&pd.engine, xrcd, cq, init.attr.max_wr, init.attr.max_sge, event_number)?;
    Ok(hand_out(init.pd, init.srq_context, &mut init.attr, engine, event_number))
}

fn hand_out(pd: *mut ibv_pd, user: *mut c_void, attr: &mut ibv_srq_attr, engine: Srq, number: u64) -> *mut ibv_srq {
    (attr.max_wr, attr.max_sge, _) = engine.query();
    let public = ibv_srq {
        // SAFETY: both callers made the queue in this domain.
        context: unsafe { (*pd).context },
        srq_context: user,
        pd,
        handle: engine.number(),
        ..ibv_srq::default()
    };
    let srq = SoftSrq::hand_out(public, SharedQueue { engine, number });
    registry::enter(number, srq);
    srq
}

/// `ibv_create_srq_ex(3)` for what the inline function does not itself turn into [`ibv_create_srq`].
///
/// # Safety
/// `context` is open; `init` is readable and writable, and what it names is not destroyed.
pub(crate) unsafe extern "C" fn create_srq_ex(
    _context: *mut ibv_context,
    init: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: the caller says that `init` is readable and writable.
    let init = unsafe { &mut *init };
    let mask = init.comp_mask;
    let kind = if mask & IBV_SRQ_INIT_ATTR_TYPE == 0 { IBV_SRQT_BASIC } else { init.srq_type };
    let for_xrc = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    let result = if mask >= IBV_SRQ_INIT_ATTR_RESERVED || mask & IBV_SRQ_INIT_ATTR_PD == 0 {
        Err(Errno(libc::EINVAL))
    } else if kind == IBV_SRQT_BASIC {
        // SAFETY: the mask says that there is a domain.
        unsafe { create(init.pd, init.srq_context, &mut init.attr) }
    } else if kind != IBV_SRQT_XRC {
        Err(Errno(libc::EOPNOTSUPP))
    } else if mask & for_xrc != for_xrc {
        Err(Errno(libc::EINVAL))
    } else {
        // SAFETY: the mask says what is there; null is looked for.
        unsafe { create_xrc(init) }
    };
    pointer(result)
}

/// `ibv_get_srq_num(3)`.
///
/// # Safety
/// `srq` is not destroyed; `out` is writable.
pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, out: *mut u32) -> c_int {
    // SAFETY: the caller says that `srq` is not destroyed, and `out` writable.
    unsafe { out.write(SoftSrq::of(srq).engine.number()) };
    0
}

/// `ibv_modify_srq(3)`: the size, then the limit.
///
/// # Safety
/// `srq` is not destroyed; `attr` is readable.
pub(crate) unsafe extern "C" fn ibv_modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int {
    // SAFETY: the caller says that `srq` is not destroyed, and `attr` readable.
    let (queue, attr) = unsafe { (&SoftSrq::of(srq).engine, &*attr) };
    let mask = mask as u32;
    number(if mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) != 0 {
        Err(Errno(libc::EINVAL))
    } else {
        let resized = if mask & IBV_SRQ_MAX_WR != 0 { queue.resize(attr.max_wr) } else { Ok(()) };
        resized.and_then(|()| if mask & IBV_SRQ_LIMIT != 0 { queue.set_limit(attr.srq_limit) } else { Ok(()) })
    })
}

/// `ibv_query_srq(3)`.
///
/// # Safety
/// `srq` is not destroyed; `attr` is writable.
pub(crate) unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    // SAFETY: the caller says that `srq` is not destroyed.
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
    let end = |queue: &SharedQueue| queue.engine.destroy().inspect(|()| registry::retire(queue.number));
    // SAFETY: the caller says that `srq` is not destroyed, and given up if this succeeds; no event names it any more.
    unsafe { SoftSrq::end(srq, end) }
}
