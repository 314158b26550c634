// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory regions (`fi_mr(3)`): memory of the program that peers may read or write, registered with the protection
//! domain of its domain. Peers name it by the adapter's key and by virtual addresses (`FI_MR_PROV_KEY`,
//! `FI_MR_VIRT_ADDR`).
//!
//! An adapter does not tell the target of accesses. A region that counts them (`FI_RMA_EVENT`) says so by a bit of its
//! key ([`COUNTED`]), so peers tell. Operations of an endpoint with itself do not use the adapter. They find the region
//! in the domain's [`Regions`], and check the same. Grade: setup; [`Regions`] pending. Threads: any. Tests: below,
//! `tests/`, and `hw-tests`.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::io;
use std::sync::Arc;

use ibex::limits;
use ibex_ffi::verbs::{self, Access};
use parking_lot::Mutex;

use crate::atomic::by::By;
use crate::cntr::Counter;
use crate::domain::Domain;
use crate::entry::{Result, done, table};
use crate::fid::{self, Class, give, head, object, object_if};
use crate::{log, sys};

/// Access to a region that a program may ask for.
const ACCESS: u64 =
    sys::FI_SEND | sys::FI_RECV | sys::FI_READ | sys::FI_WRITE | sys::FI_REMOTE_READ | sys::FI_REMOTE_WRITE;

/// Access that a region counts (`fi_mr_bind`).
const REMOTE: u64 = sys::FI_REMOTE_READ | sys::FI_REMOTE_WRITE;

/// Right of a region's peers to the adapter's atomic operations: flags of both accesses, because each reads and writes.
pub(crate) const ATOMIC: u64 = REMOTE;

/// Bit of the key of a region that counts accesses: the peer that did one tells the target (`rma/notice.rs`). The lower
/// half of a key is the adapter's.
const COUNTED: u64 = 1 << 63;

/// Whether the region with this key counts accesses.
pub(crate) const fn is_counted(key: u64) -> bool {
    key & COUNTED != 0
}

/// Returns the adapter's key; `None` if no region has this one.
pub(crate) fn adapter_key(key: u64) -> Option<u32> {
    u32::try_from(key & !COUNTED).ok()
}

/// A memory region. While it is open, its memory stays mapped (`FI_MR_ALLOCATED`).
pub(crate) struct MemoryRegion {
    key: u64,
    domain: Arc<Domain>,
    _registered: verbs::MemoryRegion,
}

impl Class for MemoryRegion {
    type Fid = sys::fid_mr;

    const NUMBER: u32 = sys::FI_CLASS_MR;
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        self.domain.regions.0.lock().remove(&self.key);
    }
}

struct Region {
    start: u64,
    length: usize,
    access: u64,
    /// With the accesses that each counts.
    counters: Vec<(Arc<Counter>, u64)>,
}

impl Region {
    /// Whether it permits all of `access` to this range.
    fn permits(&self, address: u64, length: usize, access: u64) -> bool {
        let inside = |offset| offset <= self.length as u64 && length as u64 <= self.length as u64 - offset;
        self.access & access == access && address.checked_sub(self.start).is_some_and(inside)
    }
}

/// The open regions of a domain, by key.
#[derive(Default)]
pub(crate) struct Regions(Mutex<HashMap<u64, Region>>);

impl Regions {
    /// Whether a region with this key permits `access` (`FI_REMOTE_*`) to the range.
    pub(crate) fn check(&self, key: u64, (address, length): (u64, usize), access: u64) -> bool {
        self.0.lock().get(&key).is_some_and(|region| region.permits(address, length, access))
    }

    /// Runs `body` if a region with this key permits `access` to the range. It stays open meanwhile.
    pub(crate) fn within<R>(
        &self,
        key: u64,
        (address, length): (u64, usize),
        access: u64,
        body: impl FnOnce() -> R,
    ) -> Option<R> {
        let regions = self.0.lock();
        let region = regions.get(&key)?;
        region.permits(address, length, access).then(body)
    }

    /// Counts an operation that has accessed the regions with these keys. `access`: `FI_REMOTE_*`.
    pub(crate) fn count(&self, keys: &[u64], access: u64) {
        let regions = self.0.lock();
        let counters = keys.iter().filter_map(|key| regions.get(key)).flat_map(|region| &region.counters);
        counters.filter(|(_, counted)| counted & access != 0).for_each(|(counter, _)| counter.count(false));
    }

    /// Returns regions of which there is one.
    #[cfg(test)]
    pub(crate) fn of(key: u64, (start, length): (u64, usize), access: u64) -> Self {
        Regions(Mutex::new(HashMap::from([(key, Region { start, length, access, counters: Vec::new() })])))
    }
}

