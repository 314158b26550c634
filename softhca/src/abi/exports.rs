// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one list of what this library exports: every symbol at every version node of the real libibverbs of rdma-core 44
//! (Debian 12) and 56 (Debian 13), with the function behind it. Programs, and the libmlx5, libefa and librdmacm that
//! many of them link, load only if all symbols exist. Verbs that are not emulated share one function for each way to
//! report an error, whatever their arguments: C's calling conventions on 64-bit Linux let a callee ignore them. Each
//! export is a jump under a local label that `.symver` puts in its node. The Rust functions keep their mangled names,
//! so nothing clashes with a real libibverbs in the same process. Tests: `tests/verbs_library.rs`.

use core::arch::global_asm;
use std::ffi::{c_int, c_void};

use crate::abi::names;
use crate::verbs::device::{list, query};
use crate::verbs::error::set_errno;
use crate::verbs::qp::{ah, object as qp, qp_ex, srq};
use crate::verbs::{context, cq, events, fork, mr, pd};

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp {function}"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b {function}"
    };
}

/// Exports a symbol at a version node. `$at` is `@@` for the node that programs link to today, `@` for an old one.
macro_rules! export {
    ($at:literal $node:literal $name:ident => $function:path) => {
        global_asm!(
            ".pushsection .text",
            concat!(".globl __softhca_", $node, "_", stringify!($name)),
            concat!(".type __softhca_", $node, "_", stringify!($name), ",%function"),
            concat!("__softhca_", $node, "_", stringify!($name), ":"),
            jump!(),
            concat!(".symver __softhca_", $node, "_", stringify!($name), ", ", stringify!($name), $at, $node),
            ".popsection",
            function = sym $function,
        );
    };
}

macro_rules! exports {
    ($at:literal: $($module:ident $node:literal: $($name:ident)+;)*) => {
        $($(export! { $at $node $name => $module::$name })+)*
    };
}

/// Exports verbs that are not emulated: all symbols of a row are one function.
macro_rules! stand_ins {
    ($at:literal: $($function:ident $node:literal: $($name:ident)+;)*) => {
        $($(export! { $at $node $name => $function })+)*
    };
}

exports! { "@@":
    ah "IBVERBS_1.1": ibv_create_ah ibv_create_ah_from_wc ibv_destroy_ah ibv_init_ah_from_wc;
    cq "IBVERBS_1.1": ibv_create_cq ibv_destroy_cq ibv_resize_cq;
    events "IBVERBS_1.0": ibv_create_comp_channel ibv_destroy_comp_channel;
    events "IBVERBS_1.1": ibv_ack_async_event ibv_ack_cq_events ibv_get_async_event ibv_get_cq_event;
    context "IBVERBS_1.1": ibv_close_device ibv_open_device;
    fork "IBVERBS_1.1": ibv_fork_init;
    fork "IBVERBS_1.13": ibv_is_fork_initialized;
    list "IBVERBS_1.0": ibv_get_sysfs_path ibv_read_sysfs_file;
    list "IBVERBS_1.1": ibv_free_device_list ibv_get_device_guid ibv_get_device_list ibv_get_device_name;
    list "IBVERBS_1.9": ibv_get_device_index;
    mr "IBVERBS_1.1": ibv_dereg_mr ibv_reg_mr ibv_rereg_mr;
    mr "IBVERBS_1.7": ibv_reg_mr_iova;
    mr "IBVERBS_1.8": ibv_reg_mr_iova2;
    names "IBVERBS_1.0": ibv_rate_to_mult mult_to_ibv_rate;
    names "IBVERBS_1.1": ibv_event_type_str ibv_node_type_str ibv_port_state_str ibv_rate_to_mbps ibv_wc_status_str
        mbps_to_ibv_rate;
    pd "IBVERBS_1.1": ibv_alloc_pd ibv_dealloc_pd;
    query "IBVERBS_1.1": ibv_query_device ibv_query_gid ibv_query_pkey ibv_query_port;
    query "IBVERBS_1.5": ibv_get_pkey_index;
    query "IBVERBS_1.11": _ibv_query_gid_ex _ibv_query_gid_table;
    qp "IBVERBS_1.1": ibv_attach_mcast ibv_create_qp ibv_detach_mcast ibv_destroy_qp ibv_modify_qp ibv_query_qp;
    qp "IBVERBS_1.10": ibv_query_ece;
    qp_ex "IBVERBS_1.6": ibv_qp_to_qp_ex;
    srq "IBVERBS_1.1": ibv_create_srq ibv_destroy_srq ibv_modify_srq ibv_query_srq;
}
stand_ins! { "@@":
    no_object "IBVERBS_1.10": ibv_import_device ibv_import_mr ibv_import_pd;
    no_object "IBVERBS_1.12": ibv_reg_dmabuf_mr;
    no_object "IBVERBS_1.13": ibv_import_dm;
    not_supported "IBVERBS_1.1": ibv_resolve_eth_l2_from_gid;
    not_supported "IBVERBS_1.10": ibv_set_ece;
    nothing "IBVERBS_1.0": ibv_copy_path_rec_from_kern ibv_copy_path_rec_to_kern ibv_copy_qp_attr_from_kern;
    nothing "IBVERBS_1.1": ibv_copy_ah_attr_from_kern;
    nothing "IBVERBS_1.10": ibv_unimport_mr ibv_unimport_pd;
    nothing "IBVERBS_1.13": ibv_unimport_dm;
    zero "IBVERBS_1.1": ibv_dofork_range ibv_dontfork_range;
    zero "IBVERBS_1.14": ibv_query_qp_data_in_order;
}

