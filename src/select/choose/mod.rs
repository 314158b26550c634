// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses the ports that this process uses, with a reason for each other one: a pure function of the devices'
//! descriptions and the parameters. `device.rs` makes the descriptions from verbs, [`crate::select::gid`] chooses a
//! port's GID, `choose/port.rs` judges a single port. The result has the report that `btl_ibex_verbose 1` prints, and
//! the message if no port is left. Grade: setup. Threads: plain data. Tests: `choose/tests.rs`.

use std::fmt;

use crate::select::address::{LINK_ETHERNET, LINK_INFINIBAND, MAX_PORTS, mtu_bytes};
use crate::select::gid::{self, GidInfo, GidVerdict};
use crate::tunables::Tunables;

mod port;
#[cfg(test)]
mod tests;

pub use port::{PORT_ACTIVE, PORT_ACTIVE_DEFER, PORT_ARMED, PORT_DOWN, PORT_INIT, PORT_NOP, PartitionKey, PortInfo};

/// One device, as verbs describes it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DeviceInfo {
    /// Name of the device (`mlx5_0`).
    pub name: String,
    /// NUMA distance from the nodes where this process may run (10: same node); `None`: unknown.
    pub distance: Option<u32>,
    /// Why it cannot be used (it was not opened, it has no RC queue pairs), with advice, as the end of a sentence.
    pub unusable: Option<String>,
    /// Its ports.
    pub ports: Vec<PortInfo>,
}

/// A port to use, with its GID and MTU.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Chosen {
    /// Index of the device in the list given to [`ports`].
    pub device: usize,
    /// Name of the device.
    pub device_name: String,
    /// Number of the port, from 1.
    pub port: u8,
    /// The GID to use.
    pub gid: GidInfo,
    /// Largest packet, as verbs.h's code: the port's MTU, or the smaller one in the parameters.
    pub mtu: u8,
}

/// A port that was considered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Considered {
    /// Name, such as `mlx5_0:1`; the device's name alone if its ports are unknown.
    pub name: String,
    /// Description in words; empty if unknown.
    pub description: String,
    /// The chosen port; `None`: refused.
    pub chosen: Option<Chosen>,
    /// Why it was taken or refused, as the end of a sentence that begins "taken: " or "refused: ".
    pub reason: String,
    /// Every GID considered; empty if the port was refused for another reason.
    pub gids: Vec<GidVerdict>,
}

/// The result for all devices. Its display is the report: one line for each port and each GID.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Selection {
    /// Every port, in the order of the devices.
    pub considered: Vec<Considered>,
    /// Other notes for the user (patterns that match nothing).
    pub notes: Vec<String>,
    /// Settings that may keep a chosen port from reaching others, each a sentence without its full stop.
    pub warnings: Vec<String>,
}

/// Chooses the ports to use: those that patterns, state, addresses and MTU permit, but no farther or slower ones.
pub fn ports(devices: &[DeviceInfo], tunables: &Tunables) -> Selection {
    let mut considered = Vec::new();
    for (place, device) in devices.iter().enumerate() {
        considered.extend(device.ports.iter().map(|port| consider(place, device, port, tunables)));
        if device.ports.is_empty() {
            let why = device.unusable.as_deref().unwrap_or("it has no ports; look whether its driver is loaded");
            considered.push(refused(device.name.clone(), String::new(), why.to_owned()));
        }
    }
    if !tunables.ignore_locality {
        refuse_far(&mut considered, devices);
    }
    // A user who names ports wants them all.
    if split(&tunables.if_include).next().is_none() {
        refuse_slow(&mut considered, devices, tunables.min_rate);
    }
    refuse_surplus(&mut considered);
    let warnings = considered.iter().filter_map(|considered| {
        let key = info(considered.chosen.as_ref()?, devices)?.partition_key;
        Some(format!("port {} {}", considered.name, key.warning(tunables.pkey_index)?))
    });
    let warnings = warnings.collect();
    let mut notes = Vec::new();
    for (name, patterns) in [("if_include", &tunables.if_include), ("if_exclude", &tunables.if_exclude)] {
        notes.extend(
            unmatched(patterns, devices).map(|pattern| {
                format!("btl_ibex_{name}: no port of this host fits \"{pattern}\" ({})", names(devices))
            }),
        );
    }
    Selection { considered, notes, warnings }
}

