// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the bytes of a message go, as tools are told: by which protocol and why, by which port and queue pair.
//!
//! Worked out only while a tool asks ([`super::watch`]), from what the message's way is decided by: so nothing is noted
//! for it on the way. What a receiver cannot know comes with a header where that has room: why an announced message
//! cannot be read, and why copies of one are wanted that can ([`code`]). Called by who decides: `send`, `protocol`,
//! `pieces`, `resume`, `oneself`, `reading`, `striped`, `incoming`, `receive`. Grade: pending. Threads: who
//! has entered the PML, and no port. Tests: below, and `hw-tests/tools/mpi_t_protocols.c`.

use engine::matching::Envelope;
use engine::protocol::header::{EAGER_SIZE, Header, Match, Memory};

use super::arrived::{Arrived, Body};
use super::communicator::Communicator;
use super::instance::{Pml, Rail, State, pml};
use super::link::Link;
use super::request::{Mode, Request, Role, Transfer};
use super::{peer, rails};
use crate::runtime::listeners::{Listeners, ProtocolSpec, Spec};
pub(crate) use crate::runtime::listeners::{Passage, Protocol, Reason};
use crate::runtime::modex;

/// Within this process.
pub(crate) const ONESELF: Passage = nowhere(Protocol::Oneself, Reason::Oneself);

/// By the memory that the processes of the host share, whatever the message is.
pub(crate) const SHARED_MEMORY: Passage = nowhere(Protocol::SharedMemory, Reason::SameHost);

const fn nowhere(protocol: Protocol, reason: Reason) -> Passage {
    Passage { protocol, reason, port: Passage::NO_PORT, queue_pair: 0, rails: 0 }
}

/// By this link, and so many ports in all.
pub(crate) fn by(pml: &Pml, link: Link, (protocol, reason): (Protocol, Reason), rails: usize) -> Passage {
    if link.as_local().is_some() {
        return SHARED_MEMORY;
    }
    let Some(rail) = pml.rails().get(link.rail()) else { return nowhere(protocol, reason) };
    let queue_pair = rail.enter().and_then(|port| port.queue_pair(link.to())).unwrap_or_default();
    Passage { protocol, reason, port: u32::from(rail.port().index()), queue_pair, rails: rails as u32 }
}

/// By the link that a peer's messages go by now.
pub(crate) fn by_home(pml: &Pml, state: &mut State, link: Link, how: (Protocol, Reason)) -> Passage {
    by(pml, rails::route(pml, state, link), how, 1)
}

/// How a message of one piece goes that is sent at once: its header is so long, and its data.
const fn at_once((header, length): (usize, usize), has_gaps: bool, waits: bool, inline: usize) -> (Protocol, Reason) {
    if header + length > inline {
        // An adapter that takes nothing inside a work request, not even a header.
        return (Protocol::Copied, if inline < EAGER_SIZE { Reason::Adapter } else { Reason::Size });
    }
    match (has_gaps, waits) {
        (true, _) => (Protocol::Copied, Reason::Gaps),
        (false, true) => (Protocol::Copied, Reason::Adapter),
        (false, false) => (Protocol::Inline, Reason::Size),
    }
}

/// The longest message that a rail's port takes inside a work request, header and all, bytes.
fn inline_of(rail: Option<&Rail>) -> usize {
    rail.map_or(0, |rail| rail.port().attributes().max_inline as usize)
}

/// Tells how a message of one piece has gone that is sent by the one port, and without a request. What it needs to know
/// is in the specification, so that nothing is kept for it.
///
/// # Safety
/// P3: the PML is entered; somebody listens to this event of the specification's communicator, which is alive.
#[cold]
#[inline(never)]
pub(crate) unsafe fn tell_at_once(listeners: &Listeners, id: u64, spec: &Spec) {
    let Some(pml) = pml() else { return };
    // SAFETY: the specification's communicator is alive.
    let link = unsafe { Communicator::of(spec.comm) }.link(spec.peer);
    let how = at_once((EAGER_SIZE, spec.bytes as usize), false, false, inline_of(pml.rails().get(link.rail())));
    let mut told = ProtocolSpec { spec: *spec, message: 0, passage: by(pml, link, how, 1) };
    // SAFETY: P3.
    unsafe { listeners.tell_protocol(id, &mut told) };
}

