// SPDX-License-Identifier: MIT OR Apache-2.0
//! The protocols, with a host whose ports are queues (`host`): messages to oneself, sends without a request and flow
//! control here, the `rendezvous`, which `rendezvous_steps` shows step by step, in `searches` the messages that arrive
//! and their receives, in `answers` the answers of others, and all in any order in `histories`; libfabric's envelopes
//! in `libfabric`. Grade: test. Threads: one.

mod answers;
mod histories;
mod host;
mod libfabric;
mod rendezvous;
mod rendezvous_steps;
mod searches;

use std::collections::{HashSet, VecDeque};

use super::events::Raised;
use super::events::at_once::raise_at_once;
use super::flow_control::state::RECORD;
use super::flow_control::{Limits, Word};
use super::header::{Header, Match, Memory, PortKey, WireEnvelope};
use super::loopback;
use super::matching::{Envelope, Pattern};
use super::receive;
use super::receive::arrived::{Arrived, Body};
use super::receive::delivery;
use super::receive::search::{self, Posting};
use super::rendezvous::fragments;
use super::rendezvous::read;
use super::rendezvous::stripes::{self, Part};
use super::request::transfer_id::TransferId;
use super::request::{Mode, Outcome, Role, Transfer};
use super::route::{Account, Route};
use super::send;
use crate::transport::Failed;
use host::{ABANDONED, CONTEXT, EAGER_LIMIT, LONG, NUMBER, ROUTE, SmallHost, by_rail};
use ibex_ffi::verbs::Status;

/// Returns the events of a copy of `bytes` bytes from a send to its receive.
fn copy_of(bytes: u64, send: usize, receive: usize) -> [(char, usize, (u64, u64)); 4] {
    let [begun, ended] = [(0, bytes), (bytes, 0)];
    [('B', send, begun), ('B', receive, begun), ('E', send, ended), ('E', receive, ended)]
}

#[test]
fn a_process_copies_a_message_to_itself_as_far_as_the_posted_receive_has_room() {
    for room in [12, 10, 4] {
        let mut host = SmallHost::new();
        let send = host.request(Role::Send(Mode::Standard), (0..10).collect());
        let receive = host.request(Role::Receive, vec![99; room]);
        host.queues.post(&host.lengths, || Pattern::new(3, 7), receive);
        loopback::send(&(), &mut host, send);
        let outcome = Outcome { source: 3, tag: 7, length: 10, is_truncated: room < 10 };
        assert_eq!((host.noted, host.finished), (vec![(receive, outcome)], vec![send, receive]));
        let expected: Vec<u8> = (0..10).chain([99; 2]).take(room).collect();
        assert_eq!(host.cores[receive].data, expected);
        assert_eq!((host.raised[0].0, &host.raised[1..]), ('a', &copy_of(room.min(10) as u64, send, receive)[..]));
    }
}

#[test]
fn a_process_stores_a_copy_of_a_message_to_itself_if_its_sender_may_go_on() {
    for (mode, length, is_copied) in [
        (Mode::Standard, 40, true),
        (Mode::Delivered, 40, true),
        (Mode::Standard, EAGER_LIMIT + 1, false),
        (Mode::Synchronous, 10, false),
    ] {
        let mut host = SmallHost::new();
        let send = host.request(Role::Send(mode), vec![5; length]);
        loopback::send(&(), &mut host, send);
        assert_eq!(host.finished, vec![send; usize::from(is_copied)]);
        let kept = host.queues.take_unexpected(&host.lengths, Pattern::new(3, 7)).expect("it is stored");
        assert_eq!(kept.message.length(), length);
        let letters: String = host.raised.drain(..).map(|(letter, ..)| letter).collect();
        assert_eq!(letters, if is_copied { "aBiE" } else { "ai" });
        let Body::ReadyToSend(sender, _) = kept.message.body else { continue };
        let receive = host.request(Role::Receive, vec![0; length]);
        for _ in 0..2 {
            loopback::receive(&mut host, receive, kept.envelope, sender);
            assert_eq!((&*host.finished, &host.cores[receive].data), (&[send, receive][..], &vec![5; length]));
            assert_eq!(host.raised, copy_of(length as u64, send, receive));
        }
    }
}

