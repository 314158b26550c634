// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one table of what this library exports: every symbol at every version node of the real libibverbs of rdma-core
//! 44 (Debian 12) and 56 (Debian 13), with the function behind it. Programs (and libmlx5, libefa and librdmacm, which
//! many of them are linked to) load only if all of them exist.
//!
//! Each export is a jump under a local label that `.symver` puts in its node: the Rust functions themselves keep their
//! mangled names, so that nothing here clashes with a real libibverbs in the same process. The trampoline costs one
//! direct jump on calls that are not on the data path (that one goes through function pointers).
//! Tests: tests/exports.rs compares with the installed real library.

use core::arch::global_asm;

use super::{kernel_copies, names, rates, unsupported};
use crate::verbs::cq::{channel, event, object as cq};
use crate::verbs::device::{attr, list, port, sysfs};
use crate::verbs::qp::{ah, mcast, object as qp, qp_ex, srq};
use crate::verbs::{async_event, fork, mr, open, pd};

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

/// Exports each `"name" "NODE" => function;`, where `$at` is `@@` for what programs are linked to today and `@` for
/// what only programs linked long ago ask for.
macro_rules! exports {
    ($table:ident, $label:literal, $at:literal: $($name:literal $node:literal => $function:path;)*) => {
        $(global_asm!(
            ".pushsection .text",
            concat!(".globl ", $label, $name),
            concat!(".type ", $label, $name, ",%function"),
            concat!($label, $name, ":"),
            jump!(),
            concat!(".symver ", $label, $name, ", ", $name, $at, $node),
            ".popsection",
            function = sym $function,
        );)*
        /// Name and version of each export of this group, as `nm -D --with-symbol-versions` writes them.
        pub const $table: &[&str] = &[$(concat!($name, $at, $node)),*];
    };
}

