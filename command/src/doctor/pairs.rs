// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings about connections that failed or cannot be used, with the engine's messages from both sides. Called by
//! [`super`]. Grade: setup. Tests: below.

use super::finding::{Connection, Finding, Severity};
use super::protocol::{Link, Reached};
use super::session::{Host, Met};
use ibex::tunables::Tunables;

/// A connection of two ports, as each side reports it.
struct Both<'a> {
    hosts: [&'a Host; 2],
    links: [Option<&'a Link>; 2],
}

fn connections<'a>(hosts: &'a [Host], met: &'a Met) -> Vec<Both<'a>> {
    let pair = [&hosts[met.hosts.0], &hosts[met.hosts.1]];
    let other = |link: &Link| met.links.1.iter().find(|other| other.index == link.remote);
    let ours = met.links.0.iter().map(|link| Both { hosts: pair, links: [Some(link), other(link)] });
    // Connections that only the second host reports.
    let alone = met.links.1.iter().filter(|link| !met.links.0.iter().any(|ours| ours.remote == link.index));
    ours.chain(alone.map(|link| Both { hosts: pair, links: [None, Some(link)] })).collect()
}

pub(super) fn judge(hosts: &[Host], meetings: &[Met], tunables: &Tunables) -> Vec<Finding> {
    let mut findings = Vec::new();
    for met in meetings {
        let connections = connections(hosts, met);
        if connections.is_empty() {
            findings.extend(unpaired(&hosts[met.hosts.0], &hosts[met.hosts.1]));
        }
        for both in &connections {
            findings.extend(both.failed());
            findings.extend(both.told());
        }
        // A firewall affects hosts, so one finding per pair of hosts is enough.
        findings.extend(connections.iter().find_map(|both| both.unanswered(tunables)));
    }
    findings
}

pub(super) fn list(hosts: &[Host], meetings: &[Met]) -> Vec<Connection> {
    let all = meetings.iter().flat_map(|met| connections(hosts, met));
    all.map(|both| Connection {
        hosts: both.hosts.map(|host| host.facts.host.name.clone()),
        ports: both.links.map(|link| link.map_or_else(String::new, |link| link.port.clone())),
        milliseconds: both.links.into_iter().flatten().filter_map(|link| link.milliseconds).reduce(f64::max),
        failure: both.failure(),
    })
    .collect()
}

fn pair(hosts: [&Host; 2]) -> String {
    format!("{} and {}", hosts[0].facts.host.name, hosts[1].facts.host.name)
}

fn unpaired(one: &Host, other: &Host) -> Option<Finding> {
    let ports = |host: &Host| {
        let all =
            host.facts.adapters.each.iter().flat_map(|adapter| adapter.ports.iter().map(move |port| (adapter, port)));
        let used = all.filter(|(_, port)| port.is_taken && host.has_ports).map(|(adapter, port)| {
            let gid = port.gids.iter().find(|gid| gid.is_taken).map_or(port.subnet.as_str(), |gid| gid.entry.as_str());
            format!("{}:{} with GID {gid}", adapter.name, port.number)
        });
        used.collect::<Vec<_>>().join(", ")
    };
    let (ours, theirs) = (ports(one), ports(other));
    if ours.is_empty() || theirs.is_empty() {
        return None;
    }
    let found = format!("{} has {ours}, and {} has {theirs}", one.facts.host.name, other.facts.host.name);
    let finding = Finding::new(Severity::Error, "connection", pair([one, other]), found);
    let mend = "give both hosts ports of one network: the same subnet prefix (opensm's subnet_prefix), or the same type of \
                GID (RoCE v2, an IP address of one family); name them with btl_ibex_if_include";
    Some(finding.expected("ports of both hosts that a job can connect").mended(mend))
}

impl Both<'_> {
    fn place(&self) -> String {
        let end = |side: usize| {
            let name = &self.hosts[side].facts.host.name;
            self.links[side].map_or_else(|| name.clone(), |link| format!("{name} {}", link.port))
        };
        format!("{} and {}", end(0), end(1))
    }

    fn reached(&self) -> Reached {
        self.links.into_iter().flatten().map(|link| link.reached).min().unwrap_or_default()
    }

    /// Returns why it failed, as both sides report it. If one side knows the reason, the other's time-out is left out.
    fn failure(&self) -> Option<String> {
        let words = |of: fn(&Link) -> Option<&String>| {
            let sides = self.hosts.iter().zip(self.links);
            let words = sides.filter_map(|(host, link)| Some(format!("{} says: {}", host.facts.host.name, of(link?)?)));
            Some(words.collect::<Vec<_>>().join("; ")).filter(|words| !words.is_empty())
        };
        words(|link| link.failure.as_ref()).or_else(|| words(|link| link.silence.as_ref()))
    }

    fn failed(&self) -> Option<Finding> {
        let why = self.failure()?;
        let (found, mend) = match self.reached() {
            // Only long messages have packets as long as the MTU.
            Reached::Short | Reached::Long => (
                format!("short messages pass, but those of 16 KiB do not: {why}"),
                "set the same MTU on the interfaces of both hosts and on all switches between them (on Ethernet test it: \
                 ping -M do -s 4200 ADDRESS), or lower btl_ibex_mtu"
                    .to_owned(),
            ),
            Reached::Nothing => (why, self.mend()),
        };
        let finding = Finding::new(Severity::Error, "connection", self.place(), found);
        Some(finding.expected("messages in both directions").mended(mend))
    }

    /// Returns the advice if no message passes.
    fn mend(&self) -> String {
        let ports =
            self.hosts.iter().flat_map(|host| host.facts.adapters.each.iter().flat_map(|adapter| &adapter.ports));
        let is_ethernet = ports.filter(|port| port.is_taken).any(|port| port.link_layer == "Ethernet");
        let fabric = if is_ethernet {
            "let UDP port 4791 through firewalls, both ways, and ping the address of one port from the other; check that both have \
             the same type of GID and are in one VLAN or have a router between them"
        } else {
            "check that both ports are cabled to one fabric (iblinkinfo, ibping), and name those of one fabric with \
             btl_ibex_if_include; see that they are in one partition (btl_ibex_pkey_index)"
        };
        format!(
            "{fabric}; let TCP through between the hosts, to the ports of net.ipv4.ip_local_port_range (docs/connecting.md)"
        )
    }

    /// Reports addresses that do not answer over TCP, which handshakes need when datagrams are lost or a peer computes.
    fn unanswered(&self, tunables: &Tunables) -> Option<Finding> {
        let is_lost = |link: &&Link| !link.unanswered.is_empty();
        let sides = self.hosts.iter().zip(self.links);
        let words = sides.filter_map(|(host, link)| {
            let link = link.filter(is_lost)?;
            Some(format!("{} does not reach {}", host.facts.host.name, link.unanswered.join(", ")))
        });
        let words = words.collect::<Vec<_>>().join("; ");
        if words.is_empty() {
            return None;
        }
        let severity = if tunables.connect_via == "tcp" { Severity::Error } else { Severity::Warning };
        let finding = Finding::new(severity, "firewall", pair(self.hosts), words);
        let mend = "let TCP through between the hosts of a job, to the ports of net.ipv4.ip_local_port_range; name an open network \
                    with btl_ibex_tcp_if_include; or disable TCP with btl_ibex_connect_via ud";
        Some(finding.expected("an answer over TCP, which handshakes use when datagrams are lost").mended(mend))
    }

    /// Reports a connection that differs from the pairing by addresses, in the engine's words.
    fn told(&self) -> Option<Finding> {
        let told = self.links.into_iter().flatten().flat_map(|link| &link.told);
        let told = told.filter(|line| line.contains("to which the order of ports pairs"));
        let told: Vec<&str> = told.map(String::as_str).collect();
        if told.is_empty() || self.failure().is_some() {
            return None;
        }
        let finding = Finding::new(Severity::Warning, "cabling", self.place(), told.join("; "));
        let mend = "give each fabric a subnet prefix of its own (opensm's subnet_prefix), or cable all hosts alike";
        Some(finding.expected("connections as the addresses pair the ports").mended(mend))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::adapters::{Adapter, Adapters, Port};
    use crate::facts::{Facts, host};

    fn host(name: &str) -> Host {
        let port =
            Port { number: 1, is_taken: true, link_layer: "Ethernet".into(), subnet: name.into(), ..Port::default() };
        let adapter = Adapter { name: "mlx5_0".into(), ports: vec![port], ..Adapter::default() };
        let adapters = Adapters { each: vec![adapter], ..Adapters::default() };
        let host = host::Host { name: name.into(), ..host::Host::default() };
        Host { facts: Facts { host, adapters, ..Facts::default() }, has_ports: true, ..Host::default() }
    }

    fn met(one: Link, other: Link) -> [Met; 1] {
        [Met { hosts: (0, 1), links: (vec![one], vec![other]) }]
    }

    fn link() -> Link {
        Link { port: "mlx5_0:1 (LID 1)".into(), reached: Reached::Long, milliseconds: Some(2.0), ..Link::default() }
    }

    #[test]
    fn a_connected_pair_has_no_findings() {
        let hosts = [host("a"), host("b")];
        let meetings = met(link(), link());
        assert!(judge(&hosts, &meetings, &Tunables::default()).is_empty());
        let listed = list(&hosts, &meetings);
        assert_eq!(listed.len(), 1);
        assert_eq!((listed[0].milliseconds, listed[0].failure.is_none()), (Some(2.0), true));
    }

    #[test]
    fn a_failed_pair_is_found_with_both_ends_and_the_engines_reasons() {
        let hosts = [host("a"), host("b")];
        let failed = Link { failure: Some("no answer".into()), reached: Reached::Nothing, ..link() };
        let found = judge(&hosts, &met(failed.clone(), link()), &Tunables::default());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].place, "a mlx5_0:1 (LID 1) and b mlx5_0:1 (LID 1)");
        assert!(found[0].measured.contains("a says: no answer") && found[0].mend.contains("4791"), "{found:?}");
        let long = Link { reached: Reached::Short, ..failed };
        let found = judge(&hosts, &met(link(), long), &Tunables::default());
        assert!(found[0].measured.contains("16 KiB") && found[0].mend.contains("MTU"), "{found:?}");
    }

    #[test]
    fn unpaired_ports_and_a_filtered_handshake_are_found() {
        let hosts = [host("a"), host("b")];
        let none = [Met { hosts: (0, 1), links: (vec![], vec![]) }];
        let found = judge(&hosts, &none, &Tunables::default());
        assert!(found[0].measured.contains("mlx5_0:1 with GID a, and b has mlx5_0:1 with GID b"), "{found:?}");
        let filtered = Link { unanswered: vec!["10.0.0.2:40000: timed out".into()], ..link() };
        let found = judge(&hosts, &met(filtered.clone(), link()), &Tunables::default());
        assert_eq!((found[0].check, found[0].severity), ("firewall", Severity::Warning));
        let alone = Tunables { connect_via: "tcp".into(), ..Tunables::default() };
        assert_eq!(judge(&hosts, &met(filtered, link()), &alone)[0].severity, Severity::Error);
    }
}
