// SPDX-License-Identifier: MIT OR Apache-2.0
//! The recorder on emulated adapters, and between two nodes: `ibex trace` around jobs, and the content of the traces,
//! as the crate that reads them sees it. Traces of nodes are copied to this host. Setup grade; one test at a time.

use crate::launch::Launch;
use crate::site::{Site, command};
use crate::spawn::{spawned as spawned_by, spawning};
use crate::test::Test;
use anyhow::{Context, Result, bail, ensure};
use hw_tests::openmpi::Series;
use hw_tests::{Folder, Job, Outcome};
use ibex_messages::Job as Messages;
use ibex_trace::{Clock, Counts, Error, Folder as Trace, Reader};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn tests() -> Vec<Test> {
    let tests = [
        Test::on_emulated("over the pml, a job is recorded as the logger writes it down", as_logged),
        Test::on_emulated("over the pml, no recorded message arrives before it was sent", in_order).quick(),
        Test::on_emulated("over the pml, ranks with clocks of their own are on one time line", on_several_clocks),
        // The test above compares clocks in the same way, in a tenth of the time.
        Test::on_two_nodes("over the pml, messages between two nodes are on one time line", between_nodes)
            .device_independent(),
        Test::on_emulated("over the pml, MPI_Pcontrol selects the recorded parts of a job", controlled).quick(),
        Test::on_emulated("over the pml, a rank that is killed leaves a trace, and the others too", killed),
        Test::on_emulated("over the pml, worlds that are spawned have traces of their own", spawned),
        Test::on_emulated("ibex trace refuses a folder that has a trace", refused).quick(),
        Test::on_emulated("a crash of Open MPI's shared-memory BTL is recognised in the job's output", known_crash),
        Test::on_emulated("a job that preloads libraries of its own is recorded, and keeps them", beside_others),
    ];
    tests.into_iter().map(Test::device_independent).collect()
}

pub(crate) fn a_place() -> Result<Folder> {
    Folder::new("ibex-recorder")
}

pub(crate) fn trace(place: &Folder) -> PathBuf {
    place.file("trace")
}

pub(crate) fn recorded(launch: Launch, place: &Folder, options: &str) -> Result<Launch> {
    recorded_after("", launch, place, options)
}

/// As [`recorded`], after some shell commands.
fn recorded_after(prepare: &str, launch: Launch, place: &Folder, options: &str) -> Result<Launch> {
    let command = command()?;
    let trace = trace(place).display().to_string();
    Ok(launch.inside(format!("{prepare}exec {command} trace {options} -o {trace} -- \"$@\"")))
}

/// Opens a trace and checks that no file has a fault.
pub(crate) fn sound(trace: &Path) -> Result<Trace> {
    let folder = Trace::open(trace)?;
    let faults = folder.readers().iter().flat_map(Reader::faults).chain(folder.unreadable());
    let faults: Vec<String> = faults.map(ToString::to_string).collect();
    ensure!(faults.is_empty() && folder.readers().iter().all(Reader::is_finished), "{faults:?}");
    Ok(folder)
}

