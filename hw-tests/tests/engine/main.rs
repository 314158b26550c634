// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine on a real device: two ports of one process that talk to each other through the adapter.
//!
//! `IBEX_DEVICE` names the device; without it every test fails, so each is ignored unless asked for (`--ignored`), as
//! `cargo xtask test` does. One thread polls both ports, so that the test chooses the order of events.

mod pair;
mod random;
mod receiver_not_ready;
mod reconnects;
mod strangers;

use ibex::interfaces;
use ibex::transport::Token;
use ibex::transport::WhenDiverted;
use ibex::transport::{Refused, Sent};
use ibex::tunables::Tunables;
use ibex_ffi::verbs::{InlineSpan, RemoteSpan, Status};
use std::cell::Cell;
use std::net::Ipv6Addr;

use pair::{Got, Memory, Pair, completed, pattern, received};

/// Prints why a test cannot run here (tests/device/engine.rs counts it).
fn skip(reason: &str) {
    println!("\nskip {reason}");
}

fn numbers(events: &[Got]) -> Vec<u32> {
    received(events).iter().map(|(_, bytes)| u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))).collect()
}

/// Whether the failure of the connection is reported before each request that failed with it.
fn is_failure_first(events: &[Got]) -> bool {
    let failure = events.iter().position(|event| *event == Got::Failure);
    let failed = events.iter().position(|event| matches!(event, Got::Done { outcome: Err(_), .. }));
    failure.is_some() && failed.is_none_or(|failed| failure < Some(failed))
}

#[test]
#[ignore = "needs an RDMA device (IBEX_DEVICE)"]
fn messages_of_every_kind_arrive_whole_and_in_order() {
    let mut pair = Pair::open(&Tunables::default());
    let mut slots = Memory::new(&pair.a, 4096, 3);
    // An adapter that takes one span cannot send a message of two spans.
    let kinds = if pair.a.attributes().gathers { 3 } else { 2 };
    for round in 0..200_u32 {
        let text = pattern(round, 40);
        match round % kinds {
            0 => pair.send_inline(7, &text[..14], &text[14..]),
            1 => {
                slots.write(0, &text);
                pair.send(7, &[slots.span(0).first(40)], 1);
            }
            _ => {
                slots.write(1, &text[..14]);
                slots.write(2, &text[14..]);
                pair.send(7, &[slots.span(1).first(14), slots.span(2).first(26)], 2);
            }
        }
        let messages = pair.until_b(|events| !received(events).is_empty());
        assert_eq!(received(&messages), [(7, text)]);
    }
}

#[test]
#[ignore = "needs an RDMA device (IBEX_DEVICE)"]
fn the_model_of_the_adapter_and_the_device_report_the_same_of_random_programs() {
    random::check();
}

#[test]
#[ignore = "needs an RDMA device (IBEX_DEVICE)"]
fn more_requests_than_the_queues_hold_wait_in_order_and_are_not_lost() {
    let tunables =
        Tunables { send_queue_depth: 16, completion_queue_depth: 256, receive_queue_depth: 64, ..Tunables::default() };
    let mut pair = Pair::open(&tunables);
    let mut slots = Memory::new(&pair.a, 64, 1000);
    for number in 0..1000 {
        slots.write(number, &(number as u32).to_le_bytes());
        pair.send(1, &[slots.span(number).first(4)], number as u64 + 1);
    }
    assert!(pair.count_a("queued") >= 900, "{} queued", pair.count_a("queued"));
    let events = pair.until_b(|events| received(events).len() == 1000);
    assert_eq!(numbers(&events), (0..1000).collect::<Vec<_>>());
    pair.a.reclaim(&mut |_| false);
    let tokens = pair.until_a(|events| completed(events).len() == 1000);
    assert_eq!(completed(&tokens), (1..=1000).map(|token| (token, Ok(()))).collect::<Vec<_>>());
    assert_eq!(pair.count_a("waiting"), 0);
}

#[test]
#[ignore = "needs an RDMA device (IBEX_DEVICE)"]
fn a_sender_that_only_asks_for_its_buffers_back_connects_and_gets_them() {
    let mut pair = Pair::open(&Tunables::default());
    let mut slots = Memory::new(&pair.a, 64, 100);
    for number in 0..100 {
        slots.write(number, &(number as u32).to_le_bytes());
        pair.send(1, &[slots.span(number).first(4)], number as u64 + 1);
    }
    // `a` is never polled: a program that sends in a loop may never call its library's progress.
    let messages = pair.until_b_while_a(|a| a.reclaim(&mut |_| false), |events| received(events).len() == 100);
    assert_eq!(numbers(&messages), (0..100).collect::<Vec<_>>());
    let tokens = pair.until_a(|events| completed(events).len() == 100);
    assert_eq!(completed(&tokens), (1..=100).map(|token| (token, Ok(()))).collect::<Vec<_>>());
}

