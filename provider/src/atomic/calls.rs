// SPDX-License-Identifier: MIT OR Apache-2.0
//! What C calls for atomic operations (`fi_atomic(3)`). Each function translates its arguments. Descriptors are
//! ignored, because local memory needs no registration (`FI_MR_LOCAL`).
//!
//! Grade: pending. Threads: any. Tests: `hw-tests/libfabric`.

use std::ffi::c_void;

use super::valid::{self, Calls};
use super::{Atomic, Range};
use crate::endpoint::Endpoint;
use crate::endpoint::transfers::{known, piece_of};
use crate::entry::{Result, call, table};
use crate::fid::object;
use crate::host::data::Piece;
use crate::info::MOST_PIECES;
use crate::rma::End;
use crate::sys;

const FLAGS: u64 = sys::FI_COMPLETION
    | sys::FI_MORE
    | sys::FI_FENCE
    | sys::FI_INJECT
    | sys::FI_INJECT_COMPLETE
    | sys::FI_TRANSMIT_COMPLETE
    | sys::FI_DELIVERY_COMPLETE;

/// The functions of an endpoint.
pub(crate) static FUNCTIONS: sys::fi_ops_atomic = table!(fi_ops_atomic {
    write: write, writev: writev, writemsg: writemsg, inject: inject, readwrite: readwrite, readwritev: readwritev,
    readwritemsg: readwritemsg, compwrite: compwrite, compwritev: compwritev, compwritemsg: compwritemsg,
    writevalid: valid::base, readwritevalid: valid::fetch, compwritevalid: valid::compare;
    absent:
});

/// Memory of elements, as C passes it.
#[derive(Clone, Copy)]
enum List {
    One(*const c_void, usize),
    Several(*const sys::fi_ioc, usize),
}

const NOTHING: List = List::Several(std::ptr::null(), 0);

/// The target of a call.
enum Target {
    /// As many elements as the program passes, or gets.
    One(u64, u64),
    Several(*const sys::fi_rma_ioc, usize),
}

/// A call of any kind.
struct Called {
    calls: Calls,
    of: (sys::fi_datatype, sys::fi_op),
    /// Operands, what targets are compared with, and where old values go.
    lists: [List; 3],
    peer: sys::fi_addr_t,
    target: Target,
    context: *mut c_void,
    /// `None`: the endpoint's defaults.
    flags: Option<u64>,
    /// Whether its success is never reported.
    is_silent: bool,
}

/// Returns the pieces of memory of a list.
///
/// # Safety
/// F2, A1: elements of this size, which may be used until the operation has ended.
unsafe fn pieces(list: List, size: usize) -> Result<Vec<Piece>> {
    let piece = |start: *const c_void, count: usize| {
        let length = count.checked_mul(size).ok_or(sys::FI_EINVAL)?;
        // SAFETY: A1.
        unsafe { piece_of(start.cast_mut().cast(), length) }
    };
    match list {
        List::One(start, count) => piece(start, count).map(|piece| vec![piece]),
        List::Several(of, count) if count <= MOST_PIECES && (count == 0 || !of.is_null()) => {
            // SAFETY: F2: there are `count` pieces.
            let all = (0..count).map(|index| unsafe { of.add(index).read() });
            all.map(|of| piece(of.addr, of.count)).collect()
        }
        List::Several(..) => Err(sys::FI_EINVAL),
    }
}

