// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two processes with two ports that part, lose their connections meanwhile, and meet again.

use std::time::Duration;

use ibex::transport::adapter::simulated::Fabric;

use super::*;
use crate::memory::Memory;
use crate::process::{Process, Wanted};

/// Polls within which a port asks for asynchronous events, and posts a probe that is due.
const NOTICED: usize = 40;

/// Time after which a process asks whether a peer lives from which it has parted.
const ASKED: Duration = Duration::from_secs(2);

/// Rounds in which a peer is connected, and its messages arrive.
const ROUNDS: usize = 20;

const RAILS: usize = 2;

struct Pair {
    fabric: Fabric,
    processes: [Process; 2],
}

impl Pair {
    fn new() -> Self {
        let (memory, settings) = (Memory::default(), Program { rails: RAILS, ..Program::default() }.settings());
        let fabric = Fabric::new(Box::new(memory.clone()), Duration::from_millis(5));
        let processes = [0, 1].map(|rank| Process::new(&fabric, &memory, rank, settings));
        Pair { fabric, processes }
    }

    /// Lets everything move. Returns the number of messages that each process has received meanwhile.
    fn settle(&mut self) -> [usize; 2] {
        for _ in 0..ROUNDS {
            for queue_pair in 0..self.fabric.queue_pairs() {
                while self.fabric.carry(queue_pair) || self.fabric.acknowledge(queue_pair) {}
            }
            self.processes.iter_mut().for_each(|process| _ = process.poll());
            self.fabric.pass(Duration::from_millis(50));
        }
        self.processes.each_mut().map(|of| of.take_ended().iter().filter(|ended| ended.outcome.is_some()).count())
    }

    fn notice(&mut self, at: usize) {
        (0..NOTICED).for_each(|_| _ = self.processes[at].poll());
    }

    /// Sends a short message to the other process, and posts its receive. Returns whether it arrives.
    fn send(&mut self, from: usize) -> bool {
        let to = 1 - from;
        self.processes[to].receive(1, Wanted::new(0, Some(from as u32), Some(0)), (8, false));
        self.processes[from].send(0, (to as u32, 0, 0), Mode::Standard, (&[7; 8], false));
        self.settle()[to] == 1
    }

    fn part(&mut self) {
        for at in [0, 1] {
            self.processes[at].part(1 - at as u32);
        }
    }

    fn meet(&mut self) {
        for at in [0, 1] {
            self.processes[at].meet(1 - at as u32);
        }
    }

    /// Lets the connections of a process fail while it probes the other one.
    fn disconnect(&mut self, at: usize) {
        self.fabric.pass(ASKED);
        self.notice(at);
        for queue_pair in 0..self.fabric.queue_pairs() {
            self.fabric.fail(queue_pair, false);
            while self.fabric.acknowledge(queue_pair) {}
        }
        self.notice(at);
        self.notice(at);
    }

    /// Makes the first home of both lose its link at one.
    fn lose_link(&mut self, at: usize) {
        self.fabric.set_link(at * RAILS + 1, false);
        self.notice(at);
    }
}

/// Runs a test with all values of three choices.
fn with_all_choices(test: impl Fn([bool; 3])) {
    (0..8).for_each(|bits| test([1, 2, 4].map(|bit| bits & bit != 0)));
}

#[test]
fn messages_by_several_ports_keep_their_order_after_processes_have_parted_and_met_again() {
    with_all_choices(|[both_speak, both_notice, first_leaves_another]| {
        for from in [0, 1] {
            let mut pair = Pair::new();
            assert!(pair.send(from) && (!both_speak || pair.send(1 - from)));
            pair.part();
            pair.disconnect(0);
            if both_notice {
                pair.disconnect(1);
            }
            if first_leaves_another {
                pair.processes[0].part(7);
            }
            pair.meet();
            // The one connects that knows that there is no connection.
            let mut arrive = [pair.send(0), pair.send(from), false];
            pair.lose_link(from);
            arrive[2] = pair.send(from);
            let choices = [both_speak, both_notice, first_leaves_another];
            assert_eq!(arrive, [true; 3], "{choices:?}, from process {from}");
        }
    });
}

#[test]
fn a_message_takes_another_port_if_the_link_of_the_first_was_lost_before_the_processes_met_again() {
    let mut pair = Pair::new();
    assert!(pair.send(0));
    pair.part();
    pair.lose_link(0);
    pair.meet();
    assert!(pair.send(0));
}
