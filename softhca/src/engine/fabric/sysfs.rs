// SPDX-License-Identifier: MIT OR Apache-2.0
//! The emulated sysfs: a small tree in the fabric's folder, in the shape of the kernel's; and each port's error
//! counters as files, like the kernel's `hw_counters`, under the names that mlx5 uses. `class/infiniband/NAME` is a
//! link to `devices/NAME/infiniband/NAME`, and the folder of the bus device has the files of a PCI device. Software
//! adapters are below `devices/virtual`. A count is a word of the region's header. Its text is a file that every
//! process maps when it first opens an adapter, so counting needs neither a system call nor an allocation. Called by:
//! `verbs::device` (makes the tree), `faults::timeline` (changes a port), fabric (counts troubles, never messages that
//! arrive). Grade: setup; counting is pending. Thread rule: any thread of any process; a process makes the tree under
//! another name, and renames it. Tests: below, and tests/engine.rs.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{fs, io};

use crate::engine::codes::gid_kind;
use crate::engine::memory::layout::{HW_COUNTERS, Header};
use crate::engine::memory::{W64, region};
use crate::engine::{DeviceSpec, PortSpec};

pub(crate) fn root(folder: &Path) -> PathBuf {
    folder.join("sysfs")
}

pub(crate) fn make(folder: &Path, devices: &[DeviceSpec]) -> io::Result<()> {
    let root = root(folder);
    if root.exists() {
        return Ok(());
    }
    let draft = folder.join(format!("sysfs.{}", std::process::id()));
    let _left_by_one_that_was_killed = fs::remove_dir_all(&draft);
    fs::create_dir_all(draft.join("class/infiniband"))?;
    devices.iter().try_for_each(|spec| describe_device(&draft, spec))?;
    // Renaming onto a folder that another process has filled meanwhile fails; that one is as good.
    match fs::rename(&draft, &root) {
        Err(_) if root.exists() => fs::remove_dir_all(&draft),
        result => result,
    }
}

fn describe_device(draft: &Path, spec: &DeviceSpec) -> io::Result<()> {
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
    for (number, port) in (1..).zip(&spec.ports) {
        let folder = port_folder(draft, &spec.name, number);
        describe_port(&folder, port, rows(spec, port))?;
        fs::create_dir(folder.join("hw_counters"))?;
        NAMES.iter().try_for_each(|name| fs::write(folder.join("hw_counters").join(name), text(0)))?;
    }
    Ok(())
}

/// The folder of port `number` (from 1) of an adapter, in the tree at `root`.
fn port_folder(root: &Path, device: &str, number: u8) -> PathBuf {
    root.join(format!("class/infiniband/{device}/ports/{number}"))
}

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
            // The kernel has the file, but reading it fails; here it does not exist.
            match fs::remove_file(folder.join(kind)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        } else {
            write(folder, &kind, if gid.kind == gid_kind::ROCE_V2 { "RoCE v2" } else { "IB/RoCE v1" })?;
        }
    }
    for (index, pkey) in port.pkeys.iter().enumerate() {
        write(folder, &format!("pkeys/{index}"), &format!("{pkey:#06x}"))?;
    }
    Ok(())
}

/// Writes the changed files of port `number` (from 1) of an adapter.
pub(crate) fn change_port(fabric: &Path, spec: &DeviceSpec, number: u8, port: &PortSpec) -> io::Result<()> {
    describe_port(&port_folder(&root(fabric), &spec.name, number), port, rows(spec, port))
}

/// `0102:0304:...`, as the kernel writes GUIDs and GIDs.
fn groups(bytes: &[u8]) -> String {
    bytes.chunks(2).map(|pair| format!("{:02x}{:02x}", pair[0], pair[1])).collect::<Vec<_>>().join(":")
}

/// Writes a file that is missing or different; replaces a different one by renaming, as a program may be reading it.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// Messages that found no receive request here: answered "not ready", or lost.
    OutOfBuffer,
    /// Answers "not ready" that senders here got.
    RnrNakRetry,
    /// Number of times that a sender here waited in vain for an answer.
    LocalAckTimeout,
    DuplicateRequest,
    /// Sends from here that ended in an error, without flushed ones.
    RequesterError,
    /// Receives here that ended in an error, without flushed ones.
    ResponderError,
    RequesterAccess,
    ResponderAccess,
}

/// Their files, in the order of `Count`.
const NAMES: [&str; HW_COUNTERS] = [
    "out_of_buffer",
    "rnr_nak_retry_err",
    "local_ack_timeout_err",
    "duplicate_request",
    "req_cqe_error",
    "resp_cqe_error",
    "req_remote_access_errors",
    "resp_remote_access_errors",
];

/// Bytes of a file: a number, set to the right, and a newline.
const TEXT_BYTES: usize = 16;

type Text = [W64; 2];

/// The mapped texts of each adapter and port; none before this process has opened an adapter.
#[derive(Default)]
pub(crate) struct Texts(OnceLock<Vec<Vec<[Option<&'static Text>; HW_COUNTERS]>>>);

/// The text of a count. Allocates nothing, because other messages wait meanwhile.
fn text(count: u64) -> [u8; TEXT_BYTES] {
    let mut bytes = [b'\n'; TEXT_BYTES];
    let _there_is_room = write!(&mut bytes[..], "{:>15}", count % 1_000_000_000_000_000);
    bytes
}

impl Texts {
    pub(super) fn map_all(&self, fabric: &Path, devices: &[DeviceSpec]) {
        let of_port = |spec: &DeviceSpec, number| {
            let files = port_folder(&root(fabric), &spec.name, number).join("hw_counters");
            NAMES.map(|name| map(&files.join(name)).ok())
        };
        let of_device = |spec: &DeviceSpec| (1..).zip(&spec.ports).map(|(number, _)| of_port(spec, number)).collect();
        self.0.get_or_init(|| devices.iter().map(of_device).collect());
    }

    /// Counts one more for a port (both from 0), and shows it in the port's file.
    pub(crate) fn count(&self, header: &Header, device: usize, port: usize, what: Count) {
        let Some(words) = header.hw_counters.get(device).and_then(|ports| ports.get(port)) else { return };
        let word = &words[what as usize];
        word.add(1);
        let Some(mapped) = self.0.get().and_then(|texts| texts.get(device)?.get(port)?[what as usize]) else { return };
        loop {
            // If several threads count at once, the last one that reads the word writes the last count.
            let shown = word.get();
            let bytes = text(shown);
            for (half, word) in mapped.iter().enumerate() {
                word.swap(u64::from_ne_bytes(std::array::from_fn(|i| bytes[half * 8 + i])));
            }
            if word.add(0) == shown {
                return;
            }
        }
    }
}

fn map(path: &Path) -> io::Result<&'static Text> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC).open(path)?;
    if file.metadata()?.len() < TEXT_BYTES as u64 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let base = region::map(&file, TEXT_BYTES)?;
    // SAFETY: a mapped page is aligned and long enough, and stays; words may be shared; the file keeps its size.
    Ok(unsafe { &*base.cast::<Text>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_the_size_of_its_file_whatever_the_count() {
        assert_eq!(&text(0), b"              0\n");
        assert_eq!(&text(1_234_567), b"        1234567\n");
        assert_eq!(text(u64::MAX)[TEXT_BYTES - 1], b'\n');
        assert_eq!(NAMES[Count::ResponderAccess as usize], "resp_remote_access_errors");
    }
}
