// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arrival times of messages and their fragments, and of the answers that end sends, from transfer events, which the
//! adapter stamps if it can. Matching events have the host's clock, and name a message by the same number as its
//! transfer events. With another PML the message of a transfer is unknown. Called by `pass.rs`. Path: pending, once per
//! event. Threads: one. Tests: below.

use crate::read::half::{Continued, Received, Sent};
use crate::read::slots::Slots;
use crate::read::vocabulary::{Element, Seen, Transfer};
use crate::time::Time;

/// Context in the transfer events of another PML.
const UNKNOWN: u32 = u32::MAX;

#[derive(Clone, Copy, Default)]
struct Came {
    arrived: Option<Time>,
    ended: Option<Time>,
}

#[derive(Default)]
pub(crate) struct Transfers {
    /// Indexes in `came`, from 1, by the number of the message.
    places: Slots,
    came: Vec<Came>,
    pub(crate) fragments: Vec<Continued>,
    /// Whether any transfer carried a message of another PML.
    pub(crate) below_another: bool,
}

impl Transfers {
    /// Handles a transfer event of a thread. `is_by_adapter`: the adapter stamped it.
    pub(crate) fn see(
        &mut self,
        kind: Transfer,
        seen: &Seen<'_>,
        time: Option<Time>,
        (thread, is_by_adapter): (u32, bool),
    ) {
        let (message, is_received) = (seen.value(Element::Message), seen.value(Element::Direction) != 0);
        match kind {
            _ if seen.unsigned(Element::Context) == UNKNOWN => self.below_another = true,
            Transfer::Arrived => self.came(message).arrived = time,
            Transfer::End if is_received || is_by_adapter => self.came(message).ended = time,
            Transfer::End => {}
            Transfer::Continue => {
                let request = seen.value(Element::Request);
                let part = Some((seen.value(Element::Offset), seen.value(Element::Bytes)));
                let of = |time| Continued { request, is_received, thread, time, is_by_adapter, part };
                self.fragments.extend(time.map(of));
            }
        }
    }

    fn came(&mut self, message: u64) -> &mut Came {
        let place = self.places.of(message);
        if *place == 0 {
            self.came.push(Came::default());
            *place = self.came.len() as u32;
        }
        &mut self.came[*place as usize - 1]
    }

    /// Corrects the arrival times of messages, the times of last bytes that came after the match, and the ends of sends
    /// that a completion reported. A begin is at most its end.
    pub(crate) fn time(mut self, sends: &mut [Sent], received: &mut [Received]) {
        for Sent { side, .. } in sends {
            let Some(place) = self.places.of(side.request).checked_sub(1) else { continue };
            side.ended = self.came[place as usize].ended.or(side.ended);
            side.begun = side.begun.min(side.ended.or(side.begun));
        }
        for Received { side, .. } in received {
            let Some(place) = self.places.of(side.message).checked_sub(1) else { continue };
            let Came { arrived, ended } = self.came[place as usize];
            side.arrived = arrived.or(side.arrived);
            let is_later = |ended: &Time| side.matched.max(side.begun).is_none_or(|before| *ended >= before);
            side.ended = ended.filter(is_later).or(side.ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ReceiveSide;
    use crate::read::half::Envelope;

    fn received(message: u64, times: [i64; 4]) -> Received {
        let [arrived, matched, begun, ended] = times.map(|time| (time > 0).then(|| Time::new(time)));
        let side = ReceiveSide { message, arrived, matched, begun, ended, ..ReceiveSide::default() };
        Received { envelope: Envelope::UNKNOWN, side, protocol: None, reason: None }
    }

    #[test]
    fn the_adapters_timestamp_replaces_the_hosts_time() {
        let mut all = [
            received(2, [50, 51, 52, 90]),
            received(4, [60, 61, 62, 63]),
            received(6, [70, 0, 0, 0]),
            received(8, [80, 81, 82, 83]),
        ];
        let mut transfers = Transfers::default();
        // All bytes of the second came at once.
        for (message, arrived, ended) in [(2, 40, 88), (4, 45, 45), (6, 46, 0), (10, 1, 0)] {
            let ended = (ended > 0).then(|| Time::new(ended));
            *transfers.came(message) = Came { arrived: Some(Time::new(arrived)), ended };
        }
        transfers.time(&mut [], &mut all);
        let times = all.map(|known| [known.side.arrived, known.side.ended].map(|time| time.map(Time::nanoseconds)));
        assert_eq!(times, [[Some(40), Some(88)], [Some(45), Some(63)], [Some(46), None], [Some(80), Some(83)]]);
    }
}
