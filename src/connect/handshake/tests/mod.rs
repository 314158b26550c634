// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the handshake: both sides over a simulated network (`tests/world.rs`), and each rule alone.

use super::*;
use crate::connect::Random;
use crate::connect::hello::Declined;
use crate::connect::hello::tests::KEY;
use crate::peer::PeerName;
use crate::select::address::PortAddress;
use crate::select::address::tests::ethernet;

mod world;

use world::{BOTH, FAIR, MS, Node, Weather, World, bad_weather};

#[test]
fn both_sides_connect_exactly_once_in_any_weather() {
    for seed in 0..4000 {
        let mut random = Random::new(seed);
        let weather = bad_weather(&mut random);
        let mut world = World::new(seed, weather);
        world.connect(0);
        // One side alone, both at once, or the second while the first one's packets are in flight.
        if seed % 3 == 1 {
            world.connect(1);
        } else if seed % 3 == 2 {
            for _ in 0..random.below(6) {
                world.advance();
            }
            if world.nodes[1].handshake.is_none() {
                world.connect(1);
            }
        }
        let (after, under_way) = world.run_connects();
        assert_eq!(world.nodes[0].superseded + world.nodes[1].superseded, 0, "seed {seed}");
        assert!(after as usize <= under_way, "seed {seed}: {after} packets after the end, {under_way} were under way");
    }
}

#[test]
fn without_loss_three_packets_connect_one_starter_and_six_connect_two() {
    let mut world = World::new(1, FAIR);
    world.connect(0);
    world.run_connects();
    assert_eq!(world.nodes[0].sent + world.nodes[1].sent, 3);

    let mut world = World::new(1, Weather { delay: 0, ..FAIR });
    world.connect(0);
    world.connect(1);
    world.run_connects();
    assert!(world.nodes[0].sent + world.nodes[1].sent <= 6);
}

#[test]
fn a_side_that_restarts_as_a_new_instance_connects_anew() {
    for seed in 0..4000 {
        let (mut world, _) = World::begun(seed, 12);
        // The new instance counts its epochs from the beginning; packets of the old one are still in flight, both ways.
        world.nodes[1] = Node::new(1, 0xb1);
        world.connect(0);
        if seed % 2 == 0 {
            world.connect(1);
        }
        world.run_connects();
    }
}

#[test]
fn a_side_that_drops_its_end_and_begins_again_reconnects_both() {
    let mut superseded = 0;
    for seed in 0..4000 {
        let (mut world, mut random) = World::begun(seed, 14);
        // The process gives up its end; the other process may still have the old connection, or be making it.
        let who = random.below(2) as usize;
        world.nodes[who].drop_end();
        for _ in 0..random.below(3) {
            world.advance();
        }
        if world.nodes[who].handshake.is_none() {
            world.connect(who);
        }
        world.run_connects();
        superseded += world.nodes[0].superseded + world.nodes[1].superseded;
    }
    assert!(superseded > 100, "the case was met {superseded} times");
}

#[test]
fn a_connection_in_use_survives_repeated_and_forged_hellos() {
    let mut begun = 0;
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let mut world = World::new(seed, bad_weather(&mut random));
        world.connect(0);
        world.run_connects();
        // Every packet that was ever sent comes again, and hellos of later connections that neither side has begun.
        let mut packets = std::mem::take(&mut world.recorded);
        for who in 0..2 {
            let node = &world.nodes[1 - who];
            let mut forged = node.handshake.as_ref().expect("connected").hello(&node.me);
            forged.qp.epoch += 1 + random.below(1000) as u32;
            (forged.heard_qpn, forged.heard_epoch, forged.confirmed) = (0, 0, false);
            packets.push((who, forged.encode(&KEY).to_vec()));
        }
        while !packets.is_empty() {
            let (who, bytes) = packets.swap_remove(random.below(packets.len() as u64) as usize);
            world.deliver(who, random.below(2) == 0, &bytes);
            begun += u32::from(world.nodes[who].has_successor());
            for _ in 0..random.below(4) {
                world.advance();
            }
        }
        world.run_connects();
        assert!(!world.nodes[0].has_successor() && !world.nodes[1].has_successor(), "seed {seed}");
    }
    assert!(begun >= 200, "the case was met {begun} times");
}