/// Trace and log have the same number of events of each type, lost ones included.
fn as_logged(site: &mut Site) -> Result<()> {
    let place = a_place()?;
    let log = place.file("log").display().to_string();
    let launch = Launch::new("traffic", 4).with("pml", "ibex").scale(0.25).limit(300);
    let launch = launch.environment("IBEX_LOG_EVENTS", "all").environment("IBEX_LOG_FILE", &log);
    let launch = recorded(launch, &place, "--events all")?;
    let outcome = launch.run(site)?;
    launch.judge(site, outcome.clone())?;
    let folder = sound(&trace(&place))?;
    ensure!(folder.readers().len() == 4, "{} files of 4 ranks", folder.readers().len());
    let mut all = 0;
    for (rank, reader) in folder.readers().iter().enumerate() {
        let head = reader.head();
        ensure!((head.rank, head.ranks, head.world) == (Some(rank as u32), Some(4), 0), "{head:?}");
        let text = fs::read_to_string(format!("{log}.{rank}"))?;
        let counted = |name: &str| {
            let short = name.strip_prefix("ibex_").unwrap_or(name);
            let row = text.lines().find(|line| line.split_whitespace().nth(1) == Some(short))?;
            let numbers: Vec<u64> = row.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            Some(numbers.iter().sum::<u64>())
        };
        // The log has neither calls of MPI nor `mpi_pcontrol`.
        let (calls, types) =
            head.types.iter().zip(reader.counts()).partition::<Vec<_>, _>(|(of, _)| of.name.starts_with("mpi_"));
        let [(_, begun), (_, ended), _] = calls[..] else { bail!("{} types of calls", calls.len()) };
        let all_of = |of: &Counts| of.events + of.lost;
        ensure!(all_of(&begun) == all_of(&ended) && begun.events > 0, "{calls:?}");
        for (of, counts) in types {
            let logged = counted(&of.name).with_context(|| format!("no row of {}: {text}", of.name))?;
            let recorded = all_of(&counts);
            ensure!(recorded == logged, "rank {rank}: {recorded} {} are recorded or lost, {logged} logged", of.name);
        }
        let read = reader.events().flatten().count() as u64;
        ensure!(read == reader.counts().iter().map(|of| of.events).sum::<u64>(), "{read} events can be read");
        let without = reader.events().flatten().filter(|event| event.time.is_none()).count();
        ensure!(without == 0, "{without} events have no time");
        all += read;
    }
    ensure!(outcome.stderr.contains(&format!("recorded {all} events of 4 ranks on 1 host")), "{outcome}");
    ensure!(outcome.stderr.contains("ibex view "), "it does not say what is next: {outcome}");
    Ok(())
}

/// Pairs sends and arrivals, in order, by communicator, ranks and tag. Returns each message's time and ranks.
fn ways(folder: &Trace) -> Result<Vec<(i64, usize, usize)>> {
    let mut sends: HashMap<_, Vec<i64>> = HashMap::new();
    let mut arrivals: HashMap<_, Vec<i64>> = HashMap::new();
    for (reader, line) in folder.readers().iter().zip(folder.lines()) {
        let head = reader.head();
        let rank = i128::from(head.rank.context("a rank")?);
        for event in reader.interleaved() {
            let event = event?;
            let of = &head.types[usize::from(event.event_type)];
            let value = |name: &str| {
                let element = of.element(name)?;
                Some(of.elements[element].kind.number(event.values[element]))
            };
            let (Some(peer), Some(tag), Some(0)) = (value("peer"), value("tag"), value("context")) else { continue };
            let time = line.time(event.time.context("a time")?);
            match of.name.as_str() {
                "ibex_comm_req_activate" if value("operation") == Some(0) => {
                    sends.entry((rank, peer, tag)).or_default().push(time);
                }
                "ibex_comm_msg_arrived" => arrivals.entry((peer, rank, tag)).or_default().push(time),
                _ => {}
            }
        }
    }
    let mut ways = Vec::new();
    for (key, sent) in &sends {
        let arrived = arrivals.get(key).map_or(&[][..], Vec::as_slice);
        ensure!(sent.len() == arrived.len(), "{key:?}: {} are sent, {} have arrived", sent.len(), arrived.len());
        let way = |(sent, arrived): (&i64, &i64)| (arrived - sent, key.0 as usize, key.1 as usize);
        ways.extend(sent.iter().zip(arrived).map(way));
    }
    Ok(ways)
}

/// Returns the largest error of a file's timestamps, by its own account.
fn doubt(reader: &Reader) -> Result<i64> {
    let spans = reader.summaries().flat_map(|summary| &summary.sources);
    let doubts = spans.map(|span| reader.relation(span.source)?.widest(span.first, span.last));
    let doubts: Option<Vec<i64>> = doubts.collect();
    doubts.context("a bound of each clock")?.into_iter().max().context("an event")
}

/// Ranks of one host have one clock: the order of two events is uncertain only within the errors of their counters.
fn in_order(site: &mut Site) -> Result<()> {
    let place = a_place()?;
    let launch = Launch::new("pt2pt_flood", 2).with("pml", "ibex").limit(300);
    recorded(launch, &place, "")?.passes(site)?;
    let folder = sound(&trace(&place))?;
    let ways = ways(&folder)?;
    ensure!(ways.len() > 10_000, "{} messages", ways.len());
    let doubts: Vec<i64> = folder.readers().iter().map(doubt).collect::<Result<_>>()?;
    for (took, from, to) in ways {
        let doubt = doubts[from] + doubts[to];
        ensure!(took >= -doubt, "a message from {from} to {to} took {took} ns, with a doubt of {doubt}");
    }
    Ok(())
}

