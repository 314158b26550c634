// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages that arrive, and receives that are posted: which get each other, and what flow control is passed.

use super::*;
use crate::messenger::matching::{ANY_SOURCE, ANY_TAG};
use crate::messenger::path_taken::Reason;
use crate::messenger::receive::probe;

/// Returns an eager message from rank 3 with this tag and number.
fn eager(tag: i32, number: u32) -> (Header, Vec<u8>) {
    (Header::Eager(Match::new(CONTEXT, 3, tag)), number.to_le_bytes().into())
}

/// Posts a receive for this pattern. Returns it, and whether it has got a message at once.
fn post(host: &mut SmallHost, pattern: Pattern) -> (usize, bool) {
    post_with_events(host, pattern, false)
}

fn post_with_events(host: &mut SmallHost, pattern: Pattern, raises_events: bool) -> (usize, bool) {
    let receive = host.request(Role::Receive, vec![0; LONG]);
    let posting = if raises_events {
        search::post_with_events(&(), host, receive, pattern, false)
    } else {
        search::post(&(), host, receive, pattern)
    };
    (receive, posting == Posting::Matched)
}

/// Patterns, and whether they take a message of tag 7 from rank 3.
const PATTERNS: [(Pattern, bool); 7] = [
    (Pattern::new(3, 7), true),
    (Pattern::new(ANY_SOURCE, 7), true),
    (Pattern::new(3, ANY_TAG), true),
    (Pattern::new(ANY_SOURCE, ANY_TAG), true),
    (Pattern::new(2, 7), false),
    (Pattern::new(3, 8), false),
    (Pattern::new(2, ANY_TAG), false),
];

#[test]
fn a_message_goes_to_the_first_posted_receive_that_takes_it_whether_it_comes_whole_or_is_announced() {
    let memory = Memory::Unreadable { why: Reason::HeldBack, length: 4 };
    for (pattern, takes) in PATTERNS {
        let of = Match::new(CONTEXT, 3, 7);
        for message in [eager(7, 1), (Header::ReadyToSend(of, 1, memory), Vec::new())] {
            let mut host = SmallHost::new();
            let (first, _) = post(&mut host, pattern);
            let (second, _) = post(&mut host, Pattern::new(3, 7));
            host.handle(message);
            let expected = Outcome { source: 3, tag: 7, length: 4, is_truncated: false };
            assert_eq!(host.noted, [(if takes { first } else { second }, expected)], "{pattern:?}");
            assert_eq!((host.queues.posted(), host.queues.unexpected()), (1, 0));
        }
    }
}

#[test]
fn a_message_that_no_receive_takes_is_stored_until_one_does() {
    for ((pattern, takes), raises_events) in PATTERNS.into_iter().flat_map(|of| [(of, false), (of, true)]) {
        let mut host = SmallHost::new();
        host.handle(eager(7, 5));
        assert_eq!(host.messenger.flow.kept.bytes(), RECORD);
        let (receive, has_matched) = post_with_events(&mut host, pattern, raises_events);
        assert_eq!((has_matched, host.queues.posted()), (takes, u32::from(!takes)), "{pattern:?}");
        assert_eq!(host.messenger.flow.kept.bytes(), if takes { 0 } else { RECORD });
        assert_eq!(host.cores[receive].data[0], if takes { 5 } else { 0 });
    }
}

#[test]
fn a_search_raises_its_events_before_its_receive_gets_a_message_or_is_posted() {
    for (message, raised) in [(None, "()P"), (Some(8), "ai()P"), (Some(7), "ai()rBE")] {
        let mut host = SmallHost::new();
        if let Some(tag) = message {
            host.handle(eager(tag, 5));
        }
        let (_, has_matched) = post_with_events(&mut host, Pattern::new(3, 7), true);
        let steps: String = host.raised.iter().map(|raised| raised.0).collect();
        assert_eq!((&*steps, has_matched), (raised, message == Some(7)));
    }
}

