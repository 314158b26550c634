// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibv_xrcd`: domains of extended reliable connections: `ibv_open_xrcd(3)`, `ibv_close_xrcd(3)`.
//! Grade: setup. Threads: any.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::fs::MetadataExt;

use crate::engine::{Errno, Result, Xrcd, XrcdOpen};
use crate::sys::{
    IBV_XRCD_INIT_ATTR_FD, IBV_XRCD_INIT_ATTR_OFLAGS, IBV_XRCD_INIT_ATTR_RESERVED, ibv_context, ibv_xrcd,
    ibv_xrcd_init_attr,
};
use crate::verbs::context::SoftContext;
use crate::verbs::error::pointer;
use crate::verbs::handle::Handle;

/// A domain as programs hold it.
pub(crate) type SoftXrcd = Handle<ibv_xrcd, Xrcd>;

/// `ibv_open_xrcd(3)`: the file of `fd` names the domain; with -1 it is this process's alone.
///
/// # Safety
/// `context` is open; `attr` is readable.
pub(crate) unsafe extern "C" fn open_xrcd(context: *mut ibv_context, attr: *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd {
    // SAFETY: the caller says that `context` is open, and `attr` readable.
    let (attr, hca) = unsafe { (&*attr, SoftContext::of(context).hca()) };
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

/// Which file a descriptor is of.
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
///
/// # Safety
/// `xrcd` is open, and given up if this succeeds.
pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    // SAFETY: the caller says that `xrcd` is open, and given up if this succeeds.
    unsafe { SoftXrcd::end(xrcd, Xrcd::close) }
}
