// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_attach_mcast(3)` and `ibv_detach_mcast(3)`: multicast groups of UD queue pairs.
//! Grade: setup. Threads: any.

use std::ffi::c_int;

use super::object::SoftQp;
use crate::sys::{ibv_gid, ibv_qp};
use crate::verbs::error::number;

/// `ibv_attach_mcast(3)`.
///
/// # Safety
/// `qp` is not destroyed; `gid` is readable.
pub(crate) unsafe extern "C" fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int {
    // SAFETY: the caller says that `qp` is not destroyed, and `gid` readable; both members are the same 16 bytes.
    number(unsafe { SoftQp::of(qp.cast()).engine.attach_mcast(&(*gid).raw, lid) })
}

/// `ibv_detach_mcast(3)`.
///
/// # Safety
/// `qp` is not destroyed; `gid` is readable.
pub(crate) unsafe extern "C" fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int {
    // SAFETY: the caller says that `qp` is not destroyed, and `gid` readable; both members are the same 16 bytes.
    number(unsafe { SoftQp::of(qp.cast()).engine.detach_mcast(&(*gid).raw, lid) })
}
