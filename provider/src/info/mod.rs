// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the provider offers (`fi_getinfo(3)`), and whether that is what a program asks for.
//!
//! [`OFFERED`] and the other constants are the one place that says what works. [`check`] compares hints with them;
//! `calls.rs` has the function that libfabric calls, and `list.rs` makes the answer. Grade: setup, but called several
//! times per process, so nothing is opened twice. Threads: any. Tests: below, and `calls.rs`.

mod calls;
mod list;

use std::ffi::CStr;

use crate::{log, sys};

pub(crate) use calls::getinfo;

/// Capabilities that a program has to ask for (`fi_getinfo(3)`, "primary capabilities").
const PRIMARY: u64 = sys::FI_MSG | sys::FI_TAGGED | DIRECTIONS;

/// Which way data go; without one, both.
const DIRECTIONS: u64 = sys::FI_SEND | sys::FI_RECV;

/// All capabilities. Each is a line, which is added when it works.
const OFFERED: u64 = sys::FI_MSG
    | sys::FI_TAGGED
    | sys::FI_SEND
    | sys::FI_RECV
    | sys::FI_MULTI_RECV
    | sys::FI_DIRECTED_RECV
    | sys::FI_SOURCE
    | DOMAIN;

/// Capabilities of a domain.
const DOMAIN: u64 = sys::FI_LOCAL_COMM | sys::FI_REMOTE_COMM;

/// Capabilities that concern receives alone.
const OF_RECEIVES: u64 = sys::FI_RECV | sys::FI_MULTI_RECV | sys::FI_DIRECTED_RECV | sys::FI_SOURCE;

/// Flags that may be defaults of sends.
const SEND_FLAGS: u64 = sys::FI_COMPLETION
    | sys::FI_INJECT
    | sys::FI_INJECT_COMPLETE
    | sys::FI_TRANSMIT_COMPLETE
    | sys::FI_DELIVERY_COMPLETE;

/// Flags that may be defaults of receives.
const RECEIVE_FLAGS: u64 = sys::FI_COMPLETION | sys::FI_MULTI_RECV;

/// Messages to a peer match in the order in which they are sent. All other orders are of operations that are not there
/// yet, so an answer has those that are asked for.
const ORDER: u64 = sys::FI_ORDER_SAS;

/// Longest message, bytes.
const LONGEST: usize = 1 << 40;

/// Longest injected message, bytes.
const LONGEST_INJECTED: usize = 4096;

/// Number of operations in each direction. Queues grow, so it bounds nothing.
const DEPTH: usize = 1024;

/// Most pieces of a message.
pub(crate) const MOST_PIECES: usize = 8;

/// Bytes of remote CQ data.
const CQ_DATA_SIZE: usize = 8;

/// A large number of objects: nothing bounds them.
const MANY: usize = 1 << 16;

/// `fi_ep_attr.protocol`: ibex's own.
const PROTOCOL: u32 = sys::PROVIDER_SPECIFIC | 0x1be;

/// `fi_info.addr_format`: ibex's own.
const ADDRESS_FORMAT: u32 = sys::PROVIDER_SPECIFIC | 0x1be;

/// The name of the fabric.
const FABRIC: &CStr = c"ibex";

/// What a program asks for: its hints, with the attributes that it has given.
pub(crate) struct Asked<'call> {
    pub(crate) info: &'call sys::fi_info,
    pub(crate) tx: Option<&'call sys::fi_tx_attr>,
    pub(crate) rx: Option<&'call sys::fi_rx_attr>,
    ep: Option<&'call sys::fi_ep_attr>,
    domain: Option<&'call sys::fi_domain_attr>,
    /// Names of the fabric and of the domain.
    names: [Option<&'call CStr>; 2],
}

impl Asked<'_> {
    /// Reads hints; `None` for a null pointer.
    ///
    /// # Safety
    /// F2: an info of the program's or of libfabric's, or null.
    pub(crate) unsafe fn of(info: *const sys::fi_info) -> Option<Self> {
        // SAFETY: F2: attributes are null or of their type, and names are null or C strings.
        unsafe {
            let info = info.as_ref()?;
            let (domain, fabric) = (info.domain_attr.as_ref(), info.fabric_attr.as_ref());
            let name = |name: *mut std::ffi::c_char| (!name.is_null()).then(|| CStr::from_ptr(name));
            let names = [fabric.and_then(|fabric| name(fabric.name)), domain.and_then(|domain| name(domain.name))];
            let (tx, rx, ep) = (info.tx_attr.as_ref(), info.rx_attr.as_ref(), info.ep_attr.as_ref());
            Some(Asked { info, tx, rx, ep, domain, names })
        }
    }
}

