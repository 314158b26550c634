// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_mr`: registered memory. The keys and what they allow are the engine's; here are the several ways to register.
//! Grade: setup. Threads: any; re-registering and using a region at once is the program's error, as with any adapter.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use super::error::{pointer, set_errno};
use super::fork;
use super::handle::Handle;
use super::pd::SoftPd;
use crate::engine::Mr;
use crate::sys::{
    IBV_REREG_MR_CHANGE_ACCESS, IBV_REREG_MR_CHANGE_PD, IBV_REREG_MR_CHANGE_TRANSLATION, IBV_REREG_MR_ERR_INPUT,
    IBV_REREG_MR_FLAGS_SUPPORTED, ibv_mr, ibv_pd,
};

/// A memory region as programs hold it, and the rights it has.
type SoftMr = Handle<ibv_mr, (Mr, AtomicU32)>;

/// `ibv_reg_mr_iova2`: what `ibv_reg_mr(3)` is when the flags are not known to the compiler.
///
/// # Safety
/// `pd` is allocated. The memory need not be valid: that is checked.
pub(crate) unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: the caller says that `pd` is allocated.
    let (context, domain) = unsafe { ((*pd).context, SoftPd::of(pd)) };
    pointer(domain.engine.reg_mr(addr as u64, length as u64, iova, access).map(|engine| {
        fork::memory_was_registered();
        let key = engine.key();
        let public = ibv_mr { context, pd, addr, length, handle: key, lkey: key, rkey: key };
        SoftMr::hand_out(public, (engine, AtomicU32::new(access)))
    }))
}

/// `ibv_reg_mr_iova(3)`.
///
/// # Safety
/// `pd` is allocated. The memory need not be valid: that is checked.
pub(crate) unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller says that `pd` is allocated.
    unsafe { ibv_reg_mr_iova2(pd, addr, length, iova, access as c_uint) }
}

/// `ibv_reg_mr(3)`.
///
/// # Safety
/// `pd` is allocated. The memory need not be valid: that is checked.
pub(crate) unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller says that `pd` is allocated.
    unsafe { ibv_reg_mr_iova2(pd, addr, length, addr as u64, access as c_uint) }
}

/// `ibv_rereg_mr(3)`: the keys stay. On failure the region is as before.
///
/// # Safety
/// `mr` is registered, `pd` allocated where `flags` says so, and no request that names the region is under way.
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
    // SAFETY: the caller says that `mr` is registered; nobody else uses it meanwhile.
    let (old, (engine, rights)) = unsafe { (*mr, SoftMr::of(mr)) };
    let pd = if has(IBV_REREG_MR_CHANGE_PD) { pd } else { old.pd };
    let (addr, length) = if has(IBV_REREG_MR_CHANGE_TRANSLATION) { (addr, length) } else { (old.addr, old.length) };
    let access = if has(IBV_REREG_MR_CHANGE_ACCESS) { access as c_uint } else { rights.load(Ordering::Relaxed) };
    // SAFETY: the domain is allocated by the caller's word.
    let domain = unsafe { SoftPd::of(pd) };
    match engine.change(&domain.engine, addr as u64, length as u64, addr as u64, access) {
        Ok(()) => {
            // SAFETY: the caller says that `mr` is registered; nobody else uses it meanwhile.
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

/// `ibv_dereg_mr(3)`.
///
/// # Safety
/// `mr` is registered, and given up if this succeeds.
pub(crate) unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: the caller says that `mr` is registered, and given up if this succeeds.
    unsafe { SoftMr::end(mr, |(engine, _)| engine.destroy()) }
}
