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

/// Kinds of operations.
const KINDS: u64 = MESSAGES | ONE_SIDED;

/// Kinds of messages.
const MESSAGES: u64 = sys::FI_MSG | sys::FI_TAGGED;

/// Kinds of one-sided operations.
const ONE_SIDED: u64 = sys::FI_RMA | sys::FI_ATOMIC;

/// Which way the data of messages go; without one, both.
const MESSAGE_DIRECTIONS: u64 = sys::FI_SEND | sys::FI_RECV;

/// Which one-sided operations an endpoint starts, and which reach its memory; without one, all.
const RMA_DIRECTIONS: u64 = sys::FI_READ | sys::FI_WRITE | sys::FI_REMOTE_READ | sys::FI_REMOTE_WRITE;

/// Capabilities to start operations.
const STARTED: u64 = sys::FI_SEND | sys::FI_READ | sys::FI_WRITE;

/// What an endpoint has only if the program asks for it, or for nothing at all.
const PRIMARY: u64 = KINDS | MESSAGE_DIRECTIONS | RMA_DIRECTIONS | sys::FI_DIRECTED_RECV;

/// What an endpoint has only if the program asks for it, because it costs each operation a message.
const COSTLY: u64 = sys::FI_RMA_EVENT;

/// All capabilities. Each is a line, which is added when it works.
const OFFERED: u64 = sys::FI_MSG
    | sys::FI_TAGGED
    | sys::FI_SEND
    | sys::FI_RECV
    | sys::FI_RMA
    | sys::FI_ATOMIC
    | sys::FI_READ
    | sys::FI_WRITE
    | sys::FI_REMOTE_READ
    | sys::FI_REMOTE_WRITE
    | sys::FI_MULTI_RECV
    | sys::FI_DIRECTED_RECV
    | sys::FI_SOURCE
    | sys::FI_FENCE
    | sys::FI_RMA_EVENT
    | DOMAIN;

/// Capabilities of a domain.
const DOMAIN: u64 = sys::FI_LOCAL_COMM | sys::FI_REMOTE_COMM;

/// Capabilities that concern receives, and access by peers, alone.
const OF_RECEIVES: u64 = sys::FI_RECV
    | sys::FI_REMOTE_READ
    | sys::FI_REMOTE_WRITE
    | sys::FI_MULTI_RECV
    | sys::FI_DIRECTED_RECV
    | sys::FI_SOURCE
    | sys::FI_RMA_EVENT;

/// Capabilities that concern what an endpoint starts alone.
const OF_SENDS: u64 = sys::FI_SEND | sys::FI_READ | sys::FI_WRITE | sys::FI_FENCE;

/// Flags that may be defaults of sends.
const SEND_FLAGS: u64 = sys::FI_COMPLETION
    | sys::FI_INJECT
    | sys::FI_INJECT_COMPLETE
    | sys::FI_TRANSMIT_COMPLETE
    | sys::FI_DELIVERY_COMPLETE;

/// Flags that may be defaults of receives.
const RECEIVE_FLAGS: u64 = sys::FI_COMPLETION | sys::FI_MULTI_RECV;

/// Messages to a peer match in the order in which they are sent. Writes to a peer arrive in order, and reads see
/// earlier writes. The peer does atomic operations in order, after earlier writes and before later reads and writes.
const ORDER: u64 = sys::FI_ORDER_SAS | ORDER_OF_RMA | ORDER_OF_ATOMICS;

const ORDER_OF_RMA: u64 = sys::FI_ORDER_RAW | sys::FI_ORDER_WAW | sys::FI_ORDER_RMA_RAW | sys::FI_ORDER_RMA_WAW;

const ORDER_OF_ATOMICS: u64 =
    sys::FI_ORDER_ATOMIC_RAR | sys::FI_ORDER_ATOMIC_RAW | sys::FI_ORDER_ATOMIC_WAR | sys::FI_ORDER_ATOMIC_WAW;

/// What a program that uses one-sided operations must do for memory regions: their keys are the adapter's, they are
/// addressed as in their process, and their memory stays mapped (`fi_mr(3)`).
const MR_MODE: i32 = sys::FI_MR_VIRT_ADDR | sys::FI_MR_ALLOCATED | sys::FI_MR_PROV_KEY;

