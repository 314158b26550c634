// SPDX-License-Identifier: MIT OR Apache-2.0
//! What flow control keeps for the PML, and the bounds that are no parameters.
//!
//! The state machines are `engine::protocol::flow_control`; `flow` and `resume` use this. In which communicators a link
//! stands ([`Holders`]) is noted when a rank is found (`peer`): that is what is marked where the peer holds back. A
//! communicator that is gone stays noted until its number is another one's, so there are at most as many entries for a peer
//! as communicators at a time; what is marked is compared with the link. Grade: pending. Threads: who has entered the PML.
//! Tests: below.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::counters::Counters;
use engine::protocol::flow_control::{Kept, Limits, Outgoing};

use super::lengths::Level;
use super::link::{Account, Link};
use super::request::Request;

/// What is left of the memory for unexpected messages, for tools: in any thread, whether there is a PML or not.
pub(crate) struct Room {
    bound: AtomicU64,
    kept: Level,
}

pub(crate) static ROOM: Room = Room { bound: AtomicU64::new(0), kept: Level::new() };

impl Room {
    /// A PML begins that keeps at most so many bytes.
    fn begin(&self, bound: u64) {
        self.bound.store(bound, Ordering::Relaxed);
        self.kept.forget();
    }

    fn left(&self, kept: u64) -> u64 {
        self.bound.load(Ordering::Relaxed).saturating_sub(kept)
    }

    pub(crate) fn now(&self) -> u64 {
        self.left(self.kept.show(0)[0])
    }

    /// The least since it began anew.
    pub(crate) fn least(&self) -> u64 {
        self.left(self.kept.show(0)[1])
    }

    /// The least since the PML began.
    pub(crate) fn least_ever(&self) -> u64 {
        self.left(self.kept.most_ever(0))
    }

    /// Has the least begin anew. Returns what it was.
    pub(crate) fn begin_anew(&self) -> u64 {
        self.left(self.kept.begin_anew(0))
    }
}

/// Both sides of this process, and where it is shown what they do: the counts of its first port.
pub(crate) struct Flow {
    pub(crate) kept: Kept<Account>,
    pub(crate) outgoing: Outgoing<Account, NonNull<Request>>,
    /// Which links are marked where a peer holds back.
    pub(crate) holders: Holders,
    pub(crate) shown: Arc<Counters>,
    /// A send has found the port's queue full since this process took all that had come.
    pub(crate) is_behind: bool,
}

/// Bytes of messages to one peer that may wait for the port: sixteen of the longest at once, or some thousands of short
/// ones.
const WAITING: u64 = 192 << 10;

/// Messages announced to a peer in a communicator without an answer: some 128 KiB there.
const WINDOW: u32 = 1024;

/// What a message takes beside its bytes, while it waits for the port or for its receive.
pub(crate) const RECORD: u64 = 128;

impl Flow {
    /// Of a process that keeps at most so many bytes, and shows it there.
    pub(crate) fn new(bound: u64, shown: Arc<Counters>) -> Self {
        ROOM.begin(bound);
        let limits = Limits { kept: bound, waiting: WAITING.min(bound), window: WINDOW };
        let (kept, outgoing) = (Kept::new(limits), Outgoing::new(limits));
        Flow { kept, outgoing, holders: Holders::default(), shown, is_behind: false }
    }

    /// A peer has gone, to which these links led.
    pub(crate) fn forget(&mut self, account: Account, links: &[Link]) {
        self.kept.forget(account);
        self.outgoing.forget(account);
        for link in links {
            self.holders.forget(*link);
        }
    }

    /// Shows it.
    pub(crate) fn show(&self) {
        self.shown.unexpected_memory.store(self.kept.bytes(), Ordering::Relaxed);
        ROOM.kept.set(self.kept.bytes());
    }
}

/// For each link, by the number of the communicator, the rank there.
#[derive(Default)]
pub(crate) struct Holders(HashMap<Link, HashMap<u32, i32>>);

impl Holders {
    /// A link stands in a communicator for a rank.
    pub(crate) fn note(&mut self, link: Link, context: u32, rank: i32) {
        self.0.entry(link).or_default().insert(context, rank);
    }

    /// Where a link stands: communicator and rank.
    pub(crate) fn of(&self, link: Link) -> impl Iterator<Item = (u32, i32)> {
        self.0.get(&link).into_iter().flatten().map(|(context, rank)| (*context, *rank))
    }

    /// A link leads nowhere any more.
    pub(crate) fn forget(&mut self, link: Link) {
        self.0.remove(&link);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::transport::EndpointId;

    #[test]
    fn the_least_that_was_left_is_nothing_where_more_was_kept_than_permitted_and_begins_anew_where_it_is_reset() {
        let room = Room { bound: AtomicU64::new(0), kept: Level::new() };
        assert_eq!((room.now(), room.least_ever()), (0, 0), "no PML");
        room.begin(1000);
        assert_eq!((room.now(), room.least(), room.least_ever()), (1000, 1000, 1000));
        for kept in [300, 1200, 100] {
            room.kept.set(kept);
        }
        assert_eq!((room.now(), room.least(), room.least_ever()), (900, 0, 0));
        assert_eq!(room.begin_anew(), 0);
        room.kept.set(400);
        room.kept.set(0);
        assert_eq!((room.now(), room.least(), room.least_ever()), (1000, 600, 0));
        room.begin(500);
        assert_eq!((room.now(), room.least(), room.least_ever()), (500, 500, 500), "another PML");
    }

    #[test]
    fn a_peer_of_a_thousand_is_looked_for_where_it_is_and_nowhere_else() {
        let mut holders = Holders::default();
        let link = |peer| Link::new(0, EndpointId::from_index(peer));
        for peer in 0..1000 {
            // Each is in 100 communicators, but for one that is in three.
            for context in 0..if peer == 7 { 3 } else { 100 } {
                holders.note(link(peer), context, (peer + context) as i32);
                holders.note(link(peer), context, peer as i32);
            }
        }
        let mut places: Vec<_> = holders.of(link(7)).collect();
        places.sort_unstable();
        assert_eq!(places, [(0, 7), (1, 7), (2, 7)]);
        assert_eq!(holders.of(link(8)).count(), 100);
        holders.forget(link(8));
        assert_eq!((holders.of(link(8)).count(), holders.0.len()), (0, 999));
    }
}
