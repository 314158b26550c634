// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the configuration tells the engine, and the plain values that cross between the engine and the C side.
//!
//! Called by: the configuration, the C side. Grade: setup, except `Sge`, `SendWr`, `RecvWr` and `Wc`, which are built
//! per message and hold no allocation. Values are in the byte order of the host unless said otherwise.

use std::path::PathBuf;

use super::{Ah, Cq, Pd, Srq, faults::FaultRule};
use crate::{behaviour::Behaviour, limits::Limits};

/// One GID of a port and its type (`codes::gid_kind`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gid {
    /// The 16 bytes as they travel.
    pub raw: [u8; 16],
    /// `codes::gid_kind`.
    pub kind: u8,
}

impl Gid {
    /// Whether this row of a table is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.raw == [0; 16]
    }
}

/// The free-running core clock of an adapter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockSpec {
    /// Ticks per second.
    pub frequency_hz: u64,
    /// Ticks at the host's time zero (`CLOCK_MONOTONIC`).
    pub offset: u64,
    /// How much faster than nominal it runs, in parts per million.
    pub drift_ppm: f64,
    /// Width of a timestamp: it wraps after 2^`mask_bits` ticks. 1 to 64.
    pub mask_bits: u32,
}

impl Default for ClockSpec {
    fn default() -> Self {
        ClockSpec { frequency_hz: 1_000_000_000, offset: 0, drift_ppm: 0.0, mask_bits: 64 }
    }
}

/// One port.
#[derive(Clone, Debug)]
pub struct PortSpec {
    /// Local identifier; 0 on Ethernet.
    pub lid: u16,
    /// LID of the subnet manager.
    pub sm_lid: u16,
    /// `IBV_MTU_*`: 1 (256 bytes) to 5 (4096 bytes).
    pub mtu: u8,
    /// As in `ibv_port_attr`.
    pub active_width: u8,
    /// As in `ibv_port_attr`.
    pub active_speed: u32,
    /// The GID table. Rows of zeros are empty; those that follow the last one are, too.
    pub gids: Vec<Gid>,
    /// The table of partition keys.
    pub pkeys: Vec<u16>,
    /// State at the start (`codes::port_state`).
    pub state: u32,
    /// What the link is connected to: ports of another network do not reach this one.
    pub network: String,
}

/// One adapter.
#[derive(Clone, Debug)]
pub struct DeviceSpec {
    /// As `ibv_get_device_name` gives it.
    pub name: String,
    /// `codes::link_layer`.
    pub link_layer: u8,
    /// 1 or 2 ports; port numbers count from 1.
    pub ports: Vec<PortSpec>,
    /// In the byte order of the host.
    pub node_guid: u64,
    /// In the byte order of the host.
    pub sys_image_guid: u64,
    /// As in `ibv_device_attr`.
    pub vendor_id: u32,
    /// As in `ibv_device_attr`.
    pub vendor_part_id: u32,
    /// As in `ibv_device_attr`.
    pub hw_ver: u32,
    /// As in `ibv_device_attr`.
    pub fw_ver: String,
    /// -1 if it is near none.
    pub numa_node: i32,
    /// The core clock.
    pub clock: ClockSpec,
    /// One-way latency of the model, 0 for as fast as the host can.
    pub latency_ns: u64,
    /// Bandwidth of the model, 0 for as fast as the host can.
    pub bandwidth_gbps: f64,
    /// What it can do.
    pub limits: Limits,
    /// How it does it.
    pub behaviour: Behaviour,
}

/// A fabric: where its shared state is, its adapters and its faults. All its processes must give the same.
#[derive(Clone, Debug)]
pub struct FabricSpec {
    /// A folder on a memory file system, which exists and belongs to the user alone.
    pub folder: PathBuf,
    /// 1 to 4 adapters.
    pub devices: Vec<DeviceSpec>,
    /// Rules, in the order in which they are tried.
    pub faults: Vec<FaultRule>,
    /// Whether what is completed is written down (docs/softhca.md, "The trace").
    pub trace: bool,
}

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

/// A send work request.
#[derive(Clone, Copy)]
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
        SendWr {
            wr_id: 0,
            opcode: super::codes::wr_opcode::SEND,
            flags: 0,
            imm: 0,
            sge: &[],
            remote_addr: 0,
            rkey: 0,
            compare_add: 0,
            swap: 0,
            ah: None,
            remote_qpn: 0,
            remote_qkey: 0,
            remote_srqn: 0,
        }
    }
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

/// Sizes of a queue pair; asked for, and then granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of ibv_qp_cap")]
pub struct QpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// What a queue pair is created from.
pub struct QpInit<'a> {
    /// `codes::qp_type`, but `XRC_RECV`, which has none of these (`Hca::create_xrc_recv`).
    pub kind: u32,
    /// Its protection domain.
    pub pd: &'a Pd,
    /// Where its sends complete.
    pub send_cq: &'a Cq,
    /// Where its receives complete; an `XRC_SEND` has none.
    pub recv_cq: &'a Cq,
    /// Where its receives come from; without, a queue of its own.
    pub srq: Option<&'a Srq>,
    /// Sizes.
    pub cap: QpCap,
    /// Every send gives a completion.
    pub sq_sig_all: bool,
    /// Comes back in async events.
    pub cookie: u64,
}

/// Where packets go: as in `ibv_ah_attr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[expect(missing_docs, reason = "the names are those of ibv_ah_attr and ibv_global_route")]
pub struct AhAttr {
    pub is_global: bool,
    pub dgid: [u8; 16],
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub port_num: u8,
}

/// As `ibv_qp_attr`, less what only automatic path migration needs.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the names are those of ibv_qp_attr")]
pub struct QpAttr {
    pub qp_state: u32,
    pub cur_qp_state: u32,
    pub path_mtu: u32,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: u32,
    pub cap: QpCap,
    pub ah_attr: AhAttr,
    pub pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
}

/// Whom an async event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectRef {
    /// The cookie given to `create_cq`.
    Cq(u64),
    /// The cookie given to `create_qp`.
    Qp(u64),
    /// The cookie given to `create_srq`.
    Srq(u64),
    /// A port number.
    Port(u8),
    /// The adapter.
    Device,
}

/// An async event of an opened adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// `codes::event`.
    pub kind: u32,
    /// Whom it is about.
    pub object: ObjectRef,
}
