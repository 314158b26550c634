// SPDX-License-Identifier: MIT OR Apache-2.0
//! What C calls to send and to receive (`fi_tagged(3)`, `fi_msg(3)`), and the tables of the other data transfers.
//!
//! Each function translates its arguments, for both kinds; the endpoint does the rest. Grade: hot. Threads:
//! any. Tests: `hw-tests`.

use std::ffi::c_void;

use ibex::libfabric::{DELIVERED, Kind, Message, SEARCH, Wanted};
use ibex::messenger::host::Data as _;

use super::Endpoint;
use crate::entry::{Result, call, table};
use crate::fid::object;
use crate::host::data::{Data, Piece};
use crate::info::{LONGEST_INJECTED, MOST_PIECES};
use crate::{rma, sys};

const SEND_FLAGS: u64 = sys::FI_REMOTE_CQ_DATA
    | sys::FI_COMPLETION
    | sys::FI_MORE
    | sys::FI_INJECT
    | sys::FI_INJECT_COMPLETE
    | sys::FI_TRANSMIT_COMPLETE
    | sys::FI_FENCE
    | DELIVERED;

const RECEIVE_FLAGS: u64 = sys::FI_COMPLETION | sys::FI_MORE | sys::FI_MULTI_RECV | sys::FI_TRANSMIT_COMPLETE | SEARCH;

/// Returns the pieces of memory of a call.
///
/// # Safety
/// F2, A1: `count` elements, each with memory that may be used until the operation has ended.
pub(crate) unsafe fn list(of: *const sys::iovec, count: usize) -> Result<Vec<Piece>> {
    if count > MOST_PIECES || (of.is_null() && count > 0) {
        return Err(sys::FI_EINVAL);
    }
    let all = (0..count).map(|index| {
        // SAFETY: F2: there are `count` elements; A1 for the memory.
        unsafe {
            let piece = of.add(index).read();
            piece_of(piece.iov_base.cast(), piece.iov_len)
        }
    });
    all.collect()
}

/// Returns the pieces of memory of a message.
///
/// # Safety
/// F2, A1: as [`list`].
unsafe fn pieces(of: *const sys::iovec, count: usize) -> Result<Data> {
    // SAFETY: F2, A1.
    unsafe { list(of, count) }.map(|pieces| Data::of(&pieces))
}

/// # Safety
/// A1.
#[inline]
pub(crate) unsafe fn piece_of(start: *mut u8, length: usize) -> Result<Piece> {
    if start.is_null() && length > 0 {
        return Err(sys::FI_EINVAL);
    }
    // SAFETY: A1.
    Ok(unsafe { Piece::new(start, length) })
}

/// Returns one piece of memory.
///
/// # Safety
/// A1.
#[inline]
unsafe fn piece(buffer: *const c_void, length: usize) -> Result<Data> {
    // SAFETY: A1.
    unsafe { piece_of(buffer.cast_mut().cast(), length) }.map(Data::Piece)
}

/// Sends one piece of memory with the endpoint's default flags.
///
/// # Safety
/// A1.
#[inline(always)]
unsafe fn send_piece(
    endpoint: &Endpoint,
    (kind, context): (Kind, *mut c_void),
    (to, tag, data): (sys::fi_addr_t, u64, Option<u64>),
    (start, length): (*const c_void, usize),
) -> Result<isize> {
    // SAFETY: A1.
    let piece = unsafe { Piece::new(start.cast_mut().cast(), length) };
    let mut is_sent = false;
    if !start.is_null()
        && let Ok((shared, mut state)) = endpoint.enter()
    {
        is_sent = state.is_sent_plainly(shared, (kind, context.addr()), Message { to, tag, data }, piece.span());
    }
    if is_sent {
        return Ok(0);
    }
    // SAFETY: A1.
    let piece = unsafe { self::piece(start, length)? };
    send(endpoint, (kind, context), Message { to, tag, data }, piece, None)
}

