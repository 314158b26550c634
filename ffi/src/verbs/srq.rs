// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared receive queues: one pool of receive slots for all queue pairs of a port.
//!
//! Posted to by the engine in batches, hot: one call into the provider a batch, no allocation (the chain of work requests
//! is built once). One thread at a time (`&mut`). Tests: device tests in `hw-tests`.

use super::{Arena, LocalSpan, ProtectionDomain};
use ibverbs_sys as sys;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;

type PostSrqRecv = unsafe extern "C" fn(*mut sys::ibv_srq, *mut sys::ibv_recv_wr, *mut *mut sys::ibv_recv_wr) -> i32;

/// A shared receive queue (`ibv_create_srq(3)`).
#[derive(Debug)]
pub struct SharedReceiveQueue {
    handle: Arc<Handle>,
    post: PostSrqRecv,
    requests: Box<[sys::ibv_recv_wr]>,
    spans: Box<[LocalSpan]>,
}

/// The verbs object, shared with the queue pairs that receive through it.
#[derive(Debug)]
pub(super) struct Handle {
    raw: NonNull<sys::ibv_srq>,
    _domain: Arc<ProtectionDomain>,
}

// SAFETY: R4, libibverbs objects may be used and destroyed by any thread.
unsafe impl Send for Handle {}
// SAFETY: `&Handle` only gives out the pointer.
unsafe impl Sync for Handle {}
// SAFETY: the raw pointers in `requests` point to nothing but `requests` and `spans` themselves, which are on the heap.
unsafe impl Send for SharedReceiveQueue {}

impl Handle {
    pub(super) fn raw(&self) -> *mut sys::ibv_srq {
        self.raw.as_ptr()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: R4: the queue pairs that use it each hold an `Arc`, so none is left.
        unsafe { sys::ibv_destroy_srq(self.raw()) };
    }
}

impl SharedReceiveQueue {
    /// Creates a queue of at least `depth` entries, posted to at most `batch` at a time.
    ///
    /// # Errors
    /// The errno of the verb: `EINVAL` beyond `max_srq_wr`, `EOPNOTSUPP` or `ENOSYS` without support.
    pub fn new(domain: &Arc<ProtectionDomain>, depth: u32, batch: usize) -> io::Result<Self> {
        let attr = sys::ibv_srq_attr { max_wr: depth, max_sge: 1, srq_limit: 0 };
        let mut init = sys::ibv_srq_init_attr { srq_context: ptr::null_mut(), attr };
        // SAFETY: the domain is live (R4) and `init` valid for the call.
        let raw = unsafe { sys::ibv_create_srq(domain.raw(), &raw mut init) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        let handle = Arc::new(Handle { raw, _domain: Arc::clone(domain) });
        // SAFETY: the context is open; its operations are set once, when it is opened.
        let post = unsafe { (*domain.context().raw()).ops.post_srq_recv };
        let post = post.ok_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP))?;
        let batch = batch.max(1);
        let blank = sys::ibv_recv_wr { wr_id: 0, next: ptr::null_mut(), sg_list: ptr::null_mut(), num_sge: 1 };
        let mut requests = vec![blank; batch].into_boxed_slice();
        let mut spans = vec![LocalSpan::EMPTY; batch].into_boxed_slice();
        let (first, span) = (requests.as_mut_ptr(), spans.as_mut_ptr());
        for (index, request) in requests.iter_mut().enumerate() {
            request.sg_list = span.wrapping_add(index).cast();
            if index + 1 < batch {
                request.next = first.wrapping_add(index + 1);
            }
        }
        Ok(Self { handle, post, requests, spans })
    }

    pub(super) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// Posts receives into the given slots of an arena, each under the identifier that `id` gives its slot; at most a batch of
    /// them. Returns how many were posted. Hot.
    ///
    /// # Errors
    /// When none was posted: the errno of the verb (`ENOMEM` when the queue is full), or `EINVAL` for a slot that the arena does
    /// not have.
    pub fn post(&mut self, arena: &Arena, slots: &[u32], id: impl Fn(u32) -> u64) -> io::Result<usize> {
        let mut count = 0;
        for (&slot, (request, place)) in slots.iter().zip(self.requests.iter_mut().zip(&mut self.spans)) {
            *place = arena.span(slot as usize).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
            request.wr_id = id(slot);
            count += 1;
        }
        let Some(last) = self.requests[..count].last_mut() else { return Ok(0) };
        // The chain ends here for this once.
        let next = std::mem::replace(&mut last.next, ptr::null_mut());
        let base = self.requests.as_mut_ptr();
        let mut bad = ptr::null_mut();
        // SAFETY: the chain is well formed and lives through the call; the spans are registered memory that is the
        // device's from here on (R2, R3: the promise each `LocalSpan` was made with).
        let code = unsafe { (self.post)(self.handle.raw(), base, &raw mut bad) };
        self.requests[count - 1].next = next;
        if code == 0 {
            return Ok(count);
        }
        let posted = if bad.is_null() { 0 } else { (bad as usize - base as usize) / size_of::<sys::ibv_recv_wr>() };
        if posted == 0 { Err(io::Error::from_raw_os_error(code.abs())) } else { Ok(posted) }
    }
}
