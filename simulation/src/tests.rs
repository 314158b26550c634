// SPDX-License-Identifier: MIT OR Apache-2.0
//! Seeds that run with every change; `cargo xtask simulate` runs more. Beside them, programs of defects that were
//! found.

use super::*;
use crate::program::Mode;

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
