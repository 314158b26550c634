// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the port of a peer that is in this port's fabric: asks the candidates in turn until a datagram comes.
//!
//! InfiniBand fabrics often share the default prefix. If a host is cabled or numbered the other way round, addresses
//! then pair ports of different fabrics. So an endpoint is bound to its paired port only when a datagram arrives. Until
//! then it tries the others (`connections/search.rs` has the order), and accepts a port that contacts it. Waiting
//! requests stay in the send queue and go, in order, to the port that answers.
//!
//! Both sides agree without a vote. A side that has set its queue pair to a port and announced it is bound to that
//! port, because the other may be sending already; only that port's refusal frees it. A port that is bound or connected
//! elsewhere declines, permanently if it is connected. Four ports of which each is bound to the next would wait for
//! ever; so a bound port declines candidates that are no better than its own. Both ends rank a pair alike, so in such a
//! cycle the best pair always declines its predecessor. A computing peer is silent at its best port, too, and finds the
//! hellos to all its ports when it calls MPI again. So an endpoint does not take a port other than the best at its
//! first hello: it first asks the better ones once more.
//!
//! Called by `connect.rs` for hellos and timers, by `establish.rs` when a connection is made or abandoned. Grade:
//! setup. Threads: the port's. Tests: `tests/partners`, and the device tests in `hw-tests`.

use super::Port;
use super::admission::{Once, Stranger};
use crate::connect::Carrier;
use crate::connect::handshake::FIRST_PAUSE;
use crate::connect::hello::{Declined, Hello};
use crate::connect::ud::path;
use crate::counters::add;
use crate::peer::PeerName;
use crate::select::address::{LINK_INFINIBAND, PortAddress, PortEntry};
use crate::transport::adapter::{Adapter, QueuePair as _};
use crate::transport::connections::connection::{Connection, Phase};
use crate::transport::connections::failure::Cause;
use crate::transport::connections::search::{Search, Verdict};
use crate::transport::tx::request::Request;
use crate::transport::work_request::EndpointId;
use std::io;
use std::time::Duration;

enum Answer {
    /// The endpoint is for that port from now on.
    Take,
    AskBetter,
    Decline(Declined),
    /// The port will ask again.
    Nothing,
}

impl<A: Adapter> Port<A> {
    /// Returns the port of a peer that an endpoint should stand for: `paired`, which addresses pair, unless another
    /// port of the peer has already contacted this one.
    pub(super) fn answering(&self, name: PeerName, paired: u8) -> u8 {
        let other =
            if self.connections.known(name, paired).is_none() { self.other_endpoint(name, paired) } else { None };
        other.and_then(|other| self.connections.remote(other)).map_or(paired, |(_, port)| port)
    }

    /// Returns the endpoint for another port of this peer, if the connection could be to this port instead.
    fn other_endpoint(&self, name: PeerName, port: u8) -> Option<EndpointId> {
        let other = self.connections.of_peer(name)?;
        let partners = self.partners(name);
        (partners.len() > 1 && partners.contains(&port)).then_some(other)
    }

    fn partners(&self, name: PeerName) -> Vec<u8> {
        if self.choice.link_layer == LINK_INFINIBAND { self.directory.partners(name, self.index()) } else { Vec::new() }
    }

    /// Begins a search if the endpoint's peer has several candidate ports: asks them in turn, and only a datagram
    /// decides. Without datagrams the endpoint keeps the port that addresses pair.
    pub(super) fn search(&mut self, to: EndpointId, connection: &mut Connection<A::QueuePair>, remote: &PortAddress) {
        let Some((name, port)) = self.connections.remote(to) else { return };
        let has_datagrams = self.handshakes.paths(remote, &self.tunables).ud;
        if let Some(search) = Search::new(&self.partners(name), port).filter(|_| has_datagrams) {
            connection.handshake.require_datagram();
            self.handshakes.put_search(to, search);
        }
    }

