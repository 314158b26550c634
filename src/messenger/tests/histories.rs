// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random histories of a sender and a receiver: each message arrives, in order, and memory is bounded.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

#[derive(Debug, Clone, Copy)]
enum Step {
    /// The program sends a message with this tag, with so many bytes.
    Send { tag: i32, length: usize },
    /// The program posts a receive for this tag.
    Receive { tag: i32 },
    /// The port sends its first message, which makes room.
    Post,
    /// The first message in flight to the receiver, or to the sender, arrives.
    Deliver { to_receiver: bool },
    /// The oldest read of the receiver completes.
    Read,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (prop_oneof![4 => Just(1), 1 => Just(2), 1 => Just(-2)], prop_oneof![3 => Just(4), 1 => Just(LONG)])
            .prop_map(|(tag, length)| Step::Send { tag, length }),
        2 => prop_oneof![3 => Just(1), 1 => Just(2), 1 => Just(-2)].prop_map(|tag| Step::Receive { tag }),
        2 => Just(Step::Post),
        3 => any::<bool>().prop_map(|to_receiver| Step::Deliver { to_receiver }),
        1 => Just(Step::Read),
    ]
}

fn limits() -> impl Strategy<Value = Limits> {
    (0..15 * RECORD, 1..4_u32).prop_map(|(kept, window)| Limits { kept, window })
}

struct Model {
    /// Its port holds the messages in `sent`.
    sender: SmallHost,
    receiver: SmallHost,
    /// Messages in flight to the receiver.
    forth: VecDeque<(Header, Vec<u8>)>,
    count: u32,
    most_kept: u64,
}

impl Model {
    fn new(limits: Limits, room: usize) -> Self {
        let (sender, receiver) = (SmallHost::limited(limits, room), SmallHost::limited(limits, usize::MAX));
        Model { sender, receiver, forth: VecDeque::new(), count: 0, most_kept: 0 }
    }

    fn post(&mut self) {
        let Some(message) = self.sender.sent.pop_front() else { return };
        if let Header::Fragment { .. } = message.0 {
            self.sender.fragment_done();
        }
        self.forth.push_back(message);
        send::in_turn(&(), &mut self.sender, ROUTE);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Send { tag, length } => {
                self.sender.send(tag, self.count, length);
                self.count += 1;
            }
            Step::Receive { tag } => self.receiver.receive(tag),
            Step::Post => self.post(),
            Step::Read => self.receiver.complete_read(),
            Step::Deliver { to_receiver: true } => {
                if let Some(message) = self.forth.pop_front() {
                    self.receiver.handle(message);
                }
            }
            Step::Deliver { to_receiver: false } => {
                if let Some(message) = self.receiver.sent.pop_front() {
                    self.sender.handle(message);
                }
            }
        }
        self.most_kept = self.most_kept.max(self.receiver.messenger.flow.kept.bytes());
    }

    fn settle(&mut self) {
        let is_silent = |SmallHost { sent, reads, .. }: &SmallHost| sent.is_empty() && reads.is_empty();
        while !(is_silent(&self.sender) && self.forth.is_empty() && is_silent(&self.receiver)) {
            self.step(Step::Post);
            self.step(Step::Read);
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
        can_register in any::<(bool, bool)>(),
        steps in prop::collection::vec(step(), 0..300),
    ) {
        let (mut model, mut wanted, mut sent) = (Model::new(limits, room), HashMap::new(), HashMap::new());
        (model.sender.can_register, model.receiver.can_register) = can_register;
        for one in steps {
            model.step(one);
            match one {
                Step::Send { tag, .. } => *sent.entry(tag).or_insert(0) += 1,
                Step::Receive { tag } => *wanted.entry(tag).or_insert(0) += 1,
                Step::Post | Step::Read | Step::Deliver { .. } => {}
            }
        }
        model.settle();
        let got = model.receiver.got();
        for tag in [1, 2, -2] {
            let numbers: Vec<u32> = got.iter().filter(|(of, _)| *of == tag).map(|(_, number)| *number).collect();
            prop_assert!(numbers.is_sorted(), "tag {}: {:?}", tag, numbers);
            let (sent, wanted) = (sent.get(&tag).copied().unwrap_or(0), wanted.get(&tag).copied().unwrap_or(0));
            prop_assert_eq!(numbers.len(), sent.min(wanted), "tag {}", tag);
        }
        prop_assert_eq!((model.sender.free_buffers, model.receiver.registered.len()), (3, 0));
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
            model.step(Step::Send { tag: 1, length: 4 });
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
        let most = limits.kept + RECORD * (u64::from(way_back + 2 + limits.window) + room as u64);
        prop_assert!(model.most_kept <= most, "{} bytes", model.most_kept);
        for _ in 0..count {
            model.step(Step::Receive { tag: 1 });
            model.settle();
        }
        let numbers: Vec<u32> = model.receiver.got().iter().map(|(_, number)| *number).collect();
        prop_assert_eq!(numbers, (0..count).collect::<Vec<_>>());
        prop_assert_eq!(model.receiver.messenger.flow.kept.bytes(), 0);
    }
}