/// Starts an operation.
///
/// # Safety
/// F1, F2, A1.
unsafe fn start(endpoint: *mut sys::fid_ep, of: &Called) -> Result<isize> {
    // SAFETY: F1.
    let endpoint = unsafe { object::<Endpoint>(endpoint) };
    let (datatype, operation) = of.of;
    let size = valid::known(of.calls, datatype, operation)?.size;
    let operands = of.calls.operands(operation);
    // A list that the operation does not use may be anything.
    let list = |index: usize, is_used: bool| if is_used { of.lists[index] } else { NOTHING };
    let lists = [list(0, operands > 0), list(1, operands > 1), list(2, of.calls.returns_values())];
    // SAFETY: F2, A1.
    let [operands, compared, results] =
        unsafe { [pieces(lists[0], size)?, pieces(lists[1], size)?, pieces(lists[2], size)?] };
    let targets = match of.target {
        Target::One(address, key) => {
            let local = if operands.is_empty() { &results } else { &operands };
            let elements = local.iter().map(|piece| piece.length()).sum::<usize>() / size;
            vec![Range { address, elements, key }]
        }
        Target::Several(ranges, count) if count <= MOST_PIECES && (count == 0 || !ranges.is_null()) => {
            let range = |index| {
                // SAFETY: F2: there are as many ranges.
                let sys::fi_rma_ioc { addr: address, count: elements, key } = unsafe { ranges.add(index).read() };
                Range { address, elements, key }
            };
            (0..count).map(range).collect()
        }
        Target::Several(..) => return Err(sys::FI_EINVAL),
    };
    let flags = of.flags.unwrap_or(endpoint.flags[0]);
    let (shared, mut state) = endpoint.enter()?;
    let is_reported = !of.is_silent && state.reports.is_reported(sys::FI_SEND, flags);
    let end = End { context: of.context.addr(), is_reported };
    let of = Atomic {
        calls: of.calls,
        datatype,
        operation,
        peer: of.peer,
        operands: &operands,
        compared: &compared,
        results: &results,
        targets: &targets,
        end,
        is_injected: flags & sys::FI_INJECT != 0,
        is_fenced: flags & sys::FI_FENCE != 0,
    };
    super::start(&mut state, shared, &of)?;
    Ok(0)
}

/// Starts the operation that a `fi_msg_atomic` describes, with lists for what it does not have.
///
/// # Safety
/// F1, F2, A1.
unsafe fn start_message(
    endpoint: *mut sys::fid_ep,
    calls: Calls,
    message: *const sys::fi_msg_atomic,
    [compared, results]: [List; 2],
    flags: u64,
) -> Result<isize> {
    // SAFETY: F2.
    let of = unsafe { message.as_ref() }.ok_or(sys::FI_EINVAL)?;
    let called = Called {
        calls,
        of: (of.datatype, of.op),
        lists: [List::Several(of.msg_iov, of.iov_count), compared, results],
        peer: of.addr,
        target: Target::Several(of.rma_iov, of.rma_iov_count),
        context: of.context,
        flags: Some(known(flags, FLAGS)?),
        is_silent: false,
    };
    // SAFETY: the caller's promise.
    unsafe { start(endpoint, &called) }
}

/// Makes the functions that have one target. `$lists`: the memory that their own parameters name.
macro_rules! functions {
    ($($name:ident, $what:literal, $calls:ident, ($($parameter:ident: $type:ty),*), $lists:expr;)*) => { $(
        unsafe extern "C" fn $name(
            endpoint: *mut sys::fid_ep,
            $($parameter: $type,)*
            peer: sys::fi_addr_t,
            address: u64,
            key: u64,
            datatype: sys::fi_datatype,
            operation: sys::fi_op,
            context: *mut c_void,
        ) -> isize {
            call($what, || {
                let (target, of) = (Target::One(address, key), (datatype, operation));
                let (calls, lists, flags) = (Calls::$calls, $lists, None);
                let called = Called { calls, of, lists, peer, target, context, flags, is_silent: false };
                // SAFETY: F1, F2, A1.
                unsafe { start(endpoint, &called) }
            })
        }
    )* };
}

type Descriptor = *mut c_void;
type Descriptors = *mut *mut c_void;