/// Prints why a program does not get what it asks for. Returns the error number.
pub(crate) fn refused(why: &str) -> u32 {
    log::refused(sys::FI_LOG_CORE, why);
    sys::FI_ENODATA
}

/// Checks that all flags are among those that are there.
fn subset(what: &str, asked: u64, offered: u64) -> Result<(), String> {
    match asked & !offered {
        0 => Ok(()),
        missing => Err(format!("{what}: {missing:#x} of the asked {asked:#x} are not offered")),
    }
}

fn at_most(what: &str, asked: usize, most: usize) -> Result<(), String> {
    if asked <= most { Ok(()) } else { Err(format!("{what}: {asked} is more than {most}")) }
}

/// Returns an error that says which hint cannot be satisfied, if there is one. What is asked fastest comes first.
pub(crate) fn check(asked: &Asked<'_>) -> Result<(), String> {
    if let Some(ep) = asked.ep {
        if !matches!(ep.type_, sys::FI_EP_UNSPEC | sys::FI_EP_RDM) {
            return Err(format!("endpoints are FI_EP_RDM, not of type {}", ep.type_));
        }
        if ep.protocol != sys::FI_PROTO_UNSPEC && ep.protocol != PROTOCOL {
            return Err(format!("protocol {:#x} is another provider's", ep.protocol));
        }
        at_most("max_msg_size", ep.max_msg_size, LONGEST)?;
        at_most("tx_ctx_cnt", ep.tx_ctx_cnt, 1)?;
        at_most("rx_ctx_cnt", ep.rx_ctx_cnt, 1)?;
        at_most("auth_key_size", ep.auth_key_size, 0)?;
    }
    subset("capabilities", asked.info.caps, OFFERED)?;
    if !matches!(asked.info.addr_format, sys::FI_FORMAT_UNSPEC | ADDRESS_FORMAT) {
        return Err(format!("addresses of format {:#x} are another provider's", asked.info.addr_format));
    }
    if let Some(tx) = asked.tx {
        subset("capabilities of sends", tx.caps, OFFERED)?;
        subset("op_flags of sends", tx.op_flags, SEND_FLAGS)?;
        subset("order of completions of sends", tx.comp_order, 0)?;
        at_most("inject_size", tx.inject_size, LONGEST_INJECTED)?;
        at_most("size of sends", tx.size, DEPTH)?;
        at_most("iov_limit of sends", tx.iov_limit, MOST_PIECES)?;
        at_most("rma_iov_limit", tx.rma_iov_limit, 0)?;
    }
    if let Some(rx) = asked.rx {
        subset("capabilities of receives", rx.caps, OFFERED)?;
        subset("op_flags of receives", rx.op_flags, RECEIVE_FLAGS)?;
        subset("order of completions of receives", rx.comp_order, 0)?;
        at_most("size of receives", rx.size, DEPTH)?;
        at_most("iov_limit of receives", rx.iov_limit, MOST_PIECES)?;
    }
    if let Some(domain) = asked.domain {
        subset("capabilities of the domain", domain.caps, DOMAIN)?;
        if [sys::data_progress(domain), domain.control_progress].contains(&sys::FI_PROGRESS_AUTO) {
            return Err("progress is FI_PROGRESS_MANUAL".to_owned());
        }
        if domain.av_type > sys::FI_AV_TABLE {
            return Err(format!("there are no address vectors of type {}", domain.av_type));
        }
        at_most("cq_data_size", domain.cq_data_size, CQ_DATA_SIZE)?;
        at_most("auth_key_size of the domain", domain.auth_key_size, 0)?;
    }
    match asked.names[0] {
        Some(name) if name != FABRIC => Err(format!("the fabric is named {FABRIC:?}, not {name:?}")),
        _ => Ok(()),
    }
}

/// Returns the capabilities of an answer: those that are asked for, and the secondary ones. A program that does not ask
/// for `FI_DIRECTED_RECV` may pass anything as the source of a receive.
fn capabilities(asked: u64) -> u64 {
    if asked & PRIMARY == 0 {
        return OFFERED;
    }
    let directions = if asked & DIRECTIONS == 0 { DIRECTIONS } else { asked & DIRECTIONS };
    let of_receives = if directions & sys::FI_RECV == 0 { OF_RECEIVES } else { 0 };
    let kinds = PRIMARY & !DIRECTIONS;
    let kinds = if asked & kinds == 0 { kinds } else { asked & kinds };
    let directed = sys::FI_DIRECTED_RECV & !asked;
    OFFERED & !PRIMARY & !of_receives & !directed | kinds | directions
}
