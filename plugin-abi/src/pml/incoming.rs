// SPDX-License-Identifier: MIT OR Apache-2.0
//! A message of the PML's has come: what it is, and whom it concerns.
//!
//! Called by `progress` for each, in the order in which the port reports them. What is too short for its kind, or of a kind
//! that there is not, is left. Grade: hot for whole messages. Threads: who has entered the PML, and no port.

use engine::matching::Envelope;
use engine::protocol::header::{AnnouncedHeader, MatchHeader, SynchronousHeader, WantedHeader};
use engine::protocol::kind::Kind;
use engine::protocol::transfers::TransferId;
use engine::transport::Immediate;

use super::arrived::{Arrived, Body, SHORT};
use super::instance::{Pml, State};
use super::link::Link;
use super::{accept, pieces, reading};
use crate::runtime::tag::Tag;

/// A message as the port reports it.
#[derive(Clone, Copy)]
pub(crate) struct Incoming {
    /// Where its bytes are, until the slot is released.
    pub(crate) start: *const u8,
    pub(crate) length: usize,
    /// Which rail it came by, who says to have sent it, and the queue pair it came by.
    pub(crate) rail: usize,
    pub(crate) immediate: Immediate,
    pub(crate) qp_num: u32,
}

impl Incoming {
    /// The header, and the bytes behind it; `None` where it is too short.
    ///
    /// # Safety
    /// The bytes may be read.
    #[inline(always)]
    unsafe fn split<const N: usize>(&self) -> Option<([u8; N], Incoming)> {
        if self.length < N {
            return None;
        }
        // SAFETY: this function's rule; bytes of any alignment.
        let header = unsafe { self.start.cast::<[u8; N]>().read() };
        Some((header, Incoming { start: self.start.wrapping_add(N), length: self.length - N, ..*self }))
    }

    /// Whom to answer; `None` where it did not come by the queue pair of whom it names.
    fn sender(&self, pml: &Pml) -> Option<Link> {
        let port = pml.rails().get(self.rail)?.enter()?;
        Some(Link::new(self.rail, port.sender(self.immediate, self.qp_num)?))
    }

    /// A copy of the bytes.
    ///
    /// # Safety
    /// They may be read.
    unsafe fn copy(&self) -> Box<[u8]> {
        // SAFETY: this function's rule; a slot that the adapter has filled, and does not write to before it is released.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }.into()
    }
}

/// Deals with a message while the port is still entered, if it is a whole one that a receive waits for.
///
/// # Safety
/// Its bytes may be read.
#[inline(always)]
pub(crate) unsafe fn is_taken(state: &mut State, arrived: engine::transport::Arrived) -> bool {
    let length = arrived.len as usize;
    if arrived.immediate.tag() != Tag::of_pml(Kind::EAGER).0 || length < MatchHeader::LENGTH {
        return false;
    }
    let start: *const u8 = std::ptr::with_exposed_provenance(arrived.addr as usize);
    // SAFETY: this function's rule; bytes of any alignment.
    let header = unsafe { start.cast::<[u8; MatchHeader::LENGTH]>().read() };
    let header = MatchHeader::decode(&header);
    let Some(communicator) = state.contexts.get(header.context) else { return false };
    let envelope = Envelope::new(header.source as i32, header.tag);
    // SAFETY: in the table, so alive; the PML is entered.
    let Some(request) = (unsafe { communicator.as_ref().take_posted(envelope) }) else { return false };
    let (start, length) = (start.wrapping_add(MatchHeader::LENGTH), length - MatchHeader::LENGTH);
    // SAFETY: posted, so alive, and matched; this function's rule.
    unsafe { accept::whole(state, request, envelope, start, length) };
    true
}

/// Deals with a message.
///
/// # Safety
/// Its bytes may be read.
#[inline(always)]
pub(crate) unsafe fn message(pml: &Pml, state: &mut State, kind: Kind, incoming: Incoming) {
    if kind == Kind::EAGER {
        // SAFETY: this function's rule.
        unsafe { eager(state, incoming) };
    } else {
        // SAFETY: this function's rule.
        let _ = unsafe { other(pml, state, kind, incoming) };
    }
}

