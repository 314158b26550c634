// SPDX-License-Identifier: MIT OR Apache-2.0
//! Endpoints (`fi_endpoint(3)`): each has a port of its own, which `fi_enable` opens, and so an address of its own.
//!
//! `bind` has what an endpoint is bound to, `calls` what C calls for its life, `transfers` what it calls to send and to
//! receive, `members` the reverse of a binding. Grade: setup;
//! [`Endpoint::enter`] and [`Endpoint::progress`] hot. Threads: any; its state belongs to the one inside the domain.
//! Tests: `tests/`.

mod bind;
mod calls;
pub(crate) mod members;
pub(crate) mod transfers;

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use ibex::select::address::compact::CompactAddress;
use ibex_ffi::verbs::CompletionChannel;
use parking_lot::Mutex;

use crate::atomic::by::By;
use crate::domain::Domain;
use crate::domain::lock::{Guarded, Inside};
use crate::entry::Result;
use crate::fid::Class;
use crate::flight::Place;
use crate::host::{self, Shared, State};
use crate::{adapter, info, recording, sys};
use bind::{Bound, waits};

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
    /// Whether receives name a source (`FI_DIRECTED_RECV`).
    is_directed: bool,
    /// The queues that it needs (`FI_SEND`, `FI_RECV`).
    reported: u64,
    /// Default flags of its sends and of its receives (`fi_tx_attr.op_flags`, `fi_rx_attr.op_flags`).
    pub(crate) flags: [u64; 2],
    domain: Arc<Domain>,
}

/// What an endpoint has once it is enabled.
struct Enabled {
    entered: Guarded<(Shared, State)>,
    /// Wakes those who sleep on the wait objects of its queues and counters.
    channel: Option<Arc<CompletionChannel>>,
    address: CompactAddress,
    /// Free once the port is closed.
    _place: Place,
}

/// The state of an endpoint whose domain a call has entered.
pub(crate) struct Entered<'a> {
    state: &'a mut State,
    _inside: Inside<'a>,
}

impl Deref for Entered<'_> {
    type Target = State;

    #[inline(always)]
    fn deref(&self) -> &State {
        self.state
    }
}

impl DerefMut for Entered<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut State {
        self.state
    }
}

impl Class for Endpoint {
    type Fid = sys::fid_ep;

    const NUMBER: u32 = sys::FI_CLASS_EP;

    /// The objects that reach it do so no more.
    fn leave(self: &Arc<Self>) {
        let channel = self.enabled.get().and_then(|enabled| enabled.channel.as_deref());
        let bound = self.bound.lock();
        let inside = &mut self.domain.enter();
        bound.leave(self, inside, channel);
        if let Some(targets) = &self.domain.targets {
            targets.endpoints.remove(inside, self);
            if let Some(channel) = channel {
                targets.remove(channel);
            }
        }
    }
}

impl Endpoint {
    /// Makes an endpoint with these capabilities, and default flags of sends and of receives.
    pub(crate) fn new(domain: Arc<Domain>, capabilities: u64, flags: [u64; 2]) -> Self {
        Endpoint {
            bound: Mutex::default(),
            enabled: OnceLock::new(),
            min_multi_recv: AtomicUsize::new(MIN_MULTI_RECV),
            is_directed: capabilities & sys::FI_DIRECTED_RECV != 0,
            reported: info::reported(capabilities),
            flags,
            domain,
        }
    }

    /// Opens the endpoint's port.
    fn enable(self: &Arc<Self>) -> Result<()> {
        let (vector, reports) = self.bound.lock().ready(self.reported)?;
        if self.enabled.get().is_some() {
            return Err(sys::FI_EOPBADSTATE);
        }
        let targets = self.domain.targets.as_ref();
        let (port, address, place) = adapter::open(&*self.domain.device()?, &vector)?;
        let channel = port.channel();
        let of = (Arc::clone(&self.domain), vector);
        let entered = Guarded::new(host::new(port, of, address.name(), (reports.clone(), self.flags)));
        if let Some(channel) = &channel {
            waits(&reports).try_for_each(|wait| wait.add(channel))?;
            targets.into_iter().try_for_each(|targets| targets.add(channel))?;
        }
        self.enabled.set(Enabled { entered, channel, address, _place: place }).map_err(|_| sys::FI_EOPBADSTATE)?;
        if let Some(targets) = targets {
            targets.endpoints.add(&mut self.domain.enter(), self);
        }
        Ok(())
    }

