// SPDX-License-Identifier: MIT OR Apache-2.0
//! Surveys the devices and ports of this machine: queries verbs, and leaves the choice to `choose` and `gid.rs`. Called
//! once, when the component is initialised. Grade: setup. Tests: below, and the device tests in `hw-tests`.

use crate::interfaces;
use crate::limits;
use crate::select::address::{LINK_ETHERNET, LINK_INFINIBAND, PortAddress};
use crate::select::choose::{self, Chosen, Considered, DeviceInfo, PartitionKey, PortInfo};
use crate::select::gid::GidInfo;
use crate::tunables::Tunables;
use ibex_ffi::verbs::{self, Context, GidEntry, link_layer};
use std::io;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

/// A chosen port, with the data to open it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortChoice {
    /// Name of the device.
    pub device: String,
    /// Number of the port, from 1.
    pub port: u8,
    /// Link layer: `IBV_LINK_LAYER_*`.
    pub link_layer: u8,
    /// Local identifier; 0 on Ethernet.
    pub lid: u16,
    /// Index of the chosen GID.
    pub gid_index: u8,
    /// The chosen GID.
    pub gid: [u8; 16],
    /// Prefix length of its IP subnet; 0: unknown, and on InfiniBand.
    pub subnet_length: u8,
    /// Type of the GID: `IBV_GID_TYPE_*`.
    pub gid_type: u8,
    /// Largest MTU to use, as verbs.h's code.
    pub mtu: u8,
}

impl PortChoice {
    /// Whether peers are addressed by GID only.
    pub fn is_ethernet(&self) -> bool {
        self.link_layer == LINK_ETHERNET
    }

    /// The subnet of an InfiniBand port; 0 on Ethernet.
    pub fn subnet_prefix(&self) -> u64 {
        if self.is_ethernet() { 0 } else { (u128::from_be_bytes(self.gid) >> 64) as u64 }
    }

    /// Returns the same port after its LID or its GID table may have changed: with its GID at the present index. If the
    /// GID is gone, takes the one at its old index if the port may have that now. Otherwise keeps the old GID, because
    /// a returning link fills the table in any order.
    pub(crate) fn refreshed(&self, lid: u16, gids: &[GidEntry]) -> PortChoice {
        let place = u32::from(self.gid_index);
        let usable = |entry: &&GidEntry| entry.kind == u32::from(self.gid_type) && u8::try_from(entry.index).is_ok();
        let same = gids.iter().filter(usable).filter(|entry| entry.gid == self.gid);
        let found = same.min_by_key(|entry| (entry.index != place, entry.index));
        let found = found
            .or_else(|| gids.iter().filter(usable).find(|entry| entry.index == place && self.may_become(&entry.gid)));
        // 0: the subnet manager has not assigned one yet; another event will follow.
        let lid = if self.is_ethernet() || lid == 0 { self.lid } else { lid };
        let (gid_index, gid) = found.map_or((self.gid_index, self.gid), |entry| (entry.index as u8, entry.gid));
        PortChoice { lid, gid_index, gid, ..self.clone() }
    }

    /// Whether the port's GID may have become this one: judged by its kind of IP address, or on InfiniBand its GUID.
    fn may_become(&self, gid: &[u8; 16]) -> bool {
        let kind = |gid: &[u8; 16]| {
            let address = Ipv6Addr::from(*gid);
            (address.to_ipv4_mapped().is_some(), address.is_unicast_link_local())
        };
        if self.is_ethernet() { kind(gid) == kind(&self.gid) } else { gid[8..] == self.gid[8..] }
    }

    /// The published address, without the TCP addresses.
    pub fn address(&self) -> PortAddress {
        PortAddress {
            link_layer: self.link_layer,
            gid_type: self.gid_type,
            mtu: self.mtu,
            lid: self.lid,
            gid: self.gid,
            subnet_length: self.subnet_length,
            subnet_prefix: self.subnet_prefix(),
            ud_qpn: 0,
            tcp_port: 0,
            tcp_addresses: [[0; 16]; 4],
            instance: 0,
            host: 0,
        }
    }
}

/// All devices and ports, and the choice among them.
#[derive(Debug)]
pub struct Survey {
    /// The ports to use, in the order of publication.
    pub ports: Vec<PortChoice>,
    /// A line for every device, port and GID, with the reason why it was taken or refused.
    pub report: Vec<String>,
    /// Settings that may keep one of these ports from reaching others, each a sentence without its full stop.
    pub warnings: Vec<String>,
    /// Every device.
    pub devices: Vec<DeviceInfo>,
    /// Every port, and the decision about it.
    pub considered: Vec<Considered>,
    /// The message if there is no port to use: findings and advice, in several lines.
    pub complaint: String,
}

