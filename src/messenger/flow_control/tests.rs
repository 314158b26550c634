// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each rule of the two records alone. Random histories of two processes are in `messenger/tests/histories.rs`.

use super::*;
use std::cell::Cell;

const LIMITS: Limits = Limits { kept: 100, window: 2 };
const COUNTED: SendPath = SendPath::Rendezvous { counted: true };
const PEER: u8 = 7;

fn hold_back(outgoing: &mut Outgoing<u8, u32>, number: u64) {
    assert!(outgoing.heard(PEER, Word { number, holds_back: true }).is_some());
}

#[test]
fn a_sender_that_no_peer_held_back_sends_freely() {
    let mut outgoing = Outgoing::<u8, u32>::new(LIMITS);
    assert!(outgoing.is_free());
    assert_eq!(
        (outgoing.send_path(PEER, (0, false)), outgoing.send_path(PEER, (0, true))),
        (SendPath::Free, SendPath::Free)
    );
    assert!(outgoing.is_free() && outgoing.may_pass(PEER, 0));
}

#[test]
fn a_held_back_sender_announces_a_window_and_its_later_messages_pend() {
    let mut outgoing = Outgoing::new(LIMITS);
    hold_back(&mut outgoing, 1);
    assert!(!outgoing.is_free() && !outgoing.may_pass(PEER, 0));
    assert_eq!([0; 3].map(|_| outgoing.send_path(PEER, (0, false))), [COUNTED, COUNTED, SendPath::Pending]);
    assert!(!outgoing.must_send_pending(PEER, 0));
    assert_eq!([1, 2].map(|send| outgoing.pend(PEER, (0, false), send)), [true, false], "once");
    assert!(!outgoing.must_send_pending(PEER, 0));
    assert_eq!(outgoing.send_path(PEER, (0, true)), SendPath::Rendezvous { counted: false }, "the library's own");
    assert_eq!(outgoing.send_path(PEER, (1, false)), COUNTED, "another communicator");
    assert_eq!(outgoing.next(PEER, 0), None);
    outgoing.answered(PEER, 0);
    assert_eq!(outgoing.send_path(PEER, (0, false)), SendPath::Pending, "behind those that pend");
    assert_eq!((outgoing.next(PEER, 0), outgoing.next(PEER, 0)), (Some((1, COUNTED)), None));
}

#[test]
fn a_sender_that_is_asked_for_more_announces_as_many_messages_again() {
    let mut outgoing = Outgoing::new(LIMITS);
    hold_back(&mut outgoing, 1);
    assert_eq!([0; 2].map(|_| outgoing.send_path(PEER, (0, false))), [COUNTED; 2]);
    assert_eq!([0, 1, 2, 3].map(|send| outgoing.pend(PEER, (0, false), send)), [true, false, false, false]);
    outgoing.more(PEER, 0);
    assert_eq!([0; 3].map(|_| outgoing.next(PEER, 0).map(|(send, _)| send)), [Some(0), Some(1), None]);
    assert!(outgoing.must_send_pending(PEER, 0), "two still pend");
    outgoing.more(PEER, 0);
    assert_eq!([0; 3].map(|_| outgoing.next(PEER, 0).map(|(send, _)| send)), [Some(2), Some(3), None]);
    assert!(!outgoing.must_send_pending(PEER, 0));
    outgoing.more(9, 0);
    assert!(!outgoing.must_send_pending(9, 0));
}

#[test]
fn the_word_with_the_highest_number_counts_in_whichever_order_words_arrive() {
    let mut outgoing = Outgoing::<u8, u32>::new(LIMITS);
    assert!(outgoing.heard(PEER, Word { number: 8, holds_back: false }).is_some());
    assert_eq!(outgoing.heard(PEER, Word { number: 7, holds_back: true }), None);
    assert_eq!(outgoing.send_path(PEER, (0, false)), SendPath::Free);
    // All peers share the numbers, so a peer may see large gaps.
    assert!(outgoing.heard(PEER, Word { number: 9 + (1 << 31), holds_back: true }).is_some());
    assert_eq!(outgoing.send_path(PEER, (0, false)), COUNTED);
    let mut kept = Kept::<u8> { number: u64::from(u32::MAX), ..Kept::new(LIMITS) };
    let word = kept.hold_back(PEER).expect("the first time");
    assert!(outgoing.heard(PEER, Word { holds_back: false, ..word }).is_some());
    assert_eq!(outgoing.send_path(PEER, (1, false)), SendPath::Free);
}

