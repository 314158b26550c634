// SPDX-License-Identifier: MIT OR Apache-2.0
//! Seeds of libfabric's programs, and programs of defects that were found in them.

use crate::libfabric::{Program, check, run};

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