#[test]
fn the_round_trip_is_from_the_first_hello_to_the_confirmation() {
    let (node, mut handshake, hello) = one_heard();
    assert_eq!(handshake.round_trip(), None);
    let local = handshake.local();
    let heard = Hello { heard_qpn: local.qpn, heard_epoch: local.epoch, ..hello };
    // This side cannot know which of its two hellos the peer answers, so it counts from the first.
    assert!(handshake.on_timer(Reach::Unused, MS * 60).send.is_some());
    assert!(handshake.on_hello(&node.me, &heard, Carrier::Ud, MS * 70).confirmed);
    assert_eq!(handshake.round_trip(), Some(MS * 69));
    assert!(!handshake.on_hello(&node.me, &heard, Carrier::Ud, MS * 90).confirmed);
    assert_eq!(handshake.round_trip(), Some(MS * 69));
}

#[test]
fn tcp_takes_over_where_datagrams_do_not_get_through() {
    for blocked in [[100, 100], [100, 0], [0, 100]] {
        let mut world = World::new(5, Weather { ud_loss: blocked, ..FAIR });
        world.connect(0);
        world.run_connects();
        assert!(world.now < Duration::from_secs(3), "{:?}", world.now);
        let handshake = world.nodes[0].handshake.as_ref().expect("connected");
        assert_eq!(handshake.tcp_sent > 0, blocked != [0, 100] || handshake.ud_sent > 4, "{blocked:?}");
    }
}

#[test]
fn either_carrier_alone_connects() {
    for paths in [Paths { ud: true, tcp: false }, Paths { ud: false, tcp: true }] {
        let mut world = World::new(5, Weather { ud_loss: [30, 30], tcp_loss: [30, 30], ..FAIR });
        world.paths = paths;
        world.connect(0);
        world.run_connects();
        for node in &world.nodes {
            let handshake = node.handshake.as_ref().expect("connected");
            assert_eq!((handshake.ud_sent > 0, handshake.tcp_sent > 0), (paths.ud, paths.tcp));
        }
    }
}

#[test]
fn a_handshake_waits_an_hour_for_a_computing_peer_while_tcp_is_open() {
    let mut world = World::new(5, Weather { reach: Reach::Open, ..FAIR });
    world.nodes[1].computes_until = Duration::from_hours(1);
    world.connect(0);
    world.run_connects();
    assert!(world.now >= Duration::from_hours(1));
}

#[test]
fn a_handshake_with_a_silent_peer_fails_soon_after_the_time_out_unless_tcp_is_open() {
    for reach in [Reach::Unused, Reach::Trying, Reach::Refused, Reach::Unreachable] {
        let mut world = World::new(5, Weather { ud_loss: [0, 100], tcp_loss: [0, 100], reach, ..FAIR });
        world.connect(0);
        world.run();
        let failure = world.nodes[0].failed.expect("it failed");
        assert_eq!(failure.reason, FailureReason::Unanswered);
        assert_eq!(failure.reach, reach);
        assert!((60..62).contains(&failure.silent.as_secs()), "{:?}", failure.silent);
        assert!((4..70).contains(&failure.ud_sent) && failure.tcp_sent < failure.ud_sent, "{failure:?}");
    }
}

#[test]
fn both_sides_fail_if_the_packets_of_one_side_never_arrive() {
    // Every packet to node 0 arrives, none to node 1: node 1 gives up first, and node 0 once node 1 is silent.
    let mut world = World::new(5, Weather { ud_loss: [0, 100], tcp_loss: [0, 100], ..FAIR });
    world.connect(0);
    world.connect(1);
    world.run();
    assert_eq!(world.nodes[1].failed.expect("it failed").reason, FailureReason::Unanswered);
    assert_eq!(world.nodes[0].failed.expect("it failed").reason, FailureReason::Unconfirmed);
    assert!(world.now < Duration::from_secs(125));
}

