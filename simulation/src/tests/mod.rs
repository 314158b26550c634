// SPDX-License-Identifier: MIT OR Apache-2.0
//! Seeds that run with every change; `cargo xtask simulate` runs more. Beside them, programs of defects that were
//! found.

use super::*;
use crate::program::{Fault, Mode};

mod trace;

#[test]
fn each_message_of_random_programs_arrives_whole_and_once_and_in_order() {
    for seed in 0..200 {
        if let Err(failure) = run(&Program::of_seed(seed, None)) {
            panic!("seed {seed}: {failure}");
        }
    }
}

#[test]
fn a_program_that_fails_is_shrunk_to_what_it_takes() {
    let program = Program::of_seed(3, None);
    let long = |one: &Operation| matches!(one, Operation::Send { length, .. } if *length > 256);
    assert!(program.operations.iter().filter(|one| long(one)).count() > 2);
    let small = shrink::shrink(&program, |program| program.operations.iter().filter(|one| long(one)).count() > 1);
    assert_eq!((small.operations.len(), small.processes < 3, small.rails), (2, true, 1), "{small}");
}

#[test]
fn a_seed_has_the_same_history_each_time() {
    for seed in 0..20 {
        let program = Program::of_seed(seed, None);
        assert_eq!(program, Program::of_seed(seed, None));
        assert_eq!(check(&program), check(&program));
    }
}

#[test]
fn a_fragment_that_one_of_several_ports_keeps_for_a_lost_peer_gives_its_buffer_back() {
    let (context, gaps, persistent) = (0, false, false);
    let send =
        |length| Operation::Send { from: 1, to: 2, context, tag: 0, length, mode: Mode::Standard, gaps, persistent };
    let receive = |room| Operation::Receive { at: 2, from: None, context, tag: None, room, gaps, persistent };
    let mut operations = vec![Operation::Refuse { at: 2, rail: 1, refuses: true }, receive(8)];
    operations.extend([
        send(8),
        send(1310),
        receive(1310),
        send(8),
        send(8),
        send(8),
        receive(8),
        receive(8),
        receive(8),
    ]);
    operations.push(Operation::Die { at: 2 });
    let schedule = 0xf318_2670_e802_ac58;
    check(&Program { processes: 4, rails: 2, schedule, operations, ..Program::default() });
}

#[test]
fn a_buffer_of_a_fragment_to_a_lost_peer_goes_to_a_send_to_another_peer_that_waits_for_one() {
    let (from, context, gaps, persistent) = (1, 0, false, false);
    let send =
        |to, length| Operation::Send { from, to, context, tag: 0, length, mode: Mode::Standard, gaps, persistent };
    let receive = |at, room| Operation::Receive { at, from: Some(from), context, tag: None, room, gaps, persistent };
    check(&Program {
        processes: 3,
        schedule: 0x554f_5f48_8b67_8697,
        operations: vec![
            Operation::Refuse { at: 1, rail: 0, refuses: true },
            receive(2, 2560),
            send(2, 2560),
            receive(0, 3079),
            send(0, 3079),
            Operation::Die { at: 2 },
        ],
        ..Program::default()
    });
}

fn send(from: u32, to: u32, tag: i32, length: usize) -> Operation {
    Operation::Send { from, to, context: 0, tag, length, mode: Mode::Standard, gaps: false, persistent: false }
}

#[test]
fn a_peer_whose_messages_wait_for_the_link_of_one_port_is_not_lost_when_another_port_fails() {
    check(&Program {
        rails: 2,
        schedule: 0x011b_be9a_b542_be0c,
        operations: vec![
            Operation::Fail { at: 1, queue_pair: 39, fault: Fault::Post },
            send(1, 0, 0, 8),
            Operation::Link { at: 1, rail: 0, up: false, noticed: true },
        ],
        ..Program::default()
    });
}

#[test]
fn no_later_message_arrives_at_a_lost_peer_although_the_link_of_another_port_comes_back() {
    let (context, gaps, persistent) = (0, false, false);
    check(&Program {
        rails: 3,
        unexpected_memory: 0,
        schedule: 0xa21e_a8b5_1784_dceb,
        operations: vec![
            Operation::Fail { at: 1, queue_pair: 40, fault: Fault::Post },
            send(0, 1, 0, 8),
            Operation::Link { at: 1, rail: 0, up: false, noticed: true },
            send(1, 0, 1, 256),
            Operation::Receive { at: 0, from: None, context, tag: None, room: 8, gaps, persistent },
            send(1, 0, 1, 8),
        ],
        ..Program::default()
    });
}

#[test]
fn messages_that_wait_at_a_port_go_by_a_third_one_if_the_second_refuses_them() {
    let (context, persistent, length) = (0, false, 3000);
    let receive =
        |room| Operation::Receive { at: 1, from: Some(0), context, tag: Some(0), room, gaps: false, persistent };
    // A message that all ports read, so that they are connected. Then fragments, more than a queue pair takes.
    let mut operations = vec![receive(200_000), send(0, 1, 0, 200_000), Operation::Settle { at: 0 }];
    for _ in 0..6 {
        let mode = Mode::Standard;
        operations.extend([
            receive(length),
            Operation::Send { from: 0, to: 1, context, tag: 0, length, mode, gaps: true, persistent },
        ]);
    }
    operations.push(Operation::Fail { at: 0, queue_pair: 2, fault: Fault::Post });
    operations.push(Operation::Link { at: 0, rail: 1, up: false, noticed: true });
    for schedule in 0..100 {
        check(&Program { rails: 3, schedule, operations: operations.clone(), ..Program::default() });
    }
}

#[test]
fn a_process_that_only_receives_from_a_peer_parts_from_it_and_holds_it_back_when_they_meet_again() {
    check(&Program {
        processes: 3,
        unexpected_memory: 0,
        schedule: 0xb316_1ed1_d190_1d42,
        operations: vec![
            send(1, 0, 0, 8),
            Operation::Part { at: 1, other: 0, fails: false },
            send(1, 0, 0, 8),
            send(2, 0, 0, 0),
        ],
        ..Program::default()
    });
}

#[test]
fn a_process_holds_back_each_sender_of_messages_that_came_before_their_communicator() {
    // Beyond the bound together, and below half of it without the second one.
    let operations = vec![send(1, 0, 0, 172), send(2, 0, 0, 220)];
    for schedule in 0..20 {
        let operations = operations.clone();
        check(&Program { processes: 3, unexpected_memory: 600, schedule, operations, ..Program::default() });
    }
}

#[test]
fn a_process_that_sends_by_a_connection_that_its_peer_has_given_up_learns_that_the_message_is_lost() {
    let (context, gaps, persistent) = (0, false, false);
    let operations = vec![
        send(1, 0, 0, 8),
        Operation::Receive { at: 0, from: None, context, tag: None, room: 8, gaps, persistent },
        Operation::Part { at: 0, other: 1, fails: true },
        send(0, 1, 0, 8),
        send(1, 0, 0, 8),
    ];
    for schedule in 0..20 {
        check(&Program { processes: 2, schedule, operations: operations.clone(), ..Program::default() });
    }
}
