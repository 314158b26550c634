// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's software `RoCE`: kernel `sw/rxe`, rdma-core `providers/rxe`.
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
        max_qp: 1_048_576,        // sw/rxe/rxe_param.h (older kernels 65536)
        max_qp_wr: 1_048_576,     // sw/rxe/rxe_param.h (older kernels 16384)
        max_cqe: 32_767,          // sw/rxe/rxe_param.h
        max_srq_wr: 1_048_576,    // sw/rxe/rxe_param.h
        max_srq_sge: 27,          // sw/rxe/rxe_param.h
        max_sge: 32,              // sw/rxe/rxe_param.h
        max_sge_rd: 32,           // sw/rxe/rxe_param.h
        max_inline: 512,          // sw/rxe/rxe_param.h: 32 pieces of 16 bytes
        max_qp_rd_atom: 128,      // sw/rxe/rxe_param.h
        max_qp_init_rd_atom: 128, // sw/rxe/rxe_param.h
        max_msg_sz: 8 << 20,      // sw/rxe/rxe_param.h
        gid_table_len: 1024,      // sw/rxe/rxe_param.h
        atomics: Atomics::Hca,    // sw/rxe/rxe_param.h
        ..Limits::USUAL
    },
    behaviour: Behaviour {
        virtual_device: true,                              // drivers/base/core.c: no parent
        atomic_access_without_cap: AtomicAccess::Accepted, // not used
        optional_access: OptionalAccess::Accepted,         // sw/rxe/rxe_verbs.h: ignored (some kernels: EOPNOTSUPP)
        purge_cq_on_destroy: Purge::No,                    // providers/rxe/rxe.c rxe_destroy_qp
        srq_wr_lost_on_destroy: Lost::Taken,               // sw/rxe/rxe_resp.c get_srq_wqe: at a message's first packet
        qp_recycle_via_reset: true,                        // sw/rxe/rxe_qp.c rxe_qp_reset
        srq: true,                                         // sw/rxe/rxe_srq.c
        cq_ex: true,                                       // providers/rxe/rxe.c rxe_create_cq_ex
        standard_wc_flags: true,                           // providers/rxe/rxe.c rxe_create_cq_ex
        timestamps: false,                                 // providers/rxe/rxe.c rxe_create_cq_ex
        wallclock: false,                                  // providers/rxe/rxe.c rxe_create_cq_ex
        refused_timestamp_bits: 0,                         // sw/rxe/rxe_verbs.c
        rt_values: false,                                  // libibverbs/dummy_ops.c
        wr_api: true,                                      // providers/rxe/rxe.c
        thread_domain: false,                              // libibverbs/dummy_ops.c
        ah_by_index: true,                                 // sw/rxe/rxe_av.c rxe_get_av
        last_wqe_event: true,                              // sw/rxe/rxe_resp.c flush_recv_queue (since 2023)
        qp_fatal_on_retry_exc: false,                      // sw/rxe/rxe_comp.c
        // sw/rxe/rxe_net.c (port), core/cache.c (gid), rxe_srq.c, rxe_cq.c rxe_cq_post, rxe_qp.c (drained),
        // rxe_resp.c
        async_events: Events::of(&[Group::Port, Group::Gid, Group::Srq, Group::Cq, Group::LastWqe]),
        arm_tells_of_unread: false,                    // sw/rxe/rxe_verbs.c rxe_req_notify_cq
        flush_needs_async_read: false,                 // sw/rxe/rxe_comp.c
        success_byte_len_on_send: ByteLen::Set,        // sw/rxe/rxe_comp.c make_send_cqe
        src_qp_top_bits: SrcQp::Right,                 // sw/rxe/rxe_resp.c
        create_qp_errno_on_limit: CreateErrno::Einval, // sw/rxe/rxe_qp.c rxe_qp_chk_cap
        errno_sge: PostErrno::Einval,                  // providers/rxe/rxe.c validate_send_wr
        errno_inline: PostErrno::Einval,               // providers/rxe/rxe.c validate_send_wr
        send_before_rts: SendBeforeRts::EinvalQueued,  // providers/rxe/rxe.c rxe_post_send: the doorbell fails
        retry7_endless: true,                          // sw/rxe/rxe_comp.c rxe_completer: 7 is not counted down
        rnr7_endless: true,                            // sw/rxe/rxe_comp.c rxe_completer
        gid_vanish_kills_rc: true,                     // sw/rxe/rxe_req.c rxe_init_packet looks it up each time
        inline_grant: InlineGrant::SharedWithSge,      // sw/rxe/rxe_qp.c rxe_qp_init_req
        ..Behaviour::USUAL
    },
    ..super::USUAL // there is no clock that could be read
};
