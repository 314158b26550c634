// SPDX-License-Identifier: MIT OR Apache-2.0
//! A rendezvous, step by step, as ARCHITECTURE.md draws it.

use super::*;

#[test]
fn a_rendezvous_announces_a_message_which_the_receiver_reads_and_reports_as_finished() {
    let (mut sender, mut receiver) = (SmallHost::new(), SmallHost::new());

    // The sender registers its memory and announces the message.
    sender.send(7, 5, LONG);
    let Header::ReadyToSend(of, number, memory) = sender.sent[0].0 else { panic!("it is announced") };
    assert_eq!((of, memory.length()), (Match::new(CONTEXT, 3, 7), 100));
    assert!(matches!(sender.cores[0].transfer, Transfer::Unanswered { .. }) && sender.registered.len() == 1);

    // The receiver keeps the announcement until a receive matches it, and then registers memory and reads.
    receiver.receive_from(&mut sender);
    assert_eq!((receiver.queues.unexpected(), receiver.reads.len()), (1, 0));
    receiver.receive(7);
    assert_eq!((receiver.queues.unexpected(), receiver.reads.len()), (0, stripes::MOST));
    assert!(receiver.noted[0].1.length == 100 && receiver.registered.len() == 1);

    // Each read that completes lets the next one begin. After the last one the receive is finished.
    while !receiver.reads.is_empty() {
        assert!(receiver.sent.is_empty() && receiver.finished.is_empty());
        receiver.complete_read();
    }
    assert_eq!((receiver.got(), receiver.registered.len()), (vec![(7, 5)], 0));

    // `Finished` names the send by its number; the send ends, and its memory is registered no longer.
    assert_eq!(receiver.sent, [(Header::Finished { request: number, length: 100 }, vec![])]);
    assert!(sender.finished.is_empty());
    sender.receive_from(&mut receiver);
    assert_eq!((sender.finished, sender.registered.len()), (vec![0], 0));
}
