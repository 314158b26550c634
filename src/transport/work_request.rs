// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers that pass through an adapter: endpoints, identifiers of work requests, immediate data. A post makes
//! them, and a poll reads them from completions. Grade: hot. Threads: plain data. Tests: below.

/// Name of an endpoint of a port: its index in the port's table. Never reused while the port lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointId(u32);

impl EndpointId {
    /// Returns the index in the table.
    pub const fn index(self) -> u32 {
        self.0
    }

    /// Returns the endpoint with this index. The port checks it at every use.
    pub const fn from_index(index: u32) -> Self {
        EndpointId(index)
    }
}

/// Identifier of a work request. A receive has its slot; a send has its endpoint and its sequence number. An end
/// marker, the last request of a closing queue pair, has no endpoint and the number of the queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrId(pub u64);

impl WrId {
    const SEND: u64 = 1 << 63;
    /// Beyond any table of endpoints: their numbers have 31 bits here.
    const NO_ENDPOINT: EndpointId = EndpointId((1 << 31) - 1);

    /// Returns the identifier of the receive that fills `slot`.
    #[inline]
    pub const fn receive(slot: u32) -> Self {
        WrId(slot as u64)
    }

    /// Returns the identifier of the send numbered `sequence` to `endpoint`.
    #[inline]
    pub const fn send(endpoint: EndpointId, sequence: u32) -> Self {
        WrId(Self::SEND | (endpoint.0 as u64) << 32 | sequence as u64)
    }

    /// Returns the identifier of the end marker of this queue pair.
    pub(crate) const fn end_marker(qp_num: u32) -> Self {
        WrId::send(Self::NO_ENDPOINT, qp_num)
    }

    /// Whether it identifies an end marker.
    pub(crate) const fn is_end_marker(self) -> bool {
        self.is_send() && self.endpoint().0 == Self::NO_ENDPOINT.0
    }

    /// Whether it identifies a send or an end marker.
    #[inline]
    pub const fn is_send(self) -> bool {
        self.0 & Self::SEND != 0
    }

    /// Returns the slot of a receive, the sequence number of a send, or the queue pair of an end marker.
    #[inline]
    pub const fn low(self) -> u32 {
        self.0 as u32
    }

    /// Returns the peer of a send.
    #[inline]
    pub const fn endpoint(self) -> EndpointId {
        EndpointId(((self.0 & !Self::SEND) >> 32) as u32)
    }
}

/// Whether the request numbered `sequence` is done when the one numbered `through` is. Numbers wrap; two requests in
/// flight are far less than half the range apart. Hot.
#[inline]
pub(super) const fn is_done(sequence: u32, through: u32) -> bool {
    through.wrapping_sub(sequence) <= u32::MAX / 2
}

/// Immediate data of a message, 32 bits: the tag, and the receiver's name for the sender's endpoint, exchanged in the
/// handshake, so that a receive finds its peer without a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Immediate(pub u32);

impl Immediate {
    /// Name of every endpoint whose index has no name of its own.
    const UNNAMED: u32 = (1 << 24) - 1;

    /// Makes the data of a message with `tag`, to a peer that names the sender's endpoint `endpoint_bits`.
    #[inline]
    pub const fn new(tag: u8, endpoint_bits: u32) -> Self {
        Immediate(endpoint_bits << 8 | tag as u32)
    }

    /// Returns the bits by which messages name their receiver's endpoint with this index.
    pub(crate) const fn endpoint_bits(index: u32) -> u32 {
        if index < Self::UNNAMED { index } else { Self::UNNAMED }
    }

    /// Returns the tag.
    #[inline]
    pub const fn tag(self) -> u8 {
        self.0 as u8
    }

    /// Returns the endpoint named; the port checks that it exists and that the message came by its queue pair.
    #[inline]
    pub const fn endpoint(self) -> EndpointId {
        EndpointId(self.0 >> 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_distinguishes_sends_from_receives_and_returns_its_parts() {
        let send = WrId::send(EndpointId::from_index(0x7fff_fffe), 0xffff_fffe);
        assert!(send.is_send() && !send.is_end_marker());
        assert_eq!((send.endpoint(), send.low()), (EndpointId::from_index(0x7fff_fffe), 0xffff_fffe));
        let marker = WrId::end_marker(0x00ff_fffe);
        assert_eq!((marker.is_send(), marker.is_end_marker(), marker.low()), (true, true, 0x00ff_fffe));
        let receive = WrId::receive(1023);
        assert!(!receive.is_send() && !receive.is_end_marker());
        assert_eq!(receive.low(), 1023);
    }

    #[test]
    fn the_immediate_has_the_tag_in_its_low_byte() {
        let immediate = Immediate::new(0x41, 0x00ab_cdef);
        assert_eq!(immediate.0, 0xabcd_ef41);
        assert_eq!((immediate.tag(), immediate.endpoint()), (0x41, EndpointId::from_index(0x00ab_cdef)));
    }

    #[test]
    fn an_endpoint_too_far_to_name_is_unnamed() {
        assert_eq!(Immediate::endpoint_bits(1 << 24), (1 << 24) - 1);
    }
}
