// SPDX-License-Identifier: MIT OR Apache-2.0
//! What differs between hosts and must not, or keeps their ports apart.
//!
//! Each host is compared with the first; networks are compared in pairs. Called by [`super`]. Grade: setup. Tests:
//! below.

use super::finding::{Finding, Severity};
use crate::facts::Facts;
use crate::facts::adapters::Port;

/// Judges them.
pub(super) fn judge(hosts: &[&Facts]) -> Vec<Finding> {
    let Some((first, others)) = hosts.split_first() else { return Vec::new() };
    let mut findings = Vec::new();
    for other in others {
        findings.extend(differs(
            first,
            other,
            "ibex-version",
            |host| host.ibex.clone(),
            "install the same ibex on all hosts",
        ));
        let openmpi = |host: &Facts| host.openmpi.as_ref().map_or_else(String::new, |openmpi| openmpi.version.clone());
        findings.extend(differs(first, other, "openmpi-version", openmpi, "install the same Open MPI on all hosts"));
        findings.extend(differs(first, other, "mtu-of-hosts", mtus, "set the same MTU on the interfaces of all hosts"));
        findings.extend(differs(
            first,
            other,
            "gid-types",
            kinds,
            "give the interfaces of all hosts an IP address, or set btl_ibex_gid_index",
        ));
    }
    for (index, one) in hosts.iter().enumerate() {
        findings.extend(hosts[index + 1..].iter().filter_map(|other| apart(one, other)));
    }
    findings
}

fn differs(
    one: &Facts,
    other: &Facts,
    check: &'static str,
    of: impl Fn(&Facts) -> String,
    mend: &str,
) -> Option<Finding> {
    let (ours, theirs) = (of(one), of(other));
    // What is missing is said of the host alone.
    if ours == theirs || ours.is_empty() || theirs.is_empty() {
        return None;
    }
    let found = format!("{} has {ours}, and {} has {theirs}", one.host.name, other.host.name);
    Some(Finding::new(Severity::Warning, check, pair(one, other), found).expected("the same on both").mended(mend))
}

fn pair(one: &Facts, other: &Facts) -> String {
    format!("{} and {}", one.host.name, other.host.name)
}

fn used(host: &Facts) -> impl Iterator<Item = &Port> {
    host.adapters.each.iter().flat_map(|adapter| &adapter.ports).filter(|port| port.is_taken)
}

fn listed<T: Ord + ToString>(values: impl Iterator<Item = T>) -> String {
    let mut values: Vec<T> = values.collect();
    values.sort();
    values.dedup();
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn mtus(host: &Facts) -> String {
    listed(used(host).map(|port| port.mtu))
}

fn kinds(host: &Facts) -> String {
    let kind = |port: &Port| {
        let gid = port.gids.iter().find(|gid| gid.is_taken)?;
        Some(match gid.kind {
            0 => "InfiniBand",
            1 => "RoCE v1",
            _ => "RoCE v2",
        })
    };
    listed(used(host).filter_map(kind))
}

/// Two hosts none of whose ports are in one network.
fn apart(one: &Facts, other: &Facts) -> Option<Finding> {
    let networks =
        |host: &Facts| listed(used(host).map(|port| port.subnet.clone()).filter(|subnet| !subnet.is_empty()));
    let (ours, theirs) = (networks(one), networks(other));
    let meet = |subnet: &str| theirs.split(", ").any(|other| other == subnet);
    if ours.is_empty() || theirs.is_empty() || ours.split(", ").any(meet) {
        return None;
    }
    let found = format!("{} is in {ours}, and {} in {theirs}", one.host.name, other.host.name);
    let finding = Finding::new(Severity::Warning, "subnets", pair(one, other), found);
    Some(
        finding
            .expected("ports of one network, or a router between them")
            .mended("name ports that meet with btl_ibex_if_include, or see that the networks are routed"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::adapters::{Adapter, Adapters};
    use crate::facts::host::Host;

    fn host(name: &str, mtu: u32, subnet: &str) -> Facts {
        let port = Port { is_taken: true, mtu, subnet: subnet.into(), ..Port::default() };
        let adapters =
            Adapters { each: vec![Adapter { ports: vec![port], ..Adapter::default() }], ..Adapters::default() };
        Facts { ibex: "1".into(), host: Host { name: name.into(), ..Host::default() }, adapters, openmpi: None }
    }

    fn checks(hosts: &[&Facts]) -> Vec<&'static str> {
        judge(hosts).into_iter().map(|finding| finding.check).collect()
    }

    #[test]
    fn hosts_that_are_alike_are_left_in_peace() {
        assert!(checks(&[&host("a", 4096, "10.0.0.0/24"), &host("b", 4096, "10.0.0.0/24")]).is_empty());
        assert!(checks(&[]).is_empty());
    }

    #[test]
    fn what_differs_between_hosts_is_found() {
        let a = host("a", 4096, "10.0.0.0/24");
        assert_eq!(checks(&[&a, &host("b", 1024, "10.0.0.0/24")]), ["mtu-of-hosts"]);
        assert_eq!(checks(&[&a, &host("b", 4096, "10.0.1.0/24")]), ["subnets"]);
        assert_eq!(checks(&[&a, &Facts { ibex: "2".into(), ..a.clone() }]), ["ibex-version"]);
    }
}