/// The last two of four ranks have monotonic clocks that are 5000 s ahead.
fn on_several_clocks(site: &mut Site) -> Result<()> {
    let probe = std::process::Command::new("unshare").args(["--time", "--monotonic", "5000", "true"]).output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        site.skip("ranks with clocks of their own", "unshare --time does not work here");
        return Ok(());
    }
    let place = a_place()?;
    let script = "export OMPI_COMM_WORLD_LOCAL_SIZE=2; \
                  [ $OMPI_COMM_WORLD_RANK -lt 2 ] || exec unshare --time --monotonic 5000 \"$@\"; exec \"$@\"";
    let launch = Launch::new("collectives", 4).with("pml", "ibex").ranks_inside(script).limit(300);
    let every = "export IBEX_TRACE_CLOCKS_EVERY=0.05; ";
    recorded_after(every, launch, &place, "")?.passes(site)?;
    let folder = sound(&trace(&place))?;
    let asked = asked(&folder);
    // Each of the last two has its own namespace, and so its own clock.
    ensure!(asked[..2] == [0, 0] && asked[2].min(asked[3]) >= 2, "{asked:?} samples of rank 0's clock");
    let bounds: Option<Vec<i64>> = (0..4).map(|rank| folder.error(rank)).collect();
    let bounds = bounds.context("a bound of each rank")?;
    ensure!(bounds[..2] == [0, 0] && bounds[2..].iter().all(|bound| *bound < 1_000_000_000), "{bounds:?}");
    for (took, from, to) in ways(&folder)? {
        ensure!(took >= -bounds[from] - bounds[to], "a message from {from} to {to} took {took} ns, bounds {bounds:?}");
    }
    Ok(())
}

/// Returns the number of samples of rank 0's clock in each file. Rank 0 takes none; on each other host only the first
/// rank takes any between start and end.
fn asked(folder: &Trace) -> Vec<usize> {
    let of_rank_0 = |reader: &Reader| reader.samples().iter().filter(|sample| sample.clock == Clock::Rank(0)).count();
    folder.readers().iter().map(of_rank_0).collect()
}

fn between_nodes(site: &mut Site) -> Result<()> {
    // Each node writes to an overlay in its memory: its files are copied here.
    let (place, there) = (a_place()?, "/tmp/ibex-recorder-trace");
    let remove = |node: usize| Job::new(["rm", "-rf", there]).on(node);
    (0..2).try_for_each(|node| site.fabric(2)?.run(&remove(node))?.checked().map(drop))?;
    let command = command()?;
    let inside = format!("export IBEX_TRACE_CLOCKS_EVERY=0.5; exec {command} trace -o {there} -- \"$@\"");
    Launch::new("pt2pt_modes", 2)
        .scale(0.1)
        .with("pml", "ibex")
        .on_two_nodes()
        .inside(inside)
        .limit(400)
        .passes(site)?;
    fs::create_dir_all(trace(&place))?;
    for node in 0..2 {
        let fabric = site.fabric(2)?;
        let names = fabric.run(&Job::new(["ls", there]).on(node))?.checked()?.stdout;
        for name in names.lines().filter(|name| Path::new(name).extension().is_some_and(|end| end == "ibex")) {
            let file = format!("{there}/{name}");
            let shown = fabric.run(&Job::new(["od", "-An", "-v", "-tx1", &file]).on(node))?.checked()?.stdout;
            let bytes: Result<Vec<u8>, _> = shown.split_whitespace().map(|byte| u8::from_str_radix(byte, 16)).collect();
            fs::write(trace(&place).join(name), bytes.context("od shows bytes")?)?;
        }
    }
    let folder = sound(&trace(&place))?;
    let hosts: Vec<&str> = folder.readers().iter().map(|reader| reader.head().host.as_str()).collect();
    ensure!(hosts.len() == 2 && hosts[0] != hosts[1], "{hosts:?}: one file of each node");
    let asked = asked(&folder);
    ensure!(asked[0] == 0 && asked[1] >= 2, "{asked:?} samples of rank 0's clock");
    let bounds = [0, 1].map(|rank| folder.error(rank));
    let [Some(0), Some(bound)] = bounds else { bail!("{bounds:?}: rank 1's clock was not measured") };
    let ways = ways(&folder)?;
    ensure!(ways.len() > 10, "{} messages", ways.len());
    for (took, from, to) in ways {
        ensure!(took >= -bound, "a message from {from} to {to} took {took} ns, and the bound is {bound}");
    }
    Ok(())
}

