// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forged hellos, over the fabric and over TCP, to ports that are connected and at work.
//!
//! A *stranger* knows all that a recording of packets shows (instances, addresses, the layout), but not the key, which
//! only the modex has. A *member* of the job has the key. Neither may end, hang or spoil anything.

use crate::pair::{Got, Pair, pattern, received};
use ibex::connect::Identity;
use ibex::connect::hello::{Hello, QpInfo};
use ibex::connect::ud::UdCarrier;
use ibex::peer::PeerName;
use ibex::select::key::Key;
use ibex::tunables::Tunables;
use ibex_ffi::verbs::{Context, Path, ProtectionDomain};
use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

struct Stranger {
    ud: UdCarrier,
    streams: Vec<TcpStream>,
}

impl Stranger {
    fn new(pair: &Pair, tunables: &Tunables) -> Self {
        let context = Context::open(&pair.choice().device).expect("a device");
        let domain = ProtectionDomain::new(&context).expect("a domain");
        Stranger { ud: UdCarrier::open(&context, &domain, pair.choice(), tunables).expect("UD"), streams: Vec::new() }
    }

    fn send(&mut self, pair: &Pair, frame: &[u8; Hello::SIZE]) {
        self.send_datagram(pair, frame);
        let b = pair.b().address();
        let address = b.ip_addresses().next().expect("an address").to_canonical();
        let mut stream = TcpStream::connect((address, b.tcp_port)).expect("it listens");
        stream.write_all(frame).expect("room");
        self.streams.push(stream);
    }

    fn send_datagram(&mut self, pair: &Pair, frame: &[u8; Hello::SIZE]) {
        let (b, choice) = (pair.b().address(), pair.choice());
        let path = Path {
            qp_num: b.ud_qpn,
            psn: 0,
            mtu: u32::from(b.mtu),
            lid: b.lid,
            gid: choice.is_ethernet().then_some(b.gid),
            gid_index: choice.gid_index,
            port: choice.port,
            service_level: 0,
            traffic_class: 0,
        };
        self.ud.poll(|_| {}).expect("its own completions");
        self.ud.send(b, &path, frame).expect("a datagram");
    }
}

/// A hello to b from `rank`, whose port has this instance, for its connection `epoch`.
fn hello(pair: &Pair, rank: u32, instance: u64, epoch: u32) -> Hello {
    let mut address = *pair.a.address();
    address.instance = instance;
    Hello {
        source: Identity { name: PeerName { job: 1, rank }, port: 0, address, key: Key::from_bytes([7; Key::SIZE]) },
        destination_instance: pair.b().address().instance,
        destination_port: 0,
        qp: QpInfo { qpn: 0x77, psn: 5, epoch, initiator_depth: 1, responder_resources: 1, endpoint: 0 },
        heard_qpn: 0,
        heard_epoch: 0,
        confirmed: false,
        declined: None,
    }
}

/// Hellos from an unknown rank, from a known rank's later connection, and from another instance of a known rank.
fn lies(pair: &Pair) -> Vec<Hello> {
    let instance = pair.a.address().instance;
    vec![
        hello(pair, 77, instance, 1),
        hello(pair, 0, instance, 1000),
        hello(pair, 0, instance ^ 1, 1000),
        hello(pair, 9, 5, 1),
    ]
}

fn talk(pair: &mut Pair, rounds: u32) {
    for round in 0..rounds {
        let text = pattern(round, 60);
        pair.send_inline(3, &text, b"");
        assert_eq!(received(&pair.until_b(|events| !events.is_empty())), [(3, text.clone())]);
        pair.send_inline_from_b(4, &text, b"");
        assert_eq!(received(&pair.until_a(|events| !events.is_empty())), [(4, text)]);
    }
}

/// Exchanges messages until `hellos` hellos were refused: a port looks for them in few of its polls.
fn until_dropped(pair: &mut Pair, hellos: u64) {
    pair.until(|pair| talk(pair, 1), |pair| pair.count_b("handshakes_dropped") >= hellos);
}

#[test]
#[ignore = "needs an RDMA device (IBEX_DEVICE)"]
fn forged_hellos_by_datagram_and_tcp_disturb_no_connection_and_are_reported_once() {
    let tunables = Tunables { verbose: 1, ..Tunables::default() };
    let mut pair = Pair::open(&tunables);
    pair.connect();
    // Lines that the ports wrote when they were opened.
    let of_ports = pair.lines().len();
    let mut stranger = Stranger::new(&pair, &tunables);
    let mut sent = 0;
    for forged in lies(&pair) {
        let good = forged.encode(&pair.b().entry().key);
        for place in 0..Hello::SIZE {
            // A valid hello with one byte changed; and one made with a guessed key.
            let mut frame = if place == 0 { forged.encode(&Key::from_bytes([7; 16])) } else { good };
            frame[place] ^= u8::from(place > 0);
            // A few at a time, because the datagram queue pair has few receives.
            stranger.send(&pair, &frame);
            sent += 2;
            if place % 16 == 0 || place + 1 == Hello::SIZE {
                until_dropped(&mut pair, sent);
            }
        }
    }
    assert_eq!((pair.count_b("connections"), pair.count_b("connected"), pair.count_b("failed")), (1, 1, 0));
    assert_eq!((pair.count_b("handshakes_dropped"), pair.count_b("tcp_refused")), (sent, sent / 2));
    let lines = pair.lines().split_off(of_ports);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].contains("refused what came") && lines[0].contains("not sealed with this port's key"),
        "{lines:?}"
    );
}