fn refused(name: String, description: String, reason: String) -> Considered {
    Considered { name, description, chosen: None, reason, gids: Vec::new() }
}

fn consider(place: usize, device: &DeviceInfo, port: &PortInfo, tunables: &Tunables) -> Considered {
    let name = format!("{}:{}", device.name, port.number);
    let description = describe(device, port);
    if let Err(reason) = permitted(device, port, tunables).and_then(|()| port::usable(port, tunables)) {
        return refused(name, description, reason);
    }
    let choice = gid::choose(&port.gids, port.link_layer, tunables.forced_gid_index());
    match choice.taken {
        Err(reason) => Considered { gids: choice.verdicts, ..refused(name, description, reason) },
        Ok(gid) => {
            let forced = tunables.forced_mtu().and_then(crate::select::address::mtu_code);
            let mtu = forced.unwrap_or(port.active_mtu);
            let reason = format!("it is active and permitted; GID {gid}");
            let chosen = Chosen { device: place, device_name: device.name.clone(), port: port.number, gid, mtu };
            Considered { name, description, chosen: Some(chosen), reason, gids: choice.verdicts }
        }
    }
}

fn describe(device: &DeviceInfo, port: &PortInfo) -> String {
    let layer = match port.link_layer {
        LINK_INFINIBAND => format!("InfiniBand, LID {}", port.lid),
        LINK_ETHERNET => "Ethernet".to_owned(),
        other => format!("link layer {other}"),
    };
    let mtu = mtu_bytes(port.active_mtu).map_or_else(|| format!("code {}", port.active_mtu), |bytes| bytes.to_string());
    let distance = device.distance.map_or_else(|| "not known".to_owned(), |distance| distance.to_string());
    format!("{layer}, {} Mb/s, MTU {mtu}, NUMA distance {distance}", port.rate_mbps)
}

fn permitted(device: &DeviceInfo, port: &PortInfo, tunables: &Tunables) -> Result<(), String> {
    let fits = |patterns: &str| {
        split(patterns).find(|pattern| pattern_fits(pattern, &device.name, port.number)).map(str::to_owned)
    };
    if split(&tunables.if_include).next().is_some() && fits(&tunables.if_include).is_none() {
        return Err(format!("btl_ibex_if_include does not name it (it is \"{}\")", tunables.if_include));
    }
    match fits(&tunables.if_exclude) {
        Some(pattern) => Err(format!("btl_ibex_if_exclude names it with \"{pattern}\"")),
        None => Ok(()),
    }
}

/// Refuses ports that are farther away than the nearest usable port. A port of unknown distance counts as near.
fn refuse_far(considered: &mut [Considered], devices: &[DeviceInfo]) {
    let distance = |port: &Considered| port.chosen.as_ref().map(|chosen| devices[chosen.device].distance);
    let known = considered.iter().filter_map(distance).flatten().min();
    let Some(nearest) = known else { return };
    for port in considered {
        if let Some(Some(far)) = distance(port).filter(|distance| distance.is_some_and(|far| far > nearest)) {
            port.chosen = None;
            port.reason = format!(
                "it is far from where this process runs (NUMA distance {far}, the nearest port has {nearest}); \
                 set btl_ibex_ignore_locality to true to use it"
            );
        }
    }
}

/// Refuses ports with less than `percent` of the fastest port's rate, because ob1 gives each port a turn.
fn refuse_slow(considered: &mut [Considered], devices: &[DeviceInfo], percent: u64) {
    let rate = |port: &Considered| Some(u64::from(info(port.chosen.as_ref()?, devices)?.rate_mbps));
    let Some(fastest) = considered.iter().filter_map(rate).max() else { return };
    for port in considered {
        if let Some(rate) = rate(port).filter(|rate| rate * 100 < fastest * percent) {
            port.chosen = None;
            port.reason = format!(
                "it is slow: {rate} Mb/s, and the fastest port has {fastest} (btl_ibex_min_rate is {percent} percent); name it \
                 in btl_ibex_if_include to use it"
            );
        }
    }
}

