// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several ports at once, on emulated adapters: messages are striped over both, ports are addressed as their link layer
//! demands, and the loss of a port ends the job, or the job waits for it. Time shows which ports carried bytes: the
//! links are so slow that even a busy machine keeps up with them. Setup grade; one test at a time.

use crate::launch::{Launch, says, was_refused};
use crate::programs::HELD_BACK;
use crate::site::Site;
use crate::test::{INFINIBAND, Property, Test};
use anyhow::{Context, Result, ensure};
use hw_tests::Device;

const PORT_EVENTS: Property = (Device::has_port_events, "the adapters do not tell of links that go");

pub(crate) fn tests() -> Vec<Test> {
    let over_the_pml = under_either().into_iter().chain(tests_of_the_pml()).map(Test::over_the_pml);
    let quick = |test: Test| {
        let is_quick = QUICK.iter().any(|name| test.is_called(name));
        test.quick_if(is_quick)
    };
    tests_of_the_btl().into_iter().chain(under_either()).chain(over_the_pml.map(quick)).collect()
}

/// Tests over the PML that are in the quick tier, because they are short.
const QUICK: [&str; 2] = [
    "over the pml, the other rail takes over from one that goes down while nothing is under way",
    "over the pml, a rail that was down is used again",
];

/// Tests under ob1 and under ibex's PML, where softhca1 is the home of ranks 0 and 1: each has a failover of its own.
fn under_either() -> Vec<Test> {
    vec![
        Test::on_emulated("long messages go faster than one rail carries", |site| {
            goes_faster_than_one(site, &narrow("infiniband", "infiniband"))
        }),
        Test::on_emulated("long messages go over an infiniband and a roce port at once", |site| {
            goes_faster_than_one(site, &narrow("infiniband", "ethernet"))
        }),
        Test::on_emulated("the other rail takes over from one that is down at the first message to a peer", |site| {
            goes_by_the_other(site, &[])
        })
        .needing(PORT_EVENTS),
        Test::on_emulated("the other rail takes over from one that goes down while nothing is under way", |site| {
            goes_by_the_other(site, &["--connect"])
        })
        .needing(PORT_EVENTS),
        Test::on_emulated("a rail that was down is used again", used_again).needing(PORT_EVENTS),
        Test::on_emulated("rails that go down and come back by turns lose and change nothing", rails_flap_by_turns),
        Test::on_emulated("the other rail takes over from one that connects no peer", never_connects),
        Test::on_emulated("messages wait for a rail that comes back in time and none is lost", rail_flaps),
    ]
}

fn tests_of_the_btl() -> Vec<Test> {
    vec![
        Test::on_emulated("four ranks agree over an infiniband and a roce port", |site| {
            let mixed = adapters("link_layer = \"infiniband\"", "link_layer = \"ethernet\"");
            for program in ["pt2pt_modes", "collectives"] {
                Launch::new(program, 4).scale(0.2).on_adapters(&mixed).passes(site)?;
            }
            Ok(())
        }),
        Test::on_emulated("ibex tells infiniband ports of the same gid apart by their lids", addressed_by_lid)
            .needing(INFINIBAND),
        Test::on_emulated("ibex tells roce ports apart by their gids", addressed_by_gid),
        Test::on_emulated("a port whose address changes is found at the new one by later connections", readdressed)
            .needing(PORT_EVENTS),
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
    ]
}

fn tests_of_the_pml() -> Vec<Test> {
    vec![
        Test::on_emulated("programs agree on two rails", programs_on_two_rails),
        Test::on_emulated("unexpected messages are held back on two rails", held_back_on_two_rails),
        Test::on_emulated("long sends go back to a rail whose send buffers are in use", long_sends_flap),
        Test::on_emulated(
            "rails that go down and come back by turns lose nothing that is held back",
            rails_flap_while_senders_are_held_back,
        ),
        Test::on_emulated("a rail that carries messages and goes down for good ends the job and is named", rail_lost),
        Test::on_emulated("the job goes on without a rail that only reads and goes down for good", reading_rail_lost),
    ]
}

fn held_back_on_two_rails(site: &mut Site) -> Result<()> {
    let rails = adapters("", "");
    // Each port has its own receive slots, and a flood touches all their pages.
    let most: &[&str] = &["--most", "96"];
    for (program, ranks, scale, arguments) in [
        ("unexpected_memory", 2, 0.02, most),
        ("unexpected_memory", 4, 0.01, most),
        ("traffic", 4, 0.05, &[]),
        ("threads", 2, 0.15, &[]),
    ] {
        // While senders are held back, each message is a round trip between processes that share processors.
        let launch = Launch::new(program, ranks).arguments(arguments).scale(scale);
        launch.with_all(HELD_BACK).on_adapters(&*rails).limit(300).passes(site)?;
    }
    Launch::new("unexpected_memory", 2).arguments(most).scale(0.3).on_adapters(rails).limit(300).passes(site)
}

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
        ("threads", 2),
    ] {
        Launch::new(program, ranks).scale(0.5).on_adapters(&*rails).passes(site)?;
    }
    Ok(())
}