#[test]
fn a_sender_that_may_go_on_is_as_free_as_before_it_was_held_back() {
    let mut outgoing = Outgoing::new(LIMITS);
    hold_back(&mut outgoing, 1);
    assert_eq!([0; 2].map(|_| outgoing.send_path(PEER, (0, false))), [COUNTED; 2]);
    outgoing.pend(PEER, (0, false), 1);
    assert!(outgoing.heard(PEER, Word { number: 2, holds_back: false }).is_some());
    assert_eq!((outgoing.next(PEER, 0), outgoing.next(PEER, 0)), (Some((1, SendPath::Free)), None));
    outgoing.found_no_room(PEER, (0, false), 1);
    outgoing.answered(PEER, 0);
    outgoing.answered(PEER, 0);
    assert!(!outgoing.is_free(), "a message pends for room");
    assert_eq!((outgoing.next_in_turn(PEER), outgoing.next_in_turn(PEER)), (Some((1, SendPath::Free)), None));
    outgoing.has_room(PEER);
    assert!(outgoing.is_free());
    assert_eq!(outgoing.heard(PEER, Word { number: 1, holds_back: true }), None, "it was said before the last");
    assert!(outgoing.is_free());
}

#[test]
fn a_held_back_sender_is_not_free_although_no_message_pends() {
    let mut outgoing = Outgoing::<u8, u32>::new(LIMITS);
    outgoing.found_no_room(PEER, (0, false), 1);
    hold_back(&mut outgoing, 1);
    assert_eq!(outgoing.next_in_turn(PEER), Some((1, COUNTED)));
    outgoing.has_room(PEER);
    assert!(!outgoing.is_free());
    assert_eq!(outgoing.send_path(PEER, (0, false)), COUNTED);
    assert!(outgoing.heard(PEER, Word { number: 2, holds_back: false }).is_some());
    assert!(!outgoing.is_free(), "two are not answered");
    outgoing.answered(PEER, 0);
    outgoing.answered(PEER, 0);
    assert!(outgoing.is_free());
}

#[test]
fn all_messages_to_a_peer_pend_behind_one_that_finds_no_room() {
    let mut outgoing = Outgoing::<u8, u32>::new(LIMITS);
    assert_eq!(outgoing.send_path(PEER, (0, false)), SendPath::Free);
    outgoing.found_no_room(PEER, (0, false), 1);
    let paths = [(PEER, (0, false)), (PEER, (1, false)), (PEER, (0, true)), (9, (0, false))]
        .map(|(peer, of)| outgoing.send_path(peer, of));
    assert_eq!(
        paths,
        [SendPath::Pending, SendPath::Pending, SendPath::Pending, SendPath::Free],
        "another peer does not wait"
    );
    assert!(!outgoing.pend(PEER, (0, false), 2), "the peer has nothing to do with it");
    assert!(!outgoing.may_pass(PEER, 0) && outgoing.is_full(PEER));
    assert_eq!(outgoing.next(PEER, 0), None, "it is not their turn");
    assert_eq!(outgoing.next_in_turn(PEER), Some((1, SendPath::Free)));
    outgoing.found_no_room(PEER, (0, false), 1);
    assert_eq!(outgoing.send_path(PEER, (0, false)), SendPath::Pending);
    assert_eq!([0; 3].map(|_| outgoing.next_in_turn(PEER).map(|(send, _)| send)), [Some(1), Some(2), None]);
    outgoing.has_room(PEER);
    assert!(outgoing.is_free() && !outgoing.is_full(PEER));
    assert_eq!(outgoing.next_in_turn(PEER), None);
}

#[test]
fn a_sender_held_back_while_messages_pend_for_room_announces_a_window_of_them_in_turn() {
    let mut outgoing = Outgoing::<u8, u32>::new(LIMITS);
    outgoing.found_no_room(PEER, (0, false), 1);
    for (of_library, send) in [(false, 2), (false, 3), (true, 4)] {
        assert!(!outgoing.pend(PEER, (0, of_library), send));
    }
    assert_eq!(outgoing.heard(PEER, Word { number: 1, holds_back: true }), Some(vec![0]));
    assert_eq!((outgoing.next(PEER, 0), outgoing.must_send_pending(PEER, 0)), (None, true));
    let gone: Vec<_> = std::iter::from_fn(|| outgoing.next_in_turn(PEER)).collect();
    assert_eq!(gone, [(4, SendPath::Rendezvous { counted: false }), (1, COUNTED), (2, COUNTED)]);
    outgoing.has_room(PEER);
    assert!(!outgoing.is_full(PEER) && !outgoing.must_send_pending(PEER, 0));
    outgoing.answered(PEER, 0);
    assert_eq!((outgoing.next(PEER, 0), outgoing.next(PEER, 0)), (Some((3, COUNTED)), None));
}

