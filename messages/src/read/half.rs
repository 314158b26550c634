// SPDX-License-Identifier: MIT OR Apache-2.0
//! One half of a message, as one process knows it, before it is joined with the other.
//!
//! Made by `matching.rs` and `transport.rs`, joined by `join.rs`. Path: pending. Threads: plain data.

use std::collections::HashMap;

use crate::model::{Protocol, Reason, ReceiveSide, SendSide};
use crate::time::Time;

/// The fields of a message that both processes know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) context: u32,
    /// The rank of the other process: in the communicator; of a transport's message in the job.
    pub(crate) peer: i32,
    pub(crate) tag: i32,
    /// Of a transport's message, the sender's rank in the communicator.
    pub(crate) source: i32,
    /// Of a transport's message: its number from this sender to this receiver, modulo 65536.
    pub(crate) sequence: Option<u16>,
    pub(crate) bytes: u64,
}

/// Protocol and port of a message, as one side knows them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) protocol: Option<Protocol>,
    pub(crate) reason: Option<Reason>,
    /// Index among the process's ports.
    pub(crate) port: Option<u32>,
    pub(crate) queue_pair: u32,
    pub(crate) rails: u32,
}

/// A sender's half.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) envelope: Envelope,
    pub(crate) side: SendSide,
    pub(crate) route: Route,
}

/// A receiver's half.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received {
    pub(crate) envelope: Envelope,
    pub(crate) side: ReceiveSide,
    pub(crate) protocol: Option<Protocol>,
    pub(crate) reason: Option<Reason>,
}

/// Times of messages that the matching and the transport have told of, by the transport, which tells them by the
/// adapter's clock where it can: when a message has arrived, and when its last bytes had come, if they came after it was
/// matched.
pub(crate) fn time_by_transport(received: &mut [Received], transported: &[Received]) {
    let by_message: HashMap<u64, &ReceiveSide> =
        transported.iter().map(|known| (known.side.message, &known.side)).collect();
    for Received { side, .. } in received {
        let Some(known) = by_message.get(&side.message) else { continue };
        side.arrived = known.arrived.or(side.arrived);
        let is_later = |ended: &Time| side.matched.max(side.begun).is_none_or(|before| *ended >= before);
        side.ended = known.ended.filter(is_later).or(side.ended);
    }
}

/// Takes any source or any tag, as Open MPI numbers them.
pub(crate) const ANY: i32 = -1;

impl Envelope {
    /// Of which nothing is known yet.
    pub(crate) const UNKNOWN: Envelope =
        Envelope { context: u32::MAX, peer: ANY, tag: ANY, source: ANY, sequence: None, bytes: 0 };

    /// Whether anything is known.
    pub(crate) fn is_known(&self) -> bool {
        self.context != u32::MAX
    }

    /// Whether a receive with this envelope takes a message with that.
    pub(crate) fn takes(&self, message: &Envelope) -> bool {
        let is_tag = self.tag == message.tag || (self.tag == ANY && message.tag >= 0);
        self.context == message.context && (self.peer == ANY || self.peer == message.peer) && is_tag
    }
}

impl Sent {
    /// A moment not later than the bytes' leaving, and another for the order of sends.
    pub(crate) fn first(&self) -> Option<crate::Time> {
        let side = &self.side;
        side.activated.or(side.begun).or(side.ended).or(side.completed).or(side.notified)
    }
}

impl Received {
    /// The first moment that is known of the message itself.
    pub(crate) fn first(&self) -> Option<crate::Time> {
        let side = &self.side;
        side.arrived.or(side.unexpected).or(side.matched).or(side.begun).or(side.ended).or(side.completed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(message: u64, times: [Option<i64>; 4]) -> Received {
        let [arrived, matched, begun, ended] = times.map(|time| time.map(Time::new));
        let side = ReceiveSide { message, arrived, matched, begun, ended, ..ReceiveSide::default() };
        Received { envelope: Envelope::UNKNOWN, side, protocol: None, reason: None }
    }

    #[test]
    fn what_the_adapter_has_stamped_replaces_when_the_process_saw_it() {
        let mut all = [
            received(2, [Some(50), Some(51), Some(52), Some(90)]),
            received(4, [Some(60), Some(61), Some(62), Some(63)]),
            received(6, [Some(70), None, None, None]),
            received(8, [Some(80), Some(81), Some(82), Some(83)]),
        ];
        let transported = [
            received(2, [Some(40), None, Some(52), Some(88)]),
            // It came whole: all of it when it arrived.
            received(4, [Some(45), None, Some(45), Some(45)]),
            received(6, [Some(46), None, None, None]),
            received(10, [Some(1), None, None, None]),
        ];
        time_by_transport(&mut all, &transported);
        let times = all.map(|known| [known.side.arrived, known.side.ended].map(|time| time.map(Time::nanoseconds)));
        assert_eq!(times, [[Some(40), Some(88)], [Some(45), Some(63)], [Some(46), None], [Some(80), Some(83)]]);
    }
}