pub(crate) fn adapters(first: &str, second: &str) -> String {
    format!("[[device]]\nname = \"softhca0\"\n{first}\n[[device]]\nname = \"softhca1\"\n{second}\n")
}

/// Bandwidth of a link in the bandwidth tests: 12.5 MB/s, a hundredth of what one processor copies.
const GBPS: f64 = 0.1;

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
    let together = bandwidth(site, configuration, None)?;
    ensure!(
        together > one_carries * 1.25,
        "both rails together carry {together} MB/s, and one alone up to {one_carries}: was one not used?"
    );
    Ok(())
}

/// Returns the bandwidth of 1 MiB messages in MB/s. Four are in flight: the usual window takes a narrow link long.
fn bandwidth(site: &mut Site, configuration: &str, only: Option<&str>) -> Result<f64> {
    let arguments = ["--tests", "bandwidth", "--sizes", "1M", "--window", "4", "--seconds-per-row", "1"];
    let mut launch = Launch::new("ibex_mpi_bench", 2).arguments(&arguments).on_adapters(configuration);
    if let Some(device) = only {
        launch = launch.with("btl_ibex_if_include", device);
    }
    let outcome = launch.succeeds(site)?;
    let value = outcome.stdout.split("\"value\":").nth(1).and_then(|rest| rest.split(',').next());
    value.and_then(|text| text.parse().ok()).with_context(|| format!("the bench printed no bandwidth: {outcome}"))
}

/// The two ports have the same GID, so an address by GID would reach the first.
fn addressed_by_lid(site: &mut Site) -> Result<()> {
    let port = |lid: u16| format!("[[device.port]]\nlid = {lid}\ngids = [\"fe80::5e00:1\"]");
    each_is_reached(site, &adapters(&port(11), &port(12)), "infiniband")
}

/// A RoCE port has no LID.
fn addressed_by_gid(site: &mut Site) -> Result<()> {
    each_is_reached(site, &adapters("link_layer = \"ethernet\"", "link_layer = \"ethernet\""), "roce v2")
}

fn each_is_reached(site: &mut Site, rails: &str, said: &str) -> Result<()> {
    for device in ["softhca0", "softhca1", "softhca0,softhca1"] {
        let launch = Launch::of_a_short_exchange().with("btl_ibex_if_include", device).with("btl_ibex_verbose", "1");
        says(&launch.on_adapters(rails).succeeds(site)?, &[said])?;
    }
    Ok(())
}

/// Exchanges messages of these sizes, many at once over both rails, until the test lets the job go on.
pub(crate) fn traffic(sizes: &str) -> Launch {
    Launch::new("rail_down", 2).arguments(&["--traffic", sizes]).on_adapters(adapters("", "")).limit(300)
}

/// Reads on the lost rail fail, and the other rail repeats them.
fn reading_rail_lost(site: &mut Site) -> Result<()> {
    let launch = traffic("131072-2097152").with("btl_ibex_ack_timeout", "12");
    let outcome = launch.pulled(site, |pull| {
        pull.down_in_traffic("softhca0")?;
        pull.go_on()
    })?;
    let words =
        ["ibex does without a port", "softhca0:1", "queue pair", "failed with status", "go by softhca1:1", "0 failed"];
    says(&outcome.checked()?, &words)
}

/// These messages are all sent, not read: the other rail would repeat reads, and nothing would be lost.
fn rail_lost(site: &mut Site) -> Result<()> {
    let launch = traffic("8-1024").with("btl_ibex_ack_timeout", "12");
    let outcome = launch.pulled(site, |pull| pull.down_in_traffic("softhca1"))?;
    was_refused(&outcome)?;
    says(&outcome, &["ibex lost a peer", "rank", "softhca1:1", "queue pair", "failed with status"])
}

/// The adapter retries for a quarter of a minute; even on a busy machine a command takes a small part of that.
fn rail_flaps(site: &mut Site) -> Result<()> {
    let launch = traffic("1024-2097152").with("btl_ibex_link_outage", "16000");
    let outcome = launch.pulled(site, |pull| {
        pull.down_in_traffic("softhca1")?;
        pull.ctl("link-up softhca1")?;
        pull.go_on()
    })?;
    launch.judge(site, outcome)
}

/// softhca0 goes down before the messages are sent, so only softhca1 is left.
fn used_again(site: &mut Site) -> Result<()> {
    let launch = Launch::new("rail_down", 2).arguments(&["--connect", "--events", "3"]);
    let launch = launch.on_adapters(adapters("", ""));
    let outcome = launch.pulled(site, |pull| {
        for command in ["link-down softhca1", "link-up softhca1", "link-down softhca0"] {
            pull.port_event(command)?;
        }
        pull.go_on()
    })?;
    let words = ["softhca1:1 has lost its link", "softhca1:1 has a link again", "softhca0:1 has lost its link"];
    says(&outcome, &words)?;
    launch.judge(site, outcome)
}

