// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the messenger asks of its host's ports: sends, reads and registrations; and the send buffers. Grade: test.
//! Threads: one.

use std::sync::Arc;

use ibex::messenger::header::{Header, MAX_SIZE, PortKey};
use ibex::messenger::host::{Data as _, Exposed, Host as _, NotPacked, Ports, Posted, Transmitted};
use ibex::messenger::path_taken::Reason;
use ibex::messenger::rendezvous::read::{ReadRail, ReadTarget};
use ibex::messenger::rendezvous::stripes::Part;
use ibex::messenger::request::transfer_id::TransferId;
use ibex::messenger::request::{Core, Transfer};
use ibex::messenger::route::{Account, Route};
use ibex::transport::adapter::simulated::Adapter;
use ibex::transport::{Port, Sent, Token, WhenDiverted};
use ibex_ffi::verbs::{Access, InlineSpan, LocalSpan, RemoteSpan};

use super::{Handle, Process, Settings, TAG};

/// Number of peers with which not every check is made.
const MANY: usize = 100;

/// What the token of a work request stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Record {
    /// A send buffer of the port.
    Buffer(u32),
    /// A request whose read has ended.
    Read(Handle),
    /// A request whose message or fragment was sent without a buffer.
    Sent(Handle),
    /// The turn of pending messages.
    Turn,
}

impl Record {
    pub(super) const fn token(self) -> Token {
        let (kind, bits) = match self {
            Record::Buffer(buffer) => (1, buffer as u64),
            Record::Read(request) => (2, request.bits()),
            Record::Sent(request) => (3, request.bits()),
            Record::Turn => (4, 0),
        };
        Token(kind << 56 | bits)
    }

    pub(super) fn of(Token(bits): Token) -> Record {
        let rest = bits & ((1 << 56) - 1);
        match bits >> 56 {
            1 => Record::Buffer(rest as u32),
            2 => Record::Read(Handle::from_bits(rest)),
            3 => Record::Sent(Handle::from_bits(rest)),
            4 => Record::Turn,
            _ => panic!("a port returns a token that it was not given: 0x{bits:x}"),
        }
    }
}

/// Contents of a send buffer.
#[derive(Debug, Clone, Copy)]
pub(super) enum Content {
    Free,
    /// A message whose completion nobody waits for.
    Silent,
    Fragment(Handle),
}

struct Buffer {
    span: LocalSpan,
    content: Content,
    is_large: bool,
}

/// Send buffers of a port: short ones for messages, long ones for fragments.
pub(super) struct Buffers {
    all: Vec<Buffer>,
    /// Free buffers, short and long, of these sizes.
    free: [Vec<u32>; 2],
    sizes: [u32; 2],
    made: [u32; 2],
    most: u32,
}

impl Buffers {
    pub(super) fn new(short: u32, long: u32, most: u32) -> Self {
        Buffers { all: Vec::new(), free: Default::default(), sizes: [short, long], made: [0; 2], most }
    }

    fn take(&mut self, port: &mut Port<Adapter>, is_large: bool) -> Option<u32> {
        let which = usize::from(is_large);
        if self.free[which].is_empty() && self.made[which] < self.most {
            let spans = port.grow(self.sizes[which], self.most).expect("the fabric refuses nothing");
            self.made[which] += spans.len() as u32;
            for span in spans.into_iter().rev() {
                self.free[which].push(self.all.len() as u32);
                self.all.push(Buffer { span, content: Content::Free, is_large });
            }
        }
        self.free[which].pop()
    }

    /// Gives a buffer back. Returns what it contained.
    pub(super) fn give_back(&mut self, buffer: u32) -> Content {
        let known = &mut self.all[buffer as usize];
        let content = std::mem::replace(&mut known.content, Content::Free);
        self.free[usize::from(known.is_large)].push(buffer);
        content
    }

