// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings about differences between hosts, and about ports that cannot connect. Each host is compared with the first;
//! networks are compared in pairs. Called by [`super`]. Grade: setup. Tests: below.

use super::finding::{Finding, Severity};
use crate::facts::Facts;
use crate::facts::adapters::Port;

/// Two hosts whose rates differ by this factor or more are unequal.
const SLOW: u32 = 4;

const FULL: u16 = 0x8000;

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
        let mend = "set parameters for all hosts: with mpirun --mca, or in a parameter file in a shared folder";
        findings.extend(differs(first, other, "parameters", parameters, mend));
        let ports = |host: &Facts| used(host).next().map_or_else(String::new, |_| used(host).count().to_string());
        findings.extend(differs(first, other, "rails", ports, "`ibex info` says why ports of one host are not used"));
        findings.extend(unequal(first, other));
    }
    for (index, one) in hosts.iter().enumerate() {
        for other in &hosts[index + 1..] {
            findings.extend([apart(one, other), separated(one, other)].into_iter().flatten());
        }
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
    // A missing part is a finding of that host alone.
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
            .mended("name ports of one network with btl_ibex_if_include, or check that the networks are routed"),
    )
}

/// Returns parameters that all hosts should share. Lists of ports and interfaces may differ from host to host.
fn parameters(host: &Facts) -> String {
    let is_shared =
        |set: &&String| !["_if_include=", "_if_exclude=", "_gid_index="].iter().any(|own| set.contains(own));
    let set = listed(host.adapters.parameters.iter().filter(is_shared));
    if set.is_empty() { "no parameter set".to_owned() } else { set }
}

fn unequal(one: &Facts, other: &Facts) -> Option<Finding> {
    let rate = |host: &Facts| used(host).map(|port| port.rate_mbps).max().unwrap_or(0);
    let (ours, theirs) = (rate(one), rate(other));
    if ours == 0 || theirs == 0 || ours.max(theirs) < SLOW * ours.min(theirs) {
        return None;
    }
    let found = format!("{} has {ours} Mb/s, and {} has {theirs}", one.host.name, other.host.name);
    let finding = Finding::new(Severity::Warning, "rates-of-hosts", pair(one, other), found);
    let mend =
        "find out why the slower link is slow (cable, switch, configured speed), or use the hosts in separate jobs";
    Some(finding.expected("networks of about the same rate").mended(mend))
}

/// Reports two hosts whose ports share no partition, or only as limited members, which cannot communicate.
fn separated(one: &Facts, other: &Facts) -> Option<Finding> {
    let keys = |host: &Facts| used(host).filter_map(|port| port.partition_key).collect::<Vec<u16>>();
    let (ours, theirs) = (keys(one), keys(other));
    let meet = |(one, other): (&u16, &u16)| (one ^ other) & !FULL == 0 && (one | other) & FULL != 0;
    if ours.is_empty() || theirs.is_empty() || ours.iter().any(|one| theirs.iter().any(|other| meet((one, other)))) {
        return None;
    }
    let said = |keys: &[u16]| keys.iter().map(|key| format!("{key:#06x}")).collect::<Vec<_>>().join(", ");
    let found = format!("{} has {}, and {} has {}", one.host.name, said(&ours), other.host.name, said(&theirs));
    let finding = Finding::new(Severity::Error, "partition-keys", pair(one, other), found);
    let mend = "put both into one partition in the subnet manager (opensm's partitions.conf), one as a full member; or \
                set the partition's table index with btl_ibex_pkey_index";
    Some(finding.expected("a common partition, with one of them as a full member (bit 15)").mended(mend))
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
        Facts { ibex: "1".into(), host: Host { name: name.into(), ..Host::default() }, adapters, ..Facts::default() }
    }

    fn checks(hosts: &[&Facts]) -> Vec<&'static str> {
        judge(hosts).into_iter().map(|finding| finding.check).collect()
    }

    #[test]
    fn equal_hosts_have_no_findings() {
        assert!(checks(&[&host("a", 4096, "10.0.0.0/24"), &host("b", 4096, "10.0.0.0/24")]).is_empty());
        assert!(checks(&[]).is_empty());
    }

    #[test]
    fn differences_between_hosts_are_found() {
        let a = host("a", 4096, "10.0.0.0/24");
        assert_eq!(checks(&[&a, &host("b", 1024, "10.0.0.0/24")]), ["mtu-of-hosts"]);
        assert_eq!(checks(&[&a, &host("b", 4096, "10.0.1.0/24")]), ["subnets"]);
        assert_eq!(checks(&[&a, &Facts { ibex: "2".into(), ..a.clone() }]), ["ibex-version"]);
        let mut set = a.clone();
        set.adapters.parameters = vec!["btl_ibex_if_include=x".into()];
        assert!(checks(&[&a, &set]).is_empty());
        set.adapters.parameters.push("btl_ibex_mtu=1024".into());
        assert_eq!(checks(&[&a, &set]), ["parameters"]);
    }

    #[test]
    fn partitions_rates_and_numbers_of_ports_are_compared() {
        let with = |key, rate| {
            let mut host = host("a", 4096, "10.0.0.0/24");
            (host.adapters.each[0].ports[0].partition_key, host.adapters.each[0].ports[0].rate_mbps) =
                (Some(key), rate);
            host
        };
        assert!(checks(&[&with(0xffff, 100), &with(0x7fff, 100)]).is_empty());
        assert_eq!(checks(&[&with(0x7fff, 100), &with(0x7fff, 100)]), ["partition-keys"]);
        assert_eq!(checks(&[&with(0x8001, 100), &with(0x8002, 100)]), ["partition-keys"]);
        assert_eq!(checks(&[&with(0xffff, 100), &with(0xffff, 400)]), ["rates-of-hosts"]);
        let mut two = with(0xffff, 100);
        two.adapters.each.push(two.adapters.each[0].clone());
        assert_eq!(checks(&[&with(0xffff, 100), &two]), ["rails"]);
    }
}
