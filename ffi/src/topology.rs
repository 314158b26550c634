// SPDX-License-Identifier: MIT OR Apache-2.0
//! The NUMA distance of adapters from this process, by hwloc. Distances are as in the ACPI SLIT, 10 = local. The
//! engine's `device.rs` calls it once, for all devices, and `choose` uses the result. Every failure (no hwloc
//! information, a virtual machine, a software device) means "unknown", which counts as near. Path: setup (takes
//! milliseconds). Threads: any. No unsafe code here. Tests: below, on topologies in XML.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use hwlocality::Topology;
use hwlocality::cpu::binding::CpuBindingFlags;
use hwlocality::cpu::cpuset::CpuSet;
use hwlocality::object::TopologyObject;
use hwlocality::object::types::ObjectType;
use hwlocality::topology::builder::{TopologyBuilder, TypeFilter};

/// The distance of a node to itself (ACPI specification, System Locality Distance Information Table).
const LOCAL: u32 = 10;
/// The distance that hwloc and Linux assume between two nodes if the firmware has no table.
const REMOTE: u32 = 20;

/// Returns the NUMA distance of each device (its verbs name and place in sysfs, `/sys/class/infiniband/mlx5_0`) from
/// the nearest node where this process may run: 10 on the same node, more on others; `None`: unknown.
pub fn distances(devices: &[(&str, &Path)]) -> Vec<Option<u32>> {
    // hwlocality asserts its expectations of hwloc; an unexpected topology must not end the process.
    let known = catch_unwind(AssertUnwindSafe(|| {
        let topology = read(TopologyBuilder::new())?;
        let allowed = topology.cpu_binding(CpuBindingFlags::PROCESS).ok()?;
        Some(devices.iter().map(|(name, path)| distance_in(&topology, &allowed, name, path)).collect())
    }));
    known.ok().flatten().unwrap_or_else(|| vec![None; devices.len()])
}

fn read(builder: TopologyBuilder) -> Option<Topology> {
    builder.with_io_type_filter(TypeFilter::KeepImportant).ok()?.build().ok()
}

fn distance_in(topology: &Topology, allowed: &CpuSet, device: &str, sysfs: &Path) -> Option<u32> {
    let nodes: Vec<&TopologyObject> = topology.objects_with_type(ObjectType::NUMANode).collect();
    let near_device = nodes_of_device(topology, &nodes, device).or_else(|| node_by_sysfs(&nodes, sysfs))?;
    let near_process = nodes.iter().copied().filter(|node| node.cpuset().is_some_and(|set| set.intersects(allowed)));
    let pairs = near_process.flat_map(|from| near_device.iter().map(move |to| (from, *to)));
    pairs.map(|(from, to)| between(topology, from, to)).min()
}

/// The NUMA nodes to which an adapter is local, by hwloc; `None`: unknown, or all nodes of several.
fn nodes_of_device<'a>(
    topology: &Topology,
    nodes: &[&'a TopologyObject],
    device: &str,
) -> Option<Vec<&'a TopologyObject>> {
    let is_it = |object: &&TopologyObject| {
        object.object_type() == ObjectType::OSDevice
            && object.name().is_some_and(|name| name.to_bytes() == device.as_bytes())
    };
    let place = topology.io_objects().find(is_it)?.first_non_io_ancestor()?;
    let set = place.nodeset()?;
    let near: Vec<_> =
        nodes.iter().copied().filter(|node| node.nodeset().is_some_and(|own| set.intersects(own))).collect();
    (!near.is_empty() && (near.len() < nodes.len() || nodes.len() == 1)).then_some(near)
}

/// The NUMA node of the device by sysfs (`device/numa_node`, -1: unknown).
fn node_by_sysfs<'a>(nodes: &[&'a TopologyObject], sysfs: &Path) -> Option<Vec<&'a TopologyObject>> {
    let index: usize = std::fs::read_to_string(sysfs.join("device/numa_node")).ok()?.trim().parse().ok()?;
    let node = nodes.iter().copied().find(|node| node.os_index() == Some(index))?;
    Some(vec![node])
}

