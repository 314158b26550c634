// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many processes: each sends to some neighbours, then all send to one. Shows time and memory, which grow with the
//! number of peers. Called by `main`. Grade: test. Threads: one. Tests: below.

use std::fmt;
use std::time::{Duration, Instant};

use ibex::messenger::matching::ANY_SOURCE;
use ibex::transport::adapter::simulated::Fabric;

use crate::memory::Memory;
use crate::process::{Process, Wanted};
use crate::program::{Mode, Program};

/// Number of peers to which each process sends.
pub const NEIGHBOURS: u32 = 32;

/// Most rounds of a phase.
const MOST_ROUNDS: u32 = 20_000;

/// Time that passes in a round. Reading the clock takes none, because thousands read it in a round.
const ROUND: Duration = Duration::from_millis(1);

/// A phase.
#[derive(Debug, Clone, Copy)]
pub struct Phase {
    /// Number of messages.
    pub messages: u64,
    /// Number of queue pairs that it made.
    pub queue_pairs: usize,
    /// Number of rounds in which everything went on.
    pub rounds: u32,
    /// Time that it took.
    pub took: Duration,
    /// Memory that the simulation has more than before, bytes; 0 if the system does not say.
    pub memory: u64,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Phase { messages, queue_pairs, rounds, took, memory } = self;
        let per_peer = memory / (*queue_pairs).max(1) as u64;
        let (seconds, mib) = (took.as_secs_f64(), memory >> 20);
        write!(
            f,
            "{messages} messages, {queue_pairs} queue pairs, {rounds} rounds, {seconds:.1} s, {mib} MiB: \
             {per_peer} bytes per peer, with the simulated queue pair"
        )
    }
}

struct World {
    fabric: Fabric,
    processes: Vec<Process>,
    /// Messages that are not received, and sends that have not ended.
    left: u64,
}

/// Runs both phases with so many processes.
///
/// # Panics
/// If a message does not arrive, or is wrong.
pub fn run(count: u32) -> [Phase; 2] {
    let program = Program { processes: count, slots: 64, unexpected_memory: 1 << 20, window: 8, ..Program::default() };
    let (memory, settings) = (Memory::default(), program.settings());
    let fabric = Fabric::new(Box::new(memory.clone()), Duration::ZERO);
    let processes = (0..count).map(|rank| Process::new(&fabric, &memory, rank, settings)).collect();
    let mut world = World { fabric, processes, left: 0 };
    [world.phase(World::send_to_neighbours), world.phase(World::send_to_one)]
}

impl World {
    fn phase(&mut self, begin: impl FnOnce(&mut Self) -> u64) -> Phase {
        let (started, memory, first) = (Instant::now(), resident(), self.fabric.queue_pairs());
        let messages = begin(self);
        let rounds = self.settle(first);
        Phase {
            messages,
            queue_pairs: self.fabric.queue_pairs() - first,
            rounds,
            took: started.elapsed(),
            memory: resident().saturating_sub(memory),
        }
    }

    fn send(&mut self, from: u32, to: u32, tag: i32) {
        let send = self.processes[from as usize].send(0, (to, 0, tag), Mode::Standard, (&from.to_le_bytes(), false));
        self.left += u64::from(send.is_some());
    }

    fn receive(&mut self, at: u32, source: i32, tag: i32) {
        let wanted = Wanted { context: 0, source, tag };
        self.processes[at as usize].receive(1, wanted, (4, false));
        self.left += 1;
    }

    fn send_to_neighbours(&mut self) -> u64 {
        let count = self.processes.len() as u32;
        let neighbours = NEIGHBOURS.min(count - 1);
        for at in 0..count {
            for step in 1..=neighbours {
                self.receive(at, ((at + count - step) % count) as i32, 1);
                self.send(at, (at + step) % count, 1);
            }
        }
        u64::from(count) * u64::from(neighbours)
    }

    fn send_to_one(&mut self) -> u64 {
        let count = self.processes.len() as u32;
        for from in 1..count {
            self.receive(0, ANY_SOURCE, 2);
            self.send(from, 0, 2);
        }
        u64::from(count) - 1
    }

    /// Lets everything go on until all requests have ended. Queue pairs before `first` seldom have anything to do.
    /// Returns the number of rounds.
    fn settle(&mut self, first: usize) -> u32 {
        for rounds in 0..MOST_ROUNDS {
            if self.left == 0 {
                return rounds;
            }
            let from = if rounds.is_multiple_of(16) { 0 } else { first };
            for queue_pair in from..self.fabric.queue_pairs() {
                while self.fabric.carry(queue_pair) {}
                while self.fabric.acknowledge(queue_pair) {}
            }
            for process in &mut self.processes {
                process.poll();
                for ended in process.take_ended() {
                    self.left -= 1;
                    if let Some(outcome) = ended.outcome {
                        let expected = (outcome.source as u32).to_le_bytes();
                        assert_eq!(ended.bytes[..4], expected, "the message of process {}", outcome.source);
                    }
                }
            }
            self.fabric.pass(ROUND);
        }
        panic!("{} requests do not end", self.left);
    }
}

/// Returns the memory of this program, bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifty_processes_send_to_their_neighbours_and_to_one() {
        let [neighbours, one] = run(50);
        assert_eq!((neighbours.messages, one.messages), (50 * 32, 49));
        // Two queue pairs per pair of processes.
        assert!(neighbours.queue_pairs >= 50 * 49, "{neighbours}");
    }
}
