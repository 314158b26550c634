// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies bytes between pieces of memory, within this process or between it and another one.
//! Called by: wire, cq, send. Grade: hot; within the process a copy (`guarded`), else one system call
//! (`process_vm_readv`/`writev`) for up to 2^31 bytes. Both fail with EFAULT where memory is not mapped (any more).
//! Pieces are copied in order. Thread rule: any thread. Memory rule: pieces were checked against a registration
//! (`mr::table::find`), or are inline data of the caller, so they belong to the adapter until the request completes; the
//! engine keeps no reference to them. Pieces are only numbers: callers say that the rule holds.

use libc::iovec;

use super::{Errno, Result, Sge, guarded};
use crate::limits::MOST_SGE;

#[derive(Clone, Copy)]
pub(crate) struct Memory<'a> {
    /// `None`: this process (or the shared region).
    pub(crate) pid: Option<u32>,
    pub(crate) pieces: &'a [iovec],
}

pub(crate) struct Pieces {
    list: [std::mem::MaybeUninit<iovec>; MOST_SGE + 1],
    used: usize,
    pub(crate) bytes: u64,
}

impl Pieces {
    pub(crate) fn new() -> Pieces {
        Pieces { list: [const { std::mem::MaybeUninit::uninit() }; MOST_SGE + 1], used: 0, bytes: 0 }
    }

    #[inline]
    pub(crate) fn one(addr: u64, len: u64) -> Pieces {
        let mut pieces = Pieces::new();
        pieces.push(addr, len);
        pieces
    }

    /// Appends the memory of a request with inline data.
    pub(crate) fn extend(&mut self, list: &[Sge]) {
        for sge in list {
            self.push(sge.addr, u64::from(sge.length));
        }
    }

    /// Appends a piece; the caller has checked that it fits.
    #[inline]
    pub(crate) fn push(&mut self, addr: u64, len: u64) {
        self.list[self.used].write(iovec { iov_base: addr as *mut libc::c_void, iov_len: len as usize });
        self.used += 1;
        self.bytes += len;
    }

    /// Returns the pieces as memory of this process.
    pub(crate) fn here(&self) -> Memory<'_> {
        Memory { pid: None, pieces: self.as_slice() }
    }

    pub(crate) fn as_slice(&self) -> &[iovec] {
        // SAFETY: the first `used` were written by `push`, and MaybeUninit has the layout of what it holds.
        unsafe { std::slice::from_raw_parts(self.list.as_ptr().cast(), self.used) }
    }
}

/// Returns up to `len` bytes of the memory, from byte `skip` on.
pub(crate) fn window(list: &[iovec], mut skip: u64, mut len: u64) -> Pieces {
    let mut out = Pieces::new();
    for piece in list {
        let size = piece.iov_len as u64;
        let past = skip.min(size);
        skip -= past;
        let take = (size - past).min(len);
        if take > 0 {
            out.push(piece.iov_base as u64 + past, take);
            len -= take;
        }
    }
    out
}

/// Copies the bytes of `from`, all of it this process's, to `to`.
/// # Safety
/// The pieces may be read (memory rule), and `to` may be written for the sum of their bytes.
#[inline]
pub(crate) unsafe fn gather(mut to: *mut u8, from: &[iovec]) -> Result<()> {
    for piece in from {
        // SAFETY: the caller's pieces and room.
        unsafe { guarded::copy(to, piece.iov_base.cast::<u8>(), piece.iov_len) }?;
        // SAFETY: still within, or one past, what `to` has room for.
        to = unsafe { to.add(piece.iov_len) };
    }
    Ok(())
}

/// Copies up to `len` bytes at `from` to the pieces `to`, all of them this process's.
/// # Safety
/// The pieces may be written (memory rule), and `from` may be read for `len` bytes.
#[inline]
pub(crate) unsafe fn scatter(to: &[iovec], mut from: *const u8, mut len: usize) -> Result<()> {
    for piece in to {
        let part = piece.iov_len.min(len);
        // SAFETY: the caller says that the pieces may be written, and `from` be read for `len` bytes.
        unsafe { guarded::copy(piece.iov_base.cast::<u8>(), from, part) }?;
        // SAFETY: within, or one past, what `from` has.
        from = unsafe { from.add(part) };
        len -= part;
        if len == 0 {
            break;
        }
    }
    Ok(())
}

/// Copies `from` to the pieces `to`, which have room for it.
/// ESRCH: the other process is gone; EPERM: no access to it; EFAULT: no memory there; EXDEV: neither is this process's.
/// # Safety
/// Pieces of this process in `to` may be written, and in `from` read (memory rule).
pub(crate) unsafe fn copy(to: Memory, from: Memory) -> Result<()> {
    match (to.pid, from.pid) {
        // SAFETY: the caller says that the pieces of `to` may be written, and those of `from` read.
        (None, None) => unsafe { within(to.pieces, from.pieces) },
        // SAFETY: `from` is this process's, and the caller says that it may be read.
        (Some(pid), None) => unsafe { between(pid, from.pieces, to.pieces, true) },
        // SAFETY: `to` is this process's, and the caller says that it may be written.
        (None, Some(pid)) => unsafe { between(pid, to.pieces, from.pieces, false) },
        (Some(_), Some(_)) => Err(Errno(libc::EXDEV)),
    }
}

