// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices: lists and opens them, and queries their attributes, ports and GID tables. Called by the engine and the
//! command. Setup grade, any thread. GIDs are in network order; rates are in Mb/s; MTU codes are those of
//! `enum ibv_mtu` (1 = 256 bytes … 5 = 4096). Tests: device tests in `hw-tests`.

use super::handle::Handle;
use super::sys;
use super::{errno, extended};
use std::ffi::CStr;
use std::io;
use std::slice;
use std::sync::Arc;

/// The names of the RDMA devices of this machine.
///
/// # Errors
/// As `ibv_get_device_list(3)`: `ENOSYS` if the kernel has no RDMA support, `EPERM` without permission.
pub fn devices() -> io::Result<Vec<String>> {
    // SAFETY: an entry of the live list.
    with_devices(|list| list.iter().map(|device| unsafe { device_name(*device) }).collect())
}

/// Calls `call` with the list of devices, which are valid during the call; those that it opens stay so.
fn with_devices<T>(call: impl FnOnce(&[*mut sys::ibv_device]) -> T) -> io::Result<T> {
    let mut count = 0;
    // SAFETY: `count` is valid for a write; the list is freed below.
    let list = unsafe { sys::ibv_get_device_list(&raw mut count) };
    if list.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `list` has `count` entries until it is freed.
    let result = call(unsafe { slice::from_raw_parts(list, usize::try_from(count).unwrap_or(0)) });
    // SAFETY: it came from ibv_get_device_list and is freed once.
    unsafe { sys::ibv_free_device_list(list) };
    Ok(result)
}

/// Most GID entries that one query returns; if a device uses more, [`Context::gids`] queries each by itself.
const MOST_GIDS: usize = 4096;

/// An opened device (`struct ibv_context`).
#[derive(Debug)]
pub struct Context {
    handle: Handle<sys::ibv_context>,
    sysfs: String,
}

/// The fields of `struct ibv_device_attr` that the engine needs.
#[derive(Debug, Clone, Copy)]
pub struct DeviceAttributes {
    /// Vendor and part, for messages.
    pub vendor: (u32, u32),
    /// Ports, numbered from 1.
    pub ports: u8,
    /// Largest number of work requests of a queue.
    pub max_qp_wr: u32,
    /// Largest number of entries of a completion queue.
    pub max_cqe: u32,
    /// Largest number of entries of a shared receive queue; 0 without support.
    pub max_srq_wr: u32,
    /// Largest number of spans of a work request.
    pub max_sge: u32,
    /// RDMA reads and atomics that may be outstanding on a queue pair, as responder and as initiator.
    pub max_rd_atomic: (u8, u8),
    /// One of [`super::atomic_cap`].
    pub atomic_cap: u32,
}

/// The fields of `struct ibv_port_attr` that the engine needs.
#[derive(Debug, Clone, Copy)]
pub struct PortAttributes {
    /// `IBV_PORT_*`: 1 down, 2 initialising, 3 armed, 4 active.
    pub state: u32,
    /// One of [`super::link_layer`].
    pub link_layer: u8,
    /// Local identifier; 0 on Ethernet, or where no subnet manager has been.
    pub lid: u16,
    /// Active MTU code.
    pub active_mtu: u32,
    /// Entries of the GID table.
    pub gids: u32,
    /// Largest message, bytes.
    pub max_message: u32,
    /// Signalling rate less encoding, Mb/s.
    pub rate_mbps: u32,
    /// Lanes that the link runs on.
    pub lanes: u32,
}

/// One entry of a port's GID table.
#[derive(Debug, Clone, Copy)]
pub struct GidEntry {
    /// Place in the table.
    pub index: u32,
    /// The identifier, in network order.
    pub gid: [u8; 16],
    /// `IBV_GID_TYPE_*`: 0 InfiniBand, 1 RoCE v1, 2 RoCE v2.
    pub kind: u32,
    /// Interface index of the network device behind it; 0 if there is none.
    pub interface: u32,
}

/// The clock with which an adapter stamps completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// Its rate.
    pub ticks_per_second: u64,
    /// Number of low bits of a timestamp that count.
    pub bits: u32,
}

/// An asynchronous event of a device (`ibv_get_async_event(3)`).
#[derive(Debug, Clone, Copy)]
pub struct AsyncEvent {
    /// `IBV_EVENT_*`; some are in [`super::async_event`].
    pub kind: u32,
    /// The port that it concerns; 0 if it concerns none.
    pub port: u8,
}

impl Context {
    /// Opens a device by its name. Asynchronous events are made non-blocking to read.
    ///
    /// # Errors
    /// `ENODEV` if no device has that name; else as `ibv_open_device(3)` (`EACCES` of `/dev/infiniband/uverbs*`).
    pub fn open(name: &str) -> io::Result<Arc<Context>> {
        let opened = with_devices(|list| {
            // SAFETY: an entry of the live list.
            let device = list.iter().find(|device| unsafe { device_name(**device) } == name);
            let device = device.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
            // SAFETY: an entry of the live list.
            unsafe { Self::open_device(*device) }
        });
        opened?.map(Arc::new)
    }

