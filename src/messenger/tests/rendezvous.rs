// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rendezvous: the data in reads by one rail or several, or in fragments. Grade: test. Threads: one.

use super::*;
use crate::messenger::path_taken::Reason;
use crate::messenger::rendezvous;

#[test]
fn a_rendezvous_sends_as_many_fragments_as_find_a_buffer_and_the_next_when_one_is_sent() {
    let (mut sender, mut receiver) = (SmallHost::new(), SmallHost::new());
    let (send, number) = sender.announced((0..50).collect());
    let receive = receiver.request(Role::Receive, vec![0; 44]);
    fragments::ask(&(), &mut receiver, receive, (ROUTE, number), (44, Reason::Gaps));
    sender.receive_from(&mut receiver);
    let offsets = |of: &SmallHost| -> Vec<u64> {
        of.sent
            .iter()
            .map(|(header, _)| if let Header::Fragment { offset, .. } = header { *offset } else { 99 })
            .collect()
    };
    assert_eq!((offsets(&sender), &sender.messenger.starved), (vec![0, 8, 16], &VecDeque::from([send])));
    receiver.receive_from(&mut sender);
    assert_eq!(receiver.cores[receive].data[..9], [0, 1, 2, 3, 4, 5, 6, 7, 0]);
    sender.fragment_done();
    assert_eq!(offsets(&sender), [8, 16, 24]);
    for _ in 0..3 {
        receiver.receive_from(&mut sender);
        sender.fragment_done();
    }
    assert_eq!((offsets(&sender), sender.messenger.starved.len()), (vec![32, 40], 0));
    receiver.receive_from(&mut sender);
    receiver.receive_from(&mut sender);
    // The last fragment has four bytes for which the receive has no room.
    assert_eq!((&*receiver.finished, &receiver.cores[receive].data), (&[receive][..], &(0..44).collect::<Vec<_>>()));
    sender.fragment_done();
    assert!(sender.finished.is_empty(), "the adapter reads the last fragment");
    sender.fragment_done();
    assert_eq!((&*sender.finished, sender.free_buffers, sender.registered.len()), (&[send][..], 3, 0));
    for host in [sender, receiver] {
        assert_eq!(host.raised.iter().map(|(letter, ..)| letter).collect::<String>(), "BCCCCE");
    }
}

/// Makes two processes, a send of so many bytes, and a receive with `room` that gets its announcement by this route.
fn rendezvous_by(
    from: Route,
    (length, room): (usize, usize),
    keys: Option<&[PortKey]>,
    kernel_copies: Option<bool>,
) -> (SmallHost, SmallHost) {
    let (mut sender, mut receiver) = (SmallHost::new(), SmallHost::new());
    receiver.kernel_copies = kernel_copies;
    let (_, number) = sender.announced(vec![7; length]);
    let receive = receiver.request(Role::Receive, vec![0; room]);
    let memory = Memory::Readable { key: 9, address: 4096, length: length as u64 };
    let body = match keys {
        Some(keys) => Body::ReadyToSendKeyed(number, memory, keys.into()),
        None => Body::ReadyToSend(number, memory),
    };
    delivery::arrived(&(), &mut receiver, receive, Envelope::new(3, 7), Arrived { from, id: 0, body });
    (sender, receiver)
}

/// Hands all messages over, and expects that both requests are finished and no memory is registered any more.
fn is_finished_by_messages(mut sender: SmallHost, mut receiver: SmallHost) {
    while !(receiver.sent.is_empty() && sender.sent.is_empty()) {
        receiver.sent.drain(..).for_each(|message| sender.handle(message));
        if let Some(fragment) = sender.sent.pop_front() {
            receiver.handle_from(Some(receiver.cores[0].route), fragment);
            sender.fragment_done();
        }
    }
    for host in [sender, receiver] {
        assert_eq!((host.finished, host.registered, host.noted.len() < 2), (vec![0], Vec::new(), true));
    }
}

#[test]
fn a_receiver_reads_as_much_of_a_message_as_it_has_room_for_and_then_sends_finished() {
    for (room, expected) in [(40, &[(0, 16), (16, 16), (32, 8)][..]), (0, &[])] {
        let (sender, mut receiver) = rendezvous_by(by_rail(0), (100, room), None, None);
        let outcome = Outcome { source: 3, tag: 7, length: 100, is_truncated: true };
        assert_eq!(receiver.noted, [(0, outcome)]);
        assert_eq!(receiver.raised.iter().find(|raised| raised.0 == 'B'), Some(&('B', 0, (0, 0))));
        let mut read = Vec::new();
        while let Some((.., part)) = receiver.reads.front() {
            assert!(receiver.finished.is_empty());
            read.push((part.offset, part.length));
            receiver.complete_read();
        }
        assert_eq!(read, expected);
        is_finished_by_messages(sender, receiver);
    }
}

