// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared receive queues: one pool of receive slots for all queue pairs of a port. The engine posts in batches, hot:
//! one call into the provider, no allocation (`srq/chain.rs`). One thread at a time (`&mut`). Tests: `hw-tests`.

use crate::verbs::handle::Handle;
use crate::verbs::{Arena, ProtectionDomain, sys, unsupported};
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

pub(super) type SrqHandle = Handle<sys::ibv_srq, Arc<ProtectionDomain>>;

impl SharedReceiveQueue {
    /// Creates a queue of at least `depth` entries; a post takes at most `batch`.
    ///
    /// # Errors
    /// The errno of the verb: `EINVAL` beyond `max_srq_wr`, `EOPNOTSUPP` or `ENOSYS` without support.
    pub fn new(domain: &Arc<ProtectionDomain>, depth: u32, batch: usize) -> io::Result<Self> {
        let attr = sys::ibv_srq_attr { max_wr: depth, max_sge: 1, srq_limit: 0 };
        let mut init = sys::ibv_srq_init_attr { srq_context: ptr::null_mut(), attr };
        // SAFETY: the domain is live (R4) and `init` valid for the call.
        let handle = unsafe { Handle::new(sys::ibv_create_srq(domain.raw(), &raw mut init), Arc::clone(domain)) }?;
        let post = domain.context().operations().post_srq_recv.ok_or_else(unsupported)?;
        Ok(Self { handle: Arc::new(handle), post, chain: Chain::new(batch) })
    }

    pub(super) fn handle(&self) -> &Arc<SrqHandle> {
        &self.handle
    }

    /// Posts receives into slots of an arena, at most a batch; `id` gives their identifiers. Returns how many. Hot.
    ///
    /// # Errors
    /// When none was posted: the verb's errno (`ENOMEM`: the queue is full), or `EINVAL` for a slot beyond the arena.
    pub fn post(&mut self, arena: &Arena, slots: &[u32], id: impl Fn(u32) -> u64) -> io::Result<usize> {
        let SharedReceiveQueue { handle, post, chain } = self;
        // SAFETY: the queue is live (R4); the call copies the well-formed chain. Its spans' memory is of the queue's
        // domain, or of another, whose key the adapter refuses (R3).
        let refill = |first, bad| unsafe { post(handle.raw(), first, bad) };
        chain.post(slots, id, |slot| arena.span(slot as usize), refill)
    }
}
