// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receive requests and completions as they cross between the engine and the C side. Send requests, which may name an
//! address handle, are in `send::request`.
//!
//! Called by: the C side, the queues. Grade: hot: built per message, without an allocation. Thread rule: plain values,
//! in the byte order of the host unless said otherwise.

/// One piece of memory of a work request.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Sge {
    /// Virtual address (in the space of the registration: its iova).
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// Local key; not looked at for inline sends.
    pub lkey: u32,
}

/// A receive work request.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// The pieces.
    pub sge: &'a [Sge],
}

/// A work completion. The first fields lie as in `ibv_wc` (48 bytes); timestamps follow.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
#[expect(missing_docs, reason = "the names are those of ibv_wc")]
pub struct Wc {
    pub wr_id: u64,
    pub status: u32,
    pub opcode: u32,
    pub vendor_err: u32,
    pub byte_len: u32,
    /// As it travels (big-endian bytes, taken as they are).
    pub imm: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub flags: u32,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
    /// Raw ticks of the adapter's clock; 0 unless the queue was created with [`CQ_TIMESTAMP_RAW`] or
    /// [`CQ_TIMESTAMP_WALL`].
    pub ts_raw: u64,
    /// Nanoseconds of `CLOCK_REALTIME`; 0 unless it was created with [`CQ_TIMESTAMP_WALL`].
    pub ts_wall: u64,
}

/// `create_cq` flag: completions carry times.
pub const CQ_TIMESTAMP_RAW: u32 = 1;
/// `create_cq` flag: completions carry times.
pub const CQ_TIMESTAMP_WALL: u32 = 2;
