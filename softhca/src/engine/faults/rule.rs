// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules for faults as the configuration gives them: each has a scene, a number of times, and an action. Called by:
//! the configuration (makes them), the rest of this folder. Grade: setup; `fits` and `takes` run for each packet of a
//! fabric that has rules. Thread rule: plain values. Times are nanoseconds. Tests: below.

use std::collections::BTreeSet;

use crate::engine::codes::port_state;
use crate::engine::{DeviceSpec, Gid};

/// A change of a port.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Its LID.
    Lid(u16),
    /// The LID of its subnet manager.
    SmLid(u16),
    /// A row of its table of GIDs; one of zeros empties it.
    Gid(u8, Gid),
    /// A row of its table of partition keys.
    Pkey(u16, u16),
}

/// The fault that a rule causes.
#[repr(C)]
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
    /// At its time the port goes down; up again after so many nanoseconds (0: never).
    LinkDown(u64),
    /// At its time the port goes up, whatever took it down.
    LinkUp,
    /// At its time the port changes, if a change is given; then there is an async event of this kind (`codes::event`)
    /// about the adapter, a port, or every object of a kind, which fails.
    Event(u32, Option<Change>),
}

impl FaultAction {
    pub(crate) fn has_time(&self) -> bool {
        matches!(self, Self::LinkDown(_) | Self::LinkUp | Self::Event(..))
    }
}

/// The configuration's name of the action.
impl std::fmt::Display for FaultAction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Drop => "drop",
            Self::Delay(_) => "delay",
            Self::Duplicate => "duplicate",
            Self::Rnr => "rnr",
            Self::Status(_) => "status",
            Self::PostSend(_) => "post-send-error",
            Self::RegMr(_) => "registration-error",
            Self::CqOverrun => "cq-overrun",
            Self::LinkDown(_) => "link-down",
            Self::LinkUp => "link-up",
            Self::Event(..) => "event",
        })
    }
}

/// One rule: its action, its scene, and how often it applies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultRule {
    /// The fault.
    pub action: FaultAction,
    /// When it happens, if it has a time: in nanoseconds since the fabric began.
    pub at_ns: u64,
    /// Only on this adapter (its index).
    pub device: Option<usize>,
    /// Only on this port.
    pub port: Option<u8>,
    /// Only packets of queue pairs of this type (`codes::qp_type`).
    pub qp_type: Option<u32>,
    /// Only packets from this LID.
    pub from_lid: Option<u16>,
    /// Only packets to this LID.
    pub to_lid: Option<u16>,
    /// The n-th that fits (from 1), and the `count - 1` after it.
    pub nth: Option<u64>,
    /// How many faults from the n-th on; 0 for all.
    pub count: u64,
    /// Instead of `nth`: this fraction of all, 0 to 1.
    pub fraction: Option<f64>,
    /// Seed of the fraction.
    pub seed: u64,
}

#[derive(Clone, Copy)]
pub(super) struct Scene {
    pub(super) device: u32,
    pub(super) port: Option<u32>,
    pub(super) qp_type: Option<u32>,
    pub(super) from_lid: Option<u16>,
    pub(super) to_lid: Option<u16>,
}

impl FaultRule {
    /// Every time, on every adapter.
    pub const fn always(action: FaultAction) -> Self {
        Self {
            action,
            at_ns: 0,
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

    pub(super) fn fits(&self, scene: &Scene) -> bool {
        let port_fits = self.port.is_none_or(|port| scene.port.is_none_or(|at| at == u32::from(port)));
        self.device.is_none_or(|device| device == scene.device as usize)
            && port_fits
            && (self.qp_type.is_none() || self.qp_type == scene.qp_type)
            && (self.from_lid.is_none() || self.from_lid == scene.from_lid)
            && (self.to_lid.is_none() || self.to_lid == scene.to_lid)
    }

    /// Whether the rule is for the `n`-th (from 1) that fits.
    pub(super) fn takes(&self, n: u64) -> bool {
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

/// The part of the timed rules that this process has reported to its programs. A port is a pair: adapter, port.
pub(crate) struct Timeline {
    /// Ports that are not active at first.
    pub(super) down_at_first: BTreeSet<(usize, u8)>,
    pub(super) down: BTreeSet<(usize, u8)>,
    /// Beginnings (`false`) and ends (`true`) that this process has acted on, each with the index of its rule; commands
    /// have the indices after the rules of the configuration.
    pub(super) given: BTreeSet<(usize, bool)>,
    /// The latest time in `given`.
    pub(super) reached: u64,
    pub(super) commands: Vec<FaultRule>,
}

impl Timeline {
    pub(crate) fn new(devices: &[DeviceSpec]) -> Timeline {
        let ports = devices.iter().enumerate().flat_map(|(index, device)| {
            (1..).zip(&device.ports).map(move |(port, spec)| ((index, port), spec.state == port_state::ACTIVE))
        });
        let down_at_first: BTreeSet<_> = ports.filter(|(_, is_active)| !is_active).map(|(port, _)| port).collect();
        Timeline {
            down: down_at_first.clone(),
            down_at_first,
            given: BTreeSet::new(),
            reached: 0,
            commands: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: FaultRule = FaultRule { seed: 7, ..FaultRule::always(FaultAction::Drop) };

    #[test]
    fn a_rule_for_a_type_of_queue_pair_fits_the_packets_of_that_type() {
        use crate::engine::codes::qp_type::{RC, UD};
        let scene = |qp_type| Scene { device: 0, port: Some(1), qp_type, from_lid: None, to_lid: None };
        let rule = FaultRule { qp_type: Some(UD), ..RULE };
        assert_eq!([Some(UD), Some(RC), None].map(|of| rule.fits(&scene(of))), [true, false, false]);
        assert!(RULE.fits(&scene(Some(RC))));
    }

    #[test]
    fn takes_accepts_the_nth_and_the_following_ones() {
        let rule = FaultRule { nth: Some(3), count: 2, ..RULE };
        let taken: Vec<u64> = (1..10).filter(|n| rule.takes(*n)).collect();
        assert_eq!(taken, [3, 4]);
    }

    #[test]
    fn takes_meets_the_fraction_and_chooses_alike_for_the_same_seed() {
        let rule = FaultRule { fraction: Some(0.25), ..RULE };
        let taken = |rule: FaultRule| (1..10_000).filter(|n| rule.takes(*n)).collect::<Vec<u64>>();
        assert!((2300..2700).contains(&taken(rule).len()), "{}", taken(rule).len());
        assert_eq!(taken(rule), taken(rule));
        assert_ne!(taken(rule), taken(FaultRule { seed: 8, ..rule }));
    }
}
