// SPDX-License-Identifier: MIT OR Apache-2.0
//! The MPI programs of hw-tests/mpi on one node: which, with how many ranks, with which parameters.
//!
//! Each program runs plainly and where it matters with parameters that force another path (queues that are always full,
//! no zero-copy, another carrier of the handshake): over the PML. Over ob1 it runs once, and with what only the BTL knows.
//! What looks at what only the BTL sees runs over ob1 alone. A program that is in the folder and not in this list is a
//! failure.
//!
//! Setup grade; any thread.

use crate::launch::{Launch, with_faults};
use crate::listed::every_program_is_listed;
use crate::site::Site;
use crate::test::Test;
use anyhow::Result;
use hw_tests::openmpi::Series;

/// A program with a number of ranks and parameters.
struct Case {
    /// What is shown, as a sentence without its end.
    sentence: &'static str,
    program: &'static str,
    ranks: &'static [usize],
    arguments: &'static [&'static str],
    parameters: &'static [(&'static str, &'static str)],
    /// `[[fault]]` tables. With any, it runs on emulated adapters alone.
    faults: &'static str,
    /// Whether an MPI that refuses threads is a failure; the program would skip.
    threads: bool,
    /// Of the counts a program repeats things by: an emulated processor is slow.
    scale: f64,
    limit: u64,
    /// Whether it is in the quick tier, with two ranks where that is a number of it.
    quick: bool,
}

const PLAIN: Case = Case {
    sentence: "",
    program: "",
    ranks: &[2],
    arguments: &[],
    parameters: &[],
    faults: "",
    threads: false,
    scale: 1.0,
    limit: 180,
    quick: false,
};

/// Queues so short that every resource runs out all the time.
pub(crate) const STARVED: &[(&str, &str)] = &[
    ("btl_ibex_send_queue_depth", "16"),
    ("btl_ibex_receive_queue_depth", "64"),
    ("btl_ibex_completion_queue_depth", "256"),
    ("btl_ibex_send_slots_max", "8"),
];

/// Nothing is shown now and then, which is not a message's.
const WITHOUT_FLIGHT_RECORDER: &[(&str, &str)] = &[("btl_ibex_flight_recorder", "no")];

/// No zero-copy, and no inline sends.
pub(crate) const COPIED: &[(&str, &str)] = &[("btl_ibex_zero_copy_min", "4294967295"), ("btl_ibex_max_inline", "0")];

/// Four of ten datagrams, which carry nothing but handshakes, are lost, and of the others as many arrive twice.
const FAULTY_HANDSHAKE: &str = "[[fault]]\naction = \"drop\"\nqp_type = \"ud\"\nfraction = 0.4\nseed = 1\n\
                                [[fault]]\naction = \"duplicate\"\nqp_type = \"ud\"\nfraction = 0.4\nseed = 2\n";

/// The receiver tells the sender where to write, in pieces, as ob1 does where reads cannot be.
pub(crate) const WRITTEN: &[(&str, &str)] =
    &[("btl_ibex_flags", "send,put,inplace"), ("btl_ibex_min_rdma_pipeline_size", "65536")];

/// Of the program's traffic (200 short messages, long and scattered ones, one-sided operations), what each rank must
/// count.
const GROWING: &[&str] = &[
    "inline_sent=200",
    "inline_bytes=1600",
    "copy_sent=1",
    "received=200",
    "get=5",
    "put=20",
    "atomic=1",
    "connections=1",
    "registrations=1",
    "polls=200",
    "completions=200",
];

