// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this host is, as other processes need to know it: its IP addresses, and a number by which processes of one host know
//! each other.
//!
//! Owns the reading of interfaces and of the kernel's identifiers. Called when a port's address is made, and by [`super::tcp`].
//! Path: setup (reads a few files, asks the kernel). Threads: any. Bytes: addresses in network order.
//! Tests: at the end of the file.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::address::TCP_ADDRESSES;

/// A random number that is not 0, for [`crate::address::PortAddress::instance`].
///
/// # Errors
/// When the kernel gives no random bytes, which Linux does once it has booted.
pub fn new_instance() -> io::Result<u64> {
    loop {
        let number = getrandom::u64()?;
        if number != 0 {
            return Ok(number);
        }
    }
}

/// A number of this host and network namespace: processes with the same one reach each other over loopback.
///
/// Made of the kernel's boot id (which differs even in virtual machines that are copies), the machine id, the host's name and
/// the network namespace; what cannot be read is left out.
#[must_use]
pub fn host_number() -> u64 {
    let files = ["/proc/sys/kernel/random/boot_id", "/etc/machine-id", "/proc/sys/kernel/hostname"];
    let mut parts: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap_or_default()).collect();
    let namespace = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    parts.push(namespace.into_os_string().into_encoded_bytes());
    fnv1a(&parts)
}

/// The hash FNV-1a (64 bits) of the parts, each followed by a zero byte so that they cannot run together.
fn fnv1a(parts: &[Vec<u8>]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.iter().chain(&[0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Every address of every interface of this host that is up, loopback included.
///
/// # Errors
/// What `getifaddrs` reports.
pub fn all_addresses() -> io::Result<Vec<IpAddr>> {
    let interfaces = if_addrs::get_if_addrs()?;
    // Loopback has no carrier to be up or down.
    let usable = interfaces.into_iter().filter(|interface| interface.is_oper_up() || interface.is_loopback());
    Ok(usable.map(|interface| interface.ip()).collect())
}

/// The addresses to publish, best first: IPv4, then IPv6; no link-local ones, loopback only when there is nothing else.
#[must_use]
pub fn published_addresses(all: &[IpAddr]) -> [[u8; 16]; TCP_ADDRESSES] {
    let mut global: Vec<IpAddr> = all.iter().copied().filter(is_global).collect();
    // Stable: within a family the order is the kernel's.
    global.sort_by_key(IpAddr::is_ipv6);
    if global.is_empty() {
        global.extend(all.iter().find(|address| address.is_loopback()));
    }
    let mut published = [[0; 16]; TCP_ADDRESSES];
    for (place, address) in published.iter_mut().zip(global) {
        *place = mapped(address).octets();
    }
    published
}

/// Whether another host may reach us under this address.
fn is_global(address: &IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !link_local && !address.is_loopback() && !address.is_unspecified() && !address.is_multicast()
}

/// IPv4 mapped into IPv6, as addresses are published.
fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// Under which addresses to try a peer that published `published`, in order.
///
/// On the same host loopback comes first. On another host an address that is also one of ours cannot be the peer's: private
/// networks of containers and virtual machines have the same addresses on every host.
#[must_use]
pub fn candidates(published: impl Iterator<Item = Ipv6Addr>, same_host: bool, ours: &[IpAddr]) -> Vec<IpAddr> {
    let published = published.map(|address| address.to_canonical());
    if same_host {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let others = published.filter(|address| *address != loopback);
        return std::iter::once(loopback).chain(others).collect();
    }
    published.filter(|address| !address.is_loopback() && !ours.contains(address)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn published(all: &[&str]) -> Vec<String> {
        let all: Vec<IpAddr> = all.iter().map(|text| ip(text)).collect();
        let used = published_addresses(&all).into_iter().take_while(|address| *address != [0; 16]);
        used.map(|address| Ipv6Addr::from(address).to_canonical().to_string()).collect()
    }

    #[test]
    fn ipv4_is_published_before_ipv6_and_no_more_than_four() {
        assert_eq!(
            published(&["127.0.0.1", "2001:db8::1", "10.0.0.1", "::1", "192.0.2.1"]),
            ["10.0.0.1", "192.0.2.1", "2001:db8::1"]
        );
        assert_eq!(published(&["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"]).len(), 4);
    }

    #[test]
    fn link_local_addresses_are_not_published_and_loopback_only_alone() {
        assert_eq!(published(&["169.254.1.1", "fe80::1", "127.0.0.1"]), ["127.0.0.1"]);
        assert_eq!(published(&["127.0.0.1", "10.0.0.1"]), ["10.0.0.1"]);
        assert!(published(&[]).is_empty());
    }

    #[test]
    fn on_the_same_host_loopback_is_tried_first() {
        let list = [ip("10.0.0.1")];
        let tried = candidates(list.iter().map(|address| mapped(*address)), true, &list);
        assert_eq!(tried, [ip("127.0.0.1"), ip("10.0.0.1")]);
    }

    #[test]
    fn on_another_host_our_own_addresses_are_not_tried() {
        let theirs = ["172.17.0.1", "10.0.0.2", "127.0.0.1", "2001:db8::2"].map(ip);
        let ours = ["172.17.0.1", "10.0.0.1"].map(ip);
        let tried = candidates(theirs.iter().map(|address| mapped(*address)), false, &ours);
        assert_eq!(tried, [ip("10.0.0.2"), ip("2001:db8::2")]);
    }

    #[test]
    fn this_host_has_a_steady_number_and_an_address() {
        assert_eq!(host_number(), host_number());
        assert_ne!(host_number(), fnv1a(&[vec![], vec![], vec![], vec![]]), "nothing could be read");
        let all = all_addresses().expect("interfaces can be listed");
        assert!(all.iter().any(IpAddr::is_loopback), "{all:?}");
    }

    #[test]
    fn the_hash_is_fnv1a_and_keeps_parts_apart() {
        // The published value for "a", followed by the zero byte that ends the part.
        assert_eq!(fnv1a(&[b"a".to_vec()]), 0xaf63_dc4c_8601_ec8c_u64.wrapping_mul(0x0000_0100_0000_01b3));
        assert_ne!(fnv1a(&[b"ab".to_vec(), vec![]]), fnv1a(&[b"a".to_vec(), b"b".to_vec()]));
    }

    #[test]
    fn instances_differ() {
        assert_ne!(new_instance().expect("random"), new_instance().expect("random"));
    }
}