#[test]
fn the_reads_of_two_messages_share_a_rail_alike() {
    let (_, mut receiver) = rendezvous_by(by_rail(0), (100, 100), None, None);
    let second = receiver.request(Role::Receive, vec![0; 100]);
    let body = Body::ReadyToSend(TransferId(9), Memory::Readable { key: 1, address: 4096, length: 100 });
    delivery::arrived(&(), &mut receiver, second, Envelope::new(3, 7), Arrived { from: by_rail(0), id: 0, body });
    // Neither is ahead of the other by more than the reads that a message has in flight.
    let mut ahead = 0_i32;
    while let Some((of, ..)) = receiver.reads.front() {
        ahead += if *of == second { -1 } else { 1 };
        assert!(ahead.unsigned_abs() as usize <= stripes::MOST, "{:?}", receiver.reads);
        receiver.complete_read();
    }
    assert_eq!(receiver.finished, [0, second]);
}

#[test]
fn another_rail_repeats_the_reads_of_a_failed_one_and_if_none_is_left_the_sender_sends_copies() {
    let keys = [0, 1].map(|port| PortKey { port, key: port });
    for failing in 0..=2 {
        let (sender, mut receiver) = rendezvous_by(by_rail(0), (100, 100), Some(&keys), None);
        assert_eq!(receiver.registered, [0, 1]);
        let mut read = 0;
        while let Some((_, rail, _, part)) = receiver.reads.pop_front() {
            let is_failed = rail < failing;
            read += if is_failed { 0 } else { part.length };
            let outcome = if is_failed { Err(Failed { status: Status::FLUSHED, posted: true }) } else { Ok(()) };
            read::done(&(), &mut receiver, 0, rail, outcome);
        }
        assert_eq!((read, receiver.finished.len()), if failing < 2 { (100, 1) } else { (0, 0) });
        is_finished_by_messages(sender, receiver);
    }
}

#[test]
fn within_a_host_the_kernel_copies_a_message_and_if_it_refuses_the_sender_sends_copies() {
    for kernel_copies in [Some(true), Some(false), None] {
        let (sender, receiver) = rendezvous_by(Route::local(1), (100, 60), None, kernel_copies);
        assert_eq!(receiver.finished.len(), usize::from(kernel_copies == Some(true)));
        is_finished_by_messages(sender, receiver);
    }
}

#[test]
fn sends_that_wait_for_a_buffer_take_turns() {
    let (mut sender, mut receiver) = (SmallHost::new(), SmallHost::new());
    sender.free_buffers = 1;
    let sends = [0, 1].map(|of| sender.announced(vec![of; 24]));
    for (_, number) in sends {
        let receive = receiver.request(Role::Receive, vec![9; 24]);
        fragments::ask(&(), &mut receiver, receive, (ROUTE, number), (24, Reason::Gaps));
        sender.receive_from(&mut receiver);
    }
    let mut order = Vec::new();
    while let Some((_, bytes)) = sender.sent.front() {
        let of = usize::from(bytes[0]);
        order.push(of);
        receiver.receive_from(&mut sender);
        sender.fragment_done();
    }
    assert_eq!((order, receiver.finished), (vec![0, 0, 1, 0, 1, 1], vec![0, 1]));
}

#[test]
fn an_answer_with_too_many_bytes_or_without_a_transfer_sends_nothing() {
    let mut host = SmallHost::new();
    let (send, number) = host.announced(vec![1; 20]);
    for asked in [0, 21, u64::MAX] {
        fragments::wanted(&(), &mut host, (number, TransferId(7)), (asked, Reason::Gaps));
        assert_eq!(host.refused.take(), Some(asked));
    }
    fragments::wanted(&(), &mut host, (TransferId(number.0 + 1), TransferId(7)), (20, Reason::Gaps));
    fragments::received(&mut host, number, 0, &[1; 8]);
    assert!(matches!(host.cores[send].transfer, Transfer::Unanswered { .. }) && host.refused.is_none());
    assert!(host.sent.is_empty() && host.finished.is_empty());
}

#[test]
fn an_event_names_the_number_of_rails_by_which_an_announced_message_may_be_read() {
    for others in 0..3 {
        let mut host = SmallHost::new();
        host.hears = Some(true);
        host.others = vec![(1, ()); others];
        host.send(7, 1, LONG);
        assert_eq!(host.paths.iter().map(|path| path.rails).collect::<Vec<_>>(), [1 + others as u32]);
    }
}

#[test]
fn finished_ends_a_send_whose_receiver_has_read_once() {
    let mut host = SmallHost::new();
    let (send, number) = host.announced(vec![1; 20]);
    for _ in 0..2 {
        rendezvous::finished(&(), &mut host, number, 20);
        assert_eq!((&*host.finished, host.registered.len()), (&[send][..], 0));
    }
    assert!(matches!(host.cores[send].transfer, Transfer::None));
}
