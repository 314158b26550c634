// SPDX-License-Identifier: MIT OR Apache-2.0
//! Seeds that run with every change; `cargo xtask simulate` runs more. Beside them, programs of defects that were
//! found.

use super::*;

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