#[test]
fn a_resumed_handshake_fails_again_only_after_the_full_time_out() {
    let (node, mut handshake, hello) = one_heard();
    let until_failure = |handshake: &mut Handshake| loop {
        let now = handshake.due().expect("asking");
        if handshake.on_timer(Reach::Unused, now).failed.is_some() {
            break now;
        }
    };
    let first = until_failure(&mut handshake);
    assert_eq!(handshake.on_hello(&node.me, &hello, Carrier::Ud, first), ignored(Ignored::Failed));
    handshake.ask_on(first);
    let second = until_failure(&mut handshake);
    assert!(second >= first + Duration::from_mins(1), "{first:?} {second:?}");
    handshake.ask_on(second);
    assert_eq!(handshake.on_hello(&node.me, &hello, Carrier::Ud, second).send, Some(Via::Ud));
}

#[test]
fn two_ports_without_a_common_carrier_fail_at_once() {
    let mut world = World::new(5, FAIR);
    world.paths = Paths { ud: false, tcp: false };
    world.connect(0);
    world.run();
    let failure = world.nodes[0].failed.expect("it failed");
    assert_eq!((failure.reason, world.now), (FailureReason::NoCarrier, Duration::ZERO));
    assert_eq!(world.nodes[0].sent, 0);
}

#[test]
fn a_process_can_connect_to_itself() {
    let node = Node::new(0, 0xa0);
    let qp = QpInfo { qpn: 5, psn: 6, epoch: 1, initiator_depth: 1, responder_resources: 1, endpoint: 0 };
    let mut handshake = Handshake::new(qp, 0xa0, 0, BOTH, Duration::ZERO, &Tunables::default());
    assert_eq!(handshake.on_timer(Reach::Unused, Duration::ZERO).send, Some(Via::Ud));
    let step = handshake.on_hello(&node.me, &handshake.hello(&node.me), Carrier::Ud, MS);
    assert_eq!(step.program.map(|program| (program.qpn, program.psn)), Some((5, 6)));
    assert!(!step.confirmed && step.send.is_some());
    let step = handshake.on_hello(&node.me, &handshake.hello(&node.me), Carrier::Ud, MS * 2);
    assert!(step.confirmed && step.program.is_none());
    let step = handshake.on_hello(&node.me, &handshake.hello(&node.me), Carrier::Ud, MS * 3);
    assert_eq!(step, Step::default());
}

/// A handshake of this node with the other one, after a number of earlier ones.
fn asking(rank: u32, epochs: u32) -> (Node, Handshake) {
    let instances = [0xa0, 0xb0];
    let mut node = Node::new(rank, instances[rank as usize]);
    node.epochs = epochs;
    node.connect(instances[1 - rank as usize], BOTH, Duration::ZERO, &Tunables::default());
    let handshake = node.handshake.take().expect("made");
    (node, handshake)
}

fn one_heard() -> (Node, Handshake, Hello) {
    let ((zero, mut handshake), (one, theirs)) = (asking(0, 0), asking(1, 4));
    let hello = theirs.hello(&one.me);
    let step = handshake.on_hello(&zero.me, &hello, Carrier::Ud, MS);
    assert!(step.program.is_some() && step.send == Some(Via::Ud) && !step.confirmed, "{step:?}");
    (zero, handshake, hello)
}

fn ignored(reason: Ignored) -> Step {
    Step { ignored: Some(reason), ..Step::default() }
}

#[test]
fn data_confirms_once_and_only_a_queue_pair_that_is_set() {
    let (_, mut handshake, _) = one_heard();
    assert!(handshake.on_data(MS));
    assert!(!handshake.on_data(MS));
    assert!(handshake.is_confirmed() && handshake.due().is_none());
    assert!(!asking(0, 0).1.on_data(MS));
}

