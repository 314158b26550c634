// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open MPI as the messenger's host: the functions that the protocols of `engine::messenger` call. Grade: hot. Threads:
//! the one that has entered the PML. Tests: `pml/tests.rs`.

use engine::messenger;
use engine::messenger::header::{Header, Match, PortKey};
use engine::messenger::host::{Bytes, Exposed, Host, Moved, NotPacked, Ports, Posted, Tools, Transmitted};
use engine::messenger::matching::Envelope;
use engine::messenger::path_taken::{PathTaken, Protocol, Reason};
use engine::messenger::receive::arrived::Arrived;
use engine::messenger::rendezvous::Step;
use engine::messenger::rendezvous::read::{ReadRail, ReadTarget};
use engine::messenger::rendezvous::stripes::Part;
use engine::messenger::request::transfer_id::TransferId;
use engine::messenger::route::{Account, Route};
use engine::transport::Failed;
use ibex_ffi::openmpi::release;

use super::datatype::UserData;
use super::instance::{Pml, Rail, State};
use super::ports::buffer::SendBuffers;
use super::ports::fragment::Fragment;
use super::ports::read::WatchedReads;
use super::ports::{failover, flow, fragment, local, rails, read, routing, token, transmit};
use super::request::{Core, Handle, Outcome, Told};
use super::tools::{flight, path_taken, watch};
use super::{finish, incoming};
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

impl Tools for State {
    fn goes(&mut self, request: Handle, path: PathTaken) {
        watch::goes(self, request, |_| Some(path));
    }

    fn goes_by_route(&mut self, pml: &Pml, request: Handle, route: Route, how: (Protocol, Reason), rails: usize) {
        watch::goes(self, request, |state| Some(path_taken::by(pml, rails::home(pml, state, route), how, rails)));
    }

    fn has_begun(&mut self, request: Handle) -> bool {
        self.requests.get(request).shell.told != Told::Nothing
    }

    fn begins(&mut self, request: Handle, moved: Moved) {
        watch::begins(self, request, moved);
    }

    fn begins_whole(&mut self, pml: &Pml, send: Handle, route: Route) -> bool {
        watch::begins_if(self, send, Bytes::All.posted(), |state| state.has_room(pml, route))
    }

    fn continues(&mut self, request: Handle, moved: Moved) {
        watch::continues(self, request, moved);
    }

    fn ends(&mut self, request: Handle, moved: Moved) {
        watch::ends(self, request, moved);
    }

    fn ends_whole(&mut self, pml: &Pml, send: Handle, moved: Moved) {
        watch::ends_by(self, send, moved, |state| Some(path_taken::sent(pml, state, send)));
    }

    fn begins_reading(&mut self, pml: &Pml, receive: Handle) {
        read::begins(pml, self, receive);
    }

    fn read_ended(&mut self, pml: &Pml, receive: Handle, rail: usize, part: Part, outcome: Result<(), Failed>) {
        read::ended(pml, self, receive, rail, (part, outcome));
    }

    fn record(&mut self, request: Handle, step: &Step) {
        flight::note(self, request, step);
    }

    fn record_flow(&mut self, pml: &Pml, held_back: Option<Account>) {
        flight::held_back(pml, held_back, self.messenger.flow.kept.bytes());
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

    fn rank(&mut self, request: Handle) -> i32 {
        self.communicator(request).rank
    }

    fn context(&mut self, request: Handle) -> u32 {
        // SAFETY: P1: the request is not finished, so Open MPI's communicator is alive, even if the PML's has gone.
        unsafe { release::context(self.requests.get(request).comm()) }
    }

    fn is_abandoned(&mut self, send: Handle) -> bool {
        // SAFETY: P1: the send is not finished, so Open MPI's communicator is alive. `MPI_Finalize` removes the PML's.
        unsafe { (*self.requests.get(send).comm()).c_pml_comm.is_null() }
    }

    fn take_posted(&mut self, send: Handle, envelope: Envelope, length: usize) -> Result<Handle, u64> {
        let communicator = self.communicator(send);
        let told = (|_: &mut State, _| Some(PathTaken::LOOPBACK), |_: &mut State| {});
        watch::take_posted(self, communicator, envelope, (length, length), told)
    }

    fn keep(&mut self, pml: &Pml, send: Handle, envelope: Envelope, message: Arrived) {
        let (communicator, from) = (self.communicator(send), message.from);
        incoming::keep(pml, self, communicator, (envelope, message), || Some(from));
    }

    fn deliver_whole(&mut self, pml: &Pml, of: Match, bytes: &[u8], sender: impl Fn() -> Option<Route> + Copy) {
        incoming::whole(pml, self, of, bytes, sender);
    }

    fn deliver(&mut self, pml: &Pml, context: u32, envelope: Envelope, message: Arrived) {
        incoming::deliver(pml, self, context, envelope, message);
    }

    fn wants_more(&mut self, context: u32) -> bool {
        self.contexts.get(context).copied().is_some_and(|communicator| {
            // SAFETY: P1: in `state.contexts`, so alive.
            let communicator = unsafe { communicator.as_ref() };
            communicator.has_posted(self) || communicator.unexpected(self) == 0
        })
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
