// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fabric of the unit tests: the adapters of several simulated processes, and the network between them.
//!
//! A posted request stays in its queue pair until the test first carries it to the peer and then acknowledges it. So a
//! process that changes its buffer too early sends the changed bytes, and a request whose memory is not registered any
//! more fails the test. A request stays posted while the receiver has no free slot (RNR) or one of the two ports has no
//! link. It fails if the test makes its queue pair fail, or if the peer's has failed. This file has the functions for
//! the test. Called by `pml/tests/world.rs`. Threads: the test's.

mod adapter;
mod memory;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use engine::connect::hello::Hello;
use engine::peer::PeerName;
use engine::select::address::{GID_ROCE_V2, LINK_ETHERNET, PortAddress, PortEntry};
use engine::select::key::Key;
use engine::transport::{Atomics, Attributes, Directory, Setup, StandIn, WrId};
use engine::tunables::Tunables;
use ibex_ffi::openmpi::sys;
use ibex_ffi::verbs::{AsyncEvent, Status, WorkCompletion, async_event};

use super::super::port::OpenPort;
use super::Port;

pub(crate) use adapter::Adapter;
pub(crate) use memory::Memory;
use memory::{Registrations, read, write};

/// Sizes in bytes of the largest message in a work request, in unregistered memory and in a slot; number of slots, and
/// of requests per queue pair.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) inline: u32,
    pub(crate) bounce: u32,
    pub(crate) receive: u32,
    pub(crate) slots: u32,
    pub(crate) depth: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum QpState {
    Reset,
    Init,
    ReadyToReceive,
    ReadyToSend,
    Error,
    Destroyed,
}

enum Work {
    /// A message: the inline bytes, then those of the spans (address, length and key).
    Send { inline: Vec<u8>, spans: Vec<(u64, u32, u32)>, immediate: u32 },
    /// An RDMA read: local address, length and key; remote address and key.
    Read { local: (u64, u32, u32), remote: (u64, u32) },
    /// A write of no bytes.
    Nothing,
}

struct Posted {
    id: u64,
    signalled: bool,
    work: Work,
}

struct QueuePair {
    port: usize,
    state: QpState,
    peer: u32,
    posted: VecDeque<Posted>,
    /// Number of posted requests that were carried and not yet acknowledged, from the front.
    carried: usize,
}

struct FabricPort {
    instance: u64,
    key: Key,
    is_up: bool,
    refuses_memory: bool,
    /// Posted receive slots, in the order in which messages will fill them.
    receives: VecDeque<u32>,
    slots: Vec<u64>,
    completions: VecDeque<WorkCompletion>,
    hellos: VecDeque<Hello>,
    events: VecDeque<AsyncEvent>,
}

#[derive(Default)]
struct State {
    now: Duration,
    ports: Vec<FabricPort>,
    queue_pairs: Vec<QueuePair>,
    registrations: Registrations,
    published: HashMap<PeerName, Vec<PortEntry>>,
    /// Number of hellos sent, requests carried and requests completed.
    moved: u64,
    /// Whether a failed queue pair had a message, or got one before its owner learned of the failure.
    has_lost_message: bool,
}

const FIRST: u32 = 0x100;

impl State {
    fn complete(&mut self, number: usize, status: Status) {
        let queue_pair = &mut self.queue_pairs[number];
        let Some(Posted { id, signalled, .. }) = queue_pair.posted.pop_front() else { return };
        queue_pair.carried = queue_pair.carried.saturating_sub(1);
        self.moved += 1;
        if signalled || status != Status::SUCCESS {
            let completion = WorkCompletion::scripted(id, status, 0, None, FIRST + number as u32);
            self.ports[queue_pair.port].completions.push_back(completion);
        }
    }

    /// Whether a read that has not completed writes to memory with this key.
    fn reads_to(&self, key: u32) -> bool {
        let mut posted = self.queue_pairs.iter().flat_map(|queue_pair| &queue_pair.posted);
        posted.any(|posted| matches!(posted.work, Work::Read { local: (.., lkey), .. } if lkey == key))
    }

    /// Puts a queue pair in error: its oldest request fails, and the others will be flushed.
    fn fail(&mut self, number: usize) {
        let queue_pair = &mut self.queue_pairs[number];
        queue_pair.state = QpState::Error;
        self.has_lost_message |= queue_pair.posted.iter().any(|posted| matches!(posted.work, Work::Send { .. }));
        self.complete(number, Status::RETRY_EXCEEDED);
    }
}

#[derive(Clone, Default)]
pub(crate) struct Fabric(Arc<Mutex<State>>);