/// Starts a send with the flags of the call, or those of the endpoint.
#[inline(never)]
fn send(
    endpoint: &Endpoint,
    (kind, context): (Kind, *mut c_void),
    message: Message,
    data: Data,
    flags: Option<u64>,
) -> Result<isize> {
    let flags = flags.unwrap_or(endpoint.flags[0]);
    if flags & sys::FI_INJECT != 0 {
        can_be_injected(&data)?;
    }
    let (shared, mut state) = endpoint.enter()?;
    state.send_with(shared, (kind, context.addr()), message, data, flags)?;
    Ok(0)
}

/// Sends one piece of memory, which is free at once, and reports nothing.
///
/// # Safety
/// A1.
#[inline(always)]
unsafe fn inject_piece(
    endpoint: &Endpoint,
    kind: Kind,
    (to, tag, data): (sys::fi_addr_t, u64, Option<u64>),
    (start, length): (*const c_void, usize),
) -> Result<isize> {
    // SAFETY: A1.
    let piece = unsafe { Piece::new(start.cast_mut().cast(), length) };
    let mut is_sent = false;
    // The messages of a barrier have no data, and often no address.
    if (!start.is_null() || length == 0)
        && let Ok((shared, mut state)) = endpoint.enter()
    {
        is_sent = state.is_injected_plainly(shared, kind, Message { to, tag, data }, piece.span());
    }
    if is_sent {
        return Ok(0);
    }
    // SAFETY: A1.
    let piece = unsafe { self::piece(start, length)? };
    inject(endpoint, kind, Message { to, tag, data }, piece)
}

/// Starts a send that reports nothing, and whose memory is free at once.
#[inline(never)]
fn inject(endpoint: &Endpoint, kind: Kind, message: Message, data: Data) -> Result<isize> {
    can_be_injected(&data)?;
    let (shared, mut state) = endpoint.enter()?;
    state.inject(shared, kind, message, data)?;
    Ok(0)
}

#[inline]
fn can_be_injected(data: &Data) -> Result<()> {
    if data.length() > LONGEST_INJECTED { Err(sys::FI_EMSGSIZE) } else { Ok(()) }
}

/// Returns the source that a receive names.
#[inline(always)]
fn source(endpoint: &Endpoint, from: sys::fi_addr_t) -> sys::fi_addr_t {
    if endpoint.is_directed { from } else { sys::FI_ADDR_UNSPEC }
}

/// Posts a receive of one piece of memory with the endpoint's default flags.
///
/// # Safety
/// A1.
#[inline(always)]
unsafe fn receive_piece(
    endpoint: &Endpoint,
    (kind, context): (Kind, *mut c_void),
    (from, tag, ignore): (sys::fi_addr_t, u64, u64),
    (start, length): (*mut c_void, usize),
) -> Result<isize> {
    // SAFETY: A1.
    let piece = unsafe { Piece::new(start.cast(), length) };
    let mut is_posted = false;
    if !start.is_null()
        && let Ok((shared, mut state)) = endpoint.enter()
    {
        let wanted = Wanted { from: source(endpoint, from), tag, ignore };
        is_posted = state.is_received_plainly(shared, (kind, context.addr()), wanted, piece);
    }
    if is_posted {
        return Ok(0);
    }
    // SAFETY: A1.
    let piece = unsafe { self::piece(start, length)? };
    receive(endpoint, (kind, context), Wanted { from, tag, ignore }, piece, None)
}

/// Posts a receive, or searches, with the flags of the call, or those of the endpoint.
#[inline(never)]
fn receive(
    endpoint: &Endpoint,
    (kind, context): (Kind, *mut c_void),
    wanted: Wanted,
    data: Data,
    flags: Option<u64>,
) -> Result<isize> {
    // Buffers for several messages are for untagged ones.
    let other = if kind == Kind::Tagged { sys::FI_MULTI_RECV } else { 0 };
    let flags = flags.unwrap_or(endpoint.flags[1] & !other);
    let wanted = Wanted { from: source(endpoint, wanted.from), ..wanted };
    let (shared, mut state) = endpoint.enter()?;
    let asked = (flags, endpoint.min_multi_recv());
    state.receive_with(shared, (kind, context.addr()), wanted, data, asked)?;
    Ok(0)
}

/// Checks that a call has only flags that it may have.
pub(crate) fn known(flags: u64, known: u64) -> Result<u64> {
    if flags & !known == 0 { Ok(flags) } else { Err(sys::FI_EBADFLAGS) }
}

