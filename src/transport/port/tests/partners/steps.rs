// SPDX-License-Identifier: MIT OR Apache-2.0
//! The search for a partner step by step: hellos and refusals that the test chooses.

use super::*;
use crate::connect::handshake::FIRST_PAUSE;
use crate::connect::hello::Declined;
use crate::transport::connections::search::Verdict;

impl Fabrics {
    /// Returns the first hello of a port that has a request, as if it was for port `to`.
    fn first_hello(&self, from: usize, to: usize) -> Hello {
        let (asked, frame) = self.sides[from].0.script.state().sent[0];
        let of =
            |instance| self.sides.iter().map(|(side, _)| side).find(|side| side.port.address().instance == instance);
        let hello = Hello::decode(&frame, &of(asked.instance).expect("it lives there").key).expect("sealed for it");
        Hello { destination_instance: self.sides[to].0.port.address().instance, ..hello }
    }

    /// Port `from` declines the last hello of port `to`, which gets the answer.
    fn decline(&mut self, from: usize, to: usize, declined: Declined) {
        let (side, sent) = (&self.sides[from].0, self.sides[to].0.script.state().sent.clone());
        let asked = sent.iter().rev().find_map(|(_, frame)| Hello::decode(frame, &side.key).ok());
        let handshake = &side.port.connections.get(side.peer).expect("it has begun").handshake;
        let answer = handshake.declining(side.port.handshakes.identity(), &asked.expect("a hello"), declined);
        self.sides[to].0.script.state().incoming.push_back(answer);
        self.sides[to].0.poll();
    }

    /// The other process computes until a port with a request has turned to its port `port`, and has asked that.
    fn step_until_asked(&mut self, index: usize, port: u8) {
        self.asleep = self.count..2 * self.count;
        let mut steps = 0;
        while self.sides[index].0.port.partner(self.sides[index].0.peer) != Some(port) {
            self.step(0);
            steps += 1;
            assert!(steps < 10_000, "it never asks that port");
        }
        (0..100).for_each(|_| self.step(0));
    }
}

#[test]
fn a_port_is_unproven_while_it_searches_among_several() {
    for (ports, has_datagrams, is_unproven) in [("a", true, false), ("aa", true, true), ("aa", false, false)] {
        let mut fabrics = Fabrics::new([ports; 2], true, 1);
        let side = &mut fabrics.sides[0].0;
        if !has_datagrams {
            side.script.state().ud_qpn = 0;
            side.poll();
        }
        assert_eq!([(); 2].map(|()| side.port.is_unproven(side.peer)), [is_unproven; 2], "{ports} {has_datagrams}");
        assert_eq!(side.port.queue_pair(side.peer).is_some(), ports == "aa", "it begins to find out");
        if ports == "aa" {
            fabrics.settle(&[0], 0);
        }
        let side = &mut fabrics.sides[0].0;
        assert!(!side.port.is_unproven(side.peer));
    }
}

#[test]
fn ports_of_a_peer_that_this_one_may_reach_share_an_endpoint_and_another_has_its_own() {
    let mut fabrics = Fabrics::new(["aaz"; 2], true, 1);
    let side = &mut fabrics.sides[0].0;
    let partners = [0, 1, 2].map(|port| {
        let to = side.port.peer(PeerName { job: 1, rank: 1 }, port);
        side.port.partner(to)
    });
    assert_eq!(partners, [Some(0), Some(0), Some(2)]);
}

/// What has happened to a port.
type Before<'a> = &'a dyn Fn(&mut Fabrics);

