// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many senders to one receiver that computes: how often its adapter refuses requests, how many requests the senders'
//! adapters hold, and that all messages arrive in order once it polls. Each test prints its measurements
//! (`--nocapture`); those that depend on time have only upper bounds.

use crate::pair::{Got, Memory, PATIENCE, Published, choice, count, open, poll};
use ibex::peer::PeerName;
use ibex::transport::{EndpointId, Port, Sent, Token, WhenDiverted};
use ibex::tunables::Tunables;
use ibex_ffi::verbs::LocalSpan;
use std::time::{Duration, Instant};

const SLOTS: u64 = 64;
/// Messages that each sender sends in a round.
const MESSAGES: usize = 400;
/// Slots from which a sender sends in turn.
const SLOTS_OF_SENDER: usize = 1024;

struct Sender {
    port: Port,
    to: EndpointId,
    slots: Memory,
    sent: usize,
    got: Vec<Got>,
}

impl Sender {
    /// Sends `messages` numbered messages; queues those that the adapter does not take now.
    fn send(&mut self, messages: usize) {
        for number in self.sent..self.sent + messages {
            let slot = number % SLOTS_OF_SENDER;
            self.slots.write(slot, &(number as u32).to_le_bytes());
            let span: [LocalSpan; 1] = [self.slots.span(slot).first(4)];
            let token = Token(number as u64 + 1);
            if self.port.send(self.to, 1, &span, token, false) == Ok(Sent::Busy) {
                self.port.queue_send(self.to, 1, &span, token, WhenDiverted::Refuse).expect("taken");
            }
        }
        self.sent += messages;
    }
}

struct Crowd {
    receiver: Port,
    senders: Vec<Sender>,
    /// Events of the receiver, and the number of messages from each sender.
    got: Vec<Got>,
    arrived: Vec<(EndpointId, usize)>,
}

impl Crowd {
    /// Connects `senders` senders, each by a message that is thrown away.
    fn connected(senders: u32, tunables: &Tunables) -> Self {
        let (published, choice) = (Published::default(), choice(tunables));
        let mut receiver = open(&choice, tunables, 0, &published);
        let mut made = Vec::new();
        let mut arrived = Vec::new();
        for rank in 1..=senders {
            let mut port = open(&choice, tunables, rank, &published);
            let to = port.peer(PeerName { job: 1, rank: 0 }, 0);
            arrived.push((receiver.peer(PeerName { job: 1, rank }, 0), 0));
            let slots = Memory::new(&port, 64, SLOTS_OF_SENDER);
            made.push(Sender { port, to, slots, sent: 0, got: Vec::new() });
        }
        let mut crowd = Crowd { receiver, senders: made, got: Vec::new(), arrived };
        crowd.senders.iter_mut().for_each(|sender| sender.send(1));
        crowd.finish();
        crowd
    }

    /// Polls the senders alone until `enough`.
    fn receiver_computes_until(&mut self, enough: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !enough(self) {
            let (away, held) = (self.turned_away(), self.sum("held_back"));
            assert!(begin.elapsed() < PATIENCE, "turned away {away} times, held back {held} times");
            self.poll_senders();
        }
    }

    fn poll_senders(&mut self) {
        self.senders.iter_mut().for_each(|sender| poll(&mut sender.port, &mut sender.got));
        std::thread::yield_now();
    }

    /// Polls the receiver once. Every message must be its sender's next.
    fn receiver_looks(&mut self) {
        poll(&mut self.receiver, &mut self.got);
        for event in self.got.drain(..) {
            let Got::Message { bytes, from, .. } = event else { panic!("{event:?}") };
            let sender = self.arrived.iter_mut().find(|(sender, _)| Some(*sender) == from).expect("a sender");
            assert_eq!(bytes, (sender.1 as u32).to_le_bytes(), "of {:?}", sender.0);
            sender.1 += 1;
        }
    }

    fn finish(&mut self) {
        let end = Instant::now() + PATIENCE;
        while self.arrived.iter().zip(&self.senders).any(|((_, arrived), sender)| *arrived < sender.sent) {
            assert!(Instant::now() < end, "{:?} of {:?} arrived", self.arrived, self.sum("posted"));
            self.poll_senders();
            self.receiver_looks();
        }
    }

    fn sum(&self, name: &str) -> u64 {
        self.senders.iter().map(|sender| count(&sender.port, name)).sum()
    }

