// SPDX-License-Identifier: MIT OR Apache-2.0
//! A chain of receive work requests that is linked once and posted from its front again and again. Used by `srq`
//! (hot: filling an entry stores its identifier and span). Requests point to one another and to their spans, so this
//! file reaches all of them through raw pointers only. One thread at a time (`&mut`). Tests: below, also under Miri.

use crate::verbs::{LocalSpan, sys};
use std::io;
use std::ptr::{self, NonNull};

/// Work requests in a row, each of which names the next, and its one span.
#[derive(Debug)]
pub(super) struct Chain {
    /// Requests and spans are boxed slices of `length`, freed in `drop`; two, so that one counter steps through both.
    requests: NonNull<sys::ibv_recv_wr>,
    spans: NonNull<LocalSpan>,
    length: usize,
}

// SAFETY: the raw pointers in the requests point to nothing but requests and spans, which the chain owns.
unsafe impl Send for Chain {}

impl Chain {
    pub(super) fn new(length: usize) -> Chain {
        let length = length.max(1);
        let blank = sys::ibv_recv_wr { wr_id: 0, next: ptr::null_mut(), sg_list: ptr::null_mut(), num_sge: 1 };
        let requests = NonNull::from(Box::leak(vec![blank; length].into_boxed_slice())).cast();
        let spans = NonNull::from(Box::leak(vec![LocalSpan::EMPTY; length].into_boxed_slice())).cast();
        let chain = Chain { requests, spans, length };
        for index in 0..length {
            let request = chain.request(index);
            // SAFETY: a request of the chain, to which no reference exists; here and below.
            unsafe { (*request).sg_list = chain.span(index).cast() };
            if index + 1 < length {
                // SAFETY: a request of the chain, to which no reference exists.
                unsafe { (*request).next = chain.request(index + 1) };
            }
        }
        chain
    }

    /// The work request at `index`, which is less than the length.
    #[inline]
    fn request(&self, index: usize) -> *mut sys::ibv_recv_wr {
        self.requests.as_ptr().wrapping_add(index)
    }

    /// The span at `index`, which is less than the length.
    #[inline]
    fn span(&self, index: usize) -> *mut LocalSpan {
        self.spans.as_ptr().wrapping_add(index)
    }

    /// Posts receives into these slots by `post`, as many as fit; `id` and `span` give identifiers and memory. `post`
    /// gets the first request and a place for the address of a refused one, and returns 0 or an errno value. Returns
    /// the number of posted ones; if it is 0, fails with that errno, or with `EINVAL` for a slot without a span.
    #[inline]
    pub(super) fn post(
        &mut self,
        slots: &[u32],
        id: impl Fn(u32) -> u64,
        span: impl Fn(u32) -> Option<LocalSpan>,
        post: impl FnOnce(*mut sys::ibv_recv_wr, *mut *mut sys::ibv_recv_wr) -> i32,
    ) -> io::Result<usize> {
        let count = slots.len().min(self.length);
        for (index, &slot) in slots[..count].iter().enumerate() {
            let span = span(slot).ok_or_else(no_slot)?;
            // SAFETY: a request of the chain, and its span; here and below.
            unsafe { (*self.request(index)).wr_id = id(slot) };
            // SAFETY: a span of the chain, to which no reference exists.
            unsafe { self.span(index).write(span) };
        }
        let Some(last) = count.checked_sub(1) else { return Ok(0) };
        // The chain ends here for this post.
        let last = self.request(last);
        // SAFETY: a request of the chain, which is not posted yet.
        let next = unsafe { ptr::replace(&raw mut (*last).next, ptr::null_mut()) };
        let mut bad = ptr::null_mut();
        let code = post(self.request(0), &raw mut bad);
        // SAFETY: a request of the chain; `post` is over, and has copied it.
        unsafe { (*last).next = next };
        if code == 0 { Ok(count) } else { self.posted_before(bad, count, code) }
    }

    /// Number of requests that were posted before `bad`, of `count`.
    #[cold]
    fn posted_before(&self, bad: *mut sys::ibv_recv_wr, count: usize, code: i32) -> io::Result<usize> {
        let posted = (1..count).find(|&index| self.request(index) == bad);
        posted.map_or_else(|| crate::verbs::errno(code).map(|()| 0), Ok)
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        let requests = ptr::slice_from_raw_parts_mut(self.requests.as_ptr(), self.length);
        let spans = ptr::slice_from_raw_parts_mut(self.spans.as_ptr(), self.length);
        // SAFETY: boxed slices of this length, leaked in `new` and freed once.
        unsafe {
            drop(Box::from_raw(requests));
            drop(Box::from_raw(spans));
        }
    }
}

#[cold]
fn no_slot() -> io::Error {
    io::Error::from_raw_os_error(libc::EINVAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    type Receive = (u64, u64, u32);

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

    fn post(
        chain: &mut Chain,
        slots: Range<u32>,
        provider: impl FnOnce(*mut sys::ibv_recv_wr, *mut *mut sys::ibv_recv_wr) -> i32,
    ) -> Result<usize, Option<i32>> {
        let slots: Vec<u32> = slots.collect();
        // SAFETY: never given to an adapter.
        let span = |slot: u32| (slot < 20).then(|| unsafe { LocalSpan::new(u64::from(slot) * 64, 64, 1) });
        chain.post(&slots, u64::from, span, provider).map_err(|error| error.raw_os_error())
    }

    fn walked(slots: Range<u32>) -> Vec<Receive> {
        slots.map(|slot| (u64::from(slot), u64::from(slot) * 64, 64)).collect()
    }

    #[test]
    fn each_post_shows_the_provider_its_receives_and_no_others() {
        let mut chain = Chain::new(4);
        for slots in [0..4, 4..5, 5..8, 8..8, 8..12] {
            let mut shown = Vec::new();
            let posted = post(&mut chain, slots.clone(), |first, _| {
                shown = walk(first);
                0
            });
            assert_eq!(posted, Ok(slots.len()));
            assert_eq!(shown, walked(slots));
            // It may move between posts, as its queue may.
            chain = std::hint::black_box(chain);
        }
    }

    #[test]
    fn more_than_fit_wait_for_the_next_post() {
        let mut chain = Chain::new(2);
        let posted = post(&mut chain, 0..5, |first, _| {
            assert_eq!(walk(first), walked(0..2));
            0
        });
        assert_eq!(posted, Ok(2));
    }

    #[test]
    fn a_post_that_stops_counts_the_requests_before_the_refused_one() {
        let mut chain = Chain::new(3);
        let refused_at = |chain: &mut Chain, place: usize| {
            post(chain, 0..3, |mut first, bad| {
                for _ in 0..place {
                    // SAFETY: a chain that is being posted.
                    first = unsafe { (*first).next };
                }
                // SAFETY: the place for the answer.
                unsafe { bad.write(first) };
                libc::ENOMEM
            })
        };
        assert_eq!(refused_at(&mut chain, 2), Ok(2));
        assert_eq!(refused_at(&mut chain, 1), Ok(1));
        assert_eq!(refused_at(&mut chain, 0), Err(Some(libc::ENOMEM)));
    }

    #[test]
    fn a_provider_that_names_no_request_has_posted_none_and_never_gets_a_missing_slot() {
        let mut chain = Chain::new(3);
        assert_eq!(post(&mut chain, 0..3, |_, _| libc::EINVAL), Err(Some(libc::EINVAL)));
        let refused = post(&mut chain, 19..22, |_, _| panic!("nothing is to be posted"));
        assert_eq!(refused, Err(Some(libc::EINVAL)));
    }
}
