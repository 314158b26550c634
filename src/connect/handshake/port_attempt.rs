// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asking one port of the peer after the other, where the addresses do not say which of them is in our fabric.
//!
//! InfiniBand fabrics often have the same prefix, the default. TCP goes from any port to any, so that a hello by TCP
//! says nothing of the fabric: the queue pair is set only when a datagram has come through
//! ([`Handshake::require_datagram`]). A port that stays silent, or speaks by TCP alone, is left for the next one
//! ([`Handshake::ask_port`]); a port that will have another one says so ([`Handshake::declining`]). Which port comes
//! next, `transport/connections/search.rs` decides.
//!
//! Path: setup. Threads: the port's. Tests: `tests.rs` beside this file, and `transport/port/tests/partners.rs`.

use std::time::Duration;

use super::{FIRST_PAUSE, Handshake, LONGEST_PAUSE, PortAttempt, State};
use crate::connect::hello::{Declined, Hello};
use crate::connect::{Carrier, Identity, Paths};

/// How often a peer must have spoken by TCP, after as many datagrams, until these are taken to lead nowhere.
const UNMET: u8 = 4;

impl Handshake {
    /// The hello that declines what the receiver has asked for with `theirs`.
    #[must_use]
    pub fn declining(&self, me: &Identity, theirs: &Hello, declined: Declined) -> Hello {
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

    /// Whether a hello answers what this side asks for now, and not for an earlier connection.
    #[must_use]
    pub fn is_answered_by(&self, hello: &Hello) -> bool {
        self.state == State::Asking && (hello.heard_qpn, hello.heard_epoch) == (self.local.qpn, self.local.epoch)
    }

    /// From now on the queue pair is set to one of the peer only when a datagram has come through, either way. A TCP
    /// connection does not show that the two ports are in one fabric.
    pub fn require_datagram(&mut self) {
        self.attempt.needs_datagram = true;
    }

    /// Asks another port of the peer for the same connection, `sent` datagrams and TCP packets having been sent to that
    /// before. Where the queue pair was set to one of the port before (it is reset then), `epoch` is a new one, so that
    /// what is late of that is known. The peer's process has as long to answer as before.
    pub fn ask_port(&mut self, peer: (u64, u8), paths: Paths, epoch: Option<u32>, sent: (u32, u32), now: Duration) {
        (self.peer_instance, self.peer_port) = peer;
        (self.ud_sent, self.tcp_sent) = sent;
        self.local.epoch = epoch.unwrap_or(self.local.epoch);
        (self.paths, self.peer, self.heard, self.heard_by) = (paths, None, 0, None);
        let (heard_at, needs_datagram) = (self.tries(), self.attempt.needs_datagram);
        // Two rounds are short, as they find the port; who computes for longer is asked ever more seldom.
        let pause = FIRST_PAUSE.saturating_mul((heard_at / 4).max(1)).min(LONGEST_PAUSE);
        (self.due, self.pause) = (now, pause);
        self.attempt = PortAttempt { needs_datagram, heard_at, ..PortAttempt::default() };
    }

    /// How often the port that is being asked was asked, by datagrams and by TCP.
    #[must_use]
    pub fn sent(&self) -> (u32, u32) {
        (self.ud_sent, self.tcp_sent)
    }

    /// Whether this port was asked before, in vain.
    pub(super) fn is_asked_again(&self) -> bool {
        self.attempt.heard_at > 0
    }

    fn tries(&self) -> u32 {
        self.ud_sent.max(self.tcp_sent)
    }

    /// Whether the port that is being asked has said nothing to the last `tries` times.
    #[must_use]
    pub fn is_silent_after(&self, tries: u32) -> bool {
        self.peer.is_none() && self.tries() >= self.attempt.heard_at.saturating_add(tries)
    }

    /// Whether the port that is being asked has not said a word.
    #[must_use]
    pub fn is_unheard(&self) -> bool {
        self.heard == 0
    }

    /// Whether no datagram comes through: that many were sent, and the peer, which does hear us over TCP, got none of
    /// them.
    #[must_use]
    pub fn is_unmet(&self) -> bool {
        self.peer.is_none() && self.attempt.answers >= UNMET
    }

    /// Whether this hello says nothing of the fabric: it came over TCP, as none of our datagrams has reached the peer
    /// yet (who was reached has set its queue pair to ours). Where a side has no datagrams, TCP has to do.
    pub(super) fn is_unproven(&self, me: &Identity, hello: &Hello, carrier: Carrier) -> bool {
        let have_datagrams = me.address.ud_qpn != 0 && hello.source.address.ud_qpn != 0;
        let is_proof = carrier == Carrier::Ud || hello.heard_qpn != 0;
        self.attempt.needs_datagram && self.peer.is_none() && have_datagrams && !is_proof
    }

    /// The peer speaks to us, but not by datagrams. It is asked again, by both, at even intervals.
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
