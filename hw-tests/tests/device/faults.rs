// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scripted faults of emulated adapters: behaviour that verbs allow changes no data, and ibex reports an error that it
//! cannot repair, in time.
//!
//! Each case has a fabric of its own, as the rules count from its beginning, and fails if a fault did not take place
//! (`site`). Setup grade; one at a time.

use crate::launch::{Launch, Parameters, ended_by_itself, over_the_pml, says, says_one_of, was_refused, with_faults};
use crate::programs::WRITTEN;
use crate::rails;
use crate::site::Site;
use crate::test::Test;
use anyhow::{Result, ensure};

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for harmless in HARMLESS {
        for program in ["pt2pt_modes", "rma_transfer"] {
            let name = format!("{} and {program} finds all data right", harmless.sentence);
            tests.push(Test::on_emulated(name, move |site| changes_nothing(site, harmless, program)));
        }
    }
    for (sentence, via, recycles) in DEAF {
        let name = format!("{sentence} and ranks connect by {via}");
        tests.push(Test::on_emulated(name, move |site| datagrams_fail(site, via, *recycles)));
    }
    tests.extend([
        Test::on_emulated("a network that falls silent ends the job with a message that names the peer", falls_silent),
        Test::on_emulated("an adapter that reports a fatal error is named and ends the job", fatal_event),
        Test::on_emulated("a completion queue that overruns is named and ends the job", overrun),
        Test::on_emulated("an adapter that is out of room for good is named and ends the job", out_of_room_for_good),
        Test::on_emulated("memory that cannot be registered any more is copied instead", registration_fails),
        Test::on_emulated("a port whose memory cannot be registered is named and the job goes on", port_without_memory),
        Test::on_emulated(
            "a port that is refused to one rank alone is named, whichever rank that is",
            port_of_one_rank,
        ),
    ]);
    tests.extend(tests_of_the_pml());
    tests
}

type Run = fn(&mut Site) -> Result<()>;

/// Tests over ibex's PML. Ranks 0 and 1 have softhca1 as home, and read by both rails.
fn tests_of_the_pml() -> Vec<Test> {
    let mut tests = Vec::new();
    for harmless in HARMLESS {
        for program in ["pt2pt_modes", "traffic", "pt2pt_flood", "threads"] {
            let name = format!("{} and {program} finds all data right", harmless.sentence);
            tests.push(over_two_rails(&name, move |site| changes_nothing(site, harmless, program)));
        }
    }
    for (status, says) in [("LOC_QP_OP_ERR", "failed with status"), ("RETRY_EXC_ERR", "no longer answers")] {
        let name = format!("a message that completes with {status} ends the job with that name");
        tests.push(over_two_rails(&name, move |site| status_is_named(site, status, says)).quick());
    }
    for phase in PHASES {
        let name = format!("a failure {} loses nothing silently", phase.sentence);
        tests.push(over_two_rails(&name, move |site| fails_in(site, phase)));
    }
    // The quick tier has a failure at a point of the traffic, one by command, and one from which ibex recovers.
    let others: [(&str, Run, bool); 5] = [
        ("a network that falls silent ends the job with a message that names the peer", falls_silent, false),
        ("an adapter that reports a fatal error is named", fatal_event_over_the_pml, true),
        ("a completion queue that overruns is named and ends the job", overrun, true),
        ("an adapter that refuses a request for good is named with its error", refused_for_good, false),
        ("memory that cannot be registered any more is copied instead", registration_fails, true),
    ];
    tests.extend(others.map(|(name, run, is_quick)| over_two_rails(name, run).quick_if(is_quick)));
    tests
}

fn over_two_rails(name: &str, run: impl Fn(&mut Site) -> Result<()> + Send + 'static) -> Test {
    Test::on_emulated(format!("over the pml on two rails, {name}"), move |site| over_the_pml(|| run(site)))
        .device_independent()
}

struct Phase {
    sentence: &'static str,
    /// Sizes of messages that pass through it, for `rail_down`.
    sizes: &'static str,
    /// Adapters of the phase: that of the home, and the second one if both read.
    devices: &'static [&'static str],
    /// Numbers of the adapter's request that fails.
    nths: &'static [u32],
}

static PHASES: &[Phase] = &[
    Phase { sentence: "in eager messages", sizes: "8-6144", devices: &["softhca1"], nths: &[1, 50, 501] },
    Phase {
        sentence: "in messages that one port reads",
        sizes: "16384-32768",
        devices: &["softhca1"],
        nths: &[1, 40, 41, 42, 43],
    },
    Phase {
        sentence: "in messages that both ports read",
        sizes: "131072-1048576",
        devices: &["softhca0", "softhca1"],
        nths: &[1, 30, 31, 32, 33, 34, 35],
    },
];