/// Makes the functions of one kind of messages. `tag` and `ignore` are the parameters that only tagged ones have.
macro_rules! functions {
    ($module:ident, $kind:expr, $message:ident, ($($tag:ident)?), ($($ignore:ident)?), $of_tag:expr, $ignored:expr) => {
        mod $module {
            #[allow(clippy::wildcard_imports, reason = "the functions of this file, once for each kind")]
            use super::*;

            #[allow(unused_variables, reason = "of untagged messages")]
            fn wanted(from: sys::fi_addr_t, of: &sys::$message) -> Wanted {
                Wanted { from, tag: $of_tag(of), ignore: $ignored(of) }
            }

            pub(super) unsafe extern "C" fn recv(
                endpoint: *mut sys::fid_ep,
                buffer: *mut c_void,
                length: usize,
                _: *mut c_void,
                from: sys::fi_addr_t,
                $($tag: u64,)?
                $($ignore: u64,)?
                context: *mut c_void,
            ) -> isize {
                call("fi_recv", || {
                    let wanted = (from, 0 $(+ $tag)?, 0 $(+ $ignore)?);
                    // SAFETY: F1, A1.
                    unsafe { receive_piece(object(endpoint), ($kind, context), wanted, (buffer, length)) }
                })
            }

            pub(super) unsafe extern "C" fn recvv(
                endpoint: *mut sys::fid_ep,
                iov: *const sys::iovec,
                _: *mut *mut c_void,
                count: usize,
                from: sys::fi_addr_t,
                $($tag: u64,)?
                $($ignore: u64,)?
                context: *mut c_void,
            ) -> isize {
                call("fi_recvv", || {
                    let wanted = Wanted { from, tag: 0 $(+ $tag)?, ignore: 0 $(+ $ignore)? };
                    // SAFETY: F1, F2, A1.
                    let (endpoint, data) = unsafe { (object::<Endpoint>(endpoint), pieces(iov, count)?) };
                    receive(endpoint, ($kind, context), wanted, data, None)
                })
            }

            pub(super) unsafe extern "C" fn recvmsg(
                endpoint: *mut sys::fid_ep,
                message: *const sys::$message,
                flags: u64,
            ) -> isize {
                call("fi_recvmsg", || {
                    // SAFETY: F1, F2.
                    let (endpoint, of) = unsafe { (object::<Endpoint>(endpoint), message.as_ref()) };
                    let (of, flags) = (of.ok_or(sys::FI_EINVAL)?, known(flags, RECEIVE_FLAGS)?);
                    // SAFETY: F2, A1.
                    let data = unsafe { pieces(of.msg_iov, of.iov_count)? };
                    receive(endpoint, ($kind, of.context), wanted(of.addr, of), data, Some(flags))
                })
            }

            pub(super) unsafe extern "C" fn send_(
                endpoint: *mut sys::fid_ep,
                buffer: *const c_void,
                length: usize,
                _: *mut c_void,
                to: sys::fi_addr_t,
                $($tag: u64,)?
                context: *mut c_void,
            ) -> isize {
                call("fi_send", || {
                    let message = (to, 0 $(+ $tag)?, None);
                    // SAFETY: F1, A1.
                    unsafe { send_piece(object(endpoint), ($kind, context), message, (buffer, length)) }
                })
            }

            pub(super) unsafe extern "C" fn sendv(
                endpoint: *mut sys::fid_ep,
                iov: *const sys::iovec,
                _: *mut *mut c_void,
                count: usize,
                to: sys::fi_addr_t,
                $($tag: u64,)?
                context: *mut c_void,
            ) -> isize {
                call("fi_sendv", || {
                    let message = Message { to, tag: 0 $(+ $tag)?, data: None };
                    // SAFETY: F1, F2, A1.
                    let (endpoint, data) = unsafe { (object::<Endpoint>(endpoint), pieces(iov, count)?) };
                    send(endpoint, ($kind, context), message, data, None)
                })
            }

            pub(super) unsafe extern "C" fn sendmsg(
                endpoint: *mut sys::fid_ep,
                message: *const sys::$message,
                flags: u64,
            ) -> isize {
                call("fi_sendmsg", || {
                    // SAFETY: F1, F2.
                    let (endpoint, of) = unsafe { (object::<Endpoint>(endpoint), message.as_ref()) };
                    let (of, flags) = (of.ok_or(sys::FI_EINVAL)?, known(flags, SEND_FLAGS)?);
                    let remote = (flags & sys::FI_REMOTE_CQ_DATA != 0).then_some(of.data);
                    let message = Message { to: of.addr, tag: wanted(of.addr, of).tag, data: remote };
                    // SAFETY: F2, A1.
                    let data = unsafe { pieces(of.msg_iov, of.iov_count)? };
                    if flags & sys::FI_FENCE != 0 {
                        let (shared, mut state) = endpoint.enter()?;
                        rma::fence(&mut state, shared, of.addr)?;
                    }
                    send(endpoint, ($kind, of.context), message, data, Some(flags))
                })
            }

            pub(super) unsafe extern "C" fn inject_(
                endpoint: *mut sys::fid_ep,
                buffer: *const c_void,
                length: usize,
                to: sys::fi_addr_t,
                $($tag: u64,)?
            ) -> isize {
                call("fi_inject", || {
                    let message = (to, 0 $(+ $tag)?, None);
                    // SAFETY: F1, A1.
                    unsafe { inject_piece(object(endpoint), $kind, message, (buffer, length)) }
                })
            }

            pub(super) unsafe extern "C" fn senddata(
                endpoint: *mut sys::fid_ep,
                buffer: *const c_void,
                length: usize,
                _: *mut c_void,
                remote: u64,
                to: sys::fi_addr_t,
                $($tag: u64,)?
                context: *mut c_void,
            ) -> isize {
                call("fi_senddata", || {
                    let message = (to, 0 $(+ $tag)?, Some(remote));
                    // SAFETY: F1, A1.
                    unsafe { send_piece(object(endpoint), ($kind, context), message, (buffer, length)) }
                })
            }

            pub(super) unsafe extern "C" fn injectdata(
                endpoint: *mut sys::fid_ep,
                buffer: *const c_void,
                length: usize,
                remote: u64,
                to: sys::fi_addr_t,
                $($tag: u64,)?
            ) -> isize {
                call("fi_injectdata", || {
                    let message = (to, 0 $(+ $tag)?, Some(remote));
                    // SAFETY: F1, A1.
                    unsafe { inject_piece(object(endpoint), $kind, message, (buffer, length)) }
                })
            }
        }
    };
}

