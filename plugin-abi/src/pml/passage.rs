// SPDX-License-Identifier: MIT OR Apache-2.0
//! The passage of a message, for tools: protocol and reason, port and queue pair.
//!
//! Computed only while a tool asks for it ([`super::watch`]), from the data that decides how a message is sent. Two
//! reasons travel in headers ([`code`]): why a message cannot be read, and why a receiver wants copies of one that it
//! could read. Called where the protocol is chosen. Grade: pending. Threads: the one that has entered the PML, and no
//! port. Tests: below, and `hw-tests/tools/mpi_t_protocols.c`.

use engine::messenger::arrived::{Arrived, Body};
use engine::messenger::header::{EAGER_SIZE, Header, Match, Memory};
use engine::messenger::link::Link;
use engine::messenger::matching::Envelope;

use super::communicator::Communicator;
use super::handle::Handle;
use super::instance::{Pml, Rail, State, pml};
use super::rails;
use super::request::{Mode, Request, Role};
use crate::runtime::listeners::{Listeners, ProtocolSpec, Spec};
pub(crate) use crate::runtime::listeners::{Passage, Protocol, Reason};
use crate::runtime::modex;

pub(crate) const ONESELF: Passage = nowhere(Protocol::Oneself, Reason::Oneself);

/// Passage by shared memory, whatever the protocol.
pub(crate) const SHARED_MEMORY: Passage = nowhere(Protocol::SharedMemory, Reason::SameHost);

const fn nowhere(protocol: Protocol, reason: Reason) -> Passage {
    Passage { protocol, reason, port: Passage::NO_PORT, queue_pair: 0, rails: 0 }
}

/// Returns the passage of a message by this link, which uses `rails` ports in all.
pub(crate) fn by(pml: &Pml, link: Link, (protocol, reason): (Protocol, Reason), rails: usize) -> Passage {
    if link.as_local().is_some() {
        return SHARED_MEMORY;
    }
    let Some(rail) = pml.rails().get(link.rail()) else { return nowhere(protocol, reason) };
    let queue_pair = rail.enter().and_then(|port| port.queue_pair(link.to())).unwrap_or_default();
    Passage { protocol, reason, port: u32::from(rail.port().index()), queue_pair, rails: rails as u32 }
}

/// [`by`] the current home of the peer that `link` leads to.
pub(crate) fn by_home(pml: &Pml, state: &mut State, link: Link, how: (Protocol, Reason)) -> Passage {
    by(pml, rails::route(pml, state, link), how, 1)
}

/// Returns protocol and reason of a message that is sent whole: `header` bytes, then `length` bytes of data.
const fn at_once((header, length): (usize, usize), has_gaps: bool, inline: usize) -> (Protocol, Reason) {
    if header + length > inline {
        // `Adapter`: it takes not even a header inside a work request.
        return (Protocol::Copied, if inline < EAGER_SIZE { Reason::Adapter } else { Reason::Size });
    }
    if has_gaps { (Protocol::Copied, Reason::Gaps) } else { (Protocol::Inline, Reason::Size) }
}

/// Returns the length of the longest message inside a work request of a rail, header included, bytes.
fn inline_of(rail: Option<&Rail>) -> usize {
    rail.map_or(0, |rail| rail.port().attributes().max_inline as usize)
}

/// Raises the protocol event of a message that the only port sent without a request.
#[cold]
#[inline(never)]
pub(crate) unsafe fn tell_at_once(listeners: &Listeners, id: u64, spec: &Spec) {
    let Some(pml) = pml() else { return };
    // SAFETY: P3; the specification's communicator is alive, as this function requires.
    let link = unsafe { Communicator::of(spec.comm) }.link(spec.peer);
    let how = at_once((EAGER_SIZE, spec.bytes as usize), false, inline_of(pml.rails().get(link.rail())));
    let mut told = ProtocolSpec { spec: *spec, message: 0, passage: by(pml, link, how, 1) };
    listeners.tell_protocol(id, &mut told);
}

/// Returns the passage of a send whose message is sent whole.
pub(crate) fn sent(pml: &Pml, state: &mut State, send: Handle) -> Passage {
    let send = state.requests.get(send);
    let (header, link) = (header_of(send), send.core.link);
    let (length, has_gaps) = (send.core.data.length(), !send.core.data.is_contiguous());
    let link = rails::route(pml, state, link);
    let inline = inline_of(pml.rails().get(link.rail()));
    by(pml, link, at_once((header, length), has_gaps, inline), 1)
}

/// Returns the length of the header of a message that is sent whole.
fn header_of(request: &Request) -> usize {
    if request.core.role != Role::Send(Mode::Synchronous) {
        return EAGER_SIZE;
    }
    // SAFETY: P1: the send is not finished, so its communicator lives. It has listeners, so it is the PML's.
    let communicator = unsafe { Communicator::of(request.comm()) };
    synchronous(communicator.context, communicator.rank, request.core.tag)
}

/// Returns the length of the header of a synchronous message.
fn synchronous(context: u32, rank: i32, tag: i32) -> usize {
    let of = Match { context, rank, tag };
    Header::Synchronous(of, 0).encode().as_slice().len()
}