/// Every kind of message, after a rail has gone down while no message was under way.
fn goes_by_the_other(site: &mut Site, arguments: &[&str]) -> Result<()> {
    for (ranks, device) in [(2, "softhca0"), (3, "softhca1")] {
        let launch = Launch::new("rail_down", ranks).arguments(arguments).with_argument("--events", "1");
        let launch = launch.on_adapters(adapters("", ""));
        let outcome = launch.pulled(site, |pull| {
            pull.port_event(&format!("link-down {device}"))?;
            pull.go_on()
        })?;
        says(&outcome, &[&format!("{device}:1 has lost its link")])?;
        launch.judge(site, outcome)?;
    }
    Ok(())
}

/// An adapter, an event that changes its address, and ibex's words for that.
static READDRESSED: &[(&str, &str, &str)] = &[
    ("link_layer = \"infiniband\"\n[[device.port]]", "LID_CHANGE lid=99", "its LID is 99, "),
    (
        "link_layer = \"ethernet\"\n[[device.port]]\ngids = [\"10.0.0.1\"]",
        "GID_CHANGE gid=10.0.0.9",
        "its GID ::ffff:10.0.0.9 at index 0 now",
    ),
];

/// The modex has the old address, so the first datagrams are lost; TCP brings the new address.
fn readdressed(site: &mut Site) -> Result<()> {
    for (port, change, said) in READDRESSED {
        let launch = Launch::new("rail_down", 3).with_argument("--events", "1");
        let launch = launch.with("btl_ibex_verbose", "1").with("btl_ibex_ack_timeout", "12");
        let launch = launch.on_adapters(format!("[[device]]\nname = \"softhca0\"\n{port}\n"));
        let outcome = launch.pulled(site, |pull| {
            pull.port_event(&format!("event softhca0 {change}"))?;
            pull.go_on()
        })?;
        says(&outcome, &[said])?;
        launch.judge(site, outcome)?;
    }
    Ok(())
}

/// Messages leave a rail and return to it while others are under way on both.
fn rails_flap_by_turns(site: &mut Site) -> Result<()> {
    for program in ["pt2pt_modes", "pt2pt_datatypes", "traffic", "threads"] {
        flaps_under(site, &Launch::new(program, 2))?;
    }
    Ok(())
}

/// Messages of flow control come by one rail and go by the other; pending sends go by the rail that is up.
fn rails_flap_while_senders_are_held_back(site: &mut Site) -> Result<()> {
    for program in ["pt2pt_modes", "traffic", "threads"] {
        flaps_under(site, &Launch::new(program, 2).with_all(HELD_BACK))?;
    }
    Ok(())
}

/// Runs a program, again and again, while one rail after the other goes down and comes back.
fn flaps_under(site: &mut Site, launch: &Launch) -> Result<()> {
    let launch = launch.clone().scale(0.2).on_adapters(adapters("", "")).limit(300);
    let outcome = launch.pulled_after_a_case(site, |pull| {
        pull.flap(&["softhca0", "softhca1"], 12)?;
        pull.go_on()
    })?;
    flapped(site, &launch, outcome)
}

/// Pieces fill the buffers of a rail that goes down, wait at a slow one, and return before the buffers are free.
fn long_sends_flap(site: &mut Site) -> Result<()> {
    let slow_to_connect = "[[fault]]\naction = \"drop\"\nqp_type = \"ud\"\nfraction = 0.9\nseed = 1\n";
    let launch = Launch::new("strided_sends", 2).arguments(&["--rounds", "8"]).with("btl_ibex_connect_via", "ud");
    let launch = launch.on_adapters(adapters("", "") + slow_to_connect).limit(300);
    let outcome = launch.pulled(site, |pull| {
        pull.flap(&["softhca0"], 24)?;
        pull.go_on()
    })?;
    flapped(site, &launch, outcome)
}

/// Checks that nothing was lost, and that ibex reported the links, if the adapters raise events of ports.
fn flapped(site: &mut Site, launch: &Launch, outcome: hw_tests::Outcome) -> Result<()> {
    if site.device().has_port_events() {
        says(&outcome, &["has lost its link", "has a link again"])?;
    }
    launch.judge(site, outcome)
}

/// The datagrams of softhca1 are lost, and nothing else connects it. Those of softhca0 must be answered in time.
fn never_connects(site: &mut Site) -> Result<()> {
    let lost = "[[fault]]\naction = \"drop\"\ndevice = \"softhca1\"\ncount = 0\n";
    let launch = Launch::new("rail_down", 2).arguments(&["--short"]).with("btl_ibex_connect_via", "ud");
    let launch = launch.with("btl_ibex_connect_timeout", "5").on_adapters(adapters("", "") + lost);
    let outcome = launch.succeeds(site)?;
    says(&outcome, &["ibex does without a port", "softhca1:1", "could not be made", "go by softhca0:1"])
}
