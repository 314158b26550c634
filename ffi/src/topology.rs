// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far adapters are from where this process may run, by hwloc.
//!
//! Owns the question; `device.rs` of the engine asks it once, for all devices, and `select.rs` uses the answer. Every failure
//! (no hwloc information, a virtual machine, a software device) is the answer "not known", which counts as near.
//!
//! Through the crate `hwlocality`. The other one, `hwloc2` (2.2.0 is its last release, of May 2020), has no safe call that
//! sets the filter of I/O objects, without which hwloc reports no adapters at all (and it declares
//! `hwloc_topology_set_io_types_filter` with an argument too many); it also takes object types that C wrote as Rust
//! enums, which newer hwlocs (a `Die` among them, since 2.1) make undefined behaviour.
//!
//! Path: setup (reading a topology takes milliseconds to tens of them). Threads: any. No unsafe code here.
//! Units: NUMA distances as in the ACPI SLIT, 10 = local. Tests: at the end of the file, on topologies in XML.

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
/// What hwloc and Linux take for another node when the firmware says nothing.
const REMOTE: u32 = 20;

/// The NUMA distance between where this process may run and each device, given by its verbs name (`mlx5_0`) and its place in
/// sysfs (`/sys/class/infiniband/mlx5_0`): 10 for the same node, more for others, `None` where it is not known.
///
/// A process that may run on several nodes is as near as the nearest of them.
#[must_use]
pub fn distances(devices: &[(&str, &Path)]) -> Vec<Option<u32>> {
    // hwlocality checks what hwloc says by assertions; a topology it does not understand must not end the process.
    let known = catch_unwind(AssertUnwindSafe(|| {
        let topology = read(TopologyBuilder::new())?;
        let allowed = topology.cpu_binding(CpuBindingFlags::PROCESS).ok()?;
        Some(devices.iter().map(|(name, path)| distance_in(&topology, &allowed, name, path)).collect())
    }));
    known.ok().flatten().unwrap_or_else(|| vec![None; devices.len()])
}

/// The NUMA distance of one device; see [`distances`], which reads the topology once for all.
#[must_use]
pub fn distance(device: &str, sysfs: &Path) -> Option<u32> {
    distances(&[(device, sysfs)])[0]
}

/// Reads a topology with the adapters in it.
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

/// The NUMA nodes an adapter hangs on, as hwloc knows it; `None` for one it does not know, or that hangs on the whole machine.
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

/// The NUMA node the kernel itself names for the device (`device/numa_node`, -1 when it does not know).
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