#[test]
fn communicators_have_their_turns_one_after_the_other() {
    let mut outgoing = Outgoing::<u8, u32>::new(LIMITS);
    outgoing.found_no_room(PEER, (3, false), 1);
    for (context, of_library, send) in [(5, false, 2), (3, false, 3), (9, false, 4), (3, true, 5)] {
        outgoing.pend(PEER, (context, of_library), send);
    }
    let gone: Vec<u32> = std::iter::from_fn(|| outgoing.next_in_turn(PEER)).map(|(send, _)| send).collect();
    assert_eq!(gone, [1, 5, 2, 4, 3]);
}

#[test]
fn flow_control_forgets_a_peer_that_has_gone() {
    let (mut outgoing, mut kept) = (Outgoing::<u8, u32>::new(LIMITS), Kept::new(LIMITS));
    hold_back(&mut outgoing, 1);
    outgoing.pend(PEER, (3, false), 1);
    assert_eq!((outgoing.send_path(PEER, (4, false)), outgoing.send_path(9, (4, false))), (COUNTED, SendPath::Free));
    outgoing.found_no_room(PEER, (4, false), 2);
    kept.keep(LIMITS.kept + 1);
    assert!(kept.hold_back(PEER).is_some());
    kept.pends(PEER, 3);
    outgoing.forget(PEER);
    kept.forget(PEER);
    kept.give_up(LIMITS.kept + 1);
    assert!(outgoing.is_free() && !kept.has_pending() && !kept.has_room());
}

thread_local! {
    static COMPARED: Cell<u32> = const { Cell::new(0) };
}

#[derive(Debug, Clone, Copy, Eq)]
struct Counted(u32);

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        COMPARED.set(COMPARED.get() + 1);
        self.0 == other.0
    }
}

impl Hash for Counted {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        COMPARED.set(COMPARED.get() + 1);
        self.0.hash(state);
    }
}

/// Returns how often `work` compared or hashed a peer.
fn looks<T>(work: impl FnOnce() -> T) -> u32 {
    COMPARED.set(0);
    work();
    COMPARED.get()
}

#[test]
fn a_message_costs_the_same_whatever_pends_to_however_many_peers() {
    let mut outgoing = Outgoing::new(LIMITS);
    let mut kept = Kept::new(LIMITS);
    for peer in (0..1000).map(Counted) {
        outgoing.found_no_room(peer, (0, false), 0);
        for context in 0..100 {
            outgoing.pend(peer, (context, false), context);
            kept.pends(peer, context);
        }
    }
    let peer = Counted(500);
    // Each table costs a hash, and a comparison with one or two other peers.
    assert!(looks(|| assert_eq!(outgoing.send_path(peer, (7, false)), SendPath::Pending)) <= 10);
    assert!(looks(|| assert!(outgoing.next_in_turn(peer).is_some())) <= 10);
    assert!(looks(|| outgoing.has_room(peer)) <= 20);
    assert!(looks(|| outgoing.heard(peer, Word { number: 1, holds_back: true })) <= 10);
    assert!(looks(|| outgoing.answered(peer, 7)) <= 10);
    assert!(looks(|| kept.ask_for_more(1000)) == 0, "nobody is to be asked");
    assert!(looks(|| assert_eq!(kept.ask_for_more(7).len(), 1000)) == 0);
}

#[test]
fn a_receiver_holds_senders_back_beyond_the_bound_and_lets_them_go_below_half_of_it() {
    let mut kept = Kept::new(LIMITS);
    assert_eq!([60, 40, 1].map(|bytes| kept.keep(bytes)), [false, false, true]);
    let word = kept.hold_back('a').expect("the first time");
    assert!(word.holds_back);
    assert_eq!(kept.hold_back('a'), None);
    let mut has_room_without = |bytes| {
        kept.give_up(bytes);
        kept.has_room()
    };
    assert_eq!([50, 1].map(&mut has_room_without), [false, true]);
    let (peers, last) = kept.let_go();
    assert_eq!(peers, ['a']);
    assert!(!last.holds_back && last.number > word.number);
    kept.give_up(50);
    assert!(!kept.has_room(), "nobody is held back");
    assert_eq!(kept.bytes(), 0);
}

#[test]
fn a_receiver_asks_a_sender_once_for_its_pending_messages() {
    let mut kept = Kept::new(LIMITS);
    kept.pends('a', 1);
    kept.pends('a', 1);
    kept.pends('b', 2);
    assert_eq!((kept.ask_for_more(1), kept.ask_for_more(1)), (vec!['a'], vec![]));
    assert!(kept.has_pending());
    assert_eq!(kept.ask_for_more(2), ['b']);
    assert!(!kept.has_pending());
}