    /// # Safety
    /// `device` is an entry of a live device list.
    unsafe fn open_device(device: *mut sys::ibv_device) -> io::Result<Context> {
        // SAFETY: the caller says that `device` is an entry of a live list.
        let handle = unsafe { Handle::new(sys::ibv_open_device(device), ()) }?;
        // SAFETY: ibdev_path is a NUL-terminated array inside the live device.
        let sysfs = unsafe { CStr::from_ptr((&raw const (*device).ibdev_path).cast()) };
        let context = Context { handle, sysfs: sysfs.to_string_lossy().into_owned() };
        // SAFETY: the context is open; async_fd is a descriptor it owns.
        let descriptor = unsafe { (*context.raw()).async_fd };
        // SAFETY: F_GETFL and F_SETFL on an open descriptor touch no memory; here and below.
        let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
        // SAFETY: F_SETFL on an open descriptor touches no memory.
        let is_set = flags != -1 && unsafe { libc::fcntl(descriptor, libc::F_SETFL, flags | libc::O_NONBLOCK) } != -1;
        if is_set { Ok(context) } else { Err(io::Error::last_os_error()) }
    }

    /// The device's folder in sysfs, as `/sys/class/infiniband/rxe0`.
    pub fn sysfs(&self) -> &str {
        &self.sysfs
    }

    /// Whether the kernel does its work on the host's processors (soft-RoCE). Reads sysfs.
    pub fn is_software(&self) -> bool {
        // `Documentation/ABI/stable/sysfs-class-infiniband`: a link to the device. A software device has no bus.
        std::fs::canonicalize(&self.sysfs).is_ok_and(|device| device.to_string_lossy().contains("/devices/virtual/"))
    }

    /// Whether it speaks the InfiniBand transport (over InfiniBand or as RoCE); iWARP and usNIC do not.
    pub fn is_rdma(&self) -> bool {
        // SAFETY: R4; the device outlives its context, and the field is set when it is listed.
        unsafe { (*(*self.raw()).device).transport_type == sys::IBV_TRANSPORT_IB }
    }

    pub(super) fn raw(&self) -> *mut sys::ibv_context {
        self.handle.raw()
    }

    /// The provider's operations.
    pub(super) fn operations(&self) -> sys::ibv_context_ops {
        // SAFETY: R4: the context is open; the operations are set once, when it is opened.
        unsafe { (*self.raw()).ops }
    }

    /// Asks the device for its attributes (`ibv_query_device(3)`).
    ///
    /// # Errors
    /// The errno of the verb.
    pub fn attributes(&self) -> io::Result<DeviceAttributes> {
        let mut raw = sys::ibv_device_attr::default();
        // SAFETY: the context is open (R4) and `raw` is valid for a write of its type.
        errno(unsafe { sys::ibv_query_device(self.raw(), &raw mut raw) })?;
        let small = |value: i32| u8::try_from(value).unwrap_or(if value < 0 { 0 } else { u8::MAX });
        Ok(DeviceAttributes {
            vendor: (raw.vendor_id, raw.vendor_part_id),
            ports: raw.phys_port_cnt,
            max_qp_wr: raw.max_qp_wr.max(0) as u32,
            max_cqe: raw.max_cqe.max(0) as u32,
            max_srq_wr: if raw.max_srq > 0 { raw.max_srq_wr.max(0) as u32 } else { 0 },
            max_sge: raw.max_sge.max(0) as u32,
            max_rd_atomic: (small(raw.max_qp_rd_atom), small(raw.max_qp_init_rd_atom)),
            atomic_cap: raw.atomic_cap,
        })
    }

    /// The clock with which the adapter stamps completions (`ibv_query_device_ex(3)`); `None` if it does not.
    pub fn clock(&self) -> Option<Clock> {
        let attributes = extended::attributes(self)?;
        // The core clock is in kHz.
        let ticks_per_second = attributes.hca_core_clock.checked_mul(1000)?;
        let bits = attributes.completion_timestamp_mask.trailing_ones();
        (ticks_per_second > 0 && bits > 0).then_some(Clock { ticks_per_second, bits })
    }

    /// The present time of the adapter's clock, raw ticks; `None` if it cannot be read. May be a system call.
    pub fn raw_clock(&self) -> Option<u64> {
        extended::raw_clock(self).ok()
    }