fn between(topology: &Topology, from: &TopologyObject, to: &TopologyObject) -> u32 {
    if from.global_persistent_index() == to.global_persistent_index() {
        return LOCAL;
    }
    let matrices = topology.distances_with_type(None, ObjectType::NUMANode).unwrap_or_default();
    let there = matrices.first().and_then(|matrix| matrix.object_pair_distance((from, to)));
    there.and_then(|(there, _)| u32::try_from(there).ok()).unwrap_or(REMOTE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine of two packages with a processor, a NUMA node and an adapter each, and a software device.
    fn two_packages(distances: &str) -> Topology {
        let package = |number: u32| {
            let (mask, id) = (1 << number, 10 * (number + 1));
            let sets = format!(
                r#"cpuset="0x{mask:x}" complete_cpuset="0x{mask:x}" nodeset="0x{mask:x}" complete_nodeset="0x{mask:x}""#
            );
            let [node, core, unit, bridge, adapter, port] = [1, 2, 3, 4, 5, 6].map(|nth| id + nth);
            format!(
                r#"<object type="Package" os_index="{number}" {sets} gp_index="{id}">
                <object type="NUMANode" os_index="{number}" {sets} gp_index="{node}" local_memory="1048576"/>
                <object type="Core" os_index="{number}" {sets} gp_index="{core}">
                <object type="PU" os_index="{number}" {sets} gp_index="{unit}"/></object>
                <object type="Bridge" gp_index="{bridge}" bridge_type="0-1" depth="0" bridge_pci="000{number}:[00-01]">
                <object type="PCIDev" gp_index="{adapter}" pci_busid="000{number}:01:00.0"
                pci_type="0207 [15b3:1017] [15b3:0020] 00" pci_link_speed="15.753846">
                <object type="OSDev" gp_index="{port}" name="mlx5_{number}" osdev_type="3"/></object></object></object>"#
            )
        };
        let xml = format!(
            r#"<?xml version="1.0" encoding="UTF-8"?><!DOCTYPE topology SYSTEM "hwloc2.dtd"><topology version="2.0">
            <object type="Machine" os_index="0" cpuset="0x3" complete_cpuset="0x3" allowed_cpuset="0x3" nodeset="0x3"
            complete_nodeset="0x3" allowed_nodeset="0x3" gp_index="1">{}{}
            <object type="OSDev" gp_index="60" name="rxe0" osdev_type="3"/></object>{distances}</topology>"#,
            package(0),
            package(1)
        );
        let builder = TopologyBuilder::new().from_xml(&xml).expect("hwloc reads the XML");
        read(builder).expect("hwloc loads the machine")
    }

    const DISTANCES: &str = r#"<distances2 type="NUMANode" nbobjs="2" kind="5" indexing="os">
        <indexes length="4">0 1 </indexes><u64values length="12">10 32 32 10 </u64values></distances2>"#;

    fn processors(topology: &Topology, mask: u32) -> CpuSet {
        let allowed = topology.objects_with_type(ObjectType::PU).filter(|unit| mask >> unit.logical_index() & 1 == 1);
        allowed.fold(CpuSet::new(), |all, unit| all | unit.cpuset().expect("a processor has a set"))
    }

    fn from(topology: &Topology, mask: u32, device: &str) -> Option<u32> {
        distance_in(topology, &processors(topology, mask), device, Path::new("/nowhere"))
    }

    #[test]
    fn the_distance_is_the_firmwares_from_the_nearest_package_of_the_process() {
        let topology = two_packages(DISTANCES);
        let devices = topology.io_objects().filter(|io| io.object_type() == ObjectType::OSDevice);
        assert_eq!(devices.count(), 3, "two adapters and a software device");
        for (mask, device, wanted) in [
            (0b01, "mlx5_0", Some(10)),
            (0b01, "mlx5_1", Some(32)),
            (0b10, "mlx5_0", Some(32)),
            (0b11, "mlx5_0", Some(10)),
            (0b11, "mlx5_1", Some(10)),
            // A device outside the packages, and one that does not exist.
            (0b01, "rxe0", None),
            (0b01, "absent", None),
            // The process may run on no known processor.
            (0, "mlx5_0", None),
        ] {
            assert_eq!(from(&topology, mask, device), wanted, "{mask:b} {device}");
        }
    }

    #[test]
    fn without_a_table_of_the_firmware_another_node_is_at_distance_twenty() {
        let topology = two_packages("");
        assert_eq!((from(&topology, 0b01, "mlx5_0"), from(&topology, 0b01, "mlx5_1")), (Some(10), Some(20)));
    }

    #[test]
    fn sysfs_gives_the_node_that_hwloc_does_not_know() {
        let topology = two_packages(DISTANCES);
        let sysfs = std::env::temp_dir().join(format!("ibex-topology-{}", std::process::id()));
        std::fs::create_dir_all(sysfs.join("device")).expect("a directory");
        let with = |text: &str| {
            std::fs::write(sysfs.join("device/numa_node"), text).expect("a file");
            distance_in(&topology, &processors(&topology, 0b01), "rxe0", &sysfs)
        };
        assert_eq!(
            [with("0\n"), with("1\n"), with("-1\n"), with("7\n"), with("")],
            [Some(10), Some(32), None, None, None]
        );
        std::fs::remove_dir_all(&sysfs).expect("it was made above");
    }

    #[test]
    fn the_distances_of_absent_devices_are_unknown() {
        let nowhere = Path::new("/nowhere");
        assert_eq!(distances(&[("absent0", nowhere), ("absent1", nowhere)]), [None, None]);
        assert!(distances(&[]).is_empty());
    }
}