/// The message of a request is sent at once, or waits for the port.
pub(crate) fn sent(pml: &Pml, state: &mut State, request: &Request, waits: bool) -> Passage {
    let link = rails::route(pml, state, request.link);
    let header = header_of(request);
    let has_gaps = request.extent.start.is_null();
    let how = at_once((header, request.extent.length), has_gaps, waits, inline_of(pml.rails().get(link.rail())));
    by(pml, link, how, 1)
}

/// How long the header is with which a message of a request is sent at once.
fn header_of(request: &Request) -> usize {
    if request.role != Role::Send(Mode::Synchronous) {
        return EAGER_SIZE;
    }
    // SAFETY: P1: its caller's is not finished, so its communicator lives; somebody listens to it, so it is the PML's.
    let communicator = unsafe { Communicator::of(request.comm()) };
    synchronous(communicator.context, communicator.rank, request.tag)
}

/// How long the header is of a synchronous message of this sender.
fn synchronous(context: u32, rank: i32, tag: i32) -> usize {
    let of = Match { context, rank, tag };
    Header::Synchronous(of, 0).encode().as_slice().len()
}

/// An announced message of this process has been read, if it was this that it was announced for.
pub(crate) fn was_read(pml: &Pml, request: &Request, transfer: &Transfer) -> Option<Passage> {
    let Transfer::Announced { registered: Some(_), others, .. } = transfer else { return None };
    Some(by(pml, request.link, (Protocol::Read, Reason::Size), 1 + others.len()))
}

/// What a message that is announced and cannot be read goes as.
const fn unreadable(length: u64, why: Reason) -> (Protocol, Reason) {
    (if length == 0 { Protocol::Inline } else { Protocol::Pieces }, why)
}

/// A message is announced: what is known then, unless it can be read.
pub(crate) fn announced(pml: &Pml, link: Link, (memory, why): (Memory, Reason)) -> Option<Passage> {
    if link.as_local().is_some() {
        return Some(SHARED_MEMORY);
    }
    (memory.address == 0).then(|| by(pml, link, unreadable(memory.length, why), 1))
}

/// The number of a reason in a header: as `key` of memory that cannot be read, or is not to be.
pub(crate) const fn code(why: Reason) -> u32 {
    why as u32
}

/// What [`code`] made a number of; of those that are said so alone.
const fn reason(code: u32) -> Option<Reason> {
    const SAID: [Reason; 5] =
        [Reason::Synchronous, Reason::Gaps, Reason::NotRegistered, Reason::HeldBack, Reason::Adapter];
    let mut at = 0;
    while at < SAID.len() {
        if SAID[at] as u32 == code {
            return Some(SAID[at]);
        }
        at += 1;
    }
    None
}

/// The receiver of a message that it could have read wants copies instead, and has said why.
pub(crate) fn wanted(pml: &Pml, state: &mut State, link: Link, said: u32) -> Passage {
    by_home(pml, state, link, (Protocol::Pieces, reason(said).unwrap_or(Reason::NotRegistered)))
}

/// A message that came whole goes to a receive. By its header and length alone, as nothing says whether it was copied
/// where it came from. `from` may be unknown.
pub(crate) fn came_whole(
    pml: &Pml,
    state: &mut State,
    (communicator, envelope): (&Communicator, Envelope),
    from: Link,
    (header, length): (usize, usize),
) -> Passage {
    let Some(from) = sender(pml, state, communicator, envelope, from) else {
        let how = at_once((header, length), false, false, inline_of(pml.rails().first()));
        return Passage { rails: 1, ..nowhere(how.0, how.1) };
    };
    if from == Link::ONESELF {
        return ONESELF;
    }
    let how = at_once((header, length), false, false, inline_of(pml.rails().get(from.rail())));
    by(pml, from, how, 1)
}

