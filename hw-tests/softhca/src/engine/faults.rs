// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scripted faults: the rules as the configuration gives them, and the one place where the engine asks them.
//!
//! Called by: wire (per packet), qp (per post), mr (per registration), the service thread (timed rules). Grade: a
//! fabric without rules pays one predicted branch. Times are nanoseconds.

use std::sync::PoisonError;

use super::{
    Errno, Result,
    channel::{ABOUT_DEVICE, ABOUT_PORT, Record},
    clock,
    codes::{event, port_state},
    fabric::Fabric,
    link,
    qp::QpShared,
    strike,
    tables::{self, Change},
    wire::To,
};

/// What happens when a rule applies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultAction {
    /// The packet is lost.
    Drop,
    /// It arrives later by so many nanoseconds.
    Delay(u64),
    /// It arrives twice.
    Duplicate,
    /// The receiver answers "not ready".
    Rnr,
    /// The work request completes with this status (`codes::wc_status`).
    Status(u32),
    /// `post_send` returns this errno.
    PostSend(i32),
    /// Registering memory returns this errno.
    RegMr(i32),
    /// The completion queue overruns.
    CqOverrun,
    /// At the time given since the fabric began, the port goes down; up again after the second time (0: never).
    LinkDown {
        /// When, in nanoseconds since the fabric began.
        at_ns: u64,
        /// For how long.
        for_ns: u64,
    },
    /// An async event of this kind (`codes::event`) at that time: of the adapter, a port, or every object of a kind,
    /// which fails then.
    Async {
        /// `codes::event`.
        kind: u32,
        /// When, in nanoseconds since the fabric began.
        at_ns: u64,
    },
    /// The port changes at that time, and then raises this event.
    Change {
        /// `codes::event`.
        kind: u32,
        /// When, in nanoseconds since the fabric began.
        at_ns: u64,
        /// What is different from then on.
        change: Change,
    },
}

/// One rule: to what it applies, how often, and what it does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultRule {
    /// What happens.
    pub action: FaultAction,
    /// Only on this adapter (its index).
    pub device: Option<usize>,
    /// Only on this port.
    pub port: Option<u8>,
    /// Only what queue pairs of this type send (`codes::qp_type`).
    pub qp_type: Option<u32>,
    /// Only packets from this LID.
    pub from_lid: Option<u16>,
    /// Only packets to this LID.
    pub to_lid: Option<u16>,
    /// The n-th that fits (from 1), and the `count - 1` after it.
    pub nth: Option<u64>,
    /// How many from the n-th on; 0 for all.
    pub count: u64,
    /// Instead of `nth`: this fraction of all, 0 to 1.
    pub fraction: Option<f64>,
    /// Seed of the fraction.
    pub seed: u64,
}

/// What becomes of a packet.
pub(crate) enum Verdict {
    /// It arrives, and is seen at this time (0: at once).
    Pass(u64),
    /// It arrives twice, both seen at this time.
    Twice(u64),
    /// It does not arrive.
    Lost,
    /// The receiver is made to look not ready.
    NotReady,
    /// The request ends with this status.
    Status(u32),
}

/// Where something happens, as far as rules ask.
#[derive(Clone, Copy)]
struct Scene {
    device: u32,
    port: Option<u32>,
    qp_type: Option<u32>,
    from_lid: Option<u16>,
    to_lid: Option<u16>,
}

impl FaultRule {
    /// Every time, on every adapter.
    #[must_use]
    pub const fn always(action: FaultAction) -> Self {
        Self {
            action,
            device: None,
            port: None,
            qp_type: None,
            from_lid: None,
            to_lid: None,
            nth: None,
            count: 0,
            fraction: None,
            seed: 1,
        }
    }

    fn fits(&self, scene: &Scene) -> bool {
        let port_fits = self.port.is_none_or(|port| scene.port.is_none_or(|at| at == u32::from(port)));
        self.device.is_none_or(|device| device == scene.device as usize)
            && port_fits
            && (self.qp_type.is_none() || self.qp_type == scene.qp_type)
            && (self.from_lid.is_none() || self.from_lid == scene.from_lid)
            && (self.to_lid.is_none() || self.to_lid == scene.to_lid)
    }

    /// Whether the `n`-th (from 1) that fits is meant.
    fn takes(&self, n: u64) -> bool {
        if let Some(first) = self.nth {
            return n >= first && (self.count == 0 || n - first < self.count);
        }
        if let Some(fraction) = self.fraction {
            return (scatter(self.seed ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) as f64) < fraction * 2_f64.powi(64);
        }
        self.count == 0 || n <= self.count
    }
}