/// Examines every device of this machine and chooses the ports to use. Opens and closes devices; creates no queue.
pub fn survey(tunables: &Tunables) -> Survey {
    let devices: Vec<DeviceInfo> = match verbs::devices() {
        Ok(names) => describe_all(&names, tunables.pkey_index),
        // A kernel without RDMA support has no devices.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::ENOENT)) => Vec::new(),
        Err(error) => return unlisted(&error),
    };
    let selection = choose::ports(&devices, tunables);
    // Without interfaces ports are paired in order.
    let interfaces = interfaces::all().unwrap_or_default();
    let ports = selection.chosen().filter_map(|chosen| port_choice(chosen, &devices, &interfaces)).collect();
    let report = selection.to_string().lines().map(str::to_owned).collect();
    let complaint = selection.no_port_message();
    Survey { ports, report, complaint, warnings: selection.warnings, devices, considered: selection.considered }
}

#[cold]
fn unlisted(error: &io::Error) -> Survey {
    let advice = limits::advice(error, None).unwrap_or_else(|| {
        "Check that the kernel module ib_uverbs is loaded and that /dev/infiniband and /sys/class/infiniband_verbs are readable"
            .to_owned()
    });
    let complaint = format!("ibex could not list the RDMA devices of this host: {error}. {advice}.");
    let report = vec![complaint.clone()];
    Survey { ports: vec![], report, warnings: vec![], devices: vec![], considered: vec![], complaint }
}

fn port_choice(chosen: &Chosen, devices: &[DeviceInfo], interfaces: &[interfaces::Interface]) -> Option<PortChoice> {
    let port = devices.get(chosen.device)?.ports.iter().find(|port| port.number == chosen.port)?;
    Some(PortChoice {
        device: chosen.device_name.clone(),
        port: chosen.port,
        link_layer: port.link_layer,
        lid: port.lid,
        // None is chosen beyond `gid::LAST_INDEX`.
        gid_index: chosen.gid.index as u8,
        gid: chosen.gid.gid,
        subnet_length: if port.link_layer == LINK_ETHERNET {
            interfaces::subnet_length(chosen.gid.gid, interfaces)
        } else {
            0
        },
        gid_type: chosen.gid.gid_type,
        mtu: chosen.mtu,
    })
}

fn describe_all(names: &[String], pkey_index: u64) -> Vec<DeviceInfo> {
    let mut devices: Vec<DeviceInfo> = names.iter().map(|name| describe(name, pkey_index)).collect();
    // Reading the topology takes milliseconds, and a single device needs no comparison.
    if devices.len() > 1 {
        let places: Vec<_> = names.iter().map(|name| Path::new("/sys/class/infiniband").join(name)).collect();
        let asked: Vec<_> = names.iter().map(String::as_str).zip(places.iter().map(PathBuf::as_path)).collect();
        for (device, distance) in devices.iter_mut().zip(ibex_ffi::topology::distances(&asked)) {
            device.distance = distance;
        }
    }
    devices
}

fn describe(name: &str, pkey_index: u64) -> DeviceInfo {
    let mut info = DeviceInfo { name: name.to_owned(), ..DeviceInfo::default() };
    let opened = Context::open(name).and_then(|context| Ok((context.attributes()?, context)));
    match opened {
        Ok((_, context)) if !context.is_rdma() => {
            info.unusable =
                Some("it is not an RDMA adapter (iWARP and usNIC have no InfiniBand queue pairs)".to_owned());
        }
        Ok((attributes, context)) => {
            info.ports = (1..=attributes.ports).filter_map(|port| describe_port(&context, port, pkey_index)).collect();
        }
        Err(error) => info.unusable = Some(refusal(name, &error)),
    }
    info
}

fn refusal(name: &str, error: &io::Error) -> String {
    // libibverbs reports the error of its last attempt, which is not always the cause.
    if let Some((file, denied)) = device_file(name).and_then(|file| denied(&file).map(|denied| (file, denied))) {
        return format!(
            "it could not be opened: {file}: {denied}; this user may not use it, see the permissions of that file (the udev \
             rules of the rdma-core package open it to all users)"
        );
    }
    match limits::advice(error, None) {
        Some(advice) => format!("it could not be opened: {error}. {advice}"),
        None => format!("it could not be opened: {error}; see the kernel's log and `ibv_devinfo -d`"),
    }
}

fn device_file(name: &str) -> Option<String> {
    let files = std::fs::read_dir("/sys/class/infiniband_verbs").ok()?;
    let belongs = |file: &std::fs::DirEntry| {
        std::fs::read_to_string(file.path().join("ibdev")).is_ok_and(|device| device.trim() == name)
    };
    let file = files.flatten().find(belongs)?;
    Some(format!("/dev/infiniband/{}", file.file_name().to_string_lossy()))
}