/// A rank dies after so many messages that the recorders have written some events.
fn killed(site: &mut Site) -> Result<()> {
    for after in ["3000", "100000", "3000000"] {
        let place = a_place()?;
        let launch = Launch::new("abnormal_exit", 2).arguments(&["kill", "--after", after]).with("pml", "ibex");
        // mpirun is to end the other rank, however late it gets a processor, before ibex does, which ends the trace.
        let launch = launch.with("btl_ibex_link_outage", "60000");
        let outcome = recorded(launch.limit(300), &place, "")?.is_refused_with(site, &[])?;
        let folder = Trace::open(&trace(&place))?;
        ensure!(folder.readers().len() == 2, "{} files: {outcome}", folder.readers().len());
        for reader in folder.readers() {
            let faults: Vec<&Error> = reader.faults().collect();
            ensure!(matches!(faults[..], [Error::Unfinished { .. }]), "{faults:?}");
        }
        ensure!(outcome.stderr.contains("was not finished"), "it does not say so: {outcome}");
        let has_events = |reader: &Reader| reader.events().flatten().any(|event| event.time.is_some());
        if folder.readers().iter().all(has_events) {
            return Ok(());
        }
    }
    bail!("no event can be read")
}

/// Number of messages of each recorded tag.
const EACH: usize = 40;

fn controlled(site: &mut Site) -> Result<()> {
    let place = a_place()?;
    let log = place.file("log").display().to_string();
    let launch = Launch::new("pcontrol", 2).with("pml", "ibex").limit(300);
    let launch = launch.environment("IBEX_LOG_EVENTS", "comm_req_activate").environment("IBEX_LOG_FILE", &log);
    recorded(launch, &place, "")?.passes(site)?;
    let job = is_controlled(&trace(&place), i64::MAX)?;
    for message in job.messages.iter().filter(|message| message.tag == 3) {
        let communicator = &job.communicators[message.communicator as usize];
        ensure!(communicator.context != 0 && communicator.members == [0, 1], "made meanwhile: {communicator:?}");
    }
    for rank in 0..2 {
        let text = fs::read_to_string(format!("{log}.{rank}"))?;
        let lines = |tag: u32| text.lines().filter(|line| line.contains(&format!(" tag={tag} "))).count();
        ensure!((lines(1), lines(2), lines(3)) == (EACH, 0, EACH), "sends and receives of rank {rank}: {text}");
        for level in 0..2 {
            ensure!(text.contains(&format!(" MPI_Pcontrol({level}): events are ")), "rank {rank}, {level}: {text}");
        }
    }
    Ok(())
}

/// Checks that a job has what hw-tests/mpi/pcontrol.c says is to be recorded. `bits`: those of a tag that are MPI's.
pub(crate) fn is_controlled(folder: &Path, bits: i64) -> Result<Messages> {
    let job = Messages::read(&sound(folder)?);
    let of = |tag: i64| job.messages.iter().filter(move |message| message.tag & bits == tag).collect::<Vec<_>>();
    for (tag, wanted) in [(1, EACH), (2, 0), (3, EACH)] {
        let messages = of(tag);
        let is_whole = |message: &&&ibex_messages::Message| {
            let ends =
                message.send.and_then(|side| side.completed).zip(message.receive.and_then(|side| side.completed));
            ends.is_some()
        };
        let whole = messages.iter().filter(is_whole).count();
        ensure!((messages.len(), whole) == (wanted, wanted), "{wanted} of tag {tag}: {messages:?}");
    }
    let [begun] = of(4)[..] else { bail!("the send that began while it was recorded: {:?}", of(4)) };
    ensure!(begun.send.is_some_and(|side| side.activated.is_some() && side.notified.is_none()), "{begun:?}");
    let pauses: Vec<_> =
        job.pauses.iter().map(|pause| (pause.rank, pause.to.is_some_and(|to| to > pause.from))).collect();
    ensure!(pauses == [(0, true), (1, true)], "{:?}", job.pauses);
    ensure!(job.ranks.iter().all(|rank| rank.has_calls && rank.is_whole), "{:?}", job.ranks);
    let is_of_control = |fault: &String| fault.contains("stopped the recording");
    ensure!(!job.faults.is_empty() && job.faults.iter().all(is_of_control), "{:?}", job.faults);
    Ok(job)
}