/// Spreads a counter over all 64-bit numbers (the finalizer of splitmix64), so that the same seed gives the same run.
fn scatter(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The actions of the rules that apply here, each rule counting what fits it, in the whole fabric.
fn actions(fabric: &Fabric, scene: Scene, concerns: fn(&FaultAction) -> bool) -> impl Iterator<Item = FaultAction> {
    let counts = &fabric.region().header().fault_counts;
    fabric.rules().iter().zip(counts).filter_map(move |(rule, count)| {
        let applies = concerns(&rule.action) && rule.fits(&scene) && rule.takes(u64::from(count.add(1)) + 1);
        applies.then_some(rule.action)
    })
}

/// Registering memory.
/// # Errors
/// As a rule says.
#[cold]
pub(crate) fn on_register(fabric: &Fabric, device: usize) -> Result<()> {
    let scene = Scene { device: device as u32, port: None, qp_type: None, from_lid: None, to_lid: None };
    match actions(fabric, scene, |action| matches!(action, FaultAction::RegMr(_))).next() {
        Some(FaultAction::RegMr(errno)) => Err(Errno(errno)),
        _ => Ok(()),
    }
}

/// Posting a send.
/// # Errors
/// As a rule says.
#[cold]
pub(crate) fn on_post(fabric: &Fabric, qp: &QpShared) -> Result<()> {
    let (device, port, qp_type) = (qp.device.get(), Some(qp.port.get()), Some(qp.kind.get()));
    let scene = Scene { device, port, qp_type, from_lid: None, to_lid: None };
    match actions(fabric, scene, |action| matches!(action, FaultAction::PostSend(_))).next() {
        Some(FaultAction::PostSend(errno)) => Err(Errno(errno)),
        _ => Ok(()),
    }
}

fn lid(fabric: &Fabric, device: u32, port: u32) -> Option<u16> {
    let count = fabric.devices().get(device as usize)?.ports.len();
    (1..=count).contains(&(port as usize)).then(|| fabric.port(device as usize, port).lid)
}

fn judge(fabric: &Fabric, qp: &QpShared, to: (u32, u32), len: u32, peer: Option<&QpShared>) -> Verdict {
    let (device, port) = (qp.device.get(), qp.port.get());
    let (from_lid, to_lid) = (lid(fabric, device, port), lid(fabric, to.0, to.1));
    let scene = Scene { device, port: Some(port), qp_type: Some(qp.kind.get()), from_lid, to_lid };
    let mut ready_ns = link::model(fabric, device, port, len);
    let mut twice = false;
    let is_of_packets = |action: &FaultAction| {
        use FaultAction::{CqOverrun, Delay, Drop, Duplicate, Rnr, Status};
        matches!(action, Drop | Delay(_) | Duplicate | Rnr | Status(_) | CqOverrun)
    };
    for action in actions(fabric, scene, is_of_packets) {
        match action {
            FaultAction::Drop => return Verdict::Lost,
            FaultAction::Rnr => return Verdict::NotReady,
            FaultAction::Status(status) => return Verdict::Status(status),
            FaultAction::Delay(ns) => ready_ns = ready_ns.max(clock::now()).saturating_add(ns),
            FaultAction::Duplicate => twice = true,
            FaultAction::CqOverrun => {
                if let Some(peer) = peer {
                    peer.recv_cq(fabric).fail(fabric);
                }
            }
            _ => {}
        }
    }
    if twice { Verdict::Twice(ready_ns) } else { Verdict::Pass(ready_ns) }
}

/// A packet between connected queue pairs.
#[cold]
pub(crate) fn on_packet(fabric: &Fabric, qp: &QpShared, peer: &QpShared, len: u32) -> Verdict {
    judge(fabric, qp, (peer.device.get(), peer.port.get()), len, Some(peer))
}

/// A datagram.
#[cold]
pub(crate) fn on_datagram(fabric: &Fabric, qp: &QpShared, to: &To, len: u32) -> Verdict {
    judge(fabric, qp, (to.device, to.port), len, None)
}

/// What timed rules have done, as far as this process has told its programs.
#[derive(Default)]
pub(crate) struct Timeline {
    /// Ports (adapter, port) that a rule holds down.
    down: Vec<(usize, u8)>,
    /// Events given (the rule's index).
    given: Vec<usize>,
}

/// Does what timed rules say of now; when they next say something.
#[cold]
pub(crate) fn on_time(fabric: &Fabric) -> Option<u64> {
    let header = fabric.region().header();
    let (now, began) = (clock::now(), header.began_ns.get());
    let mut next = None;
    let mut wait_for = |when: u64| {
        if when > now {
            next = Some(next.map_or(when, |other: u64| other.min(when)));
        }
    };
    let mut timeline = fabric.timeline.lock().unwrap_or_else(PoisonError::into_inner);
    let mut down = Vec::new();
    for (index, rule) in fabric.rules().iter().enumerate() {
        let device = rule.device.unwrap_or(0);
        let port = rule.port.unwrap_or(1);
        match rule.action {
            FaultAction::LinkDown { at_ns, for_ns } => {
                let from = began.saturating_add(at_ns);
                let until = if for_ns == 0 { clock::NEVER } else { from.saturating_add(for_ns) };
                wait_for(from);
                if until != clock::NEVER {
                    wait_for(until);
                }
                if (from..until).contains(&now) {
                    down.push((device, port));
                }
            }
            FaultAction::Async { kind, at_ns } => {
                let at = began.saturating_add(at_ns);
                wait_for(at);
                if at <= now && !timeline.given.contains(&index) {
                    timeline.given.push(index);
                    if strike::is_about_objects(kind) {
                        strike::strike(fabric, device, kind);
                    } else {
                        fabric.raise(device, port_record(kind, port));
                    }
                }
            }
            FaultAction::Change { kind, at_ns, change } => {
                let at = began.saturating_add(at_ns);
                wait_for(at);
                if at <= now && !timeline.given.contains(&index) {
                    timeline.given.push(index);
                    tables::change(fabric, device, port, change);
                    fabric.raise(device, port_record(kind, port));
                }
            }
            _ => {}
        }
    }
    for &(device, port) in down.iter().filter(|port| !timeline.down.contains(port)) {
        set_port(fabric, device, port, port_state::DOWN, event::PORT_ERR);
    }
    for &(device, port) in timeline.down.iter().filter(|port| !down.contains(port)) {
        set_port(fabric, device, port, port_state::ACTIVE, event::PORT_ACTIVE);
    }
    timeline.down = down;
    next
}

fn set_port(fabric: &Fabric, device: usize, port: u8, state: u32, event: u32) {
    let states = fabric.region().header().port_state.get(device);
    if let Some(word) = states.and_then(|ports| ports.get(usize::from(port).wrapping_sub(1))) {
        word.publish(state);
        fabric.raise(device, port_record(event, port));
    }
}

fn port_record(event: u32, port: u8) -> Record {
    let (about, id) =
        if event == super::codes::event::DEVICE_FATAL { (ABOUT_DEVICE, 0) } else { (ABOUT_PORT, u32::from(port)) };
    Record { about, id, event, cookie: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: FaultRule = FaultRule { seed: 7, ..FaultRule::always(FaultAction::Drop) };

    #[test]
    fn a_rule_of_a_type_of_queue_pair_fits_what_that_type_sends() {
        use super::super::codes::qp_type::{RC, UD};
        let scene = |qp_type| Scene { device: 0, port: Some(1), qp_type, from_lid: None, to_lid: None };
        let rule = FaultRule { qp_type: Some(UD), ..RULE };
        assert_eq!([Some(UD), Some(RC), None].map(|of| rule.fits(&scene(of))), [true, false, false]);
        assert!(RULE.fits(&scene(Some(RC))));
    }

    #[test]
    fn the_nth_and_those_after_it_are_taken() {
        let rule = FaultRule { nth: Some(3), count: 2, ..RULE };
        let taken: Vec<u64> = (1..10).filter(|n| rule.takes(*n)).collect();
        assert_eq!(taken, [3, 4]);
    }

    #[test]
    fn a_fraction_is_met_and_the_same_seed_takes_the_same() {
        let rule = FaultRule { fraction: Some(0.25), ..RULE };
        let taken = |rule: FaultRule| (1..10_000).filter(|n| rule.takes(*n)).collect::<Vec<u64>>();
        assert!((2300..2700).contains(&taken(rule).len()), "{}", taken(rule).len());
        assert_eq!(taken(rule), taken(rule));
        assert_ne!(taken(rule), taken(FaultRule { seed: 8, ..rule }));
    }
}
