// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a port's connections come about: begins them, gives hellos to their handshakes, and does what those say.
//!
//! Driven by `poll.rs` every so many polls, and by the first request to a peer. Setup grade: it allocates, makes queue pairs,
//! reads the clock and calls the kernel. The decisions are in `connect/handshake.rs`, which has no adapter; the packets go
//! by `connect/ud.rs` and `connect/tcp.rs`. Tests: there, and the device tests in `hw-tests`.

use crate::address::PortAddress;
use crate::connect::handshake::{Handshake, Program, Step};
use crate::connect::hello::{Hello, QpInfo};
use crate::connect::tcp::TcpCarrier;
use crate::connect::ud::{UdCarrier, path};
use crate::connect::{Carrier, Faults, Identity, Paths, Random, Reach, Via, host};
use crate::counters::add;
use crate::device::PortChoice;
use crate::endpoint::{Connection, State};
use crate::event::{EndpointId, Immediate};
use crate::failure::Cause;
use crate::peer::PeerName;
use crate::port::{Port, Setup, queue_pair_limits};
use crate::posted::List;
use crate::probe::Probes;
use crate::tunables::{ConnectVia, Tunables};
use ibex_ffi::verbs::{
    Access, Context, DeviceAttributes, ProtectionDomain, QueuePair, QueuePairLimits, Transition, event_name,
};
use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After how many looks the device is asked for asynchronous events: a system call each time. Counted, not timed, because a
/// look must not cost a reading of the clock.
const ASYNC_INTERVAL: u32 = 4096;

/// What a port has for connecting.
pub(crate) struct Connector {
    ud: Option<UdCarrier>,
    tcp: Option<TcpCarrier>,
    pub(crate) me: Identity,
    names: HashMap<(PeerName, u8), EndpointId>,
    /// Peers whose handshake is not confirmed yet, with their addresses.
    active: Vec<(EndpointId, PortAddress)>,
    limits: QueuePairLimits,
    /// Reads and atomics a queue pair may have in flight, as initiator and as responder.
    rd_atomic: (u8, u8),
    epoch: u32,
    random: Random,
    faults: Faults,
    start: Instant,
    /// Polls until TCP is looked at.
    until_tcp: u32,
    /// Polls between this look and the last one.
    interval: u32,
    /// Before this moment no handshake has anything to do.
    next_due: Duration,
    until_async: u32,
    pub(crate) probes: Probes,
    /// Why the last datagram could not be sent, for the message when no connection comes about.
    ud_error: Option<io::Error>,
}

impl Connector {
    /// Makes what the port listens on and composes its address.
    pub(crate) fn open(
        context: &Arc<Context>,
        domain: &Arc<ProtectionDomain>,
        choice: &PortChoice,
        tunables: &Tunables,
        setup: &Setup,
        device: &DeviceAttributes,
    ) -> io::Result<Self> {
        let via = tunables.via();
        let ud = match via {
            ConnectVia::Tcp => None,
            ConnectVia::Ud => Some(UdCarrier::open(context, domain, choice, tunables)?),
            // An adapter without UD is used with TCP alone.
            ConnectVia::Auto => UdCarrier::open(context, domain, choice, tunables).ok(),
        };
        let (instance, number) = (host::new_instance()?, host::host_number());
        let tcp = match via {
            ConnectVia::Ud => None,
            ConnectVia::Auto if ud.is_some() => TcpCarrier::open(instance, number).ok(),
            _ => Some(TcpCarrier::open(instance, number)?),
        };
        let address = PortAddress {
            instance,
            host: number,
            ud_qpn: ud.as_ref().map_or(0, UdCarrier::number),
            tcp_port: tcp.as_ref().map_or(0, TcpCarrier::port),
            tcp_addresses: tcp.as_ref().map_or_else(Default::default, TcpCarrier::addresses),
            ..choice.address()
        };
        Ok(Connector {
            ud,
            tcp,
            me: Identity { name: setup.me, port: setup.index, address },
            names: HashMap::new(),
            active: Vec::new(),
            limits: queue_pair_limits(tunables, device),
            rd_atomic: rd_atomic(tunables.max_rd_atomic as u8, context.is_software(), device),
            epoch: 0,
            faults: Faults::new(tunables, setup.me.rank),
            random: Random::new(instance),
            start: Instant::now(),
            until_tcp: 1,
            interval: 1,
            next_due: Duration::ZERO,
            until_async: ASYNC_INTERVAL,
            probes: Probes::new(Duration::from_secs(tunables.probe_interval)),
            ud_error: None,
        })
    }

