// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one place where the engine asks the rules for faults about a packet, a post or a registration; and the model of
//! a link: the time that a message takes if the configuration gives a latency or a bandwidth. Called by: wire (per
//! packet), qp (per post), mr (per registration). Grade: a fabric without rules and without a model pays one predicted
//! branch and does not come here. Thread rule: any thread of any process; a rule counts by atomic additions; a sender
//! occupies a link by exchanging the time (in ns) at which that is free.

use crate::engine::faults::rule::Scene;
use crate::engine::{Errno, Fabric, FaultAction, QpShared, Result, clock};

pub(crate) enum Verdict {
    /// It arrives, and is seen at this time (0: at once).
    Pass(u64),
    /// It arrives twice, both seen at this time.
    Twice(u64),
    Lost,
    /// The receiver seems not ready.
    NotReady,
    Status(u32),
}

/// Returns the actions of the rules that apply here. For the whole fabric, a rule counts how often it fits and applies.
fn actions(fabric: &Fabric, scene: Scene, concerns: fn(&FaultAction) -> bool) -> impl Iterator<Item = FaultAction> {
    let counts = fabric.header().fault_counts.iter().zip(&fabric.header().fault_applied);
    fabric.rules().iter().zip(counts).filter_map(move |(rule, (count, applied))| {
        let applies = concerns(&rule.action) && rule.fits(&scene) && rule.takes(u64::from(count.add(1)) + 1);
        applies.then(|| {
            applied.add(1);
            rule.action
        })
    })
}

#[cold]
pub(crate) fn on_register(fabric: &Fabric, device: usize) -> Result<()> {
    let scene = Scene { device: device as u32, port: None, qp_type: None, from_lid: None, to_lid: None };
    match actions(fabric, scene, |action| matches!(action, FaultAction::RegMr(_))).next() {
        Some(FaultAction::RegMr(errno)) => Err(Errno(errno)),
        _ => Ok(()),
    }
}

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

/// Judges a packet to a port (adapter, number), and to this queue pair unless it is a datagram.
#[cold]
pub(crate) fn judge(fabric: &Fabric, qp: &QpShared, to: (u32, u32), len: u32, peer: Option<&QpShared>) -> Verdict {
    let (device, port) = (qp.device.get(), qp.port.get());
    let (from_lid, to_lid) = (lid(fabric, device, port), lid(fabric, to.0, to.1));
    let scene = Scene { device, port: Some(port), qp_type: Some(qp.kind.get()), from_lid, to_lid };
    let mut ready_ns = model(fabric, device, port, len);
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

/// Time at which a message that leaves now arrives, by the model: the sender's link carries one message at a time.
#[cold]
pub(crate) fn model(fabric: &Fabric, device: u32, port: u32, len: u32) -> u64 {
    let spec = &fabric.devices()[device as usize];
    if spec.latency_ns == 0 && spec.bandwidth_gbps <= 0.0 {
        return 0;
    }
    let busy = &fabric.header().port_busy[device as usize][port as usize - 1];
    let takes = if spec.bandwidth_gbps > 0.0 { (f64::from(len) * 8.0 / spec.bandwidth_gbps) as u64 } else { 0 };
    loop {
        let before = busy.get();
        let end = before.max(clock::now()).saturating_add(takes);
        if busy.replace(before, end) {
            return end.saturating_add(spec.latency_ns);
        }
    }
}
