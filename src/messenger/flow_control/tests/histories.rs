// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random histories of two processes: no message is lost, overtaken or held up for ever, and memory is bounded.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

#[derive(Debug, Clone, Copy)]
enum Step {
    /// The program sends a message with this tag.
    Send { tag: i32 },
    /// The program posts a receive for this tag.
    Receive { tag: i32 },
    /// The port sends its first message, which makes room.
    Post,
    /// The first message in flight to the receiver, or to the sender, arrives.
    Deliver { to_receiver: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => prop_oneof![4 => Just(1), 1 => Just(2), 1 => Just(-1)].prop_map(|tag| Step::Send { tag }),
        2 => prop_oneof![3 => Just(1), 1 => Just(2), 1 => Just(-1)].prop_map(|tag| Step::Receive { tag }),
        2 => Just(Step::Post),
        3 => any::<bool>().prop_map(|to_receiver| Step::Deliver { to_receiver }),
    ]
}

/// Messages from the sender to the receiver: with tag and number, whole or announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Forth {
    Whole(i32, u32),
    Announced(i32, u32, bool),
    Pending,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Back {
    Answer(bool),
    Word(Word),
    More,
}

const BYTES: u64 = 10;

fn limits() -> impl Strategy<Value = Limits> {
    (0..150_u64, 1..4_u32).prop_map(|(kept, window)| Limits { kept, window })
}

struct Model {
    outgoing: Outgoing<u8, (i32, u32)>,
    kept: Kept<u8>,
    /// Messages that the sender's port has, and from how many on it has no room for messages that are not announced.
    port: VecDeque<Forth>,
    room: usize,
    forth: VecDeque<Forth>,
    back: VecDeque<Back>,
    unexpected: Vec<Forth>,
    posted: Vec<i32>,
    sent: u32,
    /// Tag and number of each received message, in order.
    received: Vec<(i32, u32)>,
    most_kept: u64,
}

fn tag_of(message: Forth) -> i32 {
    match message {
        Forth::Whole(tag, _) | Forth::Announced(tag, ..) => tag,
        Forth::Pending => unreachable!("no message"),
    }
}

impl Model {
    fn new(limits: Limits, room: usize) -> Self {
        Model {
            outgoing: Outgoing::new(limits),
            kept: Kept::new(limits),
            port: VecDeque::new(),
            room,
            forth: VecDeque::new(),
            back: VecDeque::new(),
            unexpected: Vec::new(),
            posted: Vec::new(),
            sent: 0,
            received: Vec::new(),
            most_kept: 0,
        }
    }

    fn send(&mut self, tag: i32) {
        let number = self.sent;
        self.sent += 1;
        let way = self.outgoing.way(PEER, 0, tag);
        self.go((tag, number), way);
    }

    /// Returns false if there is no room.
    fn go(&mut self, (tag, number): (i32, u32), way: Way) -> bool {
        match way {
            Way::Free if self.port.len() >= self.room => {
                self.outgoing.found_no_room(PEER, 0, tag, (tag, number));
                return false;
            }
            Way::Free => self.port.push_back(Forth::Whole(tag, number)),
            Way::Announced { counted } => self.port.push_back(Forth::Announced(tag, number, counted)),
            Way::Pends => {
                if self.outgoing.pend(PEER, 0, tag, (tag, number)) {
                    self.port.push_back(Forth::Pending);
                }
            }
        }
        true
    }

    fn post(&mut self) {
        let Some(word) = self.port.pop_front() else { return };
        self.forth.push_back(word);
        while let Some((send, way)) = self.outgoing.next_in_turn(PEER) {
            if !self.go(send, way) {
                return;
            }
        }
        self.outgoing.has_room(PEER);
    }

    fn resume(&mut self) {
        while let Some((send, way)) = self.outgoing.next(PEER, 0) {
            self.go(send, way);
        }
        if self.outgoing.tells(PEER, 0) {
            self.port.push_back(Forth::Pending);
        }
    }

    fn ask_for_more(&mut self) {
        for _ in self.kept.ask_for_more(0) {
            self.back.push_back(Back::More);
        }
    }

    fn receive(&mut self, tag: i32) {
        if let Some(at) = self.unexpected.iter().position(|one| tag_of(*one) == tag) {
            let message = self.unexpected.remove(at);
            if self.kept.give_up(BYTES) {
                let (_, word) = self.kept.let_go();
                self.back.push_back(Back::Word(word));
            }
            self.matched(message);
        } else {
            // The PML (`pml/flow.rs`), too, asks senders for more only while it keeps an unexpected message.
            if !self.unexpected.is_empty() {
                self.ask_for_more();
            }
            self.posted.push(tag);
        }
    }