    /// The endpoint that stands for this port of this peer.
    pub(crate) fn known(&self, name: PeerName, port: u8) -> Option<EndpointId> {
        self.names.get(&(name, port)).copied()
    }

    pub(crate) fn learn(&mut self, name: PeerName, port: u8, id: EndpointId) {
        self.names.insert((name, port), id);
    }

    pub(crate) fn forget(&mut self, name: PeerName, port: u8) {
        self.names.remove(&(name, port));
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn address_of(&self, peer: EndpointId) -> Option<PortAddress> {
        self.active.iter().find(|(active, _)| *active == peer).map(|(_, address)| *address)
    }

    /// A handshake with this peer begins.
    fn activate(&mut self, peer: EndpointId, address: PortAddress) {
        self.active.push((peer, address));
        self.next_due = Duration::ZERO;
    }

    /// The handshake with this peer is over.
    pub(crate) fn settle(&mut self, peer: EndpointId) {
        let Some(place) = self.active.iter().position(|(active, _)| *active == peer) else { return };
        let (_, address) = self.active.swap_remove(place);
        if let Some(ud) = &mut self.ud {
            ud.forget(address.instance);
        }
        if let Some(tcp) = &mut self.tcp {
            tcp.close(&address);
        }
    }

    fn reach(&self, remote: &PortAddress) -> Reach {
        self.tcp.as_ref().map_or(Reach::Unused, |tcp| tcp.reach(remote))
    }

    /// The hellos that have come in.
    fn receive(&mut self, tunables: &Tunables, malformed: &mut u64) -> Vec<(Hello, Carrier)> {
        let mut hellos = Vec::new();
        if let Some(ud) = &mut self.ud {
            let taken = ud.poll(|bytes| match Hello::decode(bytes) {
                Ok(hello) => hellos.push((hello, Carrier::Ud)),
                Err(_) => *malformed += 1,
            });
            if let Err(error) = taken {
                // The other carrier may still do.
                self.ud_error = Some(error);
                self.ud = None;
            }
        }
        self.until_tcp = self.until_tcp.saturating_sub(self.interval);
        if let Some(tcp) = self.tcp.as_mut().filter(|_| self.until_tcp == 0) {
            // A system call each time, so not every poll even while something is going on.
            let busy = !self.active.is_empty() || !tcp.is_idle();
            let pause = if busy { tunables.connect_poll_interval } else { tunables.connect_tcp_interval };
            self.until_tcp = pause as u32;
            tcp.poll(&mut |hello| hellos.push((hello, Carrier::Tcp)));
        }
        hellos
    }
}

impl Port {
    /// Looks after connections: hellos, timers, asynchronous events. Returns the polls until the next look.
    #[cold]
    pub(crate) fn connect(&mut self) -> u32 {
        let mut malformed = 0;
        let hellos = self.connector.receive(&self.tunables, &mut malformed);
        add(&self.counters.handshakes_received, hellos.len() as u64 + malformed);
        add(&self.counters.handshakes_dropped, malformed);
        for (hello, carrier) in hellos {
            self.on_hello(&hello, carrier);
        }
        if !self.connector.active.is_empty() {
            self.on_timers();
        }
        self.freed |= !self.backlog.is_empty();
        self.connector.until_async -= 1;
        if self.connector.until_async == 0 {
            self.connector.until_async = ASYNC_INTERVAL;
            self.take_async_events();
            self.probe(self.connector.now());
        }
        let idle = self.connector.active.is_empty();
        self.connector.interval = if idle { self.tunables.connect_poll_interval as u32 } else { 1 };
        self.connector.interval
    }

    /// The first request to a peer: makes the queue pair and sends the first hello. Where that fails the connection fails.
    pub(crate) fn begin_connection(&mut self, to: EndpointId) {
        let Some(endpoint) = self.endpoints.get(to.index() as usize) else { return };
        let (name, remote_port) = (endpoint.name, endpoint.remote_port);
        let Some(remote) = self.directory.address(name, remote_port) else {
            let why = format!("it published no address for its port {remote_port}; is ibex loaded there?");
            return self.fail(to, Cause::Connect(why));
        };
        if self.new_connection(to, &remote) {
            self.connector.activate(to, remote);
            self.countdown = 1;
            self.on_timers();
        }
    }

