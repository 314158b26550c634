// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages that a handler consumes within the poll, and messages that it leaves for the batch.

use super::*;
use crate::transport::completion::{Batch, ReceivedMessage, TakesMessages, TakesRequests};

#[derive(Default)]
struct Noted {
    /// Lengths of the messages, and tokens of the requests, that were offered.
    asked: Vec<u32>,
    /// Reports that the port is busy.
    busy: u32,
}

/// Consumes messages until one has this length.
struct Until<'a> {
    length: u32,
    noted: &'a mut Noted,
}

impl TakesMessages for Until<'_> {
    type Requests = Self;

    fn requests(&mut self) -> &mut Self {
        self
    }

    fn takes(&mut self, message: &ReceivedMessage, _: Immediate) -> bool {
        self.noted.asked.push(message.length());
        message.length() != self.length
    }

    fn is_busy(&mut self) {
        self.noted.busy += 1;
    }
}

impl TakesRequests for Until<'_> {
    fn takes_request(&mut self, token: Token) -> bool {
        self.noted.asked.push(token.0 as u32);
        true
    }
}

fn lengths(batch: &Batch) -> Vec<u32> {
    let length = |completion: &Completion| match completion {
        Completion::Message { message, .. } => Some(message.length()),
        _ => None,
    };
    batch.completions().iter().filter_map(length).collect()
}

fn deliver(side: &Side, lengths: &[u32]) {
    let index = side.script.connected().expect("they are connected");
    for length in lengths {
        side.script.deliver(index, *length, Some(0)).expect("the receiver is ready");
    }
}

#[test]
fn a_poll_offers_no_message_after_one_that_the_handler_left_and_all_slots_come_back() {
    let mut pair = Pair::connected();
    (0..4).for_each(|_| pair.b.poll());
    deliver(&pair.b, &[1, 2, 3, 4]);
    let (mut batch, mut noted) = (Batch::new(), Noted::default());
    let polled = pair.b.port.poll_direct(&mut batch, Until { length: 3, noted: &mut noted });
    assert_eq!((polled.taken, polled.reported), (2, 2));
    assert_eq!((noted.asked.as_slice(), lengths(&batch)), (&[1, 2, 3][..], vec![3, 4]));
    let polled = pair.b.port.poll_direct(&mut batch, Until { length: 0, noted: &mut noted });
    assert_eq!((polled.taken, polled.reported), (0, 0));
    let (posted, released) = pair.b.port.rx.slots();
    assert_eq!(posted as usize + released, SLOTS as usize);
}

#[test]
fn a_poll_offers_no_message_while_an_earlier_one_waits_to_be_reported() {
    let mut pair = Pair::connected();
    deliver(&pair.b, &[1]);
    pair.b.port.reap(&mut |_| false);
    deliver(&pair.b, &[2]);
    let (mut batch, mut noted) = (Batch::new(), Noted::default());
    let polled = pair.b.port.poll_direct(&mut batch, Until { length: 0, noted: &mut noted });
    assert_eq!((polled.taken, lengths(&batch), noted.asked.len()), (0, vec![1, 2], 0));
}

#[test]
fn the_handler_gets_a_request_behind_a_message_that_it_left() {
    let mut pair = Pair::connected();
    pair.b.send(7).expect("they are connected");
    deliver(&pair.b, &[1]);
    let index = pair.b.script.connected().expect("they are connected");
    assert!(pair.b.script.complete(index, Status::SUCCESS));
    let (mut batch, mut noted) = (Batch::new(), Noted::default());
    let polled = pair.b.port.poll_direct(&mut batch, Until { length: 1, noted: &mut noted });
    assert_eq!((polled.taken, lengths(&batch), noted.asked), (0, vec![1], vec![1, 7]));
    assert_eq!(pair.b.ended(), []);
}

#[test]
fn a_port_is_busy_while_most_polls_find_a_message_and_not_while_they_find_none() {
    let mut pair = Pair::connected();
    let mut batch = Batch::new();
    let mut rounds = |pair: &mut Pair, messages: u32| {
        let mut noted = Noted::default();
        for round in 0..8 * EMPTY_POLL {
            if round % 4 < messages {
                deliver(&pair.b, &[1]);
            }
            let _ = pair.b.port.poll_direct(&mut batch, Until { length: 0, noted: &mut noted });
        }
        noted.busy
    };
    assert_eq!(rounds(&mut pair, 0), 0);
    assert!((5..=8).contains(&rounds(&mut pair, 4)));
    assert!(rounds(&mut pair, 1) <= 1, "but for the check after the earlier messages");
}
