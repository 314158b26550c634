// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the TCP carrier over real sockets of the loopback interface. No test sleeps; each polls both sides until
//! the expected event has come, or fails after a generous time.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::link::{CLOSE_PATIENCE, CONNECT_PATIENCE, LAST_PATIENCE};
use super::*;
use crate::connect::hello::HelloError;
use crate::connect::hello::tests::{KEY, hello};

mod strangers;

const HOST: u64 = 77;

/// An address of this host at which no test listens: a free port of another could be taken by a test beside this one.
const NOBODYS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 4);

struct Side {
    carrier: TcpCarrier,
    address: PortAddress,
    got: Vec<Hello>,
    refused: Vec<Refusal>,
}

impl Side {
    fn new(instance: u64) -> Side {
        let loopback = [Ipv4Addr::LOCALHOST.into()];
        let carrier = TcpCarrier::open(KEY, HOST, &loopback, loopback.to_vec()).expect("a listener on this host");
        let (tcp_port, tcp_addresses) = (carrier.port(), carrier.addresses());
        let address = PortAddress { instance, host: HOST, tcp_port, tcp_addresses, ..hello().source.address };
        Side { carrier, address, got: Vec::new(), refused: Vec::new() }
    }

    fn hello(&self, to: &PortAddress, psn: u32) -> Hello {
        let mut made = hello();
        made.source.address = self.address;
        made.destination_instance = to.instance;
        made.qp.psn = psn;
        made
    }

    fn send(&mut self, to: &PortAddress, psn: u32) {
        let hello = self.hello(to, psn);
        self.carrier.expect(to);
        self.carrier.send(to, &hello.encode(&KEY));
    }

    /// Polls like a port that begins a handshake with every peer that asks.
    fn poll(&mut self) {
        let before = self.got.len();
        self.poll_alone();
        for hello in &self.got[before..] {
            self.carrier.expect(&hello.source.address);
        }
    }

    /// Polls like a port that begins no handshake.
    fn poll_alone(&mut self) {
        self.carrier.poll(&mut |arrival| match arrival {
            Ok(hello) => self.got.push(hello),
            Err(refusal) => self.refused.push(refusal),
        });
    }

    fn numbers(&self) -> Vec<u32> {
        self.got.iter().map(|hello| hello.qp.psn).collect()
    }

    fn connect_raw(&self) -> TcpStream {
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.address.tcp_port)).expect("somebody listens")
    }
}

/// Polls until `done`; fails if that takes longer than any machine needs.
fn until(what: &str, sides: &mut [&mut Side], mut done: impl FnMut(&[&mut Side]) -> bool) {
    let begin = Instant::now();
    while !done(sides) {
        assert!(begin.elapsed() < Duration::from_mins(2), "waited in vain for {what}");
        for side in sides.iter_mut() {
            side.poll();
        }
        std::thread::yield_now();
    }
}

/// Two sides with a connection on which the first one has sent a hello with the number 1.
fn connected() -> (Side, Side) {
    let (mut a, mut b) = (Side::new(1), Side::new(2));
    a.send(&b.address, 1);
    until("the connection", &mut [&mut a, &mut b], |sides| sides[1].got.len() == 1);
    (a, b)
}

#[test]
fn hellos_go_both_ways_on_one_connection() {
    let (mut a, mut b) = connected();
    assert_eq!(b.got[0], a.hello(&b.address, 1));
    b.send(&a.address, 20);
    until("the answer", &mut [&mut a, &mut b], |sides| sides[0].got.len() == 1);
    assert_eq!(a.numbers(), [20]);
    assert_eq!((a.carrier.links.len(), b.carrier.links.len()), (1, 1));
    assert_eq!(b.carrier.counters.accepted, 1);
    assert_eq!((a.carrier.reach(&b.address), b.carrier.reach(&a.address)), (Reach::Open, Reach::Open));
}

#[test]
fn many_hellos_arrive_whole_and_in_order() {
    let (mut a, mut b) = connected();
    for number in 2..200 {
        a.send(&b.address, number);
    }
    until("all", &mut [&mut a, &mut b], |sides| sides[1].got.last().is_some_and(|last| last.qp.psn == 199));
    assert_eq!(b.numbers(), (1..200).collect::<Vec<_>>());
}

#[test]
fn a_newer_hello_replaces_one_that_waits_for_the_connection() {
    let (mut a, mut b) = (Side::new(1), Side::new(2));
    a.send(&b.address, 1);
    a.send(&b.address, 2);
    until("the newest", &mut [&mut a, &mut b], |sides| !sides[1].got.is_empty());
    assert_eq!(b.numbers(), [2]);
}

#[test]
fn both_sides_may_connect_at_once() {
    let (mut a, mut b) = (Side::new(1), Side::new(2));
    a.send(&b.address, 1);
    b.send(&a.address, 2);
    until("both", &mut [&mut a, &mut b], |sides| sides.iter().all(|side| !side.got.is_empty()));
    a.carrier.close(&b.address);
    b.carrier.close(&a.address);
    until("the end", &mut [&mut a, &mut b], |sides| sides.iter().all(|side| side.carrier.is_idle()));
}