/// One request of an adapter fails: the job ends with the reason, or goes on by the other adapter with all data right.
fn fails_in(site: &mut Site, phase: &Phase) -> Result<()> {
    for (nth, device) in phase.nths.iter().flat_map(|nth| phase.devices.iter().map(move |device| (nth, device))) {
        let rules =
            format!("[[fault]]\naction = \"status\"\nstatus = \"REM_OP_ERR\"\ndevice = \"{device}\"\nnth = {nth}\n");
        let outcome = rails::traffic(phase.sizes).on_adapters(with_faults(&rules)).until_faults(site)?;
        ended_by_itself(&outcome)?;
        if outcome.success() {
            // The request was a datagram of the handshake. ibex sends it again, or does without the port.
            println!("{}: the job goes on though request {nth} of {device} failed", phase.sizes);
        } else {
            says(&outcome, &["ibex lost a peer", "rank", &format!("{device}:1"), "REM_OP_ERR"])?;
        }
    }
    Ok(())
}

fn fatal_event_over_the_pml(site: &mut Site) -> Result<()> {
    let outcome = rails::traffic("8-1048576").pulled(site, |pull| {
        pull.ctl("event softhca1 DEVICE_FATAL")?;
        // ibex reads such events only now and then, so on a busy machine the messages that follow may end before.
        pull.told("IBV_EVENT_DEVICE_FATAL")?;
        pull.go_on()
    })?;
    ended_by_itself(&outcome)?;
    // If no request was under way, the job goes on.
    says_one_of(&outcome, &["ibex lost a peer", "ibex does without a port"])?;
    says(&outcome, &["softhca1:1", "lost with its port", "IBV_EVENT_DEVICE_FATAL"])
}

/// A fault that ibex or the adapter recovers from.
struct Harmless {
    sentence: &'static str,
    /// `[[fault]]` tables.
    rules: &'static str,
    parameters: Parameters,
}

static HARMLESS: &[Harmless] = &[
    Harmless {
        sentence: "two of a hundred packets are lost",
        rules: "[[fault]]\naction = \"drop\"\nfraction = 0.02\nseed = 7\n",
        // A quarter of a millisecond, which each loss costs.
        parameters: &[("btl_ibex_ack_timeout", "6")],
    },
    Harmless {
        sentence: "packets arrive late and twice",
        rules: "[[fault]]\naction = \"delay\"\ndelay_ns = 50000\nfraction = 0.05\nseed = 3\n\
                [[fault]]\naction = \"duplicate\"\nfraction = 0.05\nseed = 4\n",
        parameters: &[],
    },
    Harmless {
        sentence: "a storm of receivers that are not ready passes",
        rules: "[[fault]]\naction = \"rnr\"\nfraction = 0.2\nseed = 5\n\
                [[fault]]\naction = \"rnr\"\nnth = 300\ncount = 500\n",
        parameters: &[],
    },
    Harmless {
        sentence: "one of five posts is refused for want of memory",
        rules: "[[fault]]\naction = \"post-send-error\"\nerrno = \"ENOMEM\"\nfraction = 0.2\nseed = 9\n",
        parameters: &[],
    },
];

fn changes_nothing(site: &mut Site, harmless: &Harmless, program: &'static str) -> Result<()> {
    let configuration = with_faults(harmless.rules);
    Launch::new(program, 2).scale(0.1).on_adapters(configuration).with_all(harmless.parameters).passes(site)
}

/// A sentence, the carriers of handshakes, and whether the datagram queue pair can be reset after an error.
static DEAF: &[(&str, &str, bool)] = &[
    ("datagrams that fail stop their queue pair", "ud", true),
    ("datagrams that fail stop their queue pair", "auto", true),
    ("datagrams that fail stop their queue pair for good", "ud", false),
    ("datagrams that fail stop their queue pair for good", "auto", false),
];

/// All datagrams are hellos; an error at the first stops the queue pairs that send them. A queue pair that cannot be
/// reset is replaced, and peers learn the new number from the hellos that follow. Only one port has the fault, as two
/// such ports could not find each other by datagrams. With TCP there may be no second datagram.
fn datagrams_fail(site: &mut Site, via: &str, recycles: bool) -> Result<()> {
    let count = if via == "ud" && recycles { 4 } else { 1 };
    let configuration = format!(
        "[[device]]\nname = \"softhca0\"\n[device.behaviour]\nqp_recycle_via_reset = {recycles}\n\
         [[fault]]\naction = \"status\"\nstatus = \"LOC_QP_OP_ERR\"\nqp_type = \"ud\"\nnth = 1\n\
         count = {count}\n"
    );
    let launch = Launch::new("first_contact", 3).scale(0.25).limit(60);
    let launch = launch.with("btl_ibex_connect_via", via).with("btl_ibex_connect_timeout", "10");
    launch.on_adapters(configuration).passes(site)?;
    let failed = site.counted("softhca0", "req_cqe_error")?;
    ensure!(failed >= count, "{failed} requests have failed instead of {count}: the fault did not take place");
    Ok(())
}

