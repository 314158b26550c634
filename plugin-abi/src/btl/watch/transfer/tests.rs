// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transfers: both ends of a message, fed with the headers that pass between them.

use super::*;

const PEER: PeerName = PeerName { job: 1, rank: 3 };
const ENVELOPE: Envelope = Envelope { context: 4, source: 1, tag: 9, sequence: 77 };

/// Both ends of a message: what one sends arrives at the other.
struct Ends {
    sender: Transfers,
    receiver: Transfers,
    steps: Vec<Step>,
}

impl Ends {
    fn new() -> Ends {
        Ends { sender: Transfers::with_room(4), receiver: Transfers::with_room(4), steps: Vec::new() }
    }

    fn sender_says(&mut self, header: Header, bytes: u64) {
        self.steps.extend(self.sender.step(header, bytes, PEER, false));
        self.steps.extend(self.receiver.step(header, bytes, PEER, true));
    }

    fn receiver_says(&mut self, header: Header) {
        self.steps.extend(self.receiver.step(header, 0, PEER, false));
        self.steps.extend(self.sender.step(header, 0, PEER, true));
    }

    /// The receiver begins to read from this address on.
    fn receiver_reads(&mut self, address: u64) {
        self.steps.extend(self.receiver.reading(PEER, address));
    }

    /// Offset, bytes, first, last of the pieces of each side; all are of one message, which arrives once, and before
    /// all else is received.
    fn seen(&self) -> [Vec<(u64, u64, bool, bool)>; 2] {
        let received: Vec<_> = self.steps.iter().filter(|step| step.received).collect();
        assert!(received.iter().enumerate().all(|(index, step)| step.arrives == (index == 0)), "{received:?}");
        [false, true].map(|received| {
            let is_piece = |step: &&Step| !step.arrives || step.first;
            let side: Vec<_> = self.steps.iter().filter(|step| step.received == received).filter(is_piece).collect();
            assert!(side.iter().all(|step| step.message == side[0].message && step.envelope == ENVELOPE));
            assert_eq!(side.iter().map(|step| step.bytes).sum::<u64>(), side[0].total);
            side.iter().map(|step| (step.offset, step.bytes, step.first, step.last)).collect()
        })
    }

    fn nothing_is_left(&self) -> bool {
        let is_empty = |side: &Transfers| side.messages.is_empty() && side.pieces.is_empty() && side.unread.is_empty();
        is_empty(&self.sender) && is_empty(&self.receiver)
    }
}

#[test]
fn a_message_in_fragments_begins_goes_on_and_ends_once_on_each_side() {
    let mut ends = Ends::new();
    ends.sender_says(Header::Rendezvous { envelope: ENVELOPE, total: 100, sender: 0x10 }, 40);
    ends.receiver_says(Header::Acknowledgement { sender: 0x10, receiver: 0x20 });
    let fragment = |offset| Header::Fragment { offset, sender: 0x10, receiver: 0x20 };
    // They may overtake each other, on several ports.
    ends.sender_says(fragment(70), 30);
    ends.sender_says(fragment(40), 30);
    let expected = vec![(0, 40, true, false), (70, 30, false, false), (40, 30, false, true)];
    assert_eq!(ends.seen(), [expected.clone(), expected]);
    let requests: Vec<u64> = ends.steps.iter().map(|step| step.request).collect();
    assert_eq!(requests, [0x10, 0, 0x10, 0x20, 0x10, 0x20]);
    assert!(ends.nothing_is_left());
}

#[test]
fn the_reads_of_a_message_are_pieces_of_it_on_both_sides() {
    let mut ends = Ends::new();
    ends.sender_says(Header::Get { envelope: ENVELOPE, total: 100, sender: 0x10, address: 0x40, fragment: 0x30 }, 8);
    for (address, bytes) in [(0x40, 60), (0x40 + 60, 30), (0x40 + 90, 10)] {
        ends.receiver_reads(address);
        ends.receiver_says(Header::Finished { fragment: 0x30, bytes });
    }
    let expected = vec![(0, 0, true, false), (0, 60, false, false), (60, 30, false, false), (90, 10, false, true)];
    assert_eq!(ends.seen(), [expected.clone(), expected]);
    assert!(ends.nothing_is_left());
}

#[test]
fn the_announcement_of_a_message_is_no_piece_of_it_where_it_arrives() {
    let mut ends = Ends::new();
    ends.sender_says(Header::Get { envelope: ENVELOPE, total: 100, sender: 0x10, address: 0x40, fragment: 0x30 }, 8);
    assert!(ends.steps.iter().all(|step| !step.received || (step.arrives && !step.first && step.bytes == 0)));
    // A read whose begin nobody saw.
    for bytes in [60, 40] {
        ends.receiver_says(Header::Finished { fragment: 0x30, bytes });
    }
    assert_eq!(ends.seen()[1], [(0, 60, true, false), (60, 40, false, true)]);
    assert!(ends.nothing_is_left());
}

