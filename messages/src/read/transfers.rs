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
    arrived: Option<Stamp>,
    begun: Option<Stamp>,
    ended: Option<Stamp>,
}

/// A time, and whether the adapter stamped it.
type Stamp = (Time, bool);

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
        let stamp = time.map(|time| (time, is_by_adapter));
        let (message, is_received) = (seen.value(Element::Message), seen.value(Element::Direction) != 0);
        match kind {
            _ if seen.unsigned(Element::Context) == UNKNOWN => self.below_another = true,
            Transfer::Arrived => self.came(message).arrived = stamp,
            // The host's time is in the matching event, too.
            Transfer::Begin if is_by_adapter => self.came(message).begun = stamp,
            Transfer::End if is_received || is_by_adapter => self.came(message).ended = stamp,
            Transfer::Begin | Transfer::End => {}
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

    /// Corrects the arrival times of messages, the times of first and last bytes that came after the match, and the
    /// begins and ends of sends that a completion reported. A begin is at most its end.
    pub(crate) fn time(mut self, sends: &mut [Sent], received: &mut [Received]) {
        for Sent { side, .. } in sends {
            let Some(place) = self.places.of(side.request).checked_sub(1) else { continue };
            let Came { begun, ended, .. } = self.came[place as usize];
            set((&mut side.begun, &mut side.by_adapter.begun), begun);
            set((&mut side.ended, &mut side.by_adapter.ended), ended);
            if side.ended.is_some() && side.begun > side.ended {
                (side.begun, side.by_adapter.begun) = (side.ended, side.by_adapter.ended);
            }
        }
        for Received { side, .. } in received {
            let Some(place) = self.places.of(side.message).checked_sub(1) else { continue };
            let Came { arrived, begun, ended } = self.came[place as usize];
            set((&mut side.arrived, &mut side.by_adapter.arrived), arrived);
            // The bytes that come with a message are in place only after the match, by the host's clock.
            let later = |stamp: Option<Stamp>, before| stamp.filter(|(time, _)| Some(*time) >= before);
            set((&mut side.begun, &mut side.by_adapter.begun), later(begun, side.matched));
            set((&mut side.ended, &mut side.by_adapter.ended), later(ended, side.matched.max(side.begun)));
        }
    }
}

/// Replaces a time and its clock, if there is a stamp.
fn set((time, is_by_adapter): (&mut Option<Time>, &mut bool), stamp: Option<Stamp>) {
    if let Some((stamped, by_adapter)) = stamp {
        (*time, *is_by_adapter) = (Some(stamped), by_adapter);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ByAdapter, ReceiveSide};
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
        // The second message came in one piece. The host, not the adapter, stamped the arrival of the third.
        for (message, times) in [(2, [40, 51, 88]), (4, [45; 3]), (6, [46, 0, 0]), (10, [1, 0, 0])] {
            let stamp = |time| (time > 0).then(|| (Time::new(time), message != 6));
            let [arrived, begun, ended] = times.map(stamp);
            *transfers.came(message) = Came { arrived, begun, ended };
        }
        transfers.time(&mut [], &mut all);
        let times = all.map(|Received { side, .. }| [side.arrived, side.begun, side.ended]);
        let times = times.map(|times| times.map(|time| time.map_or(0, Time::nanoseconds)));
        assert_eq!(times, [[40, 51, 88], [45, 62, 63], [46, 0, 0], [80, 82, 83]]);
        let [whole, copied, by_host, _] = all.map(|received| received.side.by_adapter);
        assert_eq!(whole, ByAdapter { arrived: true, begun: true, ended: true });
        assert_eq!((copied, by_host), (ByAdapter { arrived: true, ..by_host }, ByAdapter::default()));
    }
}
