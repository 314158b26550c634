// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tools on a device: the programs of hw-tests/tools, which are linked with ibex, and the logger around a program.
//! Tools check themselves and count cases as the programs of hw-tests/mpi do; this file judges the log, and the output
//! of the tool of docs/writing-a-tool.md. Setup grade; any thread.

use crate::launch::{Launch, Parameters, with_faults};
use crate::listed::every_program_is_listed;
use crate::site::Site;
use crate::spawn::spawned;
use crate::test::Test;
use anyhow::{Context, Result, bail, ensure};
use hw_tests::Job;
use hw_tests::openmpi::Series;
use std::collections::BTreeMap;
use std::path::Path;

/// A sentence, the program, its arguments, and the number of ranks.
type Checked = (&'static str, &'static str, &'static [&'static str], usize);

const OVER_OB1: [Checked; 5] = [
    ("MPI_T reports the messages that the transport carries below another PML", "mpi_t_below", &[], 2),
    ("each source delivers its events in the order in which they happened", "mpi_t_order", &[], 2),
    ("MPI_T reports by the adapter's clock when puts, gets and atomics ended", "mpi_t_operations", &[], 2),
    ("PERUSE lists the events that it supports", "peruse_examples", &["queries"], 2),
    ("PERUSE reports puts, gets and atomics", "peruse_operations", &[], 2),
];

const OVER_THE_PML: [Checked; 18] = [
    ("callbacks of MPI_T get the events of their level and communicator while that lasts", "mpi_t_callbacks", &[], 2),
    ("MPI_T registrations come and go while threads communicate", "mpi_t_threads", &[], 2),
    ("PERUSE calls its callbacks as things happen, also beside a tool by MPI_T", "peruse_order", &[], 2),
    ("PERUSE reports puts, gets and atomics", "peruse_operations", &[], 2),
    ("each source delivers its events in the order in which they happened", "mpi_t_order", &[], 2),
    ("callbacks of PERUSE find the announced bytes in the buffer", "peruse_in_place", &[], 2),
    ("PERUSE supports every event", "peruse_examples", &["queries", "all"], 2),
    ("PERUSE reports the events of requests, messages and searches in order", "peruse_requests", &[], 2),
    ("MPI_T reports the events of requests, messages and searches in order to two tools", "mpi_t_matching", &[], 2),
    ("performance variables of a communicator have the lengths of its queues", "mpi_t_queues", &[], 2),
    ("MPI_T reports by the adapter's clock when puts, gets and atomics ended", "mpi_t_operations", &[], 2),
    ("PERUSE measures how long messages are unexpected", "peruse_examples", &["between"], 2),
    ("PERUSE measures searches of the queues", "peruse_examples", &["searches"], 2),
    ("PERUSE counts the queued receives and messages of each peer", "peruse_examples", &["receives"], 2),
    ("a profiler by PERUSE follows requests on every communicator", "peruse_profiler", &[], 2),
    ("PERUSE knows peers on every kind of communicator and follows copies", "peruse_communicators", &[], 4),
    ("PERUSE works with threads", "peruse_threads", &[], 2),
    ("MPI_T reports communicators that come and go, and their members", "mpi_t_communicators", &["spawn"], 4),
];

/// Programs that the quick tier runs in a virtual machine, too.
const QUICK_ON_EACH_DEVICE: &[&str] = &["mpi_t_matching", "peruse_requests"];

/// A sentence, the argument of the program, and the parameters for which it holds.
const PROTOCOLS: [(&str, &str, Parameters); 5] = [
    ("by the adapter, and to the sender itself", "adapter", &[]),
    ("by shared memory", "shared", &[("btl", "self,sm,ibex")]),
    (
        "by shared memory that the kernel lets nobody read",
        "shared",
        &[("btl", "self,sm,ibex"), ("btl_sm_single_copy_mechanism", "none")],
    ),
    ("of senders that are held back", "held-back", &[("pml_ibex_unexpected_memory", "1024")]),
    ("by an adapter that takes nothing inside a work request", "adapter", &[("btl_ibex_max_inline", "0")]),
];

/// An adapter that registers no message of a job.
const FEW_REGISTRATIONS: &str =
    "[[device]]\n[[fault]]\naction = \"registration-error\"\nerrno = \"ENOMEM\"\nnth = 30\ncount = 0\n";