#[test]
fn tools_know_a_stored_message_by_the_number_that_it_got_on_arrival() {
    let of = Match::new(CONTEXT, 3, 7);
    let memory = Memory::Unreadable { why: Reason::HeldBack, length: 4 };
    for message in [eager(7, 1), (Header::ReadyToSend(of, 1, memory), Vec::new())] {
        let mut host = SmallHost::new();
        host.handle(message);
        assert_eq!(host.raised, ['a', 'i'].map(|step| (step, NUMBER as usize, (0, 0))));
    }
}

#[test]
fn messages_that_arrive_before_their_communicator_are_delivered_in_order_when_it_is_added() {
    let mut host = SmallHost::new();
    host.messenger.contexts.remove(CONTEXT);
    (0..3).for_each(|number| host.handle(eager(7, number)));
    assert_eq!((host.queues.unexpected(), host.messenger.flow.kept.bytes()), (0, 3 * RECORD));
    assert!(host.sent.is_empty(), "nobody knows yet who has sent them");
    let kept = host.messenger.contexts.add(CONTEXT, ()).expect("the number is free");
    host.receive(7);
    search::deliver_early(&(), &mut host, CONTEXT, kept);
    host.handle(eager(7, 3));
    assert_eq!((host.queues.unexpected(), host.messenger.flow.kept.bytes()), (3, 3 * RECORD));
    assert!(matches!(host.sent.front(), Some((Header::Flow(word), _)) if word.holds_back));
    (0..3).for_each(|_| host.receive(7));
    assert_eq!(host.got(), (0..4).map(|number| (7, number)).collect::<Vec<_>>());
    assert_eq!(host.messenger.flow.kept.bytes(), 0);
}

#[test]
fn a_message_that_arrives_before_its_communicator_keeps_the_route_by_which_its_sender_is_held_back() {
    let mut host = SmallHost::new();
    host.messenger.contexts.remove(CONTEXT);
    for (header, bytes) in (0..2).map(|number| eager(7, number)) {
        let message = [header.encode().as_slice(), &bytes].concat();
        receive::handle(&(), &mut host, &message, || Some(by_rail(0)));
    }
    let kept = host.messenger.contexts.add(CONTEXT, ()).expect("the number is free");
    search::deliver_early(&(), &mut host, CONTEXT, kept);
    // By the rank alone, the host would know the sender by another route.
    let (held_back, _) = host.messenger.flow.kept.let_go();
    assert_eq!(held_back, [Account(by_rail(0))]);
}

#[test]
fn a_message_that_no_waiting_receive_takes_asks_for_the_pending_messages_of_its_communicator() {
    for waits in [false, true] {
        let mut host = SmallHost::new();
        host.handle(eager(7, 0));
        host.handle((Header::Pending(CONTEXT), Vec::new()));
        if waits {
            // Not by `post`, which would ask.
            host.queues.post(&host.lengths, || Pattern::new(3, 8), 99);
        }
        host.handle((Header::Synchronous(Match::new(CONTEXT, 3, 7), 1), Vec::new()));
        let asked = host.sent.iter().any(|(header, _)| *header == Header::More(CONTEXT));
        assert_eq!(asked, waits);
    }
}

#[test]
fn a_receive_asks_for_pending_messages_only_if_it_has_looked_through_others_in_vain() {
    for (stored, asks) in [(1, false), (2, true)] {
        let mut host = SmallHost::new();
        (0..stored).for_each(|number| host.handle(eager(7, number)));
        host.handle((Header::Pending(CONTEXT), Vec::new()));
        host.receive(7);
        host.receive(8);
        assert_eq!(host.sent.iter().any(|(header, _)| *header == Header::More(CONTEXT)), asks);
    }
}

#[test]
fn a_probe_asks_for_pending_messages_if_it_finds_none() {
    for (tag, takes) in [(8, false), (8, true), (7, false), (7, true)] {
        let mut host = SmallHost::new();
        host.handle(eager(7, 0));
        host.handle((Header::Pending(CONTEXT), Vec::new()));
        let found = probe::probe(&(), &mut host, (), (3, tag), takes);
        assert_eq!(found.map(|found| found.message.is_some()), (tag == 7).then_some(takes));
        assert_eq!(host.sent.iter().any(|(header, _)| *header == Header::More(CONTEXT)), tag == 8);
    }
}

