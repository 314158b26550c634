// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes a port's connections: reads hellos, begins connections, passes hellos to their handshakes.
//!
//! Called by `poll.rs` at intervals, and for the first request to a peer. `connect/handshake`, which knows no adapter,
//! and `admission.rs` decide; `establish.rs` executes a handshake's steps. An endpoint has one connection, and a
//! successor beside it if its peer has begun another one; [`crate::transport::connections::Connections::making`] is the
//! one of the two whose handshake is in progress. Grade: setup; it allocates, makes queue pairs, reads the clock and
//! calls the kernel. Tests: `port/tests`, and `hw-tests`.

use super::admission::Stranger;
use super::{ASYNC_INTERVAL, ASYNC_PERIOD, CLOCK_INTERVAL, COUNTS_INTERVAL, EMPTY_POLL, Port};
use crate::connect::hello::Hello;
use crate::connect::{Carrier, Reach};
use crate::counters::add;
use crate::flight;
use crate::limits;
use crate::select::address::PortEntry;
use crate::transport::adapter::{Adapter, QueuePair as _};
use crate::transport::connections::connection::Connection;
use crate::transport::connections::failure::Cause;
use crate::transport::tx::send_queue::SendQueue;
use crate::transport::watch;
use crate::transport::work_request::EndpointId;
use ibex_ffi::verbs::{async_event, event_name};
use std::io;
use std::time::Duration;

impl<A: Adapter> Port<A> {
    /// Checks connections: hellos, timers, asynchronous events. Returns the number of polls until the next check, where
    /// an empty poll counts as [`EMPTY_POLL`].
    #[cold]
    pub(super) fn look_after_connections(&mut self) -> u32 {
        let adapter = &self.adapter;
        let arrivals = self.handshakes.receive(&|| adapter.now(), self.look_interval, &self.counters);
        arrivals.refusals.iter().for_each(|refusal| self.refuse(refusal));
        for (hello, carrier) in arrivals.hellos {
            self.on_hello(&hello, carrier);
        }
        if self.handshakes.is_any_active() {
            self.on_timers();
        }
        if !self.closing.is_empty() {
            self.look_after_closing();
        }
        if self.tx.peers_waiting() > 0 {
            self.tx.expect_room();
        }
        if self.is_async_due() {
            if flight::show(self.place, &self.counters, COUNTS_INTERVAL) {
                self.show_peers();
            }
            self.take_async_events();
            self.remind_of_diverted();
            let now = self.adapter.now();
            self.probe(now);
            if !self.parted.is_empty() {
                self.look_after_parted(now);
            }
        }
        let is_idle = !self.handshakes.is_any_active() && self.closing.is_empty();
        self.look_interval = if is_idle { self.look_pause } else { 1 };
        // The next check may post a waiting request.
        if is_idle && self.tx.peers_waiting() == 0 { self.look_interval * EMPTY_POLL } else { self.look_interval }
    }

    fn is_async_due(&mut self) -> bool {
        self.until_async -= 1;
        if self.until_async > 0 {
            if !self.until_async.is_multiple_of(CLOCK_INTERVAL) || self.adapter.now() < self.async_due {
                return false;
            }
            self.async_due = self.adapter.now() + ASYNC_PERIOD;
        }
        self.until_async = ASYNC_INTERVAL;
        true
    }

    /// Begins a connection for the first request to a peer, or because the peer `asked`: makes the queue pair and sends
    /// the first hello. If that fails, the connection fails.
    pub(super) fn begin_connection(&mut self, to: EndpointId, asked: bool) {
        // The port must know of a lost link before the first message waits for it.
        self.take_async_events();
        let Some((name, remote_port)) = self.connections.remote(to) else { return };
        let Some(remote) = self.directory.entry(name, remote_port) else {
            let why = format!("it published no address for its port {remote_port}; is ibex loaded there?");
            return self.fail(to, Cause::Connect { why, errno: libc::EHOSTUNREACH });
        };
        if self.connect(to, &remote, asked).is_ok() {
            self.countdown = 1;
            self.on_timers();
        }
    }

    /// Gives an endpoint a connection, and begins its handshake. If that fails, the connection fails.
    fn connect(&mut self, to: EndpointId, remote: &PortEntry, asked: bool) -> Result<EndpointId, Stranger> {
        let mut connection = self.new_connection(to, remote, asked).map_err(|why| {
            self.fail(to, Cause::Connect { why, errno: libc::EIO });
            Stranger::Failed
        })?;
        self.search(to, &mut connection, &remote.address);
        self.connections.put(to, connection);
        self.handshakes.activate(to, remote.address);
        Ok(to)
    }

    /// Makes a queue pair and a handshake for an endpoint, for a request or because the peer `asked`. Returns why the
    /// adapter gave no queue pair, with advice.
    fn new_connection(
        &mut self,
        to: EndpointId,
        remote: &PortEntry,
        asked: bool,
    ) -> Result<Box<Connection<A::QueuePair>>, String> {
        let host = self.connections.name(to).map_or_else(String::new, |name| self.directory.host(name));
        watch::connection_begun(self.connections.rank(to), &host, self.numbers(), asked);
        let made = self.adapter.queue_pair(&self.cq, self.rx.queue()).and_then(|mut qp| {
            qp.initialise(self.choice.port, self.tunables.pkey_index as u16, self.attributes.access())?;
            Ok(qp)
        });
        let qp = made.map_err(|error| {
            let advice = limits::advice(&error, None).map_or_else(String::new, |advice| format!(". {advice}"));
            format!(
                "the adapter gave no queue pair of {} sends: {error}{advice}. Or lower btl_ibex_send_queue_depth",
                self.depth
            )
        })?;
        let now = self.adapter.now();
        let remote_port = self.connections.remote(to).map_or(0, |(_, port)| port);
        let handshake = self.handshakes.begin((to, qp.number()), &remote.address, remote_port, now, &self.tunables);
        Ok(Box::new(Connection::new(SendQueue::new(qp, self.depth), remote.key, handshake)))
    }