#[test]
fn two_messages_at_one_address_each_begin_once() {
    let mut transfers = Transfers::with_room(4);
    let announced =
        |sender| Header::Get { envelope: ENVELOPE, total: 100, sender, address: 0x40, fragment: sender + 0x20 };
    for sender in [0x10, 0x11] {
        assert!(!transfers.step(announced(sender), 0, PEER, true).expect("it arrives").first);
    }
    let mut begun = vec![];
    for sender in [0x10, 0x11] {
        begun.extend(transfers.reading(PEER, 0x40));
        let finished = Header::Finished { fragment: sender + 0x20, bytes: 100 };
        begun.extend(transfers.step(finished, 0, PEER, false).filter(|step| step.first));
    }
    assert_eq!(begun.len(), 2);
    assert_ne!(begun[0].message, begun[1].message);
    assert!(transfers.messages.is_empty() && transfers.pieces.is_empty() && transfers.unread.is_empty());
}

const GET: Header = Header::Get { envelope: ENVELOPE, total: 100, sender: 0x10, address: 0x40, fragment: 0x30 };

#[test]
fn a_message_that_is_read_is_known_by_what_was_noted_of_it_though_its_announcement_was_not_seen() {
    let noted = Some((ENVELOPE, Sent { request: 0x10, total: 100, done: 0 }));
    let read = |offset| Read { announcement: GET, offset };
    let mut ends = Ends::new();
    ends.receiver.adopt_read(PEER, read(0), false);
    ends.receiver_reads(0x40);
    // At its end it is known already.
    ends.receiver.adopt_read(PEER, read(0), true);
    ends.sender.adopt_sent(PEER, 0x30, || noted);
    ends.receiver_says(Header::Finished { fragment: 0x30, bytes: 100 });
    let seen: Vec<_> = ends.steps.iter().map(|step| (step.received, step.first, step.last, step.bytes)).collect();
    assert_eq!(seen, [(true, true, false, 0), (true, false, true, 100), (false, false, true, 100)]);
    assert!(ends.steps.iter().all(|step| step.envelope == ENVELOPE && step.total == 100));
    assert_eq!(ends.steps[0].message, ends.steps[1].message);
    assert!(ends.nothing_is_left());

    // The read was begun before, too, and another before that.
    let mut ends = Ends::new();
    ends.receiver.adopt_read(PEER, read(60), true);
    ends.receiver_reads(0x40);
    ends.sender.adopt_sent(PEER, 0x30, || noted.map(|(envelope, sent)| (envelope, Sent { done: 60, ..sent })));
    ends.receiver_says(Header::Finished { fragment: 0x30, bytes: 40 });
    let seen: Vec<_> = ends.steps.iter().map(|step| (step.received, step.first, step.last, step.offset)).collect();
    assert_eq!(seen, [(true, false, true, 60), (false, false, true, 60)], "no begin: that was before");
    assert!(ends.nothing_is_left());
}

#[test]
fn of_a_message_that_is_followed_nothing_is_looked_up() {
    let mut ends = Ends::new();
    ends.sender_says(GET, 8);
    ends.sender.adopt_sent(PEER, 0x30, || panic!("it is known"));
    ends.receiver.adopt_read(PEER, Read { announcement: GET, offset: 0 }, false);
    ends.receiver_reads(0x40);
    ends.receiver_says(Header::Finished { fragment: 0x30, bytes: 100 });
    let expected = vec![(0, 0, true, false), (0, 100, false, true)];
    assert_eq!(ends.seen(), [expected.clone(), expected]);
    assert!(ends.nothing_is_left());
}

#[test]
fn the_writes_of_a_message_are_pieces_of_it_on_both_sides() {
    let mut ends = Ends::new();
    ends.sender_says(Header::Rendezvous { envelope: ENVELOPE, total: 100, sender: 0x10 }, 40);
    for (offset, bytes, fragment) in [(40, 50, 0x30), (90, 10, 0x31)] {
        ends.receiver_says(Header::Put { offset, bytes, sender: 0x10, receiver: 0x20, fragment });
    }
    for (fragment, bytes) in [(0x31, 10), (0x30, 50)] {
        ends.sender_says(Header::Finished { fragment, bytes }, 0);
    }
    let expected = vec![(0, 40, true, false), (90, 10, false, false), (40, 50, false, true)];
    assert_eq!(ends.seen(), [expected.clone(), expected]);
    assert!(ends.nothing_is_left());
}

