// SPDX-License-Identifier: MIT OR Apache-2.0
//! Seeds that run with every change; `cargo xtask simulate` runs more. Beside them, programs of defects that were found.

use super::*;

#[test]
fn each_message_of_random_programs_arrives_whole_and_once_and_in_order() {
    for seed in 0..150 {
        if let Err(failure) = run(&Program::of_seed(seed, None)) {
            panic!("seed {seed}: {failure}");
        }
    }
}

#[test]
fn a_seed_has_the_same_history_each_time() {
    for seed in 0..20 {
        let program = Program::of_seed(seed, None);
        assert_eq!(program, Program::of_seed(seed, None));
        assert_eq!(check(&program), check(&program));
    }
}
