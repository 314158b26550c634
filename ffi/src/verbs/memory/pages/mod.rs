// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages from the kernel for ibex's own memory: huge ones if wanted and available, otherwise ordinary ones.
//!
//! Called by `mapping.rs`, which registers them. With huge pages the receive slots of a port need 16 entries of the
//! adapter's translation table and of the TLB instead of 8192.
//!
//! - **Explicit** ones come from the pool of the host (`vm.nr_hugepages`). Memory gets them if it fills seven
//!   eighths of them. They are populated at once, because a touch of a page that a cgroup forbids would end the
//!   process, and registered whole, since `MADV_DONTFORK` may not end within such a page.
//! - **Transparent** ones are a request to the kernel, which gives them at the first touch or does not.
//!
//! Setup grade; any thread. Sizes in bytes. Tests: at the end of the file, and device tests in `hw-tests`.

use std::fmt;
use std::fs;
use std::io;
use std::ptr::{self, NonNull};

const HUGE: usize = 2 << 20;

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// The huge pages that memory may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// None, unless the kernel gives them unasked.
    No,
    /// Transparent ones.
    Transparent,
    /// Explicit ones if the pool keeps half of its pages when each of the processes takes as many, and a quarter of
    /// them free when this one does; else transparent ones.
    Shared {
        /// Processes of the job on this host.
        processes: u32,
    },
    /// Explicit ones as long as there are any; else transparent ones.
    Explicit,
}

/// The pages that memory has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// Pages that the kernel gives without advice.
    Ordinary,
    /// Pages with the advice to make them transparent huge pages.
    Transparent,
    /// Explicit huge pages.
    Explicit,
}

impl fmt::Display for PageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PageKind::Ordinary => "ordinary pages",
            PageKind::Transparent => "pages for which transparent huge pages were asked",
            PageKind::Explicit => "explicit huge pages",
        })
    }
}

/// Mapped pages, zero at first, unmapped when dropped. A child does not get them.
#[derive(Debug)]
pub(super) struct Pages {
    base: NonNull<u8>,
    bytes: usize,
    kind: PageKind,
}

// SAFETY: pages are tied to no thread.
unsafe impl Send for Pages {}

impl Pages {
    /// Maps explicit huge pages for `bytes` bytes, if `wanted` permits them and the host has them.
    pub(super) fn explicit(bytes: usize, wanted: HugePages) -> Option<Pages> {
        let whole = filled(bytes)?;
        let may_be_taken = match wanted {
            HugePages::No | HugePages::Transparent => false,
            HugePages::Shared { processes } => Pool::now()?.spares(whole / HUGE, processes),
            HugePages::Explicit => true,
        };
        if !may_be_taken {
            return None;
        }
        let base = map(whole, libc::MAP_HUGETLB | libc::MAP_HUGE_2MB).ok()?;
        let pages = Pages { base, bytes: whole, kind: PageKind::Explicit };
        let populated = pages.advise(libc::MADV_POPULATE_WRITE);
        // Linux before 5.14 does not know this advice. Registration then populates the pages, or fails.
        let is_known = populated.as_ref().is_err_and(|error| error.raw_os_error() != Some(libc::EINVAL));
        if is_known {
            return None;
        }
        pages.keep_from_children();
        Some(pages)
    }

    /// Maps pages for `bytes` bytes: transparent huge ones if wanted, if the bytes fill them, and if the kernel has
    /// any.
    pub(super) fn new(bytes: usize, wanted: HugePages) -> io::Result<Pages> {
        let pages = if wanted == HugePages::No || bytes < HUGE || !has_transparent() {
            Pages { base: map(bytes, 0)?, bytes, kind: PageKind::Ordinary }
        } else {
            let mut pages = Pages { base: map_aligned(bytes)?, bytes, kind: PageKind::Transparent };
            if pages.advise(libc::MADV_HUGEPAGE).is_err() {
                pages.kind = PageKind::Ordinary;
            }
            pages
        };
        pages.keep_from_children();
        Ok(pages)
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Their size; explicit huge pages are larger than wanted.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn kind(&self) -> PageKind {
        self.kind
    }

    /// A child must not share them: after a copy on write the adapter would keep the old ones.
    fn keep_from_children(&self) {
        // The kernel knows this advice since 2.6.16.
        let _ = self.advise(libc::MADV_DONTFORK);
    }

    fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        // SAFETY: the range is this value's; none of the advices that this file gives changes its bytes.
        match unsafe { libc::madvise(self.base.as_ptr().cast(), self.bytes, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by this file, unmapped once; nobody has an address in it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Size of the huge pages of which `bytes` bytes fill at least seven eighths; `None`: there are none.
fn filled(bytes: usize) -> Option<usize> {
    let whole = bytes.checked_next_multiple_of(HUGE)?;
    (bytes > 0 && whole - bytes <= bytes / 8).then_some(whole)
}

/// The host's explicit huge pages.
#[derive(Clone, Copy, Debug)]
struct Pool {
    pages: usize,
    /// Free pages that are not reserved.
    available: usize,
}

impl Pool {
    fn now() -> Option<Pool> {
        let count = |file| fs::read_to_string(format!("{POOL}/{file}")).ok()?.trim().parse::<usize>().ok();
        let available = count("free_hugepages")?.saturating_sub(count("resv_hugepages")?);
        Some(Pool { pages: count("nr_hugepages")?, available })
    }

    /// Whether half of the pool is left if each of `processes` takes so many, and a quarter is free if this one does.
    fn spares(self, pages: usize, processes: u32) -> bool {
        let of_all = pages.saturating_mul(processes.max(1) as usize);
        of_all <= self.pages / 2 && pages + self.pages.div_ceil(4) <= self.available
    }
}

fn has_transparent() -> bool {
    fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").is_ok_and(|modes| !modes.contains("[never]"))
}

fn map(bytes: usize, flags: libc::c_int) -> io::Result<NonNull<u8>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
    // SAFETY: a new anonymous mapping at no given address touches nothing that exists.
    let base = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // No mapping starts at address 0 (`mmap(2)`).
    NonNull::new(base.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
}

fn map_aligned(bytes: usize) -> io::Result<NonNull<u8>> {
    let too_large = || io::Error::from_raw_os_error(libc::ENOMEM);
    // SAFETY: asks the system for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let bytes = bytes.checked_next_multiple_of(page).ok_or_else(too_large)?;
    let base = map(bytes.checked_add(HUGE).ok_or_else(too_large)?, 0)?;
    let before = base.as_ptr().align_offset(HUGE);
    // SAFETY: less than `HUGE` further, inside the mapping.
    let start = unsafe { base.add(before) };
    // SAFETY: the whole pages of this mapping before the start, which nobody uses yet.
    unsafe { unmap_some(base, before) };
    // SAFETY: the whole pages of this mapping after the end, which nobody uses yet.
    unsafe { unmap_some(start.add(bytes), HUGE - before) };
    Ok(start)
}

/// # Safety
/// The bytes are mapped, and nobody uses them.
unsafe fn unmap_some(start: NonNull<u8>, bytes: usize) {
    if bytes > 0 {
        // SAFETY: the caller says that the bytes are mapped, and that nobody uses them.
        unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
    }
}

#[cfg(test)]
mod tests;
