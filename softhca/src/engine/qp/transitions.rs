// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state machine of queue pairs: which transitions exist, and which attributes each needs and allows.
//!
//! Called by: modify. Grade: setup. Thread rule: a table of constants. Source: InfiniBand specification 10.3 and table
//! 91 (modify queue pair), which `ibv_modify_qp(3)` and the kernel's checks follow.

use crate::{
    engine::{
        Errno, Result,
        codes::{
            attr_mask::{
                ACCESS_FLAGS, ALT_PATH, AV, CUR_STATE, DEST_QPN, EN_SQD_ASYNC_NOTIFY, MAX_DEST_RD_ATOMIC,
                MAX_QP_RD_ATOMIC, MIN_RNR_TIMER, PATH_MIG_STATE, PATH_MTU, PKEY_INDEX, PORT, QKEY, RETRY_CNT,
                RNR_RETRY, RQ_PSN, SQ_PSN, STATE, TIMEOUT,
            },
            qp_state::{ERR, INIT, RESET, RTR, RTS, SQD, SQE},
            qp_type::{RC, UC, UD, XRC_RECV, XRC_SEND},
        },
        spec::{attributes::QpAttr, device::PortSpec},
    },
    limits::Limits,
};

/// Attributes that a transition needs, and those it allows besides.
struct Rule {
    from: u32,
    to: u32,
    kind: u32,
    needs: u32,
    allows: u32,
}

const fn rule(from: u32, to: u32, kind: u32, needs: u32, allows: u32) -> Rule {
    Rule { from, to, kind, needs, allows }
}

const RTS_RC: u32 = CUR_STATE | ACCESS_FLAGS | ALT_PATH | PATH_MIG_STATE | MIN_RNR_TIMER;
const RTS_UC: u32 = CUR_STATE | ACCESS_FLAGS | ALT_PATH | PATH_MIG_STATE;
const RTS_UD: u32 = CUR_STATE | QKEY;

const RULES: &[Rule] = &[
    rule(RESET, INIT, RC, PKEY_INDEX | PORT | ACCESS_FLAGS, 0),
    rule(RESET, INIT, UC, PKEY_INDEX | PORT | ACCESS_FLAGS, 0),
    rule(RESET, INIT, UD, PKEY_INDEX | PORT | QKEY, 0),
    rule(INIT, INIT, RC, 0, PKEY_INDEX | PORT | ACCESS_FLAGS),
    rule(INIT, INIT, UC, 0, PKEY_INDEX | PORT | ACCESS_FLAGS),
    rule(INIT, INIT, UD, 0, PKEY_INDEX | PORT | QKEY),
    rule(
        INIT,
        RTR,
        RC,
        AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER,
        ALT_PATH | ACCESS_FLAGS | PKEY_INDEX,
    ),
    rule(INIT, RTR, UC, AV | PATH_MTU | DEST_QPN | RQ_PSN, ALT_PATH | ACCESS_FLAGS | PKEY_INDEX),
    rule(INIT, RTR, UD, 0, PKEY_INDEX | QKEY),
    rule(RTR, RTS, RC, TIMEOUT | RETRY_CNT | RNR_RETRY | SQ_PSN | MAX_QP_RD_ATOMIC, RTS_RC),
    rule(RTR, RTS, UC, SQ_PSN, RTS_UC),
    rule(RTR, RTS, UD, SQ_PSN, RTS_UD),
    rule(RTS, RTS, RC, 0, RTS_RC),
    rule(RTS, RTS, UC, 0, RTS_UC),
    rule(RTS, RTS, UD, 0, RTS_UD),
    rule(RTS, SQD, RC, 0, EN_SQD_ASYNC_NOTIFY),
    rule(RTS, SQD, UC, 0, EN_SQD_ASYNC_NOTIFY),
    rule(RTS, SQD, UD, 0, EN_SQD_ASYNC_NOTIFY),
    rule(SQD, RTS, RC, 0, RTS_RC),
    rule(SQD, RTS, UC, 0, RTS_UC),
    rule(SQD, RTS, UD, 0, RTS_UD),
    rule(
        SQD,
        SQD,
        RC,
        0,
        PORT | AV
            | TIMEOUT
            | RETRY_CNT
            | RNR_RETRY
            | MAX_QP_RD_ATOMIC
            | MAX_DEST_RD_ATOMIC
            | ALT_PATH
            | ACCESS_FLAGS
            | PKEY_INDEX
            | MIN_RNR_TIMER
            | PATH_MIG_STATE,
    ),
    rule(SQD, SQD, UC, 0, AV | ALT_PATH | ACCESS_FLAGS | PKEY_INDEX | PATH_MIG_STATE),
    rule(SQD, SQD, UD, 0, PKEY_INDEX | QKEY),
    rule(RESET, INIT, XRC_SEND, PKEY_INDEX | PORT | ACCESS_FLAGS, 0),
    rule(RESET, INIT, XRC_RECV, PKEY_INDEX | PORT | ACCESS_FLAGS, 0),
    rule(INIT, INIT, XRC_SEND, 0, PKEY_INDEX | PORT | ACCESS_FLAGS),
    rule(INIT, INIT, XRC_RECV, 0, PKEY_INDEX | PORT | ACCESS_FLAGS),
    rule(INIT, RTR, XRC_SEND, AV | PATH_MTU | DEST_QPN | RQ_PSN, ALT_PATH | ACCESS_FLAGS | PKEY_INDEX),
    rule(
        INIT,
        RTR,
        XRC_RECV,
        AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER,
        ALT_PATH | ACCESS_FLAGS | PKEY_INDEX,
    ),
    rule(RTR, RTS, XRC_SEND, TIMEOUT | RETRY_CNT | RNR_RETRY | SQ_PSN | MAX_QP_RD_ATOMIC, RTS_UC),
    rule(RTR, RTS, XRC_RECV, TIMEOUT | SQ_PSN, RTS_RC),
    rule(RTS, RTS, XRC_SEND, 0, RTS_UC),
    rule(RTS, RTS, XRC_RECV, 0, RTS_RC),
    rule(RTS, SQD, XRC_SEND, 0, EN_SQD_ASYNC_NOTIFY),
    rule(RTS, SQD, XRC_RECV, 0, EN_SQD_ASYNC_NOTIFY),
    rule(SQD, RTS, XRC_SEND, 0, RTS_UC),
    rule(SQD, RTS, XRC_RECV, 0, RTS_RC),
    rule(
        SQD,
        SQD,
        XRC_SEND,
        0,
        PORT | AV
            | TIMEOUT
            | RETRY_CNT
            | RNR_RETRY
            | MAX_QP_RD_ATOMIC
            | ALT_PATH
            | ACCESS_FLAGS
            | PKEY_INDEX
            | PATH_MIG_STATE,
    ),
    rule(
        SQD,
        SQD,
        XRC_RECV,
        0,
        PORT | AV
            | TIMEOUT
            | MAX_DEST_RD_ATOMIC
            | ALT_PATH
            | ACCESS_FLAGS
            | PKEY_INDEX
            | MIN_RNR_TIMER
            | PATH_MIG_STATE,
    ),
    rule(SQE, RTS, UC, 0, CUR_STATE | ACCESS_FLAGS),
    rule(SQE, RTS, UD, 0, CUR_STATE | QKEY),
];