/// Returns the adapter's rights for `access`. A right to write for peers needs that of this process.
fn rights(access: u64, atomics: By) -> Access {
    let is_atomic = atomics == By::Adapter && access & ATOMIC == ATOMIC;
    let local = sys::FI_RECV | sys::FI_READ | sys::FI_REMOTE_WRITE;
    [
        (local, Access::LOCAL_WRITE),
        (sys::FI_REMOTE_WRITE, Access::REMOTE_WRITE),
        (sys::FI_REMOTE_READ, Access::REMOTE_READ),
    ]
    .into_iter()
    .filter(|(flags, _)| access & flags != 0)
    .fold(if is_atomic { Access::REMOTE_ATOMIC } else { Access::empty() }, |rights, (_, right)| rights | right)
}

/// Registers memory for the adapter's accesses. Prints why it cannot.
///
/// # Safety
/// While the registration lives, the memory stays mapped to the same pages, and `access` does not conflict with a Rust
/// reference (R1).
unsafe fn registered(
    domain: &Arc<verbs::ProtectionDomain>,
    (start, length): (usize, usize),
    access: Access,
) -> Result<verbs::MemoryRegion> {
    // SAFETY: the caller's promise.
    unsafe { domain.register(start, length, access) }.map_err(|error| refused((start, length), &error))
}

/// Prints why memory cannot be registered. Returns the error number.
pub(crate) fn refused((start, length): (usize, usize), error: &io::Error) -> u32 {
    let advice = limits::advice(error, Some(length as u64)).map_or_else(String::new, |advice| format!(". {advice}"));
    let why = format!("registering {length} bytes at {start:#x} failed: {error}{advice}");
    log::line(sys::FI_LOG_WARN, sys::FI_LOG_MR, &why);
    error.raw_os_error().map_or(sys::FI_EIO, |number| number as u32)
}

static OPERATIONS: sys::fi_ops = table!(fi_ops {
    close: fid::close::<MemoryRegion>, bind: bind, control: control;
    absent: ops_open, tostr, ops_set,
});

/// The functions of a domain that register memory.
pub(crate) static FUNCTIONS: sys::fi_ops_mr = table!(fi_ops_mr { reg: reg, regv: regv, regattr: regattr; absent: });

/// # Safety
/// F1, F2: `iov` is null or has `count` elements. The memory stays mapped until the region is closed.
unsafe fn register(
    domain: *mut sys::fid,
    (iov, count): (*const sys::iovec, usize),
    (access, offset, flags): (u64, u64, u64),
    place: *mut *mut sys::fid_mr,
    context: *mut c_void,
) -> Result<()> {
    // SAFETY: F1.
    let domain = unsafe { object::<Domain>(domain) };
    let is_counted =
        domain.targets.as_ref().is_some_and(|targets| targets.all_regions || flags & sys::FI_RMA_EVENT != 0);
    if flags & !sys::FI_RMA_EVENT != 0 || (flags != 0 && !is_counted) {
        return Err(sys::FI_EBADFLAGS);
    }
    // SAFETY: F2.
    let memory = unsafe { iov.as_ref() }.filter(|_| count == 1).ok_or(sys::FI_EINVAL)?;
    let (start, length) = (memory.iov_base.expose_provenance(), memory.iov_len);
    if length == 0 || offset != 0 || access & !ACCESS != 0 {
        return Err(sys::FI_EINVAL);
    }
    let rights = rights(access, domain.atomics()?);
    // SAFETY: the caller's promise; the provider makes no reference to memory of a program.
    let registered = unsafe { registered(domain.device()?.domain(), (start, length), rights) }?;
    let key = u64::from(registered.rkey()) | if is_counted { COUNTED } else { 0 };
    domain.regions.0.lock().insert(key, Region { start: start as u64, length, access, counters: Vec::new() });
    let region = MemoryRegion { key, domain: Arc::clone(domain), _registered: registered };
    let fid = head::<MemoryRegion>(context, &OPERATIONS);
    // Operations need no descriptor (`FI_MR_LOCAL`); this one only differs from null.
    let mem_desc = std::ptr::without_provenance_mut(key as usize);
    // SAFETY: F2.
    unsafe { give(sys::fid_mr { fid, mem_desc, key }, Arc::new(region), place) }
}

/// `fi_mr_reg`. The requested key is ignored, because keys are the adapter's.
unsafe extern "C" fn reg(
    domain: *mut sys::fid,
    buffer: *const c_void,
    length: usize,
    access: u64,
    offset: u64,
    _: u64,
    flags: u64,
    place: *mut *mut sys::fid_mr,
    context: *mut c_void,
) -> c_int {
    let memory = sys::iovec { iov_base: buffer.cast_mut(), iov_len: length };
    // SAFETY: F1, F2.
    done("fi_mr_reg", || unsafe { register(domain, (&raw const memory, 1), (access, offset, flags), place, context) })
}

