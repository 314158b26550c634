// SPDX-License-Identifier: MIT OR Apache-2.0
//! Searches of queues, from the events of simulated ranks.

mod simulated;

use ibex_messages::{Queue, Time};
use simulated::{Process, RECV, START, WHOLE};

#[test]
fn a_search_lasts_from_its_begin_to_its_end_and_says_what_for() {
    const POSTED: [&str; 2] = ["comm_search_posted_q_begin", "comm_search_posted_q_end"];
    const UNEXPECTED: [&str; 2] = ["comm_search_unex_q_begin", "comm_search_unex_q_end"];
    let mut process = Process::default();
    process.world(0, 1);
    let search = |process: &mut Process, [begin, end]: [&'static str; 2], id: i64, from: i64, to: i64| {
        // Seven receives are posted, and five messages unexpected.
        process.raise(begin, from, &[id, 64, -1, 9, 1, 0, 7, 5]);
        process.raise(end, to, &[id, 64, -1, 9, 1, 0, 7, 5]);
    };
    process.call(RECV, (100, 200), |process| search(process, UNEXPECTED, 2, 110, 150));
    process.thread = 1;
    search(&mut process, POSTED, 4, 120, 130);
    // The end of one and the begin of the next are lost.
    process.raise(POSTED[0], 140, &[6, 64, -1, 9, 1, 0, 7, 5]);
    process.raise(POSTED[1], 190, &[8, 64, -1, 9, 1, 0, 7, 5]);
    process.raise(UNEXPECTED[1], 195, &[10, 64, -1, 9, 1, 0, 7, 5]);
    let job = simulated::read("searches", &[process], &[WHOLE]);
    let time = |time: Time| time.nanoseconds() - START;
    let found: Vec<_> = job
        .searches
        .iter()
        .map(|of| (of.thread, of.queue, of.peer, of.tag, of.length, time(of.begun), time(of.ended)))
        .collect();
    let wanted = [(1, Queue::Posted, -1, 9, Some(7), 120, 130), (0, Queue::Unexpected, -1, 9, Some(5), 110, 150)];
    assert_eq!(found, wanted);
}
