// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration file as it is written: TOML tables, every key optional, unknown keys refused. What a left-out key
//! means is decided in `adapters`; every key is documented in docs/softhca.md.
//! Grade: setup.

use serde::Deserialize;
use toml::Spanned;

use super::faults::Fault;
use super::values::{GidRow, Guid, LinkLayer, Mtu, Speed, State, Width};
use crate::{behaviour, limits, profiles};

/// The whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    pub(super) fabric: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) trace: bool,
    #[serde(default)]
    pub(super) device: Vec<Spanned<Device>>,
    #[serde(default)]
    pub(super) fault: Vec<Spanned<Fault>>,
}

/// `[[device]]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Device {
    pub(super) name: Option<String>,
    pub(super) link_layer: Option<LinkLayer>,
    pub(super) node_guid: Option<Guid>,
    pub(super) vendor_id: Option<u32>,
    pub(super) vendor_part_id: Option<u32>,
    pub(super) fw_ver: Option<String>,
    pub(super) numa_node: Option<i32>,
    pub(super) latency_ns: Option<u64>,
    pub(super) bandwidth_gbps: Option<f64>,
    pub(super) profile: Option<profiles::Name>,
    #[serde(default)]
    pub(super) limits: limits::Given,
    #[serde(default)]
    pub(super) behaviour: behaviour::Given,
    #[serde(default)]
    pub(super) clock: Clock,
    #[serde(default)]
    pub(super) port: Vec<Port>,
}

/// `[device.clock]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Clock {
    pub(super) frequency_hz: Option<u64>,
    pub(super) offset: Option<u64>,
    pub(super) drift_ppm: Option<f64>,
    pub(super) mask_bits: Option<u32>,
}

/// `[[device.port]]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Port {
    pub(super) lid: Option<u16>,
    pub(super) sm_lid: Option<u16>,
    pub(super) mtu: Option<Mtu>,
    pub(super) width: Option<Width>,
    pub(super) speed: Option<Speed>,
    pub(super) state: Option<State>,
    pub(super) subnet_prefix: Option<Guid>,
    pub(super) network: Option<String>,
    pub(super) gids: Option<Vec<GidRow>>,
    pub(super) pkeys: Option<Vec<u16>>,
}
