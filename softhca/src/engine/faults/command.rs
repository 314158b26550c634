// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands: timed rules that a user gives while the fabric is in use, each due at once. Owns their log in shared
//! memory, which only grows, so a process that joins later carries out all of them. Called by: `softhca ctl` (gives
//! one), timeline (reads them). Grade: setup; a fabric without commands pays nothing, because the service thread sleeps
//! until its doorbell (a pipe) is rung. Thread rule: any thread that holds no shared lock; the tables' lock guards the
//! log. Times are nanoseconds. Tests: below, and tests/commands.rs.

use std::time::{Duration, Instant};

use crate::engine::memory::layout::{MAX_COMMANDS, command_at};
use crate::engine::qp::table;
use crate::engine::{BELL, Fabric, FaultAction, FaultRule, clock};

/// A command as it lies in the log (rule M2: written once, under the tables' lock).
#[repr(C, align(64))]
struct Entry {
    at_ns: u64,
    device: usize,
    port: u8,
    action: FaultAction,
}

const _: () = assert!(size_of::<Entry>() == 64);

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The log is full.
    #[error("this fabric has been given {MAX_COMMANDS} commands, and takes no more")]
    Full,
    /// These processes of the fabric are alive, and have not carried it out.
    #[error("not carried out within {} s by process {}: stopped?", within.as_secs(), list(pids))]
    Unanswered {
        /// Which.
        pids: Vec<u32>,
        /// Time for which the caller has waited.
        within: Duration,
    },
}

fn list(pids: &[u32]) -> String {
    pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

impl Fabric {
    /// Makes all processes of the fabric, this one included, carry out a timed rule now, and waits until they have.
    /// Processes that join later carry it out, too.
    /// Errors: as [`CommandError`] says.
    pub fn command(&self, rule: &FaultRule, within: Duration) -> Result<(), CommandError> {
        let number = append(self, rule)?;
        let until = Instant::now() + within;
        let mut pause = Duration::from_millis(1);
        loop {
            let pids: Vec<u32> = self.all_tokens().filter_map(|token| self.lags(token, number)).collect();
            if pids.is_empty() {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(CommandError::Unanswered { pids, within });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    /// Returns how often each configured rule applied, and how often the engine consulted it (a past timed rule: 1, 1).
    pub fn faults_applied(&self) -> impl Iterator<Item = (&FaultRule, u32, u32)> {
        let header = self.header();
        let counts = header.fault_applied.iter().zip(&header.fault_counts);
        self.rules().iter().zip(counts).map(|(rule, (applied, asked))| {
            (rule, applied.get(), if rule.action.has_time() { applied.get() } else { asked.get() })
        })
    }

    /// Returns the process of `token`, and rings its doorbell, if it lives and has not carried out `number` commands.
    fn lags(&self, token: u32, number: u32) -> Option<u32> {
        let pid = self.pid_of(token)?;
        let slot = self.slot_of(token);
        if slot.commands_done.seen() >= number || self.is_dead(token) {
            return None;
        }
        self.pipes.send(slot.doorbell.seen(), BELL);
        Some(pid)
    }
}

fn place(fabric: &Fabric, index: u32) -> *mut Entry {
    fabric.region().bytes(command_at(index)).cast()
}

fn append(fabric: &Fabric, rule: &FaultRule) -> Result<u32, CommandError> {
    let header = fabric.header();
    let _held = table::lock(fabric);
    let number = header.commands.get();
    if number >= MAX_COMMANDS {
        return Err(CommandError::Full);
    }
    let at_ns = clock::now().saturating_sub(header.began_ns.get());
    let entry = Entry { at_ns, device: rule.device.unwrap_or(0), port: rule.port.unwrap_or(1), action: rule.action };
    // SAFETY: behind all commands that others read, and ours by the tables' lock (rule M2).
    unsafe { place(fabric, number).write(entry) };
    header.commands.publish(number + 1);
    Ok(number + 1)
}

pub(super) fn read(fabric: &Fabric, index: u32) -> FaultRule {
    // SAFETY: written before `commands` was published, and never changed (rule M2).
    let Entry { at_ns, device, port, action } = unsafe { place(fabric, index).read() };
    FaultRule { at_ns, device: Some(device), port: Some(port), ..FaultRule::always(action) }
}
