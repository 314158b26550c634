// SPDX-License-Identifier: MIT OR Apache-2.0
//! A legal adapter at the low end: no driver is like it, and all that it does, or does not, the specification, a man
//! page or some driver allows.
//!
//! Called by: `profiles`. Grade: setup.

use super::Profile;
use crate::behaviour::{
    AtomicAccess, Behaviour, ByteLen, CreateErrno, Events, Fork, Group, InlineGrant, Lost, OptionalAccess, PostErrno,
    Purge, SendBeforeRts,
};
use crate::engine::codes::link_layer;
use crate::limits::{Atomics, Limits};

pub(super) const PROFILE: Profile = Profile {
    link_layer: link_layer::INFINIBAND,
    // All of these are choices.
    limits: Limits {
        max_qp: 64,
        max_qp_wr: 256,
        max_cqe: 255,
        max_srq_wr: 128,
        max_srq_sge: 1,
        max_sge: 1,
        max_sge_rd: 1,
        max_inline: 0,
        max_qp_rd_atom: 1,
        max_qp_init_rd_atom: 1,
        max_msg_sz: 1 << 20,
        gid_table_len: 2,
        atomics: Atomics::None, // specification 11.2.1.2: optional
        ..Limits::USUAL
    },
    behaviour: Behaviour {
        atomic_access_without_cap: AtomicAccess::Einval, // ibv_modify_qp(3)
        optional_access: OptionalAccess::Eopnotsupp, // as sw/rxe of some kernels: its mask of rights lacked the range
        purge_cq_on_destroy: Purge::No,              // as providers/rxe
        srq_wr_lost_on_destroy: Lost::Both,          // as providers/bnxt_re
        qp_recycle_via_reset: true,                  // specification 10.3.1
        cq_ex: false,                                // as providers/bnxt_re
        standard_wc_flags: false,                    // not used
        timestamps: false,                           // libibverbs/dummy_ops.c
        wallclock: false,                            // libibverbs/dummy_ops.c
        rt_values: false,                            // libibverbs/dummy_ops.c
        wr_api: false,                               // libibverbs/dummy_ops.c
        thread_domain: false,                        // libibverbs/dummy_ops.c
        ah_by_index: true,                           // specification 11.2.2: a handle is an index of the adapter's
        last_wqe_event: false,                       // as providers/irdma
        async_events: Events::of(&[Group::Device]),  // specification 11.6.3: few are mandatory
        arm_tells_of_unread: false,                  // as sw/rxe
        success_byte_len_on_send: ByteLen::Untouched, // ibv_poll_cq(3): valid for receives
        create_qp_errno_on_limit: CreateErrno::Einval, // ibv_create_qp(3)
        errno_sge: PostErrno::Einval,                // ibv_post_send(3)
        errno_inline: PostErrno::Einval,             // ibv_post_send(3)
        send_before_rts: SendBeforeRts::Einval,      // specification 10.3.1
        gid_vanish_kills_rc: true,                   // as sw/rxe
        inline_grant: InlineGrant::Exact,            // choice
        fork: Fork::Disabled,                        // a kernel before 5.12
        ..Behaviour::USUAL
    },
    ..super::USUAL // there is no clock that could be read
};