pub(crate) fn tests() -> Vec<Test> {
    let mut tests = vec![
        Test::new("every tool in the folder is run by a test", |_| {
            let over_the_pml = OVER_THE_PML.iter().map(|(_, program, _, _)| *program);
            let listed = OVER_OB1.iter().map(|(_, program, _, _)| *program).chain(over_the_pml);
            let elsewhere = ["writing_a_tool", "mpi_t_protocols", "mpi_t_transfers", "mpi_t_parameters"];
            every_program_is_listed("tools", listed.chain(elsewhere), file!())
        })
        .quick(),
        Test::new("the example tool of the documentation counts messages and bytes", counts).quick(),
        Test::new("the programs of the README's claims show what it says", shows_each_claim).quick(),
        Test::new("the logger records the events of a job", logs).quick(),
        Test::new("the logger follows ranks of many threads", follows_threads),
        Test::new("over the pml, the logger measures how long messages were in the queues", tells_of_the_queues),
        Test::new("tools see the same beside the logger", beside_the_logger),
        Test::new("the logger lists the types and sources of events", lists),
        Test::new("a callback of PERUSE that fails ends the job", failing_callbacks).quick(),
    ];
    tests.extend(OVER_OB1.map(|tool| {
        let is_also_over_the_pml = OVER_THE_PML.iter().any(|(_, other, _, _)| *other == tool.1);
        if is_also_over_the_pml { checked(tool) } else { checked(tool).quick() }
    }));
    tests.extend(OVER_THE_PML.map(|tool| {
        let test = checked(tool).over_the_pml();
        if QUICK_ON_EACH_DEVICE.contains(&tool.1) { test.quick_on_each_device() } else { test.quick() }
    }));
    tests.extend(finds_in_place());
    let transfers = "over the pml, MPI_T reports transfers with all their bytes, by the adapter's clock if possible";
    tests.push(
        Test::new(transfers, |site| {
            let stamped: &[&str] = if site.device().has_stamps() { &["stamped"] } else { &[] };
            let launch = Launch::new("mpi_t_transfers", 2).arguments(stamped).with("pml", "ibex");
            launch.with("pml_ibex_read_size", "1048576").passes(site)
        })
        .quick(),
    );
    let writes = "over the pml, a tool writes the eager limit before MPI_Init, and it and the verbosity while MPI runs";
    tests.push(
        Test::new(writes, |site| {
            let launch = Launch::new("mpi_t_parameters", 2).with("pml", "ibex");
            let outcome = launch.run(site)?;
            ensure!(outcome.stderr.contains("; round trip at most "), "no connection is reported: {outcome}");
            launch.judge(site, outcome)
        })
        .quick(),
    );
    tests.extend(told_protocols());
    // One unexpected message exceeds this bound already, so short messages are announced, and some pend.
    tests.push(Test::new("over the pml, a profiler by PERUSE follows requests of held-back senders", |site| {
        Launch::new("peruse_profiler", 2).with("pml", "ibex").with("pml_ibex_unexpected_memory", "1").passes(site)
    }));
    tests.into_iter().map(Test::device_independent).collect()
}

fn checked((sentence, program, arguments, ranks): Checked) -> Test {
    Test::new(sentence, move |site| {
        let launch = Launch::new(program, ranks).arguments(arguments);
        match can_run(program, sentence, site)? {
            true if arguments.contains(&"spawn") => spawned(site, &launch.limit(60)),
            true => launch.passes(site),
            false => Ok(()),
        }
    })
}

/// Whether Open MPI asks ibex for all that a program needs; if not, notes the skip.
fn can_run(program: &str, sentence: &str, site: &mut Site) -> Result<bool> {
    let needs_atomics = ["mpi_t_operations", "peruse_operations"].contains(&program);
    let can = !needs_atomics || site.device().has_atomics() || Series::here()? == Series::V4_1;
    if !can {
        site.skip(sentence, "over an adapter without atomics this Open MPI does them itself, by messages");
    }
    Ok(can)
}

