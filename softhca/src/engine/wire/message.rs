// SPDX-License-Identifier: MIT OR Apache-2.0
//! A request on its way from one queue pair to another, and what became of it.
//!
//! Called by: send (makes it), the rest of this folder (executes it). Grade: hot: plain values. Thread rule: none.

use crate::engine::{copy::Memory, spec::attributes::AhAttr};

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is over, with this status; its completion is not seen before `ready_ns`.
    Done { status: u32, ready_ns: u64 },
    /// The receiver has no request: try again after so many nanoseconds.
    NotReady(u64),
    /// Nobody answered.
    Lost,
}

impl Outcome {
    #[inline]
    pub(crate) fn done(status: u32) -> Outcome {
        Outcome::Done { status, ready_ns: 0 }
    }
}

/// Where a datagram goes, or which shared receive queue a request of XRC names.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct To {
    pub(crate) address: AhAttr,
    /// Adapter and port (0: nobody has the address).
    pub(crate) device: u32,
    pub(crate) port: u32,
    pub(crate) qpn: u32,
    pub(crate) qkey: u32,
    pub(crate) pd: u32,
    /// XRC: the shared receive queue.
    pub(crate) srqn: u32,
    /// The address handle, if the adapter looks it up when it sends; else 0.
    pub(crate) handle: u32,
}

/// A request on its way.
pub(crate) struct Message<'a> {
    pub(crate) opcode: u32,
    pub(crate) flags: u32,
    pub(crate) imm: u32,
    pub(crate) len: u32,
    pub(crate) rkey: u32,
    pub(crate) remote_addr: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    /// What is sent, or where to put what is fetched.
    pub(crate) memory: Memory<'a>,
    pub(crate) to: &'a To,
}