fn status_is_named(site: &mut Site, status: &str, words: &str) -> Result<()> {
    let rules = format!("[[fault]]\naction = \"status\"\nstatus = \"{status}\"\ndevice = \"softhca1\"\nnth = 2000\n");
    let words = ["ibex lost a peer", "rank", "softhca1:1", "queue pair", "failed with status", status, words];
    traffic().on_adapters(with_faults(&rules)).is_refused_with(site, &words).map(drop)
}

/// Traffic over both rails that lasts longer than any of these faults, even on a busy machine: the fault ends it.
fn traffic() -> Launch {
    let arguments = ["--tests", "latency,bandwidth", "--sizes", "8,4K,64K,1M", "--seconds-per-row", "20"];
    Launch::new("ibex_mpi_bench", 2).arguments(&arguments).limit(300)
}

fn falls_silent(site: &mut Site) -> Result<()> {
    let rules = "[[fault]]\naction = \"drop\"\nnth = 3000\ncount = 0\n";
    let launch = traffic().with("btl_ibex_ack_timeout", "12").on_adapters(with_faults(rules));
    let words = [
        "ibex lost a peer",
        "rank",
        "queue pair",
        "failed with status",
        "RETRY_EXC_ERR (12)",
        "no longer answers",
        "8 times 16.777ms",
    ];
    launch.is_refused_with(site, &words).map(drop)
}

fn fatal_event(site: &mut Site) -> Result<()> {
    let outcome = rails::traffic("8-1048576").pulled(site, |pull| pull.ctl("event softhca1 DEVICE_FATAL"))?;
    was_refused(&outcome)?;
    says(&outcome, &["ibex lost a peer", "softhca1:1", "lost with its port", "IBV_EVENT_DEVICE_FATAL"])
}

fn overrun(site: &mut Site) -> Result<()> {
    let rules = "[[fault]]\naction = \"cq-overrun\"\ndevice = \"softhca1\"\nnth = 2000\n";
    let outcome = traffic().on_adapters(with_faults(rules)).is_refused_with(site, &[])?;
    says(&outcome, &["ibex lost a peer", "softhca1:1"])?;
    says_one_of(&outcome, &["IBV_EVENT_CQ_ERR", "polling the completion queue", "failed with status"])
}

fn refused_for_good(site: &mut Site) -> Result<()> {
    let rules =
        "[[fault]]\naction = \"post-send-error\"\nerrno = \"EIO\"\ndevice = \"softhca1\"\nnth = 2000\ncount = 0\n";
    let words = ["ibex lost a peer", "softhca1:1", "the adapter refused a request", "Input/output error"];
    traffic().on_adapters(with_faults(rules)).is_refused_with(site, &words).map(drop)
}

/// Requests of each kind alone must notice it.
fn out_of_room_for_good(site: &mut Site) -> Result<()> {
    let messages = |size| {
        let arguments = ["--tests", "latency,bandwidth", "--sizes", size, "--seconds-per-row", "60"];
        Launch::new("ibex_mpi_bench", 2).arguments(&arguments)
    };
    let kinds = [messages("8"), messages("256K").with_all(WRITTEN), Launch::new("rma_atomics", 2)];
    for (launch, nth) in kinds.into_iter().zip([2000, 150, 20]) {
        let rules = format!(
            "[[fault]]\naction = \"post-send-error\"\nerrno = \"ENOMEM\"\ndevice = \"softhca1\"\nnth = {nth}\ncount = 0\n"
        );
        let words = ["ibex lost a peer", "softhca1:1", "send queue is full", "Cannot allocate memory", "no request"];
        launch.limit(300).on_adapters(with_faults(&rules)).is_refused_with(site, &words)?;
    }
    Ok(())
}

/// As if the job reached its limit of locked memory.
fn registration_fails(site: &mut Site) -> Result<()> {
    let rules = "[[fault]]\naction = \"registration-error\"\nerrno = \"ENOMEM\"\nnth = 30\ncount = 0\n";
    for program in ["pt2pt_modes", "pt2pt_datatypes", "pt2pt_flood", "collectives"] {
        Launch::new(program, 2).scale(0.2).on_adapters(with_faults(rules)).passes(site)?;
    }
    Ok(())
}

fn port_without_memory(site: &mut Site) -> Result<()> {
    let rules = "[[fault]]\naction = \"registration-error\"\nerrno = \"ENOMEM\"\ndevice = \"softhca1\"\n";
    let launch = Launch::of_a_short_exchange().on_adapters(with_faults(rules));
    says(&launch.succeeds(site)?, &["ibex cannot use a port", "softhca1:1", "goes on without this port"])
}

/// Either rank may be the first to register memory.
fn port_of_one_rank(site: &mut Site) -> Result<()> {
    let rules = "[[device]]\nname = \"softhca0\"\n\
                 [[fault]]\naction = \"registration-error\"\nerrno = \"EINVAL\"\n";
    for _ in 0..6 {
        let launch = Launch::of_a_short_exchange().limit(60).on_adapters(rules);
        launch.is_refused_with(site, &["ibex cannot use a port", "softhca0:1", "Invalid argument"])?;
    }
    Ok(())
}
