// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses the entry of a port's GID table, with a reason for each other entry: a pure function of the table, which
//! `device.rs` reads; `choose` calls it. On Ethernet the GID decides network, VLAN and packet format; on InfiniBand it
//! matters only between subnets. Grade: setup. Threads: plain data. Types and layers are verbs.h's integers, named in
//! [`crate::select::address`]. Tests: at the end of the file.

use std::fmt;
use std::net::Ipv6Addr;

use crate::select::address::{GID_IB, GID_ROCE_V1, GID_ROCE_V2, LINK_ETHERNET};

/// The last entry that queue pairs and address handles can name: an index has 8 bits (`ibv_global_route::sgid_index`).
pub const LAST_INDEX: u32 = 255;

/// One entry of a port's GID table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GidInfo {
    /// Index in the table.
    pub index: u32,
    /// The GID, in network order.
    pub gid: [u8; 16],
    /// [`GID_IB`], [`GID_ROCE_V1`] or [`GID_ROCE_V2`].
    pub gid_type: u8,
    /// Its network interface; empty on InfiniBand or if unknown.
    pub interface: String,
}

/// `2: ::ffff:10.0.0.1 (RoCE v2, IPv4, eth0)`.
impl fmt::Display for GidInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({}", self.index, Ipv6Addr::from(self.gid), Class::of(self))?;
        if !self.interface.is_empty() {
            write!(f, ", {}", self.interface)?;
        }
        write!(f, ")")
    }
}

/// One entry that was considered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GidVerdict {
    /// The entry.
    pub gid: GidInfo,
    /// Whether it is the one to use.
    pub taken: bool,
    /// Why, as the end of a sentence that begins "taken: " or "refused: ".
    pub reason: String,
}

/// The result for one port.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GidChoice {
    /// The entry to use, or the reason why there is none, with advice.
    pub taken: Result<GidInfo, String>,
    /// Every entry of the table with the reason it was taken or refused.
    pub verdicts: Vec<GidVerdict>,
}

/// Kinds of GID, best first.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Ord, PartialOrd)]
enum Class {
    RoceV2Ipv4,
    RoceV2Ipv6,
    RoceV2LinkLocal,
    RoceV1,
    InfiniBand,
    Empty,
    Unknown(u8),
}

impl Class {
    fn of(entry: &GidInfo) -> Class {
        let address = Ipv6Addr::from(entry.gid);
        match entry.gid_type {
            _ if entry.gid == [0; 16] => Class::Empty,
            GID_IB => Class::InfiniBand,
            GID_ROCE_V1 => Class::RoceV1,
            GID_ROCE_V2 => match address.to_ipv4_mapped() {
                Some(v4) if v4.is_link_local() => Class::RoceV2LinkLocal,
                Some(_) => Class::RoceV2Ipv4,
                None if address.is_unicast_link_local() => Class::RoceV2LinkLocal,
                None => Class::RoceV2Ipv6,
            },
            other => Class::Unknown(other),
        }
    }

    fn usable(self, link_layer: u8) -> Result<(), String> {
        let ethernet = link_layer == LINK_ETHERNET;
        match self {
            Class::Empty => Err("it is empty".to_owned()),
            Class::Unknown(number) => Err(format!("ibex does not know GIDs of type {number}")),
            Class::InfiniBand if ethernet => Err("it is not a RoCE GID, but the port is Ethernet".to_owned()),
            Class::InfiniBand => Ok(()),
            _ if ethernet => Ok(()),
            _ => Err("it is a RoCE GID, but the port is InfiniBand".to_owned()),
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Class::RoceV2Ipv4 => f.write_str("RoCE v2, IPv4"),
            Class::RoceV2Ipv6 => f.write_str("RoCE v2, IPv6"),
            Class::RoceV2LinkLocal => f.write_str("RoCE v2, link-local"),
            Class::RoceV1 => f.write_str("RoCE v1"),
            Class::InfiniBand => f.write_str("InfiniBand"),
            Class::Empty => f.write_str("empty"),
            Class::Unknown(number) => write!(f, "type {number}"),
        }
    }
}

fn usable(entry: &GidInfo, link_layer: u8) -> Result<(), String> {
    Class::of(entry).usable(link_layer)?;
    if entry.index > LAST_INDEX {
        return Err(format!("its index is above {LAST_INDEX}, the last that a queue pair can use"));
    }
    Ok(())
}

/// Chooses an entry of `table` up to [`LAST_INDEX`]: the forced index; else on Ethernet the first of the best kind
/// (RoCE v2 with IPv4, with a global IPv6 address, link-local, RoCE v1), and on InfiniBand entry 0.
pub fn choose(table: &[GidInfo], link_layer: u8, forced: Option<u32>) -> GidChoice {
    let is_usable = |entry: &&GidInfo| usable(entry, link_layer).is_ok();
    let best = match forced {
        Some(index) => table.iter().find(|entry| entry.index == index).filter(is_usable),
        None if link_layer == LINK_ETHERNET => {
            table.iter().filter(is_usable).min_by_key(|entry| (Class::of(entry), entry.index))
        }
        None => table.iter().find(|entry| entry.index == 0).filter(is_usable),
    };
    let verdicts = table.iter().map(|entry| verdict(entry, link_layer, forced, best)).collect();
    let taken = best.cloned().ok_or_else(|| none_reason(table, link_layer, forced));
    GidChoice { taken, verdicts }
}

