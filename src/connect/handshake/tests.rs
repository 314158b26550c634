// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the handshake: both sides over a simulated network that loses, doubles, delays and reorders, in virtual time, for
//! thousands of seeds; and the rules one by one.
//!
//! The simulation knows the truth (which queue pair is set to which), so it checks that whoever is told "confirmed" may really
//! send. Every run is a pure function of its seed, which a failing assertion prints.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::*;
use crate::address::tests::ethernet;
use crate::connect::Random;

const MS: Duration = Duration::from_millis(1);
const BOTH: Paths = Paths { ud: true, tcp: true };

/// What the network does to packets.
#[derive(Copy, Clone)]
struct Weather {
    /// Percent of datagrams lost, towards node 0 and node 1.
    ud_loss: [u64; 2],
    /// Percent of TCP packets lost (injected faults), towards node 0 and node 1.
    tcp_loss: [u64; 2],
    /// Percent of packets doubled.
    twice: u64,
    /// The longest delay, in ms; packets overtake each other.
    delay: u64,
    reach: Reach,
}

const FAIR: Weather = Weather { ud_loss: [0, 0], tcp_loss: [0, 0], twice: 0, delay: 2, reach: Reach::Unused };

/// A process with at most one connection: what a port does around a handshake, on a fake adapter.
struct Node {
    me: Identity,
    peer: Identity,
    epochs: u32,
    handshake: Option<Handshake>,
    /// To which queue pair of the peer the current one is set.
    set_to: Option<(u32, u32)>,
    confirmed: u32,
    programmed: u32,
    superseded: u32,
    failed: Option<Failure>,
    sent: u32,
    /// Times at which it does not look at the network: it computes.
    computes_until: Duration,
}

impl Node {
    fn new(rank: u32, instance: u64) -> Node {
        let identity = |rank, instance| Identity {
            name: PeerName { job: 0x10001, rank },
            port: rank as u8,
            address: PortAddress { instance, mtu: 3 + rank as u8, ..ethernet() },
        };
        Node {
            me: identity(rank, instance),
            peer: identity(1 - rank, 0),
            epochs: 0,
            handshake: None,
            set_to: None,
            confirmed: 0,
            programmed: 0,
            superseded: 0,
            failed: None,
            sent: 0,
            computes_until: Duration::ZERO,
        }
    }

    /// Makes a queue pair and begins with it. The adapter uses numbers again, on purpose.
    fn connect(&mut self, peer_instance: u64, paths: Paths, now: Duration, tunables: &Tunables) {
        self.epochs += 1;
        let qp = QpInfo {
            qpn: 0x100 + u32::from(self.me.port) * 0x10 + self.epochs % 2,
            psn: self.epochs * 7,
            epoch: self.epochs,
            initiator_depth: 16,
            responder_resources: 4 + self.me.port,
            endpoint: 0,
        };
        self.peer.address.instance = peer_instance;
        self.handshake = Some(Handshake::new(qp, peer_instance, self.peer.port, paths, now, tunables));
        (self.set_to, self.confirmed, self.programmed) = (None, 0, 0);
    }

    fn qp(&self) -> Option<QpInfo> {
        self.handshake.as_ref().map(Handshake::local)
    }

    fn is_connected(&self) -> bool {
        self.handshake.as_ref().is_some_and(Handshake::is_confirmed)
    }
}

/// Packets under way, by the time of their arrival.
type Queue = BinaryHeap<Reverse<(Duration, u64, usize, bool, Vec<u8>)>>;

struct World {
    nodes: [Node; 2],
    weather: Weather,
    paths: Paths,
    tunables: Tunables,
    random: Random,
    queue: Queue,
    packets: u64,
    now: Duration,
    seed: u64,
    /// Sides are never dropped while the other holds on: "confirmed" must then be true at once.
    strict: bool,
}

impl World {
    fn new(seed: u64, weather: Weather) -> World {
        World {
            nodes: [Node::new(0, 0xa0), Node::new(1, 0xb0)],
            weather,
            paths: BOTH,
            tunables: Tunables::default(),
            random: Random::new(seed),
            queue: BinaryHeap::new(),
            packets: 0,
            now: Duration::ZERO,
            seed,
            strict: true,
        }
    }

    fn connect(&mut self, who: usize) {
        let instance = self.nodes[1 - who].me.address.instance;
        self.nodes[who].connect(instance, self.paths, self.now, &self.tunables);
    }