    /// Whether it is unknown which port of the peer this one reaches, if any; begins to find out. Messages to the peer
    /// may come back unposted, for another port.
    pub fn is_unproven(&mut self, to: EndpointId) -> bool {
        if let Some(connection) = self.connections.get(to) {
            return connection.phase() == Phase::Connecting && self.handshakes.search(to).is_some();
        }
        let has_choice = self.connections.name(to).is_some_and(|name| self.partners(name).len() > 1);
        has_choice && self.queue(to, Request::NOTHING).is_ok() && self.handshakes.search(to).is_some()
    }

    /// Handles a hello for the choice of ports. If no endpoint is for its port, but the port may be a better choice
    /// than another port of its process, the endpoint of that process turns to it. Fails if the endpoint stays with the
    /// other port, or asks better ports first.
    pub(super) fn hear(&mut self, hello: &Hello, carrier: Carrier) -> Result<(), Stranger> {
        let source = hello.source;
        let known = self.connections.known(source.name, source.port).filter(|known| self.failure(*known).is_none());
        let met = known.or_else(|| self.other_endpoint(source.name, source.port));
        let to = if met.is_some() { met } else { self.meet(hello)? };
        let Some(to) = to else { return Ok(()) };
        let answer = if known.is_some() {
            self.answer_to_asked(to, hello, carrier)
        } else {
            self.answer_to_other(to, hello, carrier)
        };
        match answer {
            Answer::Take if known.is_some() => return Ok(()),
            Answer::Take => {
                let (entry, now) = (self.listed(hello)?, self.adapter.now());
                self.ask_port(to, source.port, &entry, now);
                return Ok(());
            }
            Answer::AskBetter => self.ask_better(to, hello)?,
            Answer::Decline(declined) => self.decline(to, hello, carrier, declined),
            Answer::Nothing => {}
        }
        Err(Stranger::Elsewhere)
    }

    /// Makes an endpoint for a process without one, if its first hello comes from another port than the best candidate.
    fn meet(&mut self, hello: &Hello) -> Result<Option<EndpointId>, Stranger> {
        let (name, port) = (hello.source.name, hello.source.port);
        if self.choice.link_layer != LINK_INFINIBAND || self.connections.of_peer(name).is_some() {
            return Ok(None);
        }
        self.listed(hello)?;
        let partners = self.partners(name);
        let best = partners.first().filter(|best| **best != port && partners.contains(&port));
        Ok(best.map(|best| self.connections.learn(name, *best, self.diversion.is_on)))
    }

    /// Returns the answer of an endpoint to the port of the peer that it is for.
    fn answer_to_asked(&mut self, to: EndpointId, hello: &Hello, carrier: Carrier) -> Answer {
        let Some(connection) = self.connections.get(to) else { return Answer::Take };
        let handshake = &connection.handshake;
        // A port that answers this one has already asked the better ones.
        if carrier == Carrier::Tcp || handshake.is_programmed() || handshake.is_answered_by(hello) {
            return Answer::Take;
        }
        let search = self.handshakes.search(to);
        if search.is_none_or(|search| search.may_take(hello.source.port)) { Answer::Take } else { Answer::AskBetter }
    }

    /// Returns the answer of an endpoint to a port of the peer that it does not stand for.
    fn answer_to_other(&mut self, to: EndpointId, hello: &Hello, carrier: Carrier) -> Answer {
        let port = hello.source.port;
        if self.failure(to).is_some() {
            return Answer::Decline(Declined::Taken);
        }
        let Some(connection) = self.connections.get(to) else {
            return if carrier == Carrier::Ud { Answer::AskBetter } else { Answer::Take };
        };
        let (phase, handshake) = (connection.phase(), &connection.handshake);
        let (is_bound, is_unheard) = (handshake.is_programmed(), handshake.is_unheard());
        let is_answer = handshake.is_answered_by(hello);
        let Some(search) = self.handshakes.search(to).filter(|_| phase == Phase::Connecting) else {
            return Answer::Decline(Declined::Taken);
        };
        let is_open = search.verdict(port) == Some(Verdict::Open);
        match is_bound {
            true if search.prefers_current_to(port) => Answer::Decline(Declined::ForNow),
            true => Answer::Nothing,
            false if is_answer || carrier == Carrier::Ud && search.may_take(port) => Answer::Take,
            false if carrier == Carrier::Ud => Answer::AskBetter,
            false if is_unheard && is_open && !search.has_wanted() => Answer::Take,
            false if is_open => Answer::Nothing,
            false => Answer::Decline(Declined::Unmet),
        }
    }

