// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much a fabric holds, and where its fixed tables lie in the shared file. Offsets are bytes from its start.
//!
//! Called by: the tables, and the limits that adapters report. Grade: constants. Thread rule: none.

/// Bytes of the file, which is sparse.
pub(crate) const REGION_BYTES: u64 = 4 << 30;

/// Processes at a time.
pub(crate) const MAX_PROCESSES: u32 = 1024;
/// Queue pairs at a time, in the whole fabric.
pub(crate) const MAX_QPS: u32 = 1 << 16;
/// Memory regions at a time, in the whole fabric.
pub(crate) const MAX_MRS: u32 = 1 << 18;
/// Adapters, and ports of each.
pub(crate) const MAX_DEVICES: usize = 4;
pub(crate) const MAX_PORTS: usize = 2;
/// Hardware counters of a port.
pub(crate) const HW_COUNTERS: usize = 8;
/// Rules for faults.
pub(crate) const MAX_RULES: usize = 64;
/// Commands that a fabric is ever given.
pub(crate) const MAX_COMMANDS: u32 = 4096;
/// Multicast groups at a time, and members of each.
pub(crate) const MAX_GROUPS: usize = 64;
pub(crate) const MAX_MEMBERS: usize = 32;
/// Shared receive queues of XRC, and domains opened by a file, at a time.
pub(crate) const MAX_XRC_QUEUES: u32 = 1024;
pub(crate) const MAX_DOMAINS: usize = 256;
/// Largest payload that travels in a completion, or waits with a stored request, in shared memory.
pub(crate) const MAX_CARRIED: u32 = 256;

/// The header lies before this.
pub(super) const SLOTS_AT: u64 = 64 << 10;
const XRC_QUEUES_AT: u64 = 256 << 10;
const COMMANDS_AT: u64 = 512 << 10;
const MRS_AT: u64 = 1 << 20;
const QPS_AT: u64 = 32 << 20;
/// Bytes of a queue pair's place.
pub(crate) const QP_BYTES: u64 = 1 << 10;
/// The heap follows the tables.
pub(crate) const HEAP_AT: u64 = QPS_AT + MAX_QPS as u64 * QP_BYTES;

/// Where a process slot lies.
pub(crate) fn slot_at(index: u32) -> u64 {
    SLOTS_AT + u64::from(index) * 64
}

/// Where the entry of a memory region lies.
#[inline]
pub(crate) fn mr_at(index: u32) -> u64 {
    MRS_AT + u64::from(index) * 64
}

/// Where the entry of a shared receive queue of XRC lies.
pub(crate) fn xrc_queue_at(index: u32) -> u64 {
    XRC_QUEUES_AT + u64::from(index) * 64
}

/// Where a command lies.
pub(crate) fn command_at(index: u32) -> u64 {
    COMMANDS_AT + u64::from(index) * 64
}

/// Where a queue pair lies.
#[inline]
pub(crate) fn qp_at(index: u32) -> u64 {
    QPS_AT + u64::from(index) * QP_BYTES
}

const _: () = assert!(SLOTS_AT + MAX_PROCESSES as u64 * 64 <= XRC_QUEUES_AT);
const _: () = assert!(XRC_QUEUES_AT + MAX_XRC_QUEUES as u64 * 64 <= COMMANDS_AT);
const _: () = assert!(COMMANDS_AT + MAX_COMMANDS as u64 * 64 <= MRS_AT);
const _: () = assert!(MRS_AT + MAX_MRS as u64 * 64 <= QPS_AT);
