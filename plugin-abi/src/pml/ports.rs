// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messenger's ports (`engine::messenger::host::Ports`): the ports of the adapters, called rails here, and the
//! memory that the processes of a host share.
//!
//! - Which route leads to a peer: `rails`; `failover` when a port goes down. Marked routes: `flow`.
//! - Messages: `routing` sends by shared memory or by the peer's home, `transmit` by one port, from a `buffer`;
//!   `fragment` packs and posts fragments, `read` reads. `token` names what a completion reports.
//! - Processes of this host: `local`, over the BTL of `shared_memory`.
//!
//! Called by the messenger. Grade: hot. Threads: the one that has entered the PML, and no port. Tests: `pml/tests.rs`.

use engine::messenger::header::{Header, PortKey};
use engine::messenger::host::{Communicators, Exposed, NotPacked, Ports, Posted, Transmitted};
use engine::messenger::path_taken::Reason;
use engine::messenger::rendezvous::read::{ReadRail, ReadTarget};
use engine::messenger::rendezvous::stripes::Part;
use engine::messenger::request::transfer_id::TransferId;
use engine::messenger::route::{Account, Route};

use super::instance::{Pml, Rail, State};
use super::request::{Core, Handle};
use crate::runtime::memory::Registered;
use buffer::SendBuffers;
use fragment::Fragment;

pub(super) mod buffer;
pub(super) mod failover;
pub(super) mod flow;
pub(super) mod fragment;
pub(super) mod local;
pub(super) mod rails;
pub(super) mod read;
pub(super) mod routing;
pub(super) mod shared_memory;
pub(super) mod token;
pub(super) mod transmit;

impl Ports for State {
    type Handle = Handle;
    type Process = Pml;
    type Registration = Registered;
    type Fragment = Fragment;

    fn eager_limit(&self, pml: &Pml, route: Route) -> usize {
        transmit::eager_limit(pml, route)
    }

    fn home(&mut self, pml: &Pml, route: Route) -> Route {
        rails::home(pml, self, route)
    }

    fn account(&mut self, pml: &Pml, route: Route) -> Account {
        rails::account(pml, self, route)
    }

    fn has_room(&mut self, pml: &Pml, route: Route) -> bool {
        if let Some(to) = route.as_local() {
            return !self.backlog.waits_for(to);
        }
        pml.rails().get(route.rail()).and_then(Rail::enter).is_some_and(|port| port.has_room(route.to()))
    }

    fn queue_turn(&mut self, pml: &Pml, route: Route) {
        routing::queue_turn(pml, self, route);
    }

    fn begin_turn(&mut self, pml: &Pml, route: Route) {
        if let Some(mut port) = pml.rails().get(route.rail()).and_then(Rail::enter) {
            port.begin_turn(route.to());
        }
    }

    fn end_turn(&mut self, pml: &Pml, route: Route) {
        if let Some(mut port) = pml.rails().get(route.rail()).and_then(Rail::enter) {
            port.end_turn(route.to(), token::turn());
        }
    }

    fn skips_flow_control(&mut self, pml: &Pml, send: Handle) -> bool {
        // If its communicator has another route, that has a mark, or is an earlier home of the peer.
        let &mut Core { route, peer, .. } = self.requests.core(send);
        self.communicator(send).route(peer) == rails::in_communicator(pml, route)
    }

    fn set_skips_flow_control(&mut self, pml: &Pml, send: Handle, passes: bool) {
        let &mut Core { route, peer, .. } = self.requests.core(send);
        let route = rails::in_communicator(pml, route);
        self.communicator(send).set_route(peer, if passes { route } else { route.marked() });
    }

    fn mark(&mut self, pml: &Pml, account: Account) {
        flow::mark(pml, self, account);
    }

    fn send_whole(&mut self, pml: &Pml, send: Handle, header: &Header, finishes: bool) -> Transmitted {
        let route = self.requests.core(send).route;
        routing::message(pml, self, route, header, send, finishes)
    }

    fn control(&mut self, pml: &Pml, route: Route, header: &Header) {
        routing::control(pml, self, route, header);
    }

    fn control_with_keys(&mut self, pml: &Pml, route: Route, header: &Header, keys: &[PortKey]) {
        routing::bytes(pml, self, route, &[header.encode().as_slice(), &PortKey::encode(keys)].concat());
    }

    fn pack_fragment(
        &mut self,
        pml: &Pml,
        send: Handle,
        receiver: TransferId,
        offset: u64,
    ) -> Result<(Fragment, u64), NotPacked> {
        fragment::pack(pml, self, send, (receiver, offset))
    }

    fn post_fragment(&mut self, pml: &Pml, send: Handle, fragment: Fragment) -> Posted {
        fragment::post(pml, self, send, fragment)
    }

    fn has_free_buffer(&self) -> bool {
        self.buffers.iter().any(SendBuffers::has_free_large)
    }

    fn expose(&mut self, pml: &Pml, send: Handle) -> Result<Exposed<Registered>, Reason> {
        rails::expose(pml, self, send)
    }

    fn readable_by(&mut self, pml: &Pml, from: Route, keys: &[PortKey], wanted: u64) -> Vec<(Route, u32)> {
        rails::readable_by(pml, self, from, keys, wanted)
    }

    fn register(&mut self, pml: &Pml, receive: Handle, route: Route, wanted: u64) -> Option<ReadTarget<Registered>> {
        read::register(pml, self, receive, route, wanted)
    }

    fn deregister(&mut self, pml: &Pml, rail: usize, registered: Registered) {
        if let Some(rail) = pml.rails().get(rail) {
            // SAFETY: R3: no read of ours is in flight; or the peer has answered the announcement, so it has read the
            // message, or will not read it.
            unsafe { rail.port().memory().put_back(registered) };
        }
    }

    fn post_read(&mut self, pml: &Pml, receive: Handle, by: &ReadRail<Registered>, part: Part) -> bool {
        read::post(pml, self, receive, by, part)
    }

    fn copy_from_process(&mut self, pml: &Pml, receive: Handle, route: Route, of: (u64, u64)) -> bool {
        local::copy_from_process(pml, self, receive, route, of)
    }

    fn fails_over(&mut self, pml: &Pml, route: Route) -> bool {
        failover::fails_over(pml, self, route)
    }
}