/// Returns protocol and reason of an announced message that its receiver cannot read.
const fn unreadable(length: u64, why: Reason) -> (Protocol, Reason) {
    (if length == 0 { Protocol::Inline } else { Protocol::Pieces }, why)
}

/// Returns the passage of a message that is announced by this link, with the keys of `rails` ports if it can be read.
pub(crate) fn announced(pml: &Pml, link: Link, (memory, why): (Memory, Reason), rails: usize) -> Passage {
    let is_readable = memory.address != 0;
    by(pml, link, if is_readable { (Protocol::Read, Reason::Size) } else { unreadable(memory.length, why) }, rails)
}

/// Returns the number of a reason in a header, in the place of the key of the memory.
pub(crate) const fn code(why: Reason) -> u32 {
    why as u32
}

/// The inverse of [`code`], for the reasons that are sent in a header.
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

/// Returns the passage of a message that its receiver could read, but wants as copies, for the reason `said`.
pub(crate) fn wanted(pml: &Pml, state: &mut State, link: Link, said: u32) -> Passage {
    by_home(pml, state, link, (Protocol::Pieces, reason(said).unwrap_or(Reason::NotRegistered)))
}

/// Returns the passage of a whole message that has matched, by its lengths alone, because the message does not say
/// whether its sender copied it. `from` may be unknown.
pub(crate) fn came_whole(
    pml: &Pml,
    state: &mut State,
    (communicator, envelope): (&Communicator, Envelope),
    from: Link,
    (header, length): (usize, usize),
) -> Passage {
    let Some(from) = sender(pml, state, communicator, envelope, from) else {
        let how = at_once((header, length), false, inline_of(pml.rails().first()));
        return Passage { rails: 1, ..nowhere(how.0, how.1) };
    };
    if from == Link::ONESELF {
        return ONESELF;
    }
    let how = at_once((header, length), false, inline_of(pml.rails().get(from.rail())));
    by(pml, from, how, 1)
}

/// Returns the passage of a message that has matched; `None` if the receiver may read it.
pub(crate) fn came(
    pml: &Pml,
    state: &mut State,
    of: (&Communicator, Envelope),
    message: &Arrived,
    receive: Handle,
) -> Option<Passage> {
    let from = message.from;
    let memory = match &message.body {
        Body::Short(..) | Body::Whole(_) => {
            return Some(came_whole(pml, state, of, from, (EAGER_SIZE, message.length())));
        }
        Body::Synchronous(..) => {
            let (communicator, envelope) = of;
            let header = synchronous(communicator.context, envelope.source(), envelope.tag());
            return Some(came_whole(pml, state, of, from, (header, message.length())));
        }
        Body::Announced(_, memory) | Body::AnnouncedKeyed(_, memory, _) => memory,
    };
    if from == Link::ONESELF {
        return Some(ONESELF);
    }
    if from.as_local().is_some() {
        return Some(SHARED_MEMORY);
    }
    let data = &state.requests.core(receive).data;
    let (room, has_gaps) = (data.length(), !data.is_contiguous());
    Some(by(pml, from, not_read(memory, room, has_gaps)?, 1))
}

/// [`unreadable`] for a receive of `room` bytes; `None` if the receiver may read the message.
fn not_read(memory: &Memory, room: usize, has_gaps: bool) -> Option<(Protocol, Reason)> {
    if memory.address == 0 {
        return Some(unreadable(memory.length, reason(memory.key).unwrap_or(Reason::Size)));
    }
    if room == 0 {
        return Some((Protocol::Read, Reason::Size));
    }
    has_gaps.then_some((Protocol::Pieces, Reason::Gaps))
}

/// Returns the link to the sender of a message; looks the sender's rank up if it has no link yet.
fn sender(pml: &Pml, state: &mut State, communicator: &Communicator, envelope: Envelope, from: Link) -> Option<Link> {
    if from != Link::UNKNOWN {
        return Some(from);
    }
    let link = communicator.link(envelope.source());
    if link != Link::UNKNOWN {
        return Some(link.unmarked());
    }
    // SAFETY: the caller has this communicator from `State::contexts` (P1) or a live request.
    let known = unsafe { rails::known(state, communicator.comm, envelope.source()) };
    if known.is_some() || pml.has_several() {
        return known;
    }
    // SAFETY: the caller has this communicator from `State::contexts` (P1) or a live request.
    let process = unsafe { rails::process(communicator.comm, envelope.source()) }?;
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
        let how = |length, has_gaps, inline| at_once((12, length), has_gaps, inline);
        assert_eq!(how(8, false, 64), (Protocol::Inline, Reason::Size));
        assert_eq!(how(52, false, 64), (Protocol::Inline, Reason::Size));
        assert_eq!(how(53, false, 64), (Protocol::Copied, Reason::Size));
        assert_eq!(how(8, true, 64), (Protocol::Copied, Reason::Gaps));
        assert_eq!(how(53, true, 64), (Protocol::Copied, Reason::Size));
        assert_eq!(how(0, false, 0), (Protocol::Copied, Reason::Adapter));
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
