// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared receive queues: one pool of receive slots for all queue pairs of a port.
//!
//! Posted to by the engine in batches, hot: one call into the provider a batch, no allocation (the chain of work
//! requests is built once, `srq/chain.rs`). One thread at a time (`&mut`). Tests: device tests in `hw-tests`.

use super::handle::Handle;
use super::sys;
use super::{Arena, ProtectionDomain};
use std::io;
use std::ptr;
use std::sync::Arc;

mod chain;

use chain::Chain;

type PostSrqRecv = unsafe extern "C" fn(*mut sys::ibv_srq, *mut sys::ibv_recv_wr, *mut *mut sys::ibv_recv_wr) -> i32;

/// A shared receive queue (`ibv_create_srq(3)`).
#[derive(Debug)]
pub struct SharedReceiveQueue {
    handle: Arc<SrqHandle>,
    post: PostSrqRecv,
    chain: Chain,
}

/// The verbs object, shared with the queue pairs that receive through it.
pub(super) type SrqHandle = Handle<sys::ibv_srq, Arc<ProtectionDomain>>;

impl SharedReceiveQueue {
    /// Creates a queue of at least `depth` entries, posted to at most `batch` at a time.
    ///
    /// # Errors
    /// The errno of the verb: `EINVAL` beyond `max_srq_wr`, `EOPNOTSUPP` or `ENOSYS` without support.
    pub fn new(domain: &Arc<ProtectionDomain>, depth: u32, batch: usize) -> io::Result<Self> {
        let attr = sys::ibv_srq_attr { max_wr: depth, max_sge: 1, srq_limit: 0 };
        let mut init = sys::ibv_srq_init_attr { srq_context: ptr::null_mut(), attr };
        // SAFETY: the domain is live (R4) and `init` valid for the call.
        let handle = unsafe { Handle::new(sys::ibv_create_srq(domain.raw(), &raw mut init), Arc::clone(domain)) }?;
        // SAFETY: the context is open; its operations are set once, when it is opened.
        let post = unsafe { (*domain.context().raw()).ops.post_srq_recv };
        let post = post.ok_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP))?;
        Ok(Self { handle: Arc::new(handle), post, chain: Chain::new(batch) })
    }

    pub(super) fn handle(&self) -> &Arc<SrqHandle> {
        &self.handle
    }

    /// Posts receives into the given slots of an arena, each under the identifier that `id` gives its slot; at most a
    /// batch of them. Returns how many were posted. Hot.
    ///
    /// # Errors
    /// When none was posted: the errno of the verb (`ENOMEM` when the queue is full), or `EINVAL` for a slot that the
    /// arena does not have.
    pub fn post(&mut self, arena: &Arena, slots: &[u32], id: impl Fn(u32) -> u64) -> io::Result<usize> {
        let SharedReceiveQueue { handle, post, chain } = self;
        // SAFETY: the queue is live (R4), and the chain well formed, which lives through the call and is copied by it.
        // The spans are an arena's, whose memory the queue's domain has, or another domain's key, which the adapter
        // refuses (R3).
        let refill = |first, bad| unsafe { post(handle.raw(), first, bad) };
        chain.post(slots, id, |slot| arena.span(slot as usize), refill)
    }
}