/// Versions before 1.5 have other values of `mr_mode`.
const HAS_MR_BITS: u32 = sys::version(1, 5);

/// Longest message, bytes.
const LONGEST: usize = 1 << 40;

/// Longest injected message, bytes.
pub(crate) const LONGEST_INJECTED: usize = 4096;

/// Number of operations in each direction. Queues grow, so it bounds nothing.
const DEPTH: usize = 1024;

/// Most pieces of a message.
pub(crate) const MOST_PIECES: usize = 8;

/// Bytes of remote CQ data.
const CQ_DATA_SIZE: usize = 8;

/// `FI_SHARED_CONTEXT`, as `fi_endpoint.h` defines it: `SIZE_MAX`.
const SHARED_CONTEXT: usize = usize::MAX;

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
        if [ep.tx_ctx_cnt, ep.rx_ctx_cnt].contains(&SHARED_CONTEXT) {
            return Err("contexts that endpoints share (FI_SHARED_CONTEXT) are not offered".to_owned());
        }
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
        at_most("rma_iov_limit", tx.rma_iov_limit, MOST_PIECES)?;
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

/// Returns how a program of this version of libfabric registers memory for one-sided operations (`mr_mode`). Otherwise
/// says why it cannot have them.
fn registration(version: u32, asked: Option<&Asked<'_>>) -> Result<i32, String> {
    let order = |of: Option<u64>| subset("order of operations", of.unwrap_or(0), ORDER);
    order(asked.and_then(|asked| asked.tx).map(|tx| tx.msg_order))?;
    order(asked.and_then(|asked| asked.rx).map(|rx| rx.msg_order))?;
    // A program that says which regions count accesses saves the others a message.
    let counts = asked.is_some_and(|asked| asked.info.caps & sys::FI_RMA_EVENT != 0);
    let counted = if counts { sys::FI_MR_RMA_EVENT } else { 0 };
    match asked.and_then(|asked| asked.domain).map(|domain| domain.mr_mode) {
        Some(sys::MR_BASIC) => Ok(sys::MR_BASIC),
        None | Some(0) if version < HAS_MR_BITS => Ok(sys::MR_BASIC),
        None => Ok(MR_MODE),
        Some(mode) if version >= HAS_MR_BITS && mode & MR_MODE == MR_MODE => Ok(MR_MODE | mode & counted),
        Some(mode) => Err(format!("mr_mode: {mode:#x} has not all of {MR_MODE:#x}, which one-sided operations need")),
    }
}

/// Returns the capabilities of an answer: those that are asked for, and the secondary ones (`fi_getinfo(3)`). A program
/// that does not ask for `FI_DIRECTED_RECV` may pass anything as the source of a receive. One that asks for nothing
/// gets everything; one-sided operations only if it `registers` memory as they need it.
fn capabilities(asked: u64, registers: bool) -> u64 {
    if asked == 0 {
        let lacking = if registers { COSTLY } else { COSTLY | ONE_SIDED | RMA_DIRECTIONS };
        return OFFERED & !lacking;
    }
    let directions = |kind: u64, directions: u64| match asked & directions {
        _ if kind == 0 => 0,
        0 => directions,
        asked => asked,
    };
    let kinds = asked & KINDS;
    let enabled =
        asked | directions(kinds & MESSAGES, MESSAGE_DIRECTIONS) | directions(kinds & ONE_SIDED, RMA_DIRECTIONS);
    let of_receives = if enabled & sys::FI_RECV == 0 { OF_RECEIVES } else { 0 };
    enabled | OFFERED & !PRIMARY & !COSTLY & !of_receives
}

/// Returns the queues that an endpoint with these capabilities needs: `FI_SEND` for what it starts, `FI_RECV` for what
/// it receives.
pub(crate) fn reported(asked: u64) -> u64 {
    let enabled = capabilities(asked, true);
    enabled & sys::FI_RECV | if enabled & STARTED == 0 { 0 } else { sys::FI_SEND }
}