fn told_protocols() -> impl Iterator<Item = Test> {
    let launch = |site: &Site, what: &str, parameters: Parameters| {
        let is_inline =
            site.device().has_inline() && !parameters.iter().any(|(name, _)| *name == "btl_ibex_max_inline");
        let arguments = if is_inline { vec![what] } else { vec![what, "no-inline"] };
        Launch::new("mpi_t_protocols", 2).arguments(&arguments).with("pml", "ibex").with_all(parameters)
    };
    let plain = PROTOCOLS.into_iter().map(move |(sentence, what, parameters)| {
        let name = format!("over the pml, MPI_T reports how messages go {sentence}");
        let test = Test::new(name, move |site| launch(site, what, parameters).passes(site));
        test.quick_if(parameters.is_empty())
    });
    let rails = Test::on_emulated("over the pml, MPI_T reports how messages go by two ports", move |site| {
        launch(site, "rails", &[]).on_adapters(with_faults("")).passes(site)
    });
    let unregistered = "over the pml, MPI_T reports the protocol of messages whose memory cannot be registered";
    let unregistered = Test::on_emulated(unregistered, move |site| {
        launch(site, "unregistered", &[]).on_adapters(FEW_REGISTRATIONS).passes(site)
    });
    plain.chain([rails, unregistered])
}

/// The ways by which a message can come, beside those of [`OVER_THE_PML`].
fn finds_in_place() -> impl Iterator<Item = Test> {
    let named = |how: &str| format!("callbacks of PERUSE find the reported bytes in the buffer, {how}");
    let launch = |arguments: &[&str]| Launch::new("peruse_in_place", 2).arguments(arguments).with("pml", "ibex");
    let told = PROTOCOLS.into_iter().skip(1).map(move |(how, _, parameters)| {
        Test::new(named(how), move |site| launch(&[]).with_all(parameters).passes(site))
    });
    let parts = Test::new(named("read in parts"), move |site| {
        launch(&["ports", "1"]).with("pml_ibex_read_size", "65536").passes(site)
    });
    let rails = Test::on_emulated(named("read by two ports"), move |site| {
        launch(&["ports", "2"]).on_adapters(with_faults("")).passes(site)
    });
    let copied = Test::on_emulated(named("copied because its memory cannot be registered"), move |site| {
        launch(&["copied"]).on_adapters(FEW_REGISTRATIONS).passes(site)
    });
    told.chain([parts, rails, copied])
}

/// 90 messages of 8 bytes and 10 of 1 MiB each way, in fragments that add up.
fn counts(site: &mut Site) -> Result<()> {
    let outcome = Launch::new("writing_a_tool", 2).with("pml", "ibex").succeeds(site)?;
    for (rank, peer) in [(0, 1), (1, 0)] {
        let bytes = 90 * 8 + 10 * (1 << 20);
        let wanted = format!(
            "rank {rank}, peer {peer}: 100 messages of {bytes} bytes sent, 100 messages of {bytes} bytes received"
        );
        ensure!(outcome.stdout.lines().any(|line| line == wanted), "{wanted:?} is not there: {outcome}");
    }
    Ok(())
}

/// `put_get`: a transfer, a put and a get from begin to end, with all their bytes; `ordered`: no source steps back.
fn shows_each_claim(site: &mut Site) -> Result<()> {
    let launch = Launch::new("put_get", 2).with("pml", "ibex");
    let logs = logged_by(site, launch, 2, Some("xfer_begin,xfer_continue,xfer_end,operations"))?;
    let bytes = |rank: usize, name: &str, tag: Option<i64>| -> i64 {
        let lines = logs[rank].lines().filter(|line| line.split(' ').nth(2) == Some(name)).map(elements);
        lines.filter(|of| of.get("tag").copied() == tag).filter_map(|of| of.get("bytes").copied()).sum()
    };
    let [parts, last] = ["ibex_xfer_continue", "ibex_xfer_end"].map(|name| bytes(1, name, Some(7)));
    ensure!(parts > 0 && last > 0 && parts + last == 10 << 20, "{parts} and {last} bytes: {}", logs[1]);
    for name in ["ibex_put_started", "ibex_put_complete", "ibex_get_started", "ibex_get_complete"] {
        ensure!(bytes(0, name, None) >= 10 << 20, "{name} lacks bytes: {}", logs[0]);
    }
    let outcome = Launch::new("ordered", 2).with("pml", "ibex").succeeds(site)?;
    let sources: Vec<&str> = outcome.stdout.lines().filter(|line| line.starts_with("rank ")).collect();
    let are_in_order = sources.iter().all(|line| line.ends_with(" events, 0 steps back"));
    ensure!(sources.len() >= 2 && are_in_order, "{outcome}");
    Ok(())
}

