// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulated adapters for tests without a device: the ports of several processes and the network between them, in
//! virtual time.
//!
//! A posted request stays in its queue pair until the test first carries it to the peer and then acknowledges it. So a
//! process that changes its buffer too early sends the changed bytes, and a request whose memory is not registered any
//! more fails the test. A request stays posted while the receiver has no free slot (RNR) or one of the two ports has no
//! link. It fails if the test makes its queue pair fail, or if the peer's has failed. This file has the network,
//! `queue_pair.rs` the queue pairs and their states, `responder.rs` the execution of requests, `objects.rs` the other
//! objects of a port. The engine's tests dictate the events of one port (`script.rs`), those of the plugin let the
//! network move. hw-tests compares the adapters with real ones (tests/engine/random). Grade: test. Threads: the test's.

pub(crate) mod objects;
pub(crate) mod queue_pair;
mod responder;
#[cfg(test)]
mod script;
#[cfg(test)]
mod tests;

use crate::connect::Via;
use crate::connect::hello::Hello;
use crate::peer::PeerName;
use crate::select::PortChoice;
use crate::select::address::{GID_ROCE_V2, LINK_ETHERNET, PortAddress, PortEntry};
use crate::select::key::Key;
use crate::transport::port::StandIn;
use crate::transport::{Atomics, Attributes, Directory, Port, Setup, WrId};
use crate::tunables::Tunables;
use ibex_ffi::verbs::{Access, AsyncEvent, InlineSpan, LocalSpan, Status, WorkCompletion, async_event};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use objects::Adapter;
use objects::Layout;
use queue_pair::{Qp, QpState, Work};
use responder::Refused;
#[cfg(test)]
pub(crate) use script::{Script, send_id};

/// Bytes in memory: their address and number, and the key of their registration.
pub type Span = (u64, u32, u32);

/// The memory that the adapters access. The engine has no unsafe code, so the user of real memory implements this.
pub trait Memory: Send {
    /// Allocates `size` bytes for slots of a port, and registers them. Returns their address and key.
    fn allocate(&mut self, port: usize, size: usize) -> (u64, u32);

    /// Ends the registration of an allocation, and frees it.
    fn free(&mut self, key: u32);

    /// Names bytes of an allocation.
    fn span(&self, at: Span) -> LocalSpan;

    /// Copies the bytes that a work request carries.
    fn inline(&self, span: InlineSpan<'_>) -> Vec<u8>;

    /// Reads for a port, which needs no right to its own memory (`right` is empty). `None` unless the port has
    /// registered these bytes with this key and right. May panic instead if only an error of the transport causes that.
    fn read(&self, port: usize, at: Span, right: Access) -> Option<Vec<u8>>;

    /// Writes for a port. `None`, or panics, like [`Self::read`].
    fn write(&mut self, port: usize, at: Span, right: Access, bytes: &[u8]) -> Option<()>;
}

/// Sizes in bytes of the largest message in a work request, in unregistered memory and in a slot; number of slots, of
/// bounce buffers, and of requests per queue pair.
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "above")]
pub struct Sizes {
    pub inline: u32,
    pub bounce: u32,
    pub receive: u32,
    pub slots: u32,
    pub bounces: u32,
    pub depth: u32,
}

#[derive(Default)]
pub(crate) struct PortState {
    /// Instance and key by which hellos reach the port within its fabric.
    identity: Option<(u64, Key)>,
    is_down: bool,
    /// Most requests of a queue pair; 0: no limit.
    depth: u32,
    slots: Layout,
    /// Posted receive slots, in the order in which messages will fill them.
    pub(crate) receives: VecDeque<u32>,
    pub(crate) completions: VecDeque<WorkCompletion>,
    pub(crate) async_events: VecDeque<AsyncEvent>,
    /// The port with its new address, if it has changed.
    pub(crate) readdressed: Option<PortChoice>,
    pub(crate) ud_qpn: u32,
    pub(crate) has_tcp: bool,
    /// Hellos in flight to this port, by datagram and by TCP; hellos that it has sent to ports outside of the fabric,
    /// and their carriers.
    pub(crate) incoming: VecDeque<Hello>,
    pub(crate) incoming_tcp: VecDeque<Hello>,
    pub(crate) sent: Vec<(PortAddress, [u8; Hello::SIZE])>,
    pub(crate) sent_via: Vec<Via>,
    /// Answers to the next posts, in order; `None` accepts the request.
    pub(crate) answers: VecDeque<Option<i32>>,
    /// Whether the adapter refuses to let queue pairs receive that permit atomics.
    pub(crate) is_without_atomics: bool,
    /// Errno of the next creation of a queue pair.
    pub(crate) refused_qp: Option<i32>,
    /// Errno of each further registration of send slots.
    refused_slots: Option<i32>,
    /// Most receives that a post accepts.
    pub(crate) takes_receives: Option<usize>,
    /// Errno of the next poll.
    pub(crate) broken_poll: Option<i32>,
}

