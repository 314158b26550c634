// SPDX-License-Identifier: MIT OR Apache-2.0
//! The adapters, as verbs and the kernel describe them, and whether ibex would use their ports. The choice and its
//! reasons come from the engine ([`ibex::select::device::survey`]), as in a job started here with the same parameters.
//! Called by [`super`]. Grade: setup. Tests: below.

use super::counters::{self, Counters};
use crate::answer::rows;
use crate::parameters::Parameters;
use ibex::select::address::{LINK_ETHERNET, LINK_INFINIBAND, mtu_bytes};
use ibex::select::choose::{DeviceInfo, PORT_ACTIVE, PORT_ARMED, PORT_DOWN, PORT_INIT, PartitionKey, PortInfo};
use ibex::select::device::{self, PortChoice, Survey};
use ibex_ffi::verbs::Context;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Adapters {
    pub(crate) parameters: Vec<String>,
    #[serde(rename = "adapters")]
    pub(crate) each: Vec<Adapter>,
    /// Settings that may keep a port from reaching others.
    pub(crate) warnings: Vec<String>,
    /// Advice if no port can be used; empty otherwise.
    pub(crate) complaint: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Adapter {
    pub(crate) name: String,
    pub(crate) unusable: Option<String>,
    #[serde(flatten)]
    pub(crate) facts: Option<Facts>,
    /// NUMA distance from this process; 10: the same node.
    pub(crate) numa_distance: Option<u32>,
    pub(crate) ports: Vec<Port>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Facts {
    pub(crate) vendor: String,
    pub(crate) firmware: String,
    pub(crate) is_software: bool,
    pub(crate) numa_node: Option<u32>,
    /// The clock that stamps completions; `None`: the host stamps them.
    pub(crate) clock: Option<Clock>,
    /// Link of the bus; `None`: there is no bus, or the kernel does not say.
    pub(crate) pci: Option<Pci>,
}

/// A PCI Express link: transfers per second and lanes, current and maximum.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Pci {
    pub(crate) speed: String,
    pub(crate) width: u32,
    pub(crate) max_speed: String,
    pub(crate) max_width: u32,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Clock {
    pub(crate) ticks_per_second: u64,
    pub(crate) bits: u32,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Port {
    pub(crate) number: u8,
    pub(crate) state: String,
    pub(crate) link_layer: String,
    pub(crate) rate_mbps: u32,
    /// Active lanes of the link; 0: unknown.
    #[serde(default)]
    pub(crate) lanes: u32,
    pub(crate) mtu: u32,
    /// The partition key that ibex would use (bit 15: full member); `None`: unknown.
    #[serde(default)]
    pub(crate) partition_key: Option<u16>,
    pub(crate) lid: u16,
    pub(crate) interfaces: Vec<String>,
    pub(crate) counters: Counters,
    /// The port's IP network or InfiniBand subnet prefix; empty if ibex would not use the port, or does not know.
    pub(crate) subnet: String,
    pub(crate) is_taken: bool,
    pub(crate) reason: String,
    pub(crate) gids: Vec<Gid>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Gid {
    /// Index, address, type and interface.
    pub(crate) entry: String,
    pub(crate) address: Ipv6Addr,
    /// `IBV_GID_TYPE_*`.
    pub(crate) kind: u8,
    pub(crate) is_taken: bool,
    pub(crate) reason: String,
}

pub(crate) fn look(parameters: &Parameters) -> Adapters {
    let survey = device::survey(&parameters.tunables);
    let complaint = if survey.ports.is_empty() { survey.complaint.clone() } else { String::new() };
    let each = survey.devices.iter().map(|device| adapter(device, &survey)).collect();
    let parameters = parameters.set.iter().map(|(name, value)| format!("{name}={value}")).collect();
    Adapters { parameters, each, warnings: survey.warnings, complaint }
}

fn adapter(device: &DeviceInfo, survey: &Survey) -> Adapter {
    let ports = device.ports.iter().map(|port| {
        let name = format!("{}:{}", device.name, port.number);
        described(&device.name, port, (survey, &name))
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
        // The kernel writes -1 if it is unknown.
        numa_node: read("device/numa_node").trim().parse().ok(),
        clock: clock.map(|clock| Clock { ticks_per_second: clock.ticks_per_second, bits: clock.bits }),
        pci: pci(&read),
    })
}

fn pci(read: &impl Fn(&str) -> String) -> Option<Pci> {
    let text = |name: &str| read(&format!("device/{name}")).trim().to_owned();
    let speed = text("current_link_speed");
    let (width, max_width) = (text("current_link_width").parse().ok()?, text("max_link_width").parse().ok()?);
    (!speed.is_empty()).then(|| Pci { speed, width, max_speed: text("max_link_speed"), max_width })
}

/// Returns the name of the port's network: equal for two ports of one network.
fn subnet(choice: &PortChoice) -> String {
    if !choice.is_ethernet() {
        return format!("{:#018x}", choice.subnet_prefix());
    }
    let length = u32::from(choice.subnet_length);
    if length == 0 {
        return String::new();
    }
    let address = Ipv6Addr::from(u128::from_be_bytes(choice.gid) & u128::MAX << (128 - length));
    match address.to_ipv4_mapped() {
        Some(address) => format!("{address}/{}", length.saturating_sub(96)),
        None => format!("{address}/{length}"),
    }
}

fn interfaces(port: &PortInfo) -> Vec<String> {
    let mut names: Vec<String> = port.gids.iter().map(|gid| gid.interface.clone()).collect();
    names.retain(|name| !name.is_empty());
    names.sort();
    names.dedup();
    names
}

pub(crate) fn folder(device: &str, port: u8) -> Option<PathBuf> {
    let context = Context::open(device).ok()?;
    Some(Path::new(context.sysfs()).join(format!("ports/{port}")))
}

fn described(device: &str, port: &PortInfo, (survey, name): (&Survey, &str)) -> Port {
    let considered = survey.considered.iter().find(|considered| considered.name == name);
    let choice = survey.ports.iter().find(|choice| choice.device == device && choice.port == port.number);
    let gid = |verdict: &ibex::select::gid::GidVerdict| Gid {
        entry: verdict.gid.to_string(),
        address: Ipv6Addr::from(verdict.gid.gid),
        kind: verdict.gid.gid_type,
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
        }
        .to_owned(),
        link_layer: match port.link_layer {
            LINK_INFINIBAND => "InfiniBand",
            LINK_ETHERNET => "Ethernet",
            _ => "unknown",
        }
        .to_owned(),
        rate_mbps: port.rate_mbps,
        lanes: Context::open(device).and_then(|context| context.port(port.number)).map_or(0, |port| port.lanes),
        partition_key: match port.partition_key {
            PartitionKey::Key(key) => Some(key),
            PartitionKey::Unknown | PartitionKey::Missing(_) => None,
        },
        mtu: mtu_bytes(port.active_mtu).unwrap_or(0),
        lid: port.lid,
        interfaces: interfaces(port),
        subnet: choice.map(subnet).unwrap_or_default(),
        counters: folder(device, port.number).map(|folder| counters::read(&folder)).unwrap_or_default(),
        is_taken: considered.is_some_and(|considered| considered.chosen.is_some()),
        reason: considered.map(|considered| considered.reason.clone()).unwrap_or_default(),
        gids: considered.map(|considered| considered.gids.iter().map(gid).collect()).unwrap_or_default(),
    }
}

impl fmt::Display for Adapters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Adapters")?;
        write!(f, "{}", rows(2, [("with the parameters", self.parameters.join("\n"))]))?;
        self.each.iter().try_for_each(|adapter| adapter.fmt(f))?;
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
        let kind = if facts.is_software { " (a software adapter)" } else { "" };
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

    #[test]
    fn a_port_is_printed_with_its_state_and_verdict() {
        let port = Port {
            number: 1,
            state: "down".into(),
            link_layer: "Ethernet".into(),
            rate_mbps: 25_000,
            mtu: 4096,
            reason: "it is down".into(),
            ..Port::default()
        };
        let text = port.to_string();
        assert_eq!(text, "    port 1: down, Ethernet, 25 Gb/s, MTU 4096\n      not used: it is down\n");
    }
}