#[test]
#[ignore = "needs an RDMA device (IBEX_DEVICE)"]
fn a_send_that_cannot_be_posted_says_so_and_nothing_of_it_is_kept() {
    let mut pair = Pair::open(&Tunables { send_queue_depth: 16, receive_queue_depth: 64, ..Tunables::default() });
    let mut slots = Memory::new(&pair.a, 64, 1);
    slots.write(0, b"kept");
    let span = slots.span(0).first(4);
    assert_eq!(pair.a.send(pair.to_b, 1, &[span], Token(1), true), Ok(Sent::Busy), "before there is a connection");
    assert!(!pair.a.has_room(pair.to_b));
    pair.connect();
    assert!(pair.a.has_room(pair.to_b));
    // Nobody polls, so nothing is retired: the queue fills.
    let is_inline = pair.a.attributes().max_inline >= 6;
    let post = |_: &u32| {
        if is_inline {
            pair.a.send_inline(pair.to_b, 2, b"posted"[..].into(), InlineSpan::EMPTY) == Ok(Sent::Posted)
        } else {
            pair.a.send(pair.to_b, 2, &[span], Token(0), false) == Ok(Sent::Posted)
        }
    };
    let posted = (0..100).take_while(post).count();
    assert!((1..100).contains(&posted), "{posted} posted");
    assert_eq!(pair.a.send(pair.to_b, 1, &[span], Token(1), true), Ok(Sent::Busy), "while the queue is full");
    let messages = pair.until_b(|events| received(events).len() == posted);
    assert!(received(&messages).iter().all(|(tag, _)| *tag == 2));
    let tokens = pair.until_a(|_| true);
    assert_eq!(completed(&tokens), []);
    assert_eq!(pair.count_a("waiting"), 0);
}

#[test]
#[ignore = "needs an RDMA device (IBEX_DEVICE)"]
fn messages_wait_in_ordinary_memory_for_their_turn_and_stay_in_order() {
    let mut pair = Pair::open(&Tunables { send_queue_depth: 16, ..Tunables::default() });
    let mut slots = Memory::new(&pair.a, 64, 1);
    slots.write(0, b"slot");
    // Short messages travel in the work request, long ones in bounce buffers, of which there are fewer than messages.
    let messages: Vec<Vec<u8>> =
        (0..500_u32).map(|number| pattern(number, [7, 100, 700, 4096][number as usize % 4])).collect();
    for (number, bytes) in messages.iter().enumerate() {
        pair.queue_bytes(1, bytes, number as u64 + 1);
        if number % 100 == 99 {
            pair.send(2, &[slots.span(0).first(4)], number as u64 + 1001);
        }
    }
    let is_ours = |event: &(u8, Vec<u8>)| event.0 == 1;
    let events = pair.until_b(|events| received(events).len() == 505);
    let (ours, others): (Vec<_>, Vec<_>) = received(&events).into_iter().partition(is_ours);
    assert_eq!(ours.into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>(), messages);
    assert_eq!(others, vec![(2, b"slot".to_vec()); 5]);
    let tokens = pair.until_a(|events| completed(events).len() == 505);
    let wanted = (1..=500).flat_map(|token| match token % 100 {
        0 => vec![(token, Ok(())), (token + 1000, Ok(()))],
        _ => vec![(token, Ok(()))],
    });
    assert_eq!(completed(&tokens), wanted.collect::<Vec<_>>());
    let too_long = pair.a.queue_bytes(pair.to_b, 1, (vec![0; 4097].into(), 4097), Token(9), WhenDiverted::Refuse);
    assert_eq!(too_long, Err(Refused), "larger than a bounce buffer");
    let too_few = pair.a.queue_bytes(pair.to_b, 1, (vec![0; 10].into(), 11), Token(9), WhenDiverted::Refuse);
    assert_eq!(too_few, Err(Refused), "fewer bytes than the message is said to have");
}

#[test]
#[ignore = "needs an RDMA device (IBEX_DEVICE)"]
fn reap_hands_out_the_tokens_its_caller_wants_and_the_next_poll_reports_the_rest() {
    let mut pair = Pair::open(&Tunables::default());
    pair.connect();
    for token in 1..=20 {
        pair.queue_bytes(1, b"one of twenty", token);
    }
    let (shown, mut taken) = (Cell::new(0), Vec::new());
    let mut take = |token: Token| {
        shown.set(shown.get() + 1);
        let is_even = token.0.is_multiple_of(2);
        taken.extend(is_even.then_some(token.0));
        is_even
    };
    pair.until_b_while_a(|a| a.reap(&mut take), |events| received(events).len() == 20 && shown.get() == 20);
    let events = pair.until_a(|events| completed(events).len() == 10);
    assert_eq!(taken, (2..=20).step_by(2).collect::<Vec<_>>());
    assert_eq!(completed(&events), (1..=19).step_by(2).map(|token| (token, Ok(()))).collect::<Vec<_>>());
}