    /// Gives an endpoint a queue pair and a handshake. False where the adapter has no more queue pairs: the endpoint has
    /// failed then.
    fn new_connection(&mut self, to: EndpointId, remote: &PortAddress) -> bool {
        let made =
            QueuePair::new(&self.domain, &self.cq, self.receives.srq(), self.connector.limits).and_then(|mut qp| {
                qp.initialise(self.choice.port, self.tunables.pkey_index as u16, Access::all())?;
                Ok(qp)
            });
        let qp = match made {
            Ok(qp) => qp,
            Err(error) => {
                let why = format!(
                    "the adapter gave no queue pair of {} sends: {error}; raise the limit of locked memory (ulimit -l), or \
                     lower btl_ibex_send_queue_depth",
                    self.connector.limits.sends
                );
                self.fail(to, Cause::Connect(why));
                return false;
            }
        };
        let now = self.connector.now();
        let connector = &mut self.connector;
        connector.epoch += 1;
        let local = QpInfo {
            qpn: qp.number(),
            psn: (connector.random.number() & 0x00ff_ffff) as u32,
            epoch: connector.epoch,
            initiator_depth: connector.rd_atomic.0,
            responder_resources: connector.rd_atomic.1,
            endpoint: Immediate::endpoint_bits(to.index()),
        };
        let Some(endpoint) = self.endpoints.get_mut(to.index() as usize) else { return false };
        let paths = Paths::between(&connector.me.address, remote, connector.tcp.is_some(), &self.tunables);
        let handshake = Handshake::new(local, remote.instance, endpoint.remote_port, paths, now, &self.tunables);
        endpoint.connection = Some(Box::new(Connection {
            qp,
            state: State::Connecting,
            posted: 0,
            retired: 0,
            depth: connector.limits.sends,
            unsignalled: 0,
            looked_at: 0,
            named: Immediate::endpoint_bits(u32::MAX),
            list: List::new(),
            pending: VecDeque::new(),
            in_backlog: false,
            handshake: Box::new(handshake),
        }));
        true
    }

    fn on_hello(&mut self, hello: &Hello, carrier: Carrier) {
        let me = self.connector.me;
        if self.closing || hello.destination_instance != me.address.instance {
            return add(&self.counters.handshakes_dropped, 1);
        }
        let source = hello.source;
        let to = match self.connector.known(source.name, source.port) {
            Some(known) => known,
            None => self.peer(source.name, source.port),
        };
        if self.connection(to).is_none() {
            if !self.new_connection(to, &source.address) {
                return;
            }
            self.connector.activate(to, source.address);
        }
        let now = self.connector.now();
        let Some(connection) = self.connection_mut(to) else { return };
        let step = connection.handshake.on_hello(&me, hello, carrier, now);
        self.connector.next_due = Duration::ZERO;
        if step.superseded {
            self.drop_connection(to);
            self.connector.settle(to);
            return self.on_hello(hello, carrier);
        }
        self.take_step(to, &step, &source.address);
    }

    /// Does what is due of the handshakes under way.
    fn on_timers(&mut self) {
        let now = self.connector.now();
        if now < self.connector.next_due {
            return;
        }
        for (to, remote) in self.connector.active.clone() {
            let due = self.connection(to).and_then(|connection| connection.handshake.due());
            match due {
                None => self.connector.settle(to),
                Some(due) if due > now => {}
                Some(_) => {
                    let reach = self.connector.reach(&remote);
                    let Some(connection) = self.connection_mut(to) else { continue };
                    let step = connection.handshake.on_timer(reach, now);
                    self.take_step(to, &step, &remote);
                }
            }
        }
        let due = |(to, _): &(EndpointId, PortAddress)| self.connection(*to)?.handshake.due();
        self.connector.next_due = self.connector.active.iter().filter_map(due).min().unwrap_or(Duration::MAX);
    }

    /// Does what a handshake says.
    fn take_step(&mut self, to: EndpointId, step: &Step, remote: &PortAddress) {
        if step.ignored.is_some() {
            add(&self.counters.handshakes_dropped, 1);
        }
        if let Some(program) = &step.program
            && let Err(error) = self.program(to, program, remote)
        {
            let why = format!(
                "setting the queue pair to the peer's 0x{:06x} failed: {error}; see that both ports are in one network and \
                 use the same kind of GID (btl_ibex_gid_index, btl_ibex_verbose 1)",
                program.qpn
            );
            return self.fail(to, Cause::Connect(why));
        }
        // Sent before the carriers are let go, and before the data that would tell the peer the same.
        if let Some(via) = step.send {
            self.send_hello(to, via, remote);
        }
        if step.confirmed {
            self.ready(to);
        }
        if let Some(failure) = &step.failed {
            let name = self.endpoints[to.index() as usize].name;
            let mut why = failure.message(name, &self.attributes.place(), remote);
            if let Some(error) = &self.connector.ud_error {
                let _ = write!(why, " The last datagram could not be sent: {error}.");
            }
            self.fail(to, Cause::Connect(why));
        }
    }

