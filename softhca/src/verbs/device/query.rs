// SPDX-License-Identifier: MIT OR Apache-2.0
//! The adapter's attributes: `ibv_query_device(3)`, `ibv_query_device_ex(3)`, `ibv_query_rt_values_ex(3)`; and a port's
//! attributes, GIDs and partition keys: `ibv_query_port(3)`, `ibv_query_gid(3)`, `ibv_query_gid_ex(3)`,
//! `ibv_query_gid_table(3)`, `ibv_query_pkey(3)`, `ibv_get_pkey_index(3)`. Grade: setup. Threads: any. Clock values are
//! ticks, their frequency is in kHz, GIDs and keys are as on the wire.

use std::ffi::{c_char, c_int};

use crate::engine::codes::{device_cap, gid_kind, link_layer, port_state};
use crate::engine::fabric::sysfs::rows;
use crate::engine::{Errno, Gid, Hca, MAX_GROUPS, MAX_MEMBERS, MAX_MRS, Result};
use crate::limits::Atomics;
use crate::sys::{
    IBV_ATOMIC_GLOB, IBV_ATOMIC_HCA, IBV_ATOMIC_NONE, IBV_MTU_4096, IBV_PORT_CM_SUP, IBV_PORT_IP_BASED_GIDS,
    IBV_PORT_SYS_IMAGE_GUID_SUP, IBV_VALUES_MASK_RAW_CLOCK, ibv_context, ibv_device_attr, ibv_device_attr_ex, ibv_gid,
    ibv_gid_entry, ibv_port_attr, ibv_query_device_ex_input, ibv_values_ex,
};
use crate::verbs::{adapter, minus_one, number, set_errno};

/// Writes a structure into a place of `size` bytes, and zeros behind it, where a newer program's structure is longer.
/// # Safety
/// `out` is writable for `size` bytes.
unsafe fn write_sized<T>(out: *mut u8, size: usize, what: &T) {
    // SAFETY: at most `size` bytes of `out`, which the caller says are writable.
    unsafe {
        out.write_bytes(0, size);
        std::ptr::from_ref(what).cast::<u8>().copy_to_nonoverlapping(out, size.min(size_of::<T>()));
    }
}

const DEVICE_CAP_FLAGS: u32 = device_cap::PORT_ACTIVE_EVENT
    | device_cap::SYS_IMAGE_GUID
    | device_cap::RC_RNR_NAK_GEN
    | device_cap::SRQ_RESIZE
    | device_cap::XRC
    | device_cap::MEM_WINDOW
    | device_cap::MEM_WINDOW_TYPE_2B;

fn attributes(hca: &Hca) -> ibv_device_attr {
    let (spec, limits) = (hca.spec(), hca.limits());
    let mut attr = ibv_device_attr::default();
    for (to, from) in attr.fw_ver.iter_mut().zip(spec.fw_ver.bytes().take(63)) {
        *to = from as c_char;
    }
    attr.node_guid = spec.node_guid.to_be();
    attr.sys_image_guid = spec.node_guid.to_be();
    attr.max_mr_size = 1 << 47;
    attr.page_size_cap = 0xffff_f000;
    attr.vendor_id = spec.vendor_id;
    attr.vendor_part_id = spec.vendor_part_id;
    attr.max_qp = limits.max_qp;
    attr.max_qp_wr = limits.max_qp_wr;
    attr.device_cap_flags = DEVICE_CAP_FLAGS;
    attr.max_sge = limits.max_sge;
    attr.max_sge_rd = limits.max_sge_rd;
    attr.max_cq = 1 << 16;
    attr.max_cqe = limits.max_cqe;
    attr.max_mr = MAX_MRS as i32 - 1;
    attr.max_mw = MAX_MRS as i32 - 1;
    attr.max_pd = 1 << 16;
    attr.max_qp_rd_atom = limits.max_qp_rd_atom;
    attr.max_res_rd_atom = 1 << 20;
    attr.max_qp_init_rd_atom = limits.max_qp_init_rd_atom;
    attr.atomic_cap = match limits.atomics {
        Atomics::None => IBV_ATOMIC_NONE,
        Atomics::Hca => IBV_ATOMIC_HCA,
        Atomics::Glob => IBV_ATOMIC_GLOB,
    };
    attr.max_mcast_grp = MAX_GROUPS as i32;
    attr.max_mcast_qp_attach = MAX_MEMBERS as i32;
    attr.max_total_mcast_qp_attach = (MAX_GROUPS * MAX_MEMBERS) as i32;
    attr.max_ah = i32::MAX;
    if hca.behaviour().srq {
        attr.max_srq = 1 << 16;
        attr.max_srq_wr = limits.max_srq_wr;
        attr.max_srq_sge = limits.max_srq_sge;
    } else {
        // Without shared receive queues, these two do not exist, either.
        attr.device_cap_flags &= !(device_cap::SRQ_RESIZE | device_cap::XRC);
    }
    attr.max_pkeys = limits.max_pkeys;
    attr.local_ca_ack_delay = 15;
    attr.phys_port_cnt = spec.ports.len() as u8;
    attr
}