functions! {
    write, "fi_atomic", Base, (buffer: *const c_void, count: usize, _of_operands: Descriptor),
        [List::One(buffer, count), NOTHING, NOTHING];
    writev, "fi_atomicv", Base, (list: *const sys::fi_ioc, _of_operands: Descriptors, count: usize),
        [List::Several(list, count), NOTHING, NOTHING];
    readwrite, "fi_fetch_atomic", Fetch,
        (buffer: *const c_void, count: usize, _of_operands: Descriptor, result: *mut c_void, _of_results: Descriptor),
        [List::One(buffer, count), NOTHING, List::One(result, count)];
    readwritev, "fi_fetch_atomicv", Fetch,
        (list: *const sys::fi_ioc, _of_operands: Descriptors, count: usize,
         results: *mut sys::fi_ioc, _of_results: Descriptors, result_count: usize),
        [List::Several(list, count), NOTHING, List::Several(results, result_count)];
    compwrite, "fi_compare_atomic", Compare,
        (buffer: *const c_void, count: usize, _of_operands: Descriptor,
         compare: *const c_void, _of_compared: Descriptor, result: *mut c_void, _of_results: Descriptor),
        [List::One(buffer, count), List::One(compare, count), List::One(result, count)];
    compwritev, "fi_compare_atomicv", Compare,
        (list: *const sys::fi_ioc, _of_operands: Descriptors, count: usize,
         compare: *const sys::fi_ioc, _of_compared: Descriptors, compare_count: usize,
         results: *mut sys::fi_ioc, _of_results: Descriptors, result_count: usize),
        [List::Several(list, count), List::Several(compare, compare_count), List::Several(results, result_count)];
}

/// `fi_inject_atomic`.
unsafe extern "C" fn inject(
    endpoint: *mut sys::fid_ep,
    buffer: *const c_void,
    count: usize,
    peer: sys::fi_addr_t,
    address: u64,
    key: u64,
    datatype: sys::fi_datatype,
    operation: sys::fi_op,
) -> isize {
    call("fi_inject_atomic", || {
        let called = Called {
            calls: Calls::Base,
            of: (datatype, operation),
            lists: [List::One(buffer, count), NOTHING, NOTHING],
            peer,
            target: Target::One(address, key),
            context: std::ptr::null_mut(),
            flags: Some(sys::FI_INJECT),
            is_silent: true,
        };
        // SAFETY: F1, F2, A1.
        unsafe { start(endpoint, &called) }
    })
}

/// `fi_atomicmsg`.
unsafe extern "C" fn writemsg(endpoint: *mut sys::fid_ep, message: *const sys::fi_msg_atomic, flags: u64) -> isize {
    // SAFETY: F1, F2, A1.
    call("fi_atomicmsg", || unsafe { start_message(endpoint, Calls::Base, message, [NOTHING; 2], flags) })
}

/// `fi_fetch_atomicmsg`.
unsafe extern "C" fn readwritemsg(
    endpoint: *mut sys::fid_ep,
    message: *const sys::fi_msg_atomic,
    results: *mut sys::fi_ioc,
    _: Descriptors,
    count: usize,
    flags: u64,
) -> isize {
    let lists = [NOTHING, List::Several(results, count)];
    // SAFETY: F1, F2, A1.
    call("fi_fetch_atomicmsg", || unsafe { start_message(endpoint, Calls::Fetch, message, lists, flags) })
}

/// `fi_compare_atomicmsg`.
unsafe extern "C" fn compwritemsg(
    endpoint: *mut sys::fid_ep,
    message: *const sys::fi_msg_atomic,
    compare: *const sys::fi_ioc,
    _: Descriptors,
    compare_count: usize,
    results: *mut sys::fi_ioc,
    _: Descriptors,
    result_count: usize,
    flags: u64,
) -> isize {
    let lists = [List::Several(compare, compare_count), List::Several(results, result_count)];
    // SAFETY: F1, F2, A1.
    call("fi_compare_atomicmsg", || unsafe { start_message(endpoint, Calls::Compare, message, lists, flags) })
}