fn verdict(entry: &GidInfo, link_layer: u8, forced: Option<u32>, best: Option<&GidInfo>) -> GidVerdict {
    let taken = best == Some(entry);
    let class = Class::of(entry);
    let reason = match (usable(entry, link_layer), forced, best) {
        (Err(why), ..) => why,
        (Ok(()), Some(index), _) => format!("btl_ibex_gid_index asks for entry {index}"),
        (Ok(()), None, _) if taken && link_layer != LINK_ETHERNET => "entry 0 is the port's own GID".to_owned(),
        (Ok(()), None, _) if taken => format!("{class} is the best kind in the table"),
        (Ok(()), None, Some(best)) if link_layer == LINK_ETHERNET && Class::of(best) == class => {
            format!("entry {} is of the same kind and comes first", best.index)
        }
        (Ok(()), None, Some(best)) if link_layer == LINK_ETHERNET => {
            format!("entry {} is better ({})", best.index, Class::of(best))
        }
        (Ok(()), None, _) => "InfiniBand ports use entry 0 unless btl_ibex_gid_index says otherwise".to_owned(),
    };
    GidVerdict { gid: entry.clone(), taken, reason }
}

fn none_reason(table: &[GidInfo], link_layer: u8, forced: Option<u32>) -> String {
    if let Some(index) = forced {
        let why = match table.iter().find(|entry| entry.index == index) {
            None => "is not in the port's GID table or is empty".to_owned(),
            Some(entry) => format!("cannot be used: {}", usable(entry, link_layer).err().unwrap_or_default()),
        };
        return format!(
            "btl_ibex_gid_index asks for entry {index}, which {why}; set it to auto or to {}",
            listed(table, link_layer)
        );
    }
    if link_layer == LINK_ETHERNET {
        if let Some(entry) = table.iter().find(|entry| Class::of(entry).usable(link_layer).is_ok()) {
            return format!(
                "its first RoCE GID is entry {} of its GID table, beyond entry {LAST_INDEX}, the last that a queue pair can name; \
                 take away addresses and VLANs of its network interface that nobody needs",
                entry.index
            );
        }
        return "its GID table has no RoCE entry; bring its network interface up and give it an IP address (ip addr add)".to_owned();
    }
    "entry 0 of its GID table is empty; check that the subnet manager runs".to_owned()
}