/// A message goes to a receive: what is known now, unless it is to be read.
pub(crate) fn came(
    pml: &Pml,
    state: &mut State,
    of: (&Communicator, Envelope),
    message: &Arrived,
    receive: &Request,
) -> Option<Passage> {
    let from = message.from;
    let memory = match &message.body {
        Body::Short { .. } | Body::Whole { .. } => {
            return Some(came_whole(pml, state, of, from, (EAGER_SIZE, message.length())));
        }
        Body::Synchronous { .. } => {
            let (communicator, envelope) = of;
            let header = synchronous(communicator.context, envelope.source(), envelope.tag());
            return Some(came_whole(pml, state, of, from, (header, message.length())));
        }
        Body::Announced { memory, .. } | Body::AnnouncedKeyed { memory, .. } => memory,
    };
    if from == Link::ONESELF {
        return Some(ONESELF);
    }
    if from.as_local().is_some() {
        return Some(SHARED_MEMORY);
    }
    Some(by(pml, from, not_read(memory, receive.extent.length, receive.extent.start.is_null())?, 1))
}

/// How an announced message goes to a receive with so much room, unless it is to be read.
fn not_read(memory: &Memory, room: usize, has_gaps: bool) -> Option<(Protocol, Reason)> {
    if memory.address == 0 {
        return Some(unreadable(memory.length, reason(memory.key).unwrap_or(Reason::Size)));
    }
    if room == 0 {
        // Nothing of it is wanted.
        return Some((Protocol::Read, Reason::Size));
    }
    has_gaps.then_some((Protocol::Pieces, Reason::Gaps))
}

/// How the sender of a message is reached, which may not have been looked for.
fn sender(pml: &Pml, state: &mut State, communicator: &Communicator, envelope: Envelope, from: Link) -> Option<Link> {
    if from != Link::UNKNOWN {
        return Some(from);
    }
    let link = communicator.link(envelope.source());
    if link != Link::UNKNOWN {
        return Some(link.unmarked());
    }
    // SAFETY: the communicator is alive.
    let known = unsafe { peer::known(state, communicator.comm, envelope.source()) };
    if known.is_some() || pml.has_several() {
        return known;
    }
    // SAFETY: the communicator is alive.
    let process = unsafe { peer::process(communicator.comm, envelope.source()) }?;
    let name = modex::from_openmpi(process.name());
    let link = *rails::links_to(pml, name).ok()?.first()?;
    state.peers.insert(name, link);
    Some(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_goes_inside_its_work_request_if_it_fits_and_is_copied_else_for_a_reason() {
        let how = |length, has_gaps, waits, inline| at_once((12, length), has_gaps, waits, inline);
        assert_eq!(how(8, false, false, 64), (Protocol::Inline, Reason::Size));
        assert_eq!(how(52, false, false, 64), (Protocol::Inline, Reason::Size));
        assert_eq!(how(53, false, false, 64), (Protocol::Copied, Reason::Size));
        assert_eq!(how(8, true, false, 64), (Protocol::Copied, Reason::Gaps));
        assert_eq!(how(53, true, false, 64), (Protocol::Copied, Reason::Size));
        assert_eq!(how(8, false, true, 64), (Protocol::Copied, Reason::Adapter));
        assert_eq!(how(0, false, false, 0), (Protocol::Copied, Reason::Adapter));
    }

    #[test]
    fn why_a_message_is_not_read_is_said_by_its_announcement_or_known_to_its_receiver() {
        let memory = |address, length, why| Memory { key: code(why), address, length };
        let held_back = memory(0, 100, Reason::HeldBack);
        assert_eq!(not_read(&held_back, 100, false), Some((Protocol::Pieces, Reason::HeldBack)));
        assert_eq!(
            not_read(&memory(0, 0, Reason::Synchronous), 9, false),
            Some((Protocol::Inline, Reason::Synchronous))
        );
        let readable = Memory { key: 2, address: 4096, length: 100 };
        assert_eq!(not_read(&readable, 100, false), None);
        assert_eq!(not_read(&readable, 100, true), Some((Protocol::Pieces, Reason::Gaps)));
        assert_eq!(not_read(&readable, 0, false), Some((Protocol::Read, Reason::Size)));
    }

    #[test]
    fn a_number_that_is_no_reason_of_these_is_none() {
        for why in [Reason::Synchronous, Reason::Gaps, Reason::NotRegistered, Reason::HeldBack, Reason::Adapter] {
            assert_eq!(reason(code(why)), Some(why));
        }
        for other in [code(Reason::Size), code(Reason::Oneself), code(Reason::SameHost), 9, u32::MAX] {
            assert_eq!(reason(other), None);
        }
    }
}
