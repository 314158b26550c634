// SPDX-License-Identifier: MIT OR Apache-2.0
//! What ob1's messages say of themselves: its headers, as Open MPI lays them out on this platform.
//!
//! Open MPI does not install `pml_ob1_hdr.h`; the layout is written down here, for a build without support for
//! heterogeneous machines, as a component checks that it has met (`refusal`). What is read is bytes of another process
//! or of ob1: lengths and types are checked, and pointers are numbers, never followed. Called by `transfer`. Path:
//! behind the branch of a site. Threads: plain data. Byte order: the host's; a header in network order is not read.
//! Tests: below.

use ibex_ffi::openmpi::sys;

/// Bytes of the longest header, without the registration handles behind it.
pub(crate) const LONGEST: usize = 56;

/// `MCA_PML_OB1_HDR_TYPE_*`: the tag of a message, and the first byte of its header.
pub(crate) const MATCH: u8 = sys::MCA_BTL_TAG_PML as u8 + 1;
const RENDEZVOUS: u8 = MATCH + 1;
pub(crate) const GET: u8 = MATCH + 2;
const ACKNOWLEDGEMENT: u8 = MATCH + 3;
const FRAGMENT: u8 = MATCH + 5;
const PUT: u8 = MATCH + 7;
const FINISHED: u8 = MATCH + 8;

/// `MCA_PML_OB1_HDR_FLAGS_NBO`: the header is in network byte order.
const NETWORK_ORDER: u8 = 2;

/// Whether a message with this tag means the same whatever port brings it: not one with a key to memory of its sender,
/// which is the port's by which it was sent.
pub(crate) fn goes_by_any_port(tag: u8) -> bool {
    matches!(tag, MATCH | RENDEZVOUS | ACKNOWLEDGEMENT | FRAGMENT | FINISHED)
}

/// Whether it is a piece of a longer message.
pub(crate) fn is_fragment(tag: u8) -> bool {
    tag == FRAGMENT
}

/// Whether a message with this tag is all of a message of MPI's, so that nothing else will ever be said of it.
pub(crate) fn is_whole(tag: u8) -> bool {
    tag == MATCH
}

/// By what ob1 matches a message to a receive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Envelope {
    /// The communicator's context number.
    pub(crate) context: u16,
    /// The sender's rank in it.
    pub(crate) source: i32,
    pub(crate) tag: i32,
    /// The message's number among those of its sender to its receiver in the communicator, modulo 2 to the 16th.
    pub(crate) sequence: u16,
}

/// A header, as far as it tells where bytes of messages are. Requests and fragments are named as the process that has
/// them does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Header {
    /// A whole message; its bytes follow.
    Match(Envelope),
    /// The announcement of a message of `total` bytes, whose first bytes may follow.
    Rendezvous { envelope: Envelope, total: u64, sender: u64 },
    /// The announcement of a message that the receiver shall read from `address` on; each read is told by
    /// [`Header::Finished`] of `fragment`.
    Get { envelope: Envelope, total: u64, sender: u64, address: u64, fragment: u64 },
    /// The receiver of a message has a request for it.
    Acknowledgement { sender: u64, receiver: u64 },
    /// A further piece of a message; its bytes follow.
    Fragment { offset: u64, sender: u64, receiver: u64 },
    /// The receiver of a message asks its sender to write a piece of it; done is told by [`Header::Finished`] of
    /// `fragment`.
    Put { offset: u64, bytes: u64, sender: u64, receiver: u64, fragment: u64 },
    /// So many bytes of `fragment` have been read, or written; an error where that is less than 0.
    Finished { fragment: u64, bytes: i64 },
}

