// SPDX-License-Identifier: MIT OR Apache-2.0
//! The send side over a simulated adapter: credits, order, signalling, and the fate of requests when a connection ends.

use super::*;
use crate::transport::adapter::Adapter as _;
use crate::transport::adapter::simulated::objects::Slots;
use crate::transport::adapter::simulated::queue_pair::QueuePair;
use crate::transport::adapter::simulated::{Script, send_id};
use crate::transport::completion::TakesNone;

struct World {
    script: Script,
    tx: Tx<Slots>,
    queue: SendQueue<QueuePair>,
    counters: Counters,
    batch: Batch,
    undelivered: Undelivered,
}

const PEER: EndpointId = EndpointId::from_index(0);

impl World {
    fn new(credits: u32, depth: u32) -> Self {
        let script = Script::default();
        let adapter = script.adapter();
        let limits = Limits { credits, signal_interval: 4, send_slots: 0, max_inline: 64 };
        let tx = Tx::new(&limits, adapter.send_slots(1024, 2).expect("slots"));
        let (cq, receives) = (script.completion_queue(credits), script.receive_queue(4));
        let mut queue = SendQueue::new(adapter.queue_pair(&cq, &receives).expect("a queue pair"), depth);
        queue.set_open(true);
        World {
            script,
            tx,
            queue,
            counters: Counters::default(),
            batch: Batch::new(),
            undelivered: Undelivered::default(),
        }
    }

    fn post(&mut self, token: u64, signal: Signal) -> Attempt {
        let World { tx, queue, counters, .. } = self;
        let work = Work::SendInline { header: [1][..].into(), payload: InlineSpan::EMPTY, immediate: 0 };
        tx.post(queue, PEER, (signal, Token(token)), counters, work)
    }

    fn wait(&mut self, token: u64, length: u32) {
        let bytes = vec![token as u8; length as usize].into();
        let request = Request { token: Token(token), operation: Operation::SendBytes { tag: 1, bytes, length } };
        self.tx.wait(&mut self.queue, PEER, request, &self.counters);
    }

    fn retire(&mut self, sequence: u32) {
        let World { tx, queue, batch, undelivered, .. } = self;
        tx.retire(queue, send_id(0, sequence), (batch, undelivered), &mut TakesNone);
    }

    fn tokens(&mut self) -> Vec<(u64, bool)> {
        self.undelivered.drain(&mut self.batch);
        let tokens = self.batch.completions().iter().map(|completion| match completion {
            Completion::Request { token, outcome, .. } => (token.0, outcome.is_ok()),
            other => panic!("{other:?}"),
        });
        let tokens = tokens.collect();
        self.batch.clear();
        tokens
    }
}

#[test]
fn tx_posts_a_request_only_while_its_completion_has_room_in_the_completion_queue() {
    let mut world = World::new(3, 8);
    assert!((1..=3).all(|token| world.post(token, Signal::Always) == Attempt::Posted));
    assert_eq!(world.post(4, Signal::Always), Attempt::Wait, "no credit is left");
    assert!(!world.tx.has_room(&world.queue));
    world.retire(1);
    assert_eq!(world.tokens(), [(1, true), (2, true)]);
    assert!(world.tx.has_room(&world.queue));
    assert!((5..=6).all(|token| world.post(token, Signal::Always) == Attempt::Posted));
    assert_eq!(world.post(7, Signal::Always), Attempt::Wait);
}

#[test]
fn retire_reports_all_tokens_but_those_that_the_handler_takes() {
    struct Odd(Vec<u64>);
    impl TakesRequests for Odd {
        fn takes_request(&mut self, token: Token) -> bool {
            let is_odd = token.0 % 2 == 1;
            self.0.extend(is_odd.then_some(token.0));
            is_odd
        }
    }
    let mut world = World::new(8, 8);
    assert!((1..=5).all(|token| world.post(token, Signal::Always) == Attempt::Posted));
    let mut odd = Odd(Vec::new());
    for sequence in [3, 4] {
        let World { tx, queue, batch, undelivered, .. } = &mut world;
        tx.retire(queue, send_id(0, sequence), (batch, undelivered), &mut odd);
    }
    assert_eq!((odd.0, world.tokens()), (vec![1, 3, 5], vec![(2, true), (4, true)]));
    assert_eq!((world.queue.in_flight(), world.tx.credits), (0, 8));
}