pub(crate) unsafe extern "C" fn ibv_query_device(context: *mut ibv_context, out: *mut ibv_device_attr) -> c_int {
    // SAFETY: `context` is open, and `out` writable (rule V).
    unsafe { out.write(attributes(adapter(context))) };
    0
}

/// `ibv_query_device_ex(3)`: writes at most `size` bytes.
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    out: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    // SAFETY: `input` is null or readable (rule V).
    if size < size_of::<ibv_device_attr>() || (!input.is_null() && unsafe { (*input).comp_mask } != 0) {
        return number(Err(Errno(libc::EINVAL)));
    }
    // SAFETY: `context` is open (rule V).
    let hca = unsafe { adapter(context) };
    let clock = &hca.spec().clock;
    let mut attr = ibv_device_attr_ex { orig_attr: attributes(hca), ..ibv_device_attr_ex::default() };
    let ways = hca.behaviour();
    let bits = if ways.timestamps { clock.mask_bits } else { u32::from(ways.refused_timestamp_bits) };
    attr.completion_timestamp_mask = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
    attr.hca_core_clock = if ways.timestamps { clock.frequency_hz / 1000 } else { 0 };
    attr.device_cap_flags_ex = u64::from(attr.orig_attr.device_cap_flags);
    attr.phys_port_cnt_ex = u32::from(attr.orig_attr.phys_port_cnt);
    // SAFETY: `out` is writable for `size` bytes (rule V).
    unsafe { write_sized(out.cast(), size, &attr) };
    0
}

/// `ibv_query_rt_values_ex(3)`: the raw clock's ticks, in `tv_nsec` as drivers of real adapters give them.
pub(crate) unsafe extern "C" fn query_rt_values(context: *mut ibv_context, values: *mut ibv_values_ex) -> c_int {
    // SAFETY: `context` is open, and `values` readable and writable (rule V).
    let (hca, values) = unsafe { (adapter(context), &mut *values) };
    let mut answered = 0;
    if values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK != 0 {
        values.raw_clock.tv_sec = 0;
        values.raw_clock.tv_nsec = hca.read_clock() as _;
        answered = IBV_VALUES_MASK_RAW_CLOCK;
    }
    values.comp_mask = answered;
    0
}

/// Bytes of a port's attributes in the interface before 2018.
const OLD_ATTR_SIZE: usize = std::mem::offset_of!(ibv_port_attr, port_cap_flags2);
/// As `ibv_port_attr.phys_state`.
const PHYSICAL_POLLING: u8 = 2;
const PHYSICAL_LINK_UP: u8 = 5;
/// `IBV_QPF_GRH_REQUIRED`, which the header has as a macro: every address of this port needs a global route.
const GRH_REQUIRED: u8 = 1;

fn port_attributes(hca: &Hca, port: u8) -> Result<ibv_port_attr> {
    let (spec, described) = (hca.spec(), hca.port(u32::from(port))?);
    let infiniband = spec.link_layer == link_layer::INFINIBAND;
    let state = hca.port_state(port)?;
    let mut attr = ibv_port_attr {
        state: state as _,
        max_mtu: IBV_MTU_4096,
        active_mtu: u32::from(described.mtu) as _,
        gid_tbl_len: rows(spec, described) as c_int,
        ..ibv_port_attr::default()
    };
    attr.port_cap_flags =
        if infiniband { IBV_PORT_SYS_IMAGE_GUID_SUP } else { IBV_PORT_IP_BASED_GIDS } | IBV_PORT_CM_SUP;
    attr.max_msg_sz = hca.limits().max_msg_sz;
    attr.pkey_tbl_len = described.pkeys.len() as u16;
    attr.lid = described.lid;
    attr.sm_lid = described.sm_lid;
    attr.max_vl_num = 1;
    attr.subnet_timeout = 18;
    attr.active_width = described.active_width;
    attr.active_speed = described.active_speed as u8;
    attr.phys_state = if state == port_state::DOWN { PHYSICAL_POLLING } else { PHYSICAL_LINK_UP };
    attr.link_layer = spec.link_layer;
    if !infiniband {
        attr.flags = GRH_REQUIRED;
    }
    Ok(attr)
}

/// Called by the inline `ibv_query_port` of verbs.h; writes at most `size` bytes.
pub(crate) unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    out: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    // SAFETY: `context` is open, and `out` writable for `size` bytes (rule V).
    number(unsafe { port_attributes(adapter(context), port).map(|attr| write_sized(out.cast(), size, &attr)) })
}

