// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of node types, port states, events and completion statuses, as `ibv_event_type_str(3)` and its siblings give
//! them: programs print them, and their users compare what they see with what a real adapter's library prints.
//! Grade: setup. Threads: any; the strings are static.

use std::ffi::{CStr, c_char};

use crate::sys::{ibv_event_type, ibv_node_type, ibv_port_state, ibv_wc_status, ibv_wr_opcode};

/// By `ibv_node_type`, from 1.
const NODE_TYPES: &[&CStr] = &[
    c"InfiniBand channel adapter",
    c"InfiniBand switch",
    c"InfiniBand router",
    c"iWARP NIC",
    c"usNIC",
    c"usNIC UDP",
    c"unspecified",
];

/// By `ibv_port_state`.
const PORT_STATES: &[&CStr] = &[c"no state change (NOP)", c"down", c"init", c"armed", c"active", c"active defer"];

/// By `ibv_event_type`.
const EVENTS: &[&CStr] = &[
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID table change",
    c"WQ fatal",
];

/// By `ibv_wc_status`.
const STATUSES: &[&CStr] = &[
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory management operation error",
    c"bad response error",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation error",
    c"remote invalid RD request",
    c"aborted error",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"TM error",
    c"TM software rendezvous",
];

fn name(names: &[&'static CStr], index: usize) -> *const c_char {
    names.get(index).copied().unwrap_or(c"unknown").as_ptr()
}

/// `ibv_node_type_str(3)`.
pub(crate) extern "C" fn ibv_node_type_str(node_type: ibv_node_type) -> *const c_char {
    name(NODE_TYPES, (node_type as usize).wrapping_sub(1))
}

/// `ibv_port_state_str(3)`.
pub(crate) extern "C" fn ibv_port_state_str(port_state: ibv_port_state) -> *const c_char {
    name(PORT_STATES, port_state as usize)
}

/// `ibv_event_type_str(3)`.
pub(crate) extern "C" fn ibv_event_type_str(event: ibv_event_type) -> *const c_char {
    name(EVENTS, event as usize)
}

/// `ibv_wc_status_str`.
pub(crate) extern "C" fn ibv_wc_status_str(status: ibv_wc_status) -> *const c_char {
    name(STATUSES, status as usize)
}

/// `ibv_wr_opcode_str`, which drivers of rdma-core 56 call for their own log. They find no device, and so log nothing.
pub(crate) extern "C" fn ibv_wr_opcode_str(_opcode: ibv_wr_opcode) -> *const c_char {
    c"unknown".as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{
        IBV_EVENT_WQ_FATAL, IBV_NODE_CA, IBV_NODE_UNSPECIFIED, IBV_PORT_ACTIVE_DEFER, IBV_WC_TM_RNDV_INCOMPLETE,
    };

    fn text(name: *const c_char) -> &'static str {
        // SAFETY: the functions under test return static C strings.
        unsafe { CStr::from_ptr(name) }.to_str().unwrap()
    }

    #[test]
    fn the_first_and_the_last_of_each_kind_have_their_names_and_the_next_is_unknown() {
        assert_eq!(text(ibv_node_type_str(IBV_NODE_CA)), "InfiniBand channel adapter");
        assert_eq!(text(ibv_node_type_str(IBV_NODE_UNSPECIFIED)), "unspecified");
        assert_eq!(text(ibv_node_type_str(0)), "unknown");
        assert_eq!(text(ibv_port_state_str(IBV_PORT_ACTIVE_DEFER)), "active defer");
        assert_eq!(text(ibv_event_type_str(IBV_EVENT_WQ_FATAL)), "WQ fatal");
        assert_eq!(text(ibv_wc_status_str(IBV_WC_TM_RNDV_INCOMPLETE)), "TM software rendezvous");
        assert_eq!(text(ibv_wc_status_str(IBV_WC_TM_RNDV_INCOMPLETE + 1)), "unknown");
    }
}