    pub(super) fn is_silent(&self, buffer: u32) -> bool {
        matches!(self.all[buffer as usize].content, Content::Silent)
    }

    fn filled(&mut self, buffer: u32, content: Content, length: usize) -> LocalSpan {
        let known = &mut self.all[buffer as usize];
        known.content = content;
        known.span.first(length as u32)
    }

    pub(super) fn start(&self, buffer: u32) -> u64 {
        self.all[buffer as usize].span.addr()
    }

    pub(super) fn in_use(&self) -> usize {
        self.all.len() - self.free.iter().map(Vec::len).sum::<usize>()
    }
}

/// A packed fragment in the first bytes of a send buffer, as many as `length` says.
pub(crate) struct Fragment {
    route: Route,
    buffer: u32,
    length: usize,
}

impl Process {
    /// Gives a port a message without data. False: the port refuses it.
    fn control_by(&mut self, route: Route, message: &[u8]) -> bool {
        let port = self.port(route.rail());
        let is_posted = port.send_inline(route.to(), TAG, message.into(), InlineSpan::EMPTY) == Ok(Sent::Posted);
        let bytes = (Arc::from(message), message.len() as u32);
        let is_given = is_posted || port.queue_bytes(route.to(), TAG, bytes, Token(0), WhenDiverted::Wait).is_ok();
        if is_given {
            self.note_sent(route, is_posted);
        }
        is_given
    }

    /// Calls `give` with the peer's home, and again with another one while it returns false. If none is left, the peer
    /// is lost.
    fn by_home(&mut self, route: Route, give: impl Fn(&mut Self, Route) -> bool) {
        loop {
            let route = self.home_of(route);
            if give(self, route) {
                return;
            }
            if !self.moves_from(route) {
                return self.fails();
            }
        }
    }

    /// Gives a port a message in ordinary memory. Counts it if it takes it.
    pub(super) fn queue_bytes(&mut self, route: Route, bytes: (Arc<[u8]>, u32), token: Token) -> bool {
        let port = self.port(route.rail());
        let is_given = port.queue_bytes(route.to(), TAG, bytes, token, WhenDiverted::Wait).is_ok();
        if is_given {
            self.note_sent(route, false);
        }
        is_given
    }

    fn give(&mut self, route: Route, header: &[u8], send: Handle, finishes: bool) -> Transmitted {
        let data = &self.requests.get(send).core.data;
        let (payload, is_contiguous) = (data.packed(), data.is_contiguous());
        let (port, length) = (self.port(route.rail()), header.len() + payload.len());
        if is_contiguous && port.send_inline(route.to(), TAG, header.into(), (&*payload).into()) == Ok(Sent::Posted) {
            return Transmitted::Posted;
        }
        if !port.has_room(route.to()) {
            return Transmitted::NoRoom;
        }
        let rail = &mut self.rails[route.rail()];
        let port = rail.port.as_mut().expect("nothing is called while the port polls");
        let message = [header, &*payload].concat();
        let Some(buffer) = rail.buffers.take(port, false) else {
            let token = if finishes { Record::Sent(send).token() } else { Token(0) };
            let bytes = (Arc::from(message), length as u32);
            let given = port.queue_bytes(route.to(), TAG, bytes, token, WhenDiverted::Wait);
            return if given.is_ok() { Transmitted::Waits } else { Transmitted::Failed };
        };
        self.memory.with(rail.buffers.start(buffer), length, |bytes| bytes.copy_from_slice(&message));
        let span = rail.buffers.filled(buffer, Content::Silent, length);
        if port.send(route.to(), TAG, &[span], Record::Buffer(buffer).token(), false) == Ok(Sent::Posted) {
            return Transmitted::Posted;
        }
        rail.buffers.give_back(buffer);
        Transmitted::NoRoom
    }
}

impl Ports for Process {
    type Handle = Handle;
    type Process = Settings;
    type Registration = u32;
    type Fragment = Fragment;

