// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hands messages to the port of one link: inside the work request, from a send buffer, or to wait in the engine, in
//! order. Which link that is, and what is done where it fails, is for those above to say (`routing`, `moving`).
//!
//! What waits is a copy, so that nothing of the user's is held up, but its request is finished only when the adapter
//! has it: who waits for a send may not come back to MPI for long. A peer that is lost takes nothing; that is noted
//! ([`State::has_failed`]), and the job ended once nothing is entered. Grade: hot. Threads: who has entered the PML,
//! but for [`at_once`] and [`inline`].

use std::ptr::NonNull;
use std::sync::Arc;

use engine::protocol::header::MAX_SIZE;
use engine::protocol::reading::Part;
use engine::transport::{Port, Sent, Token, WhenDiverted};
use ibex_ffi::verbs::{InlineSpan, LocalSpan, RemoteSpan};

use super::buffer::{Content, SendBuffer};
use super::datatype::{self, Data, Extent};
use super::instance::{Pml, Rail, State, pml};
use super::link::Link;
use super::request::Request;
use super::{rails, token};
use crate::runtime::messages;
use crate::runtime::token::Tag;
use crate::runtime::variables::now;

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transmitted {
    /// The adapter has it.
    Posted,
    /// It waits; its request, where it has one, will be finished.
    Waits,
    /// Its peer is lost, or its data cannot be packed.
    Failed,
}

/// Sends header and data of one piece inside the work request, or not at all.
///
/// # Safety
/// The data may be read for the call.
#[inline(always)]
pub(crate) unsafe fn inline(port: &mut Port, link: Link, header: &[u8], extent: Extent) -> bool {
    // SAFETY: P2: the data may be read for the call; a span of no bytes is not read.
    let payload = unsafe { InlineSpan::new(extent.start, extent.length) };
    port.send_inline(link.to(), Tag::PML.0, header.into(), payload) == Ok(Sent::Posted)
}

/// [`inline`], where it need not be a part of its caller.
///
/// # Safety
/// The data may be read for the call.
#[inline(never)]
pub(crate) unsafe fn inline_apart(port: &mut Port, link: Link, header: &[u8], extent: Extent) -> bool {
    // SAFETY: the data may be read for the call.
    unsafe { inline(port, link, header, extent) }
}

/// Sends header and data of one piece inside the work request, or not at all, by a port that is one of several.
///
/// # Safety
/// The data may be read for the call.
#[inline(never)]
pub(crate) unsafe fn at_once(link: Link, header: &[u8], extent: Extent) -> bool {
    if !link.is_of_several() {
        return false;
    }
    let Some(rail) = pml().and_then(|pml| pml.rails().get(link.rail())) else { return false };
    let Some(mut port) = rail.enter() else { return false };
    if !rail.sent(&mut port, link.to()).is_home {
        return false;
    }
    // SAFETY: the data may be read for the call.
    if !unsafe { inline(&mut port, link, header, extent) } {
        return false;
    }
    rails::note(rail, &mut port, link, true);
    true
}

/// The longest data that is sent at once to a peer now, bytes.
pub(crate) fn eager_limit(pml: &Pml, link: Link) -> Option<usize> {
    if link.as_local().is_some() {
        return pml.shared_memory().map(|shared| shared.eager_limit);
    }
    Some(now::eager_limit(pml.rails().get(link.rail())?.copy_size) - MAX_SIZE)
}

/// Sends a message that is only a header by this link. Failed: the port does not take it any more.
pub(crate) fn control_by(pml: &Pml, link: Link, header: &[u8]) -> Transmitted {
    let Some(rail) = pml.rails().get(link.rail()) else { return Transmitted::Failed };
    let Some(mut port) = rail.enter() else { return Transmitted::Failed };
    // SAFETY: no bytes.
    let transmitted = if unsafe { inline_apart(&mut port, link, header, Extent::EMPTY) } {
        Transmitted::Posted
    } else {
        queue(&mut port, link, (Arc::from(header), header.len() as u32), Token(0))
    };
    note(pml, rail, &mut port, link, transmitted);
    transmitted
}

