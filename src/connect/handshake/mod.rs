// SPDX-License-Identifier: MIT OR Apache-2.0
//! One side of the handshake of one connection: a state machine that gets hellos and time, and returns a [`Step`].
//!
//! Owns the data of the peer's queue pair, the confirmation, the retries and the time-outs. It has no clock, network or
//! adapter: the port calls it and executes the step. Both sides run the same machine. Either side may begin, or both at
//! once, and packets may be lost, doubled, late or out of order.
//!
//! Each hello names the sender's queue pair, and the receiver's queue pair that the sender has *heard*: the one to
//! which it has set its own. A hello that names ours as heard confirms us: we may send. Data on the connection confirms
//! us, too, because only a peer that has heard us can send it. A hello that is not marked confirmed gets an answer; a
//! side that is not confirmed repeats its hello. The time from our first hello to the confirmation is never less than
//! the path's round trip, so time-outs may be derived from it.
//!
//! An *epoch* counts the connections of a process. A newer epoch replaces our data of the peer; an older one is late.
//! If the connection is in use, a hello with a newer epoch begins a *successor*: another machine beside this one, which
//! takes over once the peer has confirmed it. If that hello was a recording, the successor is never confirmed.
//!
//! Grade: setup (`on_data` pending). Threads: the port's. Memory: part of a connected peer's 1 KiB. Times: since any
//! fixed moment, the same for all calls. Tests: `handshake/tests`.

use std::time::Duration;

use super::hello::{Hello, QpInfo};
use super::{Carrier, Identity, Paths, Reach, Via};
use crate::tunables::Tunables;

mod port_attempt;
mod step;
#[cfg(test)]
mod tests;

pub(crate) use step::{Failure, FailureReason, Ignored, Program, Step};

/// Pause after the first try; doubles with each. A peer inside MPI answers sooner, and a job's start takes longer.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two tries: a computing peer gets one hello a second.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Number of unanswered datagrams (750 ms) after which TCP is tried as well: time for a merely slow peer to answer.
const DATAGRAMS_ALONE: u32 = 4;

/// One side of the handshake of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Handshake {
    local: QpInfo,
    peer_instance: u64,
    /// The peer's queue pair number, sequence number and epoch, once our queue pair is set to it.
    peer: Option<(u32, u32, u32)>,
    peer_port: u8,
    paths: Paths,
    state: State,
    /// The carrier of the last hello.
    heard_by: Option<Carrier>,
    due: Duration,
    pause: Duration,
    /// Begin of the time-out: the peer's last hello, or the time at which the handshake began or was resumed.
    alive: Duration,
    timeout: Duration,
    attempt: PortAttempt,
    ud_sent: u32,
    tcp_sent: u32,
    heard: u32,
    first_sent: Option<Duration>,
    round_trip: Option<Duration>,
}

#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum State {
    Asking,
    Confirmed,
    Failed,
}

/// The progress of asking one port of the peer.
#[derive(Copy, Clone, Debug, Default)]
struct PortAttempt {
    needs_datagram: bool,
    /// Number of hellos sent to it when it last answered, or when this turn began.
    heard_at: u32,
    /// Number of its answers over TCP, each after a new datagram of ours that did not arrive.
    answers: u8,
    /// Number of datagrams sent when such an answer was last counted.
    counted_at: u32,
}

impl Handshake {
    /// Number of the peer's queue pair; 0 if it is unknown yet.
    pub(crate) fn remote_queue_pair(&self) -> u32 {
        self.peer.map_or(0, |(qpn, ..)| qpn)
    }

