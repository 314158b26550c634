// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fills in the keys that the file leaves out, and makes the engine's description of an adapter. Without a file: one
//! InfiniBand adapter `softhca0` with one active port, LID 1, 100 Gb/s (4x EDR), MTU 4096. Grade: setup. GUIDs are
//! host-order numbers, GIDs their 16 bytes on the wire. Tests: config/tests.rs.

use std::ops::RangeInclusive;

use crate::behaviour::Behaviour;
use crate::config::values::{GidRow, LAST_LID, within};
use crate::config::{Clock, Device, Port};
use crate::engine::codes::{gid_kind, link_layer, port_state};
use crate::engine::{ClockSpec, DeviceSpec, Gid, PortSpec};
use crate::fabric_folder::is_fabric_name;
use crate::limits::{Limits, MOST_GIDS};
use crate::profiles;

/// The first six digits of the GUIDs, a locally administered range.
const GUID_BASE: u64 = 0x5e00_0000_0000_0000;
/// 4x.
const WIDTH: u8 = 2;
/// EDR.
const SPEED: u8 = 32;
/// 4096 bytes.
const MTU: u8 = 5;
/// The default partition, full member.
const PKEY: u16 = 0xffff;
const MOST_LATENCY_NS: u64 = 60_000_000_000;
/// Gb/s of a link: a megabit to a petabit in a second. At a lower rate the largest message would take days.
const GBPS: RangeInclusive<f64> = 1e-3..=1e6;
/// Bytes of `ibv_device_attr.fw_ver`, less its last.
const FW_VER_BYTES: usize = 63;
/// Highest number that Linux gives a node.
const LAST_NUMA_NODE: i32 = 1023;

/// `lids` is the last LID given so far; `profile` is the profile of devices that name none.
pub(super) fn complete(
    index: usize,
    given: &Device,
    lids: &mut u16,
    profile: Option<profiles::Name>,
) -> Result<DeviceSpec, String> {
    let base = profiles::profile(given.profile.or(profile));
    let limits = given.limits.over(&base.limits.over(&Limits::USUAL)?)?;
    let name = given.name.clone().unwrap_or_else(|| format!("softhca{index}"));
    if name.is_empty() || name.len() > 48 || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err(format!("name = {name:?}: a device name is 1 to 48 letters, digits and underscores"));
    }
    if given.port.len() > 2 {
        return Err(format!("{name} has {} ports; an adapter has 1 or 2", given.port.len()));
    }
    let link_layer = given.link_layer.or(base.link_layer).map_or(link_layer::INFINIBAND, |layer| layer.0);
    let node_guid = given.node_guid.map_or(GUID_BASE + ((index as u64 + 1) << 8), |guid| guid.0);
    // The GUIDs of the ports are the numbers that follow it.
    if node_guid == 0 || node_guid > u64::MAX - 2 {
        return Err(format!("node_guid = {node_guid:#x}: 0x1 to {:#x}", u64::MAX - 2));
    }
    let bandwidth_gbps = given.bandwidth_gbps.unwrap_or(0.0);
    if bandwidth_gbps != 0.0 && !GBPS.contains(&bandwidth_gbps) {
        return Err(format!(
            "bandwidth_gbps = {bandwidth_gbps:e}: 0 (as fast as the host can), or {} to {}",
            GBPS.start(),
            GBPS.end()
        ));
    }
    let latency_ns = within("latency_ns", given.latency_ns.unwrap_or(0), 0..=MOST_LATENCY_NS)?;
    let numa_node = within("numa_node", given.numa_node.unwrap_or(-1), -1..=LAST_NUMA_NODE)?;
    let fw_ver = given.fw_ver.clone().unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned());
    if fw_ver.len() > FW_VER_BYTES || !fw_ver.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!("fw_ver = {fw_ver:?}: up to {FW_VER_BYTES} printable characters"));
    }
    let one_port = [Port::default()];
    let ports = if given.port.is_empty() { &one_port[..] } else { &given.port[..] };
    let behaviour = given.behaviour.over(&base.behaviour.over(&Behaviour::USUAL));
    within("refused_timestamp_bits", behaviour.refused_timestamp_bits, 0..=64)?;
    let place = Place { link_layer, device: index, node_guid, rows: limits.gid_table_len };
    Ok(DeviceSpec {
        link_layer,
        ports: ports
            .iter()
            .enumerate()
            .map(|(number, port)| complete_port(&place, number, port, lids))
            .collect::<Result<_, _>>()?,
        node_guid,
        vendor_id: given.vendor_id.unwrap_or(0x5e00),
        vendor_part_id: given.vendor_part_id.unwrap_or(1),
        fw_ver,
        numa_node,
        clock: complete_clock(&given.clock, &base.clock)?,
        latency_ns,
        bandwidth_gbps,
        limits,
        behaviour,
        name,
    })
}

