// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a port's connections come about: begins them, gives hellos to their handshakes, and does what those say.
//!
//! Driven by `poll.rs` every so many polls, and by the first request to a peer. Setup grade: it allocates, makes queue pairs,
//! reads the clock and calls the kernel. The decisions are in `connect/handshake.rs`, which has no adapter, and in
//! `admission.rs` (whose hellos are taken); the packets go by `connect/ud.rs` and `connect/tcp.rs`. Tests: there, and the device
//! tests in `hw-tests`.
//!
//! An endpoint has one connection, and while a peer says that it has begun another, a successor beside it (`connector.rs`):
//! [`Port::making`] is whichever of the two a handshake is under way for.

use crate::address::{PortAddress, PortEntry};
use crate::admission::Stranger;
use crate::bounce::InUse;
use crate::connect::handshake::{Failure, Handshake, Program, Step};
use crate::connect::hello::{Hello, QpInfo};
use crate::connect::ud::path;
use crate::connect::{Carrier, Paths, Reach, Via};
use crate::connector::{ASYNC_INTERVAL, Refusals};
use crate::counters::add;
use crate::endpoint::{Connection, State};
use crate::event::{EndpointId, Immediate};
use crate::failure::Cause;
use crate::limits;
use crate::patience::Patience;
use crate::port::Port;
use crate::posted::List;
use crate::room;
use ibex_ffi::verbs::{Access, QueuePair, Reception, Transition, event_name};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Port {
    /// Looks after connections: hellos, timers, asynchronous events. Returns the polls until the next look.
    #[cold]
    pub(crate) fn connect(&mut self) -> u32 {
        let arrivals = self.connector.receive(&self.tunables, &self.counters);
        add(&self.counters.handshakes_received, (arrivals.hellos.len() + arrivals.refusals.len()) as u64);
        arrivals.refusals.iter().for_each(|refusal| self.refuse(refusal));
        for (hello, carrier) in arrivals.hellos {
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
            self.remind_of_diverted();
            self.probe(self.connector.now());
        }
        let idle = self.connector.active.is_empty();
        self.connector.interval = if idle { self.tunables.connect_poll_interval as u32 } else { 1 };
        self.connector.interval
    }

    /// The first request to a peer: makes the queue pair and sends the first hello. Where that fails the connection fails.
    pub(crate) fn begin_connection(&mut self, to: EndpointId) {
        // A port that has lost its link meanwhile is known by the time the first message would wait for it.
        self.take_async_events();
        let Some(endpoint) = self.endpoints.get(to.index() as usize) else { return };
        let (name, remote_port) = (endpoint.name, endpoint.remote_port);
        let Some(remote) = self.directory.entry(name, remote_port) else {
            let why = format!("it published no address for its port {remote_port}; is ibex loaded there?");
            return self.fail(to, Cause::Connect(why));
        };
        match self.new_connection(to, &remote, false) {
            Ok(connection) => {
                self.endpoints[to.index() as usize].connection = Some(connection);
                self.connector.activate(to, remote.address);
                self.countdown = 1;
                self.on_timers();
            }
            Err(why) => self.fail(to, Cause::Connect(why)),
        }
    }

    /// A queue pair and a handshake for an endpoint, because the peer `asked` or for a request.
    ///
    /// # Errors
    /// The adapter has no more queue pairs: why, and what to do.
    fn new_connection(&mut self, to: EndpointId, remote: &PortEntry, asked: bool) -> Result<Box<Connection>, String> {
        self.watch_begin(to, asked);
        let made =
            QueuePair::new(&self.domain, &self.cq, self.receives.srq(), self.connector.limits).and_then(|mut qp| {
                qp.initialise(self.choice.port, self.tunables.pkey_index as u16, Access::all())?;
                Ok(qp)
            });
        let qp = made.map_err(|error| {
            let advice = limits::advice(&error, None).map_or_else(String::new, |advice| format!(". {advice}"));
            format!(
                "the adapter gave no queue pair of {} sends: {error}{advice}. Or lower btl_ibex_send_queue_depth",
                self.connector.limits.sends
            )
        })?;
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
        let remote_port = self.endpoints[to.index() as usize].remote_port;
        let paths = Paths::between(&connector.me.address, &remote.address, connector.tcp.is_some(), &self.tunables);
        let handshake = Handshake::new(local, remote.address.instance, remote_port, paths, now, &self.tunables);
        Ok(Box::new(Connection {
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
            bounced: InUse::new(),
            pending: VecDeque::new(),
            in_backlog: false,
            refusals: room::Refusals::default(),
            key: remote.key,
            initiator_depth: 0,
            patience: Patience::default(),
            handshake: Box::new(handshake),
        }))
    }

    /// The connection to a peer that a handshake is under way for: a successor where there is one.
    pub(crate) fn making(&mut self, to: EndpointId) -> Option<&mut Connection> {
        // Two looks, for the borrow checker's sake.
        if self.connector.successor_mut(to).is_some() {
            return self.connector.successor_mut(to);
        }
        self.connection_mut(to)
    }

    fn on_hello(&mut self, hello: &Hello, carrier: Carrier) {
        if self.closing {
            return add(&self.counters.handshakes_dropped, 1);
        }
        let (me, source) = (self.connector.me, hello.source);
        let known = self.connector.known(source.name, source.port).filter(|known| self.connection(*known).is_some());
        let to = match known.map_or_else(|| self.admit(hello).and_then(|(to, entry)| self.answer(to, &entry)), Ok) {
            Ok(to) => to,
            Err(why) => return self.turn_away(hello, why),
        };
        let now = self.connector.now();
        self.connector.next_due = Duration::ZERO;
        if self.connector.successor_mut(to).is_some() {
            // Of the connection that the peer says it has given up: there is nothing to answer.
            if !self.connection(to).is_some_and(|in_use| in_use.handshake.is_earlier_than(hello)) {
                return add(&self.counters.handshakes_dropped, 1);
            }
        }
        let Some(connection) = self.making(to) else { return };
        let mut step = connection.handshake.on_hello(&me, hello, carrier, now);
        if step.superseded {
            if let Err(why) = self.succeed(to, hello) {
                return self.turn_away(hello, why);
            }
            let Some(successor) = self.connector.successor_mut(to) else { return };
            step = successor.handshake.on_hello(&me, hello, carrier, now);
        }
        self.take_step(to, &step, &source.address);
    }

    /// Begins a connection because the peer asks for it.
    fn answer(&mut self, to: EndpointId, entry: &PortEntry) -> Result<EndpointId, Stranger> {
        match self.new_connection(to, entry, true) {
            Ok(connection) => {
                self.endpoints[to.index() as usize].connection = Some(connection);
                self.connector.activate(to, entry.address);
                Ok(to)
            }
            Err(why) => {
                self.fail(to, Cause::Connect(why));
                Err(Stranger::Failed)
            }
        }
    }

    /// Begins a connection beside one that is in use, because the peer says it has given that up.
    fn succeed(&mut self, to: EndpointId, hello: &Hello) -> Result<(), Stranger> {
        let (_, entry) = self.admit(hello)?;
        // Where the adapter has no queue pair for it, the connection in use stays as it is.
        let connection = self.new_connection(to, &entry, true).map_err(|_| Stranger::Failed)?;
        self.connector.successors.push((to, connection));
        self.connector.activate(to, entry.address);
        Ok(())
    }

    /// Does what is due of the handshakes under way.
    fn on_timers(&mut self) {
        let now = self.connector.now();
        if now < self.connector.next_due {
            return;
        }
        for (to, remote) in self.connector.active.clone() {
            let due = self.making(to).and_then(|connection| connection.handshake.due());
            match due {
                None => self.connector.settle(to),
                Some(due) if due > now => {}
                Some(_) => {
                    // That the process lives is no reason to wait for it while there is a connection to it.
                    let replaces = self.connector.successor_mut(to).is_some();
                    let reach = if replaces { Reach::Unused } else { self.connector.reach(&remote) };
                    let Some(connection) = self.making(to) else { continue };
                    let step = connection.handshake.on_timer(reach, now);
                    self.take_step(to, &step, &remote);
                }
            }
        }
        let active: Vec<_> = self.connector.active.iter().map(|(to, _)| *to).collect();
        let due = active.into_iter().filter_map(|to| self.making(to)?.handshake.due()).min();
        self.connector.next_due = due.unwrap_or(Duration::MAX);
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
            return self.not_set(to, why);
        }
        // Sent before the carriers are let go, and before the data that would tell the peer the same.
        if let Some(via) = step.send {
            self.send_hello(to, via, remote);
        }
        if step.confirmed {
            self.ready(to);
        }
        if let Some(failure) = &step.failed {
            self.not_made(to, failure, remote);
        }
    }

    /// A queue pair could not be set: the connection fails, unless it was to take the place of one in use.
    fn not_set(&mut self, to: EndpointId, why: String) {
        if self.connector.take_successor(to).is_none() {
            return self.fail(to, Cause::Connect(why));
        }
        self.connector.settle(to);
        let name = self.endpoints[to.index() as usize].name;
        self.tell_once(Refusals::NOT_MADE, || format!("no new connection to rank {} ({name}): {why}", name.rank));
    }

    /// The peer fell silent before a connection came about. What was to take the place of a connection in use is given up for that.
    /// Where nothing of ours waits, nobody is harmed: the peer, which has begun, may compute for as long as it likes.
    fn not_made(&mut self, to: EndpointId, failure: &Failure, remote: &PortAddress) {
        let name = self.endpoints[to.index() as usize].name;
        let mut why = failure.message(name, &self.attributes.place(), remote);
        if let Some(error) = &self.connector.ud_error {
            let _ = write!(why, " The last datagram could not be sent: {error}.");
        }
        if self.connector.take_successor(to).is_some() {
            self.connector.settle(to);
        } else {
            let now = self.connector.now();
            let Some(connection) = self.connection_mut(to) else { return };
            if !connection.pending.is_empty() {
                return self.fail(to, Cause::Connect(why));
            }
            connection.handshake.ask_on(now);
        }
        self.tell_once(Refusals::NOT_MADE, || format!("the peer began a connection and left it: {why}"));
    }

    /// Sets the queue pair to the peer's.
    fn program(&mut self, to: EndpointId, program: &Program, remote: &PortAddress) -> io::Result<()> {
        let mut path = path(&self.choice, &self.tunables, remote, program.qpn);
        path.psn = program.psn;
        path.mtu = u32::from(program.mtu);
        let (port, pkey) = (self.choice.port, self.tunables.pkey_index as u16);
        let rnr_timer = self.tunables.rnr_timer as u8;
        let Some(connection) = self.making(to) else { return Ok(()) };
        if program.reset {
            connection.qp.reset()?;
            connection.qp.initialise(port, pkey, Access::all())?;
        }
        connection.named = program.endpoint;
        connection.initiator_depth = program.max_rd_atomic;
        connection.qp.ready_to_receive(&path, &Reception { rnr_timer, max_dest_rd_atomic: program.max_dest_rd_atomic })
    }

    /// The peer can receive: what waits may go. Only now is the path's round trip known, and with it the time-out.
    fn ready(&mut self, to: EndpointId) {
        let software = self.attributes.software;
        let (tunables, rnr_retry) = (self.tunables.clone(), self.tunables.rnr_retry as u8);
        let is_diverted = self.endpoints.get(to.index() as usize).is_some_and(|endpoint| endpoint.diverted);
        let Some(connection) = self.making(to).filter(|connection| connection.state == State::Connecting) else {
            return;
        };
        let round_trip = connection.handshake.round_trip();
        let patience = Patience::choose(&tunables, software, round_trip);
        connection.patience = patience;
        let set = connection.qp.ready_to_send(&Transition {
            ack_timeout: patience.exponent,
            retry_count: patience.retries,
            rnr_retry,
            max_rd_atomic: connection.initiator_depth,
            psn: connection.handshake.local().psn,
        });
        if let Err(error) = set {
            return self.not_set(
                to,
                format!("setting the queue pair to send failed: {error}; see the kernel's log for the device"),
            );
        }
        connection.state = State::Ready;
        connection.divert(is_diverted);
        if let Some(successor) = self.connector.take_successor(to) {
            self.replace(to, successor);
        }
        self.count_connection();
        let longest = self.counters.ack_timeout.load(Ordering::Relaxed).max(patience.timeout().as_micros() as u64);
        self.counters.ack_timeout.store(longest, Ordering::Relaxed);
        self.watch_established(to);
        self.connector.settle(to);
        self.enlist(to);
        self.freed = true;
        if tunables.verbose > 1 {
            self.directory.tell(&format!(
                "connected to {}; round trip at most {:.1?}, waits for an acknowledgement {patience}",
                self.describe(to),
                round_trip.unwrap_or_default()
            ));
        }
    }

    /// A new connection takes the place of one that the peer has given up: what was posted to that is lost, what waits goes on.
    fn replace(&mut self, to: EndpointId, mut successor: Box<Connection>) {
        if let Some(old) = self.connection_mut(to) {
            successor.pending = std::mem::take(&mut old.pending);
            successor.in_backlog = old.in_backlog;
            successor.set_limit();
        }
        self.drop_connection(to);
        self.endpoints[to.index() as usize].connection = Some(successor);
    }

    /// A message came on a connection that waits for the handshake's last word: it is as good as that.
    pub(crate) fn confirmed_by_data(&mut self, peer: EndpointId, qp_num: u32) {
        let now = self.connector.now();
        let Some(connection) = self.making(peer) else { return };
        if connection.qp.number() == qp_num && connection.handshake.on_data(now) {
            self.ready(peer);
        }
    }

    fn send_hello(&mut self, to: EndpointId, via: Via, remote: &PortAddress) {
        let me = self.connector.me;
        let frame = self.making(to).map(|connection| connection.handshake.hello(&me).encode(&connection.key));
        let Some(frame) = frame else { return };
        for _ in 0..self.connector.faults.copies() {
            add(&self.counters.handshakes_sent, 1);
            let connector = &mut self.connector;
            if let Some(ud) = connector.ud.as_mut().filter(|_| via.ud()) {
                let path = path(&self.choice, &self.tunables, remote, remote.ud_qpn);
                // Lost like any other datagram; the handshake repeats it.
                connector.ud_error = ud.send(remote, &path, &frame).err();
            }
            if let Some(tcp) = connector.tcp.as_mut().filter(|_| via.tcp()) {
                tcp.send(remote, &frame);
            }
        }
        let settled = self.connector.address_of(to).is_none();
        if settled && let Some(ud) = &mut self.connector.ud {
            ud.forget(remote.instance);
        }
    }

    /// Asks the device what happened to it.
    fn take_async_events(&mut self) {
        use ibex_ffi::verbs::async_event::{CQ_ERR, DEVICE_FATAL, PORT_ACTIVE, PORT_ERR, SRQ_ERR};
        while let Some(event) = self.domain.context().async_event() {
            self.watch_async(event);
            if matches!(event.kind, PORT_ACTIVE | PORT_ERR) && event.port == self.choice.port {
                self.link_changed(event.kind == PORT_ACTIVE);
            }
            if matches!(event.kind, CQ_ERR | DEVICE_FATAL | SRQ_ERR) {
                let error = io::Error::other(format!("IBV_EVENT_{}", event_name(event.kind)));
                self.lose(&error, "the device's work");
            }
        }
    }
}
