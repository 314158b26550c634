// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plain values that cross the engine's borders: descriptions of adapters, attributes of queue pairs and addresses,
//! receive requests and completions. Send requests, which may name an address handle, are in `send::post`.
//! Called by: the configuration and the profiles (describe adapters), `verbs`, the whole engine. Grade: requests and
//! completions are hot: built per message, without an allocation; the rest is setup. Thread rule: plain values, in the
//! byte order of the host unless said otherwise. The engine reads only attributes that a mask or an opcode names.

use crate::behaviour::Behaviour;
use crate::limits::Limits;

/// One GID of a port and its type (`codes::gid_kind`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gid {
    /// The 16 bytes as they travel.
    pub raw: [u8; 16],
    /// `codes::gid_kind`.
    pub kind: u8,
}

impl Gid {
    /// Whether this row of a table is empty.
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
    /// Difference of its rate from the nominal one, in parts per million.
    pub drift_ppm: f64,
    /// Width of a timestamp: it wraps after 2^`mask_bits` ticks. 1 to 64.
    pub mask_bits: u32,
}

impl ClockSpec {
    /// The clock that counts nanoseconds of the host.
    pub const USUAL: ClockSpec = ClockSpec { frequency_hz: 1_000_000_000, offset: 0, drift_ppm: 0.0, mask_bits: 64 };
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
    /// The GID table. Rows of zeros are empty, and so are rows behind the last one.
    pub gids: Vec<Gid>,
    /// The table of partition keys.
    pub pkeys: Vec<u16>,
    /// State at the start (`codes::port_state`).
    pub state: u32,
    /// Name of the network: ports of another one do not reach this port.
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
    /// The GUID of the node and of the system image, in the byte order of the host.
    pub node_guid: u64,
    /// As in `ibv_device_attr`.
    pub vendor_id: u32,
    /// As in `ibv_device_attr`.
    pub vendor_part_id: u32,
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
    /// The adapter's limits.
    pub limits: Limits,
    /// The adapter's behaviour.
    pub behaviour: Behaviour,
}

pub use crate::sys::{
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP as TIMESTAMP_RAW,
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK as TIMESTAMP_WALL, ibv_ah_attr as AhAttr, ibv_qp_attr as QpAttr,
    ibv_qp_cap as QpCap, ibv_sge as Sge,
};

/// Returns the set part of an address: its route only if it is global.
pub(crate) fn set_of(address: &AhAttr) -> AhAttr {
    if address.is_global != 0 { *address } else { AhAttr { grh: AhAttr::default().grh, ..*address } }
}

pub(crate) fn dgid(address: &AhAttr) -> [u8; 16] {
    // SAFETY: both members of the union are the same 16 bytes.
    unsafe { address.grh.dgid.raw }
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
    /// Raw ticks of the adapter's clock; 0 unless the queue was created with a `TIMESTAMP_*` flag.
    pub ts_raw: u64,
    /// Nanoseconds of `CLOCK_REALTIME`; 0 unless it was created with [`TIMESTAMP_WALL`].
    pub ts_wall: u64,
}
