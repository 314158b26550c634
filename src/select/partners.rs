// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order in which a port tries a peer's ports for a connection, if addresses leave a choice ([`partners`]).
//!
//! Addresses pair ports one to one ([`super::address::pair`]). But InfiniBand fabrics without a configured prefix all
//! have the default one, so only a datagram shows whether two ports are in one fabric. Therefore a paired port may
//! connect to each paired port of the peer that has its prefix; its own partner comes first. On Ethernet the address
//! decides. Grade: setup. Threads: plain data. Tests: at the end of the file.

use super::address::{LINK_INFINIBAND, PortAddress, pair};

/// Returns the remote ports that the `index`th local port may connect to, best first; none if it is unpaired.
/// `is_lower`: this process has the lower name. Two ports have the same rank in each other's lists, so both sides
/// prefer the same pairs.
pub fn partners(local: &[PortAddress], remote: &[PortAddress], index: usize, is_lower: bool) -> Vec<u8> {
    let pairs = pair(local, remote);
    let Some(paired) = pairs.get(index).copied().flatten() else { return Vec::new() };
    if local[index].link_layer != LINK_INFINIBAND {
        return vec![paired as u8];
    }
    let prefix = local[index].subnet_prefix;
    let is_among = |port: &PortAddress| port.link_layer == LINK_INFINIBAND && port.subnet_prefix == prefix;
    let among = local.iter().zip(&pairs).filter(|(port, _)| is_among(port));
    let others: Vec<usize> = among.filter_map(|(_, partner)| *partner).collect();
    let count = others.len();
    let place = others.iter().position(|other| *other == paired).unwrap_or(0);
    let at = |shift: usize| (place + if is_lower { shift } else { count - shift }) % count;
    (0..count).map(|shift| others[at(shift)] as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::address::tests::{ethernet, infiniband};

    #[test]
    fn the_partner_by_address_comes_first_and_then_the_others_of_its_prefix() {
        let ports = [infiniband(1); 3];
        assert_eq!(partners(&ports, &ports, 1, true), [1, 2, 0]);
        assert_eq!(partners(&ports, &ports, 1, false), [1, 0, 2]);
    }

    #[test]
    fn two_ports_stand_at_the_same_place_in_each_others_lists() {
        let (here, there) = ([infiniband(1); 4], [infiniband(2), infiniband(1), infiniband(1), infiniband(1)]);
        for index in 0..4_u8 {
            for (place, other) in partners(&here, &there, index.into(), true).into_iter().enumerate() {
                let back = partners(&there, &here, other.into(), false);
                assert_eq!(back.iter().position(|port| *port == index), Some(place), "{index} and {other}");
            }
        }
    }

    #[test]
    fn a_port_without_a_pair_has_no_partner_and_is_no_ports_partner() {
        let (here, there) = ([infiniband(1); 3], [infiniband(1); 2]);
        assert_eq!(partners(&here, &there, 2, true), []);
        assert_eq!(partners(&there, &here, 0, false), [0, 1]);
    }

    #[test]
    fn partners_leaves_no_choice_if_addresses_decide() {
        let mixed = [infiniband(1), ethernet(), infiniband(2), ethernet()];
        for index in 0..4_u8 {
            assert_eq!(partners(&mixed, &mixed, index.into(), true), [index]);
        }
    }
}