#[test]
fn another_port_that_sends_a_hello_by_tcp_is_taken_if_the_asked_one_is_silent_and_it_may_be_the_one() {
    let hello = |from, is_datagram| {
        move |fabrics: &mut Fabrics| {
            let hello = fabrics.first_hello(from, 0);
            let mut state = fabrics.sides[0].0.script.state();
            let incoming = if is_datagram { &mut state.incoming } else { &mut state.incoming_tcp };
            incoming.push_back(hello);
            drop(state);
            fabrics.sides[0].0.poll();
        }
    };
    let excluded = |fabrics: &mut Fabrics| {
        let side = &mut fabrics.sides[0].0;
        side.port.handshakes.search(side.peer).expect("a choice").exclude(1, Verdict::Unmet);
    };
    // What has happened before; the port that is asked after the hello, and the answer to it if it is declined.
    let cases: [(Before<'_>, u8, Option<Declined>); 5] = [
        (&|_| (), 1, None),
        (&hello(2, false), 0, None),
        (&hello(2, true), 0, Some(Declined::ForNow)),
        (&hello(3, true), 0, None),
        (&excluded, 0, Some(Declined::Unmet)),
    ];
    for (case, (before, asked, declined)) in cases.into_iter().enumerate() {
        let mut fabrics = Fabrics::new(["aa"; 2], true, 1);
        fabrics.send(&[0, 2, 3]);
        before(&mut fabrics);
        fabrics.sides[0].0.script.state().sent.clear();
        hello(3, false)(&mut fabrics);
        let side = &fabrics.sides[0].0;
        assert_eq!(side.port.partner(side.peer), Some(asked), "{case}");
        let sent = side.script.state().sent.clone();
        let mut to_other = sent.iter().filter_map(|(_, frame)| Hello::decode(frame, &fabrics.sides[3].0.key).ok());
        assert_eq!(to_other.find_map(|hello| hello.declined), declined, "{case}");
    }
}

#[test]
fn a_port_that_was_set_to_one_that_declines_resets_its_queue_pair_and_connects_to_another() {
    let mut fabrics = Fabrics::new(["aa"; 2], false, 1);
    fabrics.send(&[0, 2]);
    let hello = fabrics.first_hello(2, 0);
    fabrics.sides[0].0.script.state().incoming.push_back(hello);
    fabrics.sides[0].0.poll();
    let standing = |fabrics: &Fabrics| {
        let side = &fabrics.sides[0].0;
        (state(side), side.port.partner(side.peer))
    };
    assert_eq!(standing(&fabrics), (QpState::ReadyToReceive, Some(0)));
    fabrics.decline(2, 0, Declined::Taken);
    assert_eq!(standing(&fabrics), (QpState::Init, Some(1)));
    // All hellos of the others have arrived, and these compute now.
    fabrics.sides[2].0.script.state().sent.clear();
    fabrics.sides[2].0.script.state().sent_via.clear();
    fabrics.asleep = 1..3;
    fabrics.settle(&[0], 0);
    assert_eq!(fabrics.standing(0), Standing::Connected(1));
}

#[test]
fn a_port_that_declines_for_now_is_asked_again_after_a_pause_and_another_at_once() {
    let mut fabrics = Fabrics::new(["aa"; 2], false, 1);
    fabrics.send(&[0, 2, 3]);
    fabrics.sides[0].0.script.state().now += 2 * FIRST_PAUSE;
    let sent = |fabrics: &Fabrics| fabrics.sides[0].0.script.state().sent.len();
    for (from, declined, asked, is_asked_at_once) in
        [(2, Declined::ForNow, 1, true), (3, Declined::Taken, 0, true), (2, Declined::ForNow, 0, false)]
    {
        let before = sent(&fabrics);
        fabrics.decline(from, 0, declined);
        let asks = fabrics.sides[0].0.port.partner(fabrics.sides[0].0.peer);
        assert_eq!((asks, sent(&fabrics) > before), (Some(asked), is_asked_at_once));
    }
    let before = sent(&fabrics);
    fabrics.sides[0].0.script.state().now += FIRST_PAUSE;
    fabrics.sides[0].0.poll();
    assert_eq!(sent(&fabrics), before + 1);
}

#[test]
fn a_port_waits_for_the_answer_to_its_last_hello_before_it_asks_another_port() {
    let mut fabrics = Fabrics::new(["aa"; 2], false, 1);
    fabrics.send(&[0]);
    fabrics.asleep = 2..4;
    let asked = |fabrics: &Fabrics| fabrics.sides[0].0.count(|counters| &counters.handshakes_sent);
    while asked(&fabrics) < 3 {
        fabrics.step(0);
    }
    let side = &mut fabrics.sides[0].0;
    // As if another handshake had something to do.
    side.port.handshakes.set_due(Duration::ZERO);
    side.poll();
    assert_eq!(side.port.partner(side.peer), Some(0));
}

#[test]
fn a_port_that_is_first_asked_by_another_than_its_best_asks_that_one_first() {
    let mut fabrics = Fabrics::new(["aa"; 2], false, 1);
    let (name, side) = (PeerName { job: 1, rank: 0 }, &mut fabrics.sides[3].0);
    side.port.forget(side.peer);
    fabrics.send(&[0]);
    fabrics.step_until_asked(0, 1);
    fabrics.asleep = 2..3;
    (0..2000).for_each(|_| fabrics.step(0));
    fabrics.asleep = 0..0;
    fabrics.settle(&[0], 0);
    let side = &mut fabrics.sides[3].0;
    side.peer = side.port.peer(name, 1);
    assert_eq!(fabrics.all(), connected(&[0, 1, 0, 1]));
}

#[test]
fn a_port_with_nothing_to_send_stops_asking_when_all_that_could_have_asked_it_are_silent() {
    let mut fabrics = Fabrics::new(["aa"; 2], false, 1);
    fabrics.send(&[0]);
    fabrics.step_until_asked(0, 1);
    fabrics.asleep = 0..3;
    (0..3000).for_each(|_| fabrics.step(0));
    let side = &fabrics.sides[3].0;
    assert!(side.count(|counters| &counters.handshakes_sent) >= 4 && side.port.queue_pair(side.peer).is_none());
}
