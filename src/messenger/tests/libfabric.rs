// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages with libfabric's envelopes: random histories of messages, receives and probes against the text of
//! `fi_tagged(3)`, and a long message from its send to its end.

use super::host::INLINE;
use super::*;
use crate::messenger::matching::{ADDR_UNSPEC, FiTag, Tagged};
use crate::messenger::receive::probe;
use proptest::prelude::*;

type Libfabric = SmallHost<Tagged>;

/// The process itself, as a sender.
const SELF: u64 = Route::LOOPBACK.bits();

/// A receive or a probe: source, tag, bits to ignore.
type Wanted = (u64, u64, u64);

#[derive(Debug, Clone, Copy)]
enum Step {
    /// A message of this source, with its tag and data, arrives; perhaps while the port polls.
    Message {
        source: u64,
        tag: u64,
        data: Option<u64>,
        in_place: bool,
    },
    Receive(Wanted),
    Probe(Wanted),
    /// A matched probe (`FI_PEEK` with `FI_CLAIM`) and its receive.
    Claim(Wanted),
}

const HIGH: u64 = 1 << 63;

fn step() -> impl Strategy<Value = Step> {
    let source = || prop_oneof![3 => 0..3_u64, 1 => Just(SELF)];
    let tag = || (0..2_u64, any::<bool>()).prop_map(|(low, is_high)| low | if is_high { HIGH } else { 0 });
    let ignore = prop::sample::select(&[0, 1, HIGH, u64::MAX]);
    let wanted = (prop_oneof![source(), Just(ADDR_UNSPEC)], tag(), ignore);
    let message = (source(), tag(), any::<Option<u64>>(), any::<bool>());
    (message, wanted, 0..8).prop_map(|((source, tag, data, in_place), wanted, kind)| match kind {
        0..4 => Step::Message { source, tag, data, in_place },
        4 | 5 => Step::Receive(wanted),
        6 => Step::Probe(wanted),
        _ => Step::Claim(wanted),
    })
}

fn takes((source, tag, ignore): Wanted, message: Tagged) -> bool {
    (source == ADDR_UNSPEC || source == message.source) && message.tag & !ignore == tag & !ignore
}

fn fi_tag((_, tag, ignore): Wanted) -> FiTag {
    FiTag { tag, ignore, data: None }
}

struct Model {
    host: Libfabric,
    posted: Vec<(usize, Wanted)>,
    unexpected: Vec<(Tagged, u32)>,
    /// What receives must have got: the message's envelope and number.
    got: Vec<(usize, (Tagged, u32))>,
    count: u32,
}

impl Model {
    fn arrives(&mut self, message: Tagged, in_place: bool) {
        let Tagged { source, tag, data } = message;
        let number = self.count;
        self.count += 1;
        match self.posted.iter().position(|(_, wanted)| takes(*wanted, message)) {
            Some(at) => self.got.push((self.posted.remove(at).0, (message, number))),
            None => self.unexpected.push((message, number)),
        }
        let bytes = number.to_le_bytes().to_vec();
        if source == SELF {
            let tag = FiTag { tag, ignore: 0, data };
            let send = self.host.request_to(Role::Send(Mode::Standard), (SELF, tag), bytes);
            return send::begin(&(), &mut self.host, send, Route::LOOPBACK);
        }
        let route = Route::from_bits(source);
        let header = Header::Eager(Match { context: CONTEXT, envelope: message });
        let whole = [header.encode().as_slice(), &bytes].concat();
        if !(in_place && search::is_taken(&mut self.host, &whole, |_| Some(route), None)) {
            self.host.handle_from(Some(route), (header, bytes));
        }
    }

    fn receive(&mut self, wanted: Wanted) -> usize {
        self.host.request_to(Role::Receive, (wanted.0, fi_tag(wanted)), vec![0; 4])
    }

