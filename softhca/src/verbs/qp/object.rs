// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_qp`: queue pairs (RC, UC, UD, XRC): made, changed, queried, attached to multicast groups, destroyed. The engine
//! decides which changes of state a queue pair allows, and with which attributes. Every queue pair has room for the
//! extended interface (`qp_ex`). Grade: setup; posting is in `post`. Threads: any.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::engine::codes::qp_type;
use crate::engine::{Errno, Qp, QpInit, Result};
use crate::sys::{
    IBV_MIG_MIGRATED, IBV_QP_STATE, IBV_QPS_RESET, ibv_context, ibv_ece, ibv_gid, ibv_pd, ibv_qp, ibv_qp_attr,
    ibv_qp_ex, ibv_qp_init_attr, ibv_xrcd,
};
use crate::verbs::qp::qp_ex::Building;
use crate::verbs::{Handle, SoftCq, SoftPd, SoftSrq, SoftXrcd, Turn, adapter, events, number, pointer, set_errno};

pub(crate) type SoftQp = Handle<ibv_qp_ex, QueuePair>;

pub(crate) struct QueuePair {
    pub(crate) engine: Qp,
    pub(super) building: Turn<Building>,
    pub(crate) number: u64,
    pub(super) kind: u32,
    sq_sig_all: c_int,
}

/// `ibv_create_qp(3)`: writes the granted sizes back.
pub(crate) unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: `pd` is allocated, `init` readable and writable, the queues not destroyed (rule V).
    pointer(unsafe { create(pd, &mut *init) }.map(<*mut ibv_qp_ex>::cast))
}

/// Makes a queue pair in RESET.
/// # Safety
/// `pd` is allocated; the queues that `init` names are not destroyed.
pub(super) unsafe fn create(pd: *mut ibv_pd, init: &mut ibv_qp_init_attr) -> Result<*mut ibv_qp_ex> {
    let kind = init.qp_type;
    if !matches!(kind, qp_type::RC | qp_type::UC | qp_type::UD | qp_type::XRC_SEND) {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    // The initiating end of an XRC connection receives nothing.
    let recv_cq = if kind == qp_type::XRC_SEND { init.send_cq } else { init.recv_cq };
    if init.send_cq.is_null() || recv_cq.is_null() {
        return Err(Errno(libc::EINVAL));
    }
    let event_number = events::reserve();
    // SAFETY: the caller says that the domain, and so its context, and the queues are not destroyed.
    let (context, hca, domain, send_cq, recv_cq, srq) = unsafe {
        let srq = if init.srq.is_null() { None } else { Some(&SoftSrq::of(init.srq).engine) };
        let (send_cq, recv_cq) = (SoftCq::of(init.send_cq.cast()), SoftCq::of(recv_cq.cast()));
        ((*pd).context, adapter((*pd).context), SoftPd::of(pd), &send_cq.engine, &recv_cq.engine, srq)
    };
    let engine = hca.create_qp(&QpInit {
        kind,
        pd: &domain.engine,
        send_cq,
        recv_cq,
        srq,
        cap: init.cap,
        sq_sig_all: init.sq_sig_all != 0,
        cookie: event_number,
    })?;
    init.cap = engine.cap();
    Ok(hand_out(context, pd, init, engine, event_number))
}

/// Makes the answering end of an XRC connection, in RESET: it has no queues.
/// # Safety
/// `xrcd` is open.
pub(super) unsafe fn create_xrc_recv(xrcd: *mut ibv_xrcd, init: &mut ibv_qp_init_attr) -> Result<*mut ibv_qp_ex> {
    // SAFETY: the caller says that `xrcd` is open, and so is its context.
    let (context, hca, domain) = unsafe { ((*xrcd).context, adapter((*xrcd).context), SoftXrcd::of(xrcd)) };
    let event_number = events::reserve();
    let engine = hca.create_xrc_recv(domain, event_number)?;
    init.cap = engine.cap();
    (init.send_cq, init.recv_cq, init.srq) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    Ok(hand_out(context, ptr::null_mut(), init, engine, event_number))
}

fn hand_out(
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    init: &ibv_qp_init_attr,
    engine: Qp,
    event_number: u64,
) -> *mut ibv_qp_ex {
    let mut public = ibv_qp_ex::default();
    public.qp_base.context = context;
    public.qp_base.qp_context = init.qp_context;
    public.qp_base.pd = pd;
    public.qp_base.send_cq = init.send_cq;
    public.qp_base.recv_cq = init.recv_cq;
    public.qp_base.srq = init.srq;
    public.qp_base.handle = engine.number();
    public.qp_base.qp_num = engine.number();
    public.qp_base.state = IBV_QPS_RESET;
    public.qp_base.qp_type = init.qp_type;
    let (number, kind, sq_sig_all) = (event_number, init.qp_type, init.sq_sig_all);
    let qp = SoftQp::hand_out(public, QueuePair { engine, building: Turn::default(), number, kind, sq_sig_all });
    events::enter(number, qp);
    qp
}

/// Writes the state that a program reads in C's structure.
/// # Safety
/// `qp` is not destroyed.
unsafe fn show_state(qp: *mut ibv_qp, state: u32) {
    // SAFETY: an aligned field of the queue pair, which lives; several threads may change and query it at once.
    unsafe { AtomicU32::from_ptr(&raw mut (*qp).state) }.store(state, Ordering::Relaxed);
}

pub(crate) unsafe extern "C" fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    // SAFETY: `qp` is not destroyed, and `attr` readable (rule V).
    let (queue, attr) = unsafe { (SoftQp::of(qp.cast()), &*attr) };
    let mask = mask as u32;
    let result = queue.engine.modify(attr, mask);
    if result.is_ok() && mask & IBV_QP_STATE != 0 {
        // SAFETY: `qp` is not destroyed (rule V).
        unsafe { show_state(qp, attr.qp_state) };
    }
    number(result)
}

