// SPDX-License-Identifier: MIT OR Apache-2.0
//! Intel E810 with `RoCE` v2 (the second generation): kernel `hw/irdma`, rdma-core `providers/irdma`.
//!
//! Called by: `profiles`. Grade: setup.

use super::Profile;
use crate::behaviour::{
    AtomicAccess, Behaviour, ByteLen, CreateErrno, Events, Group, InlineGrant, NoSrq, OptionalAccess, PostErrno, Purge,
    SendBeforeRts, SrcQp,
};
use crate::engine::codes::link_layer;
use crate::limits::{Atomics, Limits};

pub(super) const PROFILE: Profile = Profile {
    link_layer: link_layer::ETHERNET,
    limits: Limits {
        max_qp: 65_536 - 64, // hw/irdma/verbs.c irdma_query_device: what is left; here it does not change
        max_qp_wr: 4063,     // hw/irdma/verbs.c
        max_cqe: 1_048_575,  // hw/irdma/verbs.c
        max_srq_wr: 0,       // hw/irdma/verbs.c: no shared receive queues before the third generation
        max_srq_sge: 0,      // hw/irdma/verbs.c
        max_sge: 13,         // providers/irdma/user.h
        max_sge_rd: 13,      // providers/irdma/user.h
        max_inline: 101,     // providers/irdma/user.h
        max_qp_rd_atom: 127, // hw/irdma/verbs.c
        max_qp_init_rd_atom: 255, // hw/irdma/verbs.c
        max_msg_sz: 1 << 30, // hw/irdma/verbs.c irdma_query_port: 0x7fffffff, too long to emulate
        gid_table_len: 32,   // hw/irdma/verbs.c irdma_query_port
        atomics: Atomics::None, // hw/irdma/verbs.c irdma_query_device
        ..Limits::USUAL
    },
    behaviour: Behaviour {
        atomic_access_without_cap: AtomicAccess::Accepted, // hw/irdma/verbs.c irdma_modify_qp_roce, irdma_hwreg_mr
        optional_access: OptionalAccess::Accepted,         // core/verbs.c: ignored
        purge_cq_on_destroy: Purge::Skip,                  // providers/irdma/uk.c irdma_uk_clean_cq
        qp_recycle_via_reset: false,                       // hw/irdma/verbs.c irdma_modify_qp_roce
        srq: false,                                        // hw/irdma/verbs.c irdma_query_device
        srq_errno: NoSrq::Einval,                          // providers/irdma/uverbs.c irdma_ucreate_srq
        cq_ex: true,                                       // providers/irdma/uverbs.c irdma_ucreate_cq_ex
        standard_wc_flags: false,                          // providers/irdma/umain.h: no DLID_PATH_BITS
        timestamps: false,                                 // providers/irdma/uverbs.c irdma_ucreate_cq_ex
        wallclock: false,                                  // providers/irdma/umain.h
        refused_timestamp_bits: 17,                        // hw/irdma/verbs.c irdma_query_device: 0x1ffff
        rt_values: false,                                  // libibverbs/dummy_ops.c
        wr_api: false,                                     // libibverbs/dummy_ops.c
        thread_domain: false,                              // libibverbs/dummy_ops.c
        ah_by_index: true,                                 // providers/irdma/uverbs.c irdma_ucreate_ah: ah_id
        last_wqe_event: false,                             // hw/irdma/utils.c irdma_ib_qp_event has no such case
        qp_fatal_on_retry_exc: true,                       // hw/irdma/hw.c: too many retries are catastrophic
        // hw/irdma/utils.c irdma_ib_qp_event, irdma_port_ibevent, hw.c (CQ errors), core/cache.c (GIDs)
        async_events: Events::of(&[Group::Port, Group::Gid, Group::Qp, Group::Cq, Group::Device]),
        arm_tells_of_unread: false,                    // hw/irdma/verbs.c irdma_req_notify_cq
        flush_needs_async_read: false,                 // providers/irdma/uk.c irdma_uk_cq_poll_cmpl
        success_byte_len_on_send: ByteLen::Set,        // providers/irdma/uverbs.c irdma_process_cqe
        src_qp_top_bits: SrcQp::Right,                 // providers/irdma/uverbs.c irdma_process_cqe
        create_qp_errno_on_limit: CreateErrno::Einval, // providers/irdma/uverbs.c irdma_ucreate_qp
        errno_sge: PostErrno::Einval,                  // providers/irdma/uk.c
        errno_inline: PostErrno::Einval,               // providers/irdma/uk.c
        send_before_rts: SendBeforeRts::Accepted,      // providers/irdma/uverbs.c irdma_upost_send does not look
        inline_grant: InlineGrant::Exact,              // providers/irdma/uverbs.c irdma_ucreate_qp
        ..Behaviour::USUAL
    },
    ..super::USUAL // there is no clock that could be read
};
