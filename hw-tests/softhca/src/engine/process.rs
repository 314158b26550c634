// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processes of a fabric: who they are, whether they live, and what is done when one has died.
//!
//! Called by: fabric (join), lock (is the holder dead), service (a watched process ended), wire (no such process).
//! Grade: setup, and the slow side of locks. A *token* names a process for ever: slot index plus one in the low 16 bits,
//! the slot's generation above, so that a slot used again is not taken for the former process.

use super::{
    Errno, Result, alloc,
    fabric::Fabric,
    mr, qp,
    region::{MAX_PROCESSES, Region, Shared, slot_at},
    words::{W32, W64},
    xrc,
};

/// A place for a process.
#[repr(C, align(64))]
pub(crate) struct Slot {
    /// 0 while free.
    pub(crate) pid: W32,
    generation: W32,
    /// In clock ticks since boot, as the kernel tells it: with the pid it names a process for ever.
    started: W64,
    /// Highest entry of a memory region that this process used, plus one; 0 for none.
    pub(crate) mrs_used: W32,
}

// SAFETY: words only, repr(C), zero is a free slot.
unsafe impl Shared for Slot {}

/// The slot that a token names.
#[inline]
pub(crate) fn slot_index(token: u32) -> u32 {
    (token & 0xffff) - 1
}

fn token(index: u32, generation: u32) -> u32 {
    (index + 1) | (generation << 16)
}

/// When process `pid` began; `None` if there is none or it is a zombie.
fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything; after it come state (1st) and start time (20th).
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?;
    if state == "Z" || state == "X" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Takes a slot for this process; its token. Call while no other process joins.
pub(crate) fn enter(region: &Region) -> Result<u32> {
    let pid = std::process::id();
    let began = started(pid).ok_or(Errno(libc::ESRCH))?;
    for index in 0..MAX_PROCESSES {
        let slot: &Slot = region.at(slot_at(index));
        if slot.pid.get() == 0 {
            let generation = (slot.generation.get() + 1) & 0xffff;
            slot.generation.set(generation);
            slot.started.set(began);
            slot.mrs_used.set(0);
            slot.pid.publish(pid);
            return Ok(token(index, generation));
        }
    }
    Err(Errno(libc::ENOSPC))
}

/// The pid of the process that `token` names, if its slot was not given to another.
#[inline]
pub(crate) fn pid_of(region: &Region, token: u32) -> Option<u32> {
    let slot: &Slot = region.at(slot_at(slot_index(token)));
    let pid = slot.pid.get();
    (pid != 0 && slot.generation.get() == token >> 16).then_some(pid)
}

/// Whether the process has ended. Costs system calls.
pub(crate) fn is_dead(region: &Region, token: u32) -> bool {
    let slot: &Slot = region.at(slot_at(slot_index(token)));
    match pid_of(region, token) {
        None => true,
        Some(pid) => started(pid) != Some(slot.started.get()),
    }
}

/// Frees everything of a dead process. Harmless if it lives, or if another has done it.
pub(crate) fn bury(fabric: &Fabric, token: u32) {
    let region = fabric.region();
    if token == fabric.token() || pid_of(region, token).is_none() || !is_dead(region, token) {
        return;
    }
    let _burial = region.exclusively(|| {
        if pid_of(region, token).is_some() {
            qp::release_all_of(fabric, token);
            mr::release_all_of(fabric, token);
            xrc::release_all_of(fabric, token);
            alloc::release_all_of(fabric, token);
            region.at::<Slot>(slot_at(slot_index(token))).pid.publish(0);
        }
        Ok(())
    });
}

/// Buries whoever is dead: on joining, so that what a killed program left does not pile up.
pub(crate) fn bury_all(fabric: &Fabric) {
    for index in 0..MAX_PROCESSES {
        let slot: &Slot = fabric.region().at(slot_at(index));
        if slot.pid.get() == 0 && slot.generation.get() == 0 {
            break; // slots are taken from the lowest: this one and those above were never used
        }
        if slot.pid.get() != 0 {
            bury(fabric, token(index, slot.generation.get()));
        }
    }
}