#[test]
fn a_receive_asks_for_pending_messages_while_the_message_of_a_matched_probe_is_not_received() {
    for (is_received, raises) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut host = SmallHost::new();
        host.handle(eager(7, 0));
        let found = probe::probe(&(), &mut host, (), (3, 7), true).and_then(|found| found.message);
        host.handle((Header::Pending(CONTEXT), Vec::new()));
        if is_received {
            let receive = host.request(Role::Receive, vec![0; LONG]);
            probe::receive(&(), &mut host, receive, found.expect("it was stored"));
        }
        post_with_events(&mut host, Pattern::new(3, 7), raises);
        assert_eq!(host.sent.iter().any(|(header, _)| *header == Header::More(CONTEXT)), !is_received);
    }
}

#[test]
fn a_message_that_a_probe_has_taken_out_has_the_number_that_tools_know_then() {
    for hears in [None, Some(false)] {
        let mut host = SmallHost::new();
        host.hears = hears;
        host.handle(eager(7, 6));
        host.hears = Some(false);
        let found = probe::probe(&(), &mut host, (), (3, 7), true).and_then(|found| found.message);
        let (step, number, _) = *host.raised.last().expect("the probe has raised events");
        let receive = host.request(Role::Receive, vec![0; LONG]);
        probe::receive(&(), &mut host, receive, found.expect("it was stored"));
        assert_eq!((step, host.cores[receive].watched.message()), ('r', number as u64));
        assert!(number as u64 >= NUMBER && host.cores[receive].data[0] == 6);
    }
}

#[test]
fn a_sender_goes_on_when_a_receive_takes_the_message_that_held_it_back() {
    let mut host = SmallHost::new();
    (0..3).for_each(|number| host.handle(eager(7, number)));
    let held_back = |host: &mut SmallHost| {
        let words = host.sent.drain(..).filter_map(|(header, _)| match header {
            Header::Flow(word) => Some(word.holds_back),
            _ => None,
        });
        words.collect::<Vec<_>>()
    };
    assert_eq!(held_back(&mut host), [true], "once");
    host.receive(7);
    host.receive(7);
    assert_eq!(held_back(&mut host), [], "one is still more than half of the bound");
    host.receive(7);
    assert_eq!(held_back(&mut host), [false]);
}

#[test]
fn an_eager_message_is_taken_in_place_if_its_receive_is_posted_or_deferred_if_it_raises_events() {
    let encode = |(header, bytes): (Header, Vec<u8>)| [header.encode().as_slice(), &bytes].concat();
    let message = encode(eager(7, 6));
    let other = encode((Header::Eager(Match::new(CONTEXT + 1, 3, 7)), Vec::new()));
    for raises_events in [false, true] {
        let (mut host, mut deferred) = (SmallHost::new(), None);
        host.queues.set_raises_events(&host.lengths, raises_events);
        let mut take =
            |host: &mut SmallHost, message: &[u8]| search::is_taken(host, message, |_| None, Some(&mut deferred));
        assert!(!take(&mut host, &message), "no receive");
        host.receive(7);
        assert!(!take(&mut host, &other) && !take(&mut host, &message[..3]));
        assert!(!raises_events || !search::is_taken(&mut host, &message, |_| None, None), "no place");
        assert!(take(&mut host, &message) && host.finished.is_empty() == raises_events);
        assert!(!take(&mut host, &message), "the receive has its message, or the place is in use");
        if let Some(deferred) = deferred {
            search::deliver(&(), &mut host, &deferred);
        }
        let raised = [('a', NUMBER as usize, (0, 0)), ('B', 0, (0, 4)), ('E', 0, (4, 0))];
        assert_eq!((host.got(), &*host.raised), (vec![(7, 6)], if raises_events { &raised[..] } else { &[] }));
    }
}
