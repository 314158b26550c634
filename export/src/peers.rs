// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rank of a process in a communicator, by which the formats' message events name the other side. Called by the
//! formats. Path: each message. Threads: any. Memory: an entry for each member of each communicator. Tests: below.

use std::collections::HashMap;

use ibex_messages::{Communicator, Job, Message};

pub(crate) struct Peers(Vec<Sides>);

/// Ranks in the local and in the remote group, by index in the job.
struct Sides {
    local: HashMap<u32, u32>,
    remote: HashMap<u32, u32>,
}

impl Peers {
    pub(crate) fn of(job: &Job) -> Peers {
        let ranks = |members: &[u32]| members.iter().copied().zip(0..).collect();
        let sides = |communicator: &Communicator| Sides {
            local: ranks(&communicator.members),
            remote: ranks(&communicator.remote),
        };
        Peers(job.communicators.iter().map(sides).collect())
    }

    /// Returns the rank by which the sender names the receiver; its index in the job if the communicator lacks it.
    pub(crate) fn receiver(&self, message: &Message) -> u32 {
        self.rank(message, message.receiver, message.sender)
    }

    /// Returns the rank by which the receiver names the sender.
    pub(crate) fn sender(&self, message: &Message) -> u32 {
        self.rank(message, message.sender, message.receiver)
    }

    fn rank(&self, message: &Message, named: u32, by: u32) -> u32 {
        let found = self.0.get(message.communicator as usize).and_then(|Sides { local, remote }| {
            let ranks = if !remote.is_empty() && local.contains_key(&by) { remote } else { local };
            ranks.get(&named)
        });
        found.copied().unwrap_or(named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_of_an_intercommunicator_names_the_other_by_its_ranks() {
        let mut job = Job::synthetic(4, 1, 0);
        let both = Communicator { members: vec![3, 1], remote: vec![0, 2], ..Communicator::default() };
        job.communicators.push(both);
        let peers = Peers::of(&job);
        let mut message = job.messages[0].clone();
        (message.sender, message.receiver, message.communicator) = (1, 2, 1);
        assert_eq!((peers.sender(&message), peers.receiver(&message)), (1, 1));
        (message.sender, message.receiver) = (0, 3);
        assert_eq!((peers.sender(&message), peers.receiver(&message)), (0, 0));
        message.communicator = 0;
        assert_eq!((peers.sender(&message), peers.receiver(&message)), (0, 3));
    }
}