pub(crate) struct State {
    pub(crate) now: Duration,
    /// Time that passes when a port reads the clock.
    tick: Duration,
    memory: Box<dyn Memory>,
    ports: Vec<PortState>,
    /// All queue pairs made so far: a test can inspect them after their destruction.
    pub(crate) qps: Vec<Qp>,
    published: HashMap<PeerName, Vec<PortEntry>>,
    /// Number of hellos sent, requests carried and requests completed.
    moved: u64,
    /// Whether a failed queue pair had a message, or got one before its owner learned of the failure.
    has_lost_message: bool,
}

/// Number of the first queue pair.
const FIRST: u32 = 0x100;

/// Instance of the first port.
const INSTANCE: u64 = 7;

impl State {
    /// Returns the port of the fabric with this instance.
    fn port_of(&mut self, instance: u64) -> Option<&mut PortState> {
        let port = self.ports.get_mut(instance.checked_sub(INSTANCE)? as usize)?;
        port.identity.is_some_and(|(known, _)| known == instance).then_some(port)
    }

    /// Completes the oldest request of a queue pair. False if it has none.
    fn complete(&mut self, index: usize, status: Status) -> bool {
        let qp = &mut self.qps[index];
        let Some(request) = qp.posted.pop_front() else { return false };
        qp.carried = qp.carried.saturating_sub(1);
        self.moved += 1;
        if request.signalled || status != Status::SUCCESS {
            let completion = WorkCompletion::scripted(request.id, status, 0, None, qp.number);
            self.ports[qp.port].completions.push_back(completion);
        }
        true
    }

    /// Puts a queue pair in error: its oldest request fails, and the others will be flushed.
    fn fail(&mut self, index: usize) {
        self.note_lost(index);
        self.qps[index].state = QpState::Error;
        self.complete(index, Status::RETRY_EXCEEDED);
    }

    /// Notes the messages of a queue pair that fails.
    fn note_lost(&mut self, index: usize) {
        let has_message = self.qps[index].posted.iter().any(|posted| matches!(posted.work, Work::Send { .. }));
        self.has_lost_message |= has_message;
    }
}

/// The ports of all processes, and the network between them.
#[derive(Clone)]
pub struct Fabric(Arc<Mutex<State>>);