// The public interface.
exports! { PUBLIC, "__softhca_public_", "@@":
    "_ibv_query_gid_ex" "IBVERBS_1.11" => port::_ibv_query_gid_ex;
    "_ibv_query_gid_table" "IBVERBS_1.11" => port::_ibv_query_gid_table;
    "ibv_ack_async_event" "IBVERBS_1.1" => async_event::ibv_ack_async_event;
    "ibv_ack_cq_events" "IBVERBS_1.1" => event::ibv_ack_cq_events;
    "ibv_alloc_pd" "IBVERBS_1.1" => pd::ibv_alloc_pd;
    "ibv_attach_mcast" "IBVERBS_1.1" => mcast::ibv_attach_mcast;
    "ibv_close_device" "IBVERBS_1.1" => open::ibv_close_device;
    "ibv_copy_ah_attr_from_kern" "IBVERBS_1.1" => kernel_copies::ibv_copy_ah_attr_from_kern;
    "ibv_copy_path_rec_from_kern" "IBVERBS_1.0" => kernel_copies::ibv_copy_path_rec_from_kern;
    "ibv_copy_path_rec_to_kern" "IBVERBS_1.0" => kernel_copies::ibv_copy_path_rec_to_kern;
    "ibv_copy_qp_attr_from_kern" "IBVERBS_1.0" => kernel_copies::ibv_copy_qp_attr_from_kern;
    "ibv_create_ah" "IBVERBS_1.1" => ah::ibv_create_ah;
    "ibv_create_ah_from_wc" "IBVERBS_1.1" => ah::ibv_create_ah_from_wc;
    "ibv_create_comp_channel" "IBVERBS_1.0" => channel::ibv_create_comp_channel;
    "ibv_create_cq" "IBVERBS_1.1" => cq::ibv_create_cq;
    "ibv_create_qp" "IBVERBS_1.1" => qp::ibv_create_qp;
    "ibv_create_srq" "IBVERBS_1.1" => srq::ibv_create_srq;
    "ibv_dealloc_pd" "IBVERBS_1.1" => pd::ibv_dealloc_pd;
    "ibv_dereg_mr" "IBVERBS_1.1" => mr::ibv_dereg_mr;
    "ibv_destroy_ah" "IBVERBS_1.1" => ah::ibv_destroy_ah;
    "ibv_destroy_comp_channel" "IBVERBS_1.0" => channel::ibv_destroy_comp_channel;
    "ibv_destroy_cq" "IBVERBS_1.1" => cq::ibv_destroy_cq;
    "ibv_destroy_qp" "IBVERBS_1.1" => qp::ibv_destroy_qp;
    "ibv_destroy_srq" "IBVERBS_1.1" => srq::ibv_destroy_srq;
    "ibv_detach_mcast" "IBVERBS_1.1" => mcast::ibv_detach_mcast;
    "ibv_dofork_range" "IBVERBS_1.1" => fork::ibv_dofork_range;
    "ibv_dontfork_range" "IBVERBS_1.1" => fork::ibv_dontfork_range;
    "ibv_event_type_str" "IBVERBS_1.1" => names::ibv_event_type_str;
    "ibv_fork_init" "IBVERBS_1.1" => fork::ibv_fork_init;
    "ibv_free_device_list" "IBVERBS_1.1" => list::ibv_free_device_list;
    "ibv_get_async_event" "IBVERBS_1.1" => async_event::ibv_get_async_event;
    "ibv_get_cq_event" "IBVERBS_1.1" => event::ibv_get_cq_event;
    "ibv_get_device_guid" "IBVERBS_1.1" => list::ibv_get_device_guid;
    "ibv_get_device_index" "IBVERBS_1.9" => list::ibv_get_device_index;
    "ibv_get_device_list" "IBVERBS_1.1" => list::ibv_get_device_list;
    "ibv_get_device_name" "IBVERBS_1.1" => list::ibv_get_device_name;
    "ibv_get_pkey_index" "IBVERBS_1.5" => port::ibv_get_pkey_index;
    "ibv_get_sysfs_path" "IBVERBS_1.0" => sysfs::ibv_get_sysfs_path;
    "ibv_import_device" "IBVERBS_1.10" => unsupported::no_object;
    "ibv_import_dm" "IBVERBS_1.13" => unsupported::no_object;
    "ibv_import_mr" "IBVERBS_1.10" => unsupported::no_object;
    "ibv_import_pd" "IBVERBS_1.10" => unsupported::no_object;
    "ibv_init_ah_from_wc" "IBVERBS_1.1" => ah::ibv_init_ah_from_wc;
    "ibv_is_fork_initialized" "IBVERBS_1.13" => fork::ibv_is_fork_initialized;
    "ibv_modify_qp" "IBVERBS_1.1" => qp::ibv_modify_qp;
    "ibv_modify_srq" "IBVERBS_1.1" => srq::ibv_modify_srq;
    "ibv_node_type_str" "IBVERBS_1.1" => names::ibv_node_type_str;
    "ibv_open_device" "IBVERBS_1.1" => open::ibv_open_device;
    "ibv_port_state_str" "IBVERBS_1.1" => names::ibv_port_state_str;
    "ibv_qp_to_qp_ex" "IBVERBS_1.6" => qp_ex::ibv_qp_to_qp_ex;
    "ibv_query_device" "IBVERBS_1.1" => attr::ibv_query_device;
    "ibv_query_ece" "IBVERBS_1.10" => qp::ibv_query_ece;
    "ibv_query_gid" "IBVERBS_1.1" => port::ibv_query_gid;
    "ibv_query_pkey" "IBVERBS_1.1" => port::ibv_query_pkey;
    "ibv_query_port" "IBVERBS_1.1" => port::ibv_query_port;
    "ibv_query_qp" "IBVERBS_1.1" => qp::ibv_query_qp;
    "ibv_query_qp_data_in_order" "IBVERBS_1.14" => qp::ibv_query_qp_data_in_order;
    "ibv_query_srq" "IBVERBS_1.1" => srq::ibv_query_srq;
    "ibv_rate_to_mbps" "IBVERBS_1.1" => rates::ibv_rate_to_mbps;
    "ibv_rate_to_mult" "IBVERBS_1.0" => rates::ibv_rate_to_mult;
    "ibv_read_sysfs_file" "IBVERBS_1.0" => sysfs::ibv_read_sysfs_file;
    "ibv_reg_dmabuf_mr" "IBVERBS_1.12" => mr::ibv_reg_dmabuf_mr;
    "ibv_reg_mr" "IBVERBS_1.1" => mr::ibv_reg_mr;
    "ibv_reg_mr_iova" "IBVERBS_1.7" => mr::ibv_reg_mr_iova;
    "ibv_reg_mr_iova2" "IBVERBS_1.8" => mr::ibv_reg_mr_iova2;
    "ibv_rereg_mr" "IBVERBS_1.1" => mr::ibv_rereg_mr;
    "ibv_resize_cq" "IBVERBS_1.1" => cq::ibv_resize_cq;
    "ibv_resolve_eth_l2_from_gid" "IBVERBS_1.1" => ah::ibv_resolve_eth_l2_from_gid;
    "ibv_set_ece" "IBVERBS_1.10" => qp::ibv_set_ece;
    "ibv_unimport_dm" "IBVERBS_1.13" => unsupported::nothing;
    "ibv_unimport_mr" "IBVERBS_1.10" => unsupported::nothing;
    "ibv_unimport_pd" "IBVERBS_1.10" => unsupported::nothing;
    "ibv_wc_status_str" "IBVERBS_1.1" => names::ibv_wc_status_str;
    "mbps_to_ibv_rate" "IBVERBS_1.1" => rates::mbps_to_ibv_rate;
    "mult_to_ibv_rate" "IBVERBS_1.0" => rates::mult_to_ibv_rate;
}

