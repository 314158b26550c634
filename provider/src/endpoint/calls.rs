// SPDX-License-Identifier: MIT OR Apache-2.0
//! What C calls for an endpoint's life: opening, binding, enabling, its name and options.
//!
//! Grade: setup. Threads: any. Tests: `tests/`.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Endpoint, transfers};
use crate::av::{AddressVector, put};
use crate::cntr::Counter;
use crate::cq::CompletionQueue;
use crate::domain::Domain;
use crate::entry::{call, done, table};
use crate::eq::EventQueue;
use crate::fid::{self, give, head, object, object_if, pointer};
use crate::{atomic, info, rma, sys};

static OPERATIONS: sys::fi_ops = table!(fi_ops {
    close: fid::close::<Endpoint>, bind: bind, control: control;
    absent: ops_open, tostr, ops_set,
});

static FUNCTIONS: sys::fi_ops_ep = table!(fi_ops_ep {
    cancel: cancel, getopt: getopt, setopt: setopt;
    absent: tx_ctx, rx_ctx, rx_size_left, tx_size_left,
});

static NAMES: sys::fi_ops_cm = table!(fi_ops_cm {
    getname: getname;
    absent: setname, getpeer, connect, listen, accept, reject, shutdown, join,
});

/// `fi_endpoint`.
///
/// # Safety
/// F1, F2.
pub(crate) unsafe extern "C" fn open(
    domain: *mut sys::fid_domain,
    info: *mut sys::fi_info,
    place: *mut *mut sys::fid_ep,
    context: *mut c_void,
) -> c_int {
    done("fi_endpoint", || {
        // SAFETY: F2: an info of `fi_getinfo`, which the program may have changed.
        let asked = unsafe { info::Asked::of(info) }.ok_or(sys::FI_EINVAL)?;
        info::check(&asked).map_err(|why| info::refused(&why))?;
        let flags = [asked.tx.map_or(0, |tx| tx.op_flags), asked.rx.map_or(0, |rx| rx.op_flags)];
        // SAFETY: F1.
        let endpoint = Endpoint::new(Arc::clone(unsafe { object::<Domain>(domain) }), asked.info.caps, flags);
        let fid = sys::fid_ep {
            fid: head::<Endpoint>(context, &OPERATIONS),
            ops: pointer(&FUNCTIONS),
            cm: pointer(&NAMES),
            msg: pointer(&transfers::MESSAGES),
            rma: pointer(&rma::calls::FUNCTIONS),
            tagged: pointer(&transfers::TAGGED),
            atomic: pointer(&atomic::calls::FUNCTIONS),
            collective: pointer(&transfers::COLLECTIVES),
        };
        // SAFETY: F2.
        unsafe { give(fid, Arc::new(endpoint), place) }
    })
}

/// `fi_ep_bind`.
unsafe extern "C" fn bind(endpoint: *mut sys::fid, other: *mut sys::fid, flags: u64) -> c_int {
    done("fi_ep_bind", || {
        // SAFETY: F1.
        let endpoint = unsafe { object::<Endpoint>(endpoint) };
        let mut bound = endpoint.bound.lock();
        // SAFETY: F1, here and below.
        if let Some(counter) = unsafe { object_if::<Counter>(other) } {
            share_domain(endpoint, &counter.domain)?;
            bound.counter(endpoint, counter, flags)?;
            return endpoint.report_to(&bound);
        }
        if endpoint.enabled.get().is_some() {
            return Err(sys::FI_EOPBADSTATE);
        }
        // SAFETY: F1.
        if let Some(queue) = unsafe { object_if::<CompletionQueue>(other) } {
            share_domain(endpoint, &queue.domain)?;
            return bound.queue(endpoint, queue, flags);
        }
        // SAFETY: F1.
        if let Some(vector) = unsafe { object_if::<AddressVector>(other) } {
            share_domain(endpoint, &vector.domain)?;
            return bound.vector(endpoint, vector);
        }
        // SAFETY: F1.
        let queue = unsafe { object_if::<EventQueue>(other) }.ok_or(sys::FI_EINVAL)?;
        bound.events(queue)
    })
}

/// Checks that the domain of an object is that of an endpoint.
fn share_domain(endpoint: &Endpoint, domain: &Arc<Domain>) -> crate::entry::Result<()> {
    if Arc::ptr_eq(&endpoint.domain, domain) { Ok(()) } else { Err(sys::FI_EDOMAIN) }
}

/// `fi_control`: `fi_enable`.
unsafe extern "C" fn control(endpoint: *mut sys::fid, command: c_int, _: *mut c_void) -> c_int {
    done("fi_control", || {
        // SAFETY: F1.
        let endpoint = unsafe { object::<Endpoint>(endpoint) };
        if command as u32 == sys::FI_ENABLE { endpoint.enable() } else { Err(sys::FI_ENOSYS) }
    })
}

/// `fi_getname`.
unsafe extern "C" fn getname(endpoint: *mut sys::fid, buffer: *mut c_void, length: *mut usize) -> c_int {
    done("fi_getname", || {
        // SAFETY: F1, F2.
        let (endpoint, length) = unsafe { (object::<Endpoint>(endpoint), length.as_mut()) };
        let (length, address) = (length.ok_or(sys::FI_EINVAL)?, endpoint.address()?);
        // SAFETY: F2: the buffer has `length` bytes.
        if unsafe { put(&address.encode(), buffer, length) } { Ok(()) } else { Err(sys::FI_ETOOSMALL) }
    })
}

/// `fi_cancel`: cancels a receive.
unsafe extern "C" fn cancel(endpoint: *mut sys::fid, context: *mut c_void) -> isize {
    call("fi_cancel", || {
        // SAFETY: F1.
        let (_, mut state) = unsafe { object::<Endpoint>(endpoint) }.enter()?;
        if state.cancel(context.addr()) { Ok(0) } else { Err(sys::FI_ENOENT) }
    })
}

/// `fi_getopt`.
unsafe extern "C" fn getopt(
    endpoint: *mut sys::fid,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut usize,
) -> c_int {
    done("fi_getopt", || {
        // SAFETY: F1, F2.
        let (endpoint, length) = unsafe { (object::<Endpoint>(endpoint), length.as_mut()) };
        let length = length.ok_or(sys::FI_EINVAL)?;
        is_multi_recv(level, name)?;
        // SAFETY: F2: the buffer has `length` bytes.
        let fits = unsafe { put(&endpoint.min_multi_recv().to_ne_bytes(), value, length) };
        if fits { Ok(()) } else { Err(sys::FI_ETOOSMALL) }
    })
}

/// `fi_setopt`.
unsafe extern "C" fn setopt(
    endpoint: *mut sys::fid,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: usize,
) -> c_int {
    done("fi_setopt", || {
        // SAFETY: F1.
        let endpoint = unsafe { object::<Endpoint>(endpoint) };
        is_multi_recv(level, name)?;
        if value.is_null() || length != size_of::<usize>() {
            return Err(sys::FI_EINVAL);
        }
        // SAFETY: F2: the value has `length` bytes.
        let room = unsafe { value.cast::<usize>().read_unaligned() };
        endpoint.min_multi_recv.store(room, Ordering::Relaxed);
        Ok(())
    })
}

/// Whether it is the option that endpoints have.
fn is_multi_recv(level: c_int, name: c_int) -> crate::entry::Result<()> {
    let is = level as u32 == sys::FI_OPT_ENDPOINT && name as u32 == sys::FI_OPT_MIN_MULTI_RECV;
    if is { Ok(()) } else { Err(sys::FI_ENOPROTOOPT) }
}