    fn send(&mut self, from: usize, via: Via) {
        let node = &mut self.nodes[from];
        node.sent += 1;
        let bytes = node.handshake.as_ref().expect("a handshake that sends").hello(&node.me).encode().to_vec();
        for (wanted, carrier_is_tcp) in [(via.ud(), false), (via.tcp(), true)] {
            if !wanted {
                continue;
            }
            let loss = if carrier_is_tcp { self.weather.tcp_loss } else { self.weather.ud_loss }[1 - from];
            let copies = 1 + u64::from(self.random.below(100) < self.weather.twice);
            for _ in 0..copies {
                if self.random.below(100) >= loss {
                    let arrival = self.now + MS * self.random.below(self.weather.delay + 1) as u32;
                    self.packets += 1;
                    self.queue.push(Reverse((arrival, self.packets, 1 - from, carrier_is_tcp, bytes.clone())));
                }
            }
        }
    }

    /// What the port does with a step, in the order of its fields.
    fn act(&mut self, who: usize, step: Step) {
        let node = &mut self.nodes[who];
        if let Some(program) = step.program {
            node.programmed += u32::from(!program.reset);
            assert_eq!(node.set_to.is_some(), program.reset, "seed {}: set twice", self.seed);
            assert_eq!(program.mtu, 3);
            assert_eq!(program.max_rd_atomic, 4 + node.peer.port);
            assert_eq!(program.max_dest_rd_atomic, 4 + node.me.port);
            node.set_to = Some((program.qpn, program.psn));
        }
        if step.confirmed {
            node.confirmed += 1;
            if self.strict {
                self.assert_may_send(who);
            }
        }
        if let Some(failure) = step.failed {
            assert!(self.nodes[who].failed.replace(failure).is_none(), "seed {}: failed twice", self.seed);
        }
        if let Some(via) = step.send {
            self.send(who, via);
        }
    }

    /// The truth: the other side's queue pair is set to this side's.
    fn assert_may_send(&self, who: usize) {
        let mine = self.nodes[who].qp().map(|qp| (qp.qpn, qp.psn));
        assert_eq!(self.nodes[1 - who].set_to, mine, "seed {}: node {who} is told to send too soon", self.seed);
    }

    fn deliver(&mut self, who: usize, tcp: bool, bytes: &[u8]) {
        let hello = Hello::decode(bytes).expect("the network does not damage");
        let carrier = if tcp { Carrier::Tcp } else { Carrier::Ud };
        if hello.destination_instance != self.nodes[who].me.address.instance {
            return;
        }
        if self.nodes[who].handshake.is_none() {
            let instance = hello.source.address.instance;
            self.nodes[who].connect(instance, self.paths, self.now, &self.tunables);
        }
        let now = self.now;
        let hand_over =
            |node: &mut Node| node.handshake.as_mut().expect("made above").on_hello(&node.me, &hello, carrier, now);
        let mut step = hand_over(&mut self.nodes[who]);
        if step.superseded {
            let instance = hello.source.address.instance;
            self.nodes[who].superseded += 1;
            self.nodes[who].connect(instance, self.paths, self.now, &self.tunables);
            step = hand_over(&mut self.nodes[who]);
            assert!(!step.superseded, "seed {}: a new handshake is superseded at once", self.seed);
        }
        self.act(who, step);
    }

    /// Does what happens next; false: nothing will.
    fn advance(&mut self) -> bool {
        let packet = self.queue.peek().map(|Reverse((time, _, who, ..))| (*time).max(self.nodes[*who].computes_until));
        let timer = (0..2)
            .filter_map(|who| {
                let node = &self.nodes[who];
                Some((node.handshake.as_ref()?.due()?.max(node.computes_until), who))
            })
            .min();
        match (packet, timer) {
            (None, None) => return false,
            (Some(time), due) if due.is_none_or(|(due, _)| time <= due) => {
                self.now = self.now.max(time);
                let Reverse((_, _, who, tcp, bytes)) = self.queue.pop().expect("peeked");
                self.deliver(who, tcp, &bytes);
            }
            (_, Some((due, who))) => {
                self.now = self.now.max(due);
                let reach = self.weather.reach;
                let step = self.nodes[who].handshake.as_mut().expect("it is due").on_timer(reach, self.now);
                self.act(who, step);
            }
            (Some(_), None) => unreachable!("covered by the guard"),
        }
        true
    }

    /// Runs until nothing happens any more; returns how many hellos were sent after both were connected, and how many packets
    /// were under way then.
    fn run(&mut self) -> (u32, usize) {
        let mut at_connection = None;
        for _ in 0..100_000 {
            let connected = self.nodes.iter().all(Node::is_connected);
            let sent = self.nodes.iter().map(|node| node.sent).sum::<u32>();
            if connected {
                at_connection.get_or_insert((sent, self.queue.len()));
            } else {
                at_connection = None;
            }
            if !self.advance() {
                let (before, under_way) = at_connection.unwrap_or((sent, 0));
                return (sent - before, under_way);
            }
        }
        panic!("seed {}: no end", self.seed);
    }

