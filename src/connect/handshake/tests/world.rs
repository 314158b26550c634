// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two processes and a simulated network that loses, doubles, delays and reorders, in virtual time. The simulation
//! knows to which queue pair each queue pair is set, so it checks that a confirmed side may really send. Every run is a
//! pure function of its seed, which a failing assertion prints.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::*;
use crate::select::key::Key;

pub(super) const MS: Duration = Duration::from_millis(1);
pub(super) const BOTH: Paths = Paths { ud: true, tcp: true };

#[derive(Copy, Clone)]
pub(super) struct Weather {
    /// Percentage of datagrams lost, towards node 0 and node 1.
    pub(super) ud_loss: [u64; 2],
    /// Percentage of TCP packets lost (injected faults), towards node 0 and node 1.
    pub(super) tcp_loss: [u64; 2],
    pub(super) twice: u64,
    /// Longest delay, in ms; packets overtake each other.
    pub(super) delay: u64,
    pub(super) reach: Reach,
}

pub(super) const FAIR: Weather =
    Weather { ud_loss: [0, 0], tcp_loss: [0, 0], twice: 0, delay: 2, reach: Reach::Unused };

/// A process with at most one connection: the port's part of a handshake, on a fake adapter.
pub(super) struct Node {
    pub(super) me: Identity,
    peer: Identity,
    pub(super) epochs: u32,
    pub(super) handshake: Option<Handshake>,
    /// The connection in use and its peer's queue pair, while `handshake` is its successor and not confirmed.
    in_use: Option<(Handshake, Option<(u32, u32)>)>,
    /// The peer's queue pair to which the current one is set.
    pub(super) set_to: Option<(u32, u32)>,
    confirmed: u32,
    programmed: u32,
    pub(super) superseded: u32,
    pub(super) failed: Option<Failure>,
    pub(super) sent: u32,
    /// Time until which the process computes and does not look at the network.
    pub(super) computes_until: Duration,
}

impl Node {
    pub(super) fn new(rank: u32, instance: u64) -> Node {
        let identity = |rank, instance| Identity {
            name: PeerName { job: 0x10001, rank },
            port: rank as u8,
            address: PortAddress { instance, mtu: 3 + rank as u8, ..ethernet() },
            key: Key::from_bytes([1 + rank as u8; Key::SIZE]),
        };
        Node {
            me: identity(rank, instance),
            peer: identity(1 - rank, 0),
            epochs: 0,
            handshake: None,
            in_use: None,
            set_to: None,
            confirmed: 0,
            programmed: 0,
            superseded: 0,
            failed: None,
            sent: 0,
            computes_until: Duration::ZERO,
        }
    }

    /// Makes a queue pair and begins a connection. The adapter reuses numbers, on purpose.
    pub(super) fn connect(&mut self, peer_instance: u64, paths: Paths, now: Duration, tunables: &Tunables) {
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

    pub(super) fn drop_end(&mut self) {
        (self.handshake, self.in_use, self.set_to) = (None, None, None);
    }

    pub(super) fn has_successor(&self) -> bool {
        self.in_use.is_some()
    }

    fn qp(&self) -> Option<QpInfo> {
        self.handshake.as_ref().map(Handshake::local)
    }

    fn is_connected(&self) -> bool {
        self.handshake.as_ref().is_some_and(Handshake::is_confirmed)
    }
}

type Queue = BinaryHeap<Reverse<(Duration, u64, usize, bool, Vec<u8>)>>;

pub(super) struct World {
    pub(super) nodes: [Node; 2],
    weather: Weather,
    pub(super) paths: Paths,
    tunables: Tunables,
    random: Random,
    queue: Queue,
    packets: u64,
    pub(super) now: Duration,
    seed: u64,
    /// Every packet that was sent, and its receiver, to be sent again.
    pub(super) recorded: Vec<(usize, Vec<u8>)>,
    /// Whether no event drops one side alone; then a confirmed side's peer must have its queue pair set at once.
    strict: bool,
}

impl World {
    pub(super) fn new(seed: u64, weather: Weather) -> World {
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
            recorded: Vec::new(),
            strict: true,
        }
    }