#[test]
fn every_so_many_requests_ask_for_a_completion_and_all_do_when_credits_are_scarce() {
    let mut world = World::new(16, 32);
    (0..12).for_each(|_| assert_eq!(world.post(0, Signal::Sometimes), Attempt::Posted));
    let signalled: Vec<bool> = world.script.state().qps[0].posted.iter().map(|request| request.signalled).collect();
    assert_eq!(signalled, [0, 0, 0, 1, 0, 0, 0, 1, 0, 1, 1, 1].map(|bit| bit == 1));
}

#[test]
fn a_request_that_the_adapter_refuses_does_not_count_as_posted() {
    let mut world = World::new(8, 8);
    world.script.state().answers = [None, Some(libc::EINVAL)].into();
    assert_eq!(world.post(1, Signal::Always), Attempt::Posted);
    assert_eq!(world.post(2, Signal::Always), Attempt::Refused(PostError(libc::EINVAL)));
    assert_eq!((world.queue.in_flight(), world.tx.credits), (1, 7));
}

#[test]
fn new_requests_queue_behind_those_that_wait_and_these_go_in_order() {
    let mut world = World::new(8, 8);
    world.wait(1, 4);
    world.wait(2, 4);
    assert_eq!(world.post(3, Signal::Always), Attempt::Wait);
    for (token, left) in [(1, 1), (2, 0)] {
        let World { tx, queue, counters, .. } = &mut world;
        let first = tx.post_first(queue, PEER, counters);
        assert!(matches!(first, First::Posted(Token(posted), waiting) if (posted, waiting) == (token, left)));
    }
    assert_eq!(world.post(3, Signal::Always), Attempt::Posted);
    assert_eq!(world.script.posted(0), [0, 1, 2]);
}

#[test]
fn a_long_message_in_ordinary_memory_waits_for_a_bounce_buffer_until_a_request_returns_one() {
    let mut world = World::new(8, 8);
    (1..=3).for_each(|token| world.wait(token, 100));
    let post_first = |world: &mut World| {
        let World { tx, queue, counters, .. } = world;
        matches!(tx.post_first(queue, PEER, counters), First::Posted(..))
    };
    assert!(post_first(&mut world) && post_first(&mut world));
    assert!(!post_first(&mut world), "there are two buffers");
    world.retire(0);
    assert!(post_first(&mut world));
    assert_eq!(world.tokens(), [(1, true)]);
}

#[test]
fn a_message_that_is_done_is_not_in_flight_however_many_requests_follow_it() {
    let mut world = World::new(64, 16);
    assert_eq!(world.post(1, Signal::Always), Attempt::Posted);
    world.queue.note_message();
    assert!(world.queue.has_messages_beyond(0));
    world.retire(0);
    for requests in [0, 1, i32::MAX as u32, 1, u32::MAX / 2] {
        world.queue.skip(requests);
        assert!(!world.queue.has_messages_beyond(0), "{} posted", world.queue.posted());
    }
    // Requests count as undelivered up to the end of the last noted message.
    let at = world.queue.posted();
    for (token, is_message) in [(2, false), (3, true), (4, false)] {
        assert_eq!(world.post(token, Signal::Always), Attempt::Posted);
        if is_message {
            world.queue.note_message();
        }
    }
    assert!(world.queue.has_messages_beyond(0));
    world.retire(at.wrapping_add(1));
    assert!(!world.queue.has_messages_beyond(0) && world.queue.has_messages_beyond(1));
}

#[test]
fn numbers_of_requests_wrap_and_nothing_is_lost() {
    let mut world = World::new(64, 16);
    world.queue.skip(u32::MAX - 20);
    for token in 1..=60 {
        let number = world.queue.posted();
        assert_eq!(world.post(token, Signal::Sometimes), Attempt::Posted, "{number}");
        world.queue.note_message();
        if token % 12 == 0 {
            assert_eq!(world.queue.in_flight(), 12);
            assert!(world.queue.has_messages_beyond(0));
            world.retire(number);
            assert!(!world.queue.has_messages_beyond(0) && !world.queue.is_completion_due());
            assert_eq!(world.tokens(), (token - 11..=token).map(|token| (token, true)).collect::<Vec<_>>());
        }
    }
    assert_eq!((world.queue.posted(), world.tx.credits()), (39, 64));
}
