// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers of the verbs interface as the engine uses them: states, opcodes, flags, statuses, masks, events.
//!
//! They are those of `<infiniband/verbs.h>`, so that the C side passes them through. Integers with names, never enums:
//! they come from programs. Grade: constants.

#![expect(missing_docs, reason = "the names are those of <infiniband/verbs.h>, where each is documented")]

pub mod qp_type {
    pub use crate::sys::{
        IBV_QPT_RC as RC, IBV_QPT_UC as UC, IBV_QPT_UD as UD, IBV_QPT_XRC_RECV as XRC_RECV,
        IBV_QPT_XRC_SEND as XRC_SEND,
    };

    /// Whether what it sends is answered.
    #[must_use]
    pub const fn is_reliable(kind: u32) -> bool {
        kind != UC && kind != UD
    }

    /// What it must be connected to.
    #[must_use]
    pub const fn answering(kind: u32) -> u32 {
        if kind == XRC_SEND { XRC_RECV } else { kind }
    }
}

pub mod qp_state {
    pub use crate::sys::{
        IBV_QPS_ERR as ERR, IBV_QPS_INIT as INIT, IBV_QPS_RESET as RESET, IBV_QPS_RTR as RTR, IBV_QPS_RTS as RTS,
        IBV_QPS_SQD as SQD, IBV_QPS_SQE as SQE,
    };
}

pub mod attr_mask {
    pub use crate::sys::{
        IBV_QP_ACCESS_FLAGS as ACCESS_FLAGS, IBV_QP_ALT_PATH as ALT_PATH, IBV_QP_AV as AV, IBV_QP_CAP as CAP,
        IBV_QP_CUR_STATE as CUR_STATE, IBV_QP_DEST_QPN as DEST_QPN, IBV_QP_EN_SQD_ASYNC_NOTIFY as EN_SQD_ASYNC_NOTIFY,
        IBV_QP_MAX_DEST_RD_ATOMIC as MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC as MAX_QP_RD_ATOMIC,
        IBV_QP_MIN_RNR_TIMER as MIN_RNR_TIMER, IBV_QP_PATH_MIG_STATE as PATH_MIG_STATE, IBV_QP_PATH_MTU as PATH_MTU,
        IBV_QP_PKEY_INDEX as PKEY_INDEX, IBV_QP_PORT as PORT, IBV_QP_QKEY as QKEY, IBV_QP_RETRY_CNT as RETRY_CNT,
        IBV_QP_RNR_RETRY as RNR_RETRY, IBV_QP_RQ_PSN as RQ_PSN, IBV_QP_SQ_PSN as SQ_PSN, IBV_QP_STATE as STATE,
        IBV_QP_TIMEOUT as TIMEOUT,
    };
}

pub mod wr_opcode {
    pub use crate::sys::{
        IBV_WR_ATOMIC_CMP_AND_SWP as ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD as ATOMIC_FETCH_AND_ADD,
        IBV_WR_BIND_MW as BIND_MW, IBV_WR_LOCAL_INV as LOCAL_INV, IBV_WR_RDMA_READ as RDMA_READ,
        IBV_WR_RDMA_WRITE as RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM as RDMA_WRITE_WITH_IMM, IBV_WR_SEND as SEND,
        IBV_WR_SEND_WITH_IMM as SEND_WITH_IMM, IBV_WR_SEND_WITH_INV as SEND_WITH_INV,
    };
}

pub mod send_flags {
    pub use crate::sys::{
        IBV_SEND_FENCE as FENCE, IBV_SEND_INLINE as INLINE, IBV_SEND_SIGNALED as SIGNALED,
        IBV_SEND_SOLICITED as SOLICITED,
    };
}

pub mod wc_opcode {
    pub use crate::sys::{
        IBV_WC_BIND_MW as BIND_MW, IBV_WC_COMP_SWAP as COMP_SWAP, IBV_WC_FETCH_ADD as FETCH_ADD,
        IBV_WC_LOCAL_INV as LOCAL_INV, IBV_WC_RDMA_READ as RDMA_READ, IBV_WC_RDMA_WRITE as RDMA_WRITE,
        IBV_WC_RECV as RECV, IBV_WC_RECV_RDMA_WITH_IMM as RECV_RDMA_WITH_IMM, IBV_WC_SEND as SEND,
    };
}