    fn eager_limit(&self, settings: &Settings, _route: Route) -> usize {
        settings.eager - MAX_SIZE
    }

    fn home(&mut self, _: &Settings, route: Route) -> Route {
        self.home_of(route)
    }

    fn account(&mut self, _: &Settings, route: Route) -> Account {
        self.account_of(route)
    }

    fn has_room(&mut self, _: &Settings, route: Route) -> bool {
        self.port(route.rail()).has_room(route.to())
    }

    fn queue_turn(&mut self, _: &Settings, route: Route) {
        self.by_home(route, |process, route| {
            process.port(route.rail()).queue_turn(route.to(), TAG, Record::Turn.token()).is_ok()
        });
    }

    fn begin_turn(&mut self, _: &Settings, route: Route) {
        self.port(route.rail()).begin_turn(route.to());
    }

    fn end_turn(&mut self, _: &Settings, route: Route) {
        self.port(route.rail()).end_turn(route.to(), Record::Turn.token());
    }

    fn skips_flow_control(&mut self, _: &Settings, send: Handle) -> bool {
        let request = self.requests.get(send);
        let (context, peer) = (request.context, request.core.peer);
        self.with_context(context).open.contains(&peer)
    }

    fn set_skips_flow_control(&mut self, _: &Settings, send: Handle, passes: bool) {
        let request = self.requests.get(send);
        let (context, peer) = (request.context, request.core.peer);
        let open = &mut self.with_context(context).open;
        _ = if passes { open.insert(peer) } else { open.remove(&peer) };
    }

    fn mark(&mut self, _: &Settings, Account(route): Account) {
        let peer = self.rank_of(route);
        self.communicators.values_mut().for_each(|communicator| _ = communicator.open.remove(&peer));
    }

    fn send_whole(&mut self, _: &Settings, send: Handle, header: &Header, finishes: bool) -> Transmitted {
        let &mut Core { route, peer, .. } = &mut self.requests.get(send).core;
        self.may_send_whole(peer);
        let route = self.home_of(route);
        let transmitted = self.give(route, header.encode().as_slice(), send, finishes);
        if matches!(transmitted, Transmitted::Posted | Transmitted::Waits) {
            self.note_sent(route, transmitted == Transmitted::Posted);
        }
        transmitted
    }

    fn control(&mut self, _: &Settings, route: Route, header: &Header) {
        if let Header::Flow(word) = *header {
            self.says(route, word);
        }
        let message = header.encode();
        self.by_home(route, |process, route| process.control_by(route, message.as_slice()));
    }

    fn control_with_keys(&mut self, _: &Settings, route: Route, header: &Header, keys: &[PortKey]) {
        let message = [header.encode().as_slice(), &PortKey::encode(keys)].concat();
        self.by_home(route, |process, route| process.control_by(route, &message));
    }

    fn pack_fragment(
        &mut self,
        settings: &Settings,
        send: Handle,
        receiver: TransferId,
        offset: u64,
    ) -> Result<(Fragment, u64), NotPacked> {
        let header = Header::Fragment { receive: receiver.0, offset }.encode();
        let route = self.requests.get(send).core.route;
        let route = self.home_of(route);
        let rail = &mut self.rails[route.rail()];
        let port = rail.port.as_mut().expect("nothing is called while the port polls");
        let buffer = rail.buffers.take(port, true).ok_or(NotPacked::NoBuffer)?;
        let start = rail.buffers.start(buffer);
        let mut data = vec![0; settings.sizes.receive as usize - header.len()];
        let length = self.requests.get(send).core.data.take_at(offset as usize, &mut data);
        assert!(length > 0, "a fragment has data");
        let message = [header.as_slice(), &data[..length]].concat();
        self.memory.with(start, message.len(), |bytes| bytes.copy_from_slice(&message));
        Ok((Fragment { route, buffer, length: message.len() }, length as u64))
    }

