// SPDX-License-Identifier: MIT OR Apache-2.0
//! A chain of receive work requests that is linked once and posted from its front again and again.
//!
//! Used by `srq.rs` (hot: filling an entry is three stores and the span). The requests point to one another and to their spans, so all are
//! reached through the one raw pointer that those pointers come from, and through no reference. One thread at a time
//! (`&mut`). Needs no device. Tests: at the end of the file, also under Miri.

use crate::verbs::LocalSpan;
use ibverbs_sys as sys;
use std::io;
use std::ptr::{self, NonNull};

/// A work request, and the one span it receives into.
struct Entry {
    request: sys::ibv_recv_wr,
    span: LocalSpan,
}

/// Work requests in a row, each of which names the next.
#[derive(Debug)]
pub(super) struct Chain {
    /// Of a boxed slice of `length`, which is freed in `drop`.
    entries: NonNull<Entry>,
    length: usize,
}

// SAFETY: the raw pointers in the entries point to nothing but entries, which are the chain's own.
unsafe impl Send for Chain {}

impl Chain {
    /// Makes a chain of at least one request.
    pub(super) fn new(length: usize) -> Chain {
        let length = length.max(1);
        let blank = || sys::ibv_recv_wr { wr_id: 0, next: ptr::null_mut(), sg_list: ptr::null_mut(), num_sge: 1 };
        let entries: Box<[Entry]> = (0..length).map(|_| Entry { request: blank(), span: LocalSpan::EMPTY }).collect();
        let entries = NonNull::from(Box::leak(entries)).cast();
        let chain = Chain { entries, length };
        for index in 0..length {
            let entry = chain.entry(index);
            // SAFETY: an entry of the chain, to which no reference exists; here and below.
            unsafe { (*entry).request.sg_list = (&raw mut (*entry).span).cast() };
            if index + 1 < length {
                // SAFETY: as above.
                unsafe { (*entry).request.next = chain.request(index + 1) };
            }
        }
        chain
    }

    /// The entry at `index`, which is less than the length.
    #[inline]
    fn entry(&self, index: usize) -> *mut Entry {
        self.entries.as_ptr().wrapping_add(index)
    }

    /// The work request at `index`, which is less than the length.
    #[inline]
    fn request(&self, index: usize) -> *mut sys::ibv_recv_wr {
        // SAFETY: the place of a field of an entry.
        unsafe { &raw mut (*self.entry(index)).request }
    }

    /// Fills the front with `receives`, identifiers and spans, as many as fit, and has `post` post them, which is given the first
    /// request and where to name the one that was refused, and answers 0 or an errno value. Returns how many were posted.
    ///
    /// # Errors
    /// When none was posted: what `receives` says, or `post`.
    #[inline]
    pub(super) fn post(
        &mut self,
        receives: impl Iterator<Item = io::Result<(u64, LocalSpan)>>,
        post: impl FnOnce(*mut sys::ibv_recv_wr, *mut *mut sys::ibv_recv_wr) -> i32,
    ) -> io::Result<usize> {
        let mut count = 0;
        for receive in receives.take(self.length) {
            let (id, span) = receive?;
            let entry = self.entry(count);
            // SAFETY: an entry of the chain, as `take` sees to; here and below.
            unsafe { (*entry).request.wr_id = id };
            // SAFETY: as above.
            unsafe { (*entry).span = span };
            count += 1;
        }
        let Some(last) = count.checked_sub(1) else { return Ok(0) };
        // The chain ends here for this once.
        let last = self.entry(last);
        // SAFETY: as above.
        let next = unsafe { ptr::replace(&raw mut (*last).request.next, ptr::null_mut()) };
        let mut bad = ptr::null_mut();
        let code = post(self.request(0), &raw mut bad);
        // SAFETY: as above.
        unsafe { (*last).request.next = next };
        if code == 0 { Ok(count) } else { self.posted_before(bad, count, code) }
    }

