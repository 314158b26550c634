// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a completion says, before it is an entry of a queue.
//!
//! Called by: whoever completes a request (send, wire, qp). Grade: hot: a plain value. Thread rule: none.

use crate::engine::codes::wc_opcode;

/// What a completion says, apart from its payload.
#[derive(Clone, Copy, Default)]
pub(crate) struct Completion {
    /// As in the entry.
    pub(crate) wr_id: u64,
    pub(crate) status: u32,
    pub(crate) opcode: u32,
    pub(crate) flags: u32,
    pub(crate) byte_len: u32,
    pub(crate) imm: u32,
    pub(crate) src_qp: u32,
    pub(crate) sl: u8,
    pub(crate) slid: u16,
    pub(crate) pkey_index: u8,
    pub(crate) path_bits: u8,
    pub(crate) wqe: u32,
    pub(crate) is_recv: bool,
    pub(crate) solicited: bool,
    /// 0 unless a model applies.
    pub(crate) ready_ns: u64,
}

/// The completion of a receive that ended in an error, or was flushed. `queue`: as `Cqe::wr_id`.
pub(crate) fn failed_recv(status: u32, wqe: u32, queue: u64) -> Completion {
    Completion { wr_id: queue, status, opcode: wc_opcode::RECV, wqe, is_recv: true, ..Completion::default() }
}
