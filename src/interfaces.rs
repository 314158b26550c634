// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses this host's IP addresses for hellos over TCP: `btl_ibex_tcp_if_include` and `btl_ibex_tcp_if_exclude`.
//! `connect` publishes the chosen addresses and listens only on them, `select` reads subnets, `tunables` checks the
//! user's values. Grade: setup. Threads: any. Tests: at the end of the file.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr};

/// Bits before the IPv4 address in a mapped address (`::ffff:a.b.c.d`).
const MAPPED: u8 = 96;
/// Prefix length of every IPv6 subnet (RFC 4291, 2.5.4). The interface would say 128 for an address from DHCP.
const IPV6: u8 = 64;

/// Most addresses that a port publishes.
pub const TCP_ADDRESSES: usize = 4;

/// An address of this host, with its interface.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Interface {
    /// Name of the interface.
    pub name: String,
    /// One of its addresses.
    pub address: IpAddr,
    /// Prefix length of the address's subnet.
    pub subnet_length: u8,
}

/// Returns every address of every interface of this host that is up, loopback included.
///
/// # Errors
/// The error of `getifaddrs`.
pub fn all() -> io::Result<Vec<Interface>> {
    // Loopback has no carrier to be up or down.
    let usable = if_addrs::get_if_addrs()?.into_iter().filter(|found| found.is_oper_up() || found.is_loopback());
    let interface = |found: if_addrs::Interface| {
        let subnet_length = match &found.addr {
            if_addrs::IfAddr::V4(v4) => v4.prefixlen,
            if_addrs::IfAddr::V6(v6) => v6.prefixlen,
        };
        Interface { address: found.ip(), name: found.name, subnet_length }
    };
    Ok(usable.map(interface).collect())
}

/// The prefix length of the IP subnet of `gid`, by which peers pair ports ([`crate::select::address`]); 0: unknown, as
/// no interface of this host (or container) has its address.
pub fn subnet_length(gid: [u8; 16], interfaces: &[Interface]) -> u8 {
    let Some(ipv4) = Ipv6Addr::from(gid).to_ipv4_mapped() else { return IPV6 };
    let owner = interfaces.iter().find(|interface| interface.address == IpAddr::V4(ipv4));
    owner.map_or(0, |owner| MAPPED + owner.subnet_length.min(32))
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Item {
    Name(String),
    Network(IpAddr, u8),
}

impl Item {
    /// `eth0`, `10.0.0.0/8`, `2001:db8::/32`; an address without a length is that address alone.
    fn parse(text: &str) -> Option<Item> {
        let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        match (address.parse::<IpAddr>(), length) {
            (Ok(address), None) => Some(Item::Network(address, bits(&address))),
            (Ok(address), Some(length)) => {
                let length = length.parse().ok().filter(|length| *length <= bits(&address))?;
                Some(Item::Network(address, length))
            }
            // No interface has a slash in its name, nor more than fifteen characters.
            (Err(_), None) if !text.is_empty() && text.len() < 16 => Some(Item::Name(text.to_owned())),
            (Err(_), _) => None,
        }
    }

    fn matches(&self, interface: &Interface) -> bool {
        match self {
            Item::Name(name) => *name == interface.name,
            Item::Network(network, length) => match (network, interface.address) {
                (IpAddr::V4(network), IpAddr::V4(address)) => {
                    let ignored = 32 - u32::from(*length);
                    (network.to_bits() ^ address.to_bits()).checked_shr(ignored).unwrap_or(0) == 0
                }
                (IpAddr::V6(network), IpAddr::V6(address)) => {
                    let ignored = 128 - u32::from(*length);
                    (network.to_bits() ^ address.to_bits()).checked_shr(ignored).unwrap_or(0) == 0
                }
                _ => false,
            },
        }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Item::Name(name) => f.write_str(name),
            Item::Network(address, length) => write!(f, "{address}/{length}"),
        }
    }
}

fn bits(address: &IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The first item of a comma-separated list that is neither a name nor a network.
pub fn malformed(list: &str) -> Option<&str> {
    items(list).find(|item| Item::parse(item).is_none())
}

fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// The chosen addresses, best first, and the items of the lists that this host does not have.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Chosen {
    /// At most [`TCP_ADDRESSES`].
    pub addresses: Vec<IpAddr>,
    /// Items that no interface that is up matches.
    pub absent: Vec<String>,
}

/// Chooses among `all`: the addresses that `include` names, in its order. If it names none: all addresses that another
/// host may reach, without those that `exclude` names; IPv4, then IPv6, and loopback only if there is no other.
pub fn choose(all: &[Interface], include: &str, exclude: &str) -> Chosen {
    let parse = |list| -> Vec<Item> { items(list).filter_map(Item::parse).collect() };
    let (include, exclude) = (parse(include), parse(exclude));
    let is_absent = |item: &&Item| !all.iter().any(|interface| item.matches(interface));
    let absent = include.iter().chain(&exclude).filter(is_absent).map(Item::to_string).collect();
    let mut addresses: Vec<IpAddr> = Vec::new();
    if include.is_empty() {
        let left: Vec<_> = all.iter().filter(|interface| !exclude.iter().any(|item| item.matches(interface))).collect();
        addresses.extend(left.iter().map(|interface| interface.address).filter(is_global));
        // Stable: within a family the order is the kernel's.
        addresses.sort_by_key(IpAddr::is_ipv6);
        if addresses.is_empty() {
            addresses.extend(left.iter().map(|interface| interface.address).find(IpAddr::is_loopback));
        }
    }
    for item in &include {
        for interface in all.iter().filter(|interface| item.matches(interface)) {
            // A link-local IPv6 address is reached through an interface of the peer's, which we do not know.
            let reachable =
                interface.address.is_ipv4() || is_global(&interface.address) || interface.address.is_loopback();
            if reachable && !addresses.contains(&interface.address) {
                addresses.push(interface.address);
            }
        }
    }
    addresses.truncate(TCP_ADDRESSES);
    Chosen { addresses, absent }
}