/// Every return value but success gives an exit status of failure, even one whose low 8 bits are 0.
fn failing_callbacks(site: &mut Site) -> Result<()> {
    let ending = |answer: &str| Launch::new("peruse_examples", 2).arguments(&["ending", answer]).with("pml", "ibex");
    ending("0").passes(site)?;
    for answer in ["16", "-7", "256", "65536"] {
        let said = format!("PERUSE_COMM_REQ_XFER_END returned {answer} instead of MPI_SUCCESS");
        let outcome = ending(answer).is_refused_with(site, &[&said])?;
        ensure!(!outcome.stdout.contains("went on"), "it went on: {outcome}");
    }
    Ok(())
}

/// Runs a program under the logger; returns the log of each rank.
fn logged(site: &mut Site, program: &'static str, ranks: usize, events: Option<&str>) -> Result<Vec<String>> {
    logged_by(site, Launch::new(program, ranks).with("pml", "ibex"), ranks, events)
}

fn logged_by(site: &mut Site, launch: Launch, ranks: usize, events: Option<&str>) -> Result<Vec<String>> {
    let library = site.components().parent().context("components lie beside the library")?.join("libibex-log.so");
    ensure!(library.is_file(), "{} is not there; `cargo xtask test` builds it", library.display());
    let folder = Path::new("/tmp").join(format!("ibex-log-{}", std::process::id()));
    let file = folder.join("log");
    site.fabric(1)?.run(&Job::new(["mkdir", "-p", &folder.display().to_string()]))?.checked()?;
    let mut launch = launch
        .environment("LD_PRELOAD", &library.display().to_string())
        .environment("IBEX_LOG_FILE", &file.display().to_string());
    if let Some(events) = events {
        launch = launch.environment("IBEX_LOG_EVENTS", events);
    }
    let ran = launch.succeeds(site);
    let read = |site: &mut Site, rank: usize| -> Result<String> {
        Ok(site.fabric(1)?.run(&Job::new(["cat", &format!("{}.{rank}", file.display())]))?.checked()?.stdout)
    };
    let logs = ran.and_then(|_| (0..ranks).map(|rank| read(site, rank)).collect());
    site.fabric(1)?.run(&Job::new(["rm", "-rf", &folder.display().to_string()]))?.checked()?;
    logs
}

fn elements(line: &str) -> BTreeMap<&str, i64> {
    line.split(' ')
        .filter_map(|word| word.split_once('='))
        .filter_map(|(name, value)| Some((name, value.parse().ok()?)))
        .collect()
}

fn logs(site: &mut Site) -> Result<()> {
    // The tool of the page has registrations and an MPI_T_finalize of its own, like an application.
    let events = "xfer_begin,xfer_continue:ibex_xfer_end connection_begin;connection_established";
    for log in &logged(site, "writing_a_tool", 2, Some(events))? {
        let (mut last, mut ends) = (BTreeMap::new(), [0, 0]);
        for line in log.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split(' ');
            let (time, source) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let time: f64 = time.parse().with_context(|| format!("no time: {line}"))?;
            let before = last.insert(source.to_owned(), time).unwrap_or(time);
            ensure!(before <= time, "{source} goes back: {line}");
            let elements = elements(line);
            if words.next() == Some("ibex_xfer_end") && elements.get("tag") == Some(&42) {
                ends[usize::from(elements.get("direction") == Some(&1))] += 1;
            }
        }
        ensure!(ends == [100, 100], "{ends:?} messages of 100 each way: {log}");
        for pair in [
            "xfer_begin - xfer_end direction=0",
            "xfer_begin - xfer_end direction=1",
            "connection_begin - connection_established",
        ] {
            let line =
                log.lines().find(|line| line.contains(pair)).with_context(|| format!("no statistics of {pair}"))?;
            let numbers: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            let [count, min, mean, max, total, open, unbegun] = numbers[..] else { bail!("{line}") };
            ensure!(count >= 1.0 && min <= mean && mean <= max && open + unbegun == 0.0, "{line}");
            ensure!((total - count * mean).abs() <= 0.001 * count + 0.001, "{line}");
        }
    }
    Ok(())
}