/// Lets a message in ordinary memory wait in the engine: the first so many of its bytes.
pub(crate) fn queue(port: &mut Port, link: Link, bytes: (Arc<[u8]>, u32), token: Token) -> Transmitted {
    match port.queue_bytes(link.to(), Tag::PML.0, bytes, token, WhenDiverted::Wait) {
        Ok(()) => Transmitted::Waits,
        Err(_) => Transmitted::Failed,
    }
}

/// Posts a read of a part of a request's message, which is at `from` in the sender's memory. False: the port does not
/// take it.
///
/// # Safety
/// R3: the part is within what is registered at `to` and under `lkey`, until the read is done; R2, P2: it is the
/// adapter's till then.
pub(crate) unsafe fn read(
    port: &mut Port,
    link: Link,
    Part { offset, length }: Part,
    (to, lkey): (*mut u8, u32),
    from: RemoteSpan,
    request: NonNull<Request>,
) -> bool {
    let addr = to.wrapping_add(offset as usize).expose_provenance() as u64;
    // SAFETY: R3: the part is within what is registered at `to` under `lkey` until the read is done; R2, P2: the
    // adapter's till then.
    let local = unsafe { LocalSpan::new(addr, length, lkey) };
    let remote = RemoteSpan { addr: from.addr.wrapping_add(offset), rkey: from.rkey };
    port.get(link.to(), local, remote, token::read(request)).is_ok()
}

/// Counts a message that was given to a port, where there are several.
pub(crate) fn note(pml: &Pml, rail: &Rail, port: &mut Port, link: Link, transmitted: Transmitted) {
    if pml.has_several() && transmitted != Transmitted::Failed {
        rails::note(rail, port, link, transmitted == Transmitted::Posted);
    }
}

/// Sends header and data, of at most the rail's eager limit together, by this link. `request` is finished when what
/// waits has gone; `None`: nobody hears of it.
///
/// # Safety
/// `extent` is that of the data, which may be read for the call.
pub(crate) unsafe fn message_by(
    pml: &Pml,
    state: &mut State,
    link: Link,
    header: &[u8],
    (data, extent): (&Data, Extent),
    request: Option<NonNull<Request>>,
) -> Transmitted {
    let Some(rail) = pml.rails().get(link.rail()) else { return Transmitted::Failed };
    let Some(mut port) = rail.enter() else { return Transmitted::Failed };
    let is_contiguous = !extent.start.is_null();
    // SAFETY: the data may be read for the call.
    if is_contiguous && unsafe { inline_apart(&mut port, link, header, extent) } {
        note(pml, rail, &mut port, link, Transmitted::Posted);
        return Transmitted::Posted;
    }
    let length = header.len() + extent.length;
    if let Some(buffer) = state.buffers[link.rail()].take(&mut port, length) {
        // SAFETY: P3, R2: the buffer was just taken, so ours alone, of at least that length; the data may be read.
        if !unsafe { fill((*buffer.as_ptr()).start(), header, data, extent) } {
            // SAFETY: P3, R2: just taken from there, and not sent.
            unsafe { state.buffers[link.rail()].give_back(buffer) };
            return cannot_pack(state, extent.length);
        }
        let content = request.map_or(Content::Silent, Content::Message);
        // SAFETY: P3, R2: the buffer is of this port, filled so far, and ours alone.
        let transmitted = unsafe { send(&mut port, link, buffer, length, content) };
        note(pml, rail, &mut port, link, transmitted);
        if transmitted == Transmitted::Failed {
            // SAFETY: P3, R2: refused, so that the adapter has not seen it.
            unsafe { state.buffers[link.rail()].give_back(buffer) };
        }
        return transmitted;
    }
    let mut bytes = vec![0; length];
    // SAFETY: as long as header and data; the data may be read.
    if !unsafe { fill(bytes.as_mut_ptr(), header, data, extent) } {
        return cannot_pack(state, extent.length);
    }
    let token = request.map_or(Token(0), token::sent);
    let transmitted = queue(&mut port, link, (Arc::from(bytes), length as u32), token);
    note(pml, rail, &mut port, link, transmitted);
    transmitted
}

