// SPDX-License-Identifier: MIT OR Apache-2.0
//! Endpoints (`fi_endpoint(3)`): each has a port of its own, which `fi_enable` opens, and so an address of its own.
//!
//! `bind` has what an endpoint is bound to, `calls` what C calls for its life, `operations` its tables of data
//! transfers, `members` the reverse of a binding. Grade: setup; [`Endpoint::progress`] hot. Threads: any. Tests:
//! `tests/`.

mod bind;
mod calls;
pub(crate) mod members;
mod operations;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use ibex::select::address::compact::CompactAddress;
use ibex::transport::Port;
use ibex::transport::adapter::verbs::Verbs;
use parking_lot::Mutex;

use crate::domain::Domain;
use crate::entry::Result;
use crate::fid::Class;
use crate::{adapter, sys};
use bind::Bound;

pub(crate) use calls::open;

/// Smallest room that a buffer for several messages must have for a further one, bytes, unless the program sets it.
const MIN_MULTI_RECV: usize = 64;

/// An endpoint.
pub(crate) struct Endpoint {
    bound: Mutex<Bound>,
    /// Present once it is enabled.
    enabled: OnceLock<Enabled>,
    /// `FI_OPT_MIN_MULTI_RECV`.
    min_multi_recv: AtomicUsize,
    /// Default flags of its sends and of its receives (`fi_tx_attr.op_flags`, `fi_rx_attr.op_flags`).
    #[expect(dead_code, reason = "data transfers will read them")]
    flags: [u64; 2],
    _domain: Arc<Domain>,
}

/// What an endpoint has once it is enabled.
struct Enabled {
    port: Mutex<Port<Verbs>>,
    address: CompactAddress,
}

impl Class for Endpoint {
    type Fid = sys::fid_ep;

    const NUMBER: u32 = sys::FI_CLASS_EP;

    /// The objects that reach it do so no more.
    fn leave(self: &Arc<Self>) {
        self.bound.lock().leave(self);
    }
}

impl Endpoint {
    /// Makes an endpoint with these default flags of sends and of receives.
    pub(crate) fn new(domain: Arc<Domain>, flags: [u64; 2]) -> Self {
        Endpoint {
            bound: Mutex::default(),
            enabled: OnceLock::new(),
            min_multi_recv: AtomicUsize::new(MIN_MULTI_RECV),
            flags,
            _domain: domain,
        }
    }

    /// Opens the endpoint's port.
    fn enable(&self) -> Result<()> {
        let vector = self.bound.lock().ready()?;
        if self.enabled.get().is_some() {
            return Err(sys::FI_EOPBADSTATE);
        }
        let (port, address) = adapter::open(&vector)?;
        self.enabled.set(Enabled { port: Mutex::new(port), address }).map_err(|_| sys::FI_EOPBADSTATE)
    }

    /// Returns its address; an error until it is enabled.
    fn address(&self) -> Result<CompactAddress> {
        self.enabled.get().map(|enabled| enabled.address).ok_or(sys::FI_EOPBADSTATE)
    }

    /// Advances what is in progress, and pushes completions to the endpoint's queues.
    #[inline]
    #[allow(clippy::unused_self, reason = "there are no data transfers yet")]
    pub(crate) fn progress(&self) {}

    /// Forgets a peer: this index of the address vector is removed.
    #[allow(clippy::unused_self, reason = "there are no data transfers yet")]
    pub(crate) fn forget(&self, _index: sys::fi_addr_t) {}

    fn min_multi_recv(&self) -> usize {
        self.min_multi_recv.load(Ordering::Relaxed)
    }
}

impl Drop for Endpoint {
    /// Closes the port: after that no adapter touches memory of the program's operations.
    fn drop(&mut self) {
        if let Some(enabled) = self.enabled.get_mut() {
            enabled.port.get_mut().close();
        }
    }
}
