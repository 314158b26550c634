// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of node types, port states, events and statuses (`ibv_event_type_str(3)` and its siblings), equal to those of
//! the real library, because users compare the output of programs; and static rates, as multiples of 2.5 Gb/s and in
//! Mb/s (`ibv_rate_to_mult(3)`, `ibv_rate_to_mbps(3)` and their inverses). Grade: setup. Threads: any.

use std::ffi::{CStr, c_char, c_int};

use crate::sys::{IBV_RATE_MAX, ibv_event_type, ibv_node_type, ibv_port_state, ibv_rate, ibv_wc_status, ibv_wr_opcode};

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

/// By `ibv_rate`, from 2 (2.5 Gb/s): the multiple of 2.5 Gb/s by the man page (-1: no whole multiple), and the Mb/s on
/// the wire before encoding.
const MULTIPLES: [c_int; 23] =
    [1, 4, 12, 2, 8, 16, 24, 32, 48, -1, -1, -1, -1, -1, -1, -1, -1, 11, 20, 160, 240, 320, 480];
const MEGABITS: [c_int; 23] = [
    2_500, 10_000, 30_000, 5_000, 20_000, 40_000, 60_000, 80_000, 120_000, 14_062, 56_250, 112_500, 168_750, 25_781,
    103_125, 206_250, 309_375, 28_125, 53_125, 425_000, 637_500, 850_000, 1_275_000,
];
const FIRST_RATE: ibv_rate = 2;

fn of_rate(table: &[c_int], rate: ibv_rate) -> c_int {
    table.get(rate.wrapping_sub(FIRST_RATE) as usize).copied().unwrap_or(-1)
}

fn rate_of(table: &[c_int], value: c_int) -> ibv_rate {
    let found = table.iter().position(|known| *known == value && value > 0);
    found.map_or(IBV_RATE_MAX, |index| index as ibv_rate + FIRST_RATE)
}

pub(crate) extern "C" fn ibv_rate_to_mult(rate: ibv_rate) -> c_int {
    of_rate(&MULTIPLES, rate)
}

pub(crate) extern "C" fn mult_to_ibv_rate(mult: c_int) -> ibv_rate {
    rate_of(&MULTIPLES, mult)
}

pub(crate) extern "C" fn ibv_rate_to_mbps(rate: ibv_rate) -> c_int {
    of_rate(&MEGABITS, rate)
}

pub(crate) extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> ibv_rate {
    rate_of(&MEGABITS, mbps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{
        IBV_EVENT_WQ_FATAL, IBV_NODE_CA, IBV_NODE_UNSPECIFIED, IBV_PORT_ACTIVE_DEFER, IBV_RATE_2_5_GBPS,
        IBV_RATE_14_GBPS, IBV_RATE_100_GBPS, IBV_RATE_1200_GBPS, IBV_WC_TM_RNDV_INCOMPLETE,
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
    fn the_conversion_of_a_rate_to_a_speed_and_back_returns_the_rate() {
        for rate in IBV_RATE_2_5_GBPS..=IBV_RATE_1200_GBPS {
            let mult = ibv_rate_to_mult(rate);
            assert_eq!(mbps_to_ibv_rate(ibv_rate_to_mbps(rate)), rate);
            assert_eq!(mult_to_ibv_rate(mult), if mult > 0 { rate } else { IBV_RATE_MAX });
        }
        for (rate, mult, mbps) in [
            (IBV_RATE_2_5_GBPS, 1, 2_500),
            (IBV_RATE_14_GBPS, -1, 14_062),
            (IBV_RATE_100_GBPS, -1, 103_125),
            (IBV_RATE_1200_GBPS, 480, 1_275_000),
            (IBV_RATE_1200_GBPS + 1, -1, -1),
            (IBV_RATE_MAX, -1, -1),
        ] {
            assert_eq!((ibv_rate_to_mult(rate), ibv_rate_to_mbps(rate)), (mult, mbps), "rate {rate}");
        }
    }
}