    /// Returns the place of the first unexpected message that a receive would get.
    fn first(&self, wanted: Wanted) -> Option<usize> {
        self.unexpected.iter().position(|(message, _)| takes(wanted, *message))
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Message { source, tag, data, in_place } => self.arrives(Tagged { source, tag, data }, in_place),
            Step::Receive(wanted) => {
                let receive = self.receive(wanted);
                search::post(&(), &mut self.host, receive, Pattern::tagged(wanted.0, wanted.1, wanted.2));
                match self.first(wanted) {
                    Some(at) => self.got.push((receive, self.unexpected.remove(at))),
                    None => self.posted.push((receive, wanted)),
                }
            }
            Step::Probe(wanted) => {
                let found = probe::probe(&(), &mut self.host, (), (wanted.0, fi_tag(wanted)), false);
                assert_eq!(found.map(|found| found.envelope), self.first(wanted).map(|at| self.unexpected[at].0));
            }
            Step::Claim(wanted) => {
                let found = probe::probe(&(), &mut self.host, (), (wanted.0, fi_tag(wanted)), true);
                let expected = self.first(wanted).map(|at| self.unexpected.remove(at));
                assert_eq!(found.map(|found| found.envelope), expected.map(|(message, _)| message));
                if let (Some(message), Some(expected)) = (found.and_then(|found| found.message), expected) {
                    let receive = self.receive(wanted);
                    probe::receive(&(), &mut self.host, receive, message);
                    self.got.push((receive, expected));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn each_receive_and_probe_gets_the_first_message_that_fi_tagged_says_with_its_sender_and_data(
        steps in prop::collection::vec(step(), 0..100),
    ) {
        let host = Libfabric::of(SELF, Limits { kept: u64::MAX, window: 1 }, usize::MAX);
        let mut model = Model { host, posted: Vec::new(), unexpected: Vec::new(), got: Vec::new(), count: 0 };
        for step in steps {
            model.step(step);
        }
        let got: Vec<_> = model.host.noted.iter().map(|(receive, outcome)| {
            let Outcome { source, tag: FiTag { tag, data, .. }, .. } = *outcome;
            let number = u32::from_le_bytes(*model.host.cores[*receive].data.first_chunk().expect("a number"));
            (*receive, (Tagged { source, tag, data }, number))
        }).collect();
        prop_assert_eq!(got, model.got);
        prop_assert_eq!(model.host.queues.unexpected() as usize, model.unexpected.len());
    }
}

#[test]
fn a_long_message_brings_its_data_to_a_receive_from_its_sender_and_not_to_one_from_another() {
    let limits = Limits { kept: u64::MAX, window: 1 };
    let [mut sender, mut receiver] = [(); 2].map(|()| Libfabric::of(SELF, limits, usize::MAX));
    let (route, tag) = (by_rail(0), FiTag { tag: HIGH, ignore: 0, data: Some(99) });
    let send = sender.request_to(Role::Send(Mode::Standard), (route.bits(), tag), vec![5; LONG]);
    send::begin(&(), &mut sender, send, route);
    let [of_other, of_sender] = [route.bits() + 1, route.bits()].map(|source| {
        let receive = receiver.request_to(Role::Receive, (source, tag), vec![0; LONG]);
        search::post(&(), &mut receiver, receive, Pattern::tagged(source, HIGH, 0));
        receive
    });
    assert!(matches!(sender.sent[0].0, Header::ReadyToSend(..)), "it is announced");
    let announcement = sender.sent.pop_front().expect("a message");
    let eager = Header::Eager(Match { context: CONTEXT, envelope: Tagged { source: 0, tag: 0, data: None } });
    receiver.handle_from(None, (eager, Vec::new()));
    receiver.handle_from(None, announcement.clone());
    let queues = &receiver.queues;
    assert_eq!((queues.posted(), queues.unexpected()), (2, 0), "messages of unknown senders are none");
    receiver.handle_from(Some(route), announcement);
    receiver.complete_reads();
    let outcome = Outcome { source: route.bits(), tag, length: LONG, is_truncated: false };
    assert_eq!((&*receiver.noted, &*receiver.finished), (&[(of_sender, outcome)][..], &[of_sender][..]));
    assert_eq!(receiver.queues.posted(), 1, "the receive {of_other} waits");
    sender.handle_from(Some(route), receiver.sent.pop_front().expect("an answer"));
    assert_eq!(sender.finished, [send]);
}

#[test]
fn sender_and_receiver_of_a_whole_message_name_the_same_path_at_each_length() {
    let (route, tag) = (by_rail(0), |data| FiTag { tag: 7, ignore: 0, data });
    for (mode, data) in [(Mode::Standard, None), (Mode::Delivered, None), (Mode::Delivered, Some(1))] {
        for (length, is_posted) in (0..=INLINE).flat_map(|length| [(length, true), (length, false)]) {
            let limits = Limits { kept: 1000, window: 2 };
            let [mut sender, mut receiver] = [(); 2].map(|()| Libfabric::of(SELF, limits, usize::MAX));
            (sender.hears, receiver.hears) = (Some(true), Some(true));
            let send = sender.request_to(Role::Send(mode), (route.bits(), tag(data)), vec![5; length]);
            send::begin(&(), &mut sender, send, route);
            let receive = receiver.request_to(Role::Receive, (ADDR_UNSPEC, tag(None)), vec![0; length]);
            for posts in [is_posted, !is_posted] {
                if posts {
                    let pattern = Pattern::tagged(ADDR_UNSPEC, 7, 0);
                    search::post_with_events(&(), &mut receiver, receive, pattern, true);
                } else {
                    receiver.handle_from(Some(route), sender.sent.pop_front().expect("the message"));
                }
            }
            assert_eq!((sender.paths.len(), &sender.paths), (1, &receiver.paths), "{mode:?}, {length} bytes");
        }
    }
}