#[test]
fn a_handshake_ignores_hellos_of_other_instances_and_late_or_conflicting_ones() {
    let (node, mut handshake, hello) = one_heard();
    let mut from_another = hello;
    from_another.source.address.instance = 0xdead;
    for (hello, reason) in [
        (Hello { destination_instance: 0xdead, ..hello }, Ignored::NotForUs),
        (from_another, Ignored::OtherInstance),
        (Hello { qp: QpInfo { epoch: 4, ..hello.qp }, ..hello }, Ignored::Late),
        (Hello { qp: QpInfo { qpn: 0x999, ..hello.qp }, ..hello }, Ignored::Conflict),
        (Hello { qp: QpInfo { psn: 0x999, ..hello.qp }, ..hello }, Ignored::Conflict),
    ] {
        assert_eq!(handshake.on_hello(&node.me, &hello, Carrier::Ud, MS), ignored(reason));
    }
}

#[test]
fn only_a_hello_that_names_this_connections_queue_pair_and_epoch_answers_it() {
    let (node, _, hello) = one_heard();
    let asking = || asking(0, 4).1;
    let local = asking().local();
    // The device may reuse the number of a destroyed queue pair, so the number alone proves nothing.
    for heard_qpn in [0, local.qpn, local.qpn + 1] {
        for heard_epoch in [0, local.epoch - 1, local.epoch, local.epoch + 1] {
            let heard = Hello { heard_qpn, heard_epoch, ..hello };
            let mut handshake = asking();
            let is_ours = (heard_qpn, heard_epoch) == (local.qpn, local.epoch);
            assert_eq!(handshake.is_answered_by(&heard), is_ours, "{heard:?}");
            let step = handshake.on_hello(&node.me, &heard, Carrier::Ud, MS);
            let is_first = (heard_qpn, heard_epoch) == (0, 0);
            assert_eq!(step == ignored(Ignored::Late), !is_ours && !is_first, "{heard:?}: {step:?}");
        }
    }
    let mut confirmed = asking();
    let heard = Hello { heard_qpn: local.qpn, heard_epoch: local.epoch, ..hello };
    assert!(confirmed.on_hello(&node.me, &heard, Carrier::Ud, MS).confirmed);
    assert!(!confirmed.is_answered_by(&heard), "it asks no more");
}

#[test]
fn a_newer_epoch_replaces_an_unconfirmed_peer_and_supersedes_a_confirmed_one() {
    let (node, mut handshake, hello) = one_heard();
    let newer = Hello { qp: QpInfo { epoch: 6, qpn: 0x300, ..hello.qp }, ..hello };
    let step = handshake.on_hello(&node.me, &newer, Carrier::Tcp, MS);
    assert_eq!(step.program.map(|program| (program.qpn, program.reset)), Some((0x300, true)));
    assert_eq!(step.send, Some(Via::Tcp));
    assert!(handshake.on_data(MS));
    let newest = Hello { qp: QpInfo { epoch: 7, ..newer.qp }, ..newer };
    let step = handshake.on_hello(&node.me, &newest, Carrier::Ud, MS);
    assert_eq!(step, Step { superseded: true, ..Step::default() });
}

#[test]
fn a_confirmed_hello_gets_no_answer_and_each_copy_of_an_unconfirmed_one_gets_one() {
    let (node, mut handshake, hello) = one_heard();
    let local = handshake.local();
    let heard = Hello { heard_qpn: local.qpn, heard_epoch: local.epoch, ..hello };
    let step = handshake.on_hello(&node.me, &heard, Carrier::Ud, MS);
    assert_eq!(step, Step { confirmed: true, send: Some(Via::Ud), ..Step::default() });
    assert!(handshake.hello(&node.me).confirmed);
    let step = handshake.on_hello(&node.me, &heard, Carrier::Tcp, MS);
    assert_eq!(step, Step { send: Some(Via::Tcp), ..Step::default() });
    let confirmed = Hello { confirmed: true, ..heard };
    assert_eq!(handshake.on_hello(&node.me, &confirmed, Carrier::Ud, MS), Step::default());
}

