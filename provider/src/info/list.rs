// SPDX-License-Identifier: MIT OR Apache-2.0
//! The answer to `fi_getinfo`: one `fi_info`. libfabric owns it and frees it with its own `fi_freeinfo`, which frees
//! each part with `free`. So each part is allocated with `calloc`; and larger than its structure is here, because a
//! later libfabric reads more fields, for which zero is a value.
//!
//! Grade: setup. Threads: any. Tests: `calls.rs`.

use std::ffi::{CStr, CString, c_char, c_void};

use ibex::select::address::PortEntry;
use ibex::select::address::compact::CompactAddress;
use ibex::select::device::PortChoice;
use ibex::select::key::Key;

use super::{
    ADDRESS_FORMAT, Asked, CQ_DATA_SIZE, DEPTH, DOMAIN, FABRIC, HAS_MR_BITS, LONGEST, LONGEST_INJECTED, MANY,
    MOST_PIECES, OF_RECEIVES, OF_SENDS, ONE_SIDED, ORDER, PROTOCOL, STARTED, capabilities,
};
use crate::entry::Result;
use crate::sys;

/// Bytes for the fields that later versions add to a structure.
const SPARE: usize = 256;

/// Capabilities to be the target of operations.
const SERVED: u64 = sys::FI_RECV | sys::FI_DIRECTED_RECV | sys::FI_REMOTE_READ | sys::FI_REMOTE_WRITE;

/// Allocates a zeroed structure.
///
/// # Safety
/// Zero is a value of `T`. The caller gives the structure to libfabric, which frees it.
unsafe fn allocate<T>() -> Result<&'static mut T> {
    // SAFETY: a new, zeroed block that is large enough, and aligned for every type of libfabric's.
    unsafe { libc::calloc(1, size_of::<T>() + SPARE).cast::<T>().as_mut() }.ok_or(sys::FI_ENOMEM)
}

fn duplicate(text: &CStr) -> *mut c_char {
    // SAFETY: a C string.
    unsafe { libc::strdup(text.as_ptr()) }
}

/// Returns an info with the fabric's attributes only (`FI_PROV_ATTR_ONLY`). libfabric fills in the provider's name.
pub(super) fn bare() -> Result<*mut sys::fi_info> {
    // SAFETY: structures of numbers and nullable pointers. If memory is short, a few bytes stay allocated.
    unsafe {
        let info = allocate::<sys::fi_info>()?;
        info.tx_attr = allocate()?;
        info.rx_attr = allocate()?;
        info.ep_attr = allocate()?;
        info.domain_attr = allocate()?;
        let fabric = allocate::<sys::fi_fabric_attr>()?;
        fabric.name = duplicate(FABRIC);
        info.fabric_attr = fabric;
        Ok(info)
    }
}

/// Name of the domain of a port.
pub(super) fn domain_name(choice: &PortChoice) -> CString {
    CString::new(format!("{}:{}", choice.device, choice.port)).unwrap_or_default()
}