#[test]
fn a_message_that_was_to_be_read_may_come_in_fragments() {
    let mut ends = Ends::new();
    ends.sender_says(Header::Get { envelope: ENVELOPE, total: 100, sender: 0x10, address: 0x40, fragment: 0x30 }, 8);
    ends.receiver_says(Header::Acknowledgement { sender: 0x10, receiver: 0x20 });
    ends.sender_says(Header::Fragment { offset: 0, sender: 0x10, receiver: 0x20 }, 100);
    assert_eq!(ends.seen(), [vec![(0, 0, true, false), (0, 100, false, true)], vec![(0, 100, true, true)]]);
    assert!(ends.nothing_is_left());
}

#[test]
fn a_message_in_one_piece_begins_and_ends_with_it() {
    let mut ends = Ends::new();
    ends.sender_says(Header::Rendezvous { envelope: ENVELOPE, total: 40, sender: 0x10 }, 40);
    assert_eq!(ends.seen(), [vec![(0, 40, true, true)], vec![(0, 40, true, true)]]);
    let matched = step(Header::Match(ENVELOPE), 0, PEER, true, 0).expect("it is a message");
    assert!(matched.first && matched.last && matched.total == 0 && matched.received);
    assert!(ends.nothing_is_left());
}

#[test]
fn pieces_of_what_was_not_seen_and_too_many_bytes_are_nothing() {
    let mut transfers = Transfers::with_room(4);
    let fragment = Header::Fragment { offset: 0, sender: 0x10, receiver: 0x20 };
    assert_eq!(transfers.step(fragment, 10, PEER, true), None);
    assert_eq!(transfers.step(Header::Finished { fragment: 0x30, bytes: 10 }, 0, PEER, true), None);
    let announced = Header::Get { envelope: ENVELOPE, total: 100, sender: 0x10, address: 0x40, fragment: 0x30 };
    assert!(transfers.step(announced, 0, PEER, true).is_some_and(|step| step.arrives && !step.first));
    assert_eq!(transfers.step(Header::Finished { fragment: 0x30, bytes: -5 }, 0, PEER, false), None);
    assert_eq!(transfers.step(Header::Finished { fragment: 0x30, bytes: 101 }, 0, PEER, false), None);
    // Of another peer's message of that name.
    let other = PeerName { rank: 4, ..PEER };
    let acknowledged = Header::Acknowledgement { sender: 0x10, receiver: 0x20 };
    assert_eq!(transfers.step(acknowledged, 0, other, false), None);
    assert_eq!(transfers.step(fragment, 10, PEER, true), None);
    assert_eq!(transfers.step(acknowledged, 0, PEER, false), None);
    assert_eq!(transfers.step(fragment, u64::MAX, PEER, true), None);
    assert!(transfers.step(fragment, 10, PEER, true).is_some());
}

#[test]
fn a_senders_request_that_is_used_again_before_all_has_arrived_is_told_apart() {
    let mut transfers = Transfers::with_room(4);
    let announced = Header::Rendezvous { envelope: ENVELOPE, total: 100, sender: 0x10 };
    let fragment = |receiver| Header::Fragment { offset: 40, sender: 0x10, receiver };
    let first = transfers.step(announced, 40, PEER, true).expect("it begins");
    transfers.step(Header::Acknowledgement { sender: 0x10, receiver: 0x20 }, 0, PEER, false);
    let second = transfers.step(announced, 40, PEER, true).expect("it begins");
    transfers.step(Header::Acknowledgement { sender: 0x10, receiver: 0x21 }, 0, PEER, false);
    for (receiver, message) in [(0x21, second.message), (0x20, first.message)] {
        let end = transfers.step(fragment(receiver), 60, PEER, true).expect("it ends");
        assert_eq!((end.message, end.request, end.last), (message, receiver, true));
    }
}

#[test]
fn a_request_that_is_used_again_is_a_new_message() {
    let mut transfers = Transfers::with_room(4);
    let announced = |fragment| Header::Get { envelope: ENVELOPE, total: 100, sender: 0x10, address: 0x40, fragment };
    let first = transfers.step(announced(0x30), 0, PEER, false).expect("it begins");
    let second = transfers.step(announced(0x31), 0, PEER, false).expect("it begins");
    assert_ne!(first.message, second.message);
    assert_eq!(transfers.step(Header::Finished { fragment: 0x30, bytes: 50 }, 0, PEER, true), None);
    let piece = transfers.step(Header::Finished { fragment: 0x31, bytes: 50 }, 0, PEER, true).expect("of the second");
    assert_eq!((piece.message, piece.received), (second.message, false));
}
