// SPDX-License-Identifier: MIT OR Apache-2.0
//! A send request as it crosses from the C side.
//!
//! Called by: the C side (builds it), post. Grade: hot: built per message, without an allocation. Thread rule: plain
//! values, in the byte order of the host unless said otherwise.

use crate::engine::{adapter::ah::Ah, codes::wr_opcode, spec::work_request::Sge};

/// A send work request.
#[derive(Clone, Copy, Default)]
pub struct SendWr<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// `codes::wr_opcode`.
    pub opcode: u32,
    /// `codes::send_flags`.
    pub flags: u32,
    /// Immediate data, as it travels (big-endian bytes, taken as they are). `SEND_WITH_INV` and `LOCAL_INV`: the key to
    /// invalidate. `BIND_MW`: the window, by its present key.
    pub imm: u32,
    /// The pieces; with the flag INLINE read during the call.
    pub sge: &'a [Sge],
    /// Remote address of RDMA and atomics. `BIND_MW`: the first address of the window.
    pub remote_addr: u64,
    /// Remote key of RDMA and atomics. `BIND_MW`: the key that the window is to get.
    pub rkey: u32,
    /// Compare value of compare-and-swap, the addend of fetch-and-add. `BIND_MW`: bytes of the window.
    pub compare_add: u64,
    /// Swap value. `BIND_MW`: local key of the region, and rights (`codes::access`) in the upper half.
    pub swap: u64,
    /// UD: where to.
    pub ah: Option<&'a Ah>,
    /// UD: to which queue pair.
    pub remote_qpn: u32,
    /// UD: with which key; with the top bit set the queue pair's own is taken.
    pub remote_qkey: u32,
    /// XRC: to which shared receive queue.
    pub remote_srqn: u32,
}

impl SendWr<'_> {
    /// A send of nothing, to be filled in.
    #[must_use]
    pub fn empty() -> Self {
        SendWr { opcode: wr_opcode::SEND, ..SendWr::default() }
    }
}