impl Fabric {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test failed while it looked")
    }

    /// Opens the next port of a process. Ports with the same index are in the same network.
    pub(crate) fn open(&self, me: PeerName, mbps: u32, sizes: Sizes) -> OpenPort {
        let Sizes { inline, bounce, receive, slots, depth } = sizes;
        let mut state = self.state();
        let place = state.ports.len();
        let index = state.published.get(&me).map_or(0, Vec::len) as u8;
        let instance = place as u64 + 7;
        let key = Key::from_bytes([place as u8 + 1; Key::SIZE]);
        state.ports.push(FabricPort {
            instance,
            key,
            is_up: true,
            refuses_memory: false,
            receives: VecDeque::new(),
            slots: Vec::new(),
            completions: VecDeque::new(),
            hellos: VecDeque::new(),
            events: VecDeque::new(),
        });
        let entry = PortEntry { address: address(instance, index), key };
        state.published.entry(me).or_default().push(entry);
        drop(state);
        let device = StandIn {
            adapter: self.adapter(place),
            completions: self.completion_queue(place, slots + 4 * depth),
            receives: self.receive_queue(place, receive, slots),
            carriers: self.carriers(place),
            attributes: attributes(index, mbps, inline),
            depth,
            entry,
        };
        let setup = Setup {
            index,
            me,
            processes: 1,
            ports: 1,
            receive_size: receive,
            bounce_size: bounce,
            directory: Box::new(self.clone()),
        };
        let port = Port::of_stand_in(device, &Tunables::default(), setup).expect("the fabric refuses nothing");
        OpenPort::of((port, Memory::new(self.clone(), place)), (receive, bounce), index, false)
    }

    pub(crate) fn moved(&self) -> u64 {
        self.state().moved
    }

    /// Number of queue pairs made so far, destroyed ones included.
    pub(crate) fn queue_pairs(&self) -> usize {
        self.state().queue_pairs.len()
    }

    /// Carries the next request of a queue pair to its peer. False if no request can be carried.
    pub(crate) fn carry(&self, number: usize) -> bool {
        let mut state = self.state();
        let State { ports, queue_pairs, registrations, .. } = &mut *state;
        let Some(from) = queue_pairs.get(number).filter(|from| from.state == QpState::ReadyToSend) else {
            return false;
        };
        let at = (from.peer - FIRST) as usize;
        let to = &queue_pairs[at];
        let Some(posted) = from.posted.get(from.carried) else { return false };
        if !ports[from.port].is_up || !ports[to.port].is_up {
            return false;
        }
        match to.state {
            QpState::ReadyToReceive | QpState::ReadyToSend => {}
            QpState::Error | QpState::Destroyed => {
                state.fail(number);
                return true;
            }
            QpState::Reset | QpState::Init => return false,
        }
        match &posted.work {
            Work::Send { inline, spans, immediate } => {
                let port = &mut ports[to.port];
                let Some(slot) = port.receives.pop_front() else { return false };
                let mut bytes = inline.clone();
                for &(start, length, lkey) in spans {
                    registrations.check((from.port, lkey), (start, length), sys::MCA_RCACHE_ACCESS_LOCAL_WRITE);
                    bytes.extend(read(start, length as usize));
                }
                write(port.slots[slot as usize], &bytes);
                let (id, length) = (WrId::receive(slot).0, bytes.len() as u32);
                let number = FIRST + at as u32;
                let completion = WorkCompletion::scripted(id, Status::SUCCESS, length, Some(*immediate), number);
                port.completions.push_back(completion);
            }
            &Work::Read { local: (start, length, lkey), remote: (address, rkey) } => {
                registrations.check((from.port, lkey), (start, length), sys::MCA_RCACHE_ACCESS_LOCAL_WRITE);
                registrations.check((to.port, rkey), (address, length), sys::MCA_RCACHE_ACCESS_REMOTE_READ);
                write(start, &read(address, length as usize));
            }
            Work::Nothing => {}
        }
        queue_pairs[number].carried += 1;
        state.moved += 1;
        true
    }

    /// Completes the oldest request of a queue pair: successfully if it was carried, as flushed if the queue pair is in
    /// error. False if there is no such request.
    pub(crate) fn acknowledge(&self, number: usize) -> bool {
        let mut state = self.state();
        let Some(QueuePair { state: of, posted, carried, .. }) = state.queue_pairs.get(number) else { return false };
        let status = match of {
            QpState::Error if !posted.is_empty() => Status::FLUSHED,
            QpState::ReadyToSend if *carried > 0 => Status::SUCCESS,
            _ => return false,
        };
        state.complete(number, status);
        true
    }

    /// Makes a queue pair fail if it has a request; `reads`: if it has nothing but reads. False if it does not fail.
    pub(crate) fn fail(&self, number: usize, reads: bool) -> bool {
        let mut state = self.state();
        let QueuePair { state: of, posted, .. } = &state.queue_pairs[number];
        let are_meant = !reads || posted.iter().all(|posted| matches!(posted.work, Work::Read { .. }));
        let fails = *of == QpState::ReadyToSend && !posted.is_empty() && are_meant;
        if fails {
            state.fail(number);
        }
        fails
    }

    pub(crate) fn has_lost_message(&self) -> bool {
        self.state().has_lost_message
    }

    pub(crate) fn is_up(&self) -> bool {
        self.state().ports.iter().all(|port| port.is_up)
    }

    pub(crate) fn refuse_memory(&self, port: usize, refuses: bool) {
        self.state().ports[port].refuses_memory = refuses;
    }

    pub(crate) fn set_link(&self, port: usize, is_up: bool) {
        let mut state = self.state();
        let port = &mut state.ports[port];
        if port.is_up != is_up {
            port.is_up = is_up;
            let kind = if is_up { async_event::PORT_ACTIVE } else { async_event::PORT_ERR };
            port.events.push_back(AsyncEvent { kind, port: 1 });
        }
    }

    /// Number of registrations of all ports, except for those of slots.
    pub(crate) fn registered(&self) -> usize {
        self.state().registrations.count()
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