/// Four ranks whose threads all call MPI: each beginning has an end, and the table of a log counts its lines. Events
/// that come too late for the order of their source, because their thread lost its processor, are counted as lost.
fn follows_threads(site: &mut Site) -> Result<()> {
    for log in logged(site, "threads", 4, Some("all"))? {
        let mut lines: BTreeMap<&str, u64> = BTreeMap::new();
        for line in log.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(' ').nth(2).and_then(|name| name.strip_prefix("ibex_"));
            *lines.entry(name.with_context(|| format!("no name: {line}"))?).or_default() += 1;
        }
        ensure!(lines.contains_key("xfer_begin"), "no message is in {log}");
        let mut lost = 0;
        for (name, count) in &lines {
            let counted = format!("# {name:<40} {count:>10} ");
            let row = log.lines().find_map(|line| line.strip_prefix(counted.as_str())?.trim().parse::<u64>().ok());
            lost += row.with_context(|| format!("{counted:?} is not there: {log}"))?;
        }
        ensure!(lost < lines.values().sum::<u64>(), "{lost} are lost, which is most of them: {log}");
        for (begin, end) in
            [("xfer_begin", "xfer_end"), ("get_started", "get_complete"), ("queued_begin", "queued_end")]
        {
            let [begun, ended] = [begin, end].map(|name| lines.get(name).copied().unwrap_or(0));
            ensure!(begun.abs_diff(ended) <= lost, "{begun} times {begin}, {ended} times {end}, {lost} lost: {log}");
        }
    }
    Ok(())
}

/// Checks times in the queues and lengths of the queues, over ibex's PML. The program posts 50 receives at once.
fn tells_of_the_queues(site: &mut Site) -> Result<()> {
    let launch = Launch::new("mpi_t_matching", 2).with("pml", "ibex");
    let logs = logged_by(site, launch, 2, Some("all"))?;
    let log = logs.get(1).context("the rank that receives")?;
    for (row, least, left) in [
        ("receives in the posted queue", 50.0, 0),
        ("messages in the unexpected queue", 4.0, 0),
        // The program frees a request before it is complete.
        ("done, not asked for", 50.0, 1),
        ("comm_search_unex_q_begin - comm_search_unex_q_end", 50.0, 0),
    ] {
        let line = log.lines().find(|line| line.contains(row)).with_context(|| format!("no row {row:?}"))?;
        let (_, numbers) = line.split_once(row).context("its numbers")?;
        let numbers: Vec<f64> = numbers.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [count, min, mean, max, _, open, unbegun] = numbers[..] else { bail!("{line}") };
        let are_paired = open as u32 == left && unbegun == 0.0;
        ensure!(count >= least && min >= 0.0 && min <= mean && mean <= max && are_paired, "{line}");
    }
    let longest = |queue: &str| log.lines().find_map(|line| line.strip_prefix(queue)?.trim().parse::<u64>().ok());
    let posted = longest("# most receives that waited:").context("no longest queue of receives")?;
    let unexpected = longest("# most messages unexpected:").context("no longest queue of messages")?;
    ensure!(posted >= 50 && unexpected >= 1, "{posted} and {unexpected}");
    Ok(())
}

/// The preloaded logger and the program's own registrations each see all events, whatever the other's callbacks do.
fn beside_the_logger(site: &mut Site) -> Result<()> {
    for log in &logged(site, "events_tools", 2, Some("xfer_end"))? {
        let ends = log.lines().filter(|line| !line.starts_with('#') && elements(line).get("tag") == Some(&100)).count();
        ensure!(ends == 1200, "{ends} ends of 600 messages each way: {log}");
    }
    Ok(())
}

fn lists(site: &mut Site) -> Result<()> {
    for log in logged(site, "writing_a_tool", 2, None)? {
        for part in ["# ibex_xfer_begin", "unsigned long  request", "# ibex_port_async", "# host:0: ordered"] {
            ensure!(log.contains(part), "{part} is missing: {log}");
        }
        ensure!(log.lines().all(|line| line.starts_with('#')), "nothing was to be written down: {log}");
    }
    Ok(())
}
