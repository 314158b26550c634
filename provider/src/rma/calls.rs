// SPDX-License-Identifier: MIT OR Apache-2.0
//! What C calls for one-sided operations (`fi_rma(3)`). Each function translates its arguments. Descriptors are
//! ignored, because local memory needs no registration (`FI_MR_LOCAL`).
//!
//! Grade: pending. Threads: any. Tests: `hw-tests/libfabric`.

use std::ffi::c_void;

use super::segments::Remote;
use super::{Direction, End, Transfer, transfer};
use crate::endpoint::Endpoint;
use crate::endpoint::transfers::{known, list, piece_of};
use crate::entry::{Result, call, table};
use crate::fid::object;
use crate::host::data::Piece;
use crate::info::MOST_PIECES;
use crate::sys;

const READ_FLAGS: u64 = sys::FI_COMPLETION
    | sys::FI_MORE
    | sys::FI_FENCE
    | sys::FI_INJECT_COMPLETE
    | sys::FI_TRANSMIT_COMPLETE
    | sys::FI_DELIVERY_COMPLETE;

const WRITE_FLAGS: u64 = READ_FLAGS | sys::FI_INJECT | sys::FI_REMOTE_CQ_DATA;

/// The functions of an endpoint.
pub(crate) static FUNCTIONS: sys::fi_ops_rma = table!(fi_ops_rma {
    read: read, readv: readv, readmsg: readmsg, write: write, writev: writev, writemsg: writemsg, inject: inject,
    writedata: writedata, injectdata: injectdata;
    absent:
});

/// Both sides of an operation.
struct Sides<'a> {
    peer: sys::fi_addr_t,
    local: &'a [Piece],
    remote: &'a [Remote],
}

/// Starts an operation. `flags`: those of the call, or `None` for the endpoint's defaults.
fn start(
    endpoint: &Endpoint,
    direction: Direction,
    Sides { peer, local, remote }: Sides<'_>,
    (data, context, flags): (Option<u64>, *mut c_void, Option<u64>),
) -> Result<isize> {
    let flags = flags.unwrap_or(endpoint.flags[0]);
    let (shared, mut state) = endpoint.enter()?;
    let is_reported = state.reports.is_reported(sys::FI_SEND, flags);
    let end = End { context: context.addr(), is_reported };
    let is_injected = direction == Direction::Write && flags & sys::FI_INJECT != 0;
    let is_fenced = flags & sys::FI_FENCE != 0;
    transfer(&mut state, shared, &Transfer { direction, peer, local, remote, data, end, is_injected, is_fenced })?;
    Ok(0)
}

/// Starts a write that reports nothing, and whose memory is free at once.
fn start_injected(endpoint: &Endpoint, Sides { peer, local, remote }: Sides<'_>, data: Option<u64>) -> Result<isize> {
    let (shared, mut state) = endpoint.enter()?;
    let (direction, end) = (Direction::Write, End { context: 0, is_reported: false });
    transfer(
        &mut state,
        shared,
        &Transfer { direction, peer, local, remote, data, end, is_injected: true, is_fenced: false },
    )?;
    Ok(0)
}

/// Returns one piece of memory.
///
/// # Safety
/// A1.
unsafe fn piece(buffer: *const c_void, length: usize) -> Result<[Piece; 1]> {
    // SAFETY: A1.
    unsafe { piece_of(buffer.cast_mut().cast(), length) }.map(|piece| [piece])
}

/// Starts an operation with one piece of remote memory, as long as all local ones.
fn start_with_one(
    endpoint: &Endpoint,
    direction: Direction,
    local: &[Piece],
    (peer, address, key): (sys::fi_addr_t, u64, u64),
    (data, context): (Option<u64>, *mut c_void),
) -> Result<isize> {
    let length = local.iter().map(|piece| piece.length()).sum();
    let sides = Sides { peer, local, remote: &[Remote { address, length, key }] };
    start(endpoint, direction, sides, (data, context, None))
}

/// Starts the operation that a `fi_msg_rma` describes.
///
/// # Safety
/// F1, F2, A1.
unsafe fn start_message(
    endpoint: *mut sys::fid_ep,
    direction: Direction,
    message: *const sys::fi_msg_rma,
    flags: u64,
) -> Result<isize> {
    // SAFETY: F1, F2.
    let (endpoint, of) = unsafe { (object::<Endpoint>(endpoint), message.as_ref()) };
    let of = of.ok_or(sys::FI_EINVAL)?;
    if of.rma_iov_count > MOST_PIECES || (of.rma_iov.is_null() && of.rma_iov_count > 0) {
        return Err(sys::FI_EINVAL);
    }
    // SAFETY: F2, A1.
    let local = unsafe { list(of.msg_iov, of.iov_count)? };
    let remote = (0..of.rma_iov_count).map(|index| {
        // SAFETY: F2: there are as many elements.
        let sys::fi_rma_iov { addr: address, len: length, key } = unsafe { of.rma_iov.add(index).read() };
        Remote { address, length, key }
    });
    let remote: Vec<_> = remote.collect();
    let data = (flags & sys::FI_REMOTE_CQ_DATA != 0).then_some(of.data);
    let sides = Sides { peer: of.addr, local: &local, remote: &remote };
    start(endpoint, direction, sides, (data, of.context, Some(flags)))
}