static CASES: &[Case] = &[
    Case {
        sentence: "a job without traffic starts and ends",
        program: "init_finalize",
        ranks: &[1, 2, 8],
        quick: true,
        ..PLAIN
    },
    Case {
        sentence: "a job with threads and without traffic starts and ends",
        program: "init_finalize",
        arguments: &["--threads"],
        ..PLAIN
    },
    Case {
        sentence: "every send mode delivers at every size",
        program: "pt2pt_modes",
        ranks: &[1, 2, 3],
        quick: true,
        ..PLAIN
    },
    Case {
        sentence: "every send mode delivers when nothing is inline or zero-copy",
        program: "pt2pt_modes",
        parameters: COPIED,
        ..PLAIN
    },
    Case {
        sentence: "every send mode delivers when all fragments are zero-copy",
        program: "pt2pt_modes",
        parameters: &[("btl_ibex_zero_copy_min", "0")],
        ..PLAIN
    },
    Case {
        sentence: "every send mode delivers when all queues are short",
        program: "pt2pt_modes",
        parameters: STARVED,
        scale: 0.5,
        ..PLAIN
    },
    Case {
        sentence: "messages reach the receive they match",
        program: "pt2pt_matching",
        ranks: &[1, 2, 4],
        quick: true,
        ..PLAIN
    },
    Case {
        sentence: "random traffic is matched as MPI says",
        program: "traffic",
        ranks: &[1, 2, 3, 4],
        quick: true,
        ..PLAIN
    },
    Case {
        sentence: "random traffic of several threads is matched as MPI says",
        program: "traffic",
        arguments: &["--threads", "3", "--seed", "100"],
        threads: true,
        ..PLAIN
    },
    Case {
        sentence: "random traffic is matched as MPI says when all queues are short",
        program: "traffic",
        arguments: &["--seed", "200"],
        parameters: STARVED,
        scale: 0.3,
        ..PLAIN
    },
    Case {
        sentence: "random traffic is matched as MPI says when messages are written by their senders",
        program: "traffic",
        arguments: &["--seed", "300"],
        parameters: WRITTEN,
        scale: 0.3,
        ..PLAIN
    },
    Case {
        sentence: "many long messages with gaps to several ranks at once all arrive",
        program: "strided_sends",
        ranks: &[2, 3, 4],
        scale: 4.0,
        quick: true,
        ..PLAIN
    },
    Case {
        sentence: "receives that are cancelled, probed for or left in a freed communicator have what they should",
        program: "pending_receives",
        ranks: &[2, 3],
        quick: true,
        ..PLAIN
    },
    Case {
        sentence: "messages with gaps arrive in their places",
        program: "pt2pt_datatypes",
        ranks: &[2, 3],
        quick: true,
        ..PLAIN
    },
    Case {
        sentence: "thousands of requests complete",
        program: "pt2pt_requests",
        ranks: &[2, 4],
        quick: true,
        ..PLAIN
    },
    Case {
        sentence: "thousands of requests complete when all queues are short",
        program: "pt2pt_requests",
        parameters: STARVED,
        scale: 0.3,
        ..PLAIN
    },
    Case {
        sentence: "floods of unexpected messages arrive in order",
        program: "pt2pt_flood",
        ranks: &[2, 4],
        quick: true,
        ..PLAIN
    },
    Case {
        sentence: "floods of unexpected messages arrive in order when all queues are short",
        program: "pt2pt_flood",
        parameters: STARVED,
        scale: 0.2,
        ..PLAIN
    },
    Case {
        sentence: "very many sends outstanding arrive in order and lock no more memory",
        program: "outstanding",
        ranks: &[2, 4],
        quick: true,
        ..PLAIN
    },
    Case {
        sentence: "messages to oneself arrive with gaps and without, and none goes by ibex",
        program: "self_messages",
        arguments: &["--by", "self"],
        ranks: &[1, 2],
        quick: true,
        ..PLAIN
    },
    Case {
        sentence: "messages to oneself arrive with gaps and without, where ibex alone is enabled",
        program: "self_messages",
        parameters: &[("btl", "ibex")],
        ranks: &[1, 2],
        ..PLAIN
    },
    Case {
        sentence: "a first blocking send has left when it returns",
        program: "first_contact",
        arguments: &["blocking"],
        ranks: &[2, 4, 8],
        quick: true,
        ..PLAIN
    },
    Case {
        sentence: "a first blocking send has left when it returns, over tcp",
        program: "first_contact",
        arguments: &["blocking"],
        parameters: &[("btl_ibex_connect_via", "tcp")],
        ranks: &[8],
        ..PLAIN
    },
    Case {
        sentence: "a first blocking send has left when it returns although handshake packets are lost",
        program: "first_contact",
        arguments: &["blocking"],
        faults: FAULTY_HANDSHAKE,
        ranks: &[4],
        ..PLAIN
    },
    Case {
        sentence: "collective operations give exact results",
        program: "collectives",
        ranks: &[2, 3, 4],
        quick: true,
        ..PLAIN
    },
    Case {
        sentence: "collective operations give exact results",
        program: "collectives",
        ranks: &[8],
        scale: 0.2,
        limit: 300,
        ..PLAIN
    },
    Case { sentence: "communicators come and go", program: "communicators", ranks: &[2, 4], quick: true, ..PLAIN },
    Case {
        sentence: "twenty thousand communicators at once carry messages and are freed",
        program: "many_communicators",
        ranks: &[1],
        quick: true,
        ..PLAIN
    },
    Case { sentence: "communicators of sessions carry messages", program: "sessions", quick: true, ..PLAIN },
    Case { sentence: "threads send and receive at once", program: "threads", threads: true, quick: true, ..PLAIN },
    Case {
        sentence: "threads send and receive at once when all queues are short",
        program: "threads",
        threads: true,
        parameters: STARVED,
        scale: 0.3,
        ..PLAIN
    },
    Case {
        sentence: "one-sided transfers land where they should",
        program: "rma_transfer",
        ranks: &[2, 3],
        quick: true,
        ..PLAIN
    },
    Case {
        sentence: "one-sided atomic operations count exactly",
        program: "rma_atomics",
        ranks: &[2, 4],
        quick: true,
        ..PLAIN
    },
    Case {
        sentence: "a list grows in memory that ranks attach while others read it",
        program: "linked_list",
        ranks: &[2, 4, 8],
        quick: true,
        ..PLAIN
    },
    Case {
        sentence: "a list grows in memory that was attached in any order",
        program: "linked_list",
        arguments: &["--downwards", "--attached-first"],
        ..PLAIN
    },
    Case {
        sentence: "ranks that all meet at the same moment connect",
        program: "first_contact",
        ranks: &[2, 4, 8],
        quick: true,
        ..PLAIN
    },
    Case {
        sentence: "pairs that meet at the same moment connect",
        program: "first_contact",
        ranks: &[4],
        arguments: &["pairs"],
        ..PLAIN
    },
    Case {
        sentence: "a rank that comes late meets a handshake in the middle",
        program: "first_contact",
        arguments: &["pairs", "--delay-us", "300"],
        ..PLAIN
    },
    Case {
        sentence: "ranks connect although handshake packets are lost and repeated",
        program: "first_contact",
        ranks: &[2, 4],
        faults: FAULTY_HANDSHAKE,
        ..PLAIN
    },
    Case {
        sentence: "ranks that all meet at the same moment connect over tcp",
        program: "first_contact",
        ranks: &[2, 4],
        parameters: &[("btl_ibex_connect_via", "tcp")],
        ..PLAIN
    },
    Case {
        sentence: "memory that is registered is the adapter's while ranks fork and their children exec or live on",
        program: "fork_exec",
        ranks: &[2, 3],
        quick: true,
        ..PLAIN
    },
    Case { sentence: "no registration outlives its memory", program: "freed_memory", quick: true, ..PLAIN },
    Case {
        sentence: "no registration outlives its memory where UCX has patched the system's calls before Open MPI",
        program: "freed_memory",
        arguments: &["--ucx", "before"],
        ..PLAIN
    },
    Case {
        sentence: "no registration outlives its memory where UCX patches the system's calls after Open MPI",
        program: "freed_memory",
        arguments: &["--ucx", "after"],
        ..PLAIN
    },
    Case {
        sentence: "no registration outlives its memory where a component of Open MPI tells UCX what goes",
        program: "freed_memory",
        parameters: &[("osc", "rdma,ucx")],
        ..PLAIN
    },
    Case {
        sentence: "connections are made and taken down many times",
        program: "connect_cycles",
        quick: true,
        ..PLAIN
    },
    Case { sentence: "strangers who connect over tcp disturb no job", program: "strangers", quick: true, ..PLAIN },
    Case {
        sentence: "a short message in steady state allocates nothing",
        program: "allocations",
        quick: true,
        ..PLAIN
    },
    Case {
        sentence: "the performance variables count what was sent",
        program: "pvars",
        arguments: GROWING,
        quick: true,
        ..PLAIN
    },
    Case { sentence: "a message over 2 GiB arrives whole", program: "message_over_2gib", limit: 420, ..PLAIN },
];

