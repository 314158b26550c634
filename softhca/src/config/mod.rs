// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration file of a fabric, in TOML: its tables (all keys optional, unknown keys refused), read and checked.
//! `adapters` fills in left-out keys and makes the engine's description. docs/softhca.md documents every key. Called
//! by: `verbs::device` in every process of the fabric, and the command, which checks it first. Grade: setup.

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, anyhow};
use serde::Deserialize;
use toml::Spanned;

use crate::config::faults::Fault;
use crate::config::values::{GidRow, Guid, LinkLayer, Mtu, Speed, State, Width};
use crate::engine::faults::FaultRule;
use crate::engine::{DeviceSpec, MAX_DEVICES, MAX_PORTS, MAX_RULES};
use crate::fabric_folder::is_fabric_name;
use crate::{behaviour, limits, profiles};

mod adapters;
mod faults;
mod values;

/// Number of GUIDs of a device: its own, and one for each port.
const GUIDS: u64 = 1 + MAX_PORTS as u64;

/// A configuration: everything about a fabric except the place of its folder.
#[derive(Clone, Debug)]
pub struct Config {
    /// The fabric's name, if the file gives one.
    pub fabric: Option<String>,
    /// Whether completions are written to the trace.
    pub trace: bool,
    /// 1 to 4 adapters.
    pub devices: Vec<DeviceSpec>,
    /// Scripted faults, in order.
    pub faults: Vec<FaultRule>,
}

impl Config {
    /// Reads `path`; devices that name no profile have this one.
    /// Errors: it cannot be read, is no TOML, has unknown keys or values, or describes something impossible.
    pub fn read(path: &Path, profile: Option<profiles::Name>) -> anyhow::Result<Config> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the configuration file {}", path.display()))?;
        Config::parse_as(&text, profile).map_err(|(span, message)| {
            let line = 1 + text.bytes().take(span.start).filter(|byte| *byte == b'\n').count();
            anyhow!("{}:{line}: {message}", path.display())
        })
    }

    /// Returns the configuration without a file: one adapter, of this profile.
    ///
    /// # Panics
    /// Never: the defaults are in range.
    pub fn of_profile(profile: Option<profiles::Name>) -> Config {
        let device = adapters::complete(0, &Device::default(), &mut 0, profile);
        let device = device.expect("the defaults are in range");
        Config { fabric: None, trace: false, devices: vec![device], faults: Vec::new() }
    }

    #[cfg(test)]
    fn parse(text: &str) -> Result<Config, (Range<usize>, String)> {
        Config::parse_as(text, None)
    }

    fn parse_as(text: &str, profile: Option<profiles::Name>) -> Result<Config, (Range<usize>, String)> {
        let document: Document = toml::from_str(text)
            .map_err(|error| (error.span().unwrap_or(0..0), error.message().trim_end().to_owned()))?;
        if let Some(name) = document.fabric.as_ref().filter(|name| !is_fabric_name(name.as_ref())) {
            return Err((name.span(), "fabric: 1 to 64 letters, digits, dashes and underscores".to_owned()));
        }
        if let Some(fifth) = document.device.get(MAX_DEVICES) {
            return Err((fifth.span(), format!("a fabric has 1 to {MAX_DEVICES} devices")));
        }
        if let Some(first_too_many) = document.fault.get(MAX_RULES) {
            return Err((first_too_many.span(), format!("a fabric has up to {MAX_RULES} faults")));
        }
        let (mut lids, mut seen) = (0, HashSet::new());
        let mut devices: Vec<DeviceSpec> = Vec::new();
        for (index, given) in document.device.iter().enumerate() {
            let device =
                adapters::complete(index, given.as_ref(), &mut lids, profile).map_err(|error| (given.span(), error))?;
            if devices.iter().any(|other| other.name == device.name) {
                return Err((given.span(), format!("a second device is called {:?}", device.name)));
            }
            if devices.iter().any(|other| other.node_guid.abs_diff(device.node_guid) < GUIDS) {
                return Err((given.span(), format!("node_guid = {:#x}: too near another device's", device.node_guid)));
            }
            if let Some(port) = device.ports.iter().find(|port| port.lid != 0 && !seen.insert(port.lid)) {
                return Err((given.span(), format!("lid = {} is another port's too", port.lid)));
            }
            devices.push(device);
        }
        if devices.is_empty() {
            devices = Config::of_profile(profile).devices;
        }
        let faults = document
            .fault
            .iter()
            .map(|given| given.as_ref().rule(&devices).map_err(|error| (given.span(), error)))
            .collect::<Result<_, _>>()?;
        let fabric = document.fabric.map(toml::Spanned::into_inner);
        Ok(Config { fabric, trace: document.trace, devices, faults })
    }
}

#[cfg(test)]
mod tests;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    fabric: Option<Spanned<String>>,
    #[serde(default)]
    trace: bool,
    #[serde(default)]
    device: Vec<Spanned<Device>>,
    #[serde(default)]
    fault: Vec<Spanned<Fault>>,
}

/// `[[device]]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Device {
    name: Option<String>,
    link_layer: Option<LinkLayer>,
    node_guid: Option<Guid>,
    vendor_id: Option<u32>,
    vendor_part_id: Option<u32>,
    fw_ver: Option<String>,
    numa_node: Option<i32>,
    latency_ns: Option<u64>,
    bandwidth_gbps: Option<f64>,
    profile: Option<profiles::Name>,
    #[serde(default)]
    limits: limits::Given,
    #[serde(default)]
    behaviour: behaviour::Given,
    #[serde(default)]
    clock: Clock,
    #[serde(default)]
    port: Vec<Port>,
}

/// `[device.clock]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Clock {
    frequency_hz: Option<u64>,
    offset: Option<u64>,
    drift_ppm: Option<f64>,
    mask_bits: Option<u32>,
}

/// `[[device.port]]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Port {
    lid: Option<u16>,
    sm_lid: Option<u16>,
    mtu: Option<Mtu>,
    width: Option<Width>,
    speed: Option<Speed>,
    state: Option<State>,
    subnet_prefix: Option<Guid>,
    network: Option<String>,
    gids: Option<Vec<GidRow>>,
    pkeys: Option<Vec<u16>>,
}
