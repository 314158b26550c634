// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_open_device(3)` and `ibv_close_device(3)`. Programs reach most verbs through function pointers in the context:
//! the data path through `ibv_context.ops`, the extended verbs through the `verbs_context` in front of it, whose empty
//! places mean "not supported" to the inline functions of verbs.h. Grade: setup. Threads: any.

use std::ffi::c_int;
use std::fs::File;
use std::os::fd::AsRawFd;

use super::context::SoftContext;
use super::cq::{cq_ex, object as cq};
use super::device::list::{SoftDevice, library};
use super::device::{attr, port};
use super::error::pointer;
use super::pd;
use super::qp::{mw, post, qp_ex, srq, xrcd};
use crate::engine::Result;
use crate::sys::{ibv_context, ibv_device, verbs_context};

/// `ibv_open_device(3)`.
///
/// # Safety
/// `device` is from `ibv_get_device_list`.
pub(crate) unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: the caller says that `device` is from `ibv_get_device_list`.
    pointer(unsafe { open(device) })
}

unsafe fn open(device: *mut ibv_device) -> Result<*mut ibv_context> {
    // SAFETY: `device` is from `ibv_get_device_list`, as the caller of `ibv_open_device` says.
    let index = unsafe { SoftDevice::of(device) }.index;
    let hca = library()?.fabric()?.open(index)?;
    let commands = File::options().read(true).write(true).open("/dev/null")?;
    let (ways, cmd_fd, async_fd) = (*hca.behaviour(), commands.as_raw_fd(), hca.async_fd());
    let mut opened = SoftContext::new(hca, commands);
    let verbs = &mut opened.verbs;
    verbs.query_port = Some(port::query_port);
    verbs.query_device_ex = Some(attr::query_device_ex);
    verbs.create_srq_ex = Some(srq::create_srq_ex);
    verbs.get_srq_num = Some(srq::get_srq_num);
    verbs.open_xrcd = Some(xrcd::open_xrcd);
    verbs.close_xrcd = Some(xrcd::close_xrcd);
    // An empty place is an adapter without it.
    if ways.rt_values {
        verbs.query_rt_values = Some(attr::query_rt_values);
    }
    if ways.cq_ex {
        verbs.create_cq_ex = Some(cq_ex::create_cq_ex);
    }
    if ways.wr_api {
        verbs.create_qp_ex = Some(qp_ex::create_qp_ex);
    }
    if ways.thread_domain {
        verbs.alloc_td = Some(pd::alloc_td);
        verbs.dealloc_td = Some(pd::dealloc_td);
        verbs.alloc_parent_domain = Some(pd::alloc_parent_domain);
    }
    verbs.sz = size_of::<verbs_context>();

    let context = &mut verbs.context;
    context.device = device;
    context.cmd_fd = cmd_fd;
    context.async_fd = async_fd;
    context.num_comp_vectors = 1;
    context.abi_compat = usize::MAX as *mut _;
    context.ops.poll_cq = Some(cq::poll_cq);
    context.ops.req_notify_cq = Some(cq::req_notify_cq);
    context.ops.alloc_mw = Some(mw::alloc_mw);
    context.ops.bind_mw = Some(mw::bind_mw);
    context.ops.dealloc_mw = Some(mw::dealloc_mw);
    context.ops.post_srq_recv = Some(post::post_srq_recv);
    context.ops.post_send = Some(post::post_send);
    context.ops.post_recv = Some(post::post_recv);

    Ok(opened.hand_out())
}

/// `ibv_close_device(3)`. As with the real library, objects still open are the program's loss.
///
/// # Safety
/// `context` is from [`ibv_open_device`] and not closed before; no verb uses it or its objects any more.
pub(crate) unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    // SAFETY: the caller says that `context` is from `ibv_open_device`, and gives it up.
    unsafe { SoftContext::take_back(context) };
    0
}
