// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two processes with several ports each in fabrics of one prefix, over simulated adapters: which ports find each
//! other. A datagram arrives only within a fabric; TCP, if there is any, everywhere. The seed determines every run.

mod steps;

use super::*;
use crate::connect::Random;
use crate::connect::hello::Hello;
use crate::select::address::tests::infiniband;
use crate::transport::connections::connection::Phase;
use pair::Published;

struct Fabrics {
    /// Ports of rank 0, then those of rank 1, each with its fabric.
    sides: Vec<(Side, char)>,
    count: usize,
    random: Random,
    /// Percentage of lost hellos.
    loss: u64,
    /// Ports of a process that computes.
    asleep: std::ops::Range<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Connected to this port of the other process.
    Connected(u8),
    Failed,
    /// No request was made of it, or it is not connected yet.
    Open,
}

impl Fabrics {
    /// Two processes whose ports are in these fabrics. Only that of `z` has a prefix of its own.
    fn new(fabrics: [&str; 2], has_tcp: bool, seed: u64) -> Self {
        let tunables = Tunables { connect_timeout: 20, ..Tunables::default() };
        let published = Published::default();
        let mut sides = Vec::new();
        for (rank, ports) in fabrics.iter().enumerate() {
            for (port, fabric) in ports.chars().enumerate() {
                let instance = 1 + 16 * rank as u64 + port as u64;
                let tcp_port = if has_tcp { 99 } else { 0 };
                let address =
                    PortAddress { tcp_port, instance, ..infiniband(if fabric == 'z' { 1 } else { 0xfe80 << 48 }) };
                let place = (rank as u32, port as u8);
                sides.push((Side::of(place, address, &published, &tunables, Atomics::Adapter), fabric));
            }
        }
        Fabrics { sides, count: fabrics[0].len(), random: Random::new(seed), loss: 0, asleep: 0..0 }
    }

    /// Each port polls, unless it is busy, and hellos are delivered as far as possible.
    fn step(&mut self, idle: u64) {
        for index in 0..self.sides.len() {
            if self.random.below(100) >= idle && !self.asleep.contains(&index) {
                self.sides[index].0.poll();
            }
            let mut state = self.sides[index].0.script.state();
            let (sent, via) = (std::mem::take(&mut state.sent), std::mem::take(&mut state.sent_via));
            drop(state);
            for ((to, frame), via) in sent.into_iter().zip(via) {
                if self.random.below(100) >= self.loss {
                    self.arrive(index, &to, &frame, via);
                }
            }
        }
    }

    fn arrive(&self, from: usize, to: &PortAddress, frame: &[u8; Hello::SIZE], via: crate::connect::Via) {
        let (_, here) = &self.sides[from];
        let reached = self.sides.iter().find(|(side, _)| side.port.address().instance == to.instance);
        let (side, there) = reached.expect("somebody lives there");
        let hello = Hello::decode(frame, &side.key).expect("sealed for that port");
        if via.ud() && here == there {
            side.script.state().incoming.push_back(hello);
        }
        if via.tcp() && to.tcp_port != 0 {
            side.script.state().incoming_tcp.push_back(hello);
        }
    }

    fn standing(&self, index: usize) -> Standing {
        let side = &self.sides[index].0;
        if side.port.failure(side.peer).is_some() {
            return Standing::Failed;
        }
        let made = side.port.connections.get(side.peer).filter(|connection| connection.phase() == Phase::Ready);
        let port = side.port.connections.remote(side.peer).map(|(_, port)| port);
        made.and(port).map_or(Standing::Open, Standing::Connected)
    }

    fn all(&self) -> Vec<Standing> {
        (0..self.sides.len()).map(|index| self.standing(index)).collect()
    }

    /// Index of a port of the other process than `index`'s.
    fn other(&self, index: usize, port: u8) -> usize {
        if index < self.count { self.count + usize::from(port) } else { port.into() }
    }