#[test]
fn hellos_sent_before_closing_arrive_and_both_ends_forget_the_connection() {
    let (mut a, mut b) = connected();
    a.send(&b.address, 2);
    a.carrier.close(&b.address);
    until("the last word", &mut [&mut a, &mut b], |sides| sides[1].got.len() == 2);
    until("the end", &mut [&mut a, &mut b], |sides| sides.iter().all(|side| side.carrier.is_idle()));
    a.send(&b.address, 3);
    until("the new one", &mut [&mut a, &mut b], |sides| sides[1].got.len() == 3);
}

#[test]
fn a_hello_sent_after_close_arrives_and_the_connection_still_ends() {
    let (mut a, mut b) = connected();
    a.carrier.close(&b.address);
    a.send(&b.address, 2);
    until("the last word", &mut [&mut a, &mut b], |sides| sides[1].got.len() == 2);
    until("the end", &mut [&mut a, &mut b], |sides| sides.iter().all(|side| side.carrier.is_idle()));
    assert_eq!(b.carrier.counters.accepted, 1);
}

#[test]
fn tcp_reaches_a_computing_peer_although_it_is_silent() {
    let (mut a, b) = (Side::new(1), Side::new(2));
    a.send(&b.address, 1);
    assert_eq!(a.carrier.reach(&b.address), Reach::Trying);
    until("the kernel of the peer", &mut [&mut a], |sides| sides[0].carrier.reach(&b.address) == Reach::Open);
    assert!(b.got.is_empty());
}

#[test]
fn a_port_without_a_listener_counts_as_refused_also_during_the_next_try() {
    let (mut a, b) = (Side::new(1), Side::new(2));
    let gone = PortAddress { tcp_addresses: host::published(&[NOBODYS.into()]), ..b.address };
    assert_eq!(a.carrier.reach(&gone), Reach::Unused);
    for _ in 0..3 {
        a.send(&gone, 1);
        until("the refusal", &mut [&mut a], |sides| sides[0].carrier.is_idle());
        assert_eq!(a.carrier.reach(&gone), Reach::Refused);
    }
    a.carrier.close(&gone);
    assert_eq!(a.carrier.reach(&gone), Reach::Unused);
}

#[test]
fn the_carrier_notices_that_a_connected_peer_has_ended() {
    let (mut a, b) = connected();
    let gone = b.address;
    drop(b);
    until("its end", &mut [&mut a], |sides| sides[0].carrier.reach(&gone) == Reach::Refused);
    assert!(a.carrier.is_idle());
}

#[test]
fn a_peer_without_port_or_address_is_unreachable() {
    let (mut a, b) = (Side::new(1), Side::new(2));
    let mut nowhere = PortAddress { tcp_port: 0, ..b.address };
    a.send(&nowhere, 1);
    assert_eq!(a.carrier.reach(&nowhere), Reach::Unreachable);
    // On another host our own addresses cannot be the peer's.
    nowhere = PortAddress { host: HOST + 1, instance: 3, ..b.address };
    a.send(&nowhere, 1);
    assert_eq!(a.carrier.reach(&nowhere), Reach::Unreachable);
    assert!(a.carrier.is_idle());
}

#[test]
fn the_carrier_tries_the_next_address_if_one_refuses_or_belongs_to_a_stranger() {
    for is_taken in [true, false] {
        let (mut a, mut b) = (Side::new(1), Side::new(2));
        let stranger = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let wrong = stranger.local_addr().expect("its address");
        let stranger = Some(stranger).filter(|_| is_taken);
        let right = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), b.address.tcp_port);
        let mut link = Link::connect(b.address.instance, vec![right, wrong], Instant::now()).expect("it begins");
        link.send(a.hello(&b.address, 5).encode(&KEY)).expect("it waits");
        a.carrier.links.push(link);
        // The stranger accepts the connection and closes it, like a carrier that gets a hello for another instance.
        drop(stranger.map(|stranger| stranger.accept().expect("the wrong address is tried first")));
        until("the right one", &mut [&mut a, &mut b], |sides| sides[1].got.len() == 1);
        assert_eq!(b.numbers(), [5]);
    }
}

#[test]
fn the_carrier_ends_a_connection_that_brings_hellos_of_two_peers() {
    let (a, c, mut b) = (Side::new(1), Side::new(3), Side::new(2));
    let mut wire = b.connect_raw();
    wire.write_all(&a.hello(&b.address, 1).encode(&KEY)).expect("room");
    wire.write_all(&c.hello(&b.address, 2).encode(&KEY)).expect("room");
    until("the second", &mut [&mut b], |sides| sides[0].carrier.counters.garbage == 1);
    assert_eq!(b.numbers(), [1]);
}

