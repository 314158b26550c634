// SPDX-License-Identifier: MIT OR Apache-2.0
//! A port's attributes, its GID table and its partition keys: `ibv_query_port(3)`, `ibv_query_gid(3)`,
//! `ibv_query_gid_ex(3)`, `ibv_query_gid_table(3)`, `ibv_query_pkey(3)`, `ibv_get_pkey_index(3)`. Grade: setup.
//! Threads: any. Byte orders: GIDs and partition keys are given as on the wire. Port numbers count from 1.

use std::ffi::c_int;

use super::write_sized;
use crate::engine::codes::{gid_kind, link_layer, port_state};
use crate::engine::fabric::sysfs::rows;
use crate::engine::{Errno, Gid, PortSpec, Result};
use crate::sys::{
    IBV_MTU_4096, IBV_PORT_CM_SUP, IBV_PORT_IP_BASED_GIDS, IBV_PORT_SYS_IMAGE_GUID_SUP, ibv_context, ibv_gid,
    ibv_gid_entry, ibv_port_attr,
};
use crate::verbs::context::SoftContext;
use crate::verbs::error::{minus_one, number, set_errno};

/// What the interface before 2018 has of a port's attributes.
const OLD_ATTR_SIZE: usize = std::mem::offset_of!(ibv_port_attr, port_cap_flags2);
/// As `ibv_port_attr.phys_state`.
const PHYSICAL_POLLING: u8 = 2;
const PHYSICAL_LINK_UP: u8 = 5;
/// `IBV_QPF_GRH_REQUIRED`, which the header has as a macro: every address of this port needs a global route.
const GRH_REQUIRED: u8 = 1;

/// The port as it is now.
unsafe fn port_spec<'a>(context: *mut ibv_context, port: u32) -> Result<&'a PortSpec> {
    // SAFETY: the context is open, by the caller's word, and its description lives as long.
    unsafe { SoftContext::of(context) }.hca().port(port)
}

unsafe fn attributes(context: *mut ibv_context, port: u8) -> Result<ibv_port_attr> {
    // SAFETY: the context is open.
    let (opened, described) = unsafe { (SoftContext::of(context), port_spec(context, u32::from(port))?) };
    let infiniband = opened.spec().link_layer == link_layer::INFINIBAND;
    let state = opened.hca().port_state(port)?;
    let mut attr = ibv_port_attr {
        state: state as _,
        max_mtu: IBV_MTU_4096,
        active_mtu: u32::from(described.mtu) as _,
        gid_tbl_len: rows(opened.spec(), described) as c_int,
        ..ibv_port_attr::default()
    };
    attr.port_cap_flags =
        if infiniband { IBV_PORT_SYS_IMAGE_GUID_SUP } else { IBV_PORT_IP_BASED_GIDS } | IBV_PORT_CM_SUP;
    attr.max_msg_sz = opened.hca().limits().max_msg_sz;
    attr.pkey_tbl_len = described.pkeys.len() as u16;
    attr.lid = described.lid;
    attr.sm_lid = described.sm_lid;
    attr.max_vl_num = 1;
    attr.subnet_timeout = 18;
    attr.active_width = described.active_width;
    attr.active_speed = described.active_speed as u8;
    attr.phys_state = if state == port_state::DOWN { PHYSICAL_POLLING } else { PHYSICAL_LINK_UP };
    attr.link_layer = opened.spec().link_layer;
    if !infiniband {
        attr.flags = GRH_REQUIRED;
    }
    Ok(attr)
}

/// What the `ibv_query_port` of verbs.h calls; writes at most `size` bytes.
///
/// # Safety
/// `context` is open; `out` is writable for `size` bytes.
pub(crate) unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    out: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    // SAFETY: the caller says that `context` is open.
    number(unsafe { attributes(context, port) }.map(|attr| {
        // SAFETY: the caller says that `out` is writable for `size` bytes.
        unsafe { write_sized(out.cast(), size, &attr) };
    }))
}

/// `ibv_query_port(3)`, the symbol, for programs built before 2018.
///
/// # Safety
/// `context` is open; `out` is writable for the attributes of that time.
pub(crate) unsafe extern "C" fn ibv_query_port(context: *mut ibv_context, port: u8, out: *mut ibv_port_attr) -> c_int {
    // SAFETY: the caller says that `context` is open, and `out` writable for so many bytes.
    unsafe { query_port(context, port, out, OLD_ATTR_SIZE) }
}

