// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the TCP carrier against connections from outside the job: their content, duration and number.

use super::*;
use crate::connect::tcp::link::STRANGER_PATIENCE;

fn garbage(side: &Side, other: &Side) -> Vec<Vec<u8>> {
    let good = other.hello(&side.address, 1).encode(&KEY);
    let mut damaged = good;
    damaged[20] ^= 1;
    let forged = other.hello(&side.address, 1).encode(&Key::from_bytes([7; Key::SIZE]));
    vec![b"GET / HTTP/1.1\r\n\r\n".repeat(20), vec![0; 1 << 16], damaged.to_vec(), forged.to_vec()]
}

#[test]
fn garbage_ends_no_connection_but_its_own() {
    let (mut a, mut b) = (Side::new(1), Side::new(2));
    let pieces = garbage(&b, &a);
    let count = pieces.len() as u64;
    let mut strangers = Vec::new();
    for piece in pieces {
        let mut stranger = b.connect_raw();
        stranger.set_nonblocking(true).expect("a flag");
        // The carrier need not accept all of it.
        let _ = stranger.write(&piece);
        strangers.push(stranger);
    }
    until("the garbage", &mut [&mut b], |sides| sides[0].carrier.counters.garbage == count);
    assert!(b.got.is_empty() && b.carrier.is_idle());
    let mut from: Vec<_> = b.refused.iter().map(|refusal| refusal.from).collect();
    let mut wanted: Vec<_> = strangers.iter().map(|stranger| stranger.local_addr().ok()).collect();
    from.sort();
    wanted.sort();
    assert_eq!(from, wanted);
    let unsealed = b.refused.iter().filter(|refusal| matches!(refusal.why, HelloError::Unsealed { .. })).count();
    assert_eq!(unsealed, 2, "{:?}", b.refused);
    a.send(&b.address, 1);
    until("a hello in spite of it", &mut [&mut a, &mut b], |sides| sides[1].got.len() == 1);
}

/// Polls `side`, which begins no handshake, until it has no connection. Closes the far end of each connection that
/// `side` closes.
fn until_all_are_ended(side: &mut Side, ends: &mut [TcpStream]) {
    let begin = Instant::now();
    for end in ends.iter() {
        end.set_nonblocking(true).expect("a flag");
    }
    while !side.carrier.is_idle() {
        assert!(begin.elapsed() < Duration::from_mins(2), "{} connections stand", side.carrier.links.len());
        side.poll_alone();
        // Like a peer that reads the end of a connection.
        for end in ends.iter_mut() {
            while matches!(end.read(&mut [0; 512]), Ok(1..)) {}
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_recorded_hello_that_is_sent_again_keeps_no_connection_open() {
    let (a, mut b) = (Side::new(1), Side::new(2));
    let recorded = a.hello(&b.address, 1).encode(&KEY);
    let mut replays = Vec::new();
    for _ in 0..660 {
        let mut replay = b.connect_raw();
        replay.write_all(&recorded).expect("room");
        replays.push(replay);
        // However the port handles the hello, it has no handshake with that peer in progress.
        b.poll_alone();
    }
    until_all_are_ended(&mut b, &mut replays);
    assert_eq!(b.carrier.counters.accepted, 660);
    assert_eq!(b.carrier.counters.needless + b.carrier.counters.silent, 660, "{:?}", b.carrier.counters);
}

#[test]
fn during_a_handshake_one_peer_holds_only_a_few_connections() {
    let (a, mut b) = (Side::new(1), Side::new(2));
    let recorded = a.hello(&b.address, 1).encode(&KEY);
    let mut replays = Vec::new();
    for count in 1..40 {
        let mut replay = b.connect_raw();
        replay.write_all(&recorded).expect("room");
        replays.push(replay);
        until("its hello", &mut [&mut b], |sides| sides[0].got.len() == count);
        assert!(b.carrier.links.len() <= LINKS, "{} stand", b.carrier.links.len());
    }
    // The answer goes by all remaining connections: one of them may be the peer's own.
    let answer = b.hello(&a.address, 9).encode(&KEY);
    b.carrier.send(&a.address, &answer);
    b.poll();
    for replay in &mut replays[39 - LINKS..] {
        let mut got = [0; Hello::SIZE];
        replay.read_exact(&mut got).expect("the answer");
        assert_eq!(got, answer);
    }
    b.carrier.close(&a.address);
    until_all_are_ended(&mut b, &mut replays);
}

#[test]
fn an_answer_after_the_handshake_goes_by_a_new_connection_that_ends() {
    let (mut a, mut b) = (Side::new(1), Side::new(2));
    // b has no handshake with a; it answers all the same, on a connection that b has to make.
    let answer = b.hello(&a.address, 3).encode(&KEY);
    b.carrier.send(&a.address, &answer);
    until("the answer", &mut [&mut a, &mut b], |sides| sides[0].got.len() == 1);
    until("the end", &mut [&mut a, &mut b], |sides| sides[1].carrier.is_idle());
}

#[test]
fn a_stranger_has_the_same_time_in_silence_with_half_a_hello_and_byte_by_byte() {
    let (a, mut b) = (Side::new(1), Side::new(2));
    let hello = a.hello(&b.address, 1).encode(&KEY);
    for sent in [0, 1, Hello::SIZE / 2, Hello::SIZE - 1] {
        let mut stranger = b.connect_raw();
        until("the stranger", &mut [&mut b], |sides| sides[0].carrier.links.len() == 1);
        for piece in hello[..sent].chunks(1) {
            stranger.write_all(piece).expect("room");
            b.poll();
        }
        let link = &mut b.carrier.links[0];
        let begin = link.since;
        let mut end_after = |time| link.advance(&KEY, begin + time, &mut |_| panic!("it was not whole"));
        assert_eq!(end_after(STRANGER_PATIENCE), Ok(()), "{sent} bytes");
        assert_eq!(end_after(STRANGER_PATIENCE + Duration::from_millis(1)), Err(End::Silent), "{sent} bytes");
        b.carrier.links.clear();
    }
}

#[test]
fn only_a_fixed_number_of_strangers_can_wait() {
    let mut b = Side::new(2);
    let mut strangers = Vec::new();
    for _ in 0..STRANGERS + 20 {
        strangers.push(b.connect_raw());
        b.poll();
    }
    let all = strangers.len() as u64;
    until("all of them", &mut [&mut b], |sides| sides[0].carrier.counters.accepted == all);
    assert_eq!((b.carrier.links.len(), b.carrier.counters.silent), (STRANGERS, 20));
}