#[test]
fn the_carrier_assembles_a_hello_from_small_pieces() {
    let (a, mut b) = (Side::new(1), Side::new(2));
    let mut wire = b.connect_raw();
    wire.set_nodelay(true).expect("a flag");
    let two = [a.hello(&b.address, 1).encode(&KEY), a.hello(&b.address, 2).encode(&KEY)].concat();
    for piece in two.chunks(7) {
        wire.write_all(piece).expect("room");
        b.poll();
    }
    until("both", &mut [&mut b], |sides| sides[0].got.len() == 2);
    assert_eq!(b.numbers(), [1, 2]);
}

#[test]
fn a_half_open_connection_delivers_the_hello_that_came_before_its_end_unless_that_is_incomplete() {
    for (size, numbers) in [(100, &[][..]), (Hello::SIZE, &[9][..])] {
        let (a, mut b) = (Side::new(1), Side::new(2));
        let mut wire = b.connect_raw();
        wire.write_all(&a.hello(&b.address, 9).encode(&KEY)[..size]).expect("room");
        wire.shutdown(Shutdown::Write).expect("a half-open connection");
        until("its end", &mut [&mut b], |sides| sides[0].carrier.counters.accepted == 1 && sides[0].carrier.is_idle());
        assert_eq!(b.numbers(), numbers);
        assert_eq!(wire.read(&mut [0; 1]).unwrap_or(0), 0);
    }
}

#[test]
fn the_carrier_listens_at_the_published_addresses_and_no_others() {
    let addresses: Vec<IpAddr> = ["127.0.0.2", "127.0.0.3", "::1"].map(|text| text.parse().expect("an address")).into();
    let carrier = TcpCarrier::open(KEY, HOST, &addresses, Vec::new()).expect("listeners");
    assert_eq!(carrier.addresses(), host::published(&carrier.listeners.addresses));
    // A machine may lack IPv6.
    assert!(carrier.listeners.addresses.starts_with(&addresses[..2]), "{:?}", carrier.listeners.addresses);
    for address in &carrier.listeners.addresses {
        TcpStream::connect((*address, carrier.port())).expect("somebody listens");
    }
    let elsewhere = TcpStream::connect((NOBODYS, carrier.port())).expect_err("nobody listens");
    assert_eq!(elsewhere.kind(), io::ErrorKind::ConnectionRefused);
    TcpCarrier::open(KEY, HOST, &["192.0.2.1".parse().expect("an address")], Vec::new())
        .expect_err("another's address");
}

/// An address of this host that does not answer while the sockets exist: the queue of a listener is full.
fn unanswering() -> (SocketAddr, Socket, TcpStream) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a port");
    listener.listen(0).expect("it listens");
    let address = listener.local_addr().ok().and_then(|address| address.as_socket()).expect("its address");
    let first = TcpStream::connect(address).expect("the queue takes one connection");
    (address, listener, first)
}

#[test]
fn hellos_go_by_an_open_connection_and_rather_by_one_that_this_side_has_made() {
    let (a, b) = connected();
    let (address, _listener, _first) = unanswering();
    let begun = Link::connect(5, vec![address], Instant::now()).expect("it begins");
    assert_eq!([&begun, &b.carrier.links[0], &a.carrier.links[0]].map(Link::rank), [0, 1, 2]);
}

#[test]
fn the_carrier_gives_up_an_address_that_does_not_answer() {
    let (address, _listener, _first) = unanswering();
    let begin = Instant::now();
    let mut link = Link::connect(5, vec![address], begin).expect("it begins");
    let mut after = |time| link.advance(&KEY, begin + time, &mut |_| panic!("nobody is there"));
    assert_eq!([after(CONNECT_PATIENCE), after(LAST_PATIENCE / 2)], [Ok(()), Ok(())]);
    assert_eq!(after(LAST_PATIENCE), Err(End::Failed(Reach::Unreachable)));
}

#[test]
fn the_carrier_tries_the_next_address_if_one_does_not_answer_for_a_while() {
    let (mut a, mut b) = (Side::new(1), Side::new(2));
    let (wrong, _listener, _first) = unanswering();
    let right = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), b.address.tcp_port);
    let begin = Instant::now();
    let mut link = Link::connect(b.address.instance, vec![right, wrong], begin).expect("it begins");
    link.send(a.hello(&b.address, 5).encode(&KEY)).expect("it waits");
    link.advance(&KEY, begin + CONNECT_PATIENCE, &mut |_| panic!("nobody is there")).expect("there is another");
    a.carrier.links.push(link);
    until("the hello", &mut [&mut a, &mut b], |sides| sides[1].got.len() == 1);
}

#[test]
fn a_closed_connection_ends_after_a_while_although_the_peer_leaves_its_end_open() {
    let mut b = Side::new(2);
    let _open = b.connect_raw();
    until("the connection", &mut [&mut b], |sides| sides[0].carrier.links.len() == 1);
    let link = &mut b.carrier.links[0];
    let begin = link.since;
    link.close(begin);
    let mut after = |time| link.advance(&KEY, begin + time, &mut |_| panic!("nothing was sent"));
    assert_eq!([after(Duration::ZERO), after(CLOSE_PATIENCE)], [Ok(()), Ok(())]);
    assert_eq!(after(CLOSE_PATIENCE + Duration::from_nanos(1)), Err(End::Closed));
}