pub mod wc_flags {
    pub use crate::sys::{IBV_WC_GRH as GRH, IBV_WC_WITH_IMM as WITH_IMM, IBV_WC_WITH_INV as WITH_INV};
}

pub mod wc_status {
    pub use crate::sys::{
        IBV_WC_LOC_LEN_ERR as LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR as LOC_PROT_ERR, IBV_WC_LOC_QP_OP_ERR as LOC_QP_OP_ERR,
        IBV_WC_MW_BIND_ERR as MW_BIND_ERR, IBV_WC_REM_ACCESS_ERR as REM_ACCESS_ERR,
        IBV_WC_REM_INV_REQ_ERR as REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR as REM_OP_ERR,
        IBV_WC_RETRY_EXC_ERR as RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR as RNR_RETRY_EXC_ERR,
        IBV_WC_SUCCESS as SUCCESS, IBV_WC_TM_RNDV_INCOMPLETE as TM_RNDV_INCOMPLETE,
        IBV_WC_WR_FLUSH_ERR as WR_FLUSH_ERR,
    };
}

pub mod access {
    pub use crate::sys::{
        IBV_ACCESS_HUGETLB as HUGETLB, IBV_ACCESS_LOCAL_WRITE as LOCAL_WRITE, IBV_ACCESS_MW_BIND as MW_BIND,
        IBV_ACCESS_ON_DEMAND as ON_DEMAND, IBV_ACCESS_REMOTE_ATOMIC as REMOTE_ATOMIC,
        IBV_ACCESS_REMOTE_READ as REMOTE_READ, IBV_ACCESS_REMOTE_WRITE as REMOTE_WRITE,
        IBV_ACCESS_ZERO_BASED as ZERO_BASED,
    };

    /// The optional range (relaxed ordering and others): without effect.
    pub const OPTIONAL: u32 = 0x3ff0_0000;
}

pub mod event {
    pub use crate::sys::{
        IBV_EVENT_CLIENT_REREGISTER as CLIENT_REREGISTER, IBV_EVENT_COMM_EST as COMM_EST, IBV_EVENT_CQ_ERR as CQ_ERR,
        IBV_EVENT_DEVICE_FATAL as DEVICE_FATAL, IBV_EVENT_GID_CHANGE as GID_CHANGE, IBV_EVENT_LID_CHANGE as LID_CHANGE,
        IBV_EVENT_PKEY_CHANGE as PKEY_CHANGE, IBV_EVENT_PORT_ACTIVE as PORT_ACTIVE, IBV_EVENT_PORT_ERR as PORT_ERR,
        IBV_EVENT_QP_ACCESS_ERR as QP_ACCESS_ERR, IBV_EVENT_QP_FATAL as QP_FATAL,
        IBV_EVENT_QP_LAST_WQE_REACHED as QP_LAST_WQE_REACHED, IBV_EVENT_QP_REQ_ERR as QP_REQ_ERR,
        IBV_EVENT_SM_CHANGE as SM_CHANGE, IBV_EVENT_SQ_DRAINED as SQ_DRAINED, IBV_EVENT_SRQ_ERR as SRQ_ERR,
        IBV_EVENT_SRQ_LIMIT_REACHED as SRQ_LIMIT_REACHED,
    };
}

pub mod device_cap {
    pub use crate::sys::{
        IBV_DEVICE_MEM_WINDOW as MEM_WINDOW, IBV_DEVICE_MEM_WINDOW_TYPE_2B as MEM_WINDOW_TYPE_2B,
        IBV_DEVICE_PORT_ACTIVE_EVENT as PORT_ACTIVE_EVENT, IBV_DEVICE_RC_RNR_NAK_GEN as RC_RNR_NAK_GEN,
        IBV_DEVICE_SRQ_RESIZE as SRQ_RESIZE, IBV_DEVICE_SYS_IMAGE_GUID as SYS_IMAGE_GUID, IBV_DEVICE_XRC as XRC,
    };
}

pub mod link_layer {
    pub const INFINIBAND: u8 = 1;
    pub const ETHERNET: u8 = 2;
}

pub mod port_state {
    pub use crate::sys::{
        IBV_PORT_ACTIVE as ACTIVE, IBV_PORT_ARMED as ARMED, IBV_PORT_DOWN as DOWN, IBV_PORT_INIT as INIT,
    };
}

pub mod gid_kind {
    pub const IB: u8 = 0;
    pub const ROCE_V1: u8 = 1;
    pub const ROCE_V2: u8 = 2;
}