    /// Sets the queue pair to the peer's.
    fn program(&mut self, to: EndpointId, program: &Program, remote: &PortAddress) -> io::Result<()> {
        let mut path = path(&self.choice, &self.tunables, remote, program.qpn);
        path.psn = program.psn;
        path.mtu = u32::from(program.mtu);
        let (port, pkey) = (self.choice.port, self.tunables.pkey_index as u16);
        let tunables = &self.tunables;
        let ack_timeout = tunables.ack_timeout as u8;
        let retry_count = retry_count(tunables.retry_count as u8, self.attributes.software);
        let (rnr_retry, rnr_timer) = (tunables.rnr_retry as u8, tunables.rnr_timer as u8);
        let Some(connection) = self.connection_mut(to) else { return Ok(()) };
        if program.reset {
            connection.qp.reset()?;
            connection.qp.initialise(port, pkey, Access::all())?;
        }
        connection.named = program.endpoint;
        let transition = Transition {
            ack_timeout,
            retry_count,
            rnr_retry,
            rnr_timer,
            max_rd_atomic: program.max_rd_atomic,
            max_dest_rd_atomic: program.max_dest_rd_atomic,
            psn: connection.handshake.local().psn,
        };
        connection.qp.connect(&path, &transition)
    }

    /// The peer can receive: what waits may go.
    fn ready(&mut self, to: EndpointId) {
        let Some(connection) = self.connection_mut(to) else { return };
        if connection.state != State::Connecting {
            return;
        }
        connection.state = State::Ready;
        self.count_connection();
        self.connector.settle(to);
        self.enlist(to);
        self.freed = true;
    }

    /// A message came on a connection that waits for the handshake's last word: it is as good as that.
    pub(crate) fn confirmed_by_data(&mut self, peer: EndpointId) {
        let Some(connection) = self.connection_mut(peer) else { return };
        if connection.handshake.on_data() {
            self.ready(peer);
        }
    }

    fn send_hello(&mut self, to: EndpointId, via: Via, remote: &PortAddress) {
        let me = self.connector.me;
        let Some(hello) = self.connection(to).map(|connection| connection.handshake.hello(&me)) else { return };
        for _ in 0..self.connector.faults.copies() {
            add(&self.counters.handshakes_sent, 1);
            let connector = &mut self.connector;
            if let Some(ud) = connector.ud.as_mut().filter(|_| via.ud()) {
                let path = path(&self.choice, &self.tunables, remote, remote.ud_qpn);
                // Lost like any other datagram; the handshake repeats it.
                connector.ud_error = ud.send(remote, &path, &hello).err();
            }
            if let Some(tcp) = connector.tcp.as_mut().filter(|_| via.tcp()) {
                tcp.send(remote, &hello);
            }
        }
        let settled = self.connector.address_of(to).is_none();
        if settled && let Some(ud) = &mut self.connector.ud {
            ud.forget(remote.instance);
        }
    }

    /// Asks the device what happened to it.
    fn take_async_events(&mut self) {
        const CQ_ERR: u32 = 0;
        const DEVICE_FATAL: u32 = 8;
        const SRQ_ERR: u32 = 14;
        while let Some(event) = self.domain.context().async_event() {
            if matches!(event.kind, CQ_ERR | DEVICE_FATAL | SRQ_ERR) {
                let error = io::Error::other(format!("IBV_EVENT_{}", event_name(event.kind)));
                self.lose(&error, "the device's work");
            }
        }
    }
}

/// How often packets are repeated. soft-RoCE takes 7 for "without end" (`rxe_comp.c`), by which the specification means seven
/// times: a peer that fell silent would never be an error.
fn retry_count(wanted: u8, software: bool) -> u8 {
    if software { wanted.min(6) } else { wanted }
}

/// The most reads and atomics in flight that a parameter of `wanted` gives a queue pair, as initiator and as responder.
fn rd_atomic(wanted: u8, software: bool, device: &DeviceAttributes) -> (u8, u8) {
    let (initiator, responder) = match wanted {
        0 if software => (1, 16),
        0 => (16, 16),
        wanted => (wanted, wanted),
    };
    (initiator.min(device.max_rd_atomic.1), responder.min(device.max_rd_atomic.0))
}