/// Sends header and data of one piece from a send buffer, or not at all.
///
/// # Safety
/// The data may be read for the call.
#[inline(always)]
pub(crate) unsafe fn copied(state: &mut State, port: &mut Port, link: Link, header: &[u8], extent: Extent) -> bool {
    let length = header.len() + extent.length;
    let buffers = &mut state.buffers[link.rail()];
    let Some(buffer) = buffers.take(port, length) else { return false };
    // SAFETY: P3, R2: the buffer was just taken, so ours alone, of at least that length; the data may be read.
    let b = unsafe {
        let b = &mut *buffer.as_ptr();
        b.start().copy_from_nonoverlapping(header.as_ptr(), header.len());
        b.start().add(header.len()).copy_from_nonoverlapping(extent.start, extent.length);
        b
    };
    b.content = Content::Silent;
    let is_posted =
        port.send(link.to(), Tag::PML.0, &[b.filled(length)], token::buffer(buffer), false) == Ok(Sent::Posted);
    if !is_posted {
        // SAFETY: P3, R2: refused, so that the adapter has not seen it.
        unsafe { buffers.give_back(buffer) };
    }
    is_posted
}

/// Sends the first `length` bytes of a buffer. Posted, its content is silent unless it is a piece.
///
/// # Safety
/// P3, R2: the buffer is of this port, filled so far, and ours alone.
pub(crate) unsafe fn send(
    port: &mut Port,
    link: Link,
    buffer: NonNull<SendBuffer>,
    length: usize,
    content: Content,
) -> Transmitted {
    // SAFETY: P3, R2: the buffer is ours alone.
    let b = unsafe { &mut *buffer.as_ptr() };
    let (spans, tag, token) = ([b.filled(length)], Tag::PML.0, token::buffer(buffer));
    let is_piece = matches!(content, Content::Piece(_));
    // No other thread sees it complete while the port is entered.
    b.content = if is_piece { content } else { Content::Silent };
    match port.send(link.to(), tag, &spans, token, is_piece) {
        Ok(Sent::Posted) => return Transmitted::Posted,
        Ok(Sent::Busy) => {}
        Err(_) => return Transmitted::Failed,
    }
    b.content = content;
    match port.queue_send(link.to(), tag, &spans, token, WhenDiverted::Wait) {
        Ok(()) => Transmitted::Waits,
        Err(_) => Transmitted::Failed,
    }
}

/// Copies header and data.
///
/// # Safety
/// `to` may be written for both together; `extent` is that of the data, which may be read.
unsafe fn fill(to: *mut u8, header: &[u8], data: &Data, extent: Extent) -> bool {
    // SAFETY: `to` may be written for both together; the data may be read.
    unsafe {
        to.copy_from_nonoverlapping(header.as_ptr(), header.len());
        datatype::take(data, extent, to.add(header.len()))
    }
}

/// A peer is lost.
#[cold]
pub(crate) fn failed(state: &mut State) -> Transmitted {
    state.has_failed = true;
    state.has_more = true;
    Transmitted::Failed
}

/// The data of a message cannot be packed.
#[cold]
pub(crate) fn cannot_pack(state: &mut State, length: usize) -> Transmitted {
    failed_for(state, &messages::cannot_pack(length))
}

/// The job is to be ended for a reason that no port knows. It is said here, once: what fails after it follows from it.
#[cold]
pub(crate) fn failed_for(state: &mut State, why: &str) -> Transmitted {
    if !state.has_failed {
        messages::operation_failed(why);
    }
    failed(state)
}