    /// Steps until every endpoint with a request is connected or failed.
    fn settle(&mut self, asked: &[usize], idle: u64) {
        for _ in 0..100_000 {
            if asked.iter().all(|index| self.standing(*index) != Standing::Open) {
                (0..200).for_each(|_| self.step(idle));
                return;
            }
            self.step(idle);
        }
        panic!("{asked:?} never come through: {:?}", self.all());
    }

    fn send(&mut self, asked: &[usize]) {
        for index in asked {
            self.sides[*index].0.send(1).expect("it may wait");
        }
    }

    /// Sends a message from every port to the other process; returns the partners.
    fn all_send(&mut self) -> Vec<Standing> {
        let all: Vec<usize> = (0..self.sides.len()).collect();
        self.send(&all);
        self.settle(&all, 0);
        self.all()
    }

    fn check(&self, what: &str) {
        for index in 0..self.sides.len() {
            if let Standing::Connected(port) = self.standing(index) {
                let other = self.other(index, port);
                let back = Standing::Connected((index % self.count) as u8);
                assert_eq!(self.standing(other), back, "{what}, {index}: {:?}", self.all());
                assert_eq!(self.sides[index].1, self.sides[other].1, "{what}, {index}: {:?}", self.all());
            }
        }
    }
}

fn connected(ports: &[u8]) -> Vec<Standing> {
    ports.iter().map(|port| Standing::Connected(*port)).collect()
}

#[test]
fn ports_that_are_cabled_alike_connect_as_addresses_pair_them() {
    for has_tcp in [false, true] {
        assert_eq!(Fabrics::new(["ab", "ab"], has_tcp, 1).all_send(), connected(&[0, 1, 0, 1]));
        assert_eq!(Fabrics::new(["aaa", "aaa"], has_tcp, 1).all_send(), connected(&[0, 1, 2, 0, 1, 2]));
    }
}

#[test]
fn ports_that_are_cabled_crosswise_find_each_other_with_and_without_tcp() {
    for has_tcp in [false, true] {
        let mut fabrics = Fabrics::new(["ab", "ba"], has_tcp, 1);
        assert_eq!(fabrics.all_send(), connected(&[1, 0, 1, 0]));
        let times = fabrics.sides.iter().map(|(side, _)| side.script.state().now);
        assert!(
            has_tcp || times.max() < Some(Duration::from_millis(1400)),
            "a wrong pair is found out within a second"
        );
        assert_eq!(Fabrics::new(["abc", "cab"], has_tcp, 1).all_send(), connected(&[1, 2, 0, 2, 0, 1]));
        assert_eq!(Fabrics::new(["aabb", "bbaa"], has_tcp, 1).all_send().len(), 8);
    }
}

#[test]
fn ports_of_one_fabric_connect_as_addresses_pair_them_however_late_a_process_is() {
    for (fabrics, late) in [(["aa", "aa"], 900), (["aaa", "aaa"], 4000), (["aa", "aa"], 400), (["aaa", "aaa"], 2000)] {
        for asked in [&[0][..], &[1], &[0, 1], &[1, 0]] {
            let mut fabrics = Fabrics::new(fabrics, true, 1);
            fabrics.send(asked);
            // The other process computes, while hellos from this one arrive at all its ports.
            fabrics.asleep = fabrics.count..2 * fabrics.count;
            (0..late).for_each(|_| fabrics.step(0));
            fabrics.asleep = 0..0;
            fabrics.settle(asked, 0);
            for index in asked {
                assert_eq!(fabrics.standing(*index), Standing::Connected(*index as u8), "{late}");
            }
        }
    }
}

#[test]
fn a_port_with_nothing_to_send_finds_its_partner_too() {
    for asked in [0, 3] {
        let mut fabrics = Fabrics::new(["ab", "ba"], true, 1);
        fabrics.sides[asked].0.send(1).expect("it may wait");
        fabrics.settle(&[asked], 0);
        assert_eq!(fabrics.all(), [Standing::Connected(1), Standing::Open, Standing::Open, Standing::Connected(0)]);
    }
}