    fn assert_connected_once(&self) {
        for who in 0..2 {
            let node = &self.nodes[who];
            assert_eq!((node.confirmed, node.programmed), (1, 1), "seed {}: node {who}, {:?}", self.seed, node.failed);
            self.assert_may_send(who);
        }
    }
}

/// Loss up to 60 %, doubling up to 30 %, delays up to four retries.
fn bad_weather(random: &mut Random) -> Weather {
    let mut loss = || random.below(61);
    let (ud_loss, tcp_loss) = ([loss(), loss()], [loss(), loss()]);
    Weather { ud_loss, tcp_loss, twice: random.below(31), delay: 1 + random.below(200), reach: Reach::Unused }
}

#[test]
fn both_sides_connect_exactly_once_in_any_weather() {
    for seed in 0..4000 {
        let mut random = Random::new(seed);
        let weather = bad_weather(&mut random);
        let mut world = World::new(seed, weather);
        world.connect(0);
        // One side alone, both at once, or the second while the first one's packets are under way.
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
        let (after, under_way) = world.run();
        world.assert_connected_once();
        assert_eq!(world.nodes[0].superseded + world.nodes[1].superseded, 0, "seed {seed}");
        assert!(after as usize <= under_way, "seed {seed}: {after} packets after the end, {under_way} were under way");
    }
}

#[test]
fn without_loss_three_packets_connect_one_starter_and_six_connect_two() {
    let mut world = World::new(1, FAIR);
    world.connect(0);
    world.run();
    world.assert_connected_once();
    assert_eq!(world.nodes[0].sent + world.nodes[1].sent, 3);

    let mut world = World::new(1, Weather { delay: 0, ..FAIR });
    world.connect(0);
    world.connect(1);
    world.run();
    world.assert_connected_once();
    assert!(world.nodes[0].sent + world.nodes[1].sent <= 6);
}

#[test]
fn a_side_that_restarts_as_a_new_instance_connects_anew() {
    for seed in 0..4000 {
        let mut random = Random::new(seed);
        let weather = bad_weather(&mut random);
        let mut world = World::new(seed, weather);
        world.strict = false;
        world.connect(0);
        for _ in 0..random.below(12) {
            world.advance();
        }
        // The new life counts its epochs from the beginning; packets of the old one are still under way, both ways.
        world.nodes[1] = Node::new(1, 0xb1);
        world.connect(0);
        if seed % 2 == 0 {
            world.connect(1);
        }
        world.run();
        world.assert_connected_once();
    }
}

#[test]
fn a_side_that_drops_its_end_and_begins_anew_takes_the_other_along() {
    let mut superseded = 0;
    for seed in 0..4000 {
        let mut random = Random::new(seed);
        let weather = bad_weather(&mut random);
        let mut world = World::new(seed, weather);
        world.strict = false;
        world.connect(0);
        for _ in 0..random.below(14) {
            world.advance();
        }
        // The same process gives up its end (and counts on); the other may still hold, or be making, the old connection.
        let who = random.below(2) as usize;
        world.nodes[who].handshake = None;
        world.nodes[who].set_to = None;
        for _ in 0..random.below(3) {
            world.advance();
        }
        if world.nodes[who].handshake.is_none() {
            world.connect(who);
        }
        world.run();
        world.assert_connected_once();
        superseded += world.nodes[0].superseded + world.nodes[1].superseded;
    }
    assert!(superseded > 100, "the case was met {superseded} times");
}

#[test]
fn tcp_takes_over_where_datagrams_do_not_get_through() {
    for blocked in [[100, 100], [100, 0], [0, 100]] {
        let mut world = World::new(5, Weather { ud_loss: blocked, ..FAIR });
        world.connect(0);
        world.run();
        world.assert_connected_once();
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
        world.run();
        world.assert_connected_once();
        for node in &world.nodes {
            let handshake = node.handshake.as_ref().expect("connected");
            assert_eq!((handshake.ud_sent > 0, handshake.tcp_sent > 0), (paths.ud, paths.tcp));
        }
    }
}

#[test]
fn a_peer_that_computes_for_an_hour_is_waited_for_while_tcp_stands() {
    let mut world = World::new(5, Weather { reach: Reach::Open, ..FAIR });
    world.nodes[1].computes_until = Duration::from_hours(1);
    world.connect(0);
    world.run();
    world.assert_connected_once();
    assert!(world.now >= Duration::from_hours(1));
}