    /// Asks for the attributes of port `port`, numbered from 1 (`ibv_query_port(3)`).
    ///
    /// # Errors
    /// The errno of the verb; `EINVAL` for a port that does not exist.
    pub fn port(&self, port: u8) -> io::Result<PortAttributes> {
        let mut raw = sys::ibv_port_attr::default();
        // SAFETY: R4; the library writes its own `ibv_port_attr`, which only ever grew: it fits in the bindings'.
        errno(unsafe { sys::ibv_query_port(self.raw(), port, (&raw mut raw).cast()) })?;
        Ok(PortAttributes {
            state: raw.state,
            link_layer: raw.link_layer,
            lid: raw.lid,
            active_mtu: raw.active_mtu,
            gids: raw.gid_tbl_len.max(0) as u32,
            max_message: raw.max_msg_sz,
            rate_mbps: rate_mbps(raw.active_width, raw.active_speed),
            lanes: lanes(raw.active_width),
        })
    }

    /// Returns the used entries of port `port`'s GID table of `len` entries (`ibv_query_gid_table(3)`).
    pub fn gids(&self, port: u8, len: u32) -> Vec<GidEntry> {
        let mut raw = vec![sys::ibv_gid_entry::default(); MOST_GIDS];
        let size = size_of::<sys::ibv_gid_entry>();
        // SAFETY: the context is open (R4), `raw` is valid for a write of as many entries of `size` bytes.
        let count = unsafe { sys::_ibv_query_gid_table(self.raw(), raw.as_mut_ptr(), raw.len(), 0, size) };
        match usize::try_from(count) {
            Ok(count) => {
                raw.iter().take(count).filter(|entry| entry.port_num == u32::from(port)).filter_map(used).collect()
            }
            Err(_) => (0..len).filter_map(|index| self.gid(port, index)).collect(),
        }
    }

    /// The entry of port `port`'s GID table at `index`; `None` if it is empty.
    pub fn gid(&self, port: u8, index: u32) -> Option<GidEntry> {
        let mut raw = sys::ibv_gid_entry::default();
        let size = size_of::<sys::ibv_gid_entry>();
        // SAFETY: the context is open (R4), `raw` is valid for a write of `size` bytes.
        let code = unsafe { sys::_ibv_query_gid_ex(self.raw(), u32::from(port), index, &raw mut raw, 0, size) };
        if code == 0 { used(&raw) } else { None }
    }

    /// Takes the next asynchronous event, if there is one. A system call; never blocks.
    #[must_use]
    pub fn async_event(&self) -> Option<AsyncEvent> {
        let mut raw = sys::ibv_async_event::default();
        // SAFETY: the context is open (R4), its event descriptor is non-blocking, `raw` is valid for a write.
        if unsafe { sys::ibv_get_async_event(self.raw(), &raw mut raw) } != 0 {
            return None;
        }
        let about_port = matches!(raw.event_type, sys::IBV_EVENT_PORT_ACTIVE | sys::IBV_EVENT_PORT_ERR)
            || (sys::IBV_EVENT_LID_CHANGE..=sys::IBV_EVENT_SM_CHANGE).contains(&raw.event_type)
            || raw.event_type == sys::IBV_EVENT_GID_CHANGE;
        // SAFETY: for port events the union holds `port_num`; it is an integer in any case.
        let port = if about_port { unsafe { raw.element.port_num as u8 } } else { 0 };
        // SAFETY: the event came from ibv_get_async_event and is acknowledged once.
        unsafe { sys::ibv_ack_async_event(&raw mut raw) };
        Some(AsyncEvent { kind: raw.event_type, port })
    }
}

fn used(raw: &sys::ibv_gid_entry) -> Option<GidEntry> {
    // SAFETY: `raw.gid` is a union of plain bytes and integers; every bit pattern is a valid byte array.
    let gid = unsafe { raw.gid.raw };
    let entry = GidEntry { index: raw.gid_index, gid, kind: raw.gid_type, interface: raw.ndev_ifindex };
    (gid != [0; 16]).then_some(entry)
}

/// # Safety
/// `device` is an entry of a live device list.
unsafe fn device_name(device: *mut sys::ibv_device) -> String {
    // SAFETY: an entry of a live list, as the caller says; the name is NUL-terminated and lives as long as the list.
    unsafe { CStr::from_ptr(sys::ibv_get_device_name(device)) }.to_string_lossy().into_owned()
}

/// Data rate in Mb/s of a link of this width and speed code (`ibv_query_port(3)`).
fn rate_mbps(width: u8, speed: u8) -> u32 {
    let lane = match speed {
        2 => 4_000,
        4 | 8 => 10_000, // QDR carries 8, FDR10 10.3: the nearest that keeps their order.
        16 => 13_600,
        32 => 25_000,
        64 => 50_000,
        128 => 100_000,
        _ => 2_000,
    };
    lanes(width) * lane
}

fn lanes(width: u8) -> u32 {
    match width {
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::rate_mbps;

    #[test]
    fn a_four_lane_edr_link_carries_100_gigabits_and_one_of_unknown_width_and_speed_the_least() {
        assert_eq!((rate_mbps(2, 32), rate_mbps(0, 0)), (100_000, 2_000));
    }
}