/// A row of the table of GIDs, empty or not.
unsafe fn gid(context: *mut ibv_context, port: u32, index: u32) -> Result<Gid> {
    // SAFETY: the context is open.
    let (described, spec) = unsafe { (port_spec(context, port)?, SoftContext::of(context).spec()) };
    if index as usize >= rows(spec, described) {
        return Err(Errno(libc::EINVAL));
    }
    Ok(described.gids.get(index as usize).copied().unwrap_or_default())
}

/// `ibv_query_gid(3)`: -1 beyond the table.
///
/// # Safety
/// `context` is open; `out` is writable.
pub(crate) unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    out: *mut ibv_gid,
) -> c_int {
    // SAFETY: the caller says that `context` is open.
    let found = unsafe { gid(context, u32::from(port), index as u32) };
    // SAFETY: the caller says that `out` is writable.
    minus_one(found.map(|gid| unsafe { out.write(ibv_gid { raw: gid.raw }) }))
}

/// A row of the table, for programs.
fn entry(gid: &Gid, port: u32, index: usize) -> ibv_gid_entry {
    ibv_gid_entry {
        gid: ibv_gid { raw: gid.raw },
        gid_index: index as u32,
        port_num: port,
        gid_type: u32::from(gid.kind),
        ndev_ifindex: 0,
    }
}

/// What `ibv_query_gid_ex(3)` calls.
///
/// # Safety
/// `context` is open; `out` is writable for `size` bytes.
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
    // SAFETY: the caller says that `context` is open.
    let found = unsafe { gid(context, port, index) };
    let used = found.and_then(|gid| if gid.is_empty() { Err(Errno(libc::ENODATA)) } else { Ok(gid) });
    number(used.map(|gid| {
        // SAFETY: the caller says that `out` is writable for `size` bytes.
        unsafe { write_sized(out.cast(), size, &entry(&gid, port, index as usize)) };
    }))
}

/// What `ibv_query_gid_table(3)` calls: the number of rows written, or a negative error number.
///
/// # Safety
/// `context` is open; `out` is writable for `room` rows of `size` bytes.
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
    // SAFETY: the context is open.
    let hca = unsafe { SoftContext::of(context) }.hca();
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
        // SAFETY: below `room`, by the caller's word.
        unsafe { write_sized(out.cast::<u8>().add(count * size), size, &row) };
        count += 1;
    }
    count as isize
}

/// As rdma-core's own tools know the type of a GID.
const TYPE_IB_ROCE_V1: u32 = 0;
const TYPE_ROCE_V2: u32 = 1;

/// `ibv_query_gid_type`, which `ibv_devinfo` asks.
///
/// # Safety
/// `context` is open; `out` is writable.
pub(crate) unsafe extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    port: u8,
    index: u32,
    out: *mut u32,
) -> c_int {
    // SAFETY: the caller says that `context` is open.
    let found = unsafe { gid(context, u32::from(port), index) };
    minus_one(found.map(|gid| {
        let kind = if gid.kind == gid_kind::ROCE_V2 { TYPE_ROCE_V2 } else { TYPE_IB_ROCE_V1 };
        // SAFETY: the caller says that `out` is writable.
        unsafe { out.write(kind) };
    }))
}

/// `ibv_query_pkey(3)`: -1 beyond the table.
///
/// # Safety
/// `context` is open; `out` is writable.
pub(crate) unsafe extern "C" fn ibv_query_pkey(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    out: *mut u16,
) -> c_int {
    // SAFETY: the context is open.
    let found = unsafe { port_spec(context, u32::from(port)) }
        .and_then(|port| port.pkeys.get(index as usize).copied().ok_or(Errno(libc::EINVAL)));
    // SAFETY: the caller says that `out` is writable.
    minus_one(found.map(|pkey| unsafe { out.write(pkey.to_be()) }))
}

/// `ibv_get_pkey_index(3)`: -1 if the port does not have this partition key.
///
/// # Safety
/// `context` is open.
pub(crate) unsafe extern "C" fn ibv_get_pkey_index(context: *mut ibv_context, port: u8, pkey: u16) -> c_int {
    // SAFETY: the context is open.
    let found = unsafe { port_spec(context, u32::from(port)) }
        .ok()
        .and_then(|port| port.pkeys.iter().position(|own| own.to_be() == pkey));
    found.map_or_else(|| minus_one(Err(Errno(libc::EINVAL))), |index| index as c_int)
}
