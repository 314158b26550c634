// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sizes of a fabric, and the layout of the shared file: the header, which all processes share, and the fixed
//! tables behind it. Offsets are bytes from the start of the file. Owns the layout of the fields; their meaning is in
//! the modules that use them (counters, faults, multicast groups, XRC domains, the table of queue pairs). Called by:
//! those, the process that joins, the limits that adapters report. Grade: `header` is hot, the rest constants. Thread
//! rule: each field's own; `tables` guards the tables.

use crate::engine::memory::heap::Heap;
use crate::engine::{Errno, Process, Region, Result, Shared, SharedLock, W32, W64};

/// Bytes of the file, which is sparse.
pub(crate) const REGION_BYTES: u64 = 4 << 30;

pub(crate) const MAX_PROCESSES: u32 = 1024;
pub(crate) const MAX_QPS: u32 = 1 << 16;
pub(crate) const MAX_MRS: u32 = 1 << 18;
/// Adapters, and ports of each.
pub(crate) const MAX_DEVICES: usize = 4;
pub(crate) const MAX_PORTS: usize = 2;
pub(crate) const HW_COUNTERS: usize = 8;
pub(crate) const MAX_RULES: usize = 64;
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
pub(crate) const QP_BYTES: u64 = 1 << 10;
pub(crate) const HEAP_AT: u64 = QPS_AT + MAX_QPS as u64 * QP_BYTES;

pub(crate) fn slot_at(index: u32) -> u64 {
    SLOTS_AT + u64::from(index) * 64
}

pub(crate) fn mr_at(index: u32) -> u64 {
    MRS_AT + u64::from(index) * 64
}

pub(crate) fn xrc_queue_at(index: u32) -> u64 {
    XRC_QUEUES_AT + u64::from(index) * 64
}

pub(crate) fn command_at(index: u32) -> u64 {
    COMMANDS_AT + u64::from(index) * 64
}

pub(crate) fn qp_at(index: u32) -> u64 {
    QPS_AT + u64::from(index) * QP_BYTES
}

const _: () = assert!(SLOTS_AT + MAX_PROCESSES as u64 * 64 <= XRC_QUEUES_AT);
const _: () = assert!(XRC_QUEUES_AT + MAX_XRC_QUEUES as u64 * 64 <= COMMANDS_AT);
const _: () = assert!(COMMANDS_AT + MAX_COMMANDS as u64 * 64 <= MRS_AT);
const _: () = assert!(MRS_AT + MAX_MRS as u64 * 64 <= QPS_AT);

/// Changes whenever a shared structure does.
const MAGIC: u64 = 0x736f_6674_6863_0008;

/// A multicast group: its address and the indices of its queue pairs plus one.
#[repr(C)]
pub(crate) struct Group {
    pub(crate) gid: [W64; 2],
    pub(crate) members: [W32; MAX_MEMBERS],
}

/// An XRC domain as one process has opened it by a file. It lasts while any process has it open.
#[repr(C)]
pub(crate) struct OpenDomain {
    /// Token of the process; 0 while free.
    pub(crate) owner: W32,
    pub(crate) device: W32,
    pub(crate) id: W32,
    _pad: W32,
    /// Device and number of the file.
    pub(crate) file: [W64; 2],
}

#[repr(C, align(64))]
pub(crate) struct Header {
    magic: W64,
    /// `CLOCK_MONOTONIC` nanoseconds when the fabric began.
    pub(crate) began_ns: W64,
    /// Guards the tables: queue pairs, groups, domains, commands. Taken by `qp::table::lock`.
    pub(crate) tables: SharedLock,
    /// Last number of a domain, channel or queue.
    next_id: W32,
    /// Number of queue pair places ever used.
    pub(crate) qps_used: W32,
    /// First and last free place (index plus one), oldest first.
    pub(crate) qps_free: W32,
    pub(crate) qps_free_last: W32,
    pub(crate) qps_of: [W32; MAX_DEVICES],
    /// For each rule: how often it fitted, and how often it applied.
    pub(crate) fault_counts: [W32; MAX_RULES],
    pub(crate) fault_applied: [W32; MAX_RULES],
    /// Commands given so far (`faults::command`).
    pub(crate) commands: W32,
    pub(crate) port_state: [[W32; MAX_PORTS]; MAX_DEVICES],
    /// Time until which a message occupies the model's link, in nanoseconds.
    pub(crate) port_busy: [[W64; MAX_PORTS]; MAX_DEVICES],
    pub(crate) hw_counters: [[[W64; HW_COUNTERS]; MAX_PORTS]; MAX_DEVICES],
    pub(super) heap: Heap,
    /// Makes emulated atomics atomic among each other, as `IBV_ATOMIC_HCA` says.
    pub(crate) atomics: AtomicsLock,
    pub(crate) groups: [Group; MAX_GROUPS],
    pub(crate) domains: [OpenDomain; MAX_DOMAINS],
}

#[repr(C, align(64))]
pub(crate) struct AtomicsLock(pub(crate) SharedLock);

// SAFETY: words only; repr(C); zero is the empty state of each.
unsafe impl Shared for Header {}

const _: () = assert!(size_of::<Header>() as u64 <= SLOTS_AT);

/// Makes the header if there is none; EPROTO if another version of this engine made it.
pub(crate) fn begin(region: &Region, now_ns: u64, init: impl FnOnce(&Header)) -> Result<()> {
    let header: &Header = region.at(0);
    match header.magic.seen() {
        0 => {
            header.began_ns.set(now_ns);
            header.heap.begin();
            init(header);
            header.magic.publish(MAGIC);
            Ok(())
        }
        MAGIC => Ok(()),
        _ => Err(Errno(libc::EPROTO)),
    }
}

impl Process {
    pub(crate) fn header(&self) -> &'static Header {
        self.region().at(0)
    }

    pub(crate) fn next_id(&self) -> u32 {
        self.header().next_id.add(1) + 1
    }
}
