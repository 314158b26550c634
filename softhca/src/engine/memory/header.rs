// SPDX-License-Identifier: MIT OR Apache-2.0
//! The start of the shared file: what all processes of a fabric have in common, but for the tables that `layout` places
//! behind it.
//!
//! Owns the layout of these fields; what they mean is the business of whoever uses them (counters, faults, multicast
//! groups, XRC domains, the table of queue pairs). Called by: those, and the process that joins. Grade: `header` is
//! hot. Thread rule: each field's own; `tables` guards the tables.

use crate::engine::{
    Errno, Result,
    memory::{
        heap::Heap,
        layout::{HW_COUNTERS, MAX_DEVICES, MAX_DOMAINS, MAX_GROUPS, MAX_MEMBERS, MAX_PORTS, MAX_RULES, SLOTS_AT},
        lock::SharedLock,
        process::Process,
        region::{Region, Shared},
        words::{W32, W64},
    },
};

/// Changes whenever a shared structure does.
const MAGIC: u64 = 0x736f_6674_6863_0005;

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

/// The start of the file.
#[repr(C, align(64))]
pub(crate) struct Header {
    magic: W64,
    /// `CLOCK_MONOTONIC` nanoseconds when the fabric began.
    pub(crate) began_ns: W64,
    /// Guards the tables: process slots, free queue pairs, groups.
    pub(crate) tables: SharedLock,
    /// Numbers for domains, channels, queues.
    next_id: W32,
    /// Queue pair places ever used.
    pub(crate) qps_used: W32,
    /// First and last of the free ones (index plus one), oldest first.
    pub(crate) qps_free: W32,
    pub(crate) qps_free_last: W32,
    /// Queue pairs of each adapter.
    pub(crate) qps_of: [W32; MAX_DEVICES],
    /// What each rule for faults has seen that fits it, and how often it applied.
    pub(crate) fault_counts: [W32; MAX_RULES],
    pub(crate) fault_applied: [W32; MAX_RULES],
    /// Commands given so far (`faults::command`).
    pub(crate) commands: W32,
    pub(crate) port_state: [[W32; MAX_PORTS]; MAX_DEVICES],
    /// Until when the model's link is taken, in nanoseconds.
    pub(crate) port_busy: [[W64; MAX_PORTS]; MAX_DEVICES],
    pub(crate) hw_counters: [[[W64; HW_COUNTERS]; MAX_PORTS]; MAX_DEVICES],
    pub(super) heap: Heap,
    /// Makes emulated atomics atomic among each other, as `IBV_ATOMIC_HCA` says.
    pub(crate) atomics: AtomicsLock,
    pub(crate) groups: [Group; MAX_GROUPS],
    pub(crate) domains: [OpenDomain; MAX_DOMAINS],
}

/// On a cache line of its own.
#[repr(C, align(64))]
pub(crate) struct AtomicsLock(pub(crate) SharedLock);

// SAFETY: words only; repr(C); zero is the empty state of each.
unsafe impl Shared for Header {}

const _: () = assert!(size_of::<Header>() as u64 <= SLOTS_AT);

/// Makes the header if nobody has.
/// # Errors
/// EPROTO: another version of this engine did.
pub(crate) fn begin(region: &Region, now_ns: u64, init: impl FnOnce(&Header)) -> Result<()> {
    match region.first_word()? {
        0 => {
            let header: &Header = region.at(0);
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
    #[inline]
    pub(crate) fn header(&self) -> &'static Header {
        self.region().at(0)
    }

    /// A number for a new object.
    pub(crate) fn next_id(&self) -> u32 {
        self.header().next_id.add(1) + 1
    }
}