/// Cases of the PML alone: of messages' events, and where a receive is too short, as Open MPI's ob1 writes beyond its end
/// then, over whatever transport.
static OF_PML: &[Case] = &[
    Case { sentence: "what events show is what was sent", program: "events", ranks: &[2, 4], quick: true, ..PLAIN },
    Case {
        sentence: "what events show is what was sent when all queues are short",
        program: "events",
        parameters: STARVED,
        scale: 0.3,
        ..PLAIN
    },
    Case {
        sentence: "what events show is what was sent when nothing is inline or zero-copy",
        program: "events",
        parameters: COPIED,
        ..PLAIN
    },
    Case {
        sentence: "what events show is what was sent when the host's clock is to tell all",
        program: "events",
        arguments: &["--adapter", "none"],
        parameters: &[("btl_ibex_event_adapter_clock", "0")],
        ..PLAIN
    },
    Case {
        sentence: "what a tool without room gets and what it is told to have lost is all there was",
        program: "events_lost",
        ranks: &[2, 3],
        quick: true,
        ..PLAIN
    },
    Case { sentence: "tools see the same, whatever their callbacks do", program: "events_tools", quick: true, ..PLAIN },
    Case {
        sentence: "tools see the same of several threads, whatever their callbacks do",
        program: "events_tools",
        arguments: &["--threads", "3"],
        threads: true,
        ..PLAIN
    },
    Case {
        sentence: "a message too long for its receive is cut and no byte beyond is touched",
        program: "pt2pt_truncation",
        ranks: &[2],
        quick: true,
        ..PLAIN
    },
    Case {
        sentence: "a message too long for its receive is cut when nothing is inline",
        program: "pt2pt_truncation",
        parameters: COPIED,
        ..PLAIN
    },
    Case {
        sentence: "messages to oneself arrive and are cut where they are too long, in each mode",
        program: "self_messages",
        arguments: &["--cut"],
        ranks: &[1, 2],
        ..PLAIN
    },
    Case {
        sentence: "one-sided transfers made of messages land where they should",
        program: "rma_transfer",
        parameters: &[("osc", "pt2pt")],
        ..PLAIN
    },
    Case {
        sentence: "one-sided atomic operations made of messages count exactly",
        program: "rma_atomics",
        parameters: &[("osc", "pt2pt")],
        ranks: &[2, 4],
        ..PLAIN
    },
    Case {
        sentence: "mpi ends though requests are pending",
        program: "init_finalize",
        arguments: &["--pending"],
        ranks: &[1, 2, 4],
        quick: true,
        ..PLAIN
    },
    Case {
        sentence: "a flood that nobody has asked for takes bounded memory and arrives in order",
        program: "unexpected_memory",
        scale: 0.25,
        limit: 300,
        ..PLAIN
    },
    Case {
        sentence: "a flood from several that nobody has asked for takes bounded memory and arrives in order",
        program: "unexpected_memory",
        ranks: &[4],
        limit: 300,
        ..PLAIN
    },
    Case {
        sentence: "a flood arrives in order when there is next to no memory for it",
        program: "unexpected_memory",
        arguments: &["--messages", "10000"],
        parameters: &[("pml_ibex_unexpected_memory", "4096")],
        quick: true,
        ..PLAIN
    },
    Case {
        sentence: "a flood from several arrives in order when there is next to no memory for it",
        program: "unexpected_memory",
        parameters: &[("pml_ibex_unexpected_memory", "4096")],
        ranks: &[3],
        scale: 0.2,
        ..PLAIN
    },
    Case {
        sentence: "a flood arrives in order when there is next to no memory for it and all queues are short",
        program: "unexpected_memory",
        arguments: &["--messages", "6000"],
        parameters: HELD_BACK_AND_STARVED,
        limit: 300,
        ..PLAIN
    },
    Case {
        sentence: "random traffic is matched as MPI says when senders are held back",
        program: "traffic",
        arguments: &["--seed", "400"],
        parameters: &[("pml_ibex_unexpected_memory", "1024")],
        ranks: &[2, 3],
        quick: true,
        ..PLAIN
    },
    Case {
        sentence: "random traffic is matched as MPI says when nothing unexpected may be kept",
        program: "traffic",
        arguments: &["--seed", "450"],
        parameters: &[("pml_ibex_unexpected_memory", "0")],
        ranks: &[2, 3],
        ..PLAIN
    },
    Case {
        sentence: "random traffic of several threads is matched as MPI says when senders are held back",
        program: "traffic",
        arguments: &["--threads", "4", "--seed", "500"],
        parameters: &[("pml_ibex_unexpected_memory", "1024")],
        threads: true,
        ..PLAIN
    },
    Case {
        sentence: "random traffic of eight threads is matched as MPI says",
        program: "traffic",
        arguments: &["--threads", "8", "--seed", "600"],
        threads: true,
        scale: 0.5,
        ..PLAIN
    },
    Case {
        sentence: "eight threads send and receive at once",
        program: "threads",
        arguments: &["--threads", "8"],
        threads: true,
        ..PLAIN
    },
    Case {
        sentence: "threads send and receive at once when senders are held back",
        program: "threads",
        arguments: &["--threads", "6"],
        parameters: &[("pml_ibex_unexpected_memory", "1024")],
        threads: true,
        ..PLAIN
    },
    Case {
        sentence: "threads with a communicator each exchange short messages",
        program: "threads_scale",
        ranks: &[1, 2],
        threads: true,
        scale: 0.2,
        quick: true,
        ..PLAIN
    },
    Case {
        sentence: "no short message executes a locked instruction",
        program: "locked_instructions",
        parameters: WITHOUT_FLIGHT_RECORDER,
        quick: true,
        ..PLAIN
    },
    Case {
        sentence: "short messages execute locked instructions where several threads may call",
        program: "locked_instructions",
        arguments: &["--threads"],
        parameters: WITHOUT_FLIGHT_RECORDER,
        threads: true,
        ..PLAIN
    },
    Case {
        sentence: "collectives are right when senders are held back",
        program: "collectives",
        parameters: &[("pml_ibex_unexpected_memory", "1")],
        ranks: &[3],
        ..PLAIN
    },
];

