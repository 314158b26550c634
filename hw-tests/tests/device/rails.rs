// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several ports at once, on emulated adapters described here: messages are striped over both, ports are told apart as
//! their link layer says, and one that goes away ends the job or is waited for.
//!
//! On other devices each is skipped, with the reason. That bytes crossed a port is shown by time: its link is given a
//! bandwidth, which it cannot exceed on the busiest machine. Setup grade; one test at a time.

use crate::launch::{Launch, over_the_pml, says};
use crate::programs::{COPIED, STARVED, WRITTEN};
use crate::site::Site;
use crate::test::{INFINIBAND, Test};
use anyhow::{Context, Result, bail, ensure};
use hw_tests::Device;

/// What tests need of adapters, and why they are skipped without.
const STAMPS: (fn(&Device) -> bool, &str) = (Device::has_stamps, "the adapters do not stamp completions");
const PORT_EVENTS: (fn(&Device) -> bool, &str) = (Device::has_port_events, "the adapters do not tell of links that go");

/// The tests of this file.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::on_emulated("long messages go faster than one rail carries", |site| {
            goes_faster_than_one(site, &narrow("infiniband", "infiniband"))
        }),
        Test::on_emulated("long messages go over an infiniband and a roce port at once", |site| {
            goes_faster_than_one(site, &narrow("infiniband", "ethernet"))
        }),
        Test::on_emulated("four ranks agree over an infiniband and a roce port", |site| {
            let mixed = adapters("link_layer = \"infiniband\"", "link_layer = \"ethernet\"");
            for program in ["pt2pt_modes", "collectives"] {
                let launch = Launch::new(program, 4).environment("IBEX_TEST_SCALE", "0.2").on_adapters(&mixed);
                launch.passes(site)?;
            }
            Ok(())
        }),
        Test::on_emulated_with(
            STAMPS,
            "what events show is what the adapters executed, with their timestamps",
            executed,
        ),
        Test::on_emulated_with(
            STAMPS,
            "what events show is what the adapters executed, with narrow clocks that drift and go round many times",
            executed_by_narrow_clocks,
        ),
        Test::on_emulated("tools in several threads see the same of adapters with narrow clocks", |site| {
            let launch = Launch::new("events_tools", 2).arguments(&["--threads", "3"]);
            launch.on_adapters(traced(NARROW_CLOCKS)).passes(site)
        }),
        Test::on_emulated_with(
            INFINIBAND,
            "infiniband ports of the same gid are told apart by their lids",
            addressed_by_lid,
        ),
        Test::on_emulated("roce ports are told apart by their gids", addressed_by_gid),
        Test::on_emulated_with(
            PORT_EVENTS,
            "a port whose address changes is found at the new one by later connections",
            readdressed,
        ),
        Test::on_emulated("both ports of one adapter are used", |site| {
            let launch = Launch::of_a_short_exchange().with("btl_ibex_verbose", "1");
            let outcome = launch.on_adapters("[[device]]\n[[device.port]]\n[[device.port]]\n").succeeds(site)?;
            says(&outcome, &["softhca0:1", "softhca0:2"])
        }),
        Test::on_emulated("a rail that is down is left out and the other carries the job", |site| {
            let one_down = adapters("", "[[device.port]]\nstate = \"down\"");
            let launch = Launch::of_a_short_exchange().with("btl_ibex_verbose", "1").on_adapters(one_down);
            says(&launch.succeeds(site)?, &["softhca1:1", "down"])
        }),
        Test::on_emulated("a rail that goes down for good ends the job and is named", rail_lost),
        Test::on_emulated_with(
            PORT_EVENTS,
            "a rail that is down at the first message to a peer is left to the other one",
            |site| goes_by_the_other(site, &["softhca0", "softhca1"], &[], "").map(drop),
        ),
        Test::on_emulated_with(
            PORT_EVENTS,
            "a rail that goes down while nothing is under way is left to the other one",
            |site| goes_by_the_other(site, &["softhca0", "softhca1"], &["--connect"], "").map(drop),
        ),
        Test::on_emulated_with(PORT_EVENTS, "a rail that was down is used again", used_again),
        Test::on_emulated("rails that go down and come back by turns lose and change nothing", rails_flap_by_turns),
        Test::on_emulated("a rail that connects no peer is left to the other one", never_connects),
        Test::on_emulated("a rail that comes back in time is waited for and nothing is lost", rail_flaps),
    ]
    .into_iter()
    .chain(tests_of_the_pml())
    .collect()
}

