// SPDX-License-Identifier: MIT OR Apache-2.0
//! Carries out the rules with a time, of the configuration and of commands, when they are due: ports go down and up,
//! events are raised, objects fail, and a port's LID, GIDs or partition keys change. Each process carries out a rule
//! for its own programs and queue pairs; one that joins later first carries out all past rules. A rule fails the
//! objects that exist then. Called by: service, from its thread or from a poll that found nothing. Grade: pending.
//! Thread rule: any thread that holds no shared lock, one at a time (the timeline's lock). Times are nanoseconds.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use crate::engine::codes::qp_state::RTR;
use crate::engine::codes::{event, port_state};
use crate::engine::fabric::sysfs;
use crate::engine::faults::command;
use crate::engine::faults::rule::Timeline;
use crate::engine::qp::table;
use crate::engine::{
    ABOUT_DEVICE, ABOUT_PORT, AhAttr, Change, CqShared, Fabric, FaultAction, FaultRule, Gid, Record, RecvQueue, clock,
};

/// Carries out timed rules and commands that are due; returns the time of the next one.
#[cold]
pub(crate) fn on_time(fabric: &Fabric) -> Option<u64> {
    let header = fabric.header();
    let mut timeline = fabric.timeline.lock().unwrap_or_else(PoisonError::into_inner);
    let commands = header.commands.seen();
    for index in timeline.commands.len() as u32..commands {
        timeline.commands.push(command::read(fabric, index));
    }
    let Timeline { down_at_first, down, given, reached, commands: read } = &mut *timeline;
    // Read after the commands, so that each of them is due.
    let now = clock::now();
    let rules: Vec<Timed<'_>> = timed(fabric.rules().iter().chain(&*read), header.began_ns.get());
    let moments = || rules.iter().flat_map(|rule| [(rule.begins, rule, false), (rule.ends, rule, true)]);
    let mut due: Vec<(u64, &Timed<'_>, bool)> =
        moments().filter(|&(at, rule, is_end)| at <= now && !given.contains(&(rule.index, is_end))).collect();
    due.sort_by_key(|(at, rule, _)| (*at, rule.index));
    // A process that was held up still reports every change since it last looked, in order.
    let mut told: Vec<(usize, Record)> = Vec::new();
    let mut changed: BTreeSet<(usize, u8)> = BTreeSet::new();
    for (at, Timed { index, device, port, action, .. }, is_end) in due {
        given.insert((*index, is_end));
        *reached = at.max(*reached);
        if let Some(applied) = header.fault_applied.get(*index).filter(|_| *index < fabric.rules().len()) {
            applied.set(1);
        }
        match **action {
            FaultAction::LinkDown(_) | FaultAction::LinkUp => {
                let then = down_at(&rules, down_at_first, *reached);
                for &(device, port) in then.symmetric_difference(down) {
                    let event = if then.contains(&(device, port)) { event::PORT_ERR } else { event::PORT_ACTIVE };
                    told.push((device, port_record(event, port)));
                    changed.insert((device, port));
                }
                *down = then;
            }
            FaultAction::Event(kind @ (event::QP_FATAL | event::CQ_ERR | event::SRQ_ERR), _) => {
                fail_objects(fabric, *device, kind);
            }
            FaultAction::Event(kind, change) => {
                if let Some(change) = change {
                    change_port(fabric, *device, *port, change);
                }
                told.push((*device, port_record(kind, *port)));
            }
            _ => {}
        }
    }
    // Before the events, so that a program that gets one finds the port's new state.
    for (device, port) in changed {
        let state = if down.contains(&(device, port)) { port_state::DOWN } else { port_state::ACTIVE };
        set_port(fabric, device, port, state);
    }
    for (device, record) in told {
        fabric.raise(device, record);
    }
    fabric.slot_of(fabric.token()).commands_done.publish(commands);
    moments().map(|(at, ..)| at).filter(|at| *at > now).min()
}

/// A rule with a time, on the host's clock.
struct Timed<'a> {
    index: usize,
    begins: u64,
    /// `clock::NEVER` if it has no end.
    ends: u64,
    device: usize,
    port: u8,
    action: &'a FaultAction,
}

fn timed<'a>(rules: impl Iterator<Item = &'a FaultRule>, began: u64) -> Vec<Timed<'a>> {
    let of_rule = |(index, rule): (usize, &'a FaultRule)| {
        if !rule.action.has_time() {
            return None;
        }
        let begins = began.saturating_add(rule.at_ns);
        let ends = match rule.action {
            FaultAction::LinkDown(for_ns) if for_ns > 0 => begins.saturating_add(for_ns),
            _ => clock::NEVER,
        };
        let (device, port) = (rule.device.unwrap_or(0), rule.port.unwrap_or(1));
        Some(Timed { index, begins, ends, device, port, action: &rule.action })
    };
    rules.enumerate().filter_map(of_rule).collect()
}