/// Messages for which no receive waits are hardly kept, and every resource runs out all the time.
static HELD_BACK_AND_STARVED: &[(&str, &str)] = &[
    ("pml_ibex_unexpected_memory", "4096"),
    ("btl_ibex_send_queue_depth", "16"),
    ("btl_ibex_receive_queue_depth", "64"),
    ("btl_ibex_completion_queue_depth", "256"),
    ("btl_ibex_send_slots_max", "8"),
];

/// Programs that another file starts.
static ELSEWHERE: &[&str] = &["abnormal_exit", "pcontrol", "rail_down", "rma_outside", "waits"];

/// Of these, those that the quick tier runs.
static QUICK_ELSEWHERE: &[&str] = &["abnormal_exit", "pcontrol", "rail_down", "rma_outside"];

/// Programs that the quick tier leaves out: 12 s and 4 GiB of memory; 5 s, and what it does is found in traces.
const NOT_QUICK: [&str; 2] = [LONG, "waits"];

/// Parameters of the BTL that the PML does not look at.
const OF_THE_BTL: [&str; 3] = ["btl_ibex_flags", "btl_ibex_min_rdma_pipeline_size", "btl_ibex_zero_copy_min"];

/// Programs that are run over the PML. Not those that look at what only a BTL sees.
static OVER_THE_PML: &[&str] = &[
    "init_finalize",
    "pt2pt_modes",
    "pt2pt_matching",
    "pt2pt_datatypes",
    "strided_sends",
    "pending_receives",
    "traffic",
    "pt2pt_requests",
    "pt2pt_flood",
    "outstanding",
    "self_messages",
    "collectives",
    "communicators",
    "many_communicators",
    "sessions",
    "threads",
    "rma_transfer",
    "rma_atomics",
    "linked_list",
    "first_contact",
    "fork_exec",
    "freed_memory",
    "connect_cycles",
    "allocations",
    "message_over_2gib",
];