/// The same where ibex's own PML carries the messages. Ranks 0 and 1 have softhca1 as home.
fn tests_of_the_pml() -> Vec<Test> {
    let test = |name: &str, run: fn(&mut Site) -> Result<()>| {
        Test::on_emulated(format!("over the pml, {name}"), move |site| over_the_pml(|| run(site))).device_independent()
    };
    let told = |name: &'static str, run: fn(&mut Site) -> Result<()>| {
        Test::on_emulated_with(PORT_EVENTS, name, move |site| over_the_pml(|| run(site))).device_independent()
    };
    vec![
        test("long messages go faster than one rail carries", |site| {
            goes_faster_than_one(site, &narrow("infiniband", "infiniband"))
        }),
        test("long messages go over an infiniband and a roce port at once", |site| {
            goes_faster_than_one(site, &narrow("infiniband", "ethernet"))
        }),
        test("programs agree on two rails", programs_on_two_rails),
        test("unexpected messages are held back on two rails", held_back_on_two_rails),
        told("over the pml, a rail that is down at the first message to a peer is left to the other one", |site| {
            goes_by_the_other(site, &["softhca0", "softhca1"], &[], "").map(drop)
        }),
        told("over the pml, a rail that goes down while nothing is under way is left to the other one", |site| {
            goes_by_the_other(site, &["softhca0", "softhca1"], &["--connect"], "").map(drop)
        }),
        told("over the pml, a rail that was down is used again", used_again),
        test("rails that go down and come back by turns lose and change nothing", rails_flap_by_turns),
        test("long sends go back to a rail whose send buffers are in use", long_sends_flap),
        test(
            "rails that go down and come back by turns lose nothing that is held back",
            rails_flap_under_who_is_held_back,
        ),
        test("a rail that connects no peer is left to the other one", never_connects),
        test("a rail that comes back in time is waited for and nothing is lost", rail_flaps),
        test("a rail that carries messages and goes down for good ends the job and is named", rail_lost),
        test("a rail that only reads and goes down for good is done without", reading_rail_lost),
    ]
}

/// Next to no memory for messages that nobody has asked for, so that senders are held back.
const HELD_BACK: (&str, &str) = ("pml_ibex_unexpected_memory", "1024");

fn held_back_on_two_rails(site: &mut Site) -> Result<()> {
    let rails = adapters("", "");
    // Each port has receive slots of its own, whose pages a flood touches first.
    let most: &[&str] = &["--most", "96"];
    for (program, ranks, scale, arguments) in [
        ("unexpected_memory", 2, "0.1", most),
        ("unexpected_memory", 4, "0.1", most),
        ("traffic", 4, "0.5", &[]),
        ("threads", 2, "0.5", &[]),
    ] {
        let launch = Launch::new(program, ranks).arguments(arguments).environment("IBEX_TEST_SCALE", scale);
        launch.with(HELD_BACK.0, HELD_BACK.1).on_adapters(&*rails).limit(300).passes(site)?;
    }
    let launch = Launch::new("unexpected_memory", 2).arguments(most).environment("IBEX_TEST_SCALE", "0.3");
    launch.on_adapters(rails).limit(300).passes(site)
}

/// Each kind of traffic, from two threads and more, and with many ranks.
fn programs_on_two_rails(site: &mut Site) -> Result<()> {
    let rails = adapters("", "");
    for (program, ranks) in [
        ("traffic", 2),
        ("traffic", 4),
        ("pt2pt_modes", 2),
        ("pt2pt_modes", 4),
        ("pt2pt_datatypes", 2),
        ("pt2pt_matching", 3),
        ("pt2pt_requests", 2),
        ("collectives", 4),
        ("connect_cycles", 2),
    ] {
        Launch::new(program, ranks).environment("IBEX_TEST_SCALE", "0.5").on_adapters(&*rails).passes(site)?;
    }
    let threads = Launch::new("threads", 2).environment("IBEX_TEST_SCALE", "0.5");
    threads.environment("IBEX_REQUIRE_THREADS", "1").on_adapters(rails).passes(site)
}

/// Two adapters, with these lines in each.
fn adapters(first: &str, second: &str) -> String {
    format!("[[device]]\nname = \"softhca0\"\n{first}\n[[device]]\nname = \"softhca1\"\n{second}\n")
}

