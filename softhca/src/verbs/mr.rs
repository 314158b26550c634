// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_mr`: registered memory. The keys and what they allow are the engine's; here are the several ways to register.
//! Grade: setup. Threads: any; re-registering and using a region at once is the program's error, as with any adapter.

use std::ffi::{c_int, c_uint, c_void};

use super::error::{number, pointer, set_errno};
use super::fork;
use super::pd::SoftPd;
use crate::engine::{Mr, Result};
use crate::sys::{
    IBV_REREG_MR_CHANGE_ACCESS, IBV_REREG_MR_CHANGE_PD, IBV_REREG_MR_CHANGE_TRANSLATION, IBV_REREG_MR_ERR_INPUT,
    IBV_REREG_MR_FLAGS_SUPPORTED, ibv_mr, ibv_pd,
};

/// A memory region as programs hold it.
#[repr(C)]
struct SoftMr {
    public: ibv_mr,
    engine: Mr,
    access: c_uint,
}

unsafe fn register(pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_uint) -> Result<SoftMr> {
    // SAFETY: `pd` is allocated, as the caller of `ibv_reg_mr_iova2` says.
    let domain = unsafe { SoftPd::of(pd) };
    let engine = domain.engine().reg_mr(addr as u64, length as u64, iova, access)?;
    fork::memory_was_registered();
    let (lkey, rkey) = (engine.lkey(), engine.rkey());
    let public = ibv_mr { context: domain.context(), pd, addr, length, handle: lkey, lkey, rkey };
    Ok(SoftMr { public, engine, access })
}

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
    let region = unsafe { register(pd, addr, length, iova, access) };
    pointer(region.map(|region| Box::into_raw(Box::new(region)).cast()))
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
    // SAFETY: registered by the caller's word, so made by Box in `ibv_reg_mr_iova2`; nobody else uses it meanwhile.
    let region = unsafe { &mut *mr.cast::<SoftMr>() };
    let old = region.public;
    let pd = if has(IBV_REREG_MR_CHANGE_PD) { pd } else { old.pd };
    let (addr, length) = if has(IBV_REREG_MR_CHANGE_TRANSLATION) { (addr, length) } else { (old.addr, old.length) };
    let access = if has(IBV_REREG_MR_CHANGE_ACCESS) { access as c_uint } else { region.access };
    // SAFETY: the domain is allocated by the caller's word.
    let domain = unsafe { SoftPd::of(pd) };
    match region.engine.change(domain.engine(), addr as u64, length as u64, addr as u64, access) {
        Ok(()) => {
            region.public = ibv_mr { pd, addr, length, ..old };
            region.access = access;
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
    // SAFETY: registered by the caller's word.
    let result = unsafe { &*mr.cast::<SoftMr>() }.engine.destroy();
    if result.is_ok() {
        // SAFETY: made by Box in `ibv_reg_mr_iova2`; the caller gives it up.
        drop(unsafe { Box::from_raw(mr.cast::<SoftMr>()) });
    }
    number(result)
}