/// The header at the start of a message with this tag, and its length; `None` for what says nothing of a message's
/// bytes, and for what is not ob1's.
pub(crate) fn header(tag: u8, bytes: &[u8]) -> Option<(Header, usize)> {
    if bytes.len() < 2 || bytes[0] != tag || bytes[1] & NETWORK_ORDER != 0 {
        return None;
    }
    Some(match tag {
        MATCH => (Header::Match(envelope(bytes)?), 14),
        RENDEZVOUS => {
            let (total, sender) = (word(bytes, 16)?, word(bytes, 24)?);
            (Header::Rendezvous { envelope: envelope(bytes)?, total, sender }, 32)
        }
        GET => {
            let (total, sender) = (word(bytes, 16)?, word(bytes, 24)?);
            let (fragment, address) = (word(bytes, 32)?, word(bytes, 40)?);
            (Header::Get { envelope: envelope(bytes)?, total, sender, address, fragment }, 48)
        }
        ACKNOWLEDGEMENT => {
            let (sender, receiver) = (word(bytes, 8)?, word(bytes, 16)?);
            // Where the rest begins and how much it is follow, which nobody needs here.
            word(bytes, 32)?;
            (Header::Acknowledgement { sender, receiver }, 40)
        }
        FRAGMENT => {
            let (offset, sender, receiver) = (word(bytes, 8)?, word(bytes, 16)?, word(bytes, 24)?);
            (Header::Fragment { offset, sender, receiver }, 32)
        }
        PUT => {
            let (sender, fragment, receiver) = (word(bytes, 8)?, word(bytes, 16)?, word(bytes, 24)?);
            let (offset, size) = (word(bytes, 32)?, word(bytes, 48)?);
            (Header::Put { offset, bytes: size, sender, receiver, fragment }, LONGEST)
        }
        FINISHED => {
            let (size, fragment) = (word(bytes, 8)?, word(bytes, 16)?);
            (Header::Finished { fragment, bytes: size.cast_signed() }, 24)
        }
        _ => return None,
    })
}

