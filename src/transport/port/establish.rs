// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executes the steps of a handshake: sends hellos, sets queue pairs, completes or abandons a connection. Called by
//! `connect.rs` with the step that `connect/handshake` has chosen, and by `poll.rs` when a message replaces the last
//! hello. Grade: setup. Threads: the port's. Tests: `port/tests`, and `hw-tests`.

use super::Port;
use super::admission::Once;
use crate::connect::Via;
use crate::connect::handshake::{Failure, Program, Step};
use crate::connect::ud::path;
use crate::counters::{add, raise};
use crate::select::address::PortAddress;
use crate::transport::adapter::{Adapter, QueuePair as _};
use crate::transport::connections::connection::{Connection, Phase};
use crate::transport::connections::failure::Cause;
use crate::transport::connections::retransmission::{Retransmission, RnrTimer};
use crate::transport::watch;
use crate::transport::work_request::EndpointId;
use ibex_ffi::verbs::{Reception, Transition};
use std::fmt::Write as _;
use std::io;

/// Number of retries after "receiver not ready": 7 means without limit (InfiniBand specification, `rnr_retry`), because
/// a receiver that computes is no error.
const FOR_EVER: u8 = 7;

impl<A: Adapter> Port<A> {
    pub(super) fn take_step(&mut self, to: EndpointId, step: &Step, remote: &PortAddress) {
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
        // Sent before the carriers are released, and before data that would tell the peer the same.
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

    /// Fails a connection whose queue pair could not be set; if it was a successor, drops only that.
    pub(super) fn not_set(&mut self, to: EndpointId, why: String) {
        if !self.drop_successor(to) {
            return self.fail(to, Cause::Connect { why, errno: libc::EIO });
        }
        self.handshakes.settle(to);
        if let Some(name) = self.connections.name(to) {
            self.print_once(Once::NOT_MADE, || format!("no new connection to rank {} ({name}): {why}", name.rank));
        }
    }

    /// Handles a peer that fell silent before the connection was made. Drops a successor. Otherwise fails the
    /// connection only if requests wait here: the peer, which has begun, may compute for as long as it likes.
    fn not_made(&mut self, to: EndpointId, failure: &Failure, remote: &PortAddress) {
        let Some(name) = self.connections.name(to) else { return };
        let mut why = failure.message(name, &self.attributes.place(), remote);
        if let Some(error) = self.handshakes.carrier_error() {
            let _ = write!(why, " The last datagram could not be sent: {error}.");
        }
        if let Some(tried) = self.tried(to) {
            let _ = write!(why, " All that was tried: {tried}.");
        }
        if self.drop_successor(to) {
            self.handshakes.settle(to);
        } else {
            let now = self.adapter.now();
            let Some(connection) = self.connections.get_mut(to) else { return };
            if connection.queue.waiting() > 0 {
                return self.fail(to, Cause::Connect { why, errno: failure.errno() });
            }
            connection.handshake.ask_on(now);
        }
        self.print_once(Once::NOT_MADE, || format!("the peer began a connection and left it: {why}"));
    }

    /// Sets the queue pair to receive from the peer's.
    fn program(&mut self, to: EndpointId, program: &Program, remote: &PortAddress) -> io::Result<()> {
        let mut path = path(&self.choice, &self.tunables, remote, program.qpn);
        path.psn = program.psn;
        path.mtu = u32::from(program.mtu);
        let (port, pkey) = (self.choice.port, self.tunables.pkey_index as u16);
        let rnr_timer = RnrTimer::of(self.connections.spoken_to());
        let access = self.attributes.access();
        let Some(connection) = self.connections.making(to) else { return Ok(()) };
        connection.initiator_depth = program.max_rd_atomic;
        let queue = &mut connection.queue;
        queue.set_named(program.endpoint);
        let qp = queue.qp_mut();
        if program.reset {
            qp.reset()?;
            qp.initialise(port, pkey, access)?;
        }
        let max_dest_rd_atomic = program.max_dest_rd_atomic;
        qp.ready_to_receive(&path, &Reception { rnr_timer: rnr_timer.code(), max_dest_rd_atomic })?;
        raise(&self.counters.rnr_timer, rnr_timer.time().as_micros() as u64);
        Ok(())
    }

    /// Sets a connection to send, whose peer can receive. Only now is the path's round trip known, and with it the
    /// time-out.
    fn ready(&mut self, to: EndpointId) {
        let software = self.attributes.software;
        let making = self.connections.making(to);
        let Some(connection) = making.filter(|connection| connection.phase() == Phase::Connecting) else { return };
        let round_trip = connection.handshake.round_trip();
        let retransmission = Retransmission::choose(&self.tunables, software, round_trip);
        connection.retransmission = retransmission;
        let transition = Transition {
            ack_timeout: retransmission.exponent,
            retry_count: retransmission.retries,
            rnr_retry: FOR_EVER,
            max_rd_atomic: connection.initiator_depth,
            psn: connection.handshake.local().psn,
        };
        if let Err(error) = connection.queue.qp_mut().ready_to_send(&transition) {
            return self.not_set(
                to,
                format!("setting the queue pair to send failed: {error}; see the kernel's log for the device"),
            );
        }
        if let Some(successor) = self.connections.take_successor(to) {
            self.replace(to, successor);
        }
        self.print_partner(to);
        self.handshakes.settle(to);
        self.open_connection(to);
    }

    /// Opens a connection that can send, unless one that it has replaced may still prove to have lost a request: no
    /// later one may overtake that.
    pub(super) fn open_connection(&mut self, to: EndpointId) {
        if self.closing.may_lose(to) {
            return;
        }
        let is_diverted = self.connections.is_diverted(to);
        let is_set = |connection: &&mut Connection<A::QueuePair>| {
            connection.phase() == Phase::Connecting && connection.handshake.is_confirmed()
        };
        let Some(connection) = self.connections.get_mut(to).filter(is_set) else { return };
        connection.enter(Phase::Ready);
        connection.divert(is_diverted);
        let (retransmission, round_trip) = (connection.retransmission, connection.handshake.round_trip());
        add(&self.counters.connections, 1);
        add(&self.counters.connected, 1);
        raise(&self.counters.ack_timeout, retransmission.timeout().as_micros() as u64);
        if let Some(connection) = self.connections.get(to) {
            let numbers = (connection.number(), connection.handshake.remote_queue_pair());
            watch::connection_established(self.connections.rank(to), self.numbers(), numbers);
        }
        self.enlist(to);
        self.tx.expect_room();
        if self.directory.verbosity() > 1 {
            self.directory.print(&format!(
                "connected to {}; round trip at most {:.1?}, waits for an acknowledgement {retransmission}",
                self.describe(to),
                round_trip.unwrap_or_default()
            ));
        }
    }

    /// Replaces a connection that the peer has given up by its successor, which fails if requests of it are lost.
    fn replace(&mut self, to: EndpointId, mut successor: Box<Connection<A::QueuePair>>) {
        if let Some(mut old) = self.connections.take(to) {
            successor.queue.succeed(&mut old.queue);
            self.close_connection(to, *old, true);
        }
        self.connections.put(to, successor);
    }

    /// Handles a message on a connection that waits for the last hello, which the message replaces.
    pub(super) fn confirmed_by_data(&mut self, peer: EndpointId, qp_num: u32) {
        let now = self.adapter.now();
        let Some(connection) = self.connections.making(peer) else { return };
        if connection.number() == qp_num && connection.handshake.on_data(now) {
            self.ready(peer);
        }
    }

    fn send_hello(&mut self, to: EndpointId, via: Via, remote: &PortAddress) {
        let me = *self.handshakes.identity();
        let Some(connection) = self.connections.making(to) else { return };
        let frame = connection.handshake.hello(&me).encode(&connection.key);
        let path = path(&self.choice, &self.tunables, remote, remote.ud_qpn);
        self.handshakes.send(Some(to), via, (remote, &path), &frame, &self.counters);
    }
}
