// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings about a host's adapters and their ports. The engine gives the reason why a port is not used. Called by
//! [`super`]. Grade: setup. Tests: below.

use super::finding::{Finding, Severity};
use crate::facts::adapters::{Adapter, Adapters, Pci, Port};
use ibex::select::address::GID_ROCE_V2;

/// The largest MTU of InfiniBand.
const MTU: u32 = 4096;

/// Mb/s of a lane at the first speed of InfiniBand.
const SDR: u32 = 2000;

/// A port is slow beside another one that has more than this many times its rate.
const SLOW: u32 = 4;

pub(super) fn judge(adapters: &Adapters) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !adapters.complaint.is_empty() {
        let said = adapters.complaint.lines().map(str::trim).collect::<Vec<_>>().join(" ");
        let finding = Finding::new(Severity::Error, "no-port", "RDMA ports", said);
        findings.push(
            finding
                .expected("a port that ibex can use")
                .mended("follow the reason given for each port; `ibex info` shows all"),
        );
    }
    for adapter in &adapters.each {
        findings.extend(unusable(adapter));
        findings.extend(adapter.facts.as_ref().and_then(|facts| facts.pci.as_ref()).and_then(|pci| bus(adapter, pci)));
        for port in &adapter.ports {
            let place = format!("port {}:{}", adapter.name, port.number);
            findings.extend(state(&place, port).or_else(|| mtu(&place, port)));
            findings.extend(gids(&place, port));
            findings.extend(link(&place, port));
        }
    }
    findings.extend(rates(adapters));
    findings.extend(adapters.warnings.iter().map(|warning| {
        let finding = Finding::new(Severity::Warning, "partition", "RDMA ports", warning.as_str());
        finding
            .expected("a full member of the partition")
            .mended("make the port a full member in the subnet manager, or set btl_ibex_pkey_index")
    }));
    findings
}

fn unusable(adapter: &Adapter) -> Option<Finding> {
    let why = adapter.unusable.as_ref()?;
    let finding = Finding::new(Severity::Error, "adapter", format!("adapter {}", adapter.name), why.as_str());
    Some(finding.expected("an adapter that can be opened").mended("follow the reason"))
}

/// Reports a slot with fewer or slower lanes than the adapter supports.
fn bus(adapter: &Adapter, pci: &Pci) -> Option<Finding> {
    if pci.speed == pci.max_speed && pci.width >= pci.max_width {
        return None;
    }
    let found = format!("its PCI Express link has {} lanes of {}", pci.width, pci.speed);
    let finding = Finding::new(Severity::Warning, "pci-link", format!("adapter {}", adapter.name), found);
    let expected = format!("{} lanes of {}", pci.max_width, pci.max_speed);
    Some(finding.expected(expected).mended("move it to another slot; check the firmware's settings for the slot"))
}

fn state(place: &str, port: &Port) -> Option<Finding> {
    let mend = match port.state.as_str() {
        "active" => return None,
        "down" => "check cable and switch; on Ethernet `ip link set INTERFACE up`",
        "initialising" | "armed" => "start a subnet manager (opensm), or enable the switch's",
        _ => "check the kernel's log",
    };
    let finding = Finding::new(Severity::Warning, "port-state", place, format!("it is {}", port.state));
    Some(finding.expected("active").mended(mend))
}

fn mtu(place: &str, port: &Port) -> Option<Finding> {
    if port.mtu >= MTU {
        return None;
    }
    let mend = match port.interfaces.first() {
        Some(interface) => format!("ip link set {interface} mtu 9000, on all hosts and switches between them"),
        None if port.link_layer == "Ethernet" => {
            "raise the MTU of its network interface to 9000, on all hosts and switches".to_owned()
        }
        None => "set the partition's MTU to 4096 in the subnet manager (opensm's partitions.conf: mtu=5)".to_owned(),
    };
    let finding = Finding::new(Severity::Warning, "mtu", place, format!("its active MTU is {}", port.mtu));
    Some(finding.expected(format!("{MTU}: fewer packets for the same bytes")).mended(mend))
}

/// Reports an InfiniBand link that trained to one lane of several, or to the lowest speed.
fn link(place: &str, port: &Port) -> Option<Finding> {
    if port.link_layer != "InfiniBand" || port.state != "active" || port.lanes == 0 {
        return None;
    }
    let is_slowest = port.rate_mbps / port.lanes <= SDR;
    let found = match (port.lanes, is_slowest) {
        (1, true) => "it runs on one lane, at the speed SDR",
        (1, false) => "it runs on one lane",
        (_, true) => "it runs at the speed SDR",
        _ => return None,
    };
    let finding = Finding::new(Severity::Warning, "link", place, found);
    let mend = "clean or replace cable and transceivers; check the width and speed that the switch's port allows (ibportstate, \
                iblinkinfo), and take the link down and up (ibportstate LID PORT reset)";
    Some(finding.expected("four lanes, at the speed of the adapter").mended(mend))
}