    /// How many of `count` requests were posted, of which `bad` was not.
    #[cold]
    fn posted_before(&self, bad: *mut sys::ibv_recv_wr, count: usize, code: i32) -> io::Result<usize> {
        let posted = (1..count).find(|&index| self.request(index) == bad);
        posted.map_or_else(|| crate::verbs::errno(code).map(|()| 0), Ok)
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        let entries = ptr::slice_from_raw_parts_mut(self.entries.as_ptr(), self.length);
        // SAFETY: a boxed slice of this length, leaked in `new` and freed once.
        drop(unsafe { Box::from_raw(entries) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Receive = (u64, u64, u32);

    /// What a provider finds in a chain: identifiers, and addresses and lengths of the spans.
    fn walk(mut request: *mut sys::ibv_recv_wr) -> Vec<Receive> {
        let mut found = Vec::new();
        // SAFETY: a chain that is being posted.
        while let Some(wr) = unsafe { request.as_ref() } {
            assert_eq!(wr.num_sge, 1);
            // SAFETY: the one span of the request.
            let span = unsafe { wr.sg_list.read() };
            found.push((wr.wr_id, span.addr, span.length));
            request = wr.next;
        }
        found
    }

    fn receives(ids: std::ops::Range<u64>) -> impl Iterator<Item = io::Result<(u64, LocalSpan)>> {
        // SAFETY: never given to an adapter.
        ids.map(|id| Ok((id, unsafe { LocalSpan::new(id * 64, 64, 1) })))
    }

    fn walked(ids: std::ops::Range<u64>) -> Vec<Receive> {
        ids.map(|id| (id, id * 64, 64)).collect()
    }

    #[test]
    fn each_post_shows_the_provider_its_receives_and_no_others() {
        let mut chain = Chain::new(4);
        for ids in [0..4, 4..5, 5..8, 8..8, 8..12] {
            let mut shown = Vec::new();
            let posted = chain.post(receives(ids.clone()), |first, _| {
                shown = walk(first);
                0
            });
            assert_eq!(posted.expect("posted"), ids.clone().count());
            assert_eq!(shown, walked(ids));
            // It may move between posts, as the queue that has it may.
            chain = std::hint::black_box(chain);
        }
    }

    #[test]
    fn more_than_fit_wait_for_the_next_post() {
        let mut chain = Chain::new(2);
        let posted = chain.post(receives(0..5), |first, _| {
            assert_eq!(walk(first), walked(0..2));
            0
        });
        assert_eq!(posted.expect("posted"), 2);
    }

    #[test]
    fn of_a_post_that_stopped_what_went_before_is_counted() {
        let mut chain = Chain::new(3);
        let refused_at = |chain: &mut Chain, place: usize| {
            chain.post(receives(0..3), |mut first, bad| {
                for _ in 0..place {
                    // SAFETY: a chain that is being posted.
                    first = unsafe { (*first).next };
                }
                // SAFETY: the place for the answer.
                unsafe { bad.write(first) };
                libc::ENOMEM
            })
        };
        assert_eq!(refused_at(&mut chain, 2).expect("two were posted"), 2);
        assert_eq!(refused_at(&mut chain, 1).expect("one was posted"), 1);
        assert_eq!(refused_at(&mut chain, 0).map_err(|error| error.raw_os_error()), Err(Some(libc::ENOMEM)));
    }

    #[test]
    fn a_provider_that_names_no_request_has_posted_none() {
        let mut chain = Chain::new(3);
        let refused = chain.post(receives(0..3), |_, _| libc::EINVAL);
        assert_eq!(refused.map_err(|error| error.raw_os_error()), Err(Some(libc::EINVAL)));
    }

    #[test]
    fn a_receive_that_cannot_be_named_is_not_posted() {
        let mut chain = Chain::new(3);
        let missing = std::iter::once(Err(io::Error::from_raw_os_error(libc::EINVAL)));
        assert!(chain.post(receives(0..1).chain(missing), |_, _| panic!("nothing is to be posted")).is_err());
    }
}