/// The tests of this file.
pub(crate) fn tests() -> Vec<Test> {
    let mut tests = vec![
        Test::new("every program in the folder is run by a test, and by a quick one unless that is said", |_| {
            let listed = CASES.iter().chain(OF_PML).map(|case| case.program).chain(ELSEWHERE.iter().copied());
            every_program_is_listed("mpi", listed, file!())?;
            let quick = CASES.iter().chain(OF_PML).filter(|case| case.quick).map(|case| case.program);
            every_program_is_listed("mpi", quick.chain(QUICK_ELSEWHERE.iter().copied()).chain(NOT_QUICK), file!())
        })
        .quick(),
    ];
    for (case, ranks) in OF_PML.iter().flat_map(each_number_of_ranks) {
        tests.push(over_the_pml(case, ranks));
    }
    for (case, ranks) in CASES.iter().flat_map(each_number_of_ranks) {
        let (is_of_pml, is_of_btl) = faces(case);
        if is_of_pml {
            tests.push(over_the_pml(case, ranks));
        }
        if is_of_btl || is_the_run(case, ranks) {
            let test = test(case, named(case, ranks), move |site| run(site, case, ranks, None));
            let test = if is_device_independent(case, ranks) { test.device_independent() } else { test };
            let is_quick = !is_of_pml || QUICK_OVER_OB1.contains(&case.program);
            tests.push(if is_quick { in_its_tier(test, case, ranks) } else { test });
        }
    }
    tests
}