functions!(
    tagged,
    Kind::Tagged,
    fi_msg_tagged,
    (tag),
    (ignore),
    |of: &sys::fi_msg_tagged| of.tag,
    |of: &sys::fi_msg_tagged| of.ignore
);
functions!(untagged, Kind::Message, fi_msg, (), (), |_: &sys::fi_msg| 0, |_: &sys::fi_msg| 0);

/// `fi_msg(3)`.
pub(super) static MESSAGES: sys::fi_ops_msg = table!(fi_ops_msg {
    recv: untagged::recv, recvv: untagged::recvv, recvmsg: untagged::recvmsg, send: untagged::send_,
    sendv: untagged::sendv, sendmsg: untagged::sendmsg, inject: untagged::inject_, senddata: untagged::senddata,
    injectdata: untagged::injectdata;
    absent:
});

/// `fi_tagged(3)`.
pub(super) static TAGGED: sys::fi_ops_tagged = table!(fi_ops_tagged {
    recv: tagged::recv, recvv: tagged::recvv, recvmsg: tagged::recvmsg, send: tagged::send_, sendv: tagged::sendv,
    sendmsg: tagged::sendmsg, inject: tagged::inject_, senddata: tagged::senddata, injectdata: tagged::injectdata;
    absent:
});

/// `fi_collective(3)`.
pub(super) static COLLECTIVES: sys::fi_ops_collective = table!(fi_ops_collective {
    absent: barrier,
    broadcast,
    alltoall,
    allreduce,
    allgather,
    reduce_scatter,
    reduce,
    scatter,
    gather,
    msg,
    barrier2,
});