/// What a link of the bandwidth tests carries: 250 MB/s, far below what memory does.
const GBPS: f64 = 2.0;

/// Two adapters of these link layers whose links are that narrow.
fn narrow(first: &str, second: &str) -> String {
    let with = |layer: &str| format!("link_layer = \"{layer}\"\nbandwidth_gbps = {GBPS:.1}");
    adapters(&with(first), &with(second))
}

fn goes_faster_than_one(site: &mut Site, configuration: &str) -> Result<()> {
    let one_carries = GBPS * 1000.0 / 8.0;
    for device in ["softhca0", "softhca1"] {
        let alone = bandwidth(site, configuration, Some(device))?;
        ensure!(alone <= one_carries * 1.02, "{device} alone carries {alone} MB/s, and its link at most {one_carries}");
    }
    // A busy machine makes a run slower, and none faster than the links.
    let mut best: f64 = 0.0;
    for _ in 0..5 {
        best = best.max(bandwidth(site, configuration, None)?);
        if best > one_carries * 1.25 {
            return Ok(());
        }
    }
    bail!("both rails together carry {best} MB/s, and one alone up to {one_carries}: was one not used?")
}

/// Of messages of 4 MiB, in MB/s.
fn bandwidth(site: &mut Site, configuration: &str, only: Option<&str>) -> Result<f64> {
    let arguments = ["--tests", "bandwidth", "--sizes", "4M", "--seconds-per-row", "1"];
    let mut launch = Launch::new("ibex_mpi_bench", 2).arguments(&arguments).on_adapters(configuration);
    if let Some(device) = only {
        launch = launch.with("btl_ibex_if_include", device);
    }
    let outcome = launch.succeeds(site)?;
    let value = outcome.stdout.split("\"value\":").nth(1).and_then(|rest| rest.split(',').next());
    value.and_then(|text| text.parse().ok()).with_context(|| format!("the bench printed no bandwidth: {outcome}"))
}

/// Clocks of two rates that drift apart, and do not go round.
const CLOCKS: [&str; 2] = [
    "[device.clock]\ndrift_ppm = 80.0",
    "[device.clock]\nfrequency_hz = 156250000\noffset = 0x0f000000\ndrift_ppm = -60.0",
];

/// They go round 15 times a second, and 9 times.
const NARROW_CLOCKS: [&str; 2] = [
    "[device.clock]\nmask_bits = 26\ndrift_ppm = 80.0",
    "[device.clock]\nfrequency_hz = 156250000\nmask_bits = 24\noffset = 0x0f000000\ndrift_ppm = -60.0",
];

/// Two adapters with these clocks, that write down what they execute.
fn traced([first, second]: [&str; 2]) -> String {
    format!("trace = true\n{}", adapters(first, second))
}

/// Patterns with seeds of their own, compared with the trace of the adapters.
fn compare(launch: Launch, adapters: &str, arguments: &[&str], site: &mut Site) -> Result<()> {
    let arguments = [arguments, &["--adapter", "softhca"]].concat();
    launch.arguments(&arguments).on_adapters(adapters).passes(site)
}

fn executed(site: &mut Site) -> Result<()> {
    let (one, two) = ("trace = true\n[[device]]\nname = \"softhca0\"\n", &traced(CLOCKS));
    for (seed, ranks, patterns) in [("1", 2, "3000"), ("2", 3, "1500"), ("3", 4, "1500")] {
        let arguments = ["--trace", "exact", "--seed", seed, "--patterns", patterns];
        compare(Launch::new("events", ranks), two, &arguments, site)?;
    }
    let with = |parameters: &[(&str, &str)]| {
        parameters.iter().fold(Launch::new("events", 4), |launch, (name, value)| launch.with(name, value))
    };
    compare(with(&[]), one, &["--trace", "exact", "--seed", "7", "--patterns", "1000"], site)?;
    compare(with(STARVED), one, &["--trace", "exact", "--seed", "8", "--patterns", "500"], site)?;
    compare(with(STARVED), two, &["--trace", "exact", "--seed", "4", "--patterns", "1000"], site)?;
    compare(with(COPIED), two, &["--trace", "exact", "--seed", "5", "--patterns", "500"], site)?;
    compare(with(WRITTEN), two, &["--trace", "messages", "--seed", "6", "--patterns", "500"], site)
}

