// SPDX-License-Identifier: MIT OR Apache-2.0
//! Searches of queues, from the events of simulated ranks.

mod simulated;

use ibex_messages::{Queue, Time};
use simulated::{Process, RECV, START, envelope};

#[test]
fn a_search_lasts_from_its_begin_to_its_end_and_has_peer_and_tag() {
    const POSTED: [&str; 2] = ["comm_search_posted_q_begin", "comm_search_posted_q_end"];
    const UNEXPECTED: [&str; 2] = ["comm_search_unex_q_begin", "comm_search_unex_q_end"];
    let mut process = Process::default();
    process.world(0, 1);
    let search = |process: &mut Process, [begin, end]: [&'static str; 2], id: i64, from: i64, to: i64| {
        // In this process seven receives are posted and five messages unexpected.
        process.raise(begin, from, &[id, 64, -1, 9, 1, 0, 7, 5]);
        process.raise(end, to, &[id, 64, -1, 9, 1, 0, 7, 5]);
    };
    process.call(RECV, (100, 200), |process| search(process, UNEXPECTED, 2, 110, 150));
    process.thread = 1;
    search(&mut process, POSTED, 4, 120, 130);
    // Two searches that lack their end, one that lacks its begin.
    process.raise(POSTED[0], 140, &[6, 64, -1, 9, 1, 0, 7, 5]);
    process.raise(POSTED[1], 190, &[8, 64, -1, 9, 1, 0, 7, 5]);
    process.raise(UNEXPECTED[1], 195, &[10, 64, -1, 9, 1, 0, 7, 5]);
    let job = simulated::read("searches", &[process]);
    let time = |time: Time| time.nanoseconds() - START;
    let found: Vec<_> = job
        .searches
        .iter()
        .map(|of| (of.thread, of.queue, of.peer, of.tag, of.length, time(of.begun), time(of.ended)))
        .collect();
    let wanted = [(1, Queue::Posted, -1, 9, Some(7), 120, 130), (0, Queue::Unexpected, -1, 9, Some(5), 110, 150)];
    assert_eq!(found, wanted);
    assert!(job.searches.iter().all(|of| (of.message, of.is_found) == (None, None)), "no event names the message");
}

#[test]
fn a_search_belongs_to_its_message_and_the_next_event_shows_whether_it_found_one() {
    let mut processes = simulated::world(2);
    let (to, from) = (envelope(1, 5, 64), envelope(0, 5, 64));
    let search = |process: &mut Process, now: i64| {
        let id = process.name();
        for name in ["comm_search_unex_q_begin", "comm_search_unex_q_end"] {
            process.raise(name, now, &[id, 64, 0, 5, 1, 0, 1, 1]);
        }
    };
    processes[0].send(0, &to);
    processes[0].send(100, &to);
    let receiver = &mut processes[1];
    let id = receiver.post(10, &from);
    receiver.arrive(20, &from, Some((id, &from)));
    let message = receiver.arrive(120, &from, None);
    search(receiver, 200);
    receiver.take(300, &from, (message, &from));
    let at = receiver.events.iter().rposition(|(name, ..)| *name == "comm_req_activate").expect("of the receive");
    let taken = receiver.events.split_off(at + 1);
    search(receiver, 300);
    receiver.events.extend(taken);
    let job = simulated::read("searched", &processes);
    let found: Vec<_> =
        job.searches.iter().map(|of| (of.begun.nanoseconds() - START, of.queue, of.message, of.is_found)).collect();
    let wanted = [
        (10, Queue::Unexpected, Some(0), Some(false)),
        (20, Queue::Posted, Some(0), Some(true)),
        (120, Queue::Posted, Some(1), Some(false)),
        (200, Queue::Unexpected, None, None),
        (300, Queue::Unexpected, Some(1), Some(true)),
    ];
    assert_eq!(found, wanted);
}