/// `fi_mr_regv`.
unsafe extern "C" fn regv(
    domain: *mut sys::fid,
    iov: *const sys::iovec,
    count: usize,
    access: u64,
    offset: u64,
    _: u64,
    flags: u64,
    place: *mut *mut sys::fid_mr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: F1, F2.
    done("fi_mr_regv", || unsafe { register(domain, (iov, count), (access, offset, flags), place, context) })
}

/// `fi_mr_regattr`.
unsafe extern "C" fn regattr(
    domain: *mut sys::fid,
    attributes: *const sys::fi_mr_attr,
    flags: u64,
    place: *mut *mut sys::fid_mr,
) -> c_int {
    done("fi_mr_regattr", || {
        // SAFETY: F2.
        let of = unsafe { attributes.as_ref() }.ok_or(sys::FI_EINVAL)?;
        let memory = (sys::mr_iov(of), of.iov_count);
        // SAFETY: F1, F2.
        unsafe { register(domain, memory, (of.access, of.offset, flags), place, of.context) }
    })
}

/// `fi_mr_bind`: a counter of peers' accesses.
unsafe extern "C" fn bind(region: *mut sys::fid, other: *mut sys::fid, flags: u64) -> c_int {
    done("fi_mr_bind", || {
        // SAFETY: F1.
        let (region, counter) = unsafe { (object::<MemoryRegion>(region), object_if::<Counter>(other)) };
        let counter = counter.filter(|_| flags != 0 && flags & !REMOTE == 0).ok_or(sys::FI_EINVAL)?;
        if !Arc::ptr_eq(&region.domain, &counter.domain) {
            return Err(sys::FI_EDOMAIN);
        }
        let targets = region.domain.targets.as_ref().filter(|_| is_counted(region.key)).ok_or(sys::FI_ENOSYS)?;
        let mut regions = region.domain.regions.0.lock();
        let counters = &mut regions.get_mut(&region.key).ok_or(sys::FI_EINVAL)?.counters;
        if counters.iter().any(|(_, counted)| counted & flags != 0) {
            return Err(sys::FI_EINVAL);
        }
        counter.count_with(targets)?;
        counters.push((Arc::clone(counter), flags));
        Ok(())
    })
}

/// `fi_control`: `fi_mr_enable`. Peers may access a region at once.
unsafe extern "C" fn control(_: *mut sys::fid, command: c_int, _: *mut c_void) -> c_int {
    done("fi_control", || if command as u32 == sys::FI_ENABLE { Ok(()) } else { Err(sys::FI_ENOSYS) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_permits_what_it_was_registered_for_within_its_bounds() {
        let regions = Regions::of(7, (0x1000, 64), sys::FI_REMOTE_READ);
        let may = |key, address, length, access| regions.check(key, (address, length), access);
        let (read, write) = (sys::FI_REMOTE_READ, sys::FI_REMOTE_WRITE);
        assert!(may(7, 0x1000, 64, read) && may(7, 0x103f, 1, read) && may(7, 0x1040, 0, read));
        assert!(!may(7, 0x1000, 64, write) && !may(7, 0x1000, 64, read | write), "it is only read");
        assert!(!may(7, 0x1000, 65, read) && !may(7, 0xfff, 1, read) && !may(7, 0x1041, 0, read));
        assert!(!may(7, u64::MAX, 8, read) && !may(7, 0x1001, usize::MAX, read));
        assert!(!may(8, 0x1000, 1, read) && !may(7 | 1 << 32, 0x1000, 1, read), "another key");
        assert!(!may(7 | COUNTED, 0x1000, 1, read), "it counts nothing");
        assert_eq!([7, 7 | COUNTED, 7 | 1 << 32].map(adapter_key), [Some(7), Some(7), None]);
    }

    #[test]
    fn a_right_of_peers_to_write_includes_that_of_the_adapter() {
        let rights_of = |access| rights(access, By::Processor);
        assert_eq!(rights_of(sys::FI_REMOTE_WRITE), Access::LOCAL_WRITE | Access::REMOTE_WRITE);
        assert_eq!(rights_of(sys::FI_REMOTE_READ | sys::FI_SEND), Access::REMOTE_READ);
        assert_eq!(rights_of(sys::FI_RECV), Access::LOCAL_WRITE);
    }

    #[test]
    fn peers_have_the_adapters_atomics_if_the_user_wants_them_and_they_may_read_and_write() {
        for (access, by, has) in [
            (REMOTE, By::Adapter, true),
            (REMOTE, By::Processor, false),
            (REMOTE, By::Nobody, false),
            (sys::FI_REMOTE_WRITE, By::Adapter, false),
        ] {
            assert_eq!(rights(access, by).contains(Access::REMOTE_ATOMIC), has, "{access:#x}, {by:?}");
        }
    }
}