/// Whether a case is one of the PML, and whether it tells something of the BTL that another run does not.
fn faces(case: &Case) -> (bool, bool) {
    if !OVER_THE_PML.contains(&case.program) {
        return (false, true);
    }
    let is_of_btl = |name: &str| OF_THE_BTL.contains(&name);
    let mut names = case.parameters.iter().map(|(name, _)| *name);
    let is_of_btl_alone = !case.parameters.is_empty() && names.clone().all(is_of_btl);
    // What list of BTLs there is means another thing to each.
    (!is_of_btl_alone, names.any(|name| is_of_btl(name) || name == "btl"))
}

/// Whether it is the one run that a program has where it has one: that of the quick tier, or of the program too long for it.
fn is_the_run(case: &Case, ranks: usize) -> bool {
    let usual = if case.ranks.contains(&2) { 2 } else { case.ranks[0] };
    (case.quick || case.program == LONG) && ranks == usual
}

fn each_number_of_ranks(case: &'static Case) -> impl Iterator<Item = (&'static Case, usize)> {
    case.ranks.iter().map(move |ranks| (case, *ranks))
}

fn named(case: &Case, ranks: usize) -> String {
    format!("{} on {ranks} ranks", case.sentence)
}

fn test(case: &Case, name: String, run: impl Fn(&mut Site) -> Result<()> + Send + 'static) -> Test {
    if case.faults.is_empty() { Test::new(name, run) } else { Test::on_emulated(name, run) }
}

