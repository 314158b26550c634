// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the messenger asks of an endpoint about tools: the events of requests and messages go to the trace of the
//! process (`recording`), if there is one. A peer is named by its rank in the job, as its address says.
//!
//! Grade: hot; one load and one branch without a trace. Threads: the one that has entered the endpoint. Tests:
//! `hw-tests`.

use std::hint::cold_path;

use crate::flight::{self, NO_PORT, NOBODY, record};
use crate::messenger::events::{self, Event};
use crate::messenger::host::{self, Process as _, Tools};
use crate::messenger::matching::{ADDR_UNSPEC, FiTag};
use crate::messenger::path_taken::PathTaken;
use crate::messenger::request::Role;
use crate::messenger::route::Account;

use super::environment::{Data as _, Environment, Recorder};
use super::request::Handle;
use super::{Kind, Shared, State};

/// Number of elements that each event of a request or a message has.
pub const ELEMENTS: usize = 10;

/// What events say of a message, or of a search for one.
pub struct Spec {
    of: Kind,
    peer: u64,
    tag: FiTag,
    length: usize,
    is_send: bool,
    /// Address of the request's memory.
    buffer: usize,
}

/// The peer of a receive from any address.
const ANY: i64 = -1;

/// A peer whose rank is not known: no process has it.
const UNKNOWN: i64 = i32::MAX as i64;

impl<E: Environment> Tools for State<E> {
    type Listeners = E::Recorder;
    type Spec = Spec;

    #[inline(always)]
    fn listeners(&mut self, _: Kind) -> Option<E::Recorder> {
        self.recording
    }

    #[inline(always)]
    fn listeners_of(&mut self, _: Handle) -> Option<E::Recorder> {
        self.recording
    }

    fn wants(to: E::Recorder, event: Event) -> bool {
        to.wants(event)
    }

    fn numbers(&mut self, count: u64) -> u64 {
        self.recording.map_or(0, |recording| recording.numbers(count))
    }

    fn spec(&mut self, of: Kind, (peer, tag): (u64, FiTag), length: usize) -> Spec {
        Spec { of, peer, tag, length, is_send: false, buffer: 0 }
    }

    fn of_spec(spec: &Spec) -> ((u64, FiTag), usize) {
        ((spec.peer, spec.tag), spec.length)
    }

    fn raise(&mut self, to: E::Recorder, event: Event, id: u64, request: Handle) {
        let of = self.requests.get(request);
        let (core, buffer) = (&of.core, of.core.data.address().unwrap_or(0) as usize);
        let (is_send, length) = (core.role != Role::Receive, host::Data::length(&core.data));
        let mut spec = Spec { of: of.call.kind, peer: core.peer, tag: core.tag, length, is_send, buffer };
        self.raise_of_message(to, event, id, &mut spec);
    }

    fn raise_of_message(&mut self, to: E::Recorder, event: Event, id: u64, spec: &mut Spec) {
        let (queues, _) = &self.queues[spec.of as usize];
        let peer = match spec.peer {
            ADDR_UNSPEC => ANY,
            peer => self.peers.rank(peer).map_or(UNKNOWN, i64::from),
        };
        let (context, operation) = (E::Recorder::CONTEXT + spec.of as u32, u64::from(!spec.is_send));
        let elements: [u64; ELEMENTS] = [
            id,
            spec.length as u64,
            spec.buffer as u64,
            peer.cast_unsigned(),
            spec.tag.tag,
            spec.tag.ignore,
            operation,
            context.into(),
            queues.posted().into(),
            queues.unexpected().into(),
        ];
        to.put(event, &elements);
    }

    fn raise_path(&mut self, to: E::Recorder, request: Handle, message: (u64, usize), path: PathTaken) {
        let of = self.requests.get(request);
        put_path(to, (of.core.watched.id, of.call.kind), message, path);
    }

    fn raise_path_of_message(&mut self, to: E::Recorder, id: u64, spec: &Spec, path: PathTaken) {
        put_path(to, (id, spec.of), (0, spec.length), path);
    }

    fn rank_in_job(&mut self, _: Kind, peer: u64) -> u32 {
        self.peers.rank(peer).unwrap_or(u32::MAX)
    }

    fn record_flow(&mut self, shared: &Shared<E::Adapter>, held_back: Option<Account>) {
        let name = held_back.and_then(|Account(route)| shared.enter_port(0)?.peer_name(route.to()));
        let kind = match held_back {
            Some(_) => flight::Kind::SenderHeldBack,
            None => flight::Kind::SendersLetGo,
        };
        let kept = self.messenger.flow.kept.bytes();
        record((kind, 0), NO_PORT, name.map_or(NOBODY, |name| name.rank), [kept, 0, 0, 0]);
    }
}

impl<E: Environment> State<E> {
    /// Raises the events that a request has ended. The program hears of it from the completion queue, so for tools it
    /// is notified at once.
    #[inline(always)]
    pub fn raise_end(&mut self, request: Handle) {
        if self.recording.is_some() {
            cold_path();
            for event in [Event::Complete, Event::Notify] {
                events::raise(self, request, event);
            }
        }
    }
}

/// Records the path of a message, with the elements of [`crate::events::ProtocolEvent`].
fn put_path<R: Recorder>(to: R, (id, of): (u64, Kind), (message, length): (u64, usize), path: PathTaken) {
    let PathTaken { protocol, reason, port, queue_pair, rails } = path;
    let numbers = [R::CONTEXT + of as u32, protocol as u32, reason as u32, port, queue_pair, rails].map(u64::from);
    let [context, protocol, reason, port, queue_pair, rails] = numbers;
    to.put(Event::Protocol, &[id, message, length as u64, context, protocol, reason, port, queue_pair, rails]);
}
