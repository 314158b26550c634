// SPDX-License-Identifier: MIT OR Apache-2.0
//! Seeds of libfabric's programs, and programs of defects that were found in them.

use crate::Program as Limits;
use crate::libfabric::How::Default as AsBound;
use crate::libfabric::Kind::{Message, Tagged};
use crate::libfabric::{Operation, Program, check, run};

#[test]
fn each_message_of_libfabrics_programs_arrives_whole_and_once_and_in_order() {
    for seed in 0..200 {
        if let Err(failure) = run(&Program::of_seed(seed, None)) {
            panic!("seed {seed}: {failure}");
        }
    }
}

#[test]
fn endpoints_outlive_others_that_die_or_close_and_messages_that_were_sent_before_a_close_arrive() {
    for seed in 0..200 {
        if let Err(failure) = run(&Program::with_lost_peers(seed, None)) {
            panic!("seed {seed}: {failure}");
        }
    }
}

#[test]
fn a_seed_of_libfabric_has_the_same_history_each_time() {
    for seed in 0..20 {
        let program = Program::of_seed(seed, None);
        assert_eq!(program, Program::of_seed(seed, None));
        assert_eq!(check(&program), check(&program));
    }
}

#[test]
fn a_buffer_of_which_two_messages_fail_is_given_back_by_the_last_report() {
    let receive = |ignore| Operation::Receive { at: 1, from: None, kind: Tagged, tag: 1, ignore, room: 8, pieces: 1 };
    let send = |from, to, length| {
        let (kind, how) = (Message, AsBound);
        Operation::Send { from, to, kind, tag: 0, data: None, length, pieces: 1, how }
    };
    check(&Program {
        limits: Limits {
            processes: 4,
            post_faults: 10,
            outlives: true,
            schedule: 0xfe8d_4043_5543_f910,
            ..Limits::default()
        },
        operations: vec![
            receive(1 << 63),
            receive(1),
            send(1, 3, 213),
            Operation::Cancel { at: 1, which: 0 },
            Operation::Buffer { at: 3, from: None, room: 1000, least: 64 },
            Operation::Fail { at: 0, queue_pair: 32, reads: true },
            send(2, 2, 8),
            Operation::Fail { at: 2, queue_pair: 21, reads: false },
            Operation::Receive { at: 2, from: None, kind: Message, tag: 0, ignore: 0, room: 8, pieces: 1 },
            send(0, 3, 1025),
            Operation::Claim { at: 1, room: None },
        ],
        ..Program::default()
    });
}