    /// Begins a connection with a queue pair that is not yet set to a peer's. `peer_instance` and `peer_port` are from
    /// the peer's modex, or from the hello that made us begin. The first try is due at once: a side that begins calls
    /// [`Handshake::on_timer`], a side that got a hello calls [`Handshake::on_hello`].
    pub(crate) fn new(
        local: QpInfo,
        peer_instance: u64,
        peer_port: u8,
        paths: Paths,
        now: Duration,
        tunables: &Tunables,
    ) -> Handshake {
        Handshake {
            local,
            peer_instance,
            peer: None,
            peer_port,
            paths,
            state: State::Asking,
            heard_by: None,
            due: now,
            pause: FIRST_PAUSE,
            alive: now,
            timeout: Duration::from_secs(tunables.connect_timeout),
            attempt: PortAttempt::default(),
            ud_sent: 0,
            tcp_sent: 0,
            heard: 0,
            first_sent: None,
            round_trip: None,
        }
    }

    /// Upper bound of the path's round trip; `None` until confirmed.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// Makes the hello to send now. `me` is the port's own identity.
    pub(crate) fn hello(&self, me: &Identity) -> Hello {
        let (heard_qpn, _, heard_epoch) = self.peer.unwrap_or((0, 0, 0));
        Hello {
            source: *me,
            destination_instance: self.peer_instance,
            destination_port: self.peer_port,
            qp: self.local,
            heard_qpn,
            heard_epoch,
            confirmed: self.is_confirmed(),
            declined: None,
        }
    }

    /// Handles a hello of this peer, brought by `carrier`.
    pub(crate) fn on_hello(&mut self, me: &Identity, hello: &Hello, carrier: Carrier, now: Duration) -> Step {
        if let Err(ignored) = self.is_for_this_connection(me, hello) {
            return Step { ignored: Some(ignored), ..Step::default() };
        }
        let reset = match self.peer {
            Some((_, _, epoch)) if hello.qp.epoch > epoch => {
                if self.is_confirmed() {
                    return Step { superseded: true, ..Step::default() };
                }
                true
            }
            _ => false,
        };
        self.alive = now;
        self.heard = self.heard.saturating_add(1);
        self.heard_by = Some(carrier);
        if self.is_unproven(me, hello, carrier) {
            self.count_unproven(now);
            return Step::default();
        }
        let mut step = Step::default();
        if reset || self.peer.is_none() {
            step.program = Some(self.program(me, hello, reset));
        }
        if hello.heard_qpn != 0 {
            step.confirmed = self.confirm(now);
        }
        if !hello.confirmed {
            step.send = Some(self.count(carrier.into(), now));
            self.pause = FIRST_PAUSE;
            self.due = now + self.pause;
        }
        step
    }

    /// Whether a hello belongs to a later connection of the peer than this one, and thus to a successor.
    pub(crate) fn is_earlier_than(&self, hello: &Hello) -> bool {
        let same_life = hello.source.address.instance == self.peer_instance;
        same_life && self.peer.is_some_and(|(_, _, epoch)| hello.qp.epoch > epoch)
    }

    /// Handles data on the connection's queue pair: the peer has set its own to ours. Returns true if that confirms us.
    pub(crate) fn on_data(&mut self, now: Duration) -> bool {
        self.peer.is_some() && self.confirm(now)
    }

    /// Handles the passing of time. Called when [`Handshake::due`] has come; `reach` is how far TCP reaches this peer.
    pub(crate) fn on_timer(&mut self, reach: Reach, now: Duration) -> Step {
        if self.state != State::Asking || now < self.due {
            return Step::default();
        }
        if let Some(reason) = self.hopeless(reach, now) {
            self.state = State::Failed;
            let Handshake { paths, ud_sent, tcp_sent, heard, .. } = *self;
            let silent = now.saturating_sub(self.alive);
            let failure = Failure { reason, paths, ud_sent, tcp_sent, heard, reach, silent };
            return Step { failed: Some(failure), ..Step::default() };
        }
        self.due = now + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        let via = self.count(self.route(), now);
        Step { send: Some(via), ..Step::default() }
    }

    /// Number of hellos sent to the peer.
    pub(crate) fn times_asked(&self) -> u32 {
        self.ud_sent + self.tcp_sent
    }

    /// Resumes a failed handshake, with the full time-out, because no request waits for the connection.
    pub(crate) fn ask_on(&mut self, now: Duration) {
        if self.state == State::Failed {
            (self.state, self.alive, self.due) = (State::Asking, now, now + self.pause);
        }
    }