/// Why this user may not use the file; `None` if permissions are not the cause.
fn denied(file: &str) -> Option<io::Error> {
    let opened = std::fs::File::options().read(true).write(true).open(file);
    opened.err().filter(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

fn describe_port(context: &Context, number: u8, pkey_index: u64) -> Option<PortInfo> {
    let port = context.port(number).ok()?;
    let gids = context.gids(number, port.gids).into_iter().map(|entry| GidInfo {
        index: entry.index,
        gid: entry.gid,
        gid_type: entry.kind as u8,
        interface: interface(context, number, entry.index),
    });
    let link_layer = match port.link_layer {
        // Kernels older than RoCE report no link layer.
        link_layer::UNSPECIFIED => LINK_INFINIBAND,
        known => known,
    };
    Some(PortInfo {
        number,
        state: port.state,
        link_layer,
        lid: port.lid,
        active_mtu: port.active_mtu as u8,
        rate_mbps: port.rate_mbps,
        gids: gids.collect(),
        partition_key: partition_key(context, number, pkey_index),
    })
}

fn interface(context: &Context, port: u8, index: u32) -> String {
    let file = format!("{}/ports/{port}/gid_attrs/ndevs/{index}", context.sysfs());
    std::fs::read_to_string(file).map(|name| name.trim().to_owned()).unwrap_or_default()
}

fn partition_key(context: &Context, port: u8, index: u64) -> PartitionKey {
    let table = format!("{}/ports/{port}/pkeys", context.sysfs());
    let text = std::fs::read_to_string(format!("{table}/{index}"));
    match text.as_deref().map(|text| u16::from_str_radix(text.trim().trim_start_matches("0x"), 16)) {
        Ok(Ok(key)) => PartitionKey::Key(key),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Without any table the key is unknown, and the adapter decides.
            let entries = std::fs::read_dir(table).map_or(0, Iterator::count);
            if entries == 0 { PartitionKey::Unknown } else { PartitionKey::Missing(entries) }
        }
        _ => PartitionKey::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::address::GID_ROCE_V2;

    const OURS: [u8; 16] = [1; 16];
    const OTHER: [u8; 16] = [9; 16];

    fn choice() -> PortChoice {
        PortChoice {
            device: "rxe0".to_owned(),
            port: 1,
            link_layer: LINK_ETHERNET,
            lid: 0,
            gid_index: 3,
            gid: OURS,
            gid_type: GID_ROCE_V2,
            subnet_length: 0,
            mtu: 3,
        }
    }

    fn row(index: u32, gid: [u8; 16], kind: u8) -> GidEntry {
        GidEntry { index, gid, kind: kind.into(), interface: 1 }
    }

    #[test]
    fn refreshed_finds_a_moved_gid_by_its_bytes_and_type() {
        let gids = [row(1, OURS, GID_ROCE_V2 - 1), row(5, OURS, GID_ROCE_V2), row(3, OTHER, GID_ROCE_V2)];
        let refreshed = choice().refreshed(0, &gids);
        assert_eq!((refreshed.gid_index, refreshed.gid), (5, OURS));
    }

    #[test]
    fn a_gid_keeps_its_index_although_another_row_has_it_too() {
        let gids = [row(1, OURS, GID_ROCE_V2), row(3, OURS, GID_ROCE_V2)];
        assert_eq!(choice().refreshed(0, &gids), choice());
    }

    #[test]
    fn only_a_gid_of_the_same_type_at_the_same_index_replaces_one_that_has_gone() {
        assert_eq!(choice().refreshed(0, &[row(3, OTHER, GID_ROCE_V2)]).gid, OTHER);
        let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1).octets();
        let others = [row(3, OTHER, GID_ROCE_V2 - 1), row(4, OTHER, GID_ROCE_V2), row(3, link_local, GID_ROCE_V2)];
        for other in others {
            assert_eq!(choice().refreshed(0, &[other]), choice());
        }
        assert_eq!(choice().refreshed(0, &[]), choice());
    }

    #[test]
    fn an_infiniband_port_takes_another_subnet_prefix_and_no_other_ports_gid() {
        let mut moved = OURS;
        moved[..8].fill(7);
        let infiniband = PortChoice { link_layer: LINK_INFINIBAND, ..choice() };
        assert_eq!(infiniband.refreshed(0, &[row(3, moved, GID_ROCE_V2)]).gid, moved);
        assert_eq!(infiniband.refreshed(0, &[row(3, OTHER, GID_ROCE_V2)]).gid, OURS);
    }

    #[test]
    fn only_a_port_with_a_lid_takes_a_new_one() {
        let infiniband = PortChoice { link_layer: LINK_INFINIBAND, lid: 1, ..choice() };
        assert_eq!((infiniband.refreshed(7, &[]).lid, choice().refreshed(7, &[]).lid), (7, 0));
        assert_eq!(infiniband.refreshed(0, &[]).lid, 1);
    }
}
