// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asks one port of the peer after the other, if the addresses do not show which of them is in our fabric.
//!
//! A hello by TCP says nothing about the fabric, because TCP connects any two ports. So the handshake sets the queue
//! pair only after a datagram has arrived ([`Handshake::require_datagram`]). If a port stays silent, or answers only by
//! TCP, the handshake asks the next one ([`Handshake::ask_port`]), which `transport/connections/search.rs` chooses; a
//! port that is connected or bound to another one declines ([`Handshake::declining`]). Grade: setup. Threads: the
//! port's. Tests: `tests` beside this file, and `transport/port/tests/partners`.

use std::time::Duration;

use super::{FIRST_PAUSE, Handshake, LONGEST_PAUSE, PortAttempt, State};
use crate::connect::hello::{Declined, Hello};
use crate::connect::{Carrier, Identity, Paths};

/// After this many answers by TCP, each after another datagram, datagrams count as lost on the way to the port.
const UNMET: u8 = 4;

impl Handshake {
    /// Makes the hello that declines the request in `theirs`.
    pub(crate) fn declining(&self, me: &Identity, theirs: &Hello, declined: Declined) -> Hello {
        Hello {
            destination_instance: theirs.source.address.instance,
            destination_port: theirs.source.port,
            heard_qpn: theirs.qp.qpn,
            heard_epoch: theirs.qp.epoch,
            confirmed: false,
            declined: Some(declined),
            ..self.hello(me)
        }
    }

    /// Whether a hello answers our current request, and not one for an earlier connection.
    pub(crate) fn is_answered_by(&self, hello: &Hello) -> bool {
        self.state == State::Asking && (hello.heard_qpn, hello.heard_epoch) == (self.local.qpn, self.local.epoch)
    }

    /// Sets the queue pair to one of the peer only after a datagram has arrived, in either direction.
    pub(crate) fn require_datagram(&mut self) {
        self.attempt.needs_datagram = true;
    }

    /// Asks another port of the peer, with this instance, number and carriers, for the same connection; `sent`:
    /// datagrams and TCP packets sent to that port before. If the caller has reset the queue pair, because it was set
    /// to one of the former port, `epoch` is new: it exposes late hellos of that port. The peer's process has as long
    /// to answer as before.
    pub(crate) fn ask_port(&mut self, to: (u64, u8, Paths), epoch: Option<u32>, sent: (u32, u32), now: Duration) {
        (self.peer_instance, self.peer_port, self.paths) = to;
        (self.ud_sent, self.tcp_sent) = sent;
        self.local.epoch = epoch.unwrap_or(self.local.epoch);
        (self.peer, self.heard, self.heard_by) = (None, 0, None);
        let (heard_at, needs_datagram) = (self.tries(), self.attempt.needs_datagram);
        // The first two rounds are short, to find the port; after that hellos to a computing peer become ever rarer.
        let pause = FIRST_PAUSE.saturating_mul((heard_at / 4).max(1)).min(LONGEST_PAUSE);
        (self.due, self.pause) = (now, pause);
        self.attempt = PortAttempt { needs_datagram, heard_at, ..PortAttempt::default() };
    }

    /// Number of hellos sent to the current port, by datagram and by TCP.
    pub(crate) fn sent(&self) -> (u32, u32) {
        (self.ud_sent, self.tcp_sent)
    }

    pub(super) fn is_asked_again(&self) -> bool {
        self.attempt.heard_at > 0
    }

    fn tries(&self) -> u32 {
        self.ud_sent.max(self.tcp_sent)
    }

    /// Whether the current port has not answered the last `tries` hellos.
    pub(crate) fn is_silent_after(&self, tries: u32) -> bool {
        self.peer.is_none() && self.tries() >= self.attempt.heard_at.saturating_add(tries)
    }

    /// Whether the current port has sent no hello.
    pub(crate) fn is_unheard(&self) -> bool {
        self.heard == 0
    }

    /// Whether datagrams do not arrive: we have sent enough, and the peer, which gets our hellos over TCP, got none.
    pub(crate) fn is_unmet(&self) -> bool {
        self.peer.is_none() && self.attempt.answers >= UNMET
    }

    /// Whether this hello proves nothing about the fabric: it came over TCP, and none of our datagrams has reached the
    /// peer (a peer that got one has set its queue pair to ours). If a side has no datagrams, TCP suffices.
    pub(super) fn is_unproven(&self, me: &Identity, hello: &Hello, carrier: Carrier) -> bool {
        let have_datagrams = me.address.ud_qpn != 0 && hello.source.address.ud_qpn != 0;
        let is_proof = carrier == Carrier::Ud || hello.heard_qpn != 0;
        self.attempt.needs_datagram && self.peer.is_none() && have_datagrams && !is_proof
    }

    /// Counts a hello without proof of the fabric, and asks the peer again, by both carriers, at even intervals.
    pub(super) fn count_unproven(&mut self, now: Duration) {
        if self.ud_sent > self.attempt.counted_at {
            self.attempt.answers += 1;
            self.attempt.counted_at = self.ud_sent;
        }
        self.attempt.heard_at = self.tries();
        self.pause = FIRST_PAUSE;
        self.due = self.due.min(now + FIRST_PAUSE);
    }
}
