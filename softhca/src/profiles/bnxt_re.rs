// SPDX-License-Identifier: MIT OR Apache-2.0
//! Broadcom `NetXtreme` with static work queue entries: kernel `hw/bnxt_re`, rdma-core `providers/bnxt_re`.
//!
//! Called by: `profiles`. Grade: setup.

use super::Profile;
use crate::behaviour::{
    AtomicAccess, Behaviour, ByteLen, CreateErrno, Events, Group, InlineGrant, Lost, OptionalAccess, PostErrno, Purge,
    SendBeforeRts, SrcQp,
};
use crate::engine::codes::link_layer;
use crate::limits::{Atomics, Limits};

pub(super) const PROFILE: Profile = Profile {
    link_layer: link_layer::ETHERNET,
    limits: Limits {
        max_qp: 65_536,           // hw/bnxt_re: 64k queue pairs
        max_qp_wr: 65_535 - 128,  // hw/bnxt_re/qplib_sp.c bnxt_qplib_get_dev_attr: the firmware's, less 128; choice
        max_cqe: 1_048_575,       // hw/bnxt_re/qplib_sp.c: the firmware's, up to this
        max_srq_wr: 65_534,       // hw/bnxt_re/qplib_sp.c: the firmware's, less one; choice
        max_srq_sge: 6,           // hw/bnxt_re: as a queue pair's
        max_sge: 6,               // hw/bnxt_re: static entries; 13 where they vary
        max_sge_rd: 6,            // hw/bnxt_re: as above
        max_inline: 96,           // providers/bnxt_re/verbs.c bnxt_re_get_sq_slots: 16 bytes for each piece
        max_qp_rd_atom: 126,      // hw/bnxt_re/qplib_sp.c
        max_qp_init_rd_atom: 126, // hw/bnxt_re/qplib_sp.c
        max_msg_sz: 1 << 30,      // hw/bnxt_re/ib_verbs.c bnxt_re_query_port
        gid_table_len: 256,       // hw/bnxt_re: the driver's constant
        atomics: Atomics::None,   // hw/bnxt_re/ib_verbs.c: GLOB where PCIe has atomics
        max_pkeys: 1,             // hw/bnxt_re/qplib_sp.c
    },
    behaviour: Behaviour {
        atomic_access_without_cap: AtomicAccess::Accepted, // hw/bnxt_re/ib_verbs.c bnxt_re_modify_qp has no check
        optional_access: OptionalAccess::Accepted, // hw/bnxt_re/main.c bnxt_re_check_and_set_relaxed_ordering: on whatever is asked
        purge_cq_on_destroy: Purge::Skip,          // providers/bnxt_re/verbs.c bnxt_re_cleanup_cq
        srq_wr_lost_on_destroy: Lost::Both, // providers/bnxt_re/verbs.c bnxt_re_poll_one: no bnxt_re_release_srqe
        qp_recycle_via_reset: true,         // hw/bnxt_re/ib_verbs.c bnxt_re_modify_qp
        srq: true,                          // hw/bnxt_re/ib_verbs.c bnxt_re_create_srq
        cq_ex: false,                       // libibverbs/dummy_ops.c
        standard_wc_flags: false,           // not used
        timestamps: false,                  // libibverbs/dummy_ops.c
        wallclock: false,                   // libibverbs/dummy_ops.c
        refused_timestamp_bits: 0,          // hw/bnxt_re/ib_verbs.c
        rt_values: false,                   // libibverbs/dummy_ops.c
        wr_api: true,                       // providers/bnxt_re/verbs.c bnxt_re_create_qp_ex
        thread_domain: false,               // libibverbs/dummy_ops.c
        ah_by_index: true,                  // providers/bnxt_re/verbs.c bnxt_re_create_ah: avid
        last_wqe_event: true,               // hw/bnxt_re/main.c bnxt_re_handle_qp_async_event
        // hw/bnxt_re/main.c; the library expects those of queue pairs (providers/bnxt_re/main.c
        // bnxt_re_async_event)
        async_events: Events::of(&[Group::Port, Group::Gid, Group::Qp, Group::LastWqe, Group::Srq, Group::Device]),
        arm_tells_of_unread: false,   // hw/bnxt_re/ib_verbs.c bnxt_re_req_notify_cq
        flush_needs_async_read: true, // providers/bnxt_re/main.c bnxt_re_async_event
        success_byte_len_on_send: ByteLen::Untouched, // providers/bnxt_re/verbs.c bnxt_re_poll_success_scqe
        src_qp_top_bits: SrcQp::Wrong, // providers/bnxt_re/verbs.c bnxt_re_fill_ud_cqe
        create_qp_errno_on_limit: CreateErrno::Unset, // providers/bnxt_re/verbs.c bnxt_re_check_qp_limits
        errno_sge: PostErrno::Enomem, // providers/bnxt_re/verbs.c bnxt_re_post_send
        errno_inline: PostErrno::Enomem, // providers/bnxt_re/verbs.c bnxt_re_post_send
        send_before_rts: SendBeforeRts::Accepted, // providers/bnxt_re/verbs.c bnxt_re_post_send does not look
        inline_grant: InlineGrant::Exact, // providers/bnxt_re/verbs.c bnxt_re_get_sq_slots
        ..Behaviour::USUAL
    },
    ..super::USUAL // there is no clock that could be read
};
