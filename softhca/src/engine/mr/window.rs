// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory windows: keys of a part of a region, bound and invalidated by work requests. A window has an entry in the
//! table of regions, and while it is bound the region counts it. A window of type 1 gets a new key with each binding
//! and is open to all queue pairs of its domain. One of type 2 is bound only while it is free, opens to the queue pair
//! that bound it (type 2B), and is freed by an invalidation, local or with a send. Called by: `verbs` (allocation),
//! send (bind, local invalidate), wire (remote invalidate). Grade: pending. Thread rule: a thread exchanges the key of
//! an entry for `TAKEN` before it changes it. Source: `ibv_bind_mw(3)`.

use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::codes::{access, wc_status};
use crate::engine::memory::layout::{MAX_MRS, mr_at};
use crate::engine::mr::table::{MrEntry, REGION, Range, TAKEN, entry_of, take_entry};
use crate::engine::{Errno, Fabric, Hca, Pd, Result, Use};

/// Number of looks at an entry before the process that changes it counts as dead.
const PATIENCE: u32 = 1 << 16;

/// A memory window.
pub struct Mw {
    /// The key as it was allocated: later keys name the same entry.
    key: u32,
    hca: Arc<Hca>,
    in_pd: Mutex<Option<Use>>,
}

/// Binding of a window, as a work request says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding {
    /// Any key the window ever had.
    pub(crate) window: u32,
    /// Its low 8 bits become those of the window's key.
    pub(crate) key: u32,
    pub(crate) region: u32,
    /// Address in the region, as requests call it.
    pub(crate) addr: u64,
    /// 0 unbinds a window of type 1.
    pub(crate) len: u64,
    pub(crate) access: u32,
}

impl Mw {
    /// Returns the remote key as allocated; each binding gives another.
    pub fn rkey(&self) -> u32 {
        self.key
    }

    /// Ends the window, even if it is bound: this never fails.
    pub fn destroy(&self) -> Result<()> {
        let Some(_in_pd) = self.in_pd.lock().unwrap_or_else(PoisonError::into_inner).take() else { return Ok(()) };
        let fabric = &self.hca.fabric;
        let entry: &MrEntry = fabric.region().at(mr_at(self.key >> 8));
        entry.take();
        entry.unbind(fabric);
        entry.free();
        Ok(())
    }
}

impl Pd {
    /// Allocates a memory window of type `kind`, 1 or 2.
    /// Errors: EINVAL, ENOMEM.
    pub fn alloc_mw(&self, kind: u32) -> Result<Mw> {
        if kind != 1 && kind != 2 {
            return Err(Errno(libc::EINVAL));
        }
        let fabric = &self.hca.fabric;
        let key = take_entry(fabric, |entry| {
            entry.describe(fabric, self.id, &Range::default(), 0);
            entry.kind.set(kind);
        })?;
        Ok(Mw { key, hca: Arc::clone(&self.hca), in_pd: Mutex::new(Some(self.users.enter())) })
    }
}

impl MrEntry {
    /// Takes the key away, so that no request finds the entry, once no other thread changes it. Returns the key;
    /// `TAKEN` if the thread that changed the entry must have died, because a change takes less than a microsecond.
    fn take(&self) -> u32 {
        for _ in 0..PATIENCE {
            let key = self.key.get();
            if key != TAKEN && self.key.replace(key, TAKEN) {
                return key;
            }
            std::thread::yield_now();
        }
        TAKEN
    }

    /// Takes all access from the window. The caller has taken its key.
    fn unbind(&self, fabric: &Fabric) {
        self.access.set(0);
        self.len.set(0);
        self.qpn.set(0);
        let region = self.bound_to.swap(0);
        if region != 0 {
            fabric.region().at::<MrEntry>(mr_at(region)).windows.add(u32::MAX);
        }
    }

    fn is_bound(&self) -> bool {
        self.bound_to.get() != 0
    }
}

/// Binds a window for queue pair `qpn` of domain `pd`; returns the status of the request.
#[cold]
pub(crate) fn bind(fabric: &Fabric, pd: u32, qpn: u32, b: &Binding) -> u32 {
    let index = b.window >> 8;
    if index == 0 || index >= MAX_MRS {
        return wc_status::MW_BIND_ERR;
    }
    let window: &MrEntry = fabric.region().at(mr_at(index));
    if window.kind.get() == REGION {
        return wc_status::MW_BIND_ERR;
    }
    let before = window.take();
    let is_free = window.kind.get() == 1 || !window.is_bound();
    let is_usable = before != 0 && window.pd.get() == pd && is_free;
    let is_bound = is_usable && attach(fabric, window, qpn, b);
    if is_bound {
        window.generation.set(b.key & 0xff);
    }
    window.key.publish(if is_bound { (index << 8) | (b.key & 0xff) } else { before });
    if is_bound { wc_status::SUCCESS } else { wc_status::MW_BIND_ERR }
}

/// Binds `window`, whose key the caller has taken, if `b` is allowed.
fn attach(fabric: &Fabric, window: &MrEntry, qpn: u32, b: &Binding) -> bool {
    if b.len == 0 && window.kind.get() == 1 {
        window.unbind(fabric);
        return true;
    }
    let Some(region) = entry_of(fabric, b.region) else { return false };
    region.windows.add(1); // from here on it cannot be deregistered
    let opens = b.access & (access::REMOTE_WRITE | access::REMOTE_READ | access::REMOTE_ATOMIC);
    // A program may ask for local writing, which is no right of a window: as with mlx5 that has no effect.
    let known = opens | access::ZERO_BASED | access::LOCAL_WRITE;
    let writes = b.access & (access::REMOTE_WRITE | access::REMOTE_ATOMIC) != 0;
    let rights = access::MW_BIND | if writes { access::LOCAL_WRITE } else { 0 };
    let offset = b.addr.wrapping_sub(region.iova.get());
    let is_allowed = region.key.seen() == b.region
        && region.kind.get() == REGION
        && region.pd.get() == window.pd.get()
        && region.access.get() & rights == rights
        && b.access & !known == 0
        && b.len <= region.len.get()
        && offset <= region.len.get() - b.len;
    if !is_allowed {
        region.windows.add(u32::MAX);
        return false;
    }
    window.unbind(fabric);
    window.owner.set(region.owner.get());
    window.addr.set(region.addr.get() + offset);
    window.len.set(b.len);
    window.iova.set(if b.access & access::ZERO_BASED == 0 { b.addr } else { 0 });
    window.qpn.set(if window.kind.get() == 2 { qpn } else { 0 });
    window.bound_to.set(b.region >> 8);
    window.access.set(opens);
    true
}

/// The window of type 2 that `key` names, if queue pair `qpn` of domain `pd` may invalidate it.
pub(crate) fn invalidable(fabric: &Fabric, key: u32, pd: u32, qpn: u32) -> Option<&'static MrEntry> {
    entry_of(fabric, key).filter(|window| {
        window.kind.get() == 2 && window.is_bound() && window.pd.get() == pd && window.qpn.get() == qpn
    })
}

/// Frees the window of type 2 that `key` names, if it was bound by this queue pair.
#[cold]
pub(crate) fn invalidate(fabric: &Fabric, key: u32, pd: u32, qpn: u32) -> bool {
    let Some(window) = invalidable(fabric, key, pd, qpn) else { return false };
    if !window.key.replace(key, TAKEN) {
        return false;
    }
    window.unbind(fabric);
    window.key.publish(key);
    true
}