/// Reports a missing RoCE v2 GID with an IP address: on Ethernet no other passes routers and identifies its network.
fn gids(place: &str, port: &Port) -> Option<Finding> {
    let is_routed = |gid: &crate::facts::adapters::Gid| {
        gid.kind == GID_ROCE_V2 && (gid.address.to_ipv4_mapped().is_some() || !gid.address.is_unicast_link_local())
    };
    if port.link_layer != "Ethernet" || port.gids.is_empty() || port.gids.iter().any(is_routed) {
        return None;
    }
    let kinds: Vec<&str> = port.gids.iter().map(|gid| gid.entry.as_str()).collect();
    let finding = Finding::new(Severity::Warning, "gid-type", place, format!("its GIDs are {}", kinds.join("; ")));
    Some(
        finding
            .expected("one of RoCE v2 with an IP address")
            .mended("give its network interface an IP address (ip addr add)"),
    )
}

/// Reports ports with very different rates: the slow ones delay the others, or are not used.
fn rates(adapters: &Adapters) -> Option<Finding> {
    let active = |port: &&Port| port.state == "active" && port.rate_mbps > 0;
    let ports =
        adapters.each.iter().flat_map(|adapter| adapter.ports.iter().filter(active).map(move |port| (adapter, port)));
    let ports: Vec<_> = ports.collect();
    let (slow, fast) =
        (ports.iter().min_by_key(|(_, port)| port.rate_mbps)?, ports.iter().max_by_key(|(_, port)| port.rate_mbps)?);
    if slow.1.rate_mbps >= fast.1.rate_mbps / SLOW {
        return None;
    }
    let name = |(adapter, port): &(&Adapter, &Port)| format!("{}:{}", adapter.name, port.number);
    let found = format!("{} has {} Mb/s, and {} has {}", name(slow), slow.1.rate_mbps, name(fast), fast.1.rate_mbps);
    let finding = Finding::new(Severity::Warning, "rates", "RDMA ports", found);
    let mend = format!(
        "find out why the link is slow (cable, switch); if this is intended: btl_ibex_if_exclude {}",
        name(slow)
    );
    Some(finding.expected("ports of about the same rate").mended(mend))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::adapters::{Facts, Gid};

    fn port() -> Port {
        Port {
            number: 1,
            state: "active".into(),
            link_layer: "Ethernet".into(),
            rate_mbps: 100_000,
            mtu: 4096,
            is_taken: true,
            gids: vec![Gid {
                entry: "0".into(),
                address: "::ffff:10.0.0.1".parse().expect("an address"),
                kind: GID_ROCE_V2,
                is_taken: true,
                reason: String::new(),
            }],
            ..Port::default()
        }
    }

    fn checks(ports: Vec<Port>, pci: Option<Pci>) -> Vec<&'static str> {
        let facts = Some(Facts { pci, ..Facts::default() });
        let adapter = Adapter { name: "mlx5_0".into(), facts, ports, ..Adapter::default() };
        let adapters = Adapters { each: vec![adapter], ..Adapters::default() };
        judge(&adapters).into_iter().map(|finding| finding.check).collect()
    }

    #[test]
    fn a_sound_port_has_no_findings() {
        let pci = Pci { speed: "16.0 GT/s PCIe".into(), width: 16, max_speed: "16.0 GT/s PCIe".into(), max_width: 16 };
        assert!(checks(vec![port(), port()], Some(pci)).is_empty());
    }

    #[test]
    fn an_adapter_without_permission_and_a_host_without_a_port_are_findings() {
        let unusable = Some("it could not be opened: /dev/infiniband/uverbs0: Permission denied".to_owned());
        let each = vec![Adapter { name: "mlx5_0".into(), unusable, ..Adapter::default() }];
        let complaint = "ibex found no port:\n  mlx5_0 refused: Permission denied\n".to_owned();
        let found = judge(&Adapters { each, complaint, ..Adapters::default() });
        assert_eq!(found.iter().map(|finding| finding.check).collect::<Vec<_>>(), ["no-port", "adapter"]);
        assert!(found.iter().all(|finding| finding.measured.contains("Permission denied")), "{found:?}");
    }

    #[test]
    fn each_fault_of_a_port_is_found() {
        assert_eq!(checks(vec![Port { state: "down".into(), mtu: 256, ..port() }], None), ["port-state"]);
        assert_eq!(checks(vec![Port { state: "armed".into(), ..port() }], None), ["port-state"]);
        assert_eq!(checks(vec![Port { mtu: 1024, ..port() }], None), ["mtu"]);
        assert_eq!(checks(vec![Port { rate_mbps: 10_000, ..port() }, port()], None), ["rates"]);
        let infiniband = |lanes, rate_mbps| Port { link_layer: "InfiniBand".into(), lanes, rate_mbps, ..port() };
        assert_eq!(checks(vec![infiniband(1, 25_000)], None), ["link"]);
        assert_eq!(checks(vec![infiniband(4, 8_000)], None), ["link"]);
        assert!(checks(vec![infiniband(4, 100_000)], None).is_empty());
        let local = Gid { address: "fe80::1".parse().expect("an address"), ..port().gids.remove(0) };
        assert_eq!(checks(vec![Port { gids: vec![local], ..port() }], None), ["gid-type"]);
        let pci = Pci { speed: "8.0 GT/s PCIe".into(), width: 8, max_speed: "16.0 GT/s PCIe".into(), max_width: 16 };
        assert_eq!(checks(vec![port()], Some(pci)), ["pci-link"]);
    }
}
