// SPDX-License-Identifier: MIT OR Apache-2.0
//! This host as its peers need to know it: its IP addresses, and a number by which its processes recognise each other.
//! Called when a port's address is made, and by [`super::tcp`]; [`crate::interfaces`] chooses the addresses. Grade:
//! setup (reads a few files). Threads: any. Bytes: addresses in network order. Tests: at the end of the file.

use std::io;
use std::net::{IpAddr, Ipv6Addr};

use crate::interfaces::TCP_ADDRESSES;

/// A random number that is not 0, for [`crate::select::address::PortAddress::instance`].
///
/// # Errors
/// The kernel gives no random bytes; Linux gives them once it has booted.
pub fn new_instance() -> io::Result<u64> {
    loop {
        let number = getrandom::u64()?;
        if number != 0 {
            return Ok(number);
        }
    }
}

/// A number of this host and network namespace: processes with the same one reach each other over loopback. Made of the
/// kernel's boot id (which differs even in virtual machines that are copies), the machine id, the host's name and the
/// network namespace; unreadable parts do not count.
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

/// The addresses in their published form.
pub(crate) fn published(addresses: &[IpAddr]) -> [[u8; 16]; TCP_ADDRESSES] {
    let mut published = [[0; 16]; TCP_ADDRESSES];
    for (place, address) in published.iter_mut().zip(addresses) {
        *place = mapped(*address).octets();
    }
    published
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// The addresses at which to try a peer that published `published`, in order. On the same host these are all of them.
/// On another host an address that is also one of ours cannot be the peer's, because private networks of containers and
/// virtual machines have the same addresses on every host.
pub fn candidates(published: impl Iterator<Item = Ipv6Addr>, same_host: bool, ours: &[IpAddr]) -> Vec<IpAddr> {
    let published = published.map(|address| address.to_canonical());
    published.filter(|address| same_host || !(address.is_loopback() || ours.contains(address))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn published_returns_ipv6_addresses_and_zeros_for_the_rest() {
        let wanted = [ip("::ffff:10.0.0.1"), ip("2001:db8::1"), ip("::"), ip("::")];
        let made = published(&[ip("10.0.0.1"), ip("2001:db8::1")]).map(|octets| IpAddr::V6(Ipv6Addr::from(octets)));
        assert_eq!(made, wanted);
    }

    #[test]
    fn candidates_has_every_published_address_but_our_own_ones_only_on_the_same_host() {
        let theirs = ["172.17.0.1", "10.0.0.2", "127.0.0.1", "2001:db8::2"].map(ip);
        let ours = ["172.17.0.1", "10.0.0.1"].map(ip);
        let tried = |same_host| candidates(theirs.map(mapped).into_iter(), same_host, &ours);
        assert_eq!(tried(true), theirs);
        assert_eq!(tried(false), [ip("10.0.0.2"), ip("2001:db8::2")]);
    }

    #[test]
    fn this_host_has_a_steady_number_and_an_address() {
        assert_eq!(host_number(), host_number());
        assert_ne!(host_number(), fnv1a(&[vec![], vec![], vec![], vec![]]), "nothing could be read");
        let all = crate::interfaces::all().expect("interfaces can be listed");
        assert!(all.iter().any(|found| found.address.is_loopback()), "{all:?}");
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