fn executed_by_narrow_clocks(site: &mut Site) -> Result<()> {
    for (seed, ranks, threads) in [("1", 2, "1"), ("2", 4, "1"), ("3", 2, "3")] {
        let arguments = ["--trace", "narrow", "--seed", seed, "--patterns", "1500", "--threads", threads];
        compare(Launch::new("events", ranks), &traced(NARROW_CLOCKS), &arguments, site)?;
    }
    Ok(())
}

/// Who would address by GID met the first of the two.
fn addressed_by_lid(site: &mut Site) -> Result<()> {
    let port = |lid: u16| format!("[[device.port]]\nlid = {lid}\ngids = [\"fe80::5e00:1\"]");
    let same_gid = adapters(&port(11), &port(12));
    for device in ["softhca0", "softhca1", "softhca0,softhca1"] {
        let launch = Launch::of_a_short_exchange().with("btl_ibex_if_include", device).with("btl_ibex_verbose", "1");
        says(&launch.on_adapters(&same_gid).succeeds(site)?, &["infiniband"])?;
    }
    Ok(())
}

/// A RoCE port has no LID.
fn addressed_by_gid(site: &mut Site) -> Result<()> {
    let roce = adapters("link_layer = \"ethernet\"", "link_layer = \"ethernet\"");
    for device in ["softhca0", "softhca1", "softhca0,softhca1"] {
        let launch = Launch::of_a_short_exchange().with("btl_ibex_if_include", device).with("btl_ibex_verbose", "1");
        says(&launch.on_adapters(&roce).succeeds(site)?, &["roce v2"])?;
    }
    Ok(())
}

/// Traffic over both rails, of twelve rows with a line of output each.
fn long_exchange() -> Launch {
    let sizes = "1K,2K,4K,8K,16K,32K,64K,128K,256K,512K,1M,2M";
    Launch::new("ibex_mpi_bench", 2).arguments(&["--tests", "bandwidth", "--sizes", sizes])
}

/// Runs it on adapters whose second goes down in the middle of it, as `then` says in the fault's own keys.
fn interrupted(site: &mut Site, launch: &Launch, then: &str) -> Result<hw_tests::Outcome> {
    interrupted_on(site, launch, ("softhca1", then))
}

/// The same for another adapter.
fn interrupted_on(site: &mut Site, launch: &Launch, (device, then): (&str, &str)) -> Result<hw_tests::Outcome> {
    // The fabric's time begins when the first rank opens an adapter. On a busy machine the start of a job takes longer
    // than usual, and a link that is down from the start is another test. The later the link goes down, the longer the
    // traffic, so that it is in the midst of it however slow the machine is.
    for seconds in [3_u64, 9, 27, 81] {
        let (row, limit) = ((seconds / 3).to_string(), 120 + 15 * seconds);
        let launch = launch.clone().with_argument("--seconds-per-row", &row).limit(limit);
        let fault = format!(
            "[[fault]]\naction = \"link-down\"\ndevice = \"{device}\"\nport = 1\nat_ns = {seconds}_000_000_000\n{then}"
        );
        let outcome = launch.on_adapters(adapters("", "") + &fault).run(site)?;
        if outcome.stdout.contains("\"bandwidth\"") && outcome.elapsed.as_secs() >= seconds {
            return Ok(outcome);
        }
        println!("the link was to go down {seconds} s after the start, and no traffic was under way then; once more");
    }
    bail!("no traffic was under way when the link went down")
}

/// Its reads fail, and others read again what they did not.
fn reading_rail_lost(site: &mut Site) -> Result<()> {
    let sizes = ["--tests", "bandwidth", "--sizes", "128K,256K,512K,1M,2M,4M"];
    let launch = Launch::new("ibex_mpi_bench", 2).arguments(&sizes).with("btl_ibex_ack_timeout", "12");
    let outcome = interrupted_on(site, &launch, ("softhca0", ""))?.checked()?;
    says(&outcome, &["ibex does without a port", "softhca0:1", "queue pair", "failed with status", "go by softhca1:1"])
}

fn rail_lost(site: &mut Site) -> Result<()> {
    let outcome = interrupted(site, &long_exchange().with("btl_ibex_ack_timeout", "12"), "")?;
    ensure!(!outcome.success(), "the job succeeded over a link that was down: {outcome}");
    ensure!(matches!(outcome.ending, hw_tests::Ending::Exited(_)), "the job did not end by itself: {outcome}");
    says(&outcome, &["ibex lost a peer", "rank", "softhca1:1", "queue pair", "failed with status"])
}