// What programs linked before 2008 ask for. Its structures differ from today's; it fails as a device without that
// operation does.
exports! { OLD, "__softhca_old_", "@":
    "ibv_ack_async_event" "IBVERBS_1.0" => unsupported::nothing;
    "ibv_ack_cq_events" "IBVERBS_1.0" => unsupported::nothing;
    "ibv_alloc_pd" "IBVERBS_1.0" => unsupported::no_object;
    "ibv_attach_mcast" "IBVERBS_1.0" => unsupported::not_supported;
    "ibv_close_device" "IBVERBS_1.0" => unsupported::not_supported;
    "ibv_create_ah" "IBVERBS_1.0" => unsupported::no_object;
    "ibv_create_cq" "IBVERBS_1.0" => unsupported::no_object;
    "ibv_create_qp" "IBVERBS_1.0" => unsupported::no_object;
    "ibv_create_srq" "IBVERBS_1.0" => unsupported::no_object;
    "ibv_dealloc_pd" "IBVERBS_1.0" => unsupported::not_supported;
    "ibv_dereg_mr" "IBVERBS_1.0" => unsupported::not_supported;
    "ibv_destroy_ah" "IBVERBS_1.0" => unsupported::not_supported;
    "ibv_destroy_cq" "IBVERBS_1.0" => unsupported::not_supported;
    "ibv_destroy_qp" "IBVERBS_1.0" => unsupported::not_supported;
    "ibv_destroy_srq" "IBVERBS_1.0" => unsupported::not_supported;
    "ibv_detach_mcast" "IBVERBS_1.0" => unsupported::not_supported;
    "ibv_free_device_list" "IBVERBS_1.0" => unsupported::nothing;
    "ibv_get_async_event" "IBVERBS_1.0" => unsupported::not_supported;
    "ibv_get_cq_event" "IBVERBS_1.0" => unsupported::not_supported;
    "ibv_get_device_guid" "IBVERBS_1.0" => unsupported::no_number;
    "ibv_get_device_list" "IBVERBS_1.0" => unsupported::no_object;
    "ibv_get_device_name" "IBVERBS_1.0" => unsupported::no_object;
    "ibv_modify_qp" "IBVERBS_1.0" => unsupported::not_supported;
    "ibv_modify_srq" "IBVERBS_1.0" => unsupported::not_supported;
    "ibv_open_device" "IBVERBS_1.0" => unsupported::no_object;
    "ibv_query_device" "IBVERBS_1.0" => unsupported::not_supported;
    "ibv_query_gid" "IBVERBS_1.0" => unsupported::not_supported;
    "ibv_query_pkey" "IBVERBS_1.0" => unsupported::not_supported;
    "ibv_query_port" "IBVERBS_1.0" => unsupported::not_supported;
    "ibv_query_qp" "IBVERBS_1.0" => unsupported::not_supported;
    "ibv_query_srq" "IBVERBS_1.0" => unsupported::not_supported;
    "ibv_reg_mr" "IBVERBS_1.0" => unsupported::no_object;
    "ibv_register_driver" "IBVERBS_1.1" => unsupported::nothing;
    "ibv_resize_cq" "IBVERBS_1.0" => unsupported::not_supported;
}

