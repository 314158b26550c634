// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of node types, port states, events and statuses (`ibv_event_type_str(3)` and its siblings), equal to those of
//! the real library, because users compare what programs print; and static rates, as multiples of 2.5 Gb/s and in Mb/s
//! (`ibv_rate_to_mult(3)`, `ibv_rate_to_mbps(3)` and their inverses). Grade: setup. Threads: any.

use std::ffi::{CStr, c_char, c_int};

use crate::sys::{
    IBV_RATE_2_5_GBPS, IBV_RATE_5_GBPS, IBV_RATE_10_GBPS, IBV_RATE_14_GBPS, IBV_RATE_20_GBPS, IBV_RATE_25_GBPS,
    IBV_RATE_28_GBPS, IBV_RATE_30_GBPS, IBV_RATE_40_GBPS, IBV_RATE_50_GBPS, IBV_RATE_56_GBPS, IBV_RATE_60_GBPS,
    IBV_RATE_80_GBPS, IBV_RATE_100_GBPS, IBV_RATE_112_GBPS, IBV_RATE_120_GBPS, IBV_RATE_168_GBPS, IBV_RATE_200_GBPS,
    IBV_RATE_300_GBPS, IBV_RATE_400_GBPS, IBV_RATE_600_GBPS, IBV_RATE_800_GBPS, IBV_RATE_1200_GBPS, IBV_RATE_MAX,
    ibv_event_type, ibv_node_type, ibv_port_state, ibv_rate, ibv_wc_status, ibv_wr_opcode,
};

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

const PORT_STATES: &[&CStr] = &[c"no state change (NOP)", c"down", c"init", c"armed", c"active", c"active defer"];

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

pub(crate) extern "C" fn ibv_node_type_str(node_type: ibv_node_type) -> *const c_char {
    name(NODE_TYPES, (node_type as usize).wrapping_sub(1))
}

pub(crate) extern "C" fn ibv_port_state_str(port_state: ibv_port_state) -> *const c_char {
    name(PORT_STATES, port_state as usize)
}

pub(crate) extern "C" fn ibv_event_type_str(event: ibv_event_type) -> *const c_char {
    name(EVENTS, event as usize)
}

pub(crate) extern "C" fn ibv_wc_status_str(status: ibv_wc_status) -> *const c_char {
    name(STATUSES, status as usize)
}

/// Drivers of rdma-core 56 call it for their own log. They find no device, so they log nothing.
pub(crate) extern "C" fn ibv_wr_opcode_str(_opcode: ibv_wr_opcode) -> *const c_char {
    c"unknown".as_ptr()
}

/// A rate, its multiple of 2.5 Gb/s by the man page (-1: no whole multiple), and its Mb/s on the wire before encoding.
const RATES: &[(ibv_rate, c_int, c_int)] = &[
    (IBV_RATE_2_5_GBPS, 1, 2_500),
    (IBV_RATE_5_GBPS, 2, 5_000),
    (IBV_RATE_10_GBPS, 4, 10_000),
    (IBV_RATE_20_GBPS, 8, 20_000),
    (IBV_RATE_30_GBPS, 12, 30_000),
    (IBV_RATE_40_GBPS, 16, 40_000),
    (IBV_RATE_60_GBPS, 24, 60_000),
    (IBV_RATE_80_GBPS, 32, 80_000),
    (IBV_RATE_120_GBPS, 48, 120_000),
    (IBV_RATE_14_GBPS, -1, 14_062),
    (IBV_RATE_56_GBPS, -1, 56_250),
    (IBV_RATE_112_GBPS, -1, 112_500),
    (IBV_RATE_168_GBPS, -1, 168_750),
    (IBV_RATE_25_GBPS, -1, 25_781),
    (IBV_RATE_100_GBPS, -1, 103_125),
    (IBV_RATE_200_GBPS, -1, 206_250),
    (IBV_RATE_300_GBPS, -1, 309_375),
    (IBV_RATE_28_GBPS, 11, 28_125),
    (IBV_RATE_50_GBPS, 20, 53_125),
    (IBV_RATE_400_GBPS, 160, 425_000),
    (IBV_RATE_600_GBPS, 240, 637_500),
    (IBV_RATE_800_GBPS, 320, 850_000),
    (IBV_RATE_1200_GBPS, 480, 1_275_000),
];

pub(crate) extern "C" fn ibv_rate_to_mult(rate: ibv_rate) -> c_int {
    RATES.iter().find(|row| row.0 == rate).map_or(-1, |row| row.1)
}

pub(crate) extern "C" fn mult_to_ibv_rate(mult: c_int) -> ibv_rate {
    RATES.iter().find(|row| row.1 == mult && mult > 0).map_or(IBV_RATE_MAX, |row| row.0)
}

pub(crate) extern "C" fn ibv_rate_to_mbps(rate: ibv_rate) -> c_int {
    RATES.iter().find(|row| row.0 == rate).map_or(-1, |row| row.2)
}

pub(crate) extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> ibv_rate {
    RATES.iter().find(|row| row.2 == mbps).map_or(IBV_RATE_MAX, |row| row.0)
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

    #[test]
    fn a_rate_survives_the_way_to_a_speed_and_back() {
        for &(rate, mult, mbps) in RATES {
            assert_eq!(mbps_to_ibv_rate(ibv_rate_to_mbps(rate)), rate);
            assert_eq!(ibv_rate_to_mbps(rate), mbps);
            if mult > 0 {
                assert_eq!(mult_to_ibv_rate(mult), rate);
            }
        }
        assert_eq!(mult_to_ibv_rate(-1), IBV_RATE_MAX);
        assert_eq!(ibv_rate_to_mult(IBV_RATE_14_GBPS), -1);
    }
}