/// `ibv_query_port(3)`, the symbol, for programs built before 2018.
pub(crate) unsafe extern "C" fn ibv_query_port(context: *mut ibv_context, port: u8, out: *mut ibv_port_attr) -> c_int {
    // SAFETY: `context` is open, and `out` writable for so many bytes (rule V).
    unsafe { query_port(context, port, out, OLD_ATTR_SIZE) }
}

fn gid(hca: &Hca, port: u32, index: u32) -> Result<Gid> {
    let described = hca.port(port)?;
    if index as usize >= rows(hca.spec(), described) {
        return Err(Errno(libc::EINVAL));
    }
    Ok(described.gids.get(index as usize).copied().unwrap_or_default())
}

pub(crate) unsafe extern "C" fn ibv_query_gid(ctx: *mut ibv_context, port: u8, row: c_int, out: *mut ibv_gid) -> c_int {
    // SAFETY: `ctx` is open, and `out` writable (rule V).
    minus_one(unsafe { gid(adapter(ctx), u32::from(port), row as u32).map(|gid| out.write(ibv_gid { raw: gid.raw })) })
}

fn entry(gid: &Gid, port: u32, index: usize) -> ibv_gid_entry {
    ibv_gid_entry {
        gid: ibv_gid { raw: gid.raw },
        gid_index: index as u32,
        port_num: port,
        gid_type: u32::from(gid.kind),
        ndev_ifindex: 0,
    }
}

/// Called by `ibv_query_gid_ex(3)`.
pub(crate) unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    out: *mut ibv_gid_entry,
    flags: u32,
    size: usize,
) -> c_int {
    if flags != 0 {
        return number(Err(Errno(libc::EOPNOTSUPP)));
    }
    // SAFETY: `context` is open (rule V).
    let found = gid(unsafe { adapter(context) }, port, index);
    let used = found.and_then(|gid| if gid.is_empty() { Err(Errno(libc::ENODATA)) } else { Ok(gid) });
    // SAFETY: `out` is writable for `size` bytes (rule V).
    number(used.map(|gid| unsafe { write_sized(out.cast(), size, &entry(&gid, port, index as usize)) }))
}

/// Called by `ibv_query_gid_table(3)`. Returns the number of rows written, or a negative error number.
pub(crate) unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    out: *mut ibv_gid_entry,
    room: usize,
    flags: u32,
    size: usize,
) -> isize {
    if flags != 0 {
        set_errno(libc::EOPNOTSUPP);
        return -(libc::EOPNOTSUPP as isize);
    }
    // SAFETY: `context` is open (rule V).
    let hca = unsafe { adapter(context) };
    let ports = (1..=hca.spec().ports.len() as u32).filter_map(|port| Some((port, hca.port(port).ok()?)));
    let rows = ports.flat_map(|(port, described)| {
        let used = described.gids.iter().enumerate().filter(|(_, gid)| !gid.is_empty());
        used.map(move |(index, gid)| entry(gid, port, index))
    });
    let mut count = 0;
    for row in rows {
        if count == room {
            set_errno(libc::EINVAL);
            return -(libc::EINVAL as isize);
        }
        // SAFETY: below `room` (rule V).
        unsafe { write_sized(out.cast::<u8>().add(count * size), size, &row) };
        count += 1;
    }
    count as isize
}

/// `ibv_query_gid_type`, which `ibv_devinfo` asks: 1 for `RoCE` v2, 0 for all others.
pub(crate) unsafe extern "C" fn ibv_query_gid_type(ctx: *mut ibv_context, port: u8, index: u32, to: *mut u32) -> c_int {
    let known = |gid: Gid| u32::from(gid.kind == gid_kind::ROCE_V2);
    // SAFETY: `ctx` is open, and `to` writable (rule V).
    minus_one(unsafe { gid(adapter(ctx), u32::from(port), index).map(|gid| to.write(known(gid))) })
}

pub(crate) unsafe extern "C" fn ibv_query_pkey(ctx: *mut ibv_context, port: u8, index: c_int, out: *mut u16) -> c_int {
    // SAFETY: `ctx` is open (rule V).
    let port = unsafe { adapter(ctx) }.port(u32::from(port));
    let found = port.and_then(|port| port.pkeys.get(index as usize).ok_or(Errno(libc::EINVAL)));
    // SAFETY: `out` is writable (rule V).
    minus_one(found.map(|pkey| unsafe { out.write(pkey.to_be()) }))
}

pub(crate) unsafe extern "C" fn ibv_get_pkey_index(context: *mut ibv_context, port: u8, pkey: u16) -> c_int {
    // SAFETY: `context` is open (rule V).
    let port = unsafe { adapter(context) }.port(u32::from(port));
    let found = port.ok().and_then(|port| port.pkeys.iter().position(|own| own.to_be() == pkey));
    found.map_or_else(|| minus_one(Err(Errno(libc::EINVAL))), |index| index as c_int)
}