fn info<'a>(chosen: &Chosen, devices: &'a [DeviceInfo]) -> Option<&'a PortInfo> {
    devices[chosen.device].ports.iter().find(|port| port.number == chosen.port)
}

fn refuse_surplus(considered: &mut [Considered]) {
    for port in considered.iter_mut().filter(|port| port.chosen.is_some()).skip(MAX_PORTS) {
        port.chosen = None;
        port.reason = format!(
            "{MAX_PORTS} ports are in use already, and a process can have no more; choose with btl_ibex_if_include"
        );
    }
}

fn split(patterns: &str) -> impl Iterator<Item = &str> {
    patterns.split(',').map(str::trim).filter(|pattern| !pattern.is_empty())
}

fn unmatched<'a>(patterns: &'a str, devices: &'a [DeviceInfo]) -> impl Iterator<Item = &'a str> {
    split(patterns).filter(|pattern| {
        !devices.iter().any(|device| {
            device.ports.iter().any(|port| pattern_fits(pattern, &device.name, port.number))
                || (device.ports.is_empty() && pattern_fits(pattern, &device.name, 1))
        })
    })
}

fn names(devices: &[DeviceInfo]) -> String {
    if devices.is_empty() {
        return "it has no RDMA device".to_owned();
    }
    let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    format!("its devices: {}", names.join(", "))
}

/// Whether `pattern`, a device's name and optionally `:` and a port, both with `*` and `?`, matches this port.
fn pattern_fits(pattern: &str, device: &str, port: u8) -> bool {
    let (name, number) = pattern.split_once(':').unwrap_or((pattern, "*"));
    glob(name.as_bytes(), device.as_bytes()) && glob(number.as_bytes(), port.to_string().as_bytes())
}

/// Shell-style matching of the whole text: `*` any characters, `?` one, anything else itself.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        // Every position where the rest could begin; patterns are short, and the user's own.
        Some((b'*', rest)) => (0..=text.len()).any(|skipped| glob(rest, &text[skipped..])),
        Some((b'?', rest)) => text.split_first().is_some_and(|(_, text)| glob(rest, text)),
        Some((letter, rest)) => text.split_first().is_some_and(|(first, text)| first == letter && glob(rest, text)),
    }
}

impl Selection {
    /// The ports to use, in the order of publication.
    pub fn chosen(&self) -> impl Iterator<Item = &Chosen> {
        self.considered.iter().filter_map(|port| port.chosen.as_ref())
    }

    /// The message if there is no port to use: every port with its reason, and advice.
    pub(crate) fn no_port_message(&self) -> String {
        let mut text = if self.considered.is_empty() {
            "ibex found no RDMA device on this host. Look at `ibv_devices` and `rdma link`: an adapter needs its driver and the \
             module ib_uverbs; a network interface without one can have a software device \
             (rdma link add rxe0 type rxe netdev eth0)."
                .to_owned()
        } else {
            let lines: Vec<String> = self.considered.iter().map(Considered::line).collect();
            format!("ibex found no RDMA port it could use on this host:\n  {}", lines.join("\n  "))
        };
        for note in &self.notes {
            text.push_str("\n  ");
            text.push_str(note);
        }
        text
    }
}

impl Considered {
    fn line(&self) -> String {
        let verdict = if self.chosen.is_some() { "taken" } else { "refused" };
        let description = if self.description.is_empty() { String::new() } else { format!(" ({})", self.description) };
        format!("port {}{description} {verdict}: {}", self.name, self.reason)
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.considered.is_empty() {
            writeln!(f, "no RDMA device on this host")?;
        }
        for port in &self.considered {
            writeln!(f, "{}", port.line())?;
            for GidVerdict { gid, taken, reason } in &port.gids {
                writeln!(f, "  GID {gid} {}: {reason}", if *taken { "taken" } else { "refused" })?;
            }
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}"))
    }
}
