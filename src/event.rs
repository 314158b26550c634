// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a poll reports: messages received, requests completed, peers failed; and the numbers that travel through the
//! adapter to say which.
//!
//! Made by `poll.rs`, handed to the plugin in a [`Batch`] on its stack, so that its callbacks run while nothing of the
//! port is borrowed. Hot: plain values. Tests: at the end of the file.

use arrayvec::{ArrayVec, CapacityError};
use ibex_ffi::verbs::Status;

/// The name of an endpoint of a port: its place in the port's table, from 0. Never reused while the port lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointId(u32);

impl EndpointId {
    /// Its place in the table.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0
    }

    /// The endpoint at this place. The port checks it at every use.
    #[must_use]
    pub const fn from_index(index: u32) -> Self {
        EndpointId(index)
    }
}

/// What the caller wants back when its request completes; the engine does not look inside. 0 asks for nothing back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token(pub u64);

/// Why a request did not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed {
    /// The adapter's status; flushed also where the request never reached the adapter because its connection had failed.
    pub status: Status,
    /// Whether the adapter had it: if not, the peer has nothing of it.
    pub posted: bool,
}

/// Something that happened on a port.
#[derive(Debug, Clone, Copy)]
pub enum Event {
    /// A message came in. Its bytes stay where they are until the slot is released ([`crate::port::Port::release`]).
    Received {
        /// Where its bytes start.
        addr: u64,
        /// How many there are.
        len: u32,
        /// The receive slot they lie in.
        slot: u32,
        /// The word it carried: its tag, and who says to have sent it ([`crate::port::Port::sender`]).
        immediate: Immediate,
        /// The number of the local queue pair it came by.
        qp_num: u32,
    },
    /// A request that was given a token is done, or will never be.
    Completed {
        /// The token.
        token: Token,
        /// The peer.
        to: EndpointId,
        /// How it ended.
        outcome: Result<(), Failed>,
    },
    /// The port has lost its link, or has one again. The latter is repeated now and then while peers are diverted
    /// ([`crate::port::Port::divert_all`]).
    LinkChanged {
        /// Whether it has one.
        is_up: bool,
    },
    /// The connection to a peer failed. Reported once; [`crate::port::Port::failure`] says why.
    PeerFailed {
        /// The peer.
        peer: EndpointId,
    },
}

/// An event that waits for a later batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Late {
    pub(crate) event: Event,
    /// The adapter's raw stamp, where it has one.
    pub(crate) stamp: Option<u64>,
}

impl From<Event> for Late {
    fn from(event: Event) -> Late {
        Late { event, stamp: None }
    }
}

/// The events of one poll.
#[derive(Debug)]
pub struct Batch {
    events: ArrayVec<Event, { Batch::CAPACITY }>,
    /// The adapter's stamps of the events, where `stamped` has their bit.
    stamps: [u64; Batch::CAPACITY],
    stamped: u64,
}

const _: () = assert!(Batch::CAPACITY <= 64, "a bit for each event");

impl Default for Batch {
    fn default() -> Self {
        Batch::new()
    }
}

impl Batch {
    /// How many events a batch holds at most: more than a poll takes completions, as one may stand for many requests.
    pub const CAPACITY: usize = 64;

    /// A batch without events.
    #[must_use]
    #[inline]
    pub const fn new() -> Self {
        Batch { events: ArrayVec::new_const(), stamps: [0; Batch::CAPACITY], stamped: 0 }
    }

    /// The events, in the order in which they happened.
    #[must_use]
    #[inline]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.events.clear();
        self.stamped = 0;
    }

    /// Gives the events from the `from`th on the adapter's raw stamp. Returns how many events there are.
    pub(crate) fn stamp_from(&mut self, from: usize, raw: u64) -> usize {
        for index in from..self.events.len() {
            self.stamps[index] = raw;
            self.stamped |= 1 << index;
        }
        self.events.len()
    }

    /// Takes an event that had to wait, with its stamp. There must be room.
    pub(crate) fn push_late(&mut self, late: Late) {
        let from = self.events.len();
        if self.push(late.event).is_ok()
            && let Some(raw) = late.stamp
        {
            self.stamp_from(from, raw);
        }
    }

    /// The events, each with its stamp, to be taken up again later.
    pub(crate) fn late(&self) -> impl Iterator<Item = Late> {
        self.events.iter().map(|event| Late { event: *event, stamp: self.stamp(event) })
    }

    /// The adapter's raw stamp of one of this batch's events; `None` where it has none, as it was not asked for.
    #[must_use]
    pub fn stamp(&self, event: &Event) -> Option<u64> {
        let away = std::ptr::from_ref(event).addr().checked_sub(self.events.as_ptr().addr())?;
        let index = away / size_of::<Event>();
        if index < self.events.len() && self.stamped >> index & 1 != 0 { Some(self.stamps[index]) } else { None }
    }

    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.events.remaining_capacity()
    }

    /// Takes the event.
    ///
    /// # Errors
    /// Gives it back when the batch is full.
    #[inline]
    pub fn push(&mut self, event: Event) -> Result<(), Event> {
        self.events.try_push(event).map_err(CapacityError::element)
    }
}