    /// Asks the better ports once more, because a port that is not the best has sent a hello: the process is awake.
    fn ask_better(&mut self, to: EndpointId, hello: &Hello) -> Result<(), Stranger> {
        self.listed(hello)?;
        if self.connections.get(to).is_none() {
            self.begin_connection(to, true);
        }
        let Some(search) = self.handshakes.search(to) else { return Ok(()) };
        let better = if search.want(hello.source.port) { search.next() } else { None };
        let entry = better.and_then(|port| Some((port, self.directory.entry(hello.source.name, port)?)));
        if let Some((port, entry)) = entry {
            let now = self.adapter.now();
            self.ask_port(to, port, &entry, now);
        }
        Ok(())
    }

    /// Answers a port of the peer that the endpoint is bound to another port.
    fn decline(&mut self, to: EndpointId, hello: &Hello, carrier: Carrier, declined: Declined) {
        let Ok(entry) = self.listed(hello) else { return };
        let Some(connection) = self.connections.get(to).filter(|_| !hello.confirmed) else { return };
        let me = *self.handshakes.identity();
        let frame = connection.handshake.declining(&me, hello, declined).encode(&entry.key);
        let path = path(&self.choice, &self.tunables, &entry.address, entry.address.ud_qpn);
        self.handshakes.send(None, carrier.into(), (&entry.address, &path), &frame, &self.counters);
    }

    pub(super) fn on_declined(&mut self, hello: &Hello, declined: Declined) {
        let source = hello.source;
        let asking = self.connections.of_peer(source.name).filter(|to| {
            self.connections.get(*to).is_some_and(|connection| connection.handshake.is_answered_by(hello))
        });
        let search = asking.and_then(|to| Some((to, self.handshakes.search(to)?)));
        let Some((to, search)) = search.filter(|(_, search)| search.verdict(source.port).is_some()) else {
            return add(&self.counters.handshakes_dropped, 1);
        };
        match declined {
            Declined::ForNow => {}
            Declined::Taken => search.exclude(source.port, Verdict::Taken),
            Declined::Unmet => search.exclude(source.port, Verdict::Unmet),
        }
        if search.current() == source.port {
            let wants_another = search.has_wanted()
                || self.connections.get(to).is_some_and(|connection| connection.queue.waiting() > 0);
            self.leave(to, wants_another);
        }
    }

    /// Called after a time-out. In a search, turns to the next port if this one is silent or answers only by TCP.
    pub(super) fn reconsider(&mut self, to: EndpointId) {
        let Some(connection) = self.connections.get(to) else { return };
        let (handshake, waiting) = (&connection.handshake, connection.queue.waiting());
        let Some(search) = self.handshakes.search(to).filter(|_| connection.phase() == Phase::Connecting) else {
            return;
        };
        let (is_unmet, is_silent) = (handshake.is_unmet(), handshake.is_silent_after(search.tries()));
        if waiting == 0 && !search.has_wanted() || !(is_unmet || is_silent) {
            return;
        }
        let current = search.current();
        if is_unmet {
            search.exclude(current, Verdict::Unmet);
        }
        search.was_silent();
        let wants_another = waiting > 0 || search.has_wanted();
        if search.next() != Some(current) {
            self.leave(to, wants_another);
        }
    }

