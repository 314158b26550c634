// SPDX-License-Identifier: MIT OR Apache-2.0
//! The prefix length of a RoCE port's IP subnet, from its GID and this host's interfaces. `device.rs` calls it for each
//! chosen port; the modex carries the result to the peers, which pair ports by subnet ([`crate::select::address`]).
//! Path: setup. Threads: plain data. Tests: at the end of the file.

use std::net::{IpAddr, Ipv6Addr};

use crate::interfaces::Interface;

/// Bits before the IPv4 address in a mapped address (`::ffff:a.b.c.d`).
const MAPPED: u8 = 96;
/// Prefix length of every IPv6 subnet (RFC 4291, 2.5.4). The interface would say 128 for an address from DHCP.
const IPV6: u8 = 64;

/// The prefix length of the subnet of `gid`; 0: unknown, as no interface of this host (or container) has its address.
#[must_use]
pub fn length(gid: [u8; 16], interfaces: &[Interface]) -> u8 {
    let Some(ipv4) = Ipv6Addr::from(gid).to_ipv4_mapped() else { return IPV6 };
    let owner = interfaces.iter().find(|interface| interface.address == IpAddr::V4(ipv4));
    owner.map_or(0, |owner| MAPPED + owner.subnet_length.min(32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(gid: &str) -> u8 {
        let interface = |address: &str, subnet_length| Interface {
            name: "eth0".to_owned(),
            address: address.parse().expect("an address"),
            subnet_length,
        };
        let interfaces = [interface("10.1.0.1", 16), interface("10.2.0.1", 24), interface("2001:db8::1", 128)];
        length(gid.parse::<Ipv6Addr>().expect("an address").octets(), &interfaces)
    }

    #[test]
    fn an_ipv4_subnet_is_as_the_netmask_of_the_interface_says() {
        assert_eq!(of("::ffff:10.1.0.1"), 112);
        assert_eq!(of("::ffff:10.2.0.1"), 120);
    }

    #[test]
    fn an_ipv4_address_that_no_interface_has_is_in_no_known_subnet() {
        assert_eq!(of("::ffff:10.1.0.2"), 0);
    }

    #[test]
    fn an_ipv6_subnet_has_64_bits_whatever_the_interface_says() {
        assert_eq!((of("2001:db8::1"), of("2001:db8::2"), of("fe80::1")), (64, 64, 64));
    }
}
