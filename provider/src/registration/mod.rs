// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registrations of a program's memory with the adapter of an endpoint, so that long messages are read without a copy,
//! and the data of long one-sided operations.
//!
//! An operation registers its data, and gives the registration back once its peer, or the adapter, has done with it.
//! `cache` keeps it for later ones, until the memory monitor of `ffi` tells that the program has changed its pages.
//! Without a monitor nothing is kept. Called by `host/memory.rs` and `rma/local.rs`. Grade: pending. Threads: the one that has entered the endpoint.
//! Tests: in `cache/`, and `hw-tests/libfabric/fi_freed_memory.c`.

mod cache;

use std::io;
use std::ops::Range;
use std::sync::Arc;

use ibex::events::{self, RegistrationMiss, Safety};
use ibex_ffi::monitor::{Changed, Monitor};
use ibex_ffi::verbs::{Access, MemoryRegion, ProtectionDomain};

use crate::{log, sys};
use cache::{Bound, Cache};

/// Shortest message whose memory is registered, bytes: if registrations are kept, and if not. Below it two copies cost
/// less than the system calls that pin the pages and let them go, which kept registrations save most messages.
const SHORTEST: usize = 64 << 10;
const SHORTEST_UNKEPT: usize = 256 << 10;

/// Most registrations that are kept and not in use. Their bytes are bounded by a share of the host's memory.
const MOST: usize = 1024;
const SHARE: usize = 4;

/// The variable that sets the number instead.
const COUNT: &str = "FI_MR_CACHE_MAX_COUNT";

/// Registrations are of whole pages, of at least this size.
const PAGE: usize = 4096;

/// The registrations of an endpoint.
pub(crate) struct Registrations {
    domain: Arc<ProtectionDomain>,
    cache: Cache<MemoryRegion>,
    /// Tells what has changed; `None`: it cannot, so nothing is kept.
    monitor: Option<Monitor>,
    counts: Counts,
}

/// What has happened, for the line that an endpoint prints when it is closed.
#[derive(Debug, Default)]
struct Counts {
    /// Registrations made.
    made: usize,
    /// Operations that found one.
    found: usize,
    /// Registrations that ended because their memory had changed.
    changed: usize,
    /// Registrations that ended for others.
    evicted: usize,
}

/// Names a registration that is in use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registered {
    place: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

impl Registrations {
    /// `processes`: how many share the host's memory.
    pub(crate) fn new(domain: Arc<ProtectionDomain>, processes: usize) -> Self {
        let (bound, monitor) = match watched() {
            Ok(monitor) => {
                let bytes = asked("FI_MR_CACHE_MAX_SIZE").unwrap_or_else(|| memory() / SHARE / processes.max(1));
                (Bound { count: asked(COUNT).unwrap_or(MOST), bytes }, Some(monitor))
            }
            Err(why) => {
                let text = format!("each long message registers its memory anew: {why}");
                log::line(sys::FI_LOG_INFO, sys::FI_LOG_MR, &text);
                (Bound { count: 0, bytes: 0 }, None)
            }
        };
        Registrations { domain, cache: Cache::new(bound), monitor, counts: Counts::default() }
    }

    /// Registers memory of a message, or finds it registered. `None`: it is too short, or the system refuses, as for
    /// read-only memory of a receive or beyond the limit of locked memory.
    ///
    /// # Safety
    /// As for [`Self::register`].
    pub(crate) unsafe fn of_message(&mut self, start: usize, length: usize, access: Access) -> Option<Registered> {
        if length < if self.monitor.is_some() { SHORTEST } else { SHORTEST_UNKEPT } {
            return None;
        }
        // SAFETY: the caller's promise.
        unsafe { self.register(start, length, access) }.ok()
    }