    fn matched(&mut self, message: Forth) {
        match message {
            Forth::Whole(tag, number) => self.received.push((tag, number)),
            Forth::Announced(tag, number, counted) => {
                self.received.push((tag, number));
                self.back.push_back(Back::Answer(counted));
            }
            Forth::Pending => unreachable!("no message"),
        }
    }

    fn arrives(&mut self, message: Forth) {
        if message == Forth::Pending {
            self.kept.pends(PEER, 0);
            if !self.posted.is_empty() || self.unexpected.is_empty() {
                self.ask_for_more();
            }
            return;
        }
        if let Some(at) = self.posted.iter().position(|tag| *tag == tag_of(message)) {
            self.posted.remove(at);
            return self.matched(message);
        }
        if self.kept.keep(BYTES)
            && let Some(word) = self.kept.hold_back(PEER)
        {
            self.back.push_back(Back::Word(word));
        }
        self.most_kept = self.most_kept.max(self.kept.bytes());
        self.unexpected.push(message);
        if !self.posted.is_empty() {
            self.ask_for_more();
        }
    }

    fn comes_back(&mut self, word: Back) {
        match word {
            Back::Answer(counted) => {
                if counted {
                    self.outgoing.answered(PEER, 0);
                    self.resume();
                }
            }
            Back::Word(word) => {
                self.outgoing.heard(PEER, word);
                self.resume();
            }
            Back::More => {
                self.outgoing.more(PEER, 0);
                self.resume();
            }
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Send { tag } => self.send(tag),
            Step::Receive { tag } => self.receive(tag),
            Step::Post => self.post(),
            Step::Deliver { to_receiver: true } => {
                if let Some(message) = self.forth.pop_front() {
                    self.arrives(message);
                }
            }
            Step::Deliver { to_receiver: false } => {
                if let Some(word) = self.back.pop_front() {
                    self.comes_back(word);
                }
            }
        }
    }

    fn settle(&mut self) {
        while !(self.port.is_empty() && self.forth.is_empty() && self.back.is_empty()) {
            self.step(Step::Post);
            self.step(Step::Deliver { to_receiver: true });
            self.step(Step::Deliver { to_receiver: false });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn each_receive_gets_its_sent_message_and_no_message_overtakes_another(
        limits in limits(),
        room in 1..6_usize,
        steps in prop::collection::vec(step(), 0..300),
    ) {
        let (mut model, mut wanted, mut sent) = (Model::new(limits, room), HashMap::new(), HashMap::new());
        for one in steps {
            model.step(one);
            match one {
                Step::Send { tag } => *sent.entry(tag).or_insert(0) += 1,
                Step::Receive { tag } => *wanted.entry(tag).or_insert(0) += 1,
                Step::Post | Step::Deliver { .. } => {}
            }
        }
        model.settle();
        for tag in [1, 2, -1] {
            let numbers: Vec<u32> = model.received.iter().filter(|(of, _)| *of == tag).map(|(_, number)| *number).collect();
            prop_assert!(numbers.is_sorted(), "tag {}: {:?}", tag, numbers);
            let (sent, wanted) = (sent.get(&tag).copied().unwrap_or(0), wanted.get(&tag).copied().unwrap_or(0));
            prop_assert_eq!(numbers.len(), sent.min(wanted), "tag {}", tag);
        }
    }

    #[test]
    fn flow_control_bounds_a_flood_without_receives_and_delivers_all_of_it_in_order(
        limits in limits(),
        count in 1..400_u32,
        way_back in 1..10_u32,
        room in 1..6_usize,
        at_once in 1..8_u32,
    ) {
        let mut model = Model::new(limits, room);
        for number in 0..count {
            model.step(Step::Send { tag: 1 });
            if number % at_once != 0 {
                continue;
            }
            model.step(Step::Post);
            model.step(Step::Deliver { to_receiver: true });
            if number % way_back == 0 {
                model.step(Step::Deliver { to_receiver: false });
            }
        }
        model.settle();
        // The bound, the messages sent before the sender learned of it, and a window.
        let most = limits.kept + BYTES * (u64::from(way_back + 2 + limits.window) + room as u64);
        prop_assert!(model.most_kept <= most, "{} bytes", model.most_kept);
        for _ in 0..count {
            model.step(Step::Receive { tag: 1 });
            model.settle();
        }
        let numbers: Vec<u32> = model.received.iter().map(|(_, number)| *number).collect();
        prop_assert_eq!(numbers, (0..count).collect::<Vec<_>>());
        prop_assert_eq!(model.kept.bytes(), 0);
    }
}
