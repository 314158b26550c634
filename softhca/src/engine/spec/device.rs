// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an adapter and its ports are, as the configuration describes them.
//!
//! Called by: the configuration and the profiles (which fill it in), everything that asks what an adapter is. Grade:
//! setup. Thread rule: plain values. They are in the byte order of the host unless said otherwise.

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

impl ClockSpec {
    /// Nanoseconds of the host.
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
    /// In the byte order of the host; that of the system image, too.
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
    /// What it can do.
    pub limits: Limits,
    /// How it does it.
    pub behaviour: Behaviour,
}
