// SPDX-License-Identifier: MIT OR Apache-2.0
//! The emulated sysfs: a small tree in the fabric's folder, in the shape of the kernel's.
//!
//! Programs read about an adapter below it (Open MPI's openib asks whether it has `class/infiniband` at all).
//! `class/infiniband/NAME` is a link to `devices/NAME/infiniband/NAME`, and the folder of the bus device holds what a
//! PCI device's does. Software adapters are below `devices/virtual`. Called by: `verbs::device` (makes it),
//! `faults::timeline` (changes a port). Grade: setup. Thread rule: any thread; the first of the fabric's processes
//! makes the tree, under another name, and renames it.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use crate::engine::{
    codes::gid_kind,
    fabric::counters,
    spec::device::{DeviceSpec, PortSpec},
};

/// The root of the emulated tree of the fabric in `folder`.
pub(crate) fn root(folder: &Path) -> PathBuf {
    folder.join("sysfs")
}

/// Makes the tree, unless another process has.
pub(crate) fn make(folder: &Path, devices: &[DeviceSpec]) -> io::Result<()> {
    let root = root(folder);
    if root.exists() {
        return Ok(());
    }
    let draft = folder.join(format!("sysfs.{}", std::process::id()));
    fs::create_dir_all(draft.join("class/infiniband"))?;
    counters::make(folder, devices)?;
    for (index, spec) in devices.iter().enumerate() {
        describe_device(&draft, spec, |port| counters::folder_of(folder, index, port))?;
    }
    // Renaming onto a folder that another process has filled meanwhile fails, and then that one is as good.
    match fs::rename(&draft, &root) {
        Err(_) if root.exists() => fs::remove_dir_all(&draft),
        result => result,
    }
}

fn describe_device(draft: &Path, spec: &DeviceSpec, counters_of: impl Fn(usize) -> PathBuf) -> io::Result<()> {
    let name = &spec.name;
    let place = if spec.behaviour.virtual_device { "devices/virtual" } else { "devices" };
    let bus = draft.join(place).join(name);
    let device = bus.join("infiniband").join(name);
    fs::create_dir_all(&device)?;
    symlink("../..", device.join("device"))?;
    symlink(format!("../../{place}/{name}/infiniband/{name}"), draft.join("class/infiniband").join(name))?;

    write(&bus, "vendor", &format!("{:#06x}", spec.vendor_id & 0xffff))?;
    write(&bus, "device", &format!("{:#06x}", spec.vendor_part_id & 0xffff))?;
    write(&bus, "numa_node", &spec.numa_node.to_string())?;
    write(&bus, "local_cpus", &"f".repeat(16))?;
    write(&bus, "current_link_width", "16")?;
    write(&bus, "current_link_speed", "16.0 GT/s PCIe")?;

    write(&device, "node_type", "1: CA")?;
    write(&device, "node_desc", "softhca, an emulated adapter")?;
    write(&device, "node_guid", &groups(&spec.node_guid.to_be_bytes()))?;
    write(&device, "sys_image_guid", &groups(&spec.node_guid.to_be_bytes()))?;
    write(&device, "fw_ver", &spec.fw_ver)?;
    write(&device, "board_id", "SOFTHCA")?;
    write(&device, "hca_type", "softhca")?;
    for (index, port) in spec.ports.iter().enumerate() {
        let folder = device.join("ports").join((index + 1).to_string());
        describe_port(&folder, port, rows(spec, port))?;
        symlink(counters_of(index), folder.join("hw_counters"))?;
    }
    Ok(())
}

/// The rows of a port's table of GIDs.
pub(crate) fn rows(spec: &DeviceSpec, port: &PortSpec) -> usize {
    port.gids.len().max(spec.limits.gid_table_len as usize)
}

fn describe_port(folder: &Path, port: &PortSpec, rows: usize) -> io::Result<()> {
    for sub in ["gids", "pkeys", "gid_attrs/types"] {
        fs::create_dir_all(folder.join(sub))?;
    }
    write(folder, "lid", &format!("{:#x}", port.lid))?;
    write(folder, "sm_lid", &format!("{:#x}", port.sm_lid))?;
    for index in 0..rows {
        let gid = port.gids.get(index).copied().unwrap_or_default();
        write(folder, &format!("gids/{index}"), &groups(&gid.raw))?;
        let kind = format!("gid_attrs/types/{index}");
        if gid.is_empty() {
            // The kernel's file is there, and reading it fails; here it is not.
            match fs::remove_file(folder.join(kind)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        } else {
            write(folder, &kind, gid_type_text(gid.kind))?;
        }
    }
    for (index, pkey) in port.pkeys.iter().enumerate() {
        write(folder, &format!("pkeys/{index}"), &format!("{pkey:#06x}"))?;
    }
    Ok(())
}

/// Writes what has changed in port `number` (from 1) of an adapter. Nothing where the fabric has no tree.
pub(crate) fn change_port(fabric: &Path, spec: &DeviceSpec, number: u8, port: &PortSpec) -> io::Result<()> {
    let folder = root(fabric).join("class/infiniband").join(&spec.name).join("ports").join(number.to_string());
    if folder.exists() { describe_port(&folder, port, rows(spec, port)) } else { Ok(()) }
}

/// `0102:0304:...`, as the kernel writes GUIDs and GIDs.
fn groups(bytes: &[u8]) -> String {
    bytes.chunks(2).map(|pair| format!("{:02x}{:02x}", pair[0], pair[1])).collect::<Vec<_>>().join(":")
}

/// Writes a file that is not there, or that differs: then at once, as somebody may be reading it.
fn write(folder: &Path, file: &str, line: &str) -> io::Result<()> {
    let (path, text) = (folder.join(file), format!("{line}\n"));
    match fs::read_to_string(&path) {
        Ok(there) if there == text => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return fs::write(path, text),
        _ => {}
    }
    let draft = path.with_extension(std::process::id().to_string());
    fs::write(&draft, text)?;
    fs::rename(draft, path)
}

/// The kernel's word for a GID type.
fn gid_type_text(kind: u8) -> &'static str {
    if kind == gid_kind::ROCE_V2 { "RoCE v2" } else { "IB/RoCE v1" }
}
