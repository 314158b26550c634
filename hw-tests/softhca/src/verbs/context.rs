// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_context`: an opened device. Programs reach most verbs through function pointers in it: the data path through
//! `ibv_context.ops`, the extended verbs through the `verbs_context` in front of it, whose empty places mean "not
//! supported" to the inline functions of verbs.h.
//! Grade: setup. Threads: any.

use std::ffi::c_int;
use std::fs::File;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use super::device::{SoftDevice, library};
use super::error::pointer;
use super::{cq, cq_ex, limits, mw, pd, port, post, qp_ex, srq, xrcd};
use crate::engine::{DeviceSpec, Errno, Hca, Result};
use crate::sys::{ibv_context, ibv_device, verbs_context};

/// An opened device as programs hold it: their pointer is to `verbs.context`.
#[repr(C)]
pub(crate) struct SoftContext {
    verbs: verbs_context,
    hca: Arc<Hca>,
    /// Programs may duplicate and watch the descriptor of commands; here it is a real one that says nothing.
    _commands: File,
}

impl SoftContext {
    /// The context behind a program's pointer.
    ///
    /// # Safety
    /// `context` is from [`ibv_open_device`] and not closed.
    pub(crate) unsafe fn of<'a>(context: *mut ibv_context) -> &'a SoftContext {
        // SAFETY: every ibv_context this library gives out is `verbs.context` of a SoftContext, which lives until
        // closed.
        unsafe { &*context.byte_sub(offset_of!(verbs_context, context)).cast::<SoftContext>() }
    }

    /// The engine's adapter.
    pub(crate) fn hca(&self) -> &Arc<Hca> {
        &self.hca
    }

    /// Its description.
    pub(crate) fn spec(&self) -> &DeviceSpec {
        self.hca.spec()
    }
}

/// `ibv_open_device(3)`.
///
/// # Safety
/// `device` is from `ibv_get_device_list`.
pub(crate) unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: by the caller's word.
    pointer(unsafe { open(device) })
}

unsafe fn open(device: *mut ibv_device) -> Result<*mut ibv_context> {
    // SAFETY: by the caller's word.
    let index = unsafe { SoftDevice::of(device) }.index;
    let hca = library()?.fabric()?.open(index)?;
    let commands = File::options().read(true).write(true).open("/dev/null");
    let commands = commands.map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EMFILE)))?;
    // SAFETY: verbs_context is integers, pointers, nullable function pointers and a mutex that is zero when unlocked.
    let mut verbs: verbs_context = unsafe { std::mem::zeroed() };
    let ways = *hca.behaviour();
    verbs.query_port = Some(port::query_port);
    verbs.query_device_ex = Some(limits::query_device_ex);
    verbs.modify_cq = Some(cq::modify_cq);
    verbs.create_srq_ex = Some(srq::create_srq_ex);
    verbs.get_srq_num = Some(srq::get_srq_num);
    verbs.open_xrcd = Some(xrcd::open_xrcd);
    verbs.close_xrcd = Some(xrcd::close_xrcd);
    // An empty place is an adapter without it.
    if ways.rt_values {
        verbs.query_rt_values = Some(limits::query_rt_values);
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
    context.cmd_fd = commands.as_raw_fd();
    context.async_fd = hca.async_fd();
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

    let opened = Box::into_raw(Box::new(SoftContext { verbs, hca, _commands: commands }));
    // SAFETY: just made by Box, so valid to point into.
    Ok(unsafe { &raw mut (*opened).verbs.context })
}

/// `ibv_close_device(3)`. As with the real library, objects still open are the program's loss.
///
/// # Safety
/// `context` is from [`ibv_open_device`] and not closed before; no verb uses it or its objects any more.
pub(crate) unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    // SAFETY: made by Box in `open`, at this offset; the caller gives up the pointer.
    drop(unsafe { Box::from_raw(context.byte_sub(offset_of!(verbs_context, context)).cast::<SoftContext>()) });
    0
}
