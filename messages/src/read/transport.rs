// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of a process in which ibex is a transport below another PML. A transport sees transfers, but neither
//! requests nor matches: it knows the begin, the end and the arrival of a message, and the PML's sequence number. Path:
//! pending, once per event. Threads: one. Tests: tests/.

use std::collections::HashMap;

use crate::model::{Protocol, Reason, ReceiveSide, SendSide};
use crate::read::half::{Envelope, Received, Route, Sent};
use crate::read::slots::Slots;
use crate::read::vocabulary::{Seen, Transfer, transfer};
use crate::time::Time;

/// Messages so far.
#[derive(Default)]
pub(crate) struct Transport {
    /// Places of messages: once more than twice the place among `sends`, or twice that among `received`.
    messages: Slots,
    sends: Vec<Sent>,
    received: Vec<Received>,
    /// Sends of which it is known how they go, and not yet their numbers: context, receiver and sequence.
    chosen: HashMap<(u32, u32, u16), Transfer>,
}

impl Transport {
    /// Sees an event.
    pub(crate) fn see(&mut self, kind: Transfer, seen: &Seen<'_>, time: Option<Time>, thread: u32) {
        let sequence = seen.value(transfer::SEQUENCE) as u16;
        if matches!(kind, Transfer::Eager | Transfer::Rendezvous) {
            // The transfer's begin follows; if it does not come, nothing is known of when.
            self.chosen.insert((seen.unsigned(transfer::CONTEXT), seen.unsigned(transfer::PEER), sequence), kind);
            return;
        }
        let is_received = kind == Transfer::Arrived || seen.value(transfer::DIRECTION) != 0;
        let message = seen.value(transfer::MESSAGE);
        if *self.messages.of(message) == 0 {
            let envelope = Envelope {
                context: seen.unsigned(transfer::CONTEXT),
                peer: seen.signed(transfer::PEER),
                tag: seen.signed(transfer::TAG),
                source: seen.signed(transfer::SOURCE),
                sequence: Some(sequence),
                bytes: seen.value(transfer::TOTAL),
            };
            *self.messages.of(message) = self.add(envelope, message, thread, is_received);
        }
        let (request, at) = (seen.value(transfer::REQUEST), *self.messages.of(message));
        if at.is_multiple_of(2) {
            let received = &mut self.received[at as usize / 2 - 1];
            received.side.request = received.side.request.max(request);
            match kind {
                Transfer::Arrived => received.side.arrived = time,
                Transfer::Begin => {
                    received.side.begun = time;
                    // Of what is read, no bytes are there when it begins.
                    if seen.value(transfer::BYTES) == 0 && received.envelope.bytes > 0 {
                        received.protocol = Some(Protocol::Read);
                    }
                }
                _ => received.side.ended = time,
            }
        } else {
            let sent = &mut self.sends[at as usize / 2];
            sent.side.request = sent.side.request.max(request);
            match kind {
                Transfer::Begin => sent.side.begun = time,
                _ => sent.side.ended = time,
            }
        }
    }

    /// A further message; its place.
    fn add(&mut self, envelope: Envelope, message: u64, thread: u32, is_received: bool) -> u32 {
        if is_received {
            let side = ReceiveSide { message, thread, ..ReceiveSide::default() };
            self.received.push(Received { envelope, side, protocol: None, reason: None });
            self.received.len() as u32 * 2
        } else {
            let route = self.route(&envelope);
            let side = SendSide { thread, ..SendSide::default() };
            self.sends.push(Sent { envelope, side, route });
            self.sends.len() as u32 * 2 - 1
        }
    }

    fn route(&mut self, envelope: &Envelope) -> Route {
        let key = (envelope.context, envelope.peer.cast_unsigned(), envelope.sequence.unwrap_or(0));
        match self.chosen.remove(&key) {
            // Whether its bytes go inline or copied the transport does not say, nor how those of a rendezvous go.
            Some(Transfer::Eager | Transfer::Rendezvous) => {
                Route { reason: Some(Reason::Size), rails: 1, ..Route::default() }
            }
            _ => Route::default(),
        }
    }

    /// What was sent and received.
    pub(crate) fn halves(self) -> (Vec<Sent>, Vec<Received>) {
        (self.sends, self.received)
    }
}
