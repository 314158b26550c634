// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_context`: an opened device as programs hold it; `ibv_open_device(3)` and `ibv_close_device(3)`. Programs reach
//! most verbs through function pointers: the data path through `ibv_context.ops`, the extended verbs through the
//! `verbs_context` in front of it, whose empty places mean "not supported" to the inline functions of verbs.h. Grade:
//! setup. Threads: any.

use std::ffi::c_int;
use std::fs::File;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use crate::engine::{Hca, Result};
use crate::sys::{ibv_context, ibv_device, verbs_context};
use crate::verbs::device::list::{SoftDevice, library};
use crate::verbs::device::query;
use crate::verbs::qp::{post, qp_ex, srq};
use crate::verbs::{cq, mr, pd, pointer};

/// An opened device as programs hold it: their pointer is to `verbs.context`.
#[repr(C)]
struct SoftContext {
    verbs: verbs_context,
    hca: Arc<Hca>,
    /// Programs may duplicate and watch the descriptor of commands; here it is a real one, of /dev/null.
    _commands: File,
}

/// Returns the structure around a program's `ibv_context`: until it is closed, each is in a `SoftContext`.
fn behind(context: *mut ibv_context) -> *mut SoftContext {
    context.wrapping_byte_sub(offset_of!(verbs_context, context)).cast()
}

/// # Safety
/// `context` is from `ibv_open_device` and not closed.
pub(crate) unsafe fn adapter<'a>(context: *mut ibv_context) -> &'a Arc<Hca> {
    // SAFETY: the caller says that it is a context of this library, and lives.
    unsafe { &(*behind(context)).hca }
}

pub(crate) unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: `device` is from `ibv_get_device_list` (rule V).
    pointer(unsafe { open(device) })
}

unsafe fn open(device: *mut ibv_device) -> Result<*mut ibv_context> {
    // SAFETY: `device` is from `ibv_get_device_list`, as the caller of `ibv_open_device` says.
    let index = unsafe { SoftDevice::of(device) }.index;
    let hca = library()?.fabric()?.open(index)?;
    let commands = File::options().read(true).write(true).open("/dev/null")?;
    let (ways, cmd_fd, async_fd) = (*hca.behaviour(), commands.as_raw_fd(), hca.async_fd());
    let mut opened = Box::new(SoftContext { verbs: verbs_context::default(), hca, _commands: commands });
    let verbs = &mut opened.verbs;
    verbs.query_port = Some(query::query_port);
    verbs.query_device_ex = Some(query::query_device_ex);
    verbs.create_srq_ex = Some(srq::create_srq_ex);
    verbs.get_srq_num = Some(srq::get_srq_num);
    verbs.open_xrcd = Some(srq::open_xrcd);
    verbs.close_xrcd = Some(srq::close_xrcd);
    // An empty place: the adapter does not have the verb.
    if ways.rt_values {
        verbs.query_rt_values = Some(query::query_rt_values);
    }
    if ways.cq_ex {
        verbs.create_cq_ex = Some(cq::create_cq_ex);
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
    context.ops.alloc_mw = Some(mr::alloc_mw);
    context.ops.bind_mw = Some(mr::bind_mw);
    context.ops.dealloc_mw = Some(mr::dealloc_mw);
    context.ops.post_srq_recv = Some(post::post_srq_recv);
    context.ops.post_send = Some(post::post_send);
    context.ops.post_recv = Some(post::post_recv);

    // SAFETY: just made by Box, so valid to point into.
    Ok(unsafe { &raw mut (*Box::into_raw(opened)).verbs.context })
}

/// `ibv_close_device(3)`. As with the real library, closing does not free objects that are still open.
pub(crate) unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    // SAFETY: made by Box in `open`; `context` is given up (rule V).
    drop(unsafe { Box::from_raw(behind(context)) });
    0
}