    fn on_hello(&mut self, hello: &Hello, carrier: Carrier) {
        if self.is_closing {
            return add(&self.counters.handshakes_dropped, 1);
        }
        if let Some(declined) = hello.declined {
            return self.on_declined(hello, declined);
        }
        let (me, source) = (*self.handshakes.identity(), hello.source);
        let to = match self.endpoint_of(hello, carrier) {
            Ok(to) => to,
            Err(why) => return self.turn_away(hello, why),
        };
        let now = self.adapter.now();
        self.handshakes.set_due(Duration::ZERO);
        if self.connections.has_successor(to) {
            // The hello belongs to the connection that the peer has given up: no answer.
            if !self.connections.get(to).is_some_and(|in_use| in_use.handshake.is_earlier_than(hello)) {
                return add(&self.counters.handshakes_dropped, 1);
            }
        }
        let Some(connection) = self.connections.making(to) else { return };
        let mut step = connection.handshake.on_hello(&me, hello, carrier, now);
        if step.superseded {
            if let Err(why) = self.succeed(to, hello) {
                return self.turn_away(hello, why);
            }
            let Some(successor) = self.connections.making(to) else { return };
            step = successor.handshake.on_hello(&me, hello, carrier, now);
        }
        if step.ignored.is_none() {
            self.handshakes.relocate(to, &source.address);
        }
        self.take_step(to, &step, &source.address);
    }

    /// Returns the endpoint of a hello, with a connection.
    fn endpoint_of(&mut self, hello: &Hello, carrier: Carrier) -> Result<EndpointId, Stranger> {
        self.hear(hello, carrier)?;
        let known = self.connections.known(hello.source.name, hello.source.port);
        let known = known.filter(|known| self.connections.get(*known).is_some());
        known.map_or_else(|| self.admit(hello).and_then(|(to, entry)| self.connect(to, &entry, true)), Ok)
    }

    /// Begins a successor of a connection in use that the peer says it has given up.
    fn succeed(&mut self, to: EndpointId, hello: &Hello) -> Result<(), Stranger> {
        let (_, entry) = self.admit(hello)?;
        // If the adapter has no queue pair for it, the connection in use stays.
        let connection = self.new_connection(to, &entry, true).map_err(|_| Stranger::Failed)?;
        self.connections.put_successor(to, connection);
        self.handshakes.activate(to, entry.address);
        Ok(())
    }

    fn on_timers(&mut self) {
        let now = self.adapter.now();
        if !self.handshakes.are_due(now) {
            return;
        }
        for (to, _) in self.handshakes.active() {
            let due = self.connections.making(to).and_then(|connection| connection.handshake.due());
            match due {
                None => self.handshakes.settle(to),
                Some(due) if due > now => {}
                Some(_) => {
                    self.reconsider(to);
                    let Some(remote) = self.handshakes.asked(to) else { continue };
                    // A successor times out even if the peer's process is alive, because the connection in use remains.
                    let replaces = self.connections.has_successor(to);
                    let reach = if replaces { Reach::Unused } else { self.handshakes.reach(to, &remote) };
                    let Some(connection) = self.connections.making(to) else { continue };
                    let step = connection.handshake.on_timer(reach, now);
                    let times = connection.handshake.times_asked();
                    if step.send.is_some() && times > 1 {
                        watch::asked_again(self.connections.rank(to), self.numbers(), times);
                    }
                    self.take_step(to, &step, &remote);
                }
            }
        }
        let active = self.handshakes.active().into_iter();
        let due = active.filter_map(|(to, _)| self.connections.making(to)?.handshake.due()).min();
        self.handshakes.set_due(due.unwrap_or(Duration::MAX));
    }

    fn take_async_events(&mut self) {
        while let Some(event) = self.adapter.async_event() {
            watch::asynchronous(event, self.choice.port, self.numbers());
            let is_ours = event.port == self.choice.port;
            match event.kind {
                async_event::LID_CHANGE | async_event::GID_CHANGE | async_event::CLIENT_REREGISTER if is_ours => {
                    self.readdress();
                }
                async_event::PORT_ACTIVE if is_ours => {
                    self.readdress();
                    self.link_changed(true);
                }
                async_event::PORT_ERR if is_ours => self.link_changed(false),
                async_event::CQ_ERR | async_event::DEVICE_FATAL | async_event::SRQ_ERR => {
                    let error = io::Error::other(format!("IBV_EVENT_{}", event_name(event.kind)));
                    self.lose(&error, "the device's work");
                }
                _ => {}
            }
            if is_ours {
                add(&self.counters.port_events, 1);
            }
        }
    }

    /// Handles a new LID, GID or GID index of the port: connections made from now on use these.
    fn readdress(&mut self) {
        let Some(choice) = self.adapter.refresh(&self.choice).filter(|choice| *choice != self.choice) else { return };
        if self.directory.verbosity() > 0 {
            self.directory.print(&format!(
                "{}: its LID is {}, its GID {} at index {} now; new connections use them",
                self.attributes.place(),
                choice.lid,
                std::net::Ipv6Addr::from(choice.gid),
                choice.gid_index
            ));
        }
        self.handshakes.readdress(&choice);
        self.choice = choice;
    }
}