// Programs linked before 2008 ask for these. Their structures differ, so the verbs fail as unsupported ones do.
stand_ins! { "@":
    no_object "IBVERBS_1.0": ibv_alloc_pd ibv_create_ah ibv_create_cq ibv_create_qp ibv_create_srq ibv_get_device_list
        ibv_get_device_name ibv_open_device ibv_reg_mr;
    not_supported "IBVERBS_1.0": ibv_attach_mcast ibv_close_device ibv_dealloc_pd ibv_dereg_mr ibv_destroy_ah
        ibv_destroy_cq ibv_destroy_qp ibv_destroy_srq ibv_detach_mcast ibv_get_async_event ibv_get_cq_event
        ibv_modify_qp ibv_modify_srq ibv_query_device ibv_query_gid ibv_query_pkey ibv_query_port ibv_query_qp
        ibv_query_srq ibv_resize_cq;
    nothing "IBVERBS_1.0": ibv_ack_async_event ibv_ack_cq_events ibv_free_device_list;
    nothing "IBVERBS_1.1": ibv_register_driver;
    zero "IBVERBS_1.0": ibv_get_device_guid;
}

// Drivers of real adapters need these to load and to register; they find no device. rdma-core 44 lacks two of them.
exports! { "@@":
    names "IBVERBS_PRIVATE_34": ibv_wr_opcode_str;
    query "IBVERBS_PRIVATE_34": ibv_query_gid_type;
}
stand_ins! { "@@":
    minus_one "IBVERBS_PRIVATE_34": ibv_read_ibdev_sysfs_file;
    no_object "IBVERBS_PRIVATE_34": _verbs_init_and_alloc_context verbs_open_device;
    not_supported "IBVERBS_PRIVATE_34": __ioctl_final_num_attrs execute_ioctl ibv_cmd_advise_mr ibv_cmd_alloc_dm
        ibv_cmd_alloc_mw ibv_cmd_alloc_pd ibv_cmd_attach_mcast ibv_cmd_close_xrcd ibv_cmd_create_ah
        ibv_cmd_create_counters ibv_cmd_create_cq ibv_cmd_create_cq_ex ibv_cmd_create_cq_ex2 ibv_cmd_create_flow
        ibv_cmd_create_flow_action_esp ibv_cmd_create_qp ibv_cmd_create_qp_ex ibv_cmd_create_qp_ex2
        ibv_cmd_create_rwq_ind_table ibv_cmd_create_srq ibv_cmd_create_srq_ex ibv_cmd_create_wq ibv_cmd_dealloc_mw
        ibv_cmd_dealloc_pd ibv_cmd_dereg_mr ibv_cmd_destroy_ah ibv_cmd_destroy_counters ibv_cmd_destroy_cq
        ibv_cmd_destroy_flow ibv_cmd_destroy_flow_action ibv_cmd_destroy_qp ibv_cmd_destroy_rwq_ind_table
        ibv_cmd_destroy_srq ibv_cmd_destroy_wq ibv_cmd_detach_mcast ibv_cmd_free_dm ibv_cmd_get_context
        ibv_cmd_modify_cq ibv_cmd_modify_flow_action_esp ibv_cmd_modify_qp ibv_cmd_modify_qp_ex ibv_cmd_modify_srq
        ibv_cmd_modify_wq ibv_cmd_open_qp ibv_cmd_open_xrcd ibv_cmd_poll_cq ibv_cmd_post_recv ibv_cmd_post_send
        ibv_cmd_post_srq_recv ibv_cmd_query_context ibv_cmd_query_device_any ibv_cmd_query_mr ibv_cmd_query_port
        ibv_cmd_query_qp ibv_cmd_query_srq ibv_cmd_read_counters ibv_cmd_reg_dm_mr ibv_cmd_reg_dmabuf_mr ibv_cmd_reg_mr
        ibv_cmd_req_notify_cq ibv_cmd_rereg_mr ibv_cmd_resize_cq verbs_init_cq;
    nothing "IBVERBS_PRIVATE_34": __verbs_log verbs_register_driver_34 verbs_set_ops verbs_uninit_context;
}

// The one exported object: a flag that drivers set.
global_asm!(
    ".pushsection .bss.softhca_disassociate,\"aw\",%nobits",
    ".globl __softhca_disassociate",
    ".type __softhca_disassociate,%object",
    ".size __softhca_disassociate, 1",
    "__softhca_disassociate:",
    ".zero 1",
    ".symver __softhca_disassociate, verbs_allow_disassociate_destroy@@IBVERBS_PRIVATE_34",
    ".popsection",
);

/// For verbs that return an error number: `EOPNOTSUPP`, also in `errno`.
pub(crate) extern "C" fn not_supported() -> c_int {
    set_errno(libc::EOPNOTSUPP);
    libc::EOPNOTSUPP
}

/// For verbs that return an object: null, with `errno` `EOPNOTSUPP`.
pub(crate) extern "C" fn no_object() -> *mut c_void {
    set_errno(libc::EOPNOTSUPP);
    std::ptr::null_mut()
}

/// For verbs that return a GUID, or promise nothing: zero.
pub(crate) extern "C" fn zero() -> u64 {
    0
}

/// For functions that return a length or -1: -1, with `errno` `ENOENT`.
pub(crate) extern "C" fn minus_one() -> c_int {
    set_errno(libc::ENOENT);
    -1
}

/// For functions that return nothing, and for conversions between structures of the kernel and of verbs: librdmacm
/// calls those only after the kernel's connection manager has answered, which knows no emulated adapter.
pub(crate) extern "C" fn nothing() {}