fn complete_clock(given: &Clock, base: &Clock) -> Result<ClockSpec, String> {
    let usual = ClockSpec::USUAL;
    let clock = ClockSpec {
        frequency_hz: given.frequency_hz.or(base.frequency_hz).unwrap_or(usual.frequency_hz),
        offset: given.offset.or(base.offset).unwrap_or(usual.offset),
        drift_ppm: given.drift_ppm.or(base.drift_ppm).unwrap_or(usual.drift_ppm),
        mask_bits: given.mask_bits.or(base.mask_bits).unwrap_or(usual.mask_bits),
    };
    within("frequency_hz", clock.frequency_hz, 1_000..=10_000_000_000)?;
    within("mask_bits", clock.mask_bits, 8..=64)?;
    within("drift_ppm", clock.drift_ppm, -100_000.0..=100_000.0)?;
    Ok(clock)
}

/// Adapter and number of a port, and the length of its table of GIDs (0: as long as the given one).
struct Place {
    link_layer: u8,
    device: usize,
    node_guid: u64,
    rows: u32,
}

fn complete_port(place: &Place, number: usize, given: &Port, lids: &mut u16) -> Result<PortSpec, String> {
    let infiniband = place.link_layer == link_layer::INFINIBAND;
    let lid = match given.lid {
        Some(_) if !infiniband => return Err("an Ethernet port has no lid".to_owned()),
        Some(lid) => within("lid", lid, 1..=LAST_LID)?,
        None if infiniband && *lids >= LAST_LID => {
            return Err(format!("no lid follows {}, which another port has: give this port one", *lids));
        }
        None if infiniband => *lids + 1,
        None => 0,
    };
    let sm_lid = match given.sm_lid {
        Some(_) if !infiniband => return Err("an Ethernet port has no sm_lid".to_owned()),
        Some(lid) => within("sm_lid", lid, 1..=LAST_LID)?,
        None => u16::from(infiniband),
    };
    *lids = (*lids).max(lid);
    if given.subnet_prefix.is_some() && !infiniband {
        return Err("an Ethernet port has no subnet_prefix".to_owned());
    }
    let gids = if let Some(gids) = &given.gids {
        table(gids, infiniband, place.rows)?
    } else {
        let prefix = given.subnet_prefix.map_or(SUBNET_PREFIX, |prefix| prefix.0);
        let guid = place.node_guid + number as u64 + 1;
        usual(infiniband, place.device, number, prefix, guid, place.rows)
    };
    let network = given.network.clone().unwrap_or_default();
    if !network.is_empty() && !is_fabric_name(&network) {
        return Err(format!("network = {network:?}: 1 to 64 letters, digits, dashes and underscores"));
    }
    let pkeys = given.pkeys.clone().unwrap_or_else(|| vec![PKEY]);
    if pkeys.is_empty() || pkeys.len() > 128 {
        return Err("pkeys: 1 to 128 of them".to_owned());
    }
    Ok(PortSpec {
        lid,
        sm_lid,
        mtu: given.mtu.map_or(MTU, |mtu| mtu.0),
        active_width: given.width.map_or(WIDTH, |width| width.0),
        active_speed: u32::from(given.speed.map_or(SPEED, |speed| speed.0)),
        gids,
        pkeys,
        state: given.state.map_or(port_state::ACTIVE, |state| u32::from(state.0)),
        network,
    })
}

pub(super) const SUBNET_PREFIX: u64 = 0xfe80_0000_0000_0000;
const MOST_ROWS: usize = 64;

/// Puts each row at its index, or after the one before. `rows`: length of the adapter's table (0: as long as needed).
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
pub(super) fn usual(infiniband: bool, device: usize, number: usize, prefix: u64, guid: u64, rows: u32) -> Vec<Gid> {
    let mut link_local = [0; 16];
    link_local[..8].copy_from_slice(&prefix.to_be_bytes());
    link_local[8..].copy_from_slice(&guid.to_be_bytes());
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
