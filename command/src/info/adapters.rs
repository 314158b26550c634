// SPDX-License-Identifier: MIT OR Apache-2.0
//! The adapters: what verbs and the kernel say of each, and whether ibex would use its ports.
//!
//! The choice and its reasons are the engine's ([`ibex::select::device::survey`]): those of a job that is started here
//! with the same parameters. Called by [`super`]. Grade: setup. Tests: below.

use crate::answer::rows;
use crate::parameters::Parameters;
use ibex::select::address::{LINK_ETHERNET, LINK_INFINIBAND, mtu_bytes};
use ibex::select::choose::{Considered, DeviceInfo, PORT_ACTIVE, PORT_ARMED, PORT_DOWN, PORT_INIT, PortInfo};
use ibex::select::device;
use ibex_ffi::verbs::Context;
use serde::Serialize;
use std::fmt;
use std::fs;

/// What was found.
#[derive(Serialize)]
pub(super) struct Adapters {
    /// The parameters that differ from their defaults.
    parameters: Vec<String>,
    adapters: Vec<Adapter>,
    /// What may keep a port from reaching others.
    warnings: Vec<String>,
    /// What is to be done where no port can be used; empty where one can.
    complaint: String,
}

#[derive(Serialize)]
struct Adapter {
    name: String,
    /// Why it cannot be used at all.
    unusable: Option<String>,
    #[serde(flatten)]
    facts: Option<Facts>,
    /// Distance to where this process may run; 10: the same NUMA node.
    numa_distance: Option<u32>,
    ports: Vec<Port>,
}

/// What an adapter says of itself when it is opened.
#[derive(Serialize)]
struct Facts {
    vendor: String,
    firmware: String,
    is_software: bool,
    numa_node: Option<u32>,
    /// The clock that stamps completions; none: the host stamps them.
    clock: Option<Clock>,
}

#[derive(Serialize)]
struct Clock {
    ticks_per_second: u64,
    bits: u32,
}

#[derive(Serialize)]
struct Port {
    number: u8,
    state: &'static str,
    link_layer: &'static str,
    rate_mbps: u32,
    mtu: u32,
    lid: u16,
    /// Whether ibex would use it.
    is_taken: bool,
    reason: String,
    gids: Vec<Gid>,
}

#[derive(Serialize)]
struct Gid {
    /// Index, address, type and interface.
    entry: String,
    is_taken: bool,
    reason: String,
}

/// Looks at every adapter.
pub(super) fn look(parameters: &Parameters) -> Adapters {
    let survey = device::survey(&parameters.tunables);
    let complaint = if survey.ports.is_empty() { survey.complaint() } else { String::new() };
    let adapters = survey.devices.iter().map(|device| adapter(device, &survey.considered)).collect();
    let parameters = parameters.set.iter().map(|(name, value)| format!("btl_ibex_{name}={value}")).collect();
    Adapters { parameters, adapters, warnings: survey.warnings, complaint }
}

fn adapter(device: &DeviceInfo, considered: &[Considered]) -> Adapter {
    let ports = device.ports.iter().map(|port| {
        let name = format!("{}:{}", device.name, port.number);
        described(port, considered.iter().find(|considered| considered.name == name))
    });
    Adapter {
        name: device.name.clone(),
        unusable: device.unusable.clone(),
        facts: facts(&device.name),
        numa_distance: device.distance,
        ports: ports.collect(),
    }
}

fn facts(name: &str) -> Option<Facts> {
    let context = Context::open(name).ok()?;
    let (vendor, part) = context.attributes().ok()?.vendor;
    let read = |file: &str| fs::read_to_string(format!("{}/{file}", context.sysfs())).unwrap_or_default();
    let clock = context.clock();
    Some(Facts {
        vendor: format!("{vendor:#06x}:{part}"),
        firmware: read("fw_ver").trim().to_owned(),
        is_software: context.is_software(),
        // -1: not known.
        numa_node: read("device/numa_node").trim().parse().ok(),
        clock: clock.map(|clock| Clock { ticks_per_second: clock.ticks_per_second, bits: clock.bits }),
    })
}