/// The other one goes down before the messages, which then have this one alone.
fn used_again(site: &mut Site) -> Result<()> {
    let then = "for_ns = 500_000_000\n\
                [[fault]]\naction = \"link-down\"\ndevice = \"softhca0\"\nport = 1\nat_ns = LATER\n";
    let outcome = goes_by_the_other(site, &["softhca1"], &["--connect"], then)?;
    says(&outcome, &["softhca1:1 has a link again", "softhca0:1 has lost its link"])
}

/// Every kind of message, to and from neighbours, after a rail has gone down at a time when none was under way.
fn goes_by_the_other(site: &mut Site, devices: &[&str], arguments: &[&str], then: &str) -> Result<hw_tests::Outcome> {
    let mut last = None;
    for (ranks, device) in (2..).zip(devices) {
        last = Some(goes_down_between(site, ranks, device, arguments, then)?);
    }
    last.context("a device was named")
}

fn goes_down_between(
    site: &mut Site,
    ranks: usize,
    device: &str,
    arguments: &[&str],
    then: &str,
) -> Result<hw_tests::Outcome> {
    // The fabric's time begins when the first rank opens an adapter, which is after the program's start.
    for seconds in [2, 9, 27] {
        let fault = format!(
            "[[fault]]\naction = \"link-down\"\ndevice = \"{device}\"\nport = 1\nat_ns = {seconds}_000_000_000\n{then}"
        );
        let fault = fault.replace("LATER", &format!("{}_000_000_000", seconds + 1));
        let (late, until) = (seconds.to_string(), (seconds + 2).to_string());
        let arguments = [arguments, &["--late", &late, "--until", &until]].concat();
        let launch = Launch::new("rail_down", ranks).arguments(&arguments).limit(90);
        let outcome = launch.on_adapters(adapters("", "") + &fault).run(site)?;
        if outcome.stdout.contains("late") {
            println!(
                "the link was to go down {seconds} s after the start, and the ranks were not ready then; once more"
            );
            continue;
        }
        let outcome = outcome.checked()?;
        says(&outcome, &[&format!("{device}:1 has lost its link"), "passed, 0 failed"])?;
        return Ok(outcome);
    }
    bail!("the ranks were late each time")
}

/// The adapter, what the fault changes, and how ibex says it.
static READDRESSED: &[(&str, &str, &str)] = &[
    ("link_layer = \"infiniband\"\n[[device.port]]", "event = \"LID_CHANGE\"\nlid = 99", "its LID is 99, "),
    (
        "link_layer = \"ethernet\"\n[[device.port]]\ngids = [\"10.0.0.1\"]",
        "event = \"GID_CHANGE\"\ngid = \"10.0.0.9\"",
        "its GID ::ffff:10.0.0.9 at index 0 now",
    ),
];

/// The modex has the old address: the first datagrams are lost, TCP carries the new one.
fn readdressed(site: &mut Site) -> Result<()> {
    READDRESSED.iter().try_for_each(|(port, change, said)| readdressed_to(site, port, change, said))
}

fn readdressed_to(site: &mut Site, port: &str, change: &str, said: &str) -> Result<()> {
    for seconds in [2, 9, 27] {
        let adapters = format!(
            "[[device]]\nname = \"softhca0\"\n{port}\n\
             [[fault]]\naction = \"event\"\ndevice = \"softhca0\"\nport = 1\nat_ns = {seconds}_000_000_000\n{change}\n"
        );
        let (late, until) = (seconds.to_string(), (seconds + 2).to_string());
        let launch = Launch::new("rail_down", 3).arguments(&["--late", &late, "--until", &until]).limit(90);
        let launch = launch.with("btl_ibex_verbose", "1").with("btl_ibex_ack_timeout", "12");
        let outcome = launch.on_adapters(adapters).run(site)?;
        if outcome.stdout.contains("late") {
            println!(
                "the port was to change {seconds} s after the start, and the ranks were not ready then; once more"
            );
            continue;
        }
        return says(&outcome.checked()?, &[said, "passed, 0 failed"]);
    }
    bail!("the ranks were late each time")
}

/// Messages leave a rail and return to it while others are under way on both.
fn rails_flap_by_turns(site: &mut Site) -> Result<()> {
    let flapping = flapping();
    ["pt2pt_modes", "pt2pt_datatypes", "traffic", "threads"]
        .into_iter()
        .try_for_each(|program| flaps_under(site, program, &flapping, &[]))
}

