// SPDX-License-Identifier: MIT OR Apache-2.0
//! What comes by several ports: counted, and where a peer has moved to another port, put in order again.
//!
//! The rules are `engine::protocol::stream`'s. Called by `progress` for each message where the process has several
//! ports. Until a peer first moves its messages are only counted, those that a poll takes directly included, from the
//! second on. Grade: hot for [`may_be_taken`] and [`count`]. Threads: who has entered the PML. Tests: below, and the
//! device tests in `hw-tests`.

use engine::protocol::header::Header;
use engine::protocol::stream::Merging;
use engine::transport::Immediate;

use super::incoming::{self, Incoming, Sender};
use super::instance::{Pml, Rail, State};
use super::link::Link;
use super::several::{ByRail, Held};
use super::{rails, transfers};

/// Whether messages of this sender are in order as they come. Not of one that is not known yet: that it is there is for
/// [`message`] to find out.
#[inline]
pub(crate) fn may_be_taken(state: &State, rail: usize, from: Immediate) -> bool {
    state.several.end(rail, from.endpoint()).is_some_and(|end| !end.is_merged)
}

/// Whether the endpoint that a message names is one of the port's: nothing is kept of any other.
#[cold]
fn is_there(pml: &Pml, rail: usize, from: Immediate) -> bool {
    let port = pml.rails().get(rail).and_then(Rail::enter);
    port.is_some_and(|port| port.peer_name(from.endpoint()).is_some())
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
    // SAFETY: its bytes may be read, and stay where they are until this returns.
    let bytes = unsafe { message.bytes() };
    if let Ok((Header::Moved { segment, count }, _)) = Header::decode(bytes) {
        return moved(pml, state, by, (segment, count));
    }
    let end = state.several.end(rail, immediate.endpoint());
    if end.is_none_or(|end| !end.is_merged) {
        if end.is_some() || is_there(pml, rail, immediate) {
            count(state, rail, immediate);
        }
        // SAFETY: its bytes may be read.
        return unsafe { incoming::message(pml, state, message) };
    }
    let Some(peer) = state.several.end(rail, immediate.endpoint()).and_then(|end| end.peer()) else { return };
    let Some(merging) = &mut state.several.peers[peer].merging else { return };
    if !merging.arrived(rail) {
        return merging.hold(rail, Held { bytes: bytes.into(), by, completed: transfers::completion() });
    }
    // SAFETY: its bytes may be read.
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
        let Held { bytes, by, completed } = held;
        transfers::completed(completed);
        let message = Incoming { start: bytes.as_ptr(), length: bytes.len(), sender: Sender::ByRail(by) };
        // SAFETY: a copy that lives until the call returns.
        unsafe { incoming::message(pml, state, message) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::several::Several;
    use super::*;
    use engine::transport::EndpointId;

    #[test]
    fn of_an_endpoint_that_is_not_there_nothing_is_kept_however_far_away_it_is() {
        let pml = Pml::of_no_rails(false);
        let mut state = pml.enter().expect("nobody is inside");
        state.several = Several::new(2);
        let immediate = Immediate::new(0, (1 << 24) - 2);
        let (by, bytes) = (ByRail { rail: 1, immediate, qp_num: 9 }, [0; 4]);
        let incoming = Incoming { start: bytes.as_ptr(), length: bytes.len(), sender: Sender::ByRail(by) };
        assert!(!may_be_taken(&state, by.rail, immediate));
        // SAFETY: bytes of the test's own.
        unsafe { message(&pml, &mut state, incoming, by) };
        let ends = [EndpointId::from_index(0), immediate.endpoint()].map(|to| state.several.end(by.rail, to).is_some());
        assert_eq!(ends, [false; 2]);
    }
}
