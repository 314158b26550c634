// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_srq` and `ibv_xrcd`: shared receive queues, plain and of XRC (those of tag matching are not emulated), and the
//! domains of extended reliable connections. Grade: setup; posting is in `post`. Threads: any.

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::fs::MetadataExt;

use crate::engine::{Errno, Result, Srq, Xrcd, XrcdOpen};
use crate::sys::{
    IBV_SRQ_INIT_ATTR_CQ, IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_RESERVED, IBV_SRQ_INIT_ATTR_TYPE,
    IBV_SRQ_INIT_ATTR_XRCD, IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR, IBV_SRQT_BASIC, IBV_SRQT_XRC, IBV_XRCD_INIT_ATTR_FD,
    IBV_XRCD_INIT_ATTR_OFLAGS, IBV_XRCD_INIT_ATTR_RESERVED, ibv_context, ibv_cq, ibv_pd, ibv_srq, ibv_srq_attr,
    ibv_srq_init_attr, ibv_srq_init_attr_ex, ibv_xrcd, ibv_xrcd_init_attr,
};
use crate::verbs::{Handle, SoftCq, SoftPd, adapter, events, number, pointer};

pub(crate) type SoftSrq = Handle<ibv_srq, SharedQueue>;

pub(crate) struct SharedQueue {
    pub(crate) engine: Srq,
    pub(crate) number: u64,
}

/// `ibv_create_srq(3)`: writes the granted sizes back.
pub(crate) unsafe extern "C" fn ibv_create_srq(pd: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    // SAFETY: `pd` is allocated, and `init` readable and writable (rule V).
    pointer(unsafe { create(pd, (*init).srq_context, &mut (*init).attr, None) })
}

/// Makes a queue; with `xrc` for connections of that domain, whose receives complete there.
/// # Safety
/// `pd` is allocated; the domain and the queue that `xrc` names are not destroyed.
unsafe fn create(
    pd: *mut ibv_pd,
    user: *mut c_void,
    attr: &mut ibv_srq_attr,
    xrc: Option<(*mut ibv_xrcd, *mut ibv_cq)>,
) -> Result<*mut ibv_srq> {
    // SAFETY: the caller says that the domain, and so its context, and what `xrc` names live.
    let (context, hca, domain, xrc) = unsafe {
        let xrc = xrc.map(|(xrcd, cq)| (SoftXrcd::of(xrcd), &SoftCq::of(cq.cast()).engine));
        ((*pd).context, adapter((*pd).context), SoftPd::of(pd), xrc)
    };
    let number = events::reserve();
    let engine = hca.create_srq(&domain.engine, attr.max_wr, attr.max_sge, number, xrc)?;
    (attr.max_wr, attr.max_sge, _) = engine.query();
    let public = ibv_srq { context, srq_context: user, pd, handle: engine.number(), ..ibv_srq::default() };
    let srq = SoftSrq::hand_out(public, SharedQueue { engine, number });
    events::enter(number, srq);
    Ok(srq)
}

/// `ibv_create_srq_ex(3)` for arguments that verbs.h's inline function does not pass to [`ibv_create_srq`].
pub(crate) unsafe extern "C" fn create_srq_ex(_ctx: *mut ibv_context, init: *mut ibv_srq_init_attr_ex) -> *mut ibv_srq {
    // SAFETY: `init` is readable and writable (rule V).
    let init = unsafe { &mut *init };
    let mask = init.comp_mask;
    let kind = if mask & IBV_SRQ_INIT_ATTR_TYPE == 0 { IBV_SRQT_BASIC } else { init.srq_type };
    let for_xrc = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    let result = if mask >= IBV_SRQ_INIT_ATTR_RESERVED || mask & IBV_SRQ_INIT_ATTR_PD == 0 {
        Err(Errno(libc::EINVAL))
    } else if kind == IBV_SRQT_BASIC {
        // SAFETY: the mask says that there is a domain.
        unsafe { create(init.pd, init.srq_context, &mut init.attr, None) }
    } else if kind != IBV_SRQT_XRC {
        Err(Errno(libc::EOPNOTSUPP))
    } else if mask & for_xrc != for_xrc || init.xrcd.is_null() || init.cq.is_null() {
        Err(Errno(libc::EINVAL))
    } else {
        // SAFETY: the mask says what is there, and neither is null.
        unsafe { create(init.pd, init.srq_context, &mut init.attr, Some((init.xrcd, init.cq))) }
    };
    pointer(result)
}

pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, out: *mut u32) -> c_int {
    // SAFETY: `srq` is not destroyed, and `out` writable (rule V).
    unsafe { out.write(SoftSrq::of(srq).engine.number()) };
    0
}

/// `ibv_modify_srq(3)`: the size, then the limit.
pub(crate) unsafe extern "C" fn ibv_modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int {
    // SAFETY: `srq` is not destroyed, and `attr` readable (rule V).
    let (queue, attr) = unsafe { (&SoftSrq::of(srq).engine, &*attr) };
    let mask = mask as u32;
    number(if mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) != 0 {
        Err(Errno(libc::EINVAL))
    } else {
        let resized = if mask & IBV_SRQ_MAX_WR != 0 { queue.resize(attr.max_wr) } else { Ok(()) };
        resized.and_then(|()| if mask & IBV_SRQ_LIMIT != 0 { queue.set_limit(attr.srq_limit) } else { Ok(()) })
    })
}

pub(crate) unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    // SAFETY: `srq` is not destroyed, and `attr` writable (rule V).
    unsafe {
        let (max_wr, max_sge, srq_limit) = SoftSrq::of(srq).engine.query();
        attr.write(ibv_srq_attr { max_wr, max_sge, srq_limit });
    }
    0
}

/// `ibv_destroy_srq(3)`: EBUSY while a queue pair uses it; waits until its events are acknowledged.
pub(crate) unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    let end = |queue: &SharedQueue| queue.engine.destroy().inspect(|()| events::retire(queue.number));
    // SAFETY: `srq` is not destroyed, and given up if this succeeds; no event names it any more (rule V).
    unsafe { SoftSrq::end(srq, end) }
}

pub(crate) type SoftXrcd = Handle<ibv_xrcd, Xrcd>;

/// `ibv_open_xrcd(3)`: the file of `fd` names the domain; with -1 it is this process's alone.
pub(crate) unsafe extern "C" fn open_xrcd(context: *mut ibv_context, attr: *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd {
    // SAFETY: `context` is open, and `attr` readable (rule V).
    let (attr, hca) = unsafe { (&*attr, adapter(context)) };
    let needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    let engine = if attr.comp_mask >= IBV_XRCD_INIT_ATTR_RESERVED || attr.comp_mask & needed != needed {
        Err(Errno(libc::EINVAL))
    } else {
        file(attr.fd).and_then(|file| {
            let create = attr.oflags & libc::O_CREAT != 0;
            hca.open_xrcd(XrcdOpen { file, create, exclusive: attr.oflags & libc::O_EXCL != 0 })
        })
    };
    pointer(engine.map(|engine| SoftXrcd::hand_out(ibv_xrcd { context }, engine)))
}

fn file(fd: c_int) -> Result<Option<(u64, u64)>> {
    if fd == -1 {
        return Ok(None);
    }
    if fd < 0 {
        return Err(Errno(libc::EBADF));
    }
    // SAFETY: the descriptor is the program's: it is looked at, not closed; if it is none, asking about it fails.
    let file = ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(fd) });
    let found = file.metadata()?;
    Ok(Some((found.dev(), found.ino())))
}

/// `ibv_close_xrcd(3)`: EBUSY while a queue or queue pair is in it.
pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    // SAFETY: `xrcd` is open, and given up if this succeeds (rule V).
    unsafe { SoftXrcd::end(xrcd, Xrcd::close) }
}