    /// Registers memory of an operation, or finds it registered.
    ///
    /// # Safety
    /// A1: the operation that owns the memory ends only after the registration is given back.
    pub(crate) unsafe fn register(&mut self, start: usize, length: usize, access: Access) -> io::Result<Registered> {
        self.forget_changed();
        let end = start.checked_add(length).and_then(|end| end.checked_next_multiple_of(PAGE));
        let range = start / PAGE * PAGE..end.ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?;
        let is_written = access.contains(Access::LOCAL_WRITE);
        if let Some((place, region)) = self.cache.take(&range, is_written) {
            self.counts.found += 1;
            return Ok(Registered { place, lkey: region.lkey(), rkey: region.rkey() });
        }
        // SAFETY: A1.
        let (region, is_writable) = unsafe { self.make(&range, is_written) }?;
        self.counts.made += 1;
        let (address, bytes) = (range.start as u64, range.len() as u64);
        events::stage(Safety::ThreadSafe, || RegistrationMiss { address, bytes, port: 0 });
        let (lkey, rkey) = (region.lkey(), region.rkey());
        Ok(Registered { place: self.cache.add(range, is_writable, region), lkey, rkey })
    }

    /// Registers for messages in both directions, or, if the memory cannot be written, for sends. Others end if the
    /// system has no room. Returns whether it can be written.
    ///
    /// # Safety
    /// A1, as for [`Self::register`].
    unsafe fn make(&mut self, range: &Range<usize>, is_written: bool) -> io::Result<(MemoryRegion, bool)> {
        let mut is_writable = true;
        loop {
            // The completion of a read tells when the data has arrived, so it may arrive in any order.
            let writes = if is_writable { Access::LOCAL_WRITE | Access::RELAXED_ORDERING } else { Access::empty() };
            // SAFETY: A1: the program keeps the pages of the memory until the end of the operation, which comes later;
            // then it may change them, and `forget_changed` ends the registration before a work request names it.
            match unsafe { self.domain.register(range.start, range.len(), Access::REMOTE_READ | writes) } {
                Ok(region) => return Ok((region, is_writable)),
                Err(error) if is_of_memory(&error) => {
                    if is_written || !is_writable {
                        return Err(error);
                    }
                    is_writable = false;
                }
                Err(_) if self.cache.evict() => self.counts.evicted += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes a registration back, which no posted work request names.
    pub(crate) fn give_back(&mut self, registered: Registered) {
        self.counts.evicted += self.cache.give_back(registered.place);
    }

    /// Forgets the registrations of memory whose pages have changed.
    fn forget_changed(&mut self) {
        let Some(monitor) = &mut self.monitor else { return };
        monitor.changes(|changed| {
            self.counts.changed += match changed {
                Changed::Range(range) => self.cache.forget_range(&range),
                Changed::Any => self.cache.forget_all(),
            };
        });
    }
}

/// Begins to watch the program's memory, unless the user wants no cache (`fi_mr(3)`).
fn watched() -> Result<Monitor, String> {
    let is_disabled = std::env::var("FI_MR_CACHE_MONITOR").is_ok_and(|monitor| monitor == "disabled");
    if is_disabled || asked(COUNT) == Some(0) {
        return Err("the environment asks for no cache".to_owned());
    }
    // SAFETY: the library is linked so that it is never unloaded (`build.rs`).
    unsafe { Monitor::start() }
}

/// Returns the bound that the user sets by an environment variable of libfabric.
fn asked(variable: &str) -> Option<usize> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Whether the memory itself cannot be registered, so that room for it would not help.
fn is_of_memory(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EFAULT | libc::EACCES | libc::EPERM))
}

/// Returns the size of the host's memory, bytes.
fn memory() -> usize {
    // SAFETY: questions.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    usize::try_from(pages).unwrap_or(0).saturating_mul(usize::try_from(size).unwrap_or(0))
}

impl Drop for Registrations {
    /// Prints what has happened.
    fn drop(&mut self) {
        let Counts { made, found, changed, evicted } = self.counts;
        let text = format!(
            "{made} registrations of data, found by {found} more; {changed} ended with their pages, {evicted} for others"
        );
        log::line(sys::FI_LOG_INFO, sys::FI_LOG_MR, &text);
    }
}
