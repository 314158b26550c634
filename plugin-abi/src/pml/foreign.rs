// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which processes of other jobs there are communicators with, and from which this one has parted.
//!
//! Kept in `instance`, used by `parting`. Grade: setup. Plain data. Tests: below.

use std::collections::HashMap;

use engine::peer::PeerName;

use super::link::Link;

/// The processes of other jobs that this one shares communicators with, or has lately.
#[derive(Default)]
pub(crate) struct Foreign {
    /// Whether there were any.
    pub(crate) is_met: bool,
    /// Of each communicator.
    members: HashMap<u32, Box<[PeerName]>>,
    /// Of how many communicators each is a member.
    counts: HashMap<PeerName, u32>,
    /// Those parted from whose connections may still be there.
    pub(crate) parted: HashMap<PeerName, Vec<Link>>,
}

impl Foreign {
    /// A communicator is there, with these members.
    pub(crate) fn join(&mut self, context: u32, members: Box<[PeerName]>) {
        for name in &members {
            *self.counts.entry(*name).or_default() += 1;
        }
        self.members.insert(context, members);
    }

    /// A communicator goes. Returns those whose last it was.
    pub(crate) fn leave(&mut self, context: u32) -> Vec<PeerName> {
        let members = self.members.remove(&context).unwrap_or_default();
        let is_last = |name: &PeerName| {
            let Some(count) = self.counts.get_mut(name) else { return false };
            *count -= 1;
            let is_last = *count == 0;
            if is_last {
                self.counts.remove(name);
            }
            is_last
        };
        members.into_iter().filter(is_last).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_parted_from_when_the_last_communicator_with_it_goes() {
        let mut foreign = Foreign::default();
        let name = |rank| PeerName { job: 9, rank };
        foreign.join(5, [name(0), name(1)].into());
        foreign.join(6, [name(1)].into());
        assert_eq!(foreign.leave(5), [name(0)]);
        assert_eq!((foreign.leave(7), foreign.leave(5)), (vec![], vec![]));
        assert_eq!(foreign.leave(6), [name(1)]);
        assert!(foreign.counts.is_empty() && foreign.members.is_empty());
    }
}
