// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two ports of one fabric, and the states of a queue pair.

use super::queue_pair::QueuePair;
use super::script::NoMemory;
use super::*;
use crate::transport::adapter::{Adapter as _, CompletionQueue as _, QueuePair as _, Work};
use crate::transport::tx::request::NOTHING;
use crate::transport::{Batch, Completion, Token, WhenDiverted};
use ibex_ffi::verbs::{InlineSpan, Transition, Wr};

#[test]
fn the_fabric_carries_a_message_while_both_ports_have_a_link_and_an_acknowledgement_ends_it() {
    let fabric = Fabric::new(Box::new(NoMemory), Duration::from_millis(1));
    let sizes = Sizes { inline: 64, bounce: 1024, receive: 4096, slots: 16, bounces: 64, depth: 8 };
    let names = [0, 1].map(|rank| PeerName { job: 1, rank });
    let [mut a, mut b] = names.map(|name| fabric.open(name, 100_000, sizes, &Tunables::default()).0);
    let (to, mut sent, mut received) = (a.peer(names[1], 0), Batch::new(), Batch::new());
    a.queue_bytes(to, 5, ([7_u8].into(), 1), Token(1), WhenDiverted::Wait).expect("it may wait");
    for _ in 0..20 {
        a.poll(&mut sent);
        b.poll(&mut received);
    }
    fabric.set_link(1, false);
    assert!(!fabric.carry(0), "a port has no link");
    fabric.set_link(1, true);
    assert!(!fabric.acknowledge(0), "nothing was carried");
    assert!(fabric.carry(0) && !fabric.carry(0), "there is one message");
    b.poll(&mut received);
    assert!(
        received
            .completions()
            .iter()
            .any(|completion| matches!(completion, Completion::Message { message, .. } if message.length() == 1))
    );
    assert!(fabric.acknowledge(0) && !fabric.acknowledge(0));
    a.poll(&mut sent);
    let is_end = |completion: &_| matches!(completion, Completion::Request { token: Token(1), outcome: Ok(()), .. });
    assert!(sent.completions().iter().any(is_end));
}

#[test]
fn a_queue_pair_takes_no_short_cut_to_another_state() {
    let script = Script::default();
    let (completions, receives) = (script.completion_queue(8), script.receive_queue(4));
    let mut qp: QueuePair = script.adapter().queue_pair(&completions, &receives).expect("a queue pair");
    let to = Transition { ack_timeout: 14, retry_count: 7, rnr_retry: 7, max_rd_atomic: 1, psn: 0 };
    assert!(qp.fail().is_err() && qp.ready_to_send(&to).is_err(), "it is reset");
    assert!((0..2).all(|_| qp.initialise(1, 0, Access::empty()).is_ok()));
    assert!(qp.ready_to_send(&to).is_err(), "it cannot receive");
    assert!(qp.fail().is_ok() && qp.initialise(1, 0, Access::empty()).is_err(), "it is in error");
    assert!(qp.reset().is_ok() && qp.initialise(1, 0, Access::empty()).is_ok());
}

#[test]
fn a_message_may_be_lost_if_its_queue_pair_is_destroyed_before_the_last_flush_was_polled() {
    for is_polled in [true, false] {
        let script = Script::default();
        let (mut completions, receives) = (script.completion_queue(8), script.receive_queue(4));
        let mut qp: QueuePair = script.adapter().queue_pair(&completions, &receives).expect("a queue pair");
        qp.initialise(1, 0, Access::empty()).expect("it is reset");
        let message = Work::SendInline { header: (&[7][..]).into(), payload: InlineSpan::EMPTY, immediate: 0 };
        qp.post(Wr { id: 1, signalled: false }, message).expect("there is room");
        assert!(script.complete(0, Status::SUCCESS), "the message has arrived");
        qp.fail().expect("it is initialised");
        qp.post(Wr { id: 2, signalled: true }, NOTHING).expect("it will be flushed");
        script.flush();
        if is_polled {
            assert_eq!(completions.poll().map(<[_]>::len).ok(), Some(1));
        }
        drop(qp);
        assert_eq!(script.state().has_lost_message, !is_polled);
    }
}