// What drivers of real adapters ask of the library. They must be able to load and to register; they find no device.
exports! { PRIVATE, "__softhca_private_", "@@":
    "__ioctl_final_num_attrs" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "__verbs_log" "IBVERBS_PRIVATE_34" => unsupported::nothing;
    "_verbs_init_and_alloc_context" "IBVERBS_PRIVATE_34" => unsupported::no_object;
    "execute_ioctl" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_advise_mr" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_alloc_dm" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_alloc_mw" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_alloc_pd" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_attach_mcast" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_close_xrcd" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_create_ah" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_create_counters" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_create_cq" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_create_cq_ex" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_create_flow" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_create_flow_action_esp" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_create_qp" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_create_qp_ex" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_create_qp_ex2" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_create_rwq_ind_table" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_create_srq" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_create_srq_ex" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_create_wq" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_dealloc_mw" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_dealloc_pd" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_dereg_mr" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_destroy_ah" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_destroy_counters" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_destroy_cq" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_destroy_flow" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_destroy_flow_action" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_destroy_qp" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_destroy_rwq_ind_table" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_destroy_srq" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_destroy_wq" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_detach_mcast" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_free_dm" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_get_context" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_modify_cq" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_modify_flow_action_esp" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_modify_qp" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_modify_qp_ex" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_modify_srq" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_modify_wq" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_open_qp" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_open_xrcd" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_poll_cq" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_post_recv" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_post_send" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_post_srq_recv" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_query_context" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_query_device_any" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_query_mr" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_query_port" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_query_qp" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_query_srq" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_read_counters" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_reg_dm_mr" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_reg_dmabuf_mr" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_reg_mr" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_req_notify_cq" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_rereg_mr" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_cmd_resize_cq" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_query_gid_type" "IBVERBS_PRIVATE_34" => port::ibv_query_gid_type;
    "ibv_read_ibdev_sysfs_file" "IBVERBS_PRIVATE_34" => unsupported::minus_one;
    "verbs_init_cq" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "verbs_open_device" "IBVERBS_PRIVATE_34" => unsupported::no_object;
    "verbs_register_driver_34" "IBVERBS_PRIVATE_34" => unsupported::nothing;
    "verbs_set_ops" "IBVERBS_PRIVATE_34" => unsupported::nothing;
    "verbs_uninit_context" "IBVERBS_PRIVATE_34" => unsupported::nothing;
}

// What drivers of rdma-core 56 ask for beyond that; the node is the same, so that it is there for those of 44 as well.
exports! { SINCE_45, "__softhca_since_45_", "@@":
    "ibv_cmd_create_cq_ex2" "IBVERBS_PRIVATE_34" => unsupported::not_supported;
    "ibv_wr_opcode_str" "IBVERBS_PRIVATE_34" => names::ibv_wr_opcode_str;
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

/// The exported objects, as [`PUBLIC`].
pub const OBJECTS: &[&str] = &["verbs_allow_disassociate_destroy@@IBVERBS_PRIVATE_34"];
