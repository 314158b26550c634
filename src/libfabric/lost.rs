// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ends of operations whose peer is lost: each fails with an error that fits, and with the engine's sentence.
//!
//! Called by `calls.rs` at the end of each call and poll while a peer is lost, and by the messenger. Grade: setup.
//! Threads: the one that has entered the endpoint, and no port. Tests: `simulation`, `hw-tests`.

use crate::messenger::host::Process as _;
use crate::messenger::matching::ADDR_UNSPEC;
use crate::messenger::rails::lost::{self, OutlivesPeers};
use crate::messenger::request::Role;
use crate::messenger::route::Route;

use super::calls::completion_of;
use super::completion::{Completion, Failure};
use super::environment::{Data as _, Environment, Others as _};
use super::request::{Handle, Request};
use super::{Shared, State, fi};

impl<E: Environment> OutlivesPeers for State<E> {
    fn requests(&self) -> Vec<Handle> {
        self.requests.active().map(|(request, _)| request).collect()
    }

    fn source(&mut self, _: &Shared<E::Adapter>, receive: Handle) -> Option<Route> {
        Some(self.requests.get(receive).core.peer).filter(|peer| *peer != ADDR_UNSPEC).map(Route::from_bits)
    }
}

impl<E: Environment> State<E> {
    /// Ends the operations of lost peers, and prints why the peers are lost.
    #[cold]
    #[inline(never)]
    pub fn end_lost(&mut self, shared: &Shared<E::Adapter>) {
        let reasons = shared.enter_port(0).map(|mut port| port.take_unprinted()).unwrap_or_default();
        for reason in &reasons {
            E::tell_lost(reason);
        }
        self.forget_lost(shared);
        lost::end(shared, self);
        if let Some(port) = shared.enter_port(0) {
            self.others.end_unanswered(|to| port.failure(to).is_some(), &self.reports);
        }
    }

    /// Reports a request whose peer is lost.
    pub fn report_failed(&mut self, shared: &Shared<E::Adapter>, request: Handle, peer: Route) {
        let reason = shared.enter_port(0).and_then(|port| {
            let failure = port.failure(peer.to())?;
            Some((failure.errno().unsigned_abs(), failure.to_string()))
        });
        let (error, text) = reason.unwrap_or_else(|| (fi::FI_EIO, "the peer is lost".to_owned()));
        let Request { core, call, outcome, buffer, .. } = self.requests.get(request);
        let (call, start) = (*call, core.data.address().unwrap_or(0) as usize);
        let mut completion = match (core.role, &outcome) {
            (Role::Receive, Some(outcome)) => completion_of(call, outcome.tag.tag, outcome.tag.data, 0),
            (Role::Receive, None) => completion_of(call, core.tag.tag, None, 0),
            (Role::Send(_), _) => {
                let flags = call.kind.sent();
                Completion { context: call.context, flags, tag: core.tag.tag, ..Completion::default() }
            }
        };
        match (*buffer, outcome.is_some()) {
            (Some(buffer), true) => self.buffers.report(buffer, start, &mut completion),
            (Some(buffer), false) if self.buffers.cancel(buffer) => completion.flags |= fi::FI_MULTI_RECV,
            _ => {}
        }
        // Reports that wait come first: a buffer for several messages is given back by its last one.
        self.put_late(shared);
        self.reports.failed(call, completion, Failure { error, excess: 0, text: &text });
    }
}