#[test]
fn a_send_without_a_request_raises_its_events_around_the_post_and_those_that_it_owes_if_it_is_not_posted() {
    let raised = |paths, has_room, is_posted| {
        let mut host = SmallHost::new();
        let post = |host: &mut SmallHost| {
            host.raised.push(('!', NUMBER as usize, (0, 0)));
            is_posted
        };
        let result = raise_at_once(&(), &mut host, paths, ((), ROUTE), ((3, 7), 4), has_room, post);
        assert!(host.raised.iter().all(|(_, number, _)| *number == NUMBER as usize), "one number");
        (result, host.raised.iter().map(|(letter, ..)| letter).collect::<String>())
    };
    assert_eq!(raised(true, true, true), (Ok(()), "AB!pEcn".to_owned()));
    assert_eq!(raised(false, true, true), (Ok(()), "AB!Ecn".to_owned()));
    assert_eq!(raised(true, true, false), (Err((NUMBER, Raised::Begin)), "AB!".to_owned()));
    assert_eq!(raised(true, false, true), (Err((NUMBER, Raised::Nothing)), "A".to_owned()));
}

#[test]
fn a_message_to_be_delivered_ends_when_its_receiver_has_it_and_a_synchronous_one_when_it_is_matched() {
    for (mode, is_posted, ends) in [
        (Mode::Delivered, false, true),
        (Mode::Delivered, true, true),
        (Mode::Synchronous, false, false),
        (Mode::Synchronous, true, true),
    ] {
        let limits = Limits { kept: 1000, window: 2 };
        let [mut sender, mut receiver] = [(); 2].map(|()| SmallHost::limited(limits, usize::MAX));
        if is_posted {
            receiver.receive(7);
        }
        let send = sender.request(Role::Send(mode), vec![5; 10]);
        send::begin(&(), &mut sender, send, ROUTE);
        assert!(sender.finished.is_empty(), "it waits for an answer");
        receiver.receive_from(&mut sender);
        assert_eq!((receiver.finished.len(), receiver.sent.len()), (usize::from(is_posted), usize::from(ends)));
        receiver.sent.drain(..).for_each(|answer| sender.handle(answer));
        assert_eq!(sender.finished, vec![send; usize::from(ends)]);
        let kept = receiver.queues.take_unexpected(&receiver.lengths, Pattern::new(3, 7));
        assert_eq!(kept.map(|kept| kept.message.length()), (!is_posted).then_some(10));
    }
}

#[test]
fn a_sender_that_is_held_back_announces_its_window_and_sends_the_rest_when_it_is_asked_for_more() {
    let (mut sender, mut receiver) = (SmallHost::new(), SmallHost::new());
    let deliver = |sender: &mut SmallHost, receiver: &mut SmallHost| {
        let mut kinds = String::new();
        while let Some(message) = sender.sent.pop_front() {
            kinds.push(match message.0 {
                Header::Eager(_) => 'e',
                Header::ReadyToSend(..) => 'a',
                Header::Pending(_) => 'p',
                Header::Fragment { .. } => 'f',
                _ => '?',
            });
            if let Header::Fragment { .. } = message.0 {
                sender.fragment_done();
            }
            receiver.handle(message);
        }
        kinds
    };
    (0..2).for_each(|number| sender.send(1, number, 4));
    assert_eq!(deliver(&mut sender, &mut receiver), "ee");
    sender.receive_from(&mut receiver);
    (2..6).for_each(|number| sender.send(1, number, 4));
    assert_eq!(deliver(&mut sender, &mut receiver), "aap", "one report of all that pend");
    assert!(receiver.sent.is_empty(), "no receive waits");
    receiver.receive(2);
    sender.receive_from(&mut receiver);
    assert_eq!(deliver(&mut sender, &mut receiver), "aa");
    sender.send(1, 6, 4);
    assert_eq!(deliver(&mut sender, &mut receiver), "p");
    sender.receive_from(&mut receiver);
    assert_eq!(deliver(&mut sender, &mut receiver), "a", "a receive waits");
    (0..7).for_each(|_| receiver.receive(1));
    receiver.sent.drain(..).for_each(|answer| sender.handle(answer));
    assert_eq!(deliver(&mut sender, &mut receiver), "fffff", "all announced messages were short");
    assert!(sender.messenger.flow.outgoing.is_free());
    assert_eq!(receiver.got(), (0..7).map(|number| (1, number)).collect::<Vec<_>>());
}

#[test]
fn an_abandoned_send_takes_no_place_in_the_window_of_a_peer_that_holds_back() {
    let mut sender = SmallHost::new();
    sender.handle((Header::Flow(Word { number: 1, holds_back: true }), Vec::new()));
    (0..4).for_each(|number| sender.send(1, number, 4));
    (2..4).for_each(|pending| sender.cores[pending].tag = ABANDONED);
    sender.handle((Header::More(CONTEXT), Vec::new()));
    assert_eq!(sender.finished, [2, 3]);
    sender.send(1, 4, 4);
    assert!(matches!(sender.sent.back(), Some((Header::ReadyToSend(..), _))), "the window of four has two messages");
}