    /// Time at which to call [`Handshake::on_timer`]; `None`: never again.
    pub(crate) fn due(&self) -> Option<Duration> {
        (self.state == State::Asking).then_some(self.due)
    }

    /// Whether the peer can receive.
    pub(crate) fn is_confirmed(&self) -> bool {
        self.state == State::Confirmed
    }

    /// Whether the local queue pair is set to one of the peer.
    pub(crate) fn is_programmed(&self) -> bool {
        self.peer.is_some()
    }

    pub(crate) fn local(&self) -> QpInfo {
        self.local
    }

    fn is_for_this_connection(&self, me: &Identity, hello: &Hello) -> Result<(), Ignored> {
        if self.state == State::Failed {
            return Err(Ignored::Failed);
        }
        if hello.destination_instance != me.address.instance {
            return Err(Ignored::NotForUs);
        }
        if hello.source.address.instance != self.peer_instance {
            return Err(Ignored::OtherInstance);
        }
        // The sender has set its queue pair to one that we gave up: it will see our newer epoch and start again.
        let heard = (hello.heard_qpn, hello.heard_epoch);
        if heard != (0, 0) && heard != (self.local.qpn, self.local.epoch) {
            return Err(Ignored::Late);
        }
        match self.peer {
            Some((_, _, epoch)) if hello.qp.epoch < epoch => Err(Ignored::Late),
            Some((qpn, psn, epoch)) if hello.qp.epoch == epoch && (hello.qp.qpn, hello.qp.psn) != (qpn, psn) => {
                Err(Ignored::Conflict)
            }
            _ => Ok(()),
        }
    }

    fn program(&mut self, me: &Identity, hello: &Hello, reset: bool) -> Program {
        self.peer = Some((hello.qp.qpn, hello.qp.psn, hello.qp.epoch));
        self.peer_port = hello.source.port;
        Program {
            qpn: hello.qp.qpn,
            psn: hello.qp.psn,
            endpoint: hello.qp.endpoint,
            mtu: me.address.mtu.min(hello.source.address.mtu),
            max_rd_atomic: self.local.initiator_depth.min(hello.qp.responder_resources),
            max_dest_rd_atomic: self.local.responder_resources,
            reset,
        }
    }

    fn confirm(&mut self, now: Duration) -> bool {
        let first = self.state == State::Asking;
        if first {
            self.state = State::Confirmed;
            self.round_trip = self.first_sent.map(|sent| now.saturating_sub(sent));
        }
        first
    }

    /// The carriers of the next try: datagrams; also TCP if the peer does not answer them, or has sent a hello by TCP.
    fn route(&self) -> Via {
        match self.paths {
            Paths { ud: true, tcp: true } => {
                let unanswered = self.ud_sent >= DATAGRAMS_ALONE || self.is_asked_again();
                if unanswered || self.heard_by == Some(Carrier::Tcp) { Via::Both } else { Via::Ud }
            }
            Paths { ud: true, tcp: false } => Via::Ud,
            Paths { ud: false, .. } => Via::Tcp,
        }
    }

    fn count(&mut self, via: Via, now: Duration) -> Via {
        self.first_sent.get_or_insert(now);
        self.ud_sent = self.ud_sent.saturating_add(via.ud().into());
        self.tcp_sent = self.tcp_sent.saturating_add(via.tcp().into());
        via
    }

    /// Returns the reason to give up, if there is one. While a TCP connection is open, the peer's process lives and
    /// merely computes.
    fn hopeless(&self, reach: Reach, now: Duration) -> Option<FailureReason> {
        if !self.paths.ud && !self.paths.tcp && self.heard_by.is_none() {
            return Some(FailureReason::NoCarrier);
        }
        if now.saturating_sub(self.alive) < self.timeout || reach == Reach::Open {
            return None;
        }
        Some(if self.heard == 0 { FailureReason::Unanswered } else { FailureReason::Unconfirmed })
    }
}