/// Returns what a program gets that asks for this, in the terms of its version of libfabric's interface. `mode`: how it
/// registers memory for one-sided operations; `None`: it cannot have them.
pub(super) fn of(
    choice: &PortChoice,
    (version, mode): (u32, Option<i32>),
    asked: Option<&Asked<'_>>,
) -> Result<*mut sys::fi_info> {
    let answer = bare()?;
    // SAFETY: `bare` has just made the info and its attributes, and nobody else refers to them.
    let (info, tx, rx, ep, domain) = unsafe {
        let info = &mut *answer;
        let (tx, rx) = (&mut *info.tx_attr, &mut *info.rx_attr);
        let (ep, domain) = (&mut *info.ep_attr, &mut *info.domain_attr);
        (info, tx, rx, ep, domain)
    };
    let caps = capabilities(asked.map_or(0, |asked| asked.info.caps), mode.is_some());
    info.caps = caps;
    info.addr_format = ADDRESS_FORMAT;
    let source = source(choice).encode();
    // SAFETY: an address of this length.
    (info.src_addr, info.src_addrlen) = unsafe { copy(source.as_ptr().cast(), source.len()) };
    if let Some(asked) = asked {
        info.handle = asked.info.handle;
        // SAFETY: F2: the hints have an address of this length.
        (info.dest_addr, info.dest_addrlen) = unsafe { copy(asked.info.dest_addr, asked.info.dest_addrlen) };
    }

    tx.caps = if caps & STARTED == 0 { 0 } else { caps & !OF_RECEIVES & !DOMAIN };
    tx.op_flags = asked.and_then(|asked| asked.tx).map_or(0, |tx| tx.op_flags);
    tx.msg_order = ORDER | asked.and_then(|asked| asked.tx).map_or(0, |tx| tx.msg_order);
    (tx.inject_size, tx.size, tx.iov_limit) = (LONGEST_INJECTED, DEPTH, MOST_PIECES);
    tx.rma_iov_limit = MOST_PIECES;

    rx.caps = if caps & SERVED == 0 { 0 } else { caps & !OF_SENDS & !DOMAIN };
    rx.op_flags = asked.and_then(|asked| asked.rx).map_or(0, |rx| rx.op_flags);
    rx.msg_order = ORDER | asked.and_then(|asked| asked.rx).map_or(0, |rx| rx.msg_order);
    (rx.size, rx.iov_limit) = (DEPTH, MOST_PIECES);

    (ep.type_, ep.protocol, ep.protocol_version) = (sys::FI_EP_RDM, PROTOCOL, 1);
    ep.max_msg_size = LONGEST;
    (ep.max_order_raw_size, ep.max_order_war_size, ep.max_order_waw_size) = (LONGEST, LONGEST, LONGEST);
    ep.mem_tag_format = u64::MAX;
    (ep.tx_ctx_cnt, ep.rx_ctx_cnt) = (1, 1);

    // What a program knows to call with fewer threads at a time it may say; the provider takes any.
    let wanted = asked.and_then(|asked| asked.domain);
    domain.name = duplicate(&domain_name(choice));
    domain.threading = wanted.map_or(0, |wanted| wanted.threading);
    if domain.threading == sys::FI_THREAD_UNSPEC {
        domain.threading = sys::FI_THREAD_SAFE;
    }
    domain.control_progress = sys::FI_PROGRESS_MANUAL;
    sys::set_data_progress(domain, sys::FI_PROGRESS_MANUAL);
    domain.resource_mgmt = sys::FI_RM_ENABLED;
    domain.av_type = wanted.map_or(0, |wanted| wanted.av_type);
    if domain.av_type == sys::FI_AV_UNSPEC {
        domain.av_type = sys::FI_AV_TABLE;
    }
    domain.mr_mode = match mode {
        Some(mode) if caps & ONE_SIDED != 0 => mode,
        _ if wanted.is_some_and(|wanted| wanted.mr_mode == sys::MR_BASIC) => sys::MR_BASIC,
        _ if version < HAS_MR_BITS => sys::MR_SCALABLE,
        _ => 0,
    };
    // A key is the adapter's, of 32 bits; that of a region which counts accesses has one more bit.
    let counts = caps & sys::FI_RMA_EVENT != 0;
    domain.mr_key_size = if counts { size_of::<u64>() } else { size_of::<u32>() };
    domain.cq_data_size = CQ_DATA_SIZE;
    (domain.cq_cnt, domain.ep_cnt, domain.cntr_cnt, domain.mr_cnt) = (MANY, MANY, MANY, MANY);
    (domain.tx_ctx_cnt, domain.rx_ctx_cnt) = (MANY, MANY);
    (domain.max_ep_tx_ctx, domain.max_ep_rx_ctx) = (1, 1);
    domain.mr_iov_limit = 1;
    domain.caps = DOMAIN;
    Ok(answer)
}

/// The address of a port before an endpoint has opened it: without queue pair, instance and key, so that no vector
/// takes it for a peer's.
fn source(choice: &PortChoice) -> CompactAddress {
    CompactAddress { entry: PortEntry { address: choice.address(), key: Key::from_bytes([0; Key::SIZE]) }, rank: 0 }
}

/// Copies an address for libfabric to free.
///
/// # Safety
/// F2: `address` is null or has `length` bytes.
unsafe fn copy(address: *const c_void, length: usize) -> (*mut c_void, usize) {
    if address.is_null() || length == 0 {
        return (std::ptr::null_mut(), 0);
    }
    // SAFETY: F2, and the block has `length` bytes.
    unsafe {
        let copied = libc::malloc(length);
        if copied.is_null() {
            return (copied, 0);
        }
        std::ptr::copy_nonoverlapping(address, copied, length);
        (copied, length)
    }
}