/// The state after a modification.
/// # Errors
/// EINVAL: the state machine has no such transition, an attribute is missing or not allowed, or a value is out of
/// range.
pub(super) fn check(
    kind: u32,
    now: u32,
    attr: &QpAttr,
    mask: u32,
    ports: &[PortSpec],
    port: u32,
    limits: &Limits,
) -> Result<u32> {
    const EINVAL: Errno = Errno(libc::EINVAL);
    if mask & CUR_STATE != 0 && attr.cur_qp_state != now {
        return Err(EINVAL);
    }
    let to = if mask & STATE == 0 { now } else { attr.qp_state };
    let given = mask & !(STATE | CUR_STATE);
    if to == RESET || to == ERR {
        return if given == 0 { Ok(to) } else { Err(EINVAL) };
    }
    let rule = RULES.iter().find(|rule| rule.from == now && rule.to == to && rule.kind == kind).ok_or(EINVAL)?;
    if given & rule.needs != rule.needs || given & !(rule.needs | rule.allows) != 0 {
        return Err(EINVAL);
    }
    let has = |bit: u32| mask & bit != 0;
    let port = if has(PORT) { u32::from(attr.port_num) } else { port };
    let spec = ports.get((port as usize).wrapping_sub(1)).ok_or(EINVAL)?;
    let in_range = !(has(PKEY_INDEX) && usize::from(attr.pkey_index) >= spec.pkeys.len().max(1))
        && !(has(PATH_MTU) && (!(1..=5).contains(&attr.path_mtu) || attr.path_mtu > u32::from(spec.mtu)))
        && !(has(TIMEOUT) && attr.timeout > 31)
        && !(has(RETRY_CNT) && attr.retry_cnt > 7)
        && !(has(RNR_RETRY) && attr.rnr_retry > 7)
        && !(has(MIN_RNR_TIMER) && attr.min_rnr_timer > 31)
        && !(has(MAX_QP_RD_ATOMIC) && i32::from(attr.max_rd_atomic) > limits.max_qp_init_rd_atom)
        && !(has(MAX_DEST_RD_ATOMIC) && i32::from(attr.max_dest_rd_atomic) > limits.max_qp_rd_atom)
        && !(has(DEST_QPN) && attr.dest_qp_num > 0xff_ffff);
    if in_range { Ok(to) } else { Err(EINVAL) }
}
