// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connection to a peer: its state, its send queue, its handshake. Made by the first message to or from the peer
//! (`port/connect.rs`), kept by [`super::Connections`]. A test below limits it to 1 KiB, without the adapter's buffers.
//! Grade: setup, but for the send queue.

use super::retransmission::Retransmission;
use crate::connect::handshake::Handshake;
use crate::select::key::Key;
use crate::transport::adapter::QueuePair;
use crate::transport::tx::send_queue::SendQueue;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The handshake is in progress; requests wait.
    Connecting,
    /// Both sides are set.
    Ready,
    /// Both sides are set, and new messages use another port (`port/divert.rs`).
    Diverted,
    /// Requests are refused.
    Failed,
}

#[derive(Debug)]
pub(crate) struct Connection<Q> {
    pub(crate) queue: SendQueue<Q>,
    phase: Phase,
    /// Number of requests that had been posted at the last probe.
    probed_at: u32,
    /// The key that seals hellos to the asked port of the peer.
    pub(crate) key: Key,
    /// Reads and atomics that may be in flight, as agreed with the peer.
    pub(crate) initiator_depth: u8,
    pub(crate) retransmission: Retransmission,
    /// Kept while connected, for a peer that missed the last hello.
    pub(crate) handshake: Box<Handshake>,
}

impl<Q: QueuePair> Connection<Q> {
    pub(crate) fn new(queue: SendQueue<Q>, key: Key, handshake: Handshake) -> Self {
        Connection {
            queue,
            phase: Phase::Connecting,
            probed_at: 0,
            key,
            initiator_depth: 0,
            retransmission: Retransmission::default(),
            handshake: Box::new(handshake),
        }
    }

    /// Hot.
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        self.queue.qp().number()
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Changes the phase. New requests are posted only in `Ready`.
    pub(crate) fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.queue.set_open(phase == Phase::Ready);
    }

    pub(crate) fn is_made(&self) -> bool {
        matches!(self.phase, Phase::Ready | Phase::Diverted)
    }

    pub(crate) fn divert(&mut self, is_diverted: bool) {
        if self.is_made() {
            self.enter(if is_diverted { Phase::Diverted } else { Phase::Ready });
        }
    }

    /// Whether only a probe can show that the peer is gone: no request was posted since the last probe, and no
    /// completion is due.
    pub(crate) fn is_idle(&self) -> bool {
        let queue = &self.queue;
        let asks_for_a_completion = queue.in_flight() > 0 && queue.unsignalled() == 0;
        let waits = queue.waiting() > 0;
        self.phase == Phase::Ready && !waits && queue.posted() == self.probed_at && !asks_for_a_completion
    }

    pub(crate) fn was_probed(&mut self) {
        self.probed_at = self.queue.posted();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_takes_at_most_a_kibibyte() {
        let bytes = size_of::<Connection<ibex_ffi::verbs::QueuePair>>() + size_of::<Handshake>();
        assert!(bytes <= 1024, "{bytes}");
    }
}