/// `ibv_query_qp(3)`: everything, whatever the mask asks for, as the man page allows.
pub(crate) unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: `qp` is not destroyed (rule V).
    let queue = unsafe { SoftQp::of(qp.cast()) };
    let out = ibv_qp_attr { path_mig_state: IBV_MIG_MIGRATED, ..queue.engine.query() };
    // SAFETY: `qp` is not destroyed, and both results are writable; the fields read do not change (rule V).
    unsafe {
        show_state(qp, out.qp_state);
        init.write(ibv_qp_init_attr {
            qp_context: (*qp).qp_context,
            send_cq: (*qp).send_cq,
            recv_cq: (*qp).recv_cq,
            srq: (*qp).srq,
            cap: out.cap,
            qp_type: (*qp).qp_type,
            sq_sig_all: queue.sq_sig_all,
        });
        attr.write(out);
    }
    0
}

/// `ibv_destroy_qp(3)`: waits until its events are acknowledged.
pub(crate) unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    let end = |queue: &QueuePair| queue.engine.destroy().inspect(|()| events::retire(queue.number));
    // SAFETY: `qp` is not destroyed, and given up if this succeeds; no event names it any more (rule V).
    unsafe { SoftQp::end(qp.cast(), end) }
}

/// `ibv_query_ece(3)`: the adapter has no enhanced connection establishment.
pub(crate) unsafe extern "C" fn ibv_query_ece(_qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int {
    // SAFETY: writable (rule V).
    unsafe { ece.write(ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 }) };
    set_errno(libc::EOPNOTSUPP);
    libc::EOPNOTSUPP
}

pub(crate) unsafe extern "C" fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int {
    // SAFETY: `qp` is not destroyed, and `gid` readable; both members are the same 16 bytes (rule V).
    number(unsafe { SoftQp::of(qp.cast()).engine.attach_mcast(&(*gid).raw, lid) })
}

pub(crate) unsafe extern "C" fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int {
    // SAFETY: `qp` is not destroyed, and `gid` readable; both members are the same 16 bytes (rule V).
    number(unsafe { SoftQp::of(qp.cast()).engine.detach_mcast(&(*gid).raw, lid) })
}
