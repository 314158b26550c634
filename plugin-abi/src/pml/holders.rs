// SPDX-License-Identifier: MIT OR Apache-2.0
//! In which communicators a peer's link stands, and as which rank: what is to be marked where the peer holds back.
//!
//! Noted when a rank is found ([`super::peer`]), used by `resume`. A communicator that is gone stays noted until its
//! number is another one's, so there are at most as many entries for a peer as communicators at a time; what is marked
//! is compared with the link. Grade: setup, pending. Threads: who has entered the PML. Tests: below.

use std::collections::HashMap;

use super::link::Link;

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
