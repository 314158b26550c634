// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parted peers: they stay connected while they exist, and leave nothing behind when they have gone.

use super::*;
use crate::transport::connections::connection::Connection;
use std::time::Duration;

/// Polls, with time passing, until a request is posted to the first connected queue pair.
fn look_until_asked(side: &mut Side) -> usize {
    let index = side.script.connected().expect("they are connected");
    for _ in 0..100_000 {
        side.script.state().now += Duration::from_millis(10);
        side.poll();
        if !side.script.state().qps[index].posted.is_empty() {
            return index;
        }
    }
    panic!("the peer is never asked");
}

#[test]
fn a_parted_peer_that_lives_stays_connected_and_may_rejoin() {
    let mut pair = Pair::connected();
    let peer = pair.a.peer;
    pair.a.port.part(peer);
    pair.a.send(2).expect_err("they have parted");
    for _ in 0..3 {
        let index = look_until_asked(&mut pair.a);
        pair.a.script.complete_all(index, Status::SUCCESS);
        pair.a.poll();
        assert!(!pair.a.port.has_gone(peer));
    }
    pair.a.port.rejoin(peer);
    pair.a.send(3).expect("by the connection that there was");
    pair.transfer();
    pair.a.poll();
    pair.b.poll();
    assert_eq!((pair.a.ended(), pair.b.messages(), pair.a.script.living()), (vec![(3, Ok(()))], 1, 1));
}

#[test]
fn a_parted_peer_whose_connection_has_failed_is_connected_anew_when_it_is_taken_back() {
    let is_looked_up = |pair: &mut Pair| {
        let name = pair.a.port.peer_name(pair.a.peer).expect("the other side");
        assert_eq!(pair.a.port.peer(name, 0), pair.a.peer);
    };
    for take_back in [|pair: &mut Pair| pair.a.port.rejoin(pair.a.peer), is_looked_up] {
        let mut pair = Pair::connected();
        let peer = pair.a.peer;
        pair.a.port.part(peer);
        let index = look_until_asked(&mut pair.a);
        pair.a.script.complete_all(index, Status::RETRY_EXCEEDED);
        pair.a.poll();
        assert!(pair.a.port.failure(peer).is_some(), "the port has not destroyed the connection yet");
        take_back(&mut pair);
        pair.a.send(3).expect("by another connection");
        pair.carry();
        pair.transfer();
        pair.a.poll();
        assert_eq!((pair.a.ended(), pair.a.failures()), (vec![(3, Ok(()))], 0));
    }
}

#[test]
fn peers_that_come_and_go_leave_no_connection_behind_and_no_report() {
    let mut pair = Pair::connected();
    let name = pair.a.port.peer_name(pair.a.peer).expect("the other side");
    for _ in 0..20 {
        let peer = pair.a.peer;
        pair.a.port.part(peer);
        let index = look_until_asked(&mut pair.a);
        pair.b.part();
        pair.a.script.complete_all(index, Status::RETRY_EXCEEDED);
        for _ in 0..10_000 {
            pair.a.script.state().now += Duration::from_millis(10);
            for side in [&mut pair.a, &mut pair.b] {
                side.script.flush();
                side.poll();
            }
        }
        assert!(pair.a.port.has_gone(peer) && pair.a.port.parted.is_empty());
        assert_eq!((pair.a.script.living(), pair.b.script.living()), (0, 0));
        assert_eq!((pair.a.failures(), pair.a.port.take_unprinted().len()), (0, 0));
        assert_eq!(pair.a.port.connections.all().filter_map(|of| pair.a.port.connections.get(of)).count(), 0);
        // Another instance with the same name.
        pair.a.peer = pair.a.port.peer(name, 0);
        pair.a.send(2).expect("it may wait");
        pair.carry();
        pair.transfer();
        pair.a.poll();
        assert_eq!(pair.a.ended().last(), Some(&(2, Ok(()))));
    }
    assert_eq!((pair.a.port.connections.count(), pair.a.port.tx.credits()), (1, CAPACITY - SLOTS));
}

#[test]
fn a_peer_without_a_connection_is_gone_at_once() {
    let mut pair = Pair::apart();
    let peer = pair.a.peer;
    pair.a.port.part(peer);
    assert!(pair.a.port.has_gone(peer));
    assert!(pair.a.port.connections.get(peer).is_none_or(Connection::is_idle));
}