/// # Safety
/// The pieces of `to` may be written, and those of `from` read (memory rule).
unsafe fn within(to: &[iovec], from: &[iovec]) -> Result<()> {
    let mut done = 0;
    for piece in from {
        let room = window(to, done, piece.iov_len as u64);
        // SAFETY: the caller says that the pieces may be used so.
        unsafe { scatter(room.as_slice(), piece.iov_base.cast::<u8>(), piece.iov_len) }?;
        done += piece.iov_len as u64;
    }
    Ok(())
}

/// Whether, of two memories between which a copy failed with EFAULT, the first one is not mapped. One of them is this
/// process's: it looks at that one.
#[cold]
pub(crate) fn is_gone(first: Memory, second: Memory) -> bool {
    let is_here =
        |memory: Memory| memory.pieces.iter().all(|piece| is_mapped(piece.iov_base as u64, piece.iov_len as u64));
    if first.pid.is_none() { !is_here(first) } else { is_here(second) }
}

/// Whether all pages of a range of this process are mapped.
pub(crate) fn is_mapped(addr: u64, len: u64) -> bool {
    const PAGES: u64 = 4096;
    let end = (addr + len).next_multiple_of(4096);
    let mut at = addr & !4095;
    let mut resident = [0_u8; PAGES as usize];
    while at < end {
        let bytes = (end - at).min(PAGES * 4096);
        // SAFETY: mincore writes one byte per page asked for, and `resident` has room for that many.
        let done = unsafe { libc::mincore(at as *mut libc::c_void, bytes as usize, resident.as_mut_ptr()) };
        if done != 0 {
            return false;
        }
        at += bytes;
    }
    true
}

/// # Safety
/// The pieces `here` may be read if `write`, else written (memory rule).
unsafe fn between(pid: u32, here: &[iovec], there: &[iovec], write: bool) -> Result<()> {
    let total: usize = here.iter().map(|p| p.iov_len).sum::<usize>().min(there.iter().map(|p| p.iov_len).sum());
    let mut done = 0;
    while done < total {
        let rest = (total - done) as u64;
        let (ours, theirs) = (window(here, done as u64, rest), window(there, done as u64, rest));
        let (ours, theirs) = (ours.as_slice(), theirs.as_slice());
        let call = if write { libc::process_vm_writev } else { libc::process_vm_readv };
        // SAFETY: the kernel checks both sides' ranges; ours may be used so, as the caller says.
        let moved = unsafe {
            call(
                pid as libc::pid_t,
                ours.as_ptr(),
                ours.len() as libc::c_ulong,
                theirs.as_ptr(),
                theirs.len() as libc::c_ulong,
                0,
            )
        };
        if moved < 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        if moved == 0 {
            return Err(Errno(libc::EFAULT));
        }
        done += moved as usize;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_keeps_the_order_of_bytes_between_pieces_of_different_cuts() {
        let from: Vec<u8> = (0..100).collect();
        let mut to = vec![0_u8; 100];
        let (a, b) = (from.as_ptr().expose_provenance() as u64, to.as_mut_ptr().expose_provenance() as u64);
        let (mut f, mut t) = (Pieces::new(), Pieces::new());
        for (at, len) in [(0, 7), (7, 50), (57, 43)] {
            f.push(a + at, len);
        }
        for (at, len) in [(0, 30), (30, 1), (31, 69)] {
            t.push(b + at, len);
        }
        // SAFETY: pieces of the two vectors, which nobody else uses meanwhile.
        unsafe { copy(t.here(), f.here()) }.unwrap();
        assert_eq!(from, to);
        to.fill(0);
        let b = to.as_mut_ptr();
        // SAFETY: pieces of the two vectors, which nobody else uses meanwhile.
        unsafe { gather(b, f.as_slice()) }.unwrap();
        assert_eq!(from, to);
        to.fill(0);
        // SAFETY: pieces of the two vectors, which nobody else uses meanwhile.
        unsafe { scatter(t.as_slice(), from.as_ptr(), 80) }.unwrap();
        assert_eq!((&to[..80], &to[80..]), (&from[..80], &[0; 20][..]));
    }

    #[test]
    fn a_window_skips_and_cuts() {
        let mut pieces = Pieces::new();
        pieces.push(1000, 10);
        pieces.push(2000, 10);
        let window = window(pieces.as_slice(), 12, 5);
        assert_eq!(window.bytes, 5);
        assert_eq!(window.as_slice()[0].iov_base as u64, 2002);
    }
}
