// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open MPI as the messenger's host: the functions that the protocols of `engine::messenger` call. `communicator` and
//! `tools` have those of communicators and tools. Grade: hot. Threads: the one that has entered the PML. Tests:
//! `pml/tests.rs`.

use engine::messenger;
use engine::messenger::header::{Header, PortKey};
use engine::messenger::host::{Exposed, Host, NotPacked, Ports, Posted, Transmitted};
use engine::messenger::path_taken::Reason;
use engine::messenger::rendezvous::read::{ReadRail, ReadTarget};
use engine::messenger::rendezvous::stripes::Part;
use engine::messenger::request::transfer_id::TransferId;
use engine::messenger::route::{Account, Route};

use super::datatype::UserData;
use super::finish;
use super::instance::{Pml, Rail, State};
use super::ports::buffer::SendBuffers;
use super::ports::fragment::Fragment;
use super::ports::read::WatchedReads;
use super::ports::{failover, flow, fragment, local, rails, read, routing, token, transmit};
use super::request::{Core, Handle, Outcome};
use crate::runtime::memory::Registered;
use crate::runtime::messages;

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
        flow::has_route(pml, self, send)
    }

    fn set_skips_flow_control(&mut self, pml: &Pml, send: Handle, passes: bool) {
        flow::set_route(pml, self, send, passes);
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

impl Host for State {
    type Data = UserData;
    type WatchedReads = WatchedReads;

    fn core(&mut self, request: Handle) -> &mut Core {
        self.requests.core(request)
    }

    fn messenger(&mut self) -> &mut messenger::State<State> {
        &mut self.messenger
    }

    fn note(&mut self, receive: Handle, outcome: &Outcome) {
        finish::note(self.requests.get(receive), outcome);
    }

    fn copy(&mut self, send: Handle, receive: Handle) {
        let [from, to] = self.requests.cores([send, receive]);
        if !from.data.copy_to(&mut to.data) {
            finish::note_not_put(self.requests.get(receive));
        }
    }

    fn cannot_unpack(&mut self, receive: Handle) {
        finish::note_not_put(self.requests.get(receive));
    }

    fn finish(&mut self, request: Handle) {
        finish::finish(self, request);
    }

    fn fails(&mut self) {
        transmit::failed(self);
    }

    fn cannot_pack(&mut self, length: usize) {
        transmit::cannot_pack(self, length);
    }

    fn cannot_send(&mut self, asked: u64, length: u64) {
        transmit::failed_for(self, &messages::asked_for(asked, length));
    }
}