#[test]
#[ignore = "needs an RDMA device (IBEX_DEVICE)"]
fn a_member_of_the_job_with_a_false_name_or_connection_ends_no_connection() {
    let tunables = Tunables { verbose: 1, connect_timeout: 1, ..Tunables::default() };
    let mut pair = Pair::open(&tunables);
    pair.connect();
    let key = pair.b().entry().key;
    let mut stranger = Stranger::new(&pair, &tunables);
    let until_said = |pair: &mut Pair, words: &str| pair.until(|pair| talk(pair, 1), |pair| pair.has_said(words));
    let instance = pair.a.address().instance;
    // A later connection of a connected rank: the port begins a successor, and gives it up.
    stranger.send(&pair, &hello(&pair, 0, instance, 1000).encode(&key));
    until_said(&mut pair, "began a connection and left it");
    stranger.send(&pair, &hello(&pair, 77, instance, 1).encode(&key));
    until_said(&mut pair, "rank 77");
    // After an unknown name the port looks up no other for a second, so the hello is repeated, as a real peer's is.
    let mut next = Instant::now();
    let frame = hello(&pair, 1, instance, 1).encode(&key);
    let say = |pair: &mut Pair| {
        if Instant::now() >= next {
            stranger.send(pair, &frame);
            next += Duration::from_millis(500);
        }
        talk(pair, 1);
    };
    pair.until(say, |pair| pair.has_said("another instance"));
    for lie in lies(&pair).iter().cycle().take(40) {
        stranger.send(&pair, &lie.encode(&key));
        talk(&mut pair, 20);
    }
    assert_eq!((pair.count_b("connections"), pair.count_b("connected"), pair.count_b("failed")), (1, 1, 0));
    let lines = pair.lines();
    assert!(
        lines.iter().any(|line| line.contains("rank 77") && line.contains("has published no such port")),
        "{lines:?}"
    );
    talk(&mut pair, 20);
    assert!(pair.b().failure(pair.to_a).is_none());
}

#[test]
#[ignore = "needs an RDMA device (IBEX_DEVICE)"]
fn a_peer_that_gave_up_its_end_connects_anew() {
    for via in ["ud", "tcp"] {
        let mut pair = Pair::open(&Tunables { connect_via: via.to_owned(), ..Tunables::default() });
        pair.connect();
        for round in 2..6 {
            pair.renew_a();
            talk(&mut pair, 3);
            assert_eq!((pair.count_b("connections"), pair.count_b("connected"), pair.count_b("failed")), (1, round, 0));
        }
    }
}

#[test]
#[ignore = "needs an RDMA device (IBEX_DEVICE)"]
fn a_peer_that_begins_a_connection_and_falls_silent_is_no_failure_if_no_request_waits() {
    // By TCP the kernel of the peer's host would show that its process lives.
    let connect_via = "ud".to_owned();
    let tunables = Tunables { verbose: 1, connect_timeout: 1, connect_via, ..Tunables::default() };
    let mut pair = Pair::open(&tunables);
    // The hello of a process that is in the modex, but then falls silent.
    let (key, instance) = (pair.b().entry().key, pair.a.address().instance);
    let mut stranger = Stranger::new(&pair, &tunables);
    let begun = hello(&pair, 0, instance, 3).encode(&key);
    stranger.send_datagram(&pair, &begun);
    let events = pair.until_b_says("began a connection and left it");
    assert!(!events.contains(&Got::Failure), "{events:?}");
    assert_eq!((pair.count_b("connections"), pair.count_b("failed")), (0, 0));
}

#[test]
#[ignore = "needs an RDMA device (IBEX_DEVICE)"]
fn ibex_shows_the_acknowledgement_time_out_which_bears_two_seconds_of_silence() {
    let mut pair = Pair::open(&Tunables { verbose: 2, ..Tunables::default() });
    pair.connect();
    talk(&mut pair, 1);
    // It depends on the handshake's round trip, which is long on a busy machine; at least 4.096 us * 2^16.
    let times: Vec<u64> = (16..=31).map(|exponent| (4096 << exponent) / 1000).collect();
    for count in [pair.count_a("ack_timeout"), pair.count_b("ack_timeout")] {
        assert!(times.contains(&count), "{count} us");
    }
    let lines = pair.lines();
    let shown = |line: &&String| line.contains("round trip at most") && line.contains("waits for an acknowledgement");
    assert_eq!(lines.iter().filter(shown).count(), 2, "{lines:?}");
    let mut pair = Pair::open(&Tunables { ack_timeout: 14, ..Tunables::default() });
    pair.connect();
    talk(&mut pair, 1);
    assert_eq!(pair.count_a("ack_timeout"), 67_108);
}
