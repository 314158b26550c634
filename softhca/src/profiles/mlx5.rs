// SPDX-License-Identifier: MIT OR Apache-2.0
//! NVIDIA (Mellanox) `ConnectX`: kernel `hw/mlx5`, rdma-core `providers/mlx5`.
//!
//! Called by: `profiles`. Grade: setup.

use super::Profile;
use crate::behaviour::{
    AtomicAccess, Behaviour, ByteLen, CreateErrno, Events, InlineGrant, Lost, OptionalAccess, PostErrno, Purge,
    SendBeforeRts, SrcQp,
};
use crate::engine::ClockSpec;
use crate::engine::codes::link_layer;
use crate::limits::{Atomics, Limits};

pub(super) const PROFILE: Profile = Profile {
    link_layer: link_layer::INFINIBAND,
    limits: Limits {
        max_qp: 262_144,         // field (ibv_devinfo)
        max_qp_wr: 32_768,       // field
        max_cqe: 4_194_303,      // hw/mlx5/main.c mlx5_ib_query_device: 2^n - 1
        max_srq_wr: 32_767,      // hw/mlx5/main.c: 2^n - 1
        max_srq_sge: 31,         // hw/mlx5/main.c: pieces of a receive less one
        max_sge: 30,             // hw/mlx5/main.c: (512 - 16 - 16) / 16
        max_sge_rd: 30,          // hw/mlx5/main.c
        max_inline: 828,         // providers/mlx5/verbs.c mlx5_calc_send_wqe: RC with WQEs of 1024 bytes; UD 956
        max_qp_rd_atom: 16,      // field
        max_qp_init_rd_atom: 16, // field
        max_msg_sz: 1 << 30,     // hw/mlx5/main.c: 2^log_max_msg
        gid_table_len: 255,      // hw/mlx5/main.c: roce_address_table_size
        atomics: Atomics::Hca,   // hw/mlx5/main.c get_atomic_caps
        ..Limits::USUAL
    },
    behaviour: Behaviour {
        atomic_access_without_cap: AtomicAccess::Eopnotsupp, // hw/mlx5/qp.c set_qpc_atomic_flags
        optional_access: OptionalAccess::Accepted,           // hw/mlx5/mr.c set_mkc_access_pd_addr_fields: honoured
        purge_cq_on_destroy: Purge::Compact,                 // providers/mlx5/cq.c __mlx5_cq_clean
        srq_wr_lost_on_destroy: Lost::Taken,                 // providers/mlx5/cq.c free_res_cqe returns the purged ones
        qp_recycle_via_reset: true,                          // hw/mlx5/qp.c
        srq: true,                                           // hw/mlx5/main.c
        cq_ex: true,                                         // providers/mlx5/verbs.c mlx5_create_cq_ex
        standard_wc_flags: true,                             // providers/mlx5/verbs.c create_cq
        timestamps: true,                                    // providers/mlx5/cq.c mlx5_cq_fill_pfns
        wallclock: true,                                     // providers/mlx5/cq.c mlx5_cq_fill_pfns
        rt_values: true,                                     // providers/mlx5/verbs.c mlx5_query_rt_values
        wr_api: true,                                        // providers/mlx5/qp.c mlx5_qp_fill_wr_pfns
        thread_domain: true,                                 // providers/mlx5/verbs.c mlx5_alloc_td
        ah_by_index: false,                                  // providers/mlx5/qp.c _set_datagram_seg copies the address
        last_wqe_event: true,                                // hw/mlx5/qp.c mlx5_ib_qp_event
        async_events: Events::ALL,                           // hw/mlx5/qp.c, main.c
        arm_tells_of_unread: true, // hw/mlx5/cq.c mlx5_ib_arm_cq gives the hardware the count of those polled
        flush_needs_async_read: false, // the hardware flushes
        success_byte_len_on_send: ByteLen::Set, // providers/mlx5/cq.c handle_good_req
        src_qp_top_bits: SrcQp::Right, // providers/mlx5/cq.c handle_responder
        create_qp_errno_on_limit: CreateErrno::Einval, // providers/mlx5/verbs.c create_qp
        errno_sge: PostErrno::Enomem, // providers/mlx5/qp.c _mlx5_post_send
        errno_inline: PostErrno::Enomem, // providers/mlx5/qp.c set_data_inl_seg
        send_before_rts: SendBeforeRts::Enomem, // providers/mlx5/verbs.c set_qp_operational_state
        inline_grant: InlineGrant::Wqe, // providers/mlx5/verbs.c mlx5_calc_send_wqe
        ..Behaviour::USUAL
    },
    // field: 156.25 MHz; providers/mlx5/verbs.c mlx5_query_device_ex: 63 bits
    clock: ClockSpec { frequency_hz: 156_250_000, mask_bits: 63, ..ClockSpec::USUAL },
};
