// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a port's connections come about: begins them, gives hellos to their handshakes, and does what those say.
//!
//! Driven by `poll.rs` every so many polls, and by the first request to a peer. Setup grade: it allocates, makes queue pairs,
//! reads the clock and calls the kernel. The decisions are in `connect/handshake.rs`, which has no adapter; the packets go
//! by `connect/ud.rs` and `connect/tcp.rs`. Tests: there, and the device tests in `hw-tests`.

use crate::address::PortAddress;
use crate::connect::handshake::{Handshake, Program, Step};
use crate::connect::hello::{Hello, QpInfo};
use crate::connect::ud::path;
use crate::connect::{Carrier, Paths, Via};
use crate::connector::ASYNC_INTERVAL;
use crate::counters::add;
use crate::endpoint::{Connection, State};
use crate::event::{EndpointId, Immediate};
use crate::failure::Cause;
use crate::port::Port;
use crate::posted::List;
use ibex_ffi::verbs::{Access, QueuePair, Transition, event_name};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;
use std::time::Duration;

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
        if self.new_connection(to, &remote, false) {
            self.connector.activate(to, remote);
            self.countdown = 1;
            self.on_timers();
        }
    }

    /// Gives an endpoint a queue pair and a handshake, because the peer `asked` or for a request. False where the adapter has no more queue pairs: the endpoint has
    /// failed then.
    fn new_connection(&mut self, to: EndpointId, remote: &PortAddress, asked: bool) -> bool {
        self.watch_begin(to, asked);
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
            limit: 0,
            signalled: 0,
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
            if !self.new_connection(to, &source.address, true) {
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
        connection.set_limit();
        self.count_connection();
        self.watch_established(to);
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
            self.watch_async(event);
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
