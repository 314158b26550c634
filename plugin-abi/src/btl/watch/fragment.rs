// SPDX-License-Identifier: MIT OR Apache-2.0
//! What ob1 has noted of a message that its receiver reads: for one whose announcement passed when nobody was
//! registered.
//!
//! Nothing is kept of a message while nobody is registered for any, so what it is must be found when the rest of it
//! passes: at the receiver in the fragment that ob1 gives to `btl_get`, at the sender in the one by whose name ob1 is
//! told of the read, and which ob1 is about to look at itself. How a fragment is laid out is in `ffi/openmpi/ob1.c`; a
//! function is ob1's if it is in the file of ob1's component, and what is read is used only if it agrees with itself.
//! Where ob1 is no file of its own nothing is found. Called by `incoming` and `operation`. Path: behind the branch of a
//! site. Threads: any. Tests: `hw-tests/tools/peruse_windows.c`, and below.

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

use ibex_ffi::openmpi::sys;

use super::ob1::{self, Envelope, Header};
use super::step::{Read, Sent};

/// The file of ob1's component, as its name begins.
const OB1: &[u8] = b"mca_pml_ob1";

/// The read that ob1 has begun with this callback and data; `None` where it is none of a message of ob1's.
///
/// # Safety
/// Both are of a `btl_get` that has been called and whose callback has not been.
pub(super) unsafe fn read(callback: sys::mca_btl_base_rdma_completion_fn_t, data: *mut c_void) -> Option<Read> {
    if data.is_null() || !is_ob1s(callback? as usize) {
        return None;
    }
    let mut noted = MaybeUninit::<sys::ibex_read>::uninit();
    // SAFETY: a function of ob1's gets fragments of ob1's, and this one, as the caller says, was not called yet.
    unsafe { sys::ibex_ob1_read(data, noted.as_mut_ptr()) };
    // SAFETY: just written.
    let noted = unsafe { noted.assume_init() };
    consistent(&noted.header, noted.offset, noted.length)
}

fn consistent(header: &[u8], offset: u64, length: u64) -> Option<Read> {
    let (announcement, _) = ob1::header(ob1::GET, header)?;
    let Header::Get { total, .. } = announcement else { return None };
    let is_within = offset.checked_add(length).is_some_and(|end| length > 0 && end <= total);
    is_within.then_some(Read { announcement, offset })
}

/// The message of a fragment of this process, by which its receiver tells that it has read.
///
/// # Safety
/// ob1 gave the name to that receiver, and is not told yet.
pub(super) unsafe fn sent(fragment: u64) -> Option<(Envelope, Sent)> {
    let fragment: *const c_void = std::ptr::with_exposed_provenance(fragment as usize);
    if fragment.is_null() {
        return None;
    }
    let mut noted = MaybeUninit::<sys::ibex_announced>::uninit();
    // SAFETY: the caller says that ob1 gave the name: a fragment of ob1's, which it is about to look at itself.
    if !unsafe { sys::ibex_ob1_announced(fragment, noted.as_mut_ptr()) } {
        return None;
    }
    // SAFETY: it says that it has written it.
    let noted = unsafe { noted.assume_init() };
    let envelope = Envelope {
        context: u16::try_from(noted.context).ok()?,
        source: noted.source,
        tag: noted.tag,
        sequence: noted.sequence,
    };
    Some((envelope, Sent { request: noted.request, total: noted.total, done: noted.total - noted.left }))
}

/// Whether a function is ob1's. What was found of the last few is kept; layers have no more.
fn is_ob1s(function: usize) -> bool {
    /// Set in what is kept of a function of ob1's; no address has it.
    const IS: usize = 1 << (usize::BITS - 1);
    static KEPT: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    if let Some(kept) = KEPT.iter().map(|kept| kept.load(Ordering::Relaxed)).find(|kept| kept & !IS == function) {
        return kept & IS != 0;
    }
    let is = is_in(function, OB1);
    let place = NEXT.fetch_add(1, Ordering::Relaxed) % KEPT.len();
    KEPT[place].store(if is { function | IS } else { function }, Ordering::Relaxed);
    is
}

/// Whether a function is in a file whose name, without the folder, begins so.
fn is_in(function: usize, start: &[u8]) -> bool {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: asks for an address, whatever it is; the result is a live local.
    let found = unsafe { libc::dladdr(std::ptr::with_exposed_provenance(function), info.as_mut_ptr()) };
    if found == 0 {
        return false;
    }
    // SAFETY: found, so written.
    let name = unsafe { info.assume_init() }.dli_fname;
    if name.is_null() {
        return false;
    }
    // SAFETY: the loader's string, which lasts as long as the file is loaded: it has a function that is about to be
    // called.
    let path = unsafe { CStr::from_ptr(name) }.to_bytes();
    path.rsplit(|byte| *byte == b'/').next().is_some_and(|file| file.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn of_another(
        _: *mut sys::mca_btl_base_module_t,
        _: *mut sys::mca_btl_base_endpoint_t,
        _: *mut c_void,
        _: *mut sys::mca_btl_base_registration_handle_t,
        _: *mut c_void,
        _: *mut c_void,
        _: std::ffi::c_int,
    ) {
    }

    #[test]
    fn what_another_layer_reads_is_not_looked_at() {
        let nowhere = std::ptr::without_provenance_mut(0x10);
        // SAFETY: not ob1's, so the pointer is not followed.
        let another = unsafe { read(Some(of_another), nowhere) };
        assert_eq!(another, None);
        // SAFETY: no callback, so the pointer is not followed.
        let none = unsafe { read(None, nowhere) };
        assert_eq!(none, None);
        let function = of_another as *const () as usize;
        assert!(is_in(function, b"ibex_plugin_abi") || is_in(function, b"ibex"), "the test's own file");
        assert!(!is_in(function, OB1) && !is_in(1, b""));
    }

    #[test]
    fn a_read_must_be_of_an_announcement_and_within_the_message() {
        let mut header = [0_u8; ob1::LONGEST];
        header[0] = ob1::GET;
        header[16..24].copy_from_slice(&100_u64.to_ne_bytes());
        assert!(consistent(&header, 40, 60).is_some_and(|read| read.offset == 40));
        assert_eq!(consistent(&header, 40, 61), None);
        assert_eq!(consistent(&header, u64::MAX, 2), None);
        assert_eq!(consistent(&header, 0, 0), None);
        header[0] = ob1::MATCH;
        assert_eq!(consistent(&header, 40, 60), None);
    }
}