fn envelope(bytes: &[u8]) -> Option<Envelope> {
    let half = |at: usize| Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    let rank = |at: usize| Some(i32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
    Some(Envelope { context: half(2)?, source: rank(4)?, tag: rank(8)?, sequence: half(12)? })
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// `pml_ob1_hdr.h` of Open MPI 4.1.4, structure by structure, without `OPAL_ENABLE_HETEROGENEOUS_SUPPORT`.
    #[repr(C)]
    #[derive(Default)]
    struct Common {
        kind: u8,
        flags: u8,
    }

    #[repr(C)]
    #[derive(Default)]
    struct MatchHdr {
        common: Common,
        ctx: u16,
        src: i32,
        tag: i32,
        seq: u16,
    }

    #[repr(C)]
    #[derive(Default)]
    struct RendezvousHdr {
        matched: MatchHdr,
        msg_length: u64,
        src_req: u64,
    }

    #[repr(C)]
    #[derive(Default)]
    struct RgetHdr {
        rndv: RendezvousHdr,
        frag: u64,
        src_ptr: u64,
    }

    #[repr(C)]
    #[derive(Default)]
    struct FragHdr {
        common: Common,
        frag_offset: u64,
        src_req: u64,
        dst_req: u64,
    }

    #[repr(C)]
    #[derive(Default)]
    struct AckHdr {
        common: Common,
        src_req: u64,
        dst_req: u64,
        send_offset: u64,
        send_size: u64,
    }

    #[repr(C)]
    #[derive(Default)]
    struct RdmaHdr {
        common: Common,
        req: u64,
        frag: u64,
        recv_req: u64,
        rdma_offset: u64,
        dst_ptr: u64,
        dst_size: u64,
    }

    #[repr(C)]
    #[derive(Default)]
    struct FinHdr {
        common: Common,
        size: i64,
        frag: u64,
    }

    /// The bytes of a structure.
    fn bytes<T>(value: &T) -> &[u8] {
        // SAFETY: the structures are zeroed with their padding, and only read.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
    }

    fn zeroed<T>() -> T {
        // SAFETY: structures of integers.
        unsafe { std::mem::zeroed() }
    }

    const ENVELOPE: Envelope = Envelope { context: 7, source: 3, tag: -5, sequence: 65_000 };

    fn matched(kind: u8) -> MatchHdr {
        let mut header: MatchHdr = zeroed();
        (header.common.kind, header.ctx, header.src, header.tag, header.seq) = (kind, 7, 3, -5, 65_000);
        header
    }

    #[test]
    fn a_match_header_is_read_where_c_puts_its_fields_and_has_14_bytes_on_the_wire() {
        let header_of = matched(MATCH);
        assert_eq!(offset_of!(MatchHdr, seq) + 2, 14);
        assert_eq!(header(MATCH, &bytes(&header_of)[..14]), Some((Header::Match(ENVELOPE), 14)));
    }

    #[test]
    fn the_headers_of_rendezvous_are_read_where_c_puts_their_fields() {
        let mut rget: RgetHdr = zeroed();
        rget.rndv.matched = matched(GET);
        (rget.rndv.msg_length, rget.rndv.src_req, rget.frag, rget.src_ptr) = (100_000, 0x11, 0x22, 0x33);
        let expected = Header::Get { envelope: ENVELOPE, total: 100_000, sender: 0x11, address: 0x33, fragment: 0x22 };
        assert_eq!(header(GET, bytes(&rget)), Some((expected, size_of::<RgetHdr>())));
        rget.rndv.matched.common.kind = RENDEZVOUS;
        let expected = Header::Rendezvous { envelope: ENVELOPE, total: 100_000, sender: 0x11 };
        assert_eq!(header(RENDEZVOUS, bytes(&rget.rndv)), Some((expected, size_of::<RendezvousHdr>())));
    }

    #[test]
    fn the_headers_of_fragments_are_read_where_c_puts_their_fields() {
        let mut frag: FragHdr = zeroed();
        frag.common.kind = FRAGMENT;
        (frag.frag_offset, frag.src_req, frag.dst_req) = (4096, 0x11, 0x22);
        let expected = Header::Fragment { offset: 4096, sender: 0x11, receiver: 0x22 };
        assert_eq!(header(FRAGMENT, bytes(&frag)), Some((expected, size_of::<FragHdr>())));

        let mut ack: AckHdr = zeroed();
        ack.common.kind = ACKNOWLEDGEMENT;
        (ack.src_req, ack.dst_req) = (0x11, 0x22);
        let expected = Header::Acknowledgement { sender: 0x11, receiver: 0x22 };
        assert_eq!(header(ACKNOWLEDGEMENT, bytes(&ack)), Some((expected, size_of::<AckHdr>())));

        let mut put: RdmaHdr = zeroed();
        put.common.kind = PUT;
        (put.req, put.frag, put.recv_req) = (0x11, 0x44, 0x22);
        (put.rdma_offset, put.dst_ptr, put.dst_size) = (4096, 0x55, 8192);
        let expected = Header::Put { offset: 4096, bytes: 8192, sender: 0x11, receiver: 0x22, fragment: 0x44 };
        assert_eq!(header(PUT, bytes(&put)), Some((expected, size_of::<RdmaHdr>())));
        assert_eq!(size_of::<RdmaHdr>(), LONGEST);

        let mut fin: FinHdr = zeroed();
        fin.common.kind = FINISHED;
        (fin.size, fin.frag) = (-2, 0x44);
        let expected = Header::Finished { fragment: 0x44, bytes: -2 };
        assert_eq!(header(FINISHED, bytes(&fin)), Some((expected, size_of::<FinHdr>())));
    }

    #[test]
    fn what_is_too_short_of_another_layer_or_in_network_order_is_not_read() {
        let mut full = [0; LONGEST];
        let lengths = [
            (MATCH, 14),
            (RENDEZVOUS, 32),
            (GET, 48),
            (ACKNOWLEDGEMENT, 40),
            (FRAGMENT, 32),
            (PUT, 56),
            (FINISHED, 24),
        ];
        for (kind, length) in lengths {
            full[0] = kind;
            assert!(header(kind, &full[..length]).is_some());
            assert_eq!(header(kind, &full[..length - 1]), None, "of type {kind:#x}, a byte short");
            assert_eq!(header(kind + 1, &full), None, "the tag is another");
            full[1] = NETWORK_ORDER;
            assert_eq!(header(kind, &full), None);
            full[1] = 0;
        }
        for control in [MATCH + 4, MATCH + 6, 0x20, 0] {
            full[0] = control;
            assert_eq!(header(control, &full), None);
        }
        assert_eq!(header(0, &[]), None);
    }
}