impl Fabric {
    /// Makes a fabric without ports. `tick`: time that passes when a port reads the clock.
    pub fn new(memory: Box<dyn Memory>, tick: Duration) -> Self {
        Fabric(Arc::new(Mutex::new(State {
            now: Duration::ZERO,
            tick,
            memory,
            ports: Vec::new(),
            qps: Vec::new(),
            published: HashMap::new(),
            moved: 0,
            has_lost_message: false,
        })))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // A test that failed while it looked still drops its ports.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the next port of a process. Returns it, its number in the fabric and its index in the process. Ports with
    /// the same index are in the same network.
    ///
    /// # Panics
    /// Never: the fabric refuses nothing.
    pub fn open(&self, me: PeerName, mbps: u32, sizes: Sizes, tunables: &Tunables) -> (Port<Adapter>, usize, u8) {
        let mut state = self.state();
        let place = state.ports.len();
        let index = state.published.get(&me).map_or(0, Vec::len) as u8;
        let instance = place as u64 + INSTANCE;
        let key = Key::from_bytes((place as u128 + 1).to_le_bytes());
        let (identity, ud_qpn) = (Some((instance, key)), instance as u32);
        state.ports.push(PortState { identity, ud_qpn, depth: sizes.depth, ..PortState::default() });
        let entry = PortEntry { address: address(instance, index), key };
        state.published.entry(me).or_default().push(entry);
        drop(state);
        let device = self.device(place, sizes, attributes(index, mbps, sizes.inline), entry);
        let (receive_size, bounce_size, directory) = (sizes.receive, sizes.bounce, Box::new(self.clone()));
        let setup = Setup {
            index,
            me,
            instance: None,
            processes: 1,
            ports: 1,
            receive_size,
            bounce_size,
            sleeps: false,
            directory,
        };
        let port = Port::of_stand_in(device, tunables, setup).expect("the fabric refuses nothing");
        (port, place, index)
    }

    /// Adds a port for tests of the adapter alone, which post to it directly. Its queue pairs take any number of
    /// requests. Returns it with its queues; size and number are those of its receive slots.
    pub fn add(&self, (size, count): (u32, u32)) -> (Adapter, objects::Completions, objects::Receives) {
        let port = self.state().ports.len();
        self.state().ports.push(PortState::default());
        (self.adapter(port), self.completion_queue(port, u32::MAX), self.receive_queue(port, size, count))
    }

    fn device(&self, port: usize, sizes: Sizes, attributes: Attributes, entry: PortEntry) -> StandIn<Adapter> {
        StandIn {
            adapter: self.adapter(port),
            completions: self.completion_queue(port, sizes.slots + 4 * sizes.depth),
            receives: self.receive_queue(port, sizes.receive, sizes.slots),
            carriers: self.carriers(port),
            attributes,
            bounces: sizes.bounces,
            depth: sizes.depth,
            entry,
        }
    }

    /// Number of hellos sent, requests carried and requests completed.
    pub fn moved(&self) -> u64 {
        self.state().moved
    }

    /// Number of queue pairs made so far, destroyed ones included.
    pub fn queue_pairs(&self) -> usize {
        self.state().qps.len()
    }

    /// Number of requests that a queue pair has not completed.
    pub fn posted(&self, index: usize) -> usize {
        self.state().qps[index].posted.len()
    }

    /// Carries the next request of a queue pair to its peer. False if no request can be carried.
    ///
    /// # Panics
    /// If [`Memory`] does.
    pub fn carry(&self, index: usize) -> bool {
        let mut state = self.state();
        let Some(from) = state.qps.get(index).filter(|from| from.state == QpState::ReadyToSend) else {
            return false;
        };
        let Some(request) = from.posted.get(from.carried) else { return false };
        let (work, at) = (request.work.clone(), (from.peer - FIRST) as usize);
        let Some(bytes) = state.gather(from.port, &work) else {
            state.refuse(index, Status::LOCAL_PROTECTION);
            return true;
        };
        if [index, at].iter().any(|end| state.ports[state.qps[*end].port].is_down) {
            return false;
        }
        match state.qps[at].state {
            QpState::ReadyToReceive | QpState::ReadyToSend => {}
            QpState::Error | QpState::Destroyed => {
                state.fail(index);
                return true;
            }
            QpState::Reset | QpState::Init => return false,
        }
        match state.execute(index, at, &work, &bytes) {
            Ok(()) => state.qps[index].carried += 1,
            Err(Refused::NotReady) => return false,
            Err(Refused::Here) => state.refuse(index, Status::LOCAL_PROTECTION),
            Err(Refused::There(status)) => {
                state.qps[at].state = QpState::Error;
                state.refuse(index, status);
            }
        }
        state.moved += 1;
        true
    }

    /// Completes the oldest request of a queue pair: successfully if it was carried, as flushed if the queue pair is in
    /// error. False if there is no such request.
    pub fn acknowledge(&self, index: usize) -> bool {
        let mut state = self.state();
        let Some(qp) = state.qps.get(index) else { return false };
        let status = match qp.state {
            QpState::Error => Status::FLUSHED,
            QpState::ReadyToSend if qp.carried > 0 => Status::SUCCESS,
            _ => return false,
        };
        state.complete(index, status)
    }

    /// Makes a queue pair fail if it has a request; `reads`: if it has nothing but reads. False if it does not fail.
    pub fn fail(&self, index: usize, reads: bool) -> bool {
        let mut state = self.state();
        let Qp { state: of, posted, .. } = &state.qps[index];
        let are_meant = !reads || posted.iter().all(|posted| matches!(posted.work, Work::Read { .. }));
        let fails = *of == QpState::ReadyToSend && !posted.is_empty() && are_meant;
        if fails {
            state.fail(index);
        }
        fails
    }

    /// Whether a failed queue pair had a message, or got one before its owner learned of the failure.
    pub fn has_lost_message(&self) -> bool {
        self.state().has_lost_message
    }

    /// Whether a port has a message from registered memory that is not acknowledged.
    pub fn has_copies(&self) -> bool {
        self.has_posted(|work| matches!(work, Work::Send { spans, .. } if !spans.is_empty()))
    }

    /// Whether a read that has not completed writes to memory with this key.
    pub fn reads_to(&self, key: u32) -> bool {
        self.has_posted(|work| matches!(*work, Work::Read { local: (.., lkey), .. } if lkey == key))
    }

    fn has_posted(&self, is_such: impl Fn(&Work) -> bool) -> bool {
        self.state().qps.iter().flat_map(|qp| &qp.posted).any(|posted| is_such(&posted.work))
    }

    /// Loses the oldest hello in flight to a port, as a network may lose a datagram. False if there is none.
    pub fn lose_hello(&self, port: usize) -> bool {
        self.state().ports[port].incoming.pop_front().is_some()
    }

    /// Sends the oldest hello in flight to a port once more, behind the others. False if there is none.
    pub fn repeat_hello(&self, port: usize) -> bool {
        let incoming = &mut self.state().ports[port].incoming;
        let oldest = incoming.front().copied();
        incoming.extend(oldest);
        oldest.is_some()
    }

    /// Lets a port have no room for its next request.
    pub fn refuse_post(&self, port: usize) {
        self.state().ports[port].answers = [Some(libc::ENOMEM)].into();
    }

    /// Lets a port refuse its next request for good.
    pub fn break_post(&self, port: usize) {
        self.state().ports[port].answers = [Some(libc::EINVAL)].into();
    }

    /// Sets whether a port refuses to register more send slots.
    pub fn refuse_slots(&self, port: usize, refuses: bool) {
        self.state().ports[port].refused_slots = refuses.then_some(libc::ENOMEM);
    }

    /// Lets a port give no queue pair to its next connection.
    pub fn refuse_queue_pair(&self, port: usize) {
        self.state().ports[port].refused_qp = Some(libc::ENOMEM);
    }

    /// Returns the time, which does not pass by this call.
    pub fn now(&self) -> Duration {
        self.state().now
    }

    /// Lets time pass.
    pub fn pass(&self, time: Duration) {
        self.state().now += time;
    }

    /// Whether all ports have a link.
    pub fn is_up(&self) -> bool {
        self.state().ports.iter().all(|port| !port.is_down)
    }

    /// Sets whether a port has a link.
    pub fn set_link(&self, port: usize, is_up: bool) {
        let mut state = self.state();
        let port = &mut state.ports[port];
        if port.is_down == is_up {
            port.is_down = !is_up;
            let kind = if is_up { async_event::PORT_ACTIVE } else { async_event::PORT_ERR };
            port.async_events.push_back(AsyncEvent { kind, port: 1 });
        }
    }
}

impl Directory for Fabric {
    fn entry(&self, peer: PeerName, port: u8) -> Option<PortEntry> {
        self.state().published.get(&peer)?.get(usize::from(port)).copied()
    }

    fn host(&self, _peer: PeerName) -> String {
        "here".to_owned()
    }
}

fn address(instance: u64, network: u8) -> PortAddress {
    PortAddress {
        link_layer: LINK_ETHERNET,
        gid_type: GID_ROCE_V2,
        mtu: 3,
        lid: 0,
        gid: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, network, instance as u8],
        subnet_length: 120,
        subnet_prefix: 0,
        ud_qpn: instance as u32,
        tcp_port: 0,
        tcp_addresses: Default::default(),
        instance,
        host: 1,
    }
}

fn attributes(index: u8, mbps: u32, max_inline: u32) -> Attributes {
    Attributes {
        device: format!("fabric{index}"),
        port: 1,
        mbps,
        max_message: 1 << 30,
        max_inline,
        gathers: true,
        atomics: Atomics::None,
        software: false,
        link_layer: LINK_ETHERNET,
    }
}