#[test]
fn a_port_that_is_asked_again_is_asked_by_tcp_too_from_the_first_hello_on() {
    let (_, mut handshake) = asking(0, 0);
    for (sent, via) in [((0, 0), Via::Ud), ((1, 0), Via::Both)] {
        handshake.ask_port((0xb0, 0, BOTH), None, sent, MS);
        assert_eq!(handshake.on_timer(Reach::Unused, MS).send, Some(via));
    }
}

#[test]
fn a_refusal_names_the_port_and_the_request_that_it_refuses() {
    let (node, handshake, mut theirs) = one_heard();
    (theirs.source.address.instance, theirs.source.port) = (0xdead, 3);
    let Hello { destination_instance, destination_port, heard_qpn, heard_epoch, .. } =
        handshake.declining(&node.me, &theirs, Declined::Taken);
    assert_eq!((destination_instance, destination_port), (0xdead, 3));
    assert_eq!((heard_qpn, heard_epoch), (theirs.qp.qpn, theirs.qp.epoch));
}

#[test]
fn the_pause_between_tries_doubles_up_to_a_second_and_tcp_joins_after_four() {
    let (_, mut handshake) = asking(0, 0);
    let mut tries = Vec::new();
    for _ in 0..8 {
        let now = handshake.due().expect("asking");
        let step = handshake.on_timer(Reach::Unused, now);
        assert_eq!(handshake.on_timer(Reach::Unused, now), Step::default(), "not due again");
        tries.push((now.as_millis(), step.send.expect("a try")));
    }
    let wanted = [(0, Via::Ud), (50, Via::Ud), (150, Via::Ud), (350, Via::Ud), (750, Via::Both), (1550, Via::Both)];
    assert_eq!(tries[..6], wanted);
    assert_eq!((tries[6].0, tries[7].0), (2550, 3550));
}

#[test]
fn a_failure_names_the_peer_the_port_the_attempts_and_a_remedy() {
    let remote = ethernet();
    let peer = PeerName { job: 0x10001, rank: 4 };
    let failure = Failure {
        reason: FailureReason::Unanswered,
        paths: BOTH,
        ud_sent: 62,
        tcp_sent: 58,
        heard: 0,
        reach: Reach::Refused,
        silent: Duration::from_mins(1),
    };
    assert_eq!(
        failure.message(peer, "rxe0:1", &remote),
        "no connection from port rxe0:1 to peer [[1,1],4]: it did not answer for 60 s (sent: 62 datagrams to queue pair 0x123456 \
         at GID ::ffff:192.168.0.1, 58 packets over TCP to 10.0.0.2:30874, refused or reset). Its process has probably ended: \
         see the end of its output. If it computes for long without calling MPI, set btl_ibex_connect_timeout above that time."
    );
    let silent = Failure { reason: FailureReason::Unconfirmed, heard: 3, ..failure }.message(peer, "rxe0:1", &remote);
    assert!(silent.contains("it sent 3 handshake packets, but then none for 60 s"), "{silent}");
    let ud_alone = Failure { paths: Paths { ud: true, tcp: false }, tcp_sent: 0, reach: Reach::Unused, ..failure };
    let text = ud_alone.message(peer, "rxe0:1", &remote);
    assert!(text.contains("none over TCP, which it does not offer or btl_ibex_connect_via does not permit"), "{text}");
    let none = Failure { reason: FailureReason::NoCarrier, ..failure };
    let text = none.message(peer, "rxe0:1", &PortAddress { ud_qpn: 0, ..remote });
    assert!(
        text.contains("datagram queue pair of the peer: none") && text.contains("btl_ibex_connect_via to auto"),
        "{text}"
    );
}

#[test]
fn a_handshake_stays_small() {
    // Part of the 1 KiB that a connected peer may take.
    assert!(size_of::<Handshake>() <= 192, "{}", size_of::<Handshake>());
}
