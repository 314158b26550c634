// SPDX-License-Identifier: MIT OR Apache-2.0
//! Protection domains: a number that memory regions, queue pairs and address handles must share.
//!
//! Called by: the C side, and whatever is in a domain. Grade: setup. Thread rule: any thread.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use crate::engine::{Errno, Result, adapter::hca::Hca};

/// A protection domain.
pub struct Pd(pub(crate) Arc<PdState>);

pub(crate) struct PdState {
    pub(crate) hca: Arc<Hca>,
    /// Unique in the fabric.
    pub(crate) id: u32,
    /// Objects in it.
    users: AtomicU32,
}

/// A place in a domain, given back on drop.
pub(crate) struct InPd(pub(crate) Arc<PdState>);

impl Pd {
    /// # Errors
    /// EBUSY.
    pub fn destroy(&self) -> Result<()> {
        if self.0.users.load(Ordering::Acquire) == 0 { Ok(()) } else { Err(Errno(libc::EBUSY)) }
    }

    pub(crate) fn enter(&self) -> InPd {
        self.0.users.fetch_add(1, Ordering::AcqRel);
        InPd(Arc::clone(&self.0))
    }
}

impl Drop for InPd {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Hca {
    /// A protection domain.
    #[must_use]
    pub fn alloc_pd(self: &Arc<Self>) -> Pd {
        Pd(Arc::new(PdState { hca: Arc::clone(self), id: self.fabric.next_id(), users: AtomicU32::new(0) }))
    }
}
