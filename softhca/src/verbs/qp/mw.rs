// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_mw`: memory windows: `ibv_alloc_mw(3)`, `ibv_bind_mw(3)`, and what a work request says of binding one.
//! Grade: setup; `binding` is pending. Threads: any, but one at a time binds a window.

use std::ffi::c_int;

use super::object::SoftQp;
use crate::engine::codes::wr_opcode;
use crate::engine::{Mw, SendWr};
use crate::sys::{ibv_mw, ibv_mw_bind, ibv_mw_bind_info, ibv_mw_type, ibv_pd, ibv_qp};
use crate::verbs::error::{number, pointer};
use crate::verbs::handle::Handle;
use crate::verbs::pd::SoftPd;

/// A window as programs hold it; its key changes when it is bound.
type SoftMw = Handle<ibv_mw, Mw>;

/// `ibv_alloc_mw(3)`.
///
/// # Safety
/// `pd` is allocated.
pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    // SAFETY: the caller says that `pd` is allocated.
    let (context, domain) = unsafe { ((*pd).context, SoftPd::of(pd)) };
    pointer(domain.engine.alloc_mw(kind).map(|engine| {
        let rkey = engine.rkey();
        SoftMw::hand_out(ibv_mw { context, pd, rkey, handle: rkey, type_: kind }, engine)
    }))
}

/// `ibv_dealloc_mw(3)`.
///
/// # Safety
/// `mw` is a window of this library, and given up.
pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: the caller says that `mw` is a window, and given up.
    unsafe { SoftMw::end(mw, Mw::destroy) }
}

/// `ibv_bind_mw(3)`, for windows of type 1 as the inline function has checked: posts the request, and says the new key.
///
/// # Safety
/// `qp` and `mw` are not destroyed; `bind` is readable, and its region registered.
pub(crate) unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
    // SAFETY: the caller says that `qp` is not destroyed, and `bind` readable.
    let (queue, bind) = unsafe { (&SoftQp::of(qp.cast()).engine, &*bind) };
    // SAFETY: the caller says that `mw` is not destroyed; the low 8 bits count the bindings.
    let key = unsafe { ((*mw).rkey & !0xff) | ((*mw).rkey.wrapping_add(1) & 0xff) };
    let flags = bind.send_flags;
    // SAFETY: the caller says that `mw` is not destroyed, and the region registered.
    let wr = SendWr { wr_id: bind.wr_id, flags, ..unsafe { binding(mw, key, &bind.bind_info) } };
    number(queue.post_send(&wr).map(|()| {
        // SAFETY: the window is the caller's alone while it binds it.
        unsafe { (*mw).rkey = key };
    }))
}

/// The request that binds `mw` and gives it the key `rkey`.
///
/// # Safety
/// `mw` is not deallocated; the region that `info` names is null or registered.
pub(super) unsafe fn binding(mw: *mut ibv_mw, rkey: u32, info: &ibv_mw_bind_info) -> SendWr<'static> {
    // SAFETY: the caller says that `mw` is not deallocated, and the region null or registered.
    let (window, region) = unsafe { ((*mw).rkey, if info.mr.is_null() { 0 } else { (*info.mr).lkey }) };
    SendWr {
        opcode: wr_opcode::BIND_MW,
        imm: window,
        rkey,
        remote_addr: info.addr,
        compare_add: info.length,
        swap: u64::from(region) | (u64::from(info.mw_access_flags) << 32),
        ..SendWr::empty()
    }
}
