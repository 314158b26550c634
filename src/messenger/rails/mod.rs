// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rails: the ports of a process, as the messenger uses them. Implements the protocols' interface to them
//! ([`Ports`]) for each host with ports ([`PortHost`]).
//!
//! - [`routes`] finds the route to a peer.
//! - [`transmit`] gives messages to the port of a route, some from [`send_buffers`]; [`fragment`] packs and posts
//!   fragments; [`user_memory`] registers and reads data. [`completions`] handles the reports of the ports.
//! - With several rails, [`multi_rail`] chooses the route that a peer's messages use, its home. When a port goes down,
//!   or a connection fails, [`failover`] moves messages to another port, and [`multi_rail`] keeps their order at the
//!   receiver. [`poll_interval`] says how often to poll.
//! - When no port is left, [`lost`] ends the requests that need the peer.
//! - [`backlog`] sends by shared memory.
//!
//! Called by the protocols, and by the host for completions. Grade: hot for messages that are sent whole, else pending.
//! Threads: the one that has entered the messenger, and no port. Tests: below each file; `plugin-abi/src/pml/tests`
//! and `simulation/` over simulated adapters.

use std::collections::HashMap;

use super::header::{Header, PortKey};
use super::host::{Exposed, Host, NotPacked, PortHost, Ports, Posted, Process as _, Rail, Record, Transmitted};
use super::path_taken::Reason;
use super::rendezvous::read::{ReadRail, ReadTarget};
use super::rendezvous::stripes::Part;
use super::request::transfer_id::TransferId;
use super::route::{Account, Route};
use crate::peer::PeerName;
use backlog::Backlog;
use completions::Held;
use fragment::Fragment;
use lost::Lost;
use multi_rail::MultiRail;
use send_buffers::SendBuffers;

pub mod backlog;
pub mod completions;
pub(in crate::messenger) mod failover;
pub(in crate::messenger) mod fragment;
pub mod lost;
pub(in crate::messenger) mod multi_rail;
pub mod poll_interval;
pub mod routes;
pub mod send_buffers;
pub mod transmit;
pub(in crate::messenger) mod user_memory;

/// The rails' part of the messenger's state.
pub struct Rails<H: Host> {
    /// The send buffers of each rail.
    pub buffers: Vec<SendBuffers<H::Handle>>,
    /// Processes that this one knows, each with a route as communicators store it.
    pub known: HashMap<PeerName, Route>,
    /// The peers and endpoints of several rails.
    pub multi_rail: MultiRail<Held>,
    /// Messages that wait for room in shared memory.
    pub backlog: Backlog<H>,
    /// The peers that are lost.
    pub lost: Lost,
}

impl<H: Host> Rails<H> {
    /// Makes the state for these rails, with at most `most` send buffers of each size per rail.
    pub fn new<'a>(rails: impl ExactSizeIterator<Item = &'a Rail>, most: u32) -> Self {
        Rails {
            known: HashMap::new(),
            multi_rail: MultiRail::new(rails.len()),
            backlog: Backlog::default(),
            lost: Lost::default(),
            buffers: rails.map(|rail| SendBuffers::new(rail.copy_size, rail.receive_size, most)).collect(),
        }
    }
}

impl<H: PortHost> Ports for H {
    type Fragment = Fragment<H::Handle>;

    #[inline]
    fn home(&mut self, process: &H::Process, route: Route) -> Route {
        routes::home(process, self, route)
    }

    fn account(&mut self, process: &H::Process, route: Route) -> Account {
        routes::account(process, self, route)
    }

    fn routes_of(&mut self, process: &H::Process, account: Account) -> Vec<Route> {
        routes::of_account(process, self, account)
    }

    fn has_room(&mut self, process: &H::Process, route: Route) -> bool {
        if let Some(to) = route.as_local() {
            return !self.messenger().rails.backlog.waits_for(to);
        }
        process.enter_port(route.rail()).is_some_and(|port| port.has_room(route.to()))
    }

    fn queue_turn(&mut self, process: &H::Process, route: Route) {
        if let Some(to) = route.as_local() {
            return backlog::queue_turn(process, self, to);
        }
        transmit::queue_turn(process, self, route);
    }

    fn begin_turn(&mut self, process: &H::Process, route: Route) {
        if let Some(mut port) = process.enter_port(route.rail()) {
            port.begin_turn(route.to());
        }
    }

    fn end_turn(&mut self, process: &H::Process, route: Route) {
        if let Some(mut port) = process.enter_port(route.rail()) {
            port.end_turn(route.to(), H::token(Record::Turn));
        }
    }

    fn send_whole(
        &mut self,
        process: &H::Process,
        send: H::Handle,
        header: &Header<H::Envelope>,
        finishes: bool,
    ) -> Transmitted {
        let route = self.core(send).route;
        if let Some(to) = route.as_local() {
            return backlog::send_whole(process, self, to, header, send);
        }
        let route = routes::home(process, self, route);
        transmit::message(process, self, route, header.encode().as_slice(), send, finishes)
    }

    fn control(&mut self, process: &H::Process, route: Route, header: &Header<H::Envelope>) {
        if let Some(to) = route.as_local() {
            return backlog::control(process, self, to, header);
        }
        transmit::control(process, self, route, header.encode().as_slice());
    }

    fn control_with_keys(
        &mut self,
        process: &H::Process,
        route: Route,
        header: &Header<H::Envelope>,
        keys: &[PortKey],
    ) {
        transmit::control(process, self, route, &[header.encode().as_slice(), &PortKey::encode(keys)].concat());
    }

    fn pack_fragment(
        &mut self,
        process: &H::Process,
        send: H::Handle,
        receiver: TransferId,
        offset: u64,
    ) -> Result<(Fragment<H::Handle>, u64), NotPacked> {
        fragment::pack(process, self, send, (receiver, offset))
    }

    fn post_fragment(&mut self, process: &H::Process, send: H::Handle, fragment: Fragment<H::Handle>) -> Posted {
        fragment::post(process, self, send, fragment)
    }

    fn has_free_buffer(&mut self) -> bool {
        self.messenger().rails.buffers.iter().any(SendBuffers::has_free_large)
    }

    fn expose(&mut self, process: &H::Process, send: H::Handle) -> Result<Exposed<H::Registration>, Reason> {
        user_memory::expose(process, self, send)
    }

    fn readable_by(&mut self, process: &H::Process, from: Route, keys: &[PortKey], wanted: u64) -> Vec<(Route, u32)> {
        routes::readable_by(process, self, from, keys, wanted)
    }

    fn register(
        &mut self,
        process: &H::Process,
        receive: H::Handle,
        route: Route,
        wanted: u64,
    ) -> Option<ReadTarget<H::Registration>> {
        user_memory::register(process, self, receive, route, wanted)
    }

    fn post_read(
        &mut self,
        process: &H::Process,
        receive: H::Handle,
        by: &ReadRail<H::Registration>,
        part: Part,
    ) -> bool {
        user_memory::post_read(process, self, receive, by, part)
    }

    fn fails_over(&mut self, process: &H::Process, route: Route) -> bool {
        failover::fails_over(process, self, route)
    }
}
