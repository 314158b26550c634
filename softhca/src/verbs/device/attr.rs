// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the adapter can do and what it is: `ibv_query_device(3)`, `ibv_query_device_ex(3)`, and its clock now,
//! `ibv_query_rt_values_ex(3)`.
//! Grade: setup. Threads: any. The frequency of the clock is given in kHz, a clock value in ticks.

use std::ffi::{c_char, c_int};

use super::write_sized;
use crate::engine::codes::device_cap;
use crate::engine::{Errno, Hca, MAX_GROUPS, MAX_MEMBERS, MAX_MRS};
use crate::limits::Atomics;
use crate::sys::{
    IBV_ATOMIC_GLOB, IBV_ATOMIC_HCA, IBV_ATOMIC_NONE, IBV_VALUES_MASK_RAW_CLOCK, ibv_context, ibv_device_attr,
    ibv_device_attr_ex, ibv_query_device_ex_input, ibv_values_ex,
};
use crate::verbs::context::SoftContext;
use crate::verbs::error::number;

/// What of `ibv_device_cap_flags` is emulated.
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
        // What is made of them is not there, either.
        attr.device_cap_flags &= !(device_cap::SRQ_RESIZE | device_cap::XRC);
    }
    attr.max_pkeys = limits.max_pkeys;
    attr.local_ca_ack_delay = 15;
    attr.phys_port_cnt = spec.ports.len() as u8;
    attr
}

/// `ibv_query_device(3)`.
///
/// # Safety
/// `context` is open; `out` is writable.
pub(crate) unsafe extern "C" fn ibv_query_device(context: *mut ibv_context, out: *mut ibv_device_attr) -> c_int {
    // SAFETY: the caller says that `context` is open, and `out` writable.
    unsafe { out.write(attributes(SoftContext::of(context).hca())) };
    0
}

/// `ibv_query_device_ex(3)`: writes at most `size` bytes.
///
/// # Safety
/// `context` is open; `input` is null or readable; `out` is writable for `size` bytes.
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    out: *mut ibv_device_attr_ex,
    size: usize,
) -> c_int {
    // SAFETY: the caller says that `input` is null or readable.
    if size < size_of::<ibv_device_attr>() || (!input.is_null() && unsafe { (*input).comp_mask } != 0) {
        return number(Err(Errno(libc::EINVAL)));
    }
    // SAFETY: the caller says that `context` is open.
    let hca = unsafe { SoftContext::of(context) }.hca();
    let clock = &hca.spec().clock;
    let mut attr = ibv_device_attr_ex { orig_attr: attributes(hca), ..ibv_device_attr_ex::default() };
    let ways = hca.behaviour();
    let bits = if ways.timestamps { clock.mask_bits } else { u32::from(ways.refused_timestamp_bits) };
    attr.completion_timestamp_mask = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
    attr.hca_core_clock = if ways.timestamps { clock.frequency_hz / 1000 } else { 0 };
    attr.device_cap_flags_ex = u64::from(attr.orig_attr.device_cap_flags);
    attr.phys_port_cnt_ex = u32::from(attr.orig_attr.phys_port_cnt);
    // SAFETY: the caller says that `out` is writable for `size` bytes.
    unsafe { write_sized(out.cast(), size, &attr) };
    0
}

/// `ibv_query_rt_values_ex(3)`: the raw clock's ticks, in `tv_nsec` as drivers of real adapters give them.
///
/// # Safety
/// `context` is open; `values` is readable and writable.
pub(crate) unsafe extern "C" fn query_rt_values(context: *mut ibv_context, values: *mut ibv_values_ex) -> c_int {
    // SAFETY: the caller says that `context` is open, and `values` readable and writable.
    let (hca, values) = unsafe { (SoftContext::of(context).hca(), &mut *values) };
    let mut answered = 0;
    if values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK != 0 {
        values.raw_clock.tv_sec = 0;
        values.raw_clock.tv_nsec = hca.read_clock() as _;
        answered = IBV_VALUES_MASK_RAW_CLOCK;
    }
    values.comp_mask = answered;
    0
}
