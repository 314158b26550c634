// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks what sender and receiver are told of the path of each message, against what the lengths, the gaps and the
//! ports of the program permit. The processes of one program in [`ONE_IN`] listen for paths. Grade: test. Threads: one.
//! Tests: `tests/paths.rs`.

use std::collections::BTreeMap;

use ibex::messenger::header::{EAGER_SIZE, Header, MAX_SIZE, Match};
use ibex::messenger::path_taken::Protocol::{self, Copied, Fragments, Inline, Read};
use ibex::messenger::path_taken::{PathTaken, Reason};
use ibex::messenger::rails::routes::SHORTEST;

use super::World;
use crate::model::Sent;
use crate::process::ReportedPath;
use crate::program::{Operation, Program};

/// Of so many programs, the processes of one listen: the others send and receive as without tools.
const ONE_IN: u64 = 4;

type How = (Protocol, Reason);

const READ: How = (Read, Reason::Size);

impl Program {
    /// Whether its processes listen for paths.
    fn has_paths(&self) -> bool {
        self.schedule % ONE_IN == 1
    }

    /// Whether each port stays connected and up once it is, and registers all memory.
    fn is_steady(&self) -> bool {
        use Operation::{Die, Fail, Link, Part, Refuse};
        let disturbs =
            |one: &Operation| matches!(one, Die { .. } | Fail { .. } | Link { .. } | Part { .. } | Refuse { .. });
        self.hello_faults == 0 && !self.operations.iter().any(disturbs)
    }
}

fn how(told: &ReportedPath) -> How {
    (told.path.protocol, told.path.reason)
}

impl World {
    /// Lets the processes of some programs listen for paths.
    pub(super) fn listen_for_paths(&mut self) {
        for process in self.processes.iter_mut().flatten() {
            process.paths = self.program.has_paths().then(Vec::new);
        }
    }

    /// Checks all paths that were told. `takers`: the wish that took each message.
    pub(super) fn check_paths(&mut self, takers: &[Option<usize>]) {
        let mut all: BTreeMap<(usize, usize), Vec<ReportedPath>> = BTreeMap::new();
        for (at, process) in self.processes.iter_mut().enumerate() {
            for (number, told) in process.iter_mut().filter_map(|process| process.paths.take()).flatten() {
                all.entry((at, number)).or_default().push(told);
            }
        }
        for (message, sent) in self.model.sent.iter().enumerate().filter(|_| self.program.has_paths()) {
            if self.model.may_lose(sent.from, sent.to) {
                continue;
            }
            let of = |key| all.get(&key).map_or(&[][..], Vec::as_slice);
            let sender = of((sent.from, 2 * message));
            let receiver = takers[message].map(|wish| of((sent.to, 2 * wish + 1)));
            let told = || format!("of message {message}, {sent:?}: {sender:?}, {receiver:?}");
            assert!(!sender.is_empty() && receiver.is_none_or(|told| !told.is_empty()), "no path {}", told());
            assert!(sender.iter().all(|told| self.is_by_right_port(sent, told, sent.to)), "wrong port {}", told());
            assert!(self.begins_right(sent, &sender[0]), "wrong path {}", told());
            let Some(receiver) = receiver else { continue };
            assert!(receiver.iter().all(|told| self.is_by_right_port(sent, told, sent.from)), "wrong port {}", told());
            assert!(self.agree(sent, sender, receiver), "two paths {}", told());
            let by_all = |told: &ReportedPath| how(told) == READ && told.length.min(told.room) >= SHORTEST;
            if self.program.is_steady() && receiver.iter().any(by_all) {
                let connected = self.processes[sent.to].as_ref().map(|process| process.connected(sent.from as u32));
                assert_eq!(connected, Some(self.program.rails), "all ports connect for later messages");
            }
        }
    }

    /// Returns the path of a message that no port carries.
    fn without_port(&self, sent: &Sent) -> Option<PathTaken> {
        let host = self.program.per_host as usize;
        let is_near = host > 1 && sent.from / host == sent.to / host;
        if sent.from == sent.to { Some(PathTaken::LOOPBACK) } else { is_near.then_some(PathTaken::SHARED_MEMORY) }
    }