    fn post_fragment(&mut self, _: &Settings, send: Handle, fragment: Fragment) -> Posted {
        let Fragment { route, buffer, length } = fragment;
        let rail = &mut self.rails[route.rail()];
        let port = rail.port.as_mut().expect("nothing is called while the port polls");
        let (spans, token) =
            ([rail.buffers.filled(buffer, Content::Fragment(send), length)], Record::Buffer(buffer).token());
        let is_given = match port.send(route.to(), TAG, &spans, token, true) {
            Ok(Sent::Posted) => Ok(true),
            Ok(Sent::Busy) => port.queue_send(route.to(), TAG, &spans, token, WhenDiverted::Wait).map(|()| false),
            Err(refused) => Err(refused),
        };
        if let Ok(is_posted) = is_given {
            self.note_sent(route, is_posted);
            return Posted::InFlight;
        }
        if !self.moves_from(route) {
            self.rails[route.rail()].buffers.give_back(buffer);
            return Posted::Failed;
        }
        let home = self.home_of(route);
        if self.send_buffer_again((route, home), buffer, length) { Posted::InFlight } else { Posted::Failed }
    }

    fn has_free_buffer(&self) -> bool {
        self.rails.iter().any(|rail| !rail.buffers.free[1].is_empty())
    }

    fn expose(&mut self, _: &Settings, send: Handle) -> Result<Exposed<u32>, Reason> {
        let core = &self.requests.get(send).core;
        let (route, extent) = (core.route, core.data.extent().ok_or(Reason::Gaps)?);
        let place = self.rails[route.rail()].place;
        let key = self.memory.register(place, extent, Access::REMOTE_READ).ok_or(Reason::NotRegistered)?;
        let others = self.expose_by_others(route, extent);
        let all = std::iter::once((route.rail(), key)).chain(others.iter().copied());
        let keys = all.map(|(rail, key)| PortKey { port: rail as u32, key });
        let keys = if self.is_multi_rail() { keys.collect() } else { Vec::new() };
        Ok(Exposed { address: extent.0, key, registered: Some(key), others, keys })
    }

    fn readable_by(&mut self, _: &Settings, from: Route, keys: &[PortKey], wanted: u64) -> Vec<(Route, u32)> {
        self.routes_to_read(from, keys, wanted)
    }

    fn register(&mut self, settings: &Settings, receive: Handle, route: Route, wanted: u64) -> Option<ReadTarget<u32>> {
        let (start, _) = self.requests.get(receive).core.data.extent()?;
        let rail = self.rails.get(route.rail())?;
        let registered = self.memory.register(rail.place, (start, wanted as usize), Access::LOCAL_WRITE)?;
        Some(ReadTarget { registered, mbps: rail.mbps, longest: settings.read })
    }

    fn deregister(&mut self, _: &Settings, rail: usize, registered: u32) {
        self.memory.deregister(self.rails[rail].place, registered);
        // With many processes this search takes too long.
        let is_named = self.routes.len() < MANY && self.fabric.reads_to(registered);
        assert!(!is_named, "a read in flight names a registration that ends");
    }

    fn post_read(&mut self, _: &Settings, receive: Handle, by: &ReadRail<u32>, part: Part) -> bool {
        let &ReadRail { route, key, registered } = by;
        let core = &self.requests.get(receive).core;
        let (Some((start, _)), Transfer::Reading(reads)) = (core.data.extent(), &core.transfer) else { return false };
        let remote = RemoteSpan { addr: reads.address + part.offset, rkey: key };
        let local = LocalSpan::simulated(start + part.offset, part.length, registered);
        self.port(route.rail()).get(route.to(), local, remote, Record::Read(receive).token()).is_ok()
    }

    fn copy_from_process(&mut self, _: &Settings, _: Handle, _: Route, _: (u64, u64)) -> bool {
        false
    }

    fn fails_over(&mut self, _: &Settings, route: Route) -> bool {
        self.moves_from(route)
    }
}