    /// A run in bad weather in which node 0 has begun and fewer than `most` events have followed; sides may be dropped
    /// now. Also returns the random numbers for the rest of the run.
    pub(super) fn begun(seed: u64, most: u64) -> (World, Random) {
        let mut random = Random::new(seed);
        let weather = bad_weather(&mut random);
        let mut world = World::new(seed, weather);
        world.strict = false;
        world.connect(0);
        for _ in 0..random.below(most) {
            world.advance();
        }
        (world, random)
    }

    pub(super) fn connect(&mut self, who: usize) {
        let instance = self.nodes[1 - who].me.address.instance;
        self.nodes[who].connect(instance, self.paths, self.now, &self.tunables);
    }

    fn send(&mut self, from: usize, via: Via) {
        let node = &mut self.nodes[from];
        node.sent += 1;
        let bytes = node.handshake.as_ref().expect("a handshake that sends").hello(&node.me).encode(&KEY).to_vec();
        self.recorded.push((1 - from, bytes.clone()));
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

    /// The port's part: executes a step.
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
            (node.confirmed, node.in_use) = (node.confirmed + 1, None);
            if self.strict {
                self.assert_may_send(who);
            }
        }
        if let Some(failure) = step.failed {
            let node = &mut self.nodes[who];
            if let Some((handshake, set_to)) = node.in_use.take() {
                // The successor has failed.
                (node.handshake, node.set_to) = (Some(handshake), set_to);
                (node.confirmed, node.programmed) = (1, 1);
                return;
            }
            assert!(self.nodes[who].failed.replace(failure).is_none(), "seed {}: failed twice", self.seed);
        }
        if let Some(via) = step.send {
            self.send(who, via);
        }
    }

    fn assert_may_send(&self, who: usize) {
        let mine = self.nodes[who].qp().map(|qp| (qp.qpn, qp.psn));
        assert_eq!(self.nodes[1 - who].set_to, mine, "seed {}: node {who} may send too soon", self.seed);
    }

    pub(super) fn deliver(&mut self, who: usize, tcp: bool, bytes: &[u8]) {
        let hello = Hello::decode(bytes, &KEY).expect("the network does not damage");
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
        if let Some((in_use, _)) = &self.nodes[who].in_use {
            // A hello that does not belong to a later connection is outdated.
            if !in_use.is_earlier_than(&hello) {
                return;
            }
        }
        let mut step = hand_over(&mut self.nodes[who]);
        if step.superseded {
            let instance = hello.source.address.instance;
            let node = &mut self.nodes[who];
            node.superseded += 1;
            let in_use = node.handshake.take().map(|handshake| (handshake, node.set_to));
            node.connect(instance, self.paths, self.now, &self.tunables);
            node.in_use = in_use;
            step = hand_over(&mut self.nodes[who]);
            assert!(!step.superseded, "seed {}: a new handshake is superseded at once", self.seed);
        }
        self.act(who, step);
    }

    pub(super) fn advance(&mut self) -> bool {
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

    /// Runs until no event is left. Returns the hellos sent since both were connected, and the packets in flight then.
    pub(super) fn run(&mut self) -> (u32, usize) {
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

    /// Runs like [`World::run`], and both sides connect, exactly once.
    pub(super) fn run_connects(&mut self) -> (u32, usize) {
        let counts = self.run();
        for who in 0..2 {
            let node = &self.nodes[who];
            assert_eq!((node.confirmed, node.programmed), (1, 1), "seed {}: node {who}, {:?}", self.seed, node.failed);
            self.assert_may_send(who);
        }
        counts
    }
}

/// Loss up to 60 %, doubling up to 30 %, delays up to four retries.
pub(super) fn bad_weather(random: &mut Random) -> Weather {
    let mut loss = || random.below(61);
    let (ud_loss, tcp_loss) = ([loss(), loss()], [loss(), loss()]);
    Weather { ud_loss, tcp_loss, twice: random.below(31), delay: 1 + random.below(200), reach: Reach::Unused }
}