/// `fi_read`.
unsafe extern "C" fn read(
    endpoint: *mut sys::fid_ep,
    buffer: *mut c_void,
    length: usize,
    _: *mut c_void,
    peer: sys::fi_addr_t,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    call("fi_read", || {
        // SAFETY: F1, A1.
        let (endpoint, local) = unsafe { (object::<Endpoint>(endpoint), piece(buffer, length)?) };
        start_with_one(endpoint, Direction::Read, &local, (peer, address, key), (None, context))
    })
}

/// `fi_readv`.
unsafe extern "C" fn readv(
    endpoint: *mut sys::fid_ep,
    iov: *const sys::iovec,
    _: *mut *mut c_void,
    count: usize,
    peer: sys::fi_addr_t,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    call("fi_readv", || {
        // SAFETY: F1, F2, A1.
        let (endpoint, local) = unsafe { (object::<Endpoint>(endpoint), list(iov, count)?) };
        start_with_one(endpoint, Direction::Read, &local, (peer, address, key), (None, context))
    })
}

/// `fi_readmsg`.
unsafe extern "C" fn readmsg(endpoint: *mut sys::fid_ep, message: *const sys::fi_msg_rma, flags: u64) -> isize {
    // SAFETY: F1, F2, A1.
    call("fi_readmsg", || unsafe { start_message(endpoint, Direction::Read, message, known(flags, READ_FLAGS)?) })
}

/// `fi_write`.
unsafe extern "C" fn write(
    endpoint: *mut sys::fid_ep,
    buffer: *const c_void,
    length: usize,
    _: *mut c_void,
    peer: sys::fi_addr_t,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    call("fi_write", || {
        // SAFETY: F1, A1.
        let (endpoint, local) = unsafe { (object::<Endpoint>(endpoint), piece(buffer, length)?) };
        start_with_one(endpoint, Direction::Write, &local, (peer, address, key), (None, context))
    })
}

/// `fi_writev`.
unsafe extern "C" fn writev(
    endpoint: *mut sys::fid_ep,
    iov: *const sys::iovec,
    _: *mut *mut c_void,
    count: usize,
    peer: sys::fi_addr_t,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    call("fi_writev", || {
        // SAFETY: F1, F2, A1.
        let (endpoint, local) = unsafe { (object::<Endpoint>(endpoint), list(iov, count)?) };
        start_with_one(endpoint, Direction::Write, &local, (peer, address, key), (None, context))
    })
}

/// `fi_writemsg`.
unsafe extern "C" fn writemsg(endpoint: *mut sys::fid_ep, message: *const sys::fi_msg_rma, flags: u64) -> isize {
    // SAFETY: F1, F2, A1.
    call("fi_writemsg", || unsafe { start_message(endpoint, Direction::Write, message, known(flags, WRITE_FLAGS)?) })
}

/// `fi_writedata`.
unsafe extern "C" fn writedata(
    endpoint: *mut sys::fid_ep,
    buffer: *const c_void,
    length: usize,
    _: *mut c_void,
    data: u64,
    peer: sys::fi_addr_t,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    call("fi_writedata", || {
        // SAFETY: F1, A1.
        let (endpoint, local) = unsafe { (object::<Endpoint>(endpoint), piece(buffer, length)?) };
        start_with_one(endpoint, Direction::Write, &local, (peer, address, key), (Some(data), context))
    })
}

/// `fi_inject_write`.
unsafe extern "C" fn inject(
    endpoint: *mut sys::fid_ep,
    buffer: *const c_void,
    length: usize,
    peer: sys::fi_addr_t,
    address: u64,
    key: u64,
) -> isize {
    call("fi_inject_write", || {
        // SAFETY: F1, A1.
        let (endpoint, local) = unsafe { (object::<Endpoint>(endpoint), piece(buffer, length)?) };
        start_injected(endpoint, Sides { peer, local: &local, remote: &[Remote { address, length, key }] }, None)
    })
}

/// `fi_inject_writedata`.
unsafe extern "C" fn injectdata(
    endpoint: *mut sys::fid_ep,
    buffer: *const c_void,
    length: usize,
    data: u64,
    peer: sys::fi_addr_t,
    address: u64,
    key: u64,
) -> isize {
    call("fi_inject_writedata", || {
        // SAFETY: F1, A1.
        let (endpoint, local) = unsafe { (object::<Endpoint>(endpoint), piece(buffer, length)?) };
        start_injected(endpoint, Sides { peer, local: &local, remote: &[Remote { address, length, key }] }, Some(data))
    })
}
