// SPDX-License-Identifier: MIT OR Apache-2.0
//! Domains (`fi_domain(3)`): what endpoints and all that they use belong to. A domain opens its device, once, for the
//! first endpoint or memory region; all of them share it and its protection domain. One thread at a time is inside
//! ([`Domain::enter`], `lock`). `targets` has what counts peers' accesses.
//!
//! Grade: setup; [`Domain::enter`] hot. Threads: any. Tests: `tests/`.

pub(crate) mod lock;
pub(crate) mod targets;

use std::ffi::{c_int, c_void};
use std::sync::{Arc, OnceLock};

use ibex::transport::Device;
use parking_lot::Mutex;

use crate::atomic::by::By;
use crate::entry::{Result, done, table};
use crate::eq::EventQueue;
use crate::fabric::Fabric;
use crate::fid::{self, Class, give, head, object, object_if, pointer};
use crate::mr::Regions;
use crate::{adapter, atomic, av, cntr, cq, endpoint, mr, sys};
use lock::{Inside, Lock};
use targets::Targets;

/// Environment variable: check whether the program keeps the promise of `FI_THREAD_DOMAIN`.
const CHECK_THREADS: &str = "FI_IBEX_CHECK_THREADS";

/// A domain.
pub(crate) struct Domain {
    lock: Lock,
    device: Mutex<Option<Arc<Device>>>,
    /// Who does its atomic operations, once that is known.
    atomics: OnceLock<By>,
    /// The open memory regions.
    pub(crate) regions: Regions,
    /// `None` unless the program has asked for `FI_RMA_EVENT`: to count what peers read and write in its regions.
    pub(crate) targets: Option<Targets>,
    _fabric: Arc<Fabric>,
}

impl Class for Domain {
    type Fid = sys::fid_domain;

    const NUMBER: u32 = sys::FI_CLASS_DOMAIN;
}

impl Domain {
    /// Makes a domain. `threading`: which calls the program makes at the same time.
    pub(crate) fn new(fabric: Arc<Fabric>, threading: sys::fi_threading, targets: Option<Targets>) -> Self {
        let is_checked = cfg!(debug_assertions) || std::env::var_os(CHECK_THREADS).is_some_and(|value| value != "0");
        Domain {
            lock: Lock::new(threading == sys::FI_THREAD_DOMAIN, is_checked),
            device: Mutex::default(),
            atomics: OnceLock::new(),
            regions: Regions::default(),
            targets,
            _fabric: fabric,
        }
    }

    /// Enters the domain; its endpoints and queues belong to this thread until the result is dropped (D1).
    #[inline(always)]
    pub(crate) fn enter(&self) -> Inside<'_> {
        self.lock.enter()
    }

    /// Whether the program lets one thread at a time call (`FI_THREAD_DOMAIN`), so that none waits to enter.
    pub(crate) fn is_serial(&self) -> bool {
        self.lock.is_promised()
    }

    /// Returns the device; the first call opens it.
    pub(crate) fn device(&self) -> Result<Arc<Device>> {
        let mut device = self.device.lock();
        if device.is_none() {
            *device = Some(Arc::new(adapter::device()?));
        }
        device.clone().ok_or(sys::FI_ENODEV)
    }

    /// Returns who does the atomic operations on its memory.
    pub(crate) fn atomics(&self) -> Result<By> {
        if let Some(by) = self.atomics.get() {
            return Ok(*by);
        }
        let by = By::of(self)?;
        Ok(*self.atomics.get_or_init(|| by))
    }
}

static OPERATIONS: sys::fi_ops = table!(fi_ops {
    close: fid::close::<Domain>, bind: bind;
    absent: control, ops_open, tostr, ops_set,
});

static FUNCTIONS: sys::fi_ops_domain = table!(fi_ops_domain {
    av_open: av::open, cq_open: cq::open, endpoint: endpoint::open, cntr_open: cntr::open,
    query_atomic: atomic::valid::query;
    absent: scalable_ep, poll_open, stx_ctx, srx_ctx, query_collective, endpoint2,
});

/// `fi_domain`.
///
/// # Safety
/// F1, F2.
pub(crate) unsafe extern "C" fn open(
    fabric: *mut sys::fid_fabric,
    info: *mut sys::fi_info,
    place: *mut *mut sys::fid_domain,
    context: *mut c_void,
) -> c_int {
    done("fi_domain", || {
        // SAFETY: F2: an info of `fi_getinfo`, which the program may have changed.
        let (info, attributes) = unsafe {
            let info = info.as_ref().ok_or(sys::FI_EINVAL)?;
            (info, info.domain_attr.as_ref())
        };
        let (threading, mode) = attributes.map_or((sys::FI_THREAD_SAFE, 0), |of| (of.threading, of.mr_mode));
        let targets = if info.caps & sys::FI_RMA_EVENT == 0 { None } else { Some(Targets::new(mode)?) };
        // SAFETY: F1.
        let domain = Arc::new(Domain::new(Arc::clone(unsafe { object::<Fabric>(fabric) }), threading, targets));
        let fid = head::<Domain>(context, &OPERATIONS);
        let fid = sys::fid_domain { fid, ops: pointer(&FUNCTIONS), mr: pointer(&mr::FUNCTIONS) };
        // SAFETY: F2.
        unsafe { give(fid, domain, place) }
    })
}

/// `fi_domain_bind`: an event queue, for events that never come, because everything is done before a call returns.
unsafe extern "C" fn bind(_: *mut sys::fid, other: *mut sys::fid, flags: u64) -> c_int {
    done("fi_domain_bind", || {
        // SAFETY: F1.
        let queue = unsafe { object_if::<EventQueue>(other) };
        // FI_REG_MR wants an event for each registration.
        if flags != 0 { Err(sys::FI_ENOSYS) } else { queue.map(|_| ()).ok_or(sys::FI_EINVAL) }
    })
}
