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
    kinds: &'static [u32],
    needs: u32,
    allows: u32,
}

const fn rule(from: u32, to: u32, kinds: &'static [u32], needs: u32, allows: u32) -> Rule {
    Rule { from, to, kinds, needs, allows }
}

/// Those that are connected.
const CONNECTED: &[u32] = &[RC, UC, XRC_SEND, XRC_RECV];
/// Of these, those that answer and keep count of what they answer; and those that do not.
const ANSWERING: &[u32] = &[RC, XRC_RECV];
const SENDING: &[u32] = &[UC, XRC_SEND];

const HOW_ACCESSED: u32 = PKEY_INDEX | PORT | ACCESS_FLAGS;
const PATH: u32 = AV | PATH_MTU | DEST_QPN | RQ_PSN;
const AT_RTR: u32 = ALT_PATH | ACCESS_FLAGS | PKEY_INDEX;
const RETRIES: u32 = TIMEOUT | RETRY_CNT | RNR_RETRY | MAX_QP_RD_ATOMIC;
const AT_RTS: u32 = CUR_STATE | ACCESS_FLAGS | ALT_PATH | PATH_MIG_STATE;
const AT_SQD: u32 = AV | ALT_PATH | ACCESS_FLAGS | PKEY_INDEX | PATH_MIG_STATE;
const ANSWERS: u32 = MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER;

const RULES: &[Rule] = &[
    rule(RESET, INIT, CONNECTED, HOW_ACCESSED, 0),
    rule(RESET, INIT, &[UD], PKEY_INDEX | PORT | QKEY, 0),
    rule(INIT, INIT, CONNECTED, 0, HOW_ACCESSED),
    rule(INIT, INIT, &[UD], 0, PKEY_INDEX | PORT | QKEY),
    rule(INIT, RTR, ANSWERING, PATH | ANSWERS, AT_RTR),
    rule(INIT, RTR, SENDING, PATH, AT_RTR),
    rule(INIT, RTR, &[UD], 0, PKEY_INDEX | QKEY),
    rule(RTR, RTS, &[RC], RETRIES | SQ_PSN, AT_RTS | MIN_RNR_TIMER),
    rule(RTR, RTS, &[XRC_SEND], RETRIES | SQ_PSN, AT_RTS),
    rule(RTR, RTS, &[XRC_RECV], TIMEOUT | SQ_PSN, AT_RTS | MIN_RNR_TIMER),
    rule(RTR, RTS, &[UC], SQ_PSN, AT_RTS),
    rule(RTR, RTS, &[UD], SQ_PSN, CUR_STATE | QKEY),
    rule(RTS, RTS, ANSWERING, 0, AT_RTS | MIN_RNR_TIMER),
    rule(RTS, RTS, SENDING, 0, AT_RTS),
    rule(RTS, RTS, &[UD], 0, CUR_STATE | QKEY),
    rule(RTS, SQD, CONNECTED, 0, EN_SQD_ASYNC_NOTIFY),
    rule(RTS, SQD, &[UD], 0, EN_SQD_ASYNC_NOTIFY),
    rule(SQD, RTS, ANSWERING, 0, AT_RTS | MIN_RNR_TIMER),
    rule(SQD, RTS, SENDING, 0, AT_RTS),
    rule(SQD, RTS, &[UD], 0, CUR_STATE | QKEY),
    rule(SQD, SQD, &[RC], 0, AT_SQD | PORT | RETRIES | ANSWERS),
    rule(SQD, SQD, &[XRC_SEND], 0, AT_SQD | PORT | RETRIES),
    rule(SQD, SQD, &[XRC_RECV], 0, AT_SQD | PORT | TIMEOUT | ANSWERS),
    rule(SQD, SQD, &[UC], 0, AT_SQD),
    rule(SQD, SQD, &[UD], 0, PKEY_INDEX | QKEY),
    rule(SQE, RTS, &[UC], 0, CUR_STATE | ACCESS_FLAGS),
    rule(SQE, RTS, &[UD], 0, CUR_STATE | QKEY),
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
    let is_it = |rule: &&Rule| rule.from == now && rule.to == to && rule.kinds.contains(&kind);
    let rule = RULES.iter().find(is_it).ok_or(EINVAL)?;
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