    /// Stops asking the current port and asks the next one; or, unless the endpoint `wants_another`, drops the
    /// connection: the peer began it, and will begin again.
    fn leave(&mut self, to: EndpointId, wants_another: bool) {
        let Some(search) = self.handshakes.search(to) else { return };
        let (current, first, next) = (search.current(), search.first_choice(), search.next());
        if !wants_another {
            self.drop_connection(to);
            self.handshakes.settle(to);
            return self.connections.rename(to, first);
        }
        let Some(next) = next else { return self.give_up_search(to) };
        let entry = self.connections.name(to).and_then(|name| self.directory.entry(name, next));
        let Some(entry) = entry else { return self.give_up_search(to) };
        // A port that declined for now gets its next hello after a pause.
        let pause = if next == current { FIRST_PAUSE } else { Duration::ZERO };
        let at = self.adapter.now() + pause;
        self.ask_port(to, next, &entry, at);
    }

    fn ask_port(&mut self, to: EndpointId, port: u8, entry: &PortEntry, at: Duration) {
        let paths = self.handshakes.paths(&entry.address, &self.tunables);
        let epoch = match self.unbind(to) {
            Ok(was_bound) => was_bound.then(|| self.handshakes.next_epoch()),
            Err(error) => return self.not_set(to, format!("resetting the queue pair failed: {error}")),
        };
        let Some(connection) = self.connections.get_mut(to) else { return self.connections.rename(to, port) };
        connection.key = entry.key;
        let sent = connection.handshake.sent();
        let before = self.handshakes.search(to).map_or((0, 0), |search| search.ask_port(port, sent));
        connection.handshake.ask_port((entry.address.instance, port, paths), epoch, before, at);
        self.connections.rename(to, port);
        self.handshakes.ask_port(to, entry.address);
        self.countdown = 1;
    }

    /// Resets the queue pair if it was set to a port of the peer. Returns whether it was.
    fn unbind(&mut self, to: EndpointId) -> io::Result<bool> {
        let (port, pkey, access) = (self.choice.port, self.tunables.pkey_index as u16, self.attributes.access());
        let bound = self.connections.get_mut(to).filter(|connection| connection.handshake.is_programmed());
        let Some(connection) = bound else { return Ok(false) };
        let qp = connection.queue.qp_mut();
        qp.reset()?;
        qp.initialise(port, pkey, access)?;
        Ok(true)
    }

    fn give_up_search(&mut self, to: EndpointId) {
        let (place, tried) = (self.attributes.place(), self.tried(to).unwrap_or_default());
        let Some(name) = self.connections.name(to) else { return };
        let why = format!(
            "no port of peer {name} can be reached from {place}: {tried}. Look at the cables and the fabrics of both hosts; name ports \
             of one network with btl_ibex_if_include"
        );
        self.fail(to, Cause::Connect { why, errno: libc::EHOSTUNREACH });
    }

    /// Lists the tried ports of the peer, with the results; `None` if there was no choice.
    pub(super) fn tried(&mut self, to: EndpointId) -> Option<String> {
        let sent = self.connections.get(to).map(|connection| connection.handshake.sent())?;
        self.handshakes.search(to).map(|search| search.tried(sent))
    }

    /// Prints for a verbose user that a new connection goes to another port than the one that addresses pair.
    pub(super) fn print_partner(&mut self, to: EndpointId) {
        let Some(search) = self.handshakes.search(to).filter(|search| !search.is_first_choice()) else { return };
        let (first, current) = (search.first_choice(), search.current());
        let verdict = search.verdict(first);
        let Some(name) = self.connections.name(to).filter(|_| self.directory.verbosity() > 0) else { return };
        let why = match verdict {
            Some(Verdict::Taken) => "is connected to another port",
            Some(Verdict::Unmet) => "is not reached by datagrams, only by TCP",
            _ => "has not answered, while this one has",
        };
        self.print_once(Once::OTHER_PARTNER, || {
            format!(
                "connected to port {current} of rank {} ({name}), as its port {first}, to which the order of ports pairs this one, {why}",
                name.rank
            )
        });
    }
}
