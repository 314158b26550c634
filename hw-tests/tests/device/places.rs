// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receiver first, over one emulated adapter, as nobody is told where to write where there are several: blocking
//! receives that wait, random traffic and collectives, with queues that are short, senders that are held back, faults.
//!
//! Setup grade; any thread.

use crate::launch::{Launch, over_the_pml};
use crate::programs::STARVED;
use crate::test::Test;

/// What is run, with which parameters, on an adapter with which faults.
struct Case {
    sentence: &'static str,
    program: &'static str,
    ranks: usize,
    arguments: &'static [&'static str],
    parameters: &'static [(&'static str, &'static str)],
    /// `[[fault]]` tables.
    rules: &'static str,
}

const ALWAYS: &[(&str, &str)] = &[("pml_ibex_receiver_first", "2")];

const PLAIN: Case =
    Case { sentence: "", program: "receiver_first", ranks: 2, arguments: &[], parameters: ALWAYS, rules: "" };

static CASES: &[Case] = &[
    Case {
        sentence: "messages of a late sender are written where their receiver says",
        arguments: &["--placed", "yes"],
        parameters: &[("pml_ibex_receiver_first", "1")],
        ..PLAIN
    },
    Case {
        sentence: "receives have what they match though senders are always told where to write",
        arguments: &["--placed", "yes", "--seed", "2"],
        ranks: 4,
        ..PLAIN
    },
    Case {
        sentence: "receives have what they match though senders are held back",
        arguments: &["--seed", "3"],
        parameters: &[("pml_ibex_receiver_first", "2"), ("pml_ibex_unexpected_memory", "1024")],
        ..PLAIN
    },
    Case { sentence: "random traffic is matched as MPI says", program: "traffic", ranks: 3, ..PLAIN },
    Case {
        sentence: "random traffic of several threads is matched as MPI says",
        program: "traffic",
        arguments: &["--threads", "3"],
        ..PLAIN
    },
    Case { sentence: "collectives are right", program: "collectives", ranks: 3, ..PLAIN },
    Case {
        sentence: "receives have what they match though packets are lost",
        arguments: &["--seed", "5", "--groups", "100"],
        parameters: &[("pml_ibex_receiver_first", "2"), ("btl_ibex_ack_timeout", "6")],
        rules: "[[fault]]\naction = \"drop\"\nfraction = 0.02\nseed = 7\n",
        ..PLAIN
    },
    Case {
        sentence: "receives have what they match though posts are refused for want of memory",
        arguments: &["--seed", "6", "--groups", "100"],
        rules: "[[fault]]\naction = \"post-send-error\"\nerrno = \"ENOMEM\"\nfraction = 0.2\nseed = 9\n",
        ..PLAIN
    },
];

/// The tests of this file.
pub(crate) fn tests() -> Vec<Test> {
    let mut tests: Vec<Test> = CASES.iter().map(|case| test(case, &[])).collect();
    tests.push(test(&STARVED_CASE, STARVED));
    tests
}

static STARVED_CASE: Case = Case {
    sentence: "receives have what they match though all queues are short",
    arguments: &["--seed", "4"],
    ..PLAIN
};

fn test(case: &'static Case, more: &'static [(&str, &str)]) -> Test {
    let name = format!("over the pml, receiver first, {} on {} ranks", case.sentence, case.ranks);
    let run = move |site: &mut _| {
        let adapter = format!("[[device]]\nname = \"softhca0\"\n{}", case.rules);
        let mut launch = Launch::new(case.program, case.ranks).arguments(case.arguments).on_adapters(adapter);
        for (name, value) in case.parameters.iter().chain(more) {
            launch = launch.with(name, value);
        }
        launch.scale(0.5).limit(180).passes(site)
    };
    Test::on_emulated(name, move |site| over_the_pml(|| run(site))).device_independent()
}
