// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receiver first: what is known of places in a communicator, and the bounds that are no parameters.
//!
//! The state machines and their rules are `engine::protocol::place`'s. `placing` uses the sender's side, `offering` the
//! receiver's; a communicator has this from the first offer on (`communicator`). Grade: pending. Threads: who has
//! entered the PML. Plain data, but for [`Wasted`]. Tests: below.

use std::collections::HashMap;
use std::ptr::NonNull;

use engine::protocol::header::Memory;
use engine::protocol::place::{Accepted, Epochs, OfferId, OfferIds, Offered};

use super::link::Link;
use super::request::Request;

/// The longest place, bytes: what is saved is a round trip, which a longer message does not show, and a receive may
/// have much more room than its messages need.
pub(crate) const LONGEST: usize = 1 << 20;

/// Messages in a row that were counted and not written to a place, after which messages are not counted any more, as
/// those that are do not take the short paths.
pub(crate) const MOST_UNPLACED: u32 = 16;

/// Whether receivers say where to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offers {
    Never,
    /// While it is of use.
    WhileUseful,
    /// However seldom it is.
    Always,
}

/// The numbers of this process.
#[derive(Default)]
pub(crate) struct Numbers {
    pub(crate) ids: OfferIds,
    pub(crate) epochs: Epochs,
}

/// What was offered in a communicator.
#[derive(Default)]
pub(crate) struct Places {
    /// By the peers, by their ranks: there a message that goes asks.
    pub(crate) to: HashMap<i32, ToPeer>,
    /// To the peers, by how they are reached: so they answer.
    pub(crate) from: HashMap<Link, FromPeer>,
}

/// Where messages to a peer may be written.
#[derive(Default)]
pub(crate) struct ToPeer {
    pub(crate) accepted: Accepted<Memory>,
    /// Counted messages since the last that was written.
    pub(crate) unplaced: u32,
}

/// What this process has offered to a peer.
#[derive(Default)]
pub(crate) struct FromPeer {
    /// Its rank.
    pub(crate) source: i32,
    pub(crate) offered: Offered<NonNull<Request>>,
    pub(crate) wasted: Wasted,
    pub(crate) current: Option<Current>,
}

/// A receive that is offered, or was and still waits.
#[derive(Clone, Copy)]
pub(crate) struct Current {
    pub(crate) request: NonNull<Request>,
    pub(crate) id: OfferId,
    pub(crate) place: Memory,
    /// It may be offered once more, if this is refused.
    pub(crate) may_repeat: bool,
}

/// How long a receive waits before it is offered: the longer, the more offers were of no use.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wasted {
    in_a_row: u32,
    /// Pauses of receives that wait, until one is offered again.
    left: u32,
}

impl Wasted {
    /// The longest wait is of 2 to the power of this many pauses.
    const MOST: u32 = 10;

    /// A receive has waited for a pause: whether it is to be offered.
    pub(crate) fn is_due(&mut self) -> bool {
        if self.left == 0 {
            return true;
        }
        self.left -= 1;
        false
    }

    /// An offered receive has its message.
    pub(crate) fn note(&mut self, was_used: bool) {
        self.in_a_row = if was_used { 0 } else { (self.in_a_row + 1).min(Self::MOST) };
        self.left = if was_used { 0 } else { 1 << self.in_a_row };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_offers_in_vain_waits_twice_as_long_each_time_and_not_for_ever() {
        let mut wasted = Wasted::default();
        let mut pauses = |times: u32| {
            (0..times).map(|_| wasted.note(false)).for_each(drop);
            (0..5000).take_while(|_| !wasted.is_due()).count()
        };
        assert_eq!([pauses(0), pauses(1), pauses(1), pauses(50), pauses(1)], [0, 2, 4, 1024, 1024]);
        wasted.note(true);
        assert!(wasted.is_due() && wasted.is_due());
    }
}
