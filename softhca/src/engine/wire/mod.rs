// SPDX-License-Identifier: MIT OR Apache-2.0
//! The wire: executes a request at its target queue pair. `responder` is the side that answers, `transmit` the way to
//! it; `receive` executes sends, `rdma` RDMA and atomics, `datagram` datagrams. Called by: send. Grade: hot.

use crate::engine::{AhAttr, Memory};

mod datagram;
mod rdma;
mod receive;
mod responder;
pub(crate) mod transmit;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It has ended with this status; polls do not see its completion before `ready_ns`.
    Done { status: u32, ready_ns: u64 },
    /// The receiver has no request: try again after so many nanoseconds.
    NotReady(u64),
    /// No queue pair answered.
    Lost,
}

impl Outcome {
    pub(crate) fn done(status: u32) -> Outcome {
        Outcome::Done { status, ready_ns: 0 }
    }
}

/// Address of a datagram, or shared receive queue of a request of XRC.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct To {
    pub(crate) address: AhAttr,
    /// Adapter, and port (0: no port has the address).
    pub(crate) device: u32,
    pub(crate) port: u32,
    pub(crate) qpn: u32,
    pub(crate) qkey: u32,
    pub(crate) pd: u32,
    pub(crate) srqn: u32,
    /// The address handle, if the adapter looks it up when it sends; else 0.
    pub(crate) handle: u32,
}

/// The operation of a request; each field is as in `SendWr`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Operation {
    pub(crate) opcode: u32,
    pub(crate) flags: u32,
    pub(crate) imm: u32,
    pub(crate) rkey: u32,
    pub(crate) remote_addr: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
}

pub(crate) struct Message<'a> {
    pub(crate) what: Operation,
    pub(crate) len: u32,
    /// Memory to send, or memory that gets the fetched bytes.
    pub(crate) memory: Memory<'a>,
    pub(crate) to: &'a To,
}