#[test]
fn waiting_requests_go_in_order_to_the_port_that_answers() {
    let mut fabrics = Fabrics::new(["ab", "ba"], true, 1);
    (1..=5).for_each(|token| fabrics.sides[0].0.send(token).expect("it may wait"));
    fabrics.settle(&[0], 0);
    let side = &mut fabrics.sides[0].0;
    let index = side.script.connected().expect("it is connected");
    side.script.complete_all(index, Status::SUCCESS);
    (0..3).for_each(|_| side.poll());
    assert_eq!(side.ended().iter().map(|(token, _)| *token).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
}

#[test]
fn a_port_without_a_partner_fails_and_names_all_ports_that_it_tried() {
    let mut fabrics = Fabrics::new(["ab", "ac"], true, 1);
    assert_eq!(
        fabrics.all_send(),
        [Standing::Connected(0), Standing::Failed, Standing::Connected(0), Standing::Failed]
    );
    let side = &fabrics.sides[1].0;
    let failure = side.port.failure(side.peer).expect("it failed");
    assert!(matches!(failure.cause, Cause::Connect { .. }));
    let text = failure.to_string();
    assert!(text.contains("its port 0 is connected to another") && text.contains("its port 1"), "{text}");
    assert!(text.contains("btl_ibex_if_include"), "{text}");
    assert!(side.script.state().now < Duration::from_secs(5));
}

#[test]
fn each_port_reports_in_bounded_time_that_it_reaches_no_other() {
    for has_tcp in [false, true] {
        let mut fabrics = Fabrics::new(["ab", "cd"], has_tcp, 1);
        assert_eq!(fabrics.all_send(), [Standing::Failed; 4]);
        for (side, _) in &fabrics.sides {
            let text = side.port.failure(side.peer).expect("it failed").to_string();
            assert!(text.contains("its port 0") && text.contains("its port 1"), "{text}");
        }
    }
}

#[test]
fn a_single_port_still_connects_by_tcp_alone() {
    let mut fabrics = Fabrics::new(["a", "b"], true, 1);
    assert_eq!(fabrics.all_send(), connected(&[0, 0]), "nothing is known of the fabric");
}

#[test]
fn no_two_ports_of_one_fabric_are_left_without_a_partner() {
    // Each endpoint connects or fails, pairs are mutual and within a fabric, and no two ports of one fabric are both
    // left without a partner.
    for seed in 0..if cfg!(miri) { 1 } else { 40 } {
        let mut random = Random::new(seed);
        let count = 1 + random.below(4) as usize;
        let mut ports = || (0..count).map(|_| ['a', 'b', 'c'][random.below(3) as usize]).collect::<String>();
        let names = [ports(), ports()];
        let mut fabrics = Fabrics::new([&names[0], &names[1]], true, seed);
        fabrics.loss = random.below(3) * 15;
        let idle = random.below(3) * 30;
        let mut asked: Vec<usize> = (0..2 * count).filter(|_| random.below(3) > 0).collect();
        for index in 0..2 * count {
            (0..random.below(60)).for_each(|_| fabrics.step(idle));
            if asked.contains(&index) {
                fabrics.sides[index].0.send(1).expect("it may wait");
            }
        }
        asked.retain(|_| count > 1);
        fabrics.settle(&asked, idle);
        fabrics.loss = 0;
        (0..2000).for_each(|_| fabrics.step(0));
        if count > 1 {
            fabrics.check(&format!("seed {seed}, {names:?}"));
        }
        let left: Vec<usize> =
            asked.iter().copied().filter(|index| fabrics.standing(*index) == Standing::Failed).collect();
        for (one, other) in left.iter().flat_map(|one| left.iter().map(move |other| (*one, *other))) {
            let is_pair = (one < count) != (other < count) && fabrics.sides[one].1 == fabrics.sides[other].1;
            assert!(!is_pair, "seed {seed}, {names:?}: {one} and {other} were left: {:?}", fabrics.all());
        }
    }
}