/// The identifier of a work request: who it belongs to, and which of theirs it is. A receive has its slot, a send the
/// endpoint and the low 32 bits of its sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrId(pub u64);

impl WrId {
    const SEND: u64 = 1 << 63;

    /// Of the receive that fills `slot`.
    #[must_use]
    #[inline]
    pub const fn receive(slot: u32) -> Self {
        WrId(slot as u64)
    }

    /// Of the send numbered `sequence` to `endpoint`.
    #[must_use]
    #[inline]
    pub const fn send(endpoint: EndpointId, sequence: u32) -> Self {
        WrId(Self::SEND | (endpoint.0 as u64) << 32 | sequence as u64)
    }

    /// Whether it is a send's.
    #[must_use]
    #[inline]
    pub const fn is_send(self) -> bool {
        self.0 & Self::SEND != 0
    }

    /// The slot of a receive, or the sequence number of a send.
    #[must_use]
    #[inline]
    pub const fn low(self) -> u32 {
        self.0 as u32
    }

    /// The peer of a send.
    #[must_use]
    #[inline]
    pub const fn endpoint(self) -> EndpointId {
        EndpointId(((self.0 & !Self::SEND) >> 32) as u32)
    }
}

/// The immediate data of a message: the tag, and the receiver's own name for the sender's endpoint, exchanged in the
/// handshake, so that a receive finds its peer without a search. Version 1; 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Immediate(pub u32);

impl Immediate {
    /// Endpoints that can be named; beyond them a message says that it names none.
    const UNNAMED: u32 = (1 << 24) - 1;

    /// Of a message with `tag`, to a peer that names the sender's endpoint so.
    #[must_use]
    #[inline]
    pub const fn new(tag: u8, endpoint_bits: u32) -> Self {
        Immediate(endpoint_bits << 8 | tag as u32)
    }

    /// The bits by which messages name the endpoint `index` of their receiver.
    #[must_use]
    pub const fn endpoint_bits(index: u32) -> u32 {
        if index < Self::UNNAMED { index } else { Self::UNNAMED }
    }

    /// The tag.
    #[must_use]
    #[inline]
    pub const fn tag(self) -> u8 {
        self.0 as u8
    }

    /// The endpoint named; the port checks that it exists and that the message came by its queue pair.
    #[must_use]
    #[inline]
    pub const fn endpoint(self) -> EndpointId {
        EndpointId(self.0 >> 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_and_a_receive_are_told_apart_and_read_back() {
        let send = WrId::send(EndpointId(0x7fff_ffff), 0xffff_fffe);
        assert!(send.is_send());
        assert_eq!((send.endpoint(), send.low()), (EndpointId(0x7fff_ffff), 0xffff_fffe));
        let receive = WrId::receive(1023);
        assert!(!receive.is_send());
        assert_eq!(receive.low(), 1023);
    }

    #[test]
    fn the_immediate_has_the_tag_in_its_low_byte() {
        let immediate = Immediate::new(0x41, 0x00ab_cdef);
        assert_eq!(immediate.0, 0xabcd_ef41);
        assert_eq!((immediate.tag(), immediate.endpoint()), (0x41, EndpointId(0x00ab_cdef)));
    }

    #[test]
    fn an_endpoint_too_far_to_name_is_unnamed() {
        assert_eq!(Immediate::endpoint_bits(1 << 24), (1 << 24) - 1);
    }

    #[test]
    fn an_event_fills_half_a_cache_line() {
        assert_eq!(size_of::<Event>(), 32);
    }

    #[test]
    fn an_event_keeps_its_stamp_also_when_it_has_to_wait_and_has_none_of_an_earlier_batch() {
        let mut batch = Batch::new();
        for peer in 0..3 {
            batch.push(Event::PeerFailed { peer: EndpointId(peer) }).expect("there is room");
        }
        assert_eq!(batch.stamp_from(1, 77), 3);
        let stamps = |batch: &Batch| batch.events().iter().map(|event| batch.stamp(event)).collect::<Vec<_>>();
        assert_eq!(stamps(&batch), [None, Some(77), Some(77)]);
        let elsewhere = batch.events()[1];
        assert_eq!(batch.stamp(&elsewhere), None, "a copy is not of the batch");
        let waiting: Vec<Late> = batch.late().collect();
        batch.clear();
        waiting.into_iter().skip(1).for_each(|late| batch.push_late(late));
        batch.push_late(Event::PeerFailed { peer: EndpointId(9) }.into());
        assert_eq!(stamps(&batch), [Some(77), Some(77), None]);
    }

    #[test]
    fn a_full_batch_gives_the_event_back() {
        let mut batch = Batch::new();
        for _ in 0..Batch::CAPACITY {
            assert!(batch.push(Event::PeerFailed { peer: EndpointId(1) }).is_ok());
        }
        assert!(batch.push(Event::PeerFailed { peer: EndpointId(2) }).is_err());
        assert_eq!(batch.events().len(), Batch::CAPACITY);
    }
}
