// SPDX-License-Identifier: MIT OR Apache-2.0
//! Seeds that run with every change; `cargo xtask simulate` runs more. Beside them, programs of defects that were
//! found.

use super::*;
use crate::program::{Fault, Mode};

mod libfabric;
mod meetings;
mod paths;
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
fn processes_outlive_others_and_each_request_ends_once_and_messages_of_the_living_are_right() {
    for seed in 0..200 {
        if let Err(failure) = run(&Program::with_lost_peers(seed, None)) {
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

fn send(from: u32, to: u32, tag: i32, length: usize) -> Operation {
    Operation::Send { from, to, context: 0, tag, length, mode: Mode::Standard, gaps: false, persistent: false }
}

fn receive(at: u32, from: Option<u32>, room: usize) -> Operation {
    Operation::Receive { at, from, context: 0, tag: None, room, gaps: false, persistent: false }
}

#[test]
fn a_fragment_that_one_of_several_ports_keeps_for_a_lost_peer_gives_its_buffer_back() {
    let (send, receive) = (|length| send(1, 2, 0, length), |room| receive(2, None, room));
    let mut operations = vec![Operation::Refuse { at: 2, rail: 1, refuses: true }, receive(8)];
    operations.extend([send(8), send(1310), receive(1310), send(8), send(8), send(8)]);
    operations.extend([receive(8), receive(8), receive(8), Operation::Die { at: 2 }]);
    let schedule = 0xf318_2670_e802_ac58;
    check(&Program { processes: 4, rails: 2, schedule, operations, ..Program::default() });
}

#[test]
fn a_buffer_of_a_fragment_to_a_lost_peer_goes_to_a_send_to_another_peer_that_waits_for_one() {
    check(&Program {
        processes: 3,
        schedule: 0x554f_5f48_8b67_8697,
        operations: vec![
            Operation::Refuse { at: 1, rail: 0, refuses: true },
            receive(2, Some(1), 2560),
            send(1, 2, 0, 2560),
            receive(0, Some(1), 3079),
            send(1, 0, 0, 3079),
            Operation::Die { at: 2 },
        ],
        ..Program::default()
    });
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
    check(&Program {
        rails: 3,
        unexpected_memory: 0,
        schedule: 0xa21e_a8b5_1784_dceb,
        operations: vec![
            Operation::Fail { at: 1, queue_pair: 40, fault: Fault::Post },
            send(0, 1, 0, 8),
            Operation::Link { at: 1, rail: 0, up: false, noticed: true },
            send(1, 0, 1, 256),
            receive(0, None, 8),
            send(1, 0, 1, 8),
        ],
        ..Program::default()
    });
}

#[test]
fn messages_that_wait_at_a_port_go_by_a_third_one_if_the_second_refuses_them() {
    // A message that all ports read, so that they are connected. Then fragments, more than a queue pair takes.
    let mut operations = vec![receive(1, Some(0), 200_000), send(0, 1, 0, 200_000), Operation::Settle { at: 0 }];
    let (context, length, mode, gaps, persistent) = (0, 3000, Mode::Standard, true, false);
    for _ in 0..6 {
        operations.push(receive(1, Some(0), length));
        operations.push(Operation::Send { from: 0, to: 1, context, tag: 0, length, mode, gaps, persistent });
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
fn a_receive_gets_a_message_that_pends_behind_those_of_matched_probes_which_are_not_received() {
    let probe = Operation::Probe { at: 2, from: Some(1), context: 0, tag: None, takes: true };
    let (send, receive) = (|from| send(from, 2, 0, 8), receive(2, None, 8));
    let settle = |at| Operation::Settle { at };
    // The first receive takes the message of process 0, so that only those of the probes are stored.
    let operations =
        vec![send(1), settle(1), send(1), send(1), settle(1), probe, probe, receive, receive, settle(2), send(0)];
    let schedule = 0x5315_4151_0686_03c2;
    check(&Program { processes: 3, unexpected_memory: 0, window: 1, schedule, operations, ..Program::default() });
}

#[test]
fn a_process_dies_while_the_one_from_which_it_has_parted_does_not_know_that_their_connection_failed() {
    let operations = vec![send(1, 0, 0, 8), Operation::Part { at: 0, other: 1, fails: true }, Operation::Die { at: 0 }];
    check(&Program { schedule: 0x39d9_b026_5a0c_9dbb, operations, ..Program::default() });
}

#[test]
fn a_message_in_its_turn_does_not_overtake_an_announcement_that_the_former_port_refused() {
    check(&Program {
        processes: 3,
        rails: 3,
        post_faults: 10,
        hello_faults: 20,
        schedule: 0x0b8c_a8cd_2845_f7d8,
        operations: vec![
            send(0, 1, 1, 256),
            Operation::Fail { at: 0, queue_pair: 7, fault: Fault::Post },
            send(0, 2, 0, 8),
            receive(1, None, 8),
            send(0, 1, 1, 8),
        ],
        ..Program::default()
    });
}

#[test]
fn a_process_that_sends_by_a_connection_that_its_peer_has_given_up_learns_that_the_message_is_lost() {
    let operations = vec![
        send(1, 0, 0, 8),
        receive(0, None, 8),
        Operation::Part { at: 0, other: 1, fails: true },
        send(0, 1, 0, 8),
        send(1, 0, 0, 8),
    ];
    for schedule in 0..20 {
        check(&Program { processes: 2, schedule, operations: operations.clone(), ..Program::default() });
    }
}

#[test]
fn a_failure_of_a_peer_that_has_parted_is_gone_when_the_process_looks_it_up_again() {
    check(&Program {
        processes: 7,
        rails: 2,
        per_host: 1,
        hello_faults: 3,
        schedule: 0xe92f_2582_1271_796e,
        operations: vec![
            send(4, 6, 0, 8),
            receive(5, None, 8),
            send(6, 5, 0, 8),
            send(4, 1, 0, 8),
            Operation::Part { at: 4, other: 6, fails: false },
            send(6, 2, 0, 8),
            send(2, 3, 0, 8),
            send(1, 3, 0, 8),
            send(4, 2, 0, 8),
            Operation::Die { at: 2 },
            Operation::Start { at: 0, which: 2 },
            Operation::Start { at: 1, which: 2 },
            Operation::Start { at: 3, which: 4 },
            Operation::Part { at: 4, other: 0, fails: true },
        ],
        ..Program::default()
    });
}

#[test]
fn a_port_that_asks_for_a_connection_for_which_nothing_waits_does_not_keep_the_processes_from_rest() {
    let tag = -2_147_483_647;
    check(&Program {
        processes: 3,
        rails: 3,
        per_host: 1,
        hello_faults: 20,
        schedule: 0x24a6_aaf7_a779_dd5a,
        operations: vec![
            Operation::Refuse { at: 1, rail: 2, refuses: true },
            send(2, 0, 0, 8),
            receive(0, None, 8),
            Operation::Receive {
                at: 2,
                from: None,
                context: 0,
                tag: Some(tag),
                room: 8,
                gaps: false,
                persistent: false,
            },
            Operation::Link { at: 1, rail: 0, up: false, noticed: true },
            Operation::Send {
                from: 1,
                to: 2,
                context: 0,
                tag,
                length: 8,
                mode: Mode::Synchronous,
                gaps: false,
                persistent: false,
            },
            receive(0, None, 8),
            Operation::Link { at: 2, rail: 0, up: false, noticed: true },
            Operation::Fail { at: 1, queue_pair: 51, fault: Fault::Connect },
            Operation::Probe { at: 1, from: None, context: 0, tag: Some(8_388_608), takes: false },
            Operation::Settle { at: 1 },
            Operation::Die { at: 2 },
        ],
        ..Program::default()
    });
}