/// In each world, ranks begin at 0.
fn spawned(site: &mut Site) -> Result<()> {
    let place = a_place()?;
    // The job is repeated if it hangs in Debian's PMIx.
    let launch = spawning(2, "2", "2").with("pml", "ibex");
    let launch = recorded_after(&format!("rm -rf {}; ", trace(&place).display()), launch, &place, "")?;
    spawned_by(site, &launch)?;
    let folder = Trace::open(&trace(&place))?;
    let mut worlds: BTreeMap<u32, Vec<Option<u32>>> = BTreeMap::new();
    for reader in folder.readers() {
        worlds.entry(reader.head().world).or_default().push(reader.head().rank);
    }
    ensure!(worlds.len() == 3 && worlds.contains_key(&0), "{worlds:?}: one, and two that it has spawned");
    ensure!(worlds.values().all(|ranks| *ranks == [Some(0), Some(1)]), "{worlds:?}");
    Ok(())
}

/// Open MPI 4.1.4 crashes in a compare-and-swap of a rank on itself: `ibex trace` says so, and the doctor.
fn known_crash(site: &mut Site) -> Result<()> {
    if Series::here()? != Series::V4_1 {
        site.skip("a crash of Open MPI's shared-memory BTL", "this Open MPI does not crash there");
        return Ok(());
    }
    let place = a_place()?;
    let launch = Launch::new("rma_atomics", 2).with("pml", "ob1").with("btl", "self,sm");
    let outcome = recorded(launch, &place, "")?.is_refused_with(site, &[])?;
    ensure!(outcome.stderr.contains("set --mca osc pt2pt"), "it does not say what to set: {outcome}");
    let command = command()?;
    let output = place.file("output");
    fs::write(&output, &outcome.stderr)?;
    let doctor = Job::new([command.as_str(), "doctor", "--watch", "0.1", "--output", &output.display().to_string()]);
    let found = site.fabric(1)?.run(&doctor)?;
    ensure!(found.stdout.contains("known-crash") && found.stdout.contains("mca_btl_vader_emu_acswap"), "{found}");
    Ok(())
}

fn refused(site: &mut Site) -> Result<()> {
    let place = a_place()?;
    let launch = recorded(Launch::new("init_finalize", 2), &place, "")?;
    launch.succeeds(site)?;
    let says = |outcome: &Outcome| outcome.stderr.contains("has a trace already");
    let again = launch.run(site)?;
    ensure!(!again.success() && says(&again) && again.stderr.contains("another folder with -o"), "{again}");
    let other = a_place()?;
    let json = recorded(Launch::new("init_finalize", 2), &other, "--json")?.succeeds(site)?;
    ensure!(json.stdout.contains("\"finished\": true") && json.stdout.contains("\"missing\": 0"), "{json}");
    Ok(())
}

/// The job preloads by an option of mpirun's, and in the command of the ranks.
fn beside_others(site: &mut Site) -> Result<()> {
    let own = "libBrokenLocale.so.1";
    let keeps = format!("grep -q {own} /proc/self/maps && exec \"$@\"");
    let launch = || Launch::new("init_finalize", 2).ranks_inside(keeps.clone());
    let by_option = launch().environment("LD_PRELOAD", own);
    let in_command = Launch::new("init_finalize", 2).ranks_inside(format!("LD_PRELOAD={own} exec \"$@\""));
    for launch in [by_option, in_command] {
        let place = a_place()?;
        recorded(launch, &place, "")?.succeeds(site)?;
        ensure!(sound(&trace(&place))?.readers().len() == 2, "not both ranks are recorded");
    }
    Ok(())
}