    /// Whether port, queue pair and length are those of a message to or from this process.
    fn is_by_right_port(&self, sent: &Sent, told: &ReportedPath, other: usize) -> bool {
        // A port that is not connected yet has no queue pair.
        let is_peers = told.path.queue_pair == 0 || told.peer == Some(other as u32);
        let is_right = (told.path.port as usize) < self.program.rails && is_peers;
        told.length == sent.length && self.without_port(sent).map_or(is_right, |path| told.path == path)
    }

    /// Returns how a message is sent whole.
    fn whole(&self, sent: &Sent, has_gaps: bool) -> How {
        let (context, rank, tag) = (self.communicators.numbers[sent.comm], sent.from as i32, sent.tag);
        let synchronous = Header::Synchronous(Match::new(context, rank, tag), 0).encode();
        let header = if sent.is_synchronous { synchronous.as_slice().len() } else { EAGER_SIZE };
        match header + sent.length > self.program.settings().sizes.inline as usize {
            true => (Copied, Reason::Size),
            false if has_gaps => (Copied, Reason::Gaps),
            false => (Inline, Reason::Size),
        }
    }

    /// Whether the sender may begin by this path, and by as many ports.
    fn begins_right(&self, sent: &Sent, first: &ReportedPath) -> bool {
        let (how, rails, is_steady) = (how(first), first.path.rails as usize, self.program.is_steady());
        let most = if sent.length < SHORTEST { 1 } else { self.program.rails };
        let held_back = (if sent.length == 0 { Inline } else { Fragments }, Reason::HeldBack);
        let is_permitted = match how {
            _ if sent.length <= self.program.settings().eager - MAX_SIZE => {
                how == held_back || how == self.whole(sent, first.has_gaps)
            }
            _ if first.has_gaps => how == (Fragments, Reason::Gaps),
            READ => return rails == most || !is_steady && (1..most).contains(&rails),
            _ => how == (Fragments, Reason::NotRegistered) && !is_steady,
        };
        self.without_port(sent).is_some() || is_permitted && rails == 1
    }

    /// Whether the receiver is told what follows from its receive and from what the sender is told, and the sender what
    /// the receiver asked for.
    fn agree(&self, sent: &Sent, sender: &[ReportedPath], receiver: &[ReportedPath]) -> bool {
        if self.without_port(sent).is_some() {
            return (sender.len(), receiver.len()) == (1, 1);
        }
        let (first, last, ReportedPath { room, has_gaps, path, .. }) =
            (&sender[0], how(&sender[sender.len() - 1]), receiver[0]);
        let is_steady = self.program.is_steady();
        let is_by_same_port = path.queue_pair > 0 && (path.rails > 1 || path.port == first.path.port);
        let (is_permitted, expected) = match (last, room) {
            // Only the sender knows of its gaps.
            (last, _) if last == self.whole(sent, first.has_gaps) => (true, vec![self.whole(sent, false)]),
            _ if how(first) != READ => (true, vec![last]),
            (READ, 0) => (true, vec![READ]),
            (READ, _) => (!has_gaps, vec![READ]),
            ((Fragments, Reason::Gaps), _) => (has_gaps, vec![last]),
            ((Fragments, Reason::NotRegistered), _) => (!has_gaps && !is_steady, vec![last]),
            ((Fragments, Reason::Adapter), _) => (!has_gaps && !is_steady, vec![READ, last]),
            _ => (false, vec![]),
        };
        let are_steady = !is_steady || is_by_same_port;
        is_permitted
            && are_steady
            && sender.len() <= if how(first) == READ { 2 } else { 1 }
            && receiver.iter().map(how).eq(expected)
            && receiver.iter().all(|told| self.is_by_right_rails(told, first.path.rails))
    }

    /// Whether a receiver reads by as many ports as it can, and otherwise uses one. `rails`: those of the sender.
    fn is_by_right_rails(&self, told: &ReportedPath, rails: u32) -> bool {
        let (by, connected) = (told.path.rails, told.connected as u32);
        if how(told) != READ || told.length.min(told.room) < SHORTEST {
            return by == 1;
        }
        // The port that announced the message may not be connected yet.
        (1..=rails).contains(&by) && (!self.program.is_steady() || (connected..=connected + 1).contains(&by))
    }
}