#[test]
#[ignore = "needs an RDMA device (IBEX_DEVICE)"]
fn an_inline_put_needs_no_registered_memory() {
    let mut pair = Pair::open(&Tunables::default());
    if pair.a.attributes().max_inline < 16 {
        return skip("the adapter has no inline data");
    }
    let there = Memory::new(pair.b(), 64, 1);
    pair.put_inline(b"sixteen bytes ok", there.remote(0), 9);
    pair.until_a(|events| completed(events) == [(9, Ok(()))]);
    assert_eq!(&there.read(0)[..16], b"sixteen bytes ok");
}

#[test]
#[ignore = "needs an RDMA device (IBEX_DEVICE)"]
fn a_put_to_memory_the_peer_did_not_give_fails_and_names_the_peer_and_the_status() {
    let mut pair = Pair::open(&Tunables::default());
    let here = Memory::new(&pair.a, 64, 1);
    let there = Memory::new(pair.b(), 64, 1);
    let wrong = RemoteSpan { rkey: there.remote(0).rkey ^ 0x5555, ..there.remote(0) };
    pair.put(here.span(0), wrong, 1);
    pair.put(here.span(0), there.remote(0), 2);
    let events = pair.until_a(|events| completed(events).len() == 2 && events.contains(&Got::Failure));
    assert_eq!(completed(&events), [(1, Err(Status::REMOTE_ACCESS)), (2, Err(Status::FLUSHED))]);
    assert_eq!(events.iter().filter(|event| **event == Got::Failure).count(), 1, "a failure is reported once");
    assert!(is_failure_first(&events), "{events:?}");
    let reasons = pair.a.take_unprinted();
    assert!(reasons.len() == 1 && reasons[0].contains("REM_ACCESS_ERR"), "{reasons:?}");
    assert!(pair.a.take_unprinted().is_empty(), "a reason is given once");
    let text = pair.a.failure(pair.to_b).expect("a failure").to_string();
    for part in ["rank 1", "REM_ACCESS_ERR (10)", &pair.a.attributes().place()] {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
    assert!(pair.try_put(here.span(0), there.remote(0), 3).is_err(), "a failed connection takes no more requests");
}

#[test]
#[ignore = "needs an RDMA device (IBEX_DEVICE)"]
fn a_peer_that_is_gone_is_an_error_and_nothing_is_lost_silently() {
    let tunables = Tunables { ack_timeout: 8, ..Tunables::default() };
    let mut pair = Pair::open(&tunables);
    let slots = Memory::new(&pair.a, 64, 40);
    pair.connect();
    pair.end_b();
    for number in 0..40 {
        pair.send(1, &[slots.span(number).first(4)], number as u64 + 1);
    }
    let events = pair.until_a(|events| completed(events).len() == 40);
    assert_eq!(completed(&events)[0], (1, Err(Status::RETRY_EXCEEDED)));
    assert!(completed(&events).iter().all(|(_, outcome)| outcome.is_err()));
    assert!(is_failure_first(&events), "{events:?}");
}

#[test]
#[ignore = "needs an RDMA device (IBEX_DEVICE)"]
fn ports_that_know_compact_addresses_connect() {
    let mut pair = Pair::open(&Tunables::default());
    let gid = Ipv6Addr::from(pair.choice().gid).to_canonical();
    pair.shorten_addresses();
    pair.connect();
    if !interfaces::all().expect("interfaces").iter().any(|interface| interface.address == gid) {
        return skip("compact addresses by TCP: the port's GID is not an IP address of this host");
    }
    let mut pair = Pair::open(&Tunables { connect_via: "tcp".to_owned(), ..Tunables::default() });
    pair.shorten_addresses();
    pair.connect();
}

#[test]
#[ignore = "needs an RDMA device (IBEX_DEVICE)"]
fn lost_and_doubled_handshake_packets_delay_a_connection_and_do_no_more() {
    // The adapter has the fault (tests/device/engine.rs), at random for each packet.
    for round in 0..10 {
        let connect_via = if round % 2 == 0 { "ud" } else { "auto" }.to_owned();
        let mut pair = Pair::open(&Tunables { connect_via, ..Tunables::default() });
        pair.send_inline(1, b"through", b"");
        let events = pair.until_b(|events| !received(events).is_empty());
        assert_eq!(received(&events), [(1, b"through".to_vec())]);
        assert_eq!(pair.count_a("connected"), 1);
    }
}

#[test]
#[ignore = "needs an RDMA device (IBEX_DEVICE)"]
fn a_peer_that_never_answers_is_an_error_that_says_what_was_tried() {
    let tunables = Tunables { connect_timeout: 1, ..Tunables::default() };
    let mut pair = Pair::open(&tunables);
    pair.end_b();
    pair.send_inline(1, b"anyone?", b"");
    pair.until_a(|events| events.contains(&Got::Failure));
    let text = pair.a.failure(pair.to_b).expect("a failure").to_string();
    for part in ["rank 1", "could not be made", "datagrams", "TCP"] {
        assert!(text.contains(part), "{part} is missing in: {text}");
    }
}