fn listed(table: &[GidInfo], link_layer: u8) -> String {
    let usable = table.iter().filter(|entry| usable(entry, link_layer).is_ok());
    let indices: Vec<String> = usable.map(|entry| entry.index.to_string()).collect();
    if indices.is_empty() { "an entry that is not empty (there is none now)".to_owned() } else { indices.join(", ") }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::select::address::LINK_INFINIBAND;

    pub(crate) fn entry(index: u32, address: &str, gid_type: u8) -> GidInfo {
        let gid = address.parse::<Ipv6Addr>().expect("an address").octets();
        GidInfo { index, gid, gid_type, interface: "eth0".to_owned() }
    }

    /// The usual table of a RoCE port: each address once per version of RoCE.
    fn usual() -> Vec<GidInfo> {
        vec![
            entry(0, "fe80::1", GID_ROCE_V1),
            entry(1, "fe80::1", GID_ROCE_V2),
            entry(2, "2001:db8::1", GID_ROCE_V1),
            entry(3, "2001:db8::1", GID_ROCE_V2),
            entry(4, "::ffff:10.0.0.1", GID_ROCE_V1),
            entry(5, "::ffff:10.0.0.1", GID_ROCE_V2),
            entry(6, "::ffff:10.1.0.1", GID_ROCE_V2),
        ]
    }

    fn index(choice: &GidChoice) -> Option<u32> {
        choice.taken.as_ref().ok().map(|entry| entry.index)
    }

    #[test]
    fn on_ethernet_choose_prefers_kinds_in_this_order() {
        let mut table = usual();
        for wanted in [5, 6, 3, 1, 0, 2, 4] {
            let choice = choose(&table, LINK_ETHERNET, None);
            assert_eq!(index(&choice), Some(wanted));
            assert_eq!(choice.verdicts.iter().filter(|verdict| verdict.taken).count(), 1);
            table.retain(|entry| entry.index != wanted);
        }
        let none = choose(&table, LINK_ETHERNET, None).taken.expect_err("nothing is left");
        assert!(none.contains("ip addr add"), "{none}");
    }

    #[test]
    fn every_entry_has_its_reason() {
        let mut table = usual();
        table.push(entry(7, "::", GID_ROCE_V2));
        table.push(entry(8, "fe80::8", GID_IB));
        table.push(entry(9, "fe80::9", 9));
        let reasons: Vec<_> =
            choose(&table, LINK_ETHERNET, None).verdicts.into_iter().map(|verdict| verdict.reason).collect();
        assert_eq!(reasons[..5], ["entry 5 is better (RoCE v2, IPv4)"; 5]);
        assert_eq!(
            reasons[5..],
            [
                "RoCE v2, IPv4 is the best kind in the table",
                "entry 5 is of the same kind and comes first",
                "it is empty",
                "it is not a RoCE GID, but the port is Ethernet",
                "ibex does not know GIDs of type 9",
            ]
        );
    }

    #[test]
    fn choose_takes_the_index_that_the_user_asks_for() {
        let choice = choose(&usual(), LINK_ETHERNET, Some(2));
        assert_eq!(index(&choice), Some(2));
        assert!(choice.verdicts.iter().all(|verdict| verdict.reason == "btl_ibex_gid_index asks for entry 2"));
    }

    #[test]
    fn the_refusal_of_an_unusable_index_names_the_usable_ones() {
        let refusal = choose(&usual(), LINK_ETHERNET, Some(9)).taken.expect_err("there is no entry 9");
        assert_eq!(
            refusal,
            "btl_ibex_gid_index asks for entry 9, which is not in the port's GID table or is empty; \
             set it to auto or to 0, 1, 2, 3, 4, 5, 6"
        );
        let empty = [entry(0, "::", GID_ROCE_V2)];
        let refusal = choose(&empty, LINK_ETHERNET, Some(0)).taken.expect_err("it is empty");
        assert!(
            refusal.contains("which cannot be used: it is empty") && refusal.contains("there is none now"),
            "{refusal}"
        );
    }

    #[test]
    fn on_infiniband_choose_takes_entry_0_unless_the_user_asks_for_another() {
        let table = [entry(0, "fe80::1", GID_IB), entry(1, "fec0::1", GID_IB), entry(2, "::", GID_IB)];
        assert_eq!(index(&choose(&table, LINK_INFINIBAND, None)), Some(0));
        assert_eq!(index(&choose(&table, LINK_INFINIBAND, Some(1))), Some(1));
        assert_eq!(index(&choose(&table, LINK_INFINIBAND, Some(2))), None);
        let refusal = choose(&table[1..], LINK_INFINIBAND, None).taken.expect_err("no entry 0");
        assert!(refusal.contains("subnet manager"), "{refusal}");
        let roce = choose(&usual(), LINK_INFINIBAND, Some(1)).taken.expect_err("a RoCE GID");
        assert!(roce.contains("the port is InfiniBand"), "{roce}");
    }

    #[test]
    fn choose_does_not_prefer_link_local_ipv4_to_link_local_ipv6() {
        let table = [entry(0, "::ffff:169.254.0.1", GID_ROCE_V2), entry(1, "2001:db8::1", GID_ROCE_V2)];
        assert_eq!(index(&choose(&table, LINK_ETHERNET, None)), Some(1));
    }

    #[test]
    fn choose_leaves_out_an_entry_beyond_the_last_index_with_that_reason() {
        let table = [entry(255, "2001:db8::1", GID_ROCE_V2), entry(256, "::ffff:10.0.0.1", GID_ROCE_V2)];
        let choice = choose(&table, LINK_ETHERNET, None);
        assert_eq!(index(&choice), Some(255));
        assert_eq!(choice.verdicts[1].reason, "its index is above 255, the last that a queue pair can use");
        let none = choose(&table[1..], LINK_ETHERNET, None).taken.expect_err("no other");
        assert!(none.starts_with("its first RoCE GID is entry 256 of its GID table, beyond entry 255"), "{none}");
        let forced = choose(&table, LINK_ETHERNET, Some(256)).taken.expect_err("beyond");
        assert!(forced.ends_with("set it to auto or to 255"), "{forced}");
    }

    #[test]
    fn choose_skips_an_entry_that_has_vanished_and_reads_as_zeros() {
        for gid_type in [GID_IB, GID_ROCE_V1, GID_ROCE_V2] {
            let choice = choose(&[entry(0, "::", gid_type), entry(1, "fe80::1", GID_ROCE_V2)], LINK_ETHERNET, None);
            assert_eq!((index(&choice), choice.verdicts[0].reason.as_str()), (Some(1), "it is empty"));
            assert_eq!(index(&choose(&[entry(0, "::", gid_type)], LINK_INFINIBAND, None)), None);
        }
    }

    #[test]
    fn an_entry_is_printed_with_index_address_kind_and_interface() {
        assert_eq!(entry(5, "::ffff:10.0.0.1", GID_ROCE_V2).to_string(), "5: ::ffff:10.0.0.1 (RoCE v2, IPv4, eth0)");
        let infiniband = GidInfo { interface: String::new(), ..entry(0, "fe80::1", GID_IB) };
        assert_eq!(infiniband.to_string(), "0: fe80::1 (InfiniBand)");
    }
}
