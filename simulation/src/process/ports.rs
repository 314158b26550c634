// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the messenger's rails ask of a process: the memory that its adapters access, the tokens of its requests, and
//! the routes to other processes. Grade: test. Threads: one.

use ibex::messenger::header::{Header, Match};
use ibex::messenger::host::{Memory, Peers, Process as _, Record};
use ibex::messenger::matching::Envelope;
use ibex::messenger::rails::routes;
use ibex::messenger::rails::send_buffers::BufferId;
use ibex::messenger::receive;
use ibex::messenger::rendezvous::stripes::Part;
use ibex::messenger::route::Route;
use ibex::peer::PeerName;
use ibex::transport::{Failure, ReceivedMessage, Token};
use ibex_ffi::verbs::{Access, InlineSpan, LocalSpan};

use super::{Data, Handle, Process, Shared, name};

impl Process {
    /// Returns the route to a rank.
    pub(super) fn route(&mut self, to: u32) -> Route {
        if let Some(route) = self.messenger.rails.known.get(&name(to)) {
            return *route;
        }
        let shared = self.shared();
        let routes = self.routes_to(&shared, name(to));
        let route = if shared.is_multi_rail() {
            let peer = routes::add(&*shared, self, name(to), routes);
            self.messenger.rails.multi_rail.peers[peer].routes[0]
        } else {
            routes[0]
        };
        self.messenger.rails.known.insert(name(to), route);
        route
    }

    /// Returns the rank of the peer of a route.
    pub(super) fn rank_of(&self, route: Route) -> i32 {
        if let Some(near) = route.as_local() {
            return near as i32;
        }
        self.shared.port(route.rail()).peer_name(route.to()).expect("a route leads to a peer").rank as i32
    }
}

impl Memory for Process {
    type Received<'m> = Vec<u8>;

    fn address(&mut self, request: Handle) -> Option<u64> {
        Some(self.requests.get(request).core.data.extent()?.0)
    }

    fn register(
        &mut self,
        shared: &Shared,
        request: Handle,
        rail: usize,
        length: usize,
        access: Access,
    ) -> Option<u32> {
        let start = self.address(request)?;
        self.memory.register(shared.rails.get(rail)?.place, (start, length), access)
    }

    fn rkey(registered: u32) -> u32 {
        registered
    }

    fn target(&mut self, receive: Handle, Part { offset, length }: Part, registered: u32) -> LocalSpan {
        let start = self.address(receive).expect("data that is read has no gaps");
        LocalSpan::simulated(start + offset, length, registered)
    }

    fn inline<R>(&mut self, send: Handle, post: impl FnOnce(InlineSpan<'_>) -> R) -> Option<R> {
        let data = &self.requests.get(send).core.data;
        data.extent().map(|_| post((&*data.packed()).into()))
    }

    fn fill<R>(&mut self, send: Handle, buffer: LocalSpan, fill: impl FnOnce(&mut Data, &mut [u8]) -> R) -> R {
        let mut bytes = vec![0; buffer.len() as usize];
        let result = fill(&mut self.requests.get(send).core.data, &mut bytes);
        self.memory.with(buffer.addr(), bytes.len(), |to| to.copy_from_slice(&bytes));
        result
    }

    fn copy_of(&mut self, buffer: LocalSpan) -> Vec<u8> {
        self.memory.with(buffer.addr(), buffer.len() as usize, |bytes| bytes.to_vec())
    }

    fn received(&mut self, message: &ReceivedMessage) -> Vec<u8> {
        self.memory.with(message.address(), message.length() as usize, |bytes| bytes.to_vec())
    }

    fn token(record: Record<Handle>) -> Token {
        let (kind, bits) = match record {
            Record::Buffer(BufferId(buffer)) => (1, u64::from(buffer)),
            Record::Read(request) => (2, request.bits()),
            Record::Sent(request) => (3, request.bits()),
            Record::Turn => (4, 0),
        };
        Token(kind << 56 | bits)
    }

    fn record_of(Token(bits): Token) -> Option<Record<Handle>> {
        let rest = bits & ((1 << 56) - 1);
        Some(match bits >> 56 {
            1 => Record::Buffer(BufferId(rest as u32)),
            2 => Record::Read(Handle::from_bits(rest)),
            3 => Record::Sent(Handle::from_bits(rest)),
            4 => Record::Turn,
            _ => panic!("a port returns a token that it was not given: 0x{bits:x}"),
        })
    }
}

impl Peers for Process {
    fn me(&self) -> u32 {
        self.rank
    }

    fn name_of(&mut self, _: u32, rank: i32) -> Option<PeerName> {
        Some(name(rank as u32))
    }

    fn routes_to(&mut self, shared: &Shared, peer: PeerName) -> Vec<Route> {
        // A single port may be connected to the first port of a peer alone.
        (0..shared.rail_count()).map(|rail| Route::new(rail, shared.port(rail).peer(peer, rail as u8))).collect()
    }

    fn link_changed(&mut self, shared: &Shared, rail: usize, is_up: bool) {
        let mut port = shared.port(rail);
        if is_up {
            port.undivert(|_| true);
        } else {
            port.divert_all(|_| false);
        }
    }

    fn gives_up(&mut self, _: &Shared, rail: usize, failure: &Failure, other: usize) {
        assert!(rail != other, "another port carries the messages");
        self.given_up.push((rail, failure.peer.rank));
    }

    fn has_turn(&mut self) {}

    /// Checks what flow control owes to both sides.
    fn handle(&mut self, shared: &Shared, bytes: &[u8], sender: impl Fn() -> Option<Route>) {
        let (header, _) = Header::<Envelope>::decode(bytes).expect("processes send headers");
        let (sender, kept) = (sender(), self.messenger.flow.kept.bytes());
        if let (Header::Flow(word), Some(sender)) = (header, sender) {
            self.hears(sender, word);
        }
        let begun = begun(&header);
        let is_early = begun.is_some_and(|of| !self.has_context(of.context));
        receive::handle(shared, self, bytes, || sender);
        assert!(!is_early || self.messenger.flow.kept.bytes() > kept, "an early message takes memory");
        let is_unknown = sender.expect("the sender of a message is known") == Route::UNKNOWN;
        // The messenger cannot look an unknown sender up before the communicator is added.
        if let Some(of) = begun.filter(|_| self.messenger.flow.kept.bytes() > kept && !(is_early && is_unknown)) {
            self.must_hold_back(of.envelope.source());
        }
    }
}

/// Returns the communicator and the sender of a message that begins a send.
const fn begun(header: &Header) -> Option<Match> {
    use Header::{Delivered, Eager, ReadyToSend, ReadyToSendKeyed, Synchronous};
    match *header {
        Eager(of) | Synchronous(of, _) | Delivered(of, _) | ReadyToSend(of, ..) | ReadyToSendKeyed(of, ..) => Some(of),
        _ => None,
    }
}