fn has_usual_settings(case: &Case) -> bool {
    case.parameters.is_empty() && case.faults.is_empty() && !case.threads
}

/// A case over ibex's PML. One plain run of each program is made on each device.
fn over_the_pml(case: &'static Case, ranks: usize) -> Test {
    let name = format!("over the pml, {}", named(case, ranks));
    let test = test(case, name, move |site| run(site, case, ranks, Some("ibex")));
    let is_plain = has_usual_settings(case) && ranks == 2 && case.program != LONG;
    in_its_tier(if is_plain { test } else { test.device_independent() }, case, ranks)
}

/// Programs that the quick tier runs over ob1 as well as over the PML.
const QUICK_OVER_OB1: &[&str] = &["pt2pt_modes", "traffic", "first_contact", "rma_atomics"];

/// Programs that the quick tier runs in a virtual machine, too: messages, one-sided operations, events.
const QUICK_ON_EACH_DEVICE: &[&str] = &["pt2pt_matching", "rma_transfer", "events"];

/// The test in the quick tier, if it is the run of a case there.
fn in_its_tier(test: Test, case: &Case, ranks: usize) -> Test {
    match case.quick && is_the_run(case, ranks) {
        true if QUICK_ON_EACH_DEVICE.contains(&case.program) => test.quick_on_each_device(),
        true => test.quick(),
        false => test,
    }
}

/// Programs of which each device also runs what has parameters: how messages go, and how ranks meet.
const ON_EACH_DEVICE: &[&str] = &["pt2pt_modes", "first_contact"];

/// Minutes on a slow adapter, and the same numbers on any.
const LONG: &str = "message_over_2gib";

/// Whether one device is as good as another for it. Of each program one plain run is made on each, of one or two ranks.
fn is_device_independent(case: &Case, ranks: usize) -> bool {
    let is_plain = has_usual_settings(case);
    let is_larger = ranks > 2;
    match case.program {
        "traffic" => !is_plain || ranks != 2,
        LONG => true,
        _ if is_larger => true,
        // What needs threads has no other run.
        program if ON_EACH_DEVICE.contains(&program) => false,
        _ => !(case.parameters.is_empty() && case.faults.is_empty()),
    }
}

/// Whether an argument holds on these adapters: of `pvars` some ask for counts that only certain adapters have. Atomics
/// of an adapter that has none are made of messages.
fn can_grow(argument: &str, site: &Site) -> bool {
    let begins = |names: [&str; 2]| names.iter().any(|name| argument.starts_with(name));
    (site.has_atomics() || !argument.starts_with("atomic="))
        && (site.has_inline() || !begins(["inline_sent=", "inline_bytes="]))
}

fn run(site: &mut Site, case: &Case, ranks: usize, pml: Option<&str>) -> Result<()> {
    if case.parameters.contains(&("osc", "pt2pt")) && !Series::here()?.has_windows_of_messages() {
        site.skip(case.program, "this Open MPI makes no windows of messages");
        return Ok(());
    }
    let arguments: Vec<&str> = case.arguments.iter().copied().filter(|argument| can_grow(argument, site)).collect();
    let mut launch = Launch::new(case.program, ranks).arguments(&arguments).limit(case.limit);
    // More ranks than processors take turns, and each message waits for a turn.
    let scale = if ranks > 2 { case.scale / 4.0 } else { case.scale };
    launch = launch.scale(scale);
    if case.threads {
        launch = launch.environment("IBEX_REQUIRE_THREADS", "1").environment("IBEX_REQUIRE_RMA_THREADS", "1");
    }
    for (name, value) in case.parameters {
        launch = launch.with(name, value);
    }
    if let Some(pml) = pml {
        launch = launch.with("pml", pml);
    }
    if !case.faults.is_empty() {
        launch = launch.on_adapters(with_faults(case.faults));
    }
    launch.passes(site)
}
