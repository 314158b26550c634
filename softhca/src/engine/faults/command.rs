// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands: timed rules that a user gives while the fabric is in use, each due at once. Owns their log in shared
//! memory, which only grows, so a process that joins later carries out all of them. Grade: setup; a fabric without
//! commands pays nothing, because the service thread sleeps until its doorbell (a pipe) is rung. Thread rule: any
//! thread that holds no shared lock; the tables' lock guards the log. Times are nanoseconds.

use std::time::{Duration, Instant};

use crate::engine::fabric::pipes::{ABOUT_COMMAND, Record};
use crate::engine::faults::rule::{FaultAction, FaultRule};
use crate::engine::memory::layout::{MAX_COMMANDS, command_at};
use crate::engine::memory::{Shared, W64};
use crate::engine::qp::table;
use crate::engine::{Change, Errno, Fabric, Gid, Result, clock};

/// A rule in shared memory: its action, place and numbers; its times; a GID.
#[repr(C, align(64))]
struct Entry([W64; 5]);

// SAFETY: words only, repr(C), zero is an entry (that nobody reads).
unsafe impl Shared for Entry {}

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
    /// # Errors
    /// As [`CommandError`] says.
    pub fn command(&self, rule: &FaultRule, within: Duration) -> std::result::Result<(), CommandError> {
        let number = append(self, rule).map_err(|_| CommandError::Full)?;
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

    /// Returns how often each rule of the configuration applied, and how often it was asked (a past timed rule: 1, 1).
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
        self.pipes.send(slot.doorbell.seen(), Record { about: ABOUT_COMMAND, id: 0, event: 0, cookie: 0 });
        Some(pid)
    }
}

fn append(fabric: &Fabric, rule: &FaultRule) -> Result<u32> {
    let header = fabric.header();
    let _held = table::lock(fabric);
    let number = header.commands.get();
    if number >= MAX_COMMANDS {
        return Err(Errno(libc::ENOSPC));
    }
    let now = clock::now().saturating_sub(header.began_ns.get());
    let entry: &Entry = fabric.region().at(command_at(number));
    for (word, value) in entry.0.iter().zip(encode(rule, now)) {
        word.set(value);
    }
    header.commands.publish(number + 1);
    Ok(number + 1)
}

pub(super) fn read(fabric: &Fabric, index: u32) -> FaultRule {
    let entry: &Entry = fabric.region().at(command_at(index));
    decode(std::array::from_fn(|i| entry.0[i].get()))
}

/// Tags of actions, and of changes above them.
const DOWN: u64 = 0;
const UP: u64 = 1;
const EVENT: u64 = 2;
const LID: u64 = 3;
const SM_LID: u64 = 4;
const GID: u64 = 5;
const PKEY: u64 = 6;

/// The first word, from its low byte on: tag, device, port, index of a row, kind of a GID; the upper 16 bits: the LID
/// or key. The second is the event, or how long the port is down.
fn encode(rule: &FaultRule, at_ns: u64) -> [u64; 5] {
    let place = (rule.device.unwrap_or(0) as u64) << 8 | u64::from(rule.port.unwrap_or(1)) << 16;
    let (what, second, gid) = match rule.action {
        FaultAction::LinkUp => (UP, 0, [0; 16]),
        FaultAction::LinkDown(for_ns) => (DOWN, for_ns, [0; 16]),
        FaultAction::Event(kind, Some(change)) => {
            let number = |tag, index: u64, number: u16| (tag | index << 24 | u64::from(number) << 48, [0; 16]);
            let (what, gid) = match change {
                Change::Lid(lid) => number(LID, 0, lid),
                Change::SmLid(lid) => number(SM_LID, 0, lid),
                Change::Pkey(index, key) => number(PKEY, u64::from(index), key),
                Change::Gid(index, gid) => (GID | u64::from(index) << 24 | u64::from(gid.kind) << 32, gid.raw),
            };
            (what, u64::from(kind), gid)
        }
        FaultAction::Event(kind, None) => (EVENT, u64::from(kind), [0; 16]),
        _ => unreachable!("a command is a timed rule"),
    };
    let half = |from: usize| u64::from_ne_bytes(std::array::from_fn(|i| gid[from + i]));
    [what | place, second, at_ns, half(0), half(8)]
}

fn decode([first, second, at_ns, low, high]: [u64; 5]) -> FaultRule {
    let (index, number, kind) = ((first >> 24) as u8, (first >> 48) as u16, second as u32);
    let mut raw = [0; 16];
    raw[..8].copy_from_slice(&low.to_ne_bytes());
    raw[8..].copy_from_slice(&high.to_ne_bytes());
    let change = |change| FaultAction::Event(kind, Some(change));
    let action = match first & 0xff {
        DOWN => FaultAction::LinkDown(second),
        UP => FaultAction::LinkUp,
        LID => change(Change::Lid(number)),
        SM_LID => change(Change::SmLid(number)),
        GID => change(Change::Gid(index, Gid { raw, kind: (first >> 32) as u8 })),
        PKEY => change(Change::Pkey(u16::from(index), number)),
        _ => FaultAction::Event(kind, None),
    };
    let (device, port) = (Some(usize::from((first >> 8) as u8)), Some((first >> 16) as u8));
    FaultRule { at_ns, device, port, ..FaultRule::always(action) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::codes::event;

    #[test]
    fn every_timed_rule_is_read_as_it_was_written() {
        let gid = Gid { raw: std::array::from_fn(|i| i as u8 + 200), kind: 2 };
        let changes = [
            (event::LID_CHANGE, Change::Lid(0xbfff)),
            (event::SM_CHANGE, Change::SmLid(7)),
            (event::GID_CHANGE, Change::Gid(255, gid)),
            (event::PKEY_CHANGE, Change::Pkey(127, 0x8001)),
        ];
        let mut actions =
            vec![FaultAction::LinkDown(u64::MAX), FaultAction::LinkUp, FaultAction::Event(event::DEVICE_FATAL, None)];
        actions.extend(changes.map(|(kind, change)| FaultAction::Event(kind, Some(change))));
        for action in actions {
            let rule = FaultRule { at_ns: 5, device: Some(3), port: Some(2), ..FaultRule::always(action) };
            assert_eq!(decode(encode(&rule, 5)), rule);
        }
    }
}
