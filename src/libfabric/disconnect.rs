// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of an endpoint that the program closes: the last messages arrive, then its peers hear that it has left.
//!
//! A send ends when its message is posted or copied, so the program may close the endpoint before the message has
//! arrived. The endpoint then stays until its peers' adapters have acknowledged all. A message that is not posted yet
//! needs the peer's program: to connect, to post receives, to take what flow control holds back. It would be lost
//! without a report, so the endpoint waits for that as long as for a peer that does not answer. An adapter that has
//! gone acknowledges nothing: so an endpoint that leaves says it, by a message of its own (tag [`DISCONNECT`], one
//! byte: the version) behind all others, and peers that close later do not wait for it. Called by `endpoint/mod.rs`,
//! and by `progress.rs` for completions that are not the messenger's. Grade: setup. Threads: the one that has entered
//! the endpoint, and no port. Tests: `hw-tests/libfabric/fi_last_messages.c`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::messenger::host::{Memory as _, Process as _};
use crate::messenger::rails::completions::ByRail;
use crate::transport::{Completion as Event, Token, WhenDiverted};

use super::environment::{Data as _, Environment};
use super::reports::Reports;
use super::request::Request;
use super::{OURSELVES, Shared, State};

const DISCONNECT: u8 = 4;

const VERSION: u8 = 1;

/// Longest time until all peers have acknowledged the message that this one leaves. Nothing is lost if one does not get
/// it.
const LEAVING: Duration = Duration::from_secs(1);

impl<E: Environment> State<E> {
    /// Waits until all messages have arrived whose sends were reported, or that were injected, except those to lost
    /// peers; at most as long as a peer may take to answer. What is outstanding ends without a report.
    pub fn disconnect(&mut self, shared: &Shared<E::Adapter>) {
        self.stop_reporting();
        self.drain(shared, shared.enter_port(0).map_or(Duration::ZERO, |port| port.connect_timeout()));
        self.say_that_it_leaves(shared);
        self.drain(shared, LEAVING);
    }

    /// Lets all that is outstanding end without a report.
    pub fn stop_reporting(&mut self) {
        self.reports = Reports::default();
    }

    /// Tells all connected peers that the endpoint leaves, but those that have left.
    pub fn say_that_it_leaves(&mut self, shared: &Shared<E::Adapter>) {
        if let Some(mut port) = shared.enter_port(0) {
            for to in port.endpoints().filter(|to| !self.peers.has_left(*to)) {
                if port.queue_pair(to).is_some() && port.is_ready(to) {
                    let message = (Arc::from([VERSION]), 1);
                    // A connection that has just failed has no peer to tell.
                    let _ = port.queue_bytes(to, DISCONNECT, message, Token(0), WhenDiverted::Wait);
                }
            }
        }
    }

    fn drain(&mut self, shared: &Shared<E::Adapter>, longest: Duration) {
        let begin = Instant::now();
        self.progress(shared);
        while self.owes_messages(shared) && begin.elapsed() < longest {
            std::thread::yield_now();
            self.progress(shared);
        }
    }

    /// Whether a message has not arrived that a peer may still take, and whose send the program counts as done. One
    /// that ends by the peer's answer is outstanding: if it is posted, the adapter's acknowledgement is enough.
    pub fn owes_messages(&mut self, shared: &Shared<E::Adapter>) -> bool {
        let peers = &self.peers;
        let is_owed = |of: &Request<E>| {
            of.core.data.is_copied()
                && of.core.role.ends_when_sent()
                && of.core.peer != OURSELVES
                && !peers.has_left(of.core.route.to())
        };
        self.requests.active().any(|(_, of)| is_owed(of))
            || shared.enter_port(0).is_some_and(|mut port| port.is_unacknowledged(|to| !peers.has_left(to)))
    }

    /// Notes that a peer has left, if this completion says so.
    pub fn takes_disconnect(&mut self, shared: &Shared<E::Adapter>, event: &Event) -> bool {
        let Event::Message { ref message, immediate, qp_num, .. } = *event else { return false };
        if immediate.tag() != DISCONNECT {
            return false;
        }
        let is_known = *self.received(message) == [VERSION];
        if let Some(sender) = (ByRail { rail: 0, immediate, qp_num }).route(shared).filter(|_| is_known) {
            self.peers.set_left(sender);
        }
        true
    }
}