/// Pieces of messages fill the send buffers of a rail that goes down, then wait at one that is slow to connect, and go
/// back to the first before its buffers are free.
fn long_sends_flap(site: &mut Site) -> Result<()> {
    let down = |turn: u32| {
        let at_ms = 1500 + turn * 300;
        format!(
            "[[fault]]\naction = \"link-down\"\ndevice = \"softhca0\"\nport = 1\nat_ns = {at_ms}_000_000\n\
             for_ns = 25_000_000\n"
        )
    };
    let slow_to_connect = "[[fault]]\naction = \"drop\"\nqp_type = \"ud\"\nfraction = 0.9\nseed = 1\n";
    let rails = adapters("", "") + slow_to_connect + &(0..60).map(down).collect::<String>();
    let launch = Launch::new("strided_sends", 2).arguments(&["--rounds", "8"]).on_adapters(rails);
    launch.with("btl_ibex_connect_via", "ud").passes(site)
}

/// What is said of a peer's account comes by one rail and goes by another, and what pends goes by whichever is there.
fn rails_flap_under_who_is_held_back(site: &mut Site) -> Result<()> {
    let flapping = flapping();
    ["pt2pt_modes", "traffic", "threads"]
        .into_iter()
        .try_for_each(|program| flaps_under(site, program, &flapping, &[HELD_BACK]))
}

/// Two adapters of which one after the other goes down for a moment.
fn flapping() -> String {
    let fault = |turn: u32| {
        // Often at first, for programs that are soon through; then for a while, as a busy machine starts them late.
        let at_ms = if turn <= 30 { turn * 60 } else { turn * 500 - 13_200 };
        let device = turn % 2;
        format!(
            "[[fault]]\naction = \"link-down\"\ndevice = \"softhca{device}\"\nport = 1\nat_ns = {at_ms}_000_000\n\
             for_ns = 25_000_000\n"
        )
    };
    adapters("", "") + &(1..=60).map(fault).collect::<String>()
}

/// Runs a program at growing length until it was long enough for a rail to go down and come back. Where adapters do not
/// tell of that, nothing shows it: the longest is run.
fn flaps_under(site: &mut Site, program: &'static str, flapping: &str, parameters: &[(&str, &str)]) -> Result<()> {
    let scales: &[&str] = if site.device().has_port_events() { &["0.2", "1", "4", "16"] } else { &["4"] };
    for scale in scales {
        let launch = Launch::new(program, 2).environment("IBEX_TEST_SCALE", scale).on_adapters(flapping);
        let launch = parameters.iter().fold(launch, |launch, (name, value)| launch.with(name, value));
        let outcome = launch.succeeds(site)?;
        says(&outcome, &["passed, 0 failed"])?;
        if !site.device().has_port_events() || says(&outcome, &["has lost its link", "has a link again"]).is_ok() {
            return Ok(());
        }
        println!("{program} was through before a rail went down and came back; longer");
    }
    bail!("{program} never lasted until a rail had gone down and come back")
}

/// Its datagrams are lost, and nothing else connects.
fn never_connects(site: &mut Site) -> Result<()> {
    let lost = "[[fault]]\naction = \"drop\"\ndevice = \"softhca1\"\ncount = 0\n";
    let launch = Launch::new("rail_down", 2).arguments(&["--short"]).with("btl_ibex_connect_via", "ud");
    let launch = launch.with("btl_ibex_connect_timeout", "1").on_adapters(adapters("", "") + lost);
    let outcome = launch.succeeds(site)?;
    says(&outcome, &["ibex does without a port", "softhca1:1", "could not be made", "go by softhca0:1"])
}

fn rail_flaps(site: &mut Site) -> Result<()> {
    // By default the adapter's tries last two seconds at least (btl_ibex_link_outage).
    let outcome = interrupted(site, &long_exchange(), "for_ns = 1_500_000_000\n")?.checked()?;
    let rows = outcome.stdout.lines().filter(|line| line.contains("\"bandwidth\"")).count();
    ensure!(rows == 12, "{rows} of 12 sizes were measured: {outcome}");
    let repeated = site.counted("softhca1", "local_ack_timeout_err")?;
    ensure!(repeated > 0, "nothing was sent while the link was down: {outcome}");
    Ok(())
}