fn down_at(rules: &[Timed<'_>], down_at_first: &BTreeSet<(usize, u8)>, time: u64) -> BTreeSet<(usize, u8)> {
    let mut begun: Vec<&Timed<'_>> = rules.iter().filter(|rule| rule.begins <= time).collect();
    begun.sort_by_key(|rule| (rule.begins, rule.index));
    let mut down = down_at_first.clone();
    for rule in begun {
        match rule.action {
            FaultAction::LinkDown(_) if rule.ends > time => drop(down.insert((rule.device, rule.port))),
            FaultAction::LinkUp => drop(down.remove(&(rule.device, rule.port))),
            _ => {}
        }
    }
    down
}

fn set_port(fabric: &Fabric, device: usize, port: u8, state: u32) {
    let states = fabric.header().port_state.get(device);
    if let Some(word) = states.and_then(|ports| ports.get(usize::from(port).wrapping_sub(1))) {
        word.publish(state);
    }
}

fn port_record(kind: u32, port: u8) -> Record {
    let (about, id) = if kind == event::DEVICE_FATAL { (ABOUT_DEVICE, 0) } else { (ABOUT_PORT, u32::from(port)) };
    Record { about, id, event: kind, cookie: 0 }
}

/// Raises `event` about every object of its kind that a queue pair of `device` uses, and stops those queue pairs.
fn fail_objects(fabric: &Fabric, device: usize, event: u32) {
    let own = || table::all(fabric).filter(|qp| qp.owner.get() == fabric.token() && qp.device.get() == device as u32);
    match event {
        event::QP_FATAL => {
            for qp in own() {
                qp.raise(fabric, event);
                table::flush_sends(fabric, qp.index());
            }
        }
        event::CQ_ERR => {
            let queues: BTreeSet<u64> = own().flat_map(|qp| [qp.send_cq.get(), qp.recv_cq.get()]).collect();
            for queue in queues.into_iter().filter(|queue| *queue != 0) {
                fabric.region().at::<CqShared>(queue).fail(fabric);
            }
        }
        _ => {
            let queues: BTreeSet<u64> = own().map(|qp| qp.srq.get()).filter(|queue| *queue != 0).collect();
            for queue in queues {
                fabric.region().at::<RecvQueue>(queue).raise(fabric, event);
            }
            for qp in own().filter(|qp| qp.srq.get() != 0) {
                table::flush_sends(fabric, qp.index());
            }
        }
    }
}

/// Changes a port, and the queue pairs of this process that depend on the change.
fn change_port(fabric: &Fabric, device: usize, port: u8, change: Change) {
    let mut spec = fabric.port(device, u32::from(port)).clone();
    match change {
        Change::Lid(lid) => spec.lid = lid,
        Change::SmLid(lid) => spec.sm_lid = lid,
        Change::Gid(index, gid) => {
            let index = usize::from(index);
            if spec.gids.len() <= index {
                spec.gids.resize(index + 1, Gid::default());
            }
            spec.gids[index] = gid;
        }
        Change::Pkey(index, key) => {
            if let Some(row) = spec.pkeys.get_mut(usize::from(index)) {
                *row = key;
            }
        }
    }
    if let Err(error) = sysfs::change_port(fabric.folder(), &fabric.devices()[device], port, &spec) {
        eprintln!("softhca: cannot write the changed tables of port {port} below the fabric's folder: {error}");
    }
    fabric.ports.put(device, usize::from(port) - 1, spec);
    follow(fabric, device as u32, u32::from(port), change);
}

/// Applies a change to the queue pairs of this process: they use a peer's LID, a partition, and a row of GIDs.
fn follow(fabric: &Fabric, device: u32, port: u32, change: Change) {
    let own = table::all(fabric).filter(|qp| qp.owner.get() == fabric.token() && qp.state.get() >= RTR);
    for qp in own {
        let _sends = qp.lock_sends(fabric);
        let is_here = (qp.device.get(), qp.port.get()) == (device, port);
        let spec = fabric.port(qp.device.get() as usize, qp.port.get());
        match change {
            Change::Lid(_) if qp.dlid.get() != 0 => {
                let dlid = AhAttr { dlid: qp.dlid.get() as u16, ..AhAttr::default() };
                let to = fabric.route(qp.device.get() as usize, qp.port.get() as u8, &dlid);
                qp.to_device.set(to.map_or(0, |to| to.0));
                qp.to_port.set(to.map_or(0, |to| to.1));
                qp.routed_port.set(qp.to_port.get());
            }
            Change::Gid(..) if is_here && qp.sgid.get() != 0 && qp.behaviour(fabric).gid_vanish_kills_rc => {
                let row = spec.gids.get(qp.sgid.get() as usize - 1);
                let is_gone = row.is_none_or(Gid::is_empty);
                qp.to_port.set(if is_gone { 0 } else { qp.routed_port.get() });
            }
            Change::Pkey(..) if is_here => qp.set_partition(qp.pkey_index(), &spec.pkeys),
            _ => {}
        }
    }
}