    /// Posted requests that the receiver has not taken, beyond its receive slots.
    fn behind(&self) -> u64 {
        self.sum("posted") - (self.taken() as u64 + SLOTS)
    }

    fn taken(&self) -> usize {
        self.arrived.iter().map(|(_, arrived)| arrived).sum()
    }

    fn turned_away(&self) -> u64 {
        count(&self.receiver, "receiver_not_ready")
    }
}

fn tunables() -> Tunables {
    Tunables { receive_queue_depth: SLOTS, ..Tunables::default() }
}

/// Senders send more messages than there are slots while the receiver computes; then all arrive. `timer` is the longest
/// RNR timer of a connection in us. No more requests are refused than ibex allows, and the senders are held back.
fn is_bounded(senders: u32, timer: u64) {
    let mut crowd = Crowd::connected(senders, &tunables());
    let (begin, before) = (Instant::now(), crowd.turned_away());
    crowd.senders.iter_mut().for_each(|sender| sender.send(MESSAGES));
    let long = Duration::from_millis(300);
    crowd.receiver_computes_until(|crowd| begin.elapsed() >= long && crowd.sum("held_back") >= u64::from(senders));
    let turned_away = crowd.turned_away() - before;
    let (held_back, held_back_time) = (crowd.sum("held_back"), crowd.sum("held_back_time"));
    // Read last, so that everything counted lies within this time.
    let time = begin.elapsed();
    println!(
        "\n{senders} senders: turned away {:.0} times a second; {} requests with the adapter of each; held \
         back {held_back} times, for {held_back_time} us",
        turned_away as f64 / time.as_secs_f64(),
        crowd.behind() / u64::from(senders),
    );
    // The bound follows from the timers that the connections got in turn: src/transport/connections/retransmission.rs.
    let a_second = 5000.0 * (1.0 + (f64::from(senders) / 3.0).max(1.0).ln());
    let bound = (a_second * time.as_secs_f64()) as u64 + u64::from(senders);
    assert!((1..=bound).contains(&turned_away), "turned away {turned_away} times, at most {bound} expected");
    assert!(held_back >= u64::from(senders));
    assert!(held_back_time <= u64::from(senders) * time.as_micros() as u64);
    assert_eq!(count(&crowd.receiver, "rnr_timer"), timer);
    crowd.finish();
}

#[test]
#[ignore = "needs an RDMA device (IBEX_DEVICE)"]
fn four_senders_to_a_receiver_that_computes_lose_nothing() {
    is_bounded(1, 640);
    is_bounded(4, 960);
}

#[test]
#[ignore = "needs an RDMA device (IBEX_DEVICE)"]
fn sixteen_senders_to_a_receiver_that_computes_lose_nothing() {
    is_bounded(16, 3840);
}

/// The receiver computes and polls in turn; each time it takes 128 messages for each sender.
#[test]
#[ignore = "needs an RDMA device (IBEX_DEVICE)"]
fn a_receiver_that_computes_repeatedly_finds_fewer_requests_posted_by_its_senders() {
    let mut crowd = Crowd::connected(8, &tunables());
    let (mut behind, before, begin) = (Vec::new(), crowd.turned_away(), Instant::now());
    for _ in 0..6 {
        for ((_, arrived), sender) in crowd.arrived.iter().zip(&mut crowd.senders) {
            sender.send(MESSAGES - (sender.sent - arrived));
        }
        // Each sender is held back once; from then on it posts a quarter of a queue, and a little more each time.
        let away = crowd.turned_away() + 20;
        crowd.receiver_computes_until(|crowd| crowd.turned_away() >= away && crowd.sum("held_back") >= 8);
        behind.push(crowd.behind());
        let until = crowd.taken() + 8 * 128;
        while crowd.taken() < until {
            crowd.poll_senders();
            crowd.receiver_looks();
        }
    }
    let turned_away = crowd.turned_away() - before;
    println!(
        "\n8 senders, computing six times: requests with their adapters each time {behind:?}; turned away {turned_away} times, \
         {:.0} a second; held back {} times, for {} us",
        turned_away as f64 / begin.elapsed().as_secs_f64(),
        crowd.sum("held_back"),
        crowd.sum("held_back_time")
    );
    // First each sender posts a full queue; later only those do from which the receiver has taken nothing since.
    assert!(behind[1..].iter().all(|later| *later < behind[0]), "{behind:?}");
    crowd.finish();
}
