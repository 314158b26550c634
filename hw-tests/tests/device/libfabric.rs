// SPDX-License-Identifier: MIT OR Apache-2.0
//! libfabric's calls by the rules of its manual pages: the programs of hw-tests/libfabric, each one process with two or
//! three endpoints. They check themselves, and count cases. Setup grade; one test at a time.

use crate::launch::cases_passed;
use crate::listed::every_program_is_listed;
use crate::provider::{installed, job};
use crate::site::Site;
use crate::test::Test;
use anyhow::{Context, Result};

/// Programs, and what each shows.
const PROGRAMS: [(&str, &str); 17] = [
    ("fi_matching", "receives take the messages that their tag, mask and source say, in order"),
    ("fi_search", "messages are searched for, claimed and discarded"),
    ("fi_multi_recv", "a buffer takes several messages, and is given back"),
    ("fi_endings", "cancelled and truncated receives end with an error that says why"),
    ("fi_completions", "completions are written for the operations that ask for them, and messages are injected"),
    ("fi_pieces", "messages have several pieces, or none, and remote data"),
    ("fi_queues", "queues of each format serve endpoints of one or two domains"),
    ("fi_vectors", "address vectors keep, name and forget addresses"),
    ("fi_strangers", "messages of senders that the receiver has not inserted come from nowhere, and pass"),
    ("fi_counters", "counters count successes and errors"),
    ("fi_closing", "objects close in the order that the manual pages allow"),
    ("fi_last_messages", "messages arrive although their sender closes its endpoint and ends"),
    ("fi_arguments", "wrong arguments are refused"),
    ("fi_sizes", "messages of every length pass, in both directions at once"),
    ("fi_waits", "threads sleep until there is a completion"),
    ("fi_threads", "threads share endpoints and queues"),
    ("lost_peers", "a lost peer fails its own operations, with a reason, and no others"),
];

/// Programs of `one_sided.rs`, `provider_memory.rs` and `provider_tools.rs`.
const OF_OTHER_TESTS: [&str; 6] =
    ["accesses", "atomics", "one_sided", "one_sided_refused", "fi_freed_memory", "fi_one_way"];

pub(crate) fn tests() -> Vec<Test> {
    let all = Test::new("every program of libfabric's calls is run by a test", |_| {
        let all = PROGRAMS.iter().map(|(program, _)| *program).chain(OF_OTHER_TESTS);
        every_program_is_listed("libfabric", all, file!())
    });
    let programs = PROGRAMS.map(|(program, shows)| {
        Test::on_emulated(format!("by libfabric, {shows}"), move |site| runs(site, program, None)).quick()
    });
    let silent = "by libfabric, an atomic operation with a silent peer fails when the peer is killed";
    let silent = Test::on_emulated(silent, |site| runs(site, "lost_peers", Some("silent")));
    std::iter::once(all.quick().device_independent()).chain(programs).chain([silent]).collect()
}

fn runs(site: &mut Site, program: &str, argument: Option<&str>) -> Result<()> {
    let (_folder, path) = installed()?;
    let program = site.program(program)?;
    let words = std::iter::once(program.as_str()).chain(argument);
    let outcome = site.fabric(1)?.run(&job(words, &path))?.checked()?;
    let passed = cases_passed(&outcome.stdout);
    site.cases += passed.with_context(|| format!("the program did not say how many cases passed: {outcome}"))?;
    Ok(())
}