/// # Safety
/// As for [`message`].
#[inline(always)]
unsafe fn eager(state: &mut State, incoming: Incoming) {
    // SAFETY: this function's rule.
    let Some((header, bytes)) = (unsafe { incoming.split() }) else { return };
    let header = MatchHeader::decode(&header);
    let envelope = Envelope::new(header.source as i32, header.tag);
    if let Some(communicator) = state.contexts.get(header.context) {
        // SAFETY: in the table, so alive; the PML is entered.
        if let Some(request) = unsafe { communicator.as_ref().take_posted(envelope) } {
            // SAFETY: posted, so alive, and matched; this function's rule.
            return unsafe { accept::whole(state, request, envelope, bytes.start, bytes.length) };
        }
    }
    // SAFETY: this function's rule.
    unsafe { keep(state, header.context, envelope, bytes) };
}

/// Keeps a message that no receive is there for.
///
/// # Safety
/// Its bytes may be read.
#[cold]
#[inline(never)]
unsafe fn keep(state: &mut State, context: u32, envelope: Envelope, incoming: Incoming) {
    let body = if incoming.length <= SHORT {
        let mut bytes = [0; SHORT];
        // SAFETY: this function's rule; there is room for them.
        unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(incoming.start, incoming.length) };
        Body::Short { length: incoming.length as u8, bytes }
    } else {
        // SAFETY: this function's rule.
        Body::Whole { bytes: unsafe { incoming.copy() } }
    };
    let message = Arrived { from: Link::UNKNOWN, body };
    match state.contexts.get(context) {
        // SAFETY: in the table, so alive; the PML is entered.
        Some(communicator) => _ = unsafe { communicator.as_ref().queues() }.insert_unexpected(envelope, message),
        None => state.contexts.keep(context, (envelope, message)),
    }
}

/// Every other kind.
///
/// # Safety
/// As for [`message`].
#[inline(never)]
unsafe fn other(pml: &Pml, state: &mut State, kind: Kind, incoming: Incoming) -> Option<()> {
    match kind {
        Kind::SYNCHRONOUS => {
            // SAFETY: this function's rule.
            let (header, bytes) = unsafe { incoming.split() }?;
            let SynchronousHeader { matched_by, sender } = SynchronousHeader::decode(&header);
            // SAFETY: as above.
            let message = Arrived {
                from: incoming.sender(pml)?,
                body: Body::Synchronous { bytes: unsafe { bytes.copy() }, sender },
            };
            deliver(pml, state, matched_by, message);
        }
        Kind::ANNOUNCED => {
            // SAFETY: this function's rule.
            let (header, _) = unsafe { incoming.split() }?;
            let AnnouncedHeader { matched_by, sender, length, place } = AnnouncedHeader::decode(&header);
            let body = Body::Announced { sender, length, place };
            deliver(pml, state, matched_by, Arrived { from: incoming.sender(pml)?, body });
        }
        Kind::WANTED => {
            // SAFETY: this function's rule.
            let (header, _) = unsafe { incoming.split() }?;
            pieces::wanted(pml, state, WantedHeader::decode(&header));
        }
        Kind::PIECE => {
            // SAFETY: this function's rule.
            let (header, bytes) = unsafe { incoming.split() }?;
            // SAFETY: this function's rule.
            unsafe { pieces::received(state, TransferId::decode(&header), bytes.start, bytes.length) };
        }
        Kind::FINISHED => {
            // SAFETY: this function's rule.
            let (header, _) = unsafe { incoming.split() }?;
            reading::finished(pml, state, TransferId::decode(&header));
        }
        _ => {}
    }
    Some(())
}

/// Gives a message to the receive that it matches, or keeps it.
pub(crate) fn deliver(pml: &Pml, state: &mut State, header: MatchHeader, message: Arrived) {
    let envelope = Envelope::new(header.source as i32, header.tag);
    let Some(communicator) = state.contexts.get(header.context) else {
        return state.contexts.keep(header.context, (envelope, message));
    };
    // SAFETY: in the table, so alive; the PML is entered.
    let communicator = unsafe { communicator.as_ref() };
    // SAFETY: as above.
    match unsafe { communicator.take_posted(envelope) } {
        // SAFETY: posted, so alive, and matched.
        Some(request) => unsafe { accept::unexpected(pml, state, request, envelope, message) },
        // SAFETY: as above.
        None => _ = unsafe { communicator.queues() }.insert_unexpected(envelope, message),
    }
}