#[test]
fn a_silent_peer_is_a_failure_soon_after_the_time_out_unless_tcp_stands() {
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
fn a_peer_that_answers_but_never_confirms_is_a_failure_on_both_sides() {
    // Towards node 0 all arrives, towards node 1 nothing: node 1 gives up first, and node 0 after it went silent.
    let mut world = World::new(5, Weather { ud_loss: [0, 100], tcp_loss: [0, 100], ..FAIR });
    world.connect(0);
    world.connect(1);
    world.run();
    assert_eq!(world.nodes[1].failed.expect("it failed").reason, FailureReason::Unanswered);
    assert_eq!(world.nodes[0].failed.expect("it failed").reason, FailureReason::Unconfirmed);
    assert!(world.now < Duration::from_secs(125));
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

/// A handshake of node 0 that has heard one hello of node 1, and that hello.
fn one_heard() -> (Node, Handshake, Hello) {
    let (mut zero, mut one) = (Node::new(0, 0xa0), Node::new(1, 0xb0));
    zero.connect(0xb0, BOTH, Duration::ZERO, &Tunables::default());
    one.epochs = 4;
    one.connect(0xa0, BOTH, Duration::ZERO, &Tunables::default());
    let hello = one.handshake.as_ref().expect("made").hello(&one.me);
    let mut handshake = zero.handshake.take().expect("made");
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
    assert!(handshake.on_data());
    assert!(!handshake.on_data());
    assert!(handshake.is_confirmed() && handshake.due().is_none());
    let mut unset = Node::new(0, 0xa0);
    unset.connect(0xb0, BOTH, Duration::ZERO, &Tunables::default());
    assert!(!unset.handshake.expect("made").on_data());
}

#[test]
fn hellos_for_and_from_other_lives_are_ignored() {
    let (node, mut handshake, hello) = one_heard();
    let for_another = Hello { destination_instance: 0xdead, ..hello };
    assert_eq!(handshake.on_hello(&node.me, &for_another, Carrier::Ud, MS), ignored(Ignored::NotForUs));
    let mut from_another = hello;
    from_another.source.address.instance = 0xdead;
    assert_eq!(handshake.on_hello(&node.me, &from_another, Carrier::Ud, MS), ignored(Ignored::OtherInstance));
}

#[test]
fn late_and_conflicting_hellos_are_ignored() {
    let (node, mut handshake, hello) = one_heard();
    let late = Hello { qp: QpInfo { epoch: 4, ..hello.qp }, ..hello };
    assert_eq!(handshake.on_hello(&node.me, &late, Carrier::Ud, MS), ignored(Ignored::Late));
    let heard_an_old_one = Hello { heard_qpn: 0x77, heard_epoch: 1, ..hello };
    assert_eq!(handshake.on_hello(&node.me, &heard_an_old_one, Carrier::Ud, MS), ignored(Ignored::Late));
    for qp in [QpInfo { qpn: 0x999, ..hello.qp }, QpInfo { psn: 0x999, ..hello.qp }] {
        let conflict = Hello { qp, ..hello };
        assert_eq!(handshake.on_hello(&node.me, &conflict, Carrier::Ud, MS), ignored(Ignored::Conflict));
    }
}

#[test]
fn a_newer_epoch_replaces_an_unconfirmed_peer_and_supersedes_a_confirmed_one() {
    let (node, mut handshake, hello) = one_heard();
    let newer = Hello { qp: QpInfo { epoch: 6, qpn: 0x300, ..hello.qp }, ..hello };
    let step = handshake.on_hello(&node.me, &newer, Carrier::Tcp, MS);
    assert_eq!(step.program.map(|program| (program.qpn, program.reset)), Some((0x300, true)));
    assert_eq!(step.send, Some(Via::Tcp));
    assert!(handshake.on_data());
    let newest = Hello { qp: QpInfo { epoch: 7, ..newer.qp }, ..newer };
    let step = handshake.on_hello(&node.me, &newest, Carrier::Ud, MS);
    assert_eq!(step, Step { superseded: true, ..Step::default() });
}

#[test]
fn a_confirmed_hello_gets_no_answer_and_a_doubled_one_one_each() {
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
fn tries_double_their_pause_up_to_a_second_and_tcp_joins_after_four() {
    let mut node = Node::new(0, 0xa0);
    node.connect(0xb0, BOTH, Duration::ZERO, &Tunables::default());
    let mut handshake = node.handshake.take().expect("made");
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
fn a_failure_names_peer_and_port_and_what_was_tried_and_what_to_do() {
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
         look for its last words. If it computes for long without calling MPI, set btl_ibex_connect_timeout above that time."
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
    // Part of the 1 KiB a connected peer may cost.
    assert!(size_of::<Handshake>() <= 192, "{}", size_of::<Handshake>());
}