    /// Reports to the bound counters as well, from now on. One that is not enabled does so once it is.
    fn report_to(&self, bound: &Bound) -> Result<()> {
        let Some(enabled) = self.enabled.get() else { return Ok(()) };
        let reports = bound.reports();
        if let Some(channel) = &enabled.channel {
            waits(&reports).try_for_each(|wait| wait.add(channel))?;
        }
        let (_, mut state) = self.enter()?;
        state.report_to(reports, self.flags);
        Ok(())
    }

    /// Returns its address; an error until it is enabled.
    fn address(&self) -> Result<CompactAddress> {
        self.enabled.get().map(|enabled| enabled.address).ok_or(sys::FI_EOPBADSTATE)
    }

    /// Enters the endpoint's domain; an error until the endpoint is enabled.
    #[inline(always)]
    pub(crate) fn enter(&self) -> Result<(&Shared, Entered<'_>)> {
        let inside = self.domain.enter();
        // SAFETY: D1: just entered.
        let (shared, state) = unsafe { self.entered()? };
        Ok((shared, Entered { state, _inside: inside }))
    }

    /// # Safety
    /// D1: this thread is inside the domain, and has no other reference to the state.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "the caller promises that it is the only one")]
    unsafe fn entered(&self) -> Result<(&Shared, &mut State)> {
        let enabled = self.enabled.get().ok_or(sys::FI_EOPBADSTATE)?;
        // SAFETY: D1.
        let (shared, state) = unsafe { enabled.entered.get() };
        Ok((shared, state))
    }

    /// Advances what is in progress, and reports what has ended.
    #[inline(always)]
    pub(crate) fn progress(&self, _: &mut Inside<'_>) {
        // SAFETY: D1: the caller is inside, here and below. It is `Members`: a state reports to queues and counters,
        // and does not come back to them.
        if let Ok((shared, state)) = unsafe { self.entered() } {
            state.progress_here(shared);
        }
    }

    /// [`Self::progress`] off the hot path. Returns the number of the adapter's completions.
    pub(crate) fn poll(&self, _: &mut Inside<'_>) -> usize {
        // SAFETY: D1.
        unsafe { self.entered() }.map_or(0, |(shared, state)| state.progress(shared))
    }

    /// Advances what is in progress as far as possible, and has what comes later wake those who sleep.
    pub(crate) fn arm(&self, _: &mut Inside<'_>) {
        // SAFETY: D1.
        if let Ok((shared, state)) = unsafe { self.entered() } {
            state.arm(shared);
        }
    }

    /// Forgets a peer: this index of the address vector is removed.
    pub(crate) fn forget(&self, _: &mut Inside<'_>, index: sys::fi_addr_t) {
        // SAFETY: D1.
        if let Ok((shared, state)) = unsafe { self.entered() } {
            state.forget(shared, index);
        }
    }

    /// Returns who does atomic operations with its peers.
    pub(crate) fn atomics(&self) -> Result<By> {
        self.domain.atomics()
    }

    fn min_multi_recv(&self) -> usize {
        self.min_multi_recv.load(Ordering::Relaxed)
    }
}

impl Drop for Endpoint {
    /// Closes the port once the last messages have arrived: after that no adapter touches memory of the program's
    /// operations.
    fn drop(&mut self) {
        if let Some(enabled) = self.enabled.get_mut() {
            let (shared, state) = enabled.entered.get_mut();
            state.disconnect(shared);
            shared.close();
            recording::flush();
        }
    }
}
