// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an endpoint is bound to (`fi_ep_bind`): an address vector, completion queues, counters and an event queue.
//!
//! Grade: setup. Threads: the one that has locked the endpoint's bindings. Tests: `tests/`.

use std::sync::Arc;

use ibex::libfabric::BoundQueue;
use ibex_ffi::verbs::CompletionChannel;

use super::Endpoint;
use crate::av::AddressVector;
use crate::cntr::Counter;
use crate::cq::CompletionQueue;
use crate::domain::lock::Inside;
use crate::entry::Result;
use crate::eq::EventQueue;
use crate::host::Reports;
use crate::sys;
use crate::wait::Wait;

/// Operations that counters can count, besides sends and receives.
const REMOTE: u64 = sys::FI_READ | sys::FI_WRITE | sys::FI_REMOTE_READ | sys::FI_REMOTE_WRITE;

/// The objects that an endpoint is bound to.
#[derive(Default)]
pub(crate) struct Bound {
    vector: Option<Arc<AddressVector>>,
    reports: Reports,
    events: Option<Arc<EventQueue>>,
}

impl Bound {
    pub(super) fn vector(&mut self, endpoint: &Arc<Endpoint>, vector: &Arc<AddressVector>) -> Result<()> {
        set(&mut self.vector, Arc::clone(vector))?;
        vector.endpoints.add(&mut endpoint.domain.enter(), endpoint);
        Ok(())
    }

    /// Binds a queue to sends, receives or both.
    pub(super) fn queue(&mut self, endpoint: &Arc<Endpoint>, queue: &Arc<CompletionQueue>, flags: u64) -> Result<()> {
        if flags & (sys::FI_SEND | sys::FI_RECV) == 0
            || flags & !(sys::FI_SEND | sys::FI_RECV | sys::FI_SELECTIVE_COMPLETION) != 0
        {
            return Err(sys::FI_EINVAL);
        }
        let is_selective = flags & sys::FI_SELECTIVE_COMPLETION != 0;
        let places = [(sys::FI_SEND, &mut self.reports.sends), (sys::FI_RECV, &mut self.reports.receives)];
        let mut places: Vec<_> = places.into_iter().filter(|(direction, _)| flags & direction != 0).collect();
        if places.iter().any(|(_, place)| place.is_some()) {
            return Err(sys::FI_EINVAL);
        }
        for (_, place) in &mut places {
            **place = Some(BoundQueue { queue: Arc::clone(queue), is_selective });
        }
        queue.endpoints.add(&mut endpoint.domain.enter(), endpoint);
        Ok(())
    }

    /// Returns where to report.
    pub(super) fn reports(&self) -> Reports {
        self.reports.clone()
    }

    pub(super) fn counter(&mut self, endpoint: &Arc<Endpoint>, counter: &Arc<Counter>, flags: u64) -> Result<()> {
        let is_counted = self.reports.counters.iter().any(|(_, counted)| counted & flags != 0);
        if flags == 0 || is_counted || flags & !(sys::FI_SEND | sys::FI_RECV | REMOTE) != 0 {
            return Err(sys::FI_EINVAL);
        }
        self.reports.counters.push((Arc::clone(counter), flags));
        counter.endpoints.add(&mut endpoint.domain.enter(), endpoint);
        Ok(())
    }

    pub(super) fn events(&mut self, queue: &Arc<EventQueue>) -> Result<()> {
        set(&mut self.events, Arc::clone(queue))
    }

    /// Returns the address vector, and where to report, if the endpoint has all that it needs to be enabled: the queues
    /// for what is `reported`, at least if it fails.
    pub(super) fn ready(&self, reported: u64) -> Result<(Arc<AddressVector>, Reports)> {
        let lacks =
            |direction, queue: &Option<BoundQueue<CompletionQueue>>| reported & direction != 0 && queue.is_none();
        if lacks(sys::FI_SEND, &self.reports.sends) || lacks(sys::FI_RECV, &self.reports.receives) {
            return Err(sys::FI_ENOCQ);
        }
        let vector = self.vector.clone().ok_or(sys::FI_ENOAV)?;
        Ok((vector, self.reports()))
    }

    /// Tells all objects that the endpoint is closed, and its port's channel with it.
    pub(super) fn leave(&self, endpoint: &Arc<Endpoint>, inside: &mut Inside<'_>, channel: Option<&CompletionChannel>) {
        if let Some(channel) = channel {
            waits(&self.reports).for_each(|wait| wait.remove(channel));
        }
        self.vector.iter().for_each(|vector| vector.endpoints.remove(inside, endpoint));
        self.reports.counters.iter().for_each(|(counter, _)| counter.endpoints.remove(inside, endpoint));
        let queues = self.reports.sends.iter().chain(&self.reports.receives);
        queues.for_each(|bound| bound.queue.endpoints.remove(inside, endpoint));
    }
}

/// Returns the wait objects of queues and counters, some of them twice.
pub(super) fn waits(of: &Reports) -> impl Iterator<Item = &Wait> {
    let queues = of.sends.iter().chain(&of.receives).filter_map(|bound| bound.queue.wait.as_ref());
    queues.chain(of.counters.iter().filter_map(|(counter, _)| counter.wait.as_ref()))
}

/// Fills an empty place: an endpoint is bound once to an object of each kind.
fn set<T>(place: &mut Option<T>, object: T) -> Result<()> {
    if place.is_some() {
        return Err(sys::FI_EINVAL);
    }
    *place = Some(object);
    Ok(())
}
