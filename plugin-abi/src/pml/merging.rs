// SPDX-License-Identifier: MIT OR Apache-2.0
//! What comes by several ports: counted, and where a peer has moved to another port, put in order again.
//!
//! The rules are `engine::protocol::stream`'s. Called by `progress` for each message where the process has several
//! ports. Until a peer first moves its messages are only counted, those that a poll takes directly included. Grade: hot
//! for [`may_be_taken`] and [`count`]. Threads: who has entered the PML.

use engine::protocol::header::Header;
use engine::protocol::stream::Merging;
use engine::transport::Immediate;

use super::incoming::{self, Incoming, Sender};
use super::instance::{Pml, State};
use super::link::Link;
use super::rails;
use super::several::{ByRail, Held};

/// Whether messages of this sender are in order as they come.
#[inline]
pub(crate) fn may_be_taken(state: &State, rail: usize, from: Immediate) -> bool {
    state.several.end(rail, from.endpoint()).is_none_or(|end| !end.is_merged)
}

/// A message of a sender that has never moved was dealt with, or is about to be.
#[inline]
pub(crate) fn count(state: &mut State, rail: usize, from: Immediate) {
    let end = state.several.end_mut(Link::new(rail, from.endpoint()));
    end.received = end.received.wrapping_add(1);
}

/// Deals with a message, and with those that waited for it.
///
/// # Safety
/// Its bytes may be read.
#[inline(never)]
pub(crate) unsafe fn message(pml: &Pml, state: &mut State, message: Incoming, by: ByRail) {
    let ByRail { rail, immediate, .. } = by;
    // SAFETY: this function's rule.
    let bytes = unsafe { message.bytes() };
    if let Ok((Header::Moved { segment, count }, _)) = Header::decode(bytes) {
        return moved(pml, state, by, (segment, count));
    }
    if may_be_taken(state, rail, immediate) {
        count(state, rail, immediate);
        // SAFETY: this function's rule.
        return unsafe { incoming::message(pml, state, message) };
    }
    let Some(peer) = state.several.end(rail, immediate.endpoint()).and_then(|end| end.peer()) else { return };
    let Some(merging) = &mut state.several.peers[peer].merging else { return };
    if !merging.arrived(rail) {
        return merging.hold(rail, Held { bytes: bytes.into(), by });
    }
    // SAFETY: this function's rule.
    unsafe { incoming::message(pml, state, message) };
    release(pml, state, peer);
}

/// The sender's messages go by this port from now on.
#[cold]
fn moved(pml: &Pml, state: &mut State, by: ByRail, (segment, count): (u32, u32)) {
    let Some(peer) = by.link(pml).and_then(|from| rails::of(pml, state, from)) else { return };
    if state.several.peers[peer].merging.is_none() {
        let links = state.several.peers[peer].links.clone();
        let mut received: u32 = 0;
        for link in links {
            let end = state.several.end_mut(link);
            received = received.wrapping_add(end.received);
            end.is_merged = true;
        }
        state.several.peers[peer].merging = Some(Merging::new(pml.rails().len(), received));
    }
    if let Some(merging) = &mut state.several.peers[peer].merging {
        merging.moved(by.rail, segment, count);
    }
    release(pml, state, peer);
}

/// Deals with what was held, as far as it is its turn.
fn release(pml: &Pml, state: &mut State, peer: usize) {
    while let Some(held) = state.several.peers[peer].merging.as_mut().and_then(Merging::release) {
        let Held { bytes, by } = held;
        let message = Incoming { start: bytes.as_ptr(), length: bytes.len(), sender: Sender::ByRail(by) };
        // SAFETY: a copy that lives until the call returns.
        unsafe { incoming::message(pml, state, message) };
    }
}