fn described(port: &PortInfo, considered: Option<&Considered>) -> Port {
    let gid = |verdict: &ibex::select::gid::GidVerdict| Gid {
        entry: verdict.gid.to_string(),
        is_taken: verdict.taken,
        reason: verdict.reason.clone(),
    };
    Port {
        number: port.number,
        state: match port.state {
            PORT_DOWN => "down",
            PORT_INIT => "initialising",
            PORT_ARMED => "armed",
            PORT_ACTIVE => "active",
            _ => "unknown",
        },
        link_layer: match port.link_layer {
            LINK_INFINIBAND => "InfiniBand",
            LINK_ETHERNET => "Ethernet",
            _ => "unknown",
        },
        rate_mbps: port.rate_mbps,
        mtu: mtu_bytes(port.active_mtu).unwrap_or(0),
        lid: port.lid,
        is_taken: considered.is_some_and(|considered| considered.chosen.is_some()),
        reason: considered.map(|considered| considered.reason.clone()).unwrap_or_default(),
        gids: considered.map(|considered| considered.gids.iter().map(gid).collect()).unwrap_or_default(),
    }
}

impl fmt::Display for Adapters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Adapters")?;
        write!(f, "{}", rows(2, [("with the parameters", self.parameters.join("\n"))]))?;
        self.adapters.iter().try_for_each(|adapter| adapter.fmt(f))?;
        self.warnings.iter().try_for_each(|warning| writeln!(f, "  note: {warning}"))?;
        self.complaint.lines().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

impl fmt::Display for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {}", self.name)?;
        let Some(facts) = &self.facts else {
            return writeln!(f, "    not used: {}", self.unusable.as_deref().unwrap_or("it could not be opened"));
        };
        let clock = match &facts.clock {
            Some(clock) => {
                format!("stamps completions, {} MHz, {} bits", clock.ticks_per_second / 1_000_000, clock.bits)
            }
            None => "none: the host stamps events".to_owned(),
        };
        let node = facts.numa_node.map_or_else(|| "not known".to_owned(), |node| node.to_string());
        let distance = self.numa_distance.map(|distance| format!(", distance {distance} from here"));
        let kind = if facts.is_software { " (software: the host's processors do its work)" } else { "" };
        let found = [
            ("vendor", format!("{}{kind}", facts.vendor)),
            ("firmware", facts.firmware.clone()),
            ("NUMA node", node + &distance.unwrap_or_default()),
            ("clock", clock),
        ];
        write!(f, "{}", rows(4, found))?;
        if let Some(why) = &self.unusable {
            writeln!(f, "    not used: {why}")?;
        }
        self.ports.iter().try_for_each(|port| port.fmt(f))
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Port { number, state, link_layer, mtu, .. } = self;
        let rate = f64::from(self.rate_mbps) / 1000.0;
        let lid = if self.lid == 0 { String::new() } else { format!(", LID {}", self.lid) };
        writeln!(f, "    port {number}: {state}, {link_layer}, {rate} Gb/s, MTU {mtu}{lid}")?;
        writeln!(f, "      {}: {}", verdict(self.is_taken), self.reason)?;
        let line = |gid: &Gid| format!("      GID {} {}: {}", gid.entry, verdict(gid.is_taken), gid.reason);
        self.gids.iter().try_for_each(|gid| writeln!(f, "{}", line(gid)))
    }
}

fn verdict(is_taken: bool) -> &'static str {
    if is_taken { "used" } else { "not used" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibex::select::choose;
    use ibex::tunables::Tunables;

    #[test]
    fn a_port_is_shown_with_the_reason_that_the_engine_gives() {
        let port =
            PortInfo { number: 1, state: PORT_DOWN, link_layer: LINK_ETHERNET, active_mtu: 5, ..PortInfo::default() };
        let device = DeviceInfo { name: "mlx5_0".into(), ports: vec![port], ..DeviceInfo::default() };
        let selection = choose::ports(std::slice::from_ref(&device), &Tunables::default());
        let shown = adapter(&device, &selection.considered);
        assert!(!shown.ports[0].is_taken && shown.ports[0].reason == selection.considered[0].reason);
        let text = shown.ports[0].to_string();
        assert!(text.contains("port 1: down, Ethernet, 0 Gb/s, MTU 4096") && text.contains("not used: "), "{text}");
    }
}
