// SPDX-License-Identifier: MIT OR Apache-2.0
//! A port's table of GIDs: the rows that are written, at the indexes that they name, or the usual ones.
//!
//! Called by: adapters. Grade: setup. GIDs are their 16 bytes on the wire. Tests: config.rs.

use super::values::GidRow;
use crate::engine::Gid;
use crate::engine::codes::gid_kind;
use crate::limits::MOST_GIDS;

/// The default subnet prefix of InfiniBand.
pub(super) const SUBNET_PREFIX: u64 = 0xfe80_0000_0000_0000;
/// GIDs that a port may be given.
const MOST_ROWS: usize = 64;

/// The table of `given` rows, each at its index or after the one before; the others are empty. `rows`: how long the
/// adapter's table is (0: as long as this one).
pub(super) fn table(given: &[GidRow], infiniband: bool, rows: u32) -> Result<Vec<Gid>, String> {
    if given.is_empty() || given.len() > MOST_ROWS {
        return Err(format!("gids: 1 to {MOST_ROWS} of them"));
    }
    let last = if rows == 0 { MOST_GIDS - 1 } else { rows - 1 };
    let mut table: Vec<Gid> = Vec::new();
    for row in given {
        let kind = match row.kind {
            Some(_) if infiniband => return Err("gids: a type is for Ethernet".to_owned()),
            Some(kind) => kind.0,
            None if infiniband => gid_kind::IB,
            None => gid_kind::ROCE_V2,
        };
        let gid = Gid { raw: row.gid.0, kind };
        if table.contains(&gid) && !gid.is_empty() {
            return Err("gids: one is there twice".to_owned());
        }
        let index = row.index.unwrap_or(table.len() as u32);
        if index > last {
            return Err(format!("gids: index = {index}: 0 to {last}"));
        }
        let index = index as usize;
        if table.get(index).is_some_and(|there| !there.is_empty()) {
            return Err(format!("gids: index = {index} is there twice"));
        }
        table.resize(table.len().max(index + 1), Gid::default());
        table[index] = gid;
    }
    Ok(table)
}

/// InfiniBand: the subnet prefix and the port's GUID. Ethernet: the link-local address of the port's MAC, as RoCE v1
/// and v2, and an IPv4 address of a private range, the same; without v1 where the table is too short.
pub(super) fn usual(
    infiniband: bool,
    device: usize,
    number: usize,
    prefix: u64,
    port_guid: u64,
    rows: u32,
) -> Vec<Gid> {
    let mut link_local = [0; 16];
    link_local[..8].copy_from_slice(&prefix.to_be_bytes());
    link_local[8..].copy_from_slice(&port_guid.to_be_bytes());
    if infiniband {
        return vec![Gid { raw: link_local, kind: gid_kind::IB }];
    }
    let mac = [0x5e, 0, 0, 0, device as u8, number as u8 + 1];
    link_local[8..].copy_from_slice(&[mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]]);
    let ipv4 = std::net::Ipv4Addr::new(10, 94, device as u8, number as u8 + 1).to_ipv6_mapped().octets();
    let kinds: &[u8] =
        if (1..4).contains(&rows) { &[gid_kind::ROCE_V2] } else { &[gid_kind::ROCE_V1, gid_kind::ROCE_V2] };
    let all = [link_local, ipv4].into_iter().flat_map(|raw| kinds.iter().map(move |kind| Gid { raw, kind: *kind }));
    all.take(if rows == 0 { usize::MAX } else { rows as usize }).collect()
}
