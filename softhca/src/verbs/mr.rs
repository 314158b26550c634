// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_mr` and `ibv_mw`: registered memory and memory windows: `ibv_alloc_mw(3)`, `ibv_bind_mw(3)`, and the work
//! request that binds one. The engine has the keys and their rights. Grade: setup; `binding` is pending. Threads: any;
//! a program must not re-register a region while it uses it, nor bind a window in two threads.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::engine::codes::wr_opcode;
use crate::engine::{Mr, Mw, SendWr};
use crate::sys::{
    IBV_REREG_MR_CHANGE_ACCESS, IBV_REREG_MR_CHANGE_PD, IBV_REREG_MR_CHANGE_TRANSLATION, IBV_REREG_MR_ERR_INPUT,
    IBV_REREG_MR_FLAGS_SUPPORTED, ibv_mr, ibv_mw, ibv_mw_bind, ibv_mw_bind_info, ibv_mw_type, ibv_pd, ibv_qp,
};
use crate::verbs::{Handle, SoftPd, SoftQp, fork, number, pointer, set_errno};

type SoftMr = Handle<ibv_mr, (Mr, AtomicU32)>;

/// `ibv_reg_mr_iova2`: the function that `ibv_reg_mr(3)` calls if the compiler does not know the flags.
pub(crate) unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: `pd` is allocated (rule V).
    let (context, domain) = unsafe { ((*pd).context, SoftPd::of(pd)) };
    pointer(domain.engine.reg_mr(addr as u64, length as u64, iova, access).map(|engine| {
        fork::memory_was_registered();
        let key = engine.key();
        let public = ibv_mr { context, pd, addr, length, handle: key, lkey: key, rkey: key };
        SoftMr::hand_out(public, (engine, AtomicU32::new(access)))
    }))
}

pub(crate) unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: `pd` is allocated (rule V).
    unsafe { ibv_reg_mr_iova2(pd, addr, length, iova, access as c_uint) }
}

pub(crate) unsafe extern "C" fn ibv_reg_mr(pd: *mut ibv_pd, at: *mut c_void, len: usize, access: c_int) -> *mut ibv_mr {
    // SAFETY: `pd` is allocated (rule V).
    unsafe { ibv_reg_mr_iova2(pd, at, len, at as u64, access as c_uint) }
}

/// `ibv_rereg_mr(3)`: the keys stay. On failure the region is as before.
pub(crate) unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let flags = flags as c_uint;
    let has = |flag: c_uint| flags & flag != 0;
    if flags & !IBV_REREG_MR_FLAGS_SUPPORTED != 0
        || flags == 0
        || (has(IBV_REREG_MR_CHANGE_TRANSLATION) && (length == 0 || addr.is_null()))
        || (has(IBV_REREG_MR_CHANGE_ACCESS) && access < 0)
    {
        set_errno(libc::EINVAL);
        return IBV_REREG_MR_ERR_INPUT as c_int;
    }
    // SAFETY: `mr` is registered; nobody else uses it meanwhile (rule V).
    let (old, (engine, rights)) = unsafe { (*mr, SoftMr::of(mr)) };
    let pd = if has(IBV_REREG_MR_CHANGE_PD) { pd } else { old.pd };
    let (addr, length) = if has(IBV_REREG_MR_CHANGE_TRANSLATION) { (addr, length) } else { (old.addr, old.length) };
    let access = if has(IBV_REREG_MR_CHANGE_ACCESS) { access as c_uint } else { rights.load(Ordering::Relaxed) };
    // SAFETY: the domain is allocated (rule V).
    let domain = unsafe { SoftPd::of(pd) };
    match engine.change(&domain.engine, addr as u64, length as u64, addr as u64, access) {
        Ok(()) => {
            // SAFETY: `mr` is registered; nobody else uses it meanwhile (rule V).
            unsafe { mr.write(ibv_mr { pd, addr, length, ..old }) };
            rights.store(access, Ordering::Relaxed);
            0
        }
        Err(errno) => {
            set_errno(errno.0);
            IBV_REREG_MR_ERR_INPUT as c_int
        }
    }
}

pub(crate) unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: `mr` is registered, and given up if this succeeds (rule V).
    unsafe { SoftMr::end(mr, |(engine, _)| engine.destroy()) }
}

type SoftMw = Handle<ibv_mw, Mw>;

pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    // SAFETY: `pd` is allocated (rule V).
    let (context, domain) = unsafe { ((*pd).context, SoftPd::of(pd)) };
    pointer(domain.engine.alloc_mw(kind).map(|engine| {
        let rkey = engine.rkey();
        SoftMw::hand_out(ibv_mw { context, pd, rkey, handle: rkey, type_: kind }, engine)
    }))
}

pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: `mw` is a window, and given up (rule V).
    unsafe { SoftMw::end(mw, Mw::destroy) }
}

/// `ibv_bind_mw(3)`, for windows of type 1 as the inline function has checked: posts the request, and sets the new key.
pub(crate) unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
    // SAFETY: `qp` is not destroyed, and `bind` readable (rule V).
    let (queue, bind) = unsafe { (&SoftQp::of(qp.cast()).engine, &*bind) };
    // SAFETY: `mw` is not destroyed; the low 8 bits count the bindings (rule V).
    let key = unsafe { ((*mw).rkey & !0xff) | ((*mw).rkey.wrapping_add(1) & 0xff) };
    let flags = bind.send_flags;
    // SAFETY: `mw` is not destroyed, and the region registered (rule V).
    let wr = SendWr { wr_id: bind.wr_id, flags, ..unsafe { binding(mw, key, &bind.bind_info) } };
    number(queue.post_send(&wr).map(|()| {
        // SAFETY: the window is the caller's alone while it binds it.
        unsafe { (*mw).rkey = key };
    }))
}

/// Makes the request that binds `mw` and gives it the key `rkey`.
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
