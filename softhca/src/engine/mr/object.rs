// SPDX-License-Identifier: MIT OR Apache-2.0
//! A memory region as a program holds it: registered, changed, ended. Called by: `verbs`. Grade: setup. Thread rule:
//! any thread; it is the program's error to change a region while it uses it.

use std::sync::{Arc, Mutex, PoisonError};

use crate::behaviour::OptionalAccess;
use crate::engine::codes::{OPTIONAL_ACCESS, access};
use crate::engine::copy::is_mapped;
use crate::engine::faults::verdict::on_register;
use crate::engine::memory::layout::mr_at;
use crate::engine::mr::table::{LOCAL, MrEntry, Range, TAKEN, is_bound_to, take_entry};
use crate::engine::{Errno, Hca, Pd, Result, Use};

/// A memory region.
pub struct Mr {
    hca: Arc<Hca>,
    key: u32,
    /// Its domain, and the pages it counts as locked; `None` once it has ended.
    holds: Mutex<Option<(Use, u64)>>,
}

impl Mr {
    /// Registers other memory, in another domain or with other rights, under the same key. On failure nothing changes.
    /// Errors: as for registering; EINVAL if the registration has ended, EBUSY while a memory window is bound to it.
    pub fn change(&self, pd: &Pd, addr: u64, len: u64, iova: u64, flags: u32) -> Result<()> {
        may_register(pd, addr, len, flags)?;
        let mut holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_, before)) = *holds else { return Err(Errno(libc::EINVAL)) };
        let fabric = &pd.hca.fabric;
        let pages = fabric.locked.lock(addr, len)?; // for a moment both are locked, as with an adapter
        let entry: &MrEntry = fabric.region().at(mr_at(self.key >> 8));
        // No request finds the region while it changes.
        if !self.begin_end(entry) {
            fabric.locked.unlock(pages);
            return Err(Errno(libc::EBUSY));
        }
        entry.describe(fabric, pd.id, &Range { addr, len, iova }, flags | LOCAL);
        entry.key.publish(self.key);
        fabric.locked.unlock(before);
        *holds = Some((pd.users.enter(), pages));
        Ok(())
    }

    /// Returns its key, local and remote.
    pub fn key(&self) -> u32 {
        self.key
    }

    /// Hides the region; returns `false`, and changes nothing, if windows are bound to it.
    fn begin_end(&self, entry: &MrEntry) -> bool {
        // A thread that binds a window counts it first, and then looks at the key.
        entry.key.swap(TAKEN);
        let is_bound = entry.windows.add(0) != 0 && is_bound_to(&self.hca.fabric, self.key >> 8);
        if is_bound {
            entry.key.publish(self.key);
        }
        !is_bound
    }

    /// Ends the registration.
    /// Errors: EBUSY while a memory window is bound to it.
    pub fn destroy(&self) -> Result<()> {
        let mut holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_, pages)) = &*holds else { return Ok(()) };
        let fabric = &self.hca.fabric;
        let entry: &MrEntry = fabric.region().at(mr_at(self.key >> 8));
        if !self.begin_end(entry) {
            return Err(Errno(libc::EBUSY));
        }
        entry.free();
        fabric.locked.unlock(*pages);
        *holds = None;
        Ok(())
    }
}

impl Pd {
    /// Registers memory; `flags` is `codes::access`.
    /// Errors: EINVAL (remote write or atomic without local write), EFAULT (not mapped), EOPNOTSUPP, ENOMEM (no entry
    /// left, or more than `RLIMIT_MEMLOCK` without `CAP_IPC_LOCK`).
    pub fn reg_mr(&self, addr: u64, len: u64, iova: u64, flags: u32) -> Result<Mr> {
        let fabric = &self.hca.fabric;
        if fabric.has_faults {
            on_register(fabric, self.hca.device)?;
        }
        may_register(self, addr, len, flags)?;
        let pages = fabric.locked.lock(addr, len)?;
        let key =
            take_entry(fabric, |entry| entry.describe(fabric, self.id, &Range { addr, len, iova }, flags | LOCAL))
                .inspect_err(|_| fabric.locked.unlock(pages))?;
        if let Some(trace) = &fabric.trace {
            trace.registered(self.hca.spec(), flags, len);
        }
        Ok(Mr { hca: Arc::clone(&self.hca), key, holds: Mutex::new(Some((self.users.enter(), pages))) })
    }
}

fn may_register(pd: &Pd, addr: u64, len: u64, flags: u32) -> Result<()> {
    let known = access::LOCAL_WRITE
        | access::REMOTE_WRITE
        | access::REMOTE_READ
        | access::REMOTE_ATOMIC
        | access::MW_BIND
        | access::HUGETLB
        | access::ZERO_BASED
        | OPTIONAL_ACCESS;
    let is_refused = pd.hca.behaviour().optional_access == OptionalAccess::Eopnotsupp;
    if flags & access::ON_DEMAND != 0 || (flags & OPTIONAL_ACCESS != 0 && is_refused) {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let remote_writes = flags & (access::REMOTE_WRITE | access::REMOTE_ATOMIC) != 0;
    if flags & !known != 0 || (remote_writes && flags & access::LOCAL_WRITE == 0) || addr.checked_add(len).is_none() {
        return Err(Errno(libc::EINVAL));
    }
    // As from pinning.
    if is_mapped(addr, len) { Ok(()) } else { Err(Errno(libc::EFAULT)) }
}