/// Whether another host may reach us at this address.
fn is_global(address: &IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !link_local && !address.is_loopback() && !address.is_unspecified() && !address.is_multicast()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, address: &str, subnet_length: u8) -> Interface {
        Interface { name: name.to_owned(), address: address.parse().expect("an address"), subnet_length }
    }

    fn host(interfaces: &[(&str, &str)]) -> Vec<Interface> {
        interfaces.iter().map(|(name, address)| interface(name, address, 0)).collect()
    }

    fn usual() -> Vec<Interface> {
        host(&[
            ("lo", "127.0.0.1"),
            ("eth0", "192.0.2.7"),
            ("ib0", "10.1.2.3"),
            ("docker0", "172.17.0.1"),
            ("lo", "::1"),
            ("eth0", "2001:db8::7"),
            ("eth0", "fe80::7"),
        ])
    }

    fn chosen(all: &[Interface], include: &str, exclude: &str) -> Vec<String> {
        choose(all, include, exclude).addresses.iter().map(IpAddr::to_string).collect()
    }

    #[test]
    fn without_lists_choose_takes_at_most_four_addresses_and_ipv4_before_ipv6() {
        assert_eq!(chosen(&usual(), "", ""), ["192.0.2.7", "10.1.2.3", "172.17.0.1", "2001:db8::7"]);
        let many =
            host(&[("a", "10.0.0.1"), ("a", "10.0.0.2"), ("b", "10.0.0.3"), ("b", "10.0.0.4"), ("c", "10.0.0.5")]);
        assert_eq!(chosen(&many, "", "").len(), 4);
    }

    #[test]
    fn choose_takes_no_link_local_address_and_loopback_only_if_there_is_no_other() {
        assert_eq!(
            chosen(&host(&[("e", "169.254.1.1"), ("e", "fe80::1"), ("lo", "127.0.0.1")]), "", ""),
            ["127.0.0.1"]
        );
        assert_eq!(chosen(&host(&[("lo", "127.0.0.1"), ("e", "10.0.0.1")]), "", ""), ["10.0.0.1"]);
        assert!(chosen(&[], "", "").is_empty());
    }

    #[test]
    fn choose_takes_only_included_interfaces_in_the_order_of_the_list() {
        assert_eq!(chosen(&usual(), "ib0,eth0", ""), ["10.1.2.3", "192.0.2.7", "2001:db8::7"]);
        assert_eq!(chosen(&usual(), "10.0.0.0/8", ""), ["10.1.2.3"]);
        assert_eq!(chosen(&usual(), "192.0.2.7", ""), ["192.0.2.7"]);
        assert_eq!(chosen(&usual(), "2001:db8::/32, lo", ""), ["2001:db8::7", "127.0.0.1", "::1"]);
        assert_eq!(chosen(&usual(), "0.0.0.0/0", "").len(), 4);
    }

    #[test]
    fn choose_takes_no_excluded_interface() {
        assert_eq!(chosen(&usual(), "", "docker0,192.0.2.0/24"), ["10.1.2.3", "2001:db8::7"]);
        assert_eq!(chosen(&usual(), "", "0.0.0.0/0,eth0"), ["::1"]);
        assert!(chosen(&usual(), "", "0.0.0.0/0,::/0").is_empty());
    }

    #[test]
    fn choose_names_a_listed_interface_that_this_host_lacks() {
        let found = choose(&usual(), "eth7,ib0,198.51.100.0/24", "");
        assert_eq!(found.absent, ["eth7", "198.51.100.0/24"]);
        assert_eq!(found.addresses.len(), 1);
        assert_eq!(choose(&usual(), "", "eth8").absent, ["eth8"]);
        assert_eq!(choose(&usual(), "eth7", ""), Chosen { addresses: vec![], absent: vec!["eth7".to_owned()] });
    }

    #[test]
    fn an_item_that_is_neither_name_nor_network_is_malformed() {
        for good in ["", "eth0", "eth0, ib0", "10.0.0.0/8,eth0", "10.0.0.1", "::/0", "10.0.0.0/32"] {
            assert_eq!(malformed(good), None, "{good}");
        }
        for bad in ["10.0.0.0/33", "10.0.0/8", "eth0/24", "10.0.0.0/", "::1/129", "an_interface_with_a_long_name"] {
            assert_eq!(malformed(&format!("eth0,{bad}")), Some(bad));
        }
    }

    fn subnet_of(gid: &str) -> u8 {
        let interfaces = [("10.1.0.1", 16), ("10.2.0.1", 24), ("2001:db8::1", 128)]
            .map(|(of, length)| interface("eth0", of, length));
        subnet_length(gid.parse::<Ipv6Addr>().expect("an address").octets(), &interfaces)
    }

    #[test]
    fn an_ipv4_subnet_follows_the_netmask_of_its_interface_and_is_unknown_without_one() {
        assert_eq!(
            (subnet_of("::ffff:10.1.0.1"), subnet_of("::ffff:10.2.0.1"), subnet_of("::ffff:10.1.0.2")),
            (112, 120, 0)
        );
    }

    #[test]
    fn an_ipv6_subnet_has_64_bits_whatever_the_interface_says() {
        assert_eq!((subnet_of("2001:db8::1"), subnet_of("2001:db8::2"), subnet_of("fe80::1")), (64, 64, 64));
    }
}
