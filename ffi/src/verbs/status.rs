// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completion statuses and asynchronous events, as integers with names (`enum ibv_wc_status`, `enum ibv_event_type` of
//! `infiniband/verbs.h`; InfiniBand specification, 11.6.2). Used after failures; never hot.

use std::fmt;

/// The status of a work completion (`enum ibv_wc_status`); any value an adapter writes is representable.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Status(pub u32);

impl Status {
    /// The work request succeeded.
    pub const SUCCESS: Status = Status(0);
    /// A message did not fit into its receive.
    pub const LOCAL_LENGTH: Status = Status(1);
    /// The requester's own memory: wrong local key, bounds or rights.
    pub const LOCAL_PROTECTION: Status = Status(4);
    /// The queue pair was in the error state: nothing was sent.
    pub const FLUSHED: Status = Status(5);
    /// The peer refused the request: its queue pair does not permit the operation, or the message is too long.
    pub const REMOTE_INVALID_REQUEST: Status = Status(9);
    /// The peer's adapter refused the access: wrong remote key, bounds or rights.
    pub const REMOTE_ACCESS: Status = Status(10);
    /// The peer did not acknowledge within the permitted tries.
    pub const RETRY_EXCEEDED: Status = Status(12);
    /// The peer had no receive posted within the permitted tries.
    pub const RNR_RETRY_EXCEEDED: Status = Status(13);

    /// Its name in the header, without the prefix.
    pub fn name(self) -> &'static str {
        const NAMES: &str = "SUCCESS LOC_LEN_ERR LOC_QP_OP_ERR LOC_EEC_OP_ERR LOC_PROT_ERR WR_FLUSH_ERR MW_BIND_ERR \
            BAD_RESP_ERR LOC_ACCESS_ERR REM_INV_REQ_ERR REM_ACCESS_ERR REM_OP_ERR RETRY_EXC_ERR \
            RNR_RETRY_EXC_ERR LOC_RDD_VIOL_ERR REM_INV_RD_REQ_ERR REM_ABORT_ERR INV_EECN_ERR INV_EEC_STATE_ERR \
            FATAL_ERR RESP_TIMEOUT_ERR GENERAL_ERR TM_ERR TM_RNDV_INCOMPLETE";
        NAMES.split(' ').nth(self.0 as usize).unwrap_or("unknown")
    }

    /// Its meaning for the user, and the remedy.
    pub fn advice(self) -> &'static str {
        match self {
            Status::RETRY_EXCEEDED => {
                "the peer no longer answers: its process ended, its host or a link on the way is down, or the path loses \
                 packets; see whether the peer died first, then the fabric (ibstat, perfquery), then raise \
                 btl_ibex_link_outage"
            }
            Status::RNR_RETRY_EXCEEDED => {
                "the adapter gave up waiting for a receive buffer of the peer, although ibex asks it to wait for ever; raise \
                 btl_ibex_receive_queue_depth"
            }
            Status::REMOTE_ACCESS => {
                "the peer's adapter refused the access; the memory was no longer registered there, or the address is outside it"
            }
            Status::FLUSHED => {
                "the adapter had given the connection up before: the peer no longer answers or has refused it; see whether the \
                 peer died first, then the adapter's error counters (ports/*/hw_counters in its folder of /sys/class/infiniband)"
            }
            _ => "see the verbs manual page ibv_poll_cq(3) for this status",
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IBV_WC_{} ({})", self.name(), self.0)
    }
}

/// The name of an asynchronous event (`enum ibv_event_type`), without its prefix.
pub fn event_name(kind: u32) -> &'static str {
    const NAMES: &str = "CQ_ERR QP_FATAL QP_REQ_ERR QP_ACCESS_ERR COMM_EST SQ_DRAINED PATH_MIG PATH_MIG_ERR DEVICE_FATAL \
        PORT_ACTIVE PORT_ERR LID_CHANGE PKEY_CHANGE SM_CHANGE SRQ_ERR SRQ_LIMIT_REACHED QP_LAST_WQE_REACHED \
        CLIENT_REREGISTER GID_CHANGE WQ_FATAL";
    NAMES.split(' ').nth(kind as usize).unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::super::sys;
    use super::*;

    #[test]
    fn the_names_stand_at_the_numbers_of_the_header() {
        assert_eq!(Status(sys::ibv_wc_status::IBV_WC_RETRY_EXC_ERR).name(), "RETRY_EXC_ERR");
        assert_eq!(Status(sys::ibv_wc_status::IBV_WC_TM_RNDV_INCOMPLETE).name(), "TM_RNDV_INCOMPLETE");
        assert_eq!(event_name(sys::IBV_EVENT_PORT_ERR), "PORT_ERR");
        assert_eq!(event_name(sys::IBV_EVENT_WQ_FATAL), "WQ_FATAL");
        // A status that no header knows is shown with its number.
        assert_eq!(Status(77).to_string(), "IBV_WC_unknown (77)");
    }
}
