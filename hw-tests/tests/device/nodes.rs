// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests on two nodes: messages across a network, by Open MPI and by the libfabric provider; a network that loses
//! packets, or filters datagrams; and a node that falls silent. Setup grade; one test at a time.

use crate::launch::{Launch, says, was_refused};
use crate::mpis::{BY_THE_ADAPTER, MPICH, job};
use crate::provider::installed;
use crate::site::Site;
use crate::test::Test;
use anyhow::{Context, Result, ensure};
use hw_tests::{Job, Outcome};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::on_two_nodes("messages cross between two nodes", |site| across("pt2pt_modes", 2, 0.1).passes(site)),
        Test::on_two_nodes("four ranks on two nodes agree on collective results", |site| {
            across("collectives", 4, 0.2).passes(site)
        }),
        Test::on_two_nodes("fi_pingpong passes messages between two nodes by the provider", plays_across),
        Test::on_two_nodes("a stock mpich runs pt2pt_modes by ibex run on two nodes", |site| {
            by_mpich(site, "pt2pt_modes", 2)
        }),
        Test::on_two_nodes("a stock mpich runs collectives by ibex run on two nodes", |site| {
            by_mpich(site, "collectives", 4)
        }),
        Test::on_two_nodes("a first blocking send between two nodes has left when it returns", |site| {
            // Fifteen pairs of ranks meet in each run.
            (0..2).try_for_each(|_| across("first_contact", 6, 1.0).arguments(&["blocking"]).passes(site))
        }),
        Test::on_two_nodes("messages arrive whole over a network that loses packets", |site| {
            let lossy = Lossy::new(site, "tc qdisc add dev IFACE root netem loss 1%", "tc qdisc del dev IFACE root")?;
            lossy.until_lost(site, |site| across("pt2pt_matching", 2, 0.1).limit(300).passes(site))
        }),
        Test::on_two_nodes("ranks connect over tcp where datagrams are filtered", |site| {
            // UD packets differ from RC ones in the opcode, the first byte after UDP's header: 0x64 is "UD send only".
            let add = "tc qdisc add dev IFACE ingress; tc filter add dev IFACE ingress protocol ip u32 \
                       match ip protocol 17 0xff match ip dport 4791 0xffff match u8 0x64 0xff at 28 action drop";
            let filtered = Lossy::new(site, add, "tc qdisc del dev IFACE ingress")?;
            filtered.until_lost(site, |site| exchange().limit(120).succeeds(site).map(drop))
        }),
        Test::on_two_nodes("a peer that falls silent ends the job with a message that names it", silent_peer),
        Test::on_two_nodes("handshake packets that are lost and repeated still connect", |site| {
            // Datagrams alone (see above) go through a band of their own.
            let add = "tc qdisc add dev IFACE root handle 1: prio bands 4; \
                       tc qdisc add dev IFACE parent 1:4 netem loss 40% duplicate 40%; \
                       tc filter add dev IFACE parent 1: protocol ip u32 match ip protocol 17 0xff \
                       match ip dport 4791 0xffff match u8 0x64 0xff at 28 flowid 1:4";
            let lossy = Lossy::new(site, add, "tc qdisc del dev IFACE root")?;
            lossy.until_lost(site, |site| exchange().limit(120).succeeds(site).map(drop))
        }),
    ]
}

/// The client, which tries again until the server listens.
const CLIENT: &str = "until fi_pingpong -c -p ibex -e rdm -I 20 $0; do sleep 0.2; done";

fn plays_across(site: &mut Site) -> Result<()> {
    let (_folder, path) = installed()?;
    let fabric = site.fabric(2)?;
    let job = |words: &[&str]| Job::new(words.iter().copied()).env("FI_PROVIDER_PATH", &path);
    let server = fabric.spawn(&job(&["fi_pingpong", "-c", "-p", "ibex", "-e", "rdm", "-I", "20"]))?;
    let client = fabric.run(&job(&["sh", "-c", CLIENT, &fabric.host_name(0)]).on(1))?.checked()?;
    let server = server.wait()?.checked()?;
    for outcome in [server, client] {
        ensure!(outcome.stdout.contains("\n1m "), "fi_pingpong prints no line for messages of 1 MiB: {outcome}");
    }
    Ok(())
}

/// The agents stand in for the shell by which MPICH's launcher starts ranks; these alternate between the nodes.
fn by_mpich(site: &mut Site, program: &'static str, ranks: usize) -> Result<()> {
    let fabric = site.fabric(2)?;
    let hosts = [fabric.host_name(0), fabric.host_name(1)].join(",");
    let count = ranks.to_string();
    let options =
        ["-launcher", "rsh", "-launcher-exec", "/run/fabric/rsh", "-hosts", &hosts, "-ppn", "1", "-n", &count];
    let Some(job) = job(site, (&[], BY_THE_ADAPTER), MPICH, &options, &[&format!("programs/{program}")])? else {
        return Ok(());
    };
    let outcome = site.fabric(2)?.run(&job)?;
    Launch::new(program, ranks).judge(site, outcome)
}

/// The network carries mpirun's connection, whose loss would end the job, but no RoCE packet to node 0, whose adapter
/// gives up after its retries.
fn silent_peer(site: &mut Site) -> Result<()> {
    // A first filter, which drops nothing, makes the kernel load tc's modules, which may stop a guest for longer than a
    // short time-out. 16 is 2 s with all retries.
    let drop_port = "tc filter add dev IFACE ingress protocol ip u32 match ip protocol 17 0xff match ip dport PORT 0xffff \
                     action drop";
    let unused = format!("tc qdisc add dev IFACE ingress; {}", drop_port.replace("PORT", "1"));
    let silence = Lossy::new(site, &unused, "tc qdisc del dev IFACE ingress")?;
    let roce = drop_port.replace("PORT", "4791").replace("IFACE", site.fabric(2)?.interface());
    let launch = Launch::new("rail_down", 2).arguments(&["--traffic", "8-8"]).with("btl_ibex_ack_timeout", "16");
    let outcome = launch.on_two_nodes().limit(80).pulled(site, |pull| pull.run(&roce));
    let restored = silence.restore(site);
    let outcome = outcome?;
    restored.with_context(|| outcome.to_string())?;
    was_refused(&outcome)?;
    // soft-RoCE now and then completes the first request as flushed (5), not out of retries (12): ibex explains both.
    says(&outcome, &["ibex lost a peer", "host node", "queue pair", "failed with status", "the peer no longer answers"])
}

fn across(program: &'static str, ranks: usize, scale: f64) -> Launch {
    Launch::new(program, ranks).scale(scale).on_two_nodes().limit(180)
}

fn exchange() -> Launch {
    Launch::of_a_short_exchange().on_two_nodes()
}

struct Lossy {
    undo: String,
}

impl Lossy {
    fn new(site: &mut Site, change: &str, undo: &str) -> Result<Self> {
        let fabric = site.fabric(2)?;
        let script = |text: &str| text.replace("IFACE", fabric.interface());
        fabric.run(&Job::new(["sh", "-ec", &script(change)]))?.checked()?;
        Ok(Self { undo: script(undo) })
    }

    /// Repeats `run` until the network has lost a packet, then undoes the change.
    fn until_lost(self, site: &mut Site, run: impl Fn(&mut Site) -> Result<()>) -> Result<()> {
        let mut ran = Ok(());
        for _ in 0..20 {
            ran = run(site);
            if ran.is_err() || has_lost(&counts(site)?) {
                break;
            }
        }
        ran.and(self.restore(site))
    }

    /// Undoes the change; by then packets must have been lost.
    fn restore(self, site: &mut Site) -> Result<()> {
        let counts = counts(site);
        site.fabric(2)?.run(&Job::new(["sh", "-c", &self.undo]))?.checked()?;
        let counts = counts?;
        ensure!(has_lost(&counts), "the network lost no packet: {counts}");
        Ok(())
    }
}

/// Returns the counts of node 0's network. Only a filter counts the packets that it drops.
fn counts(site: &mut Site) -> Result<Outcome> {
    let fabric = site.fabric(2)?;
    let script = "tc -s qdisc show dev IFACE; tc -s filter show dev IFACE ingress 2>&1 || true";
    fabric.run(&Job::new(["sh", "-ec", &script.replace("IFACE", fabric.interface())]))?.checked()
}

fn has_lost(counts: &Outcome) -> bool {
    let mut dropped = counts.stdout.split("(dropped ").skip(1).filter_map(|rest| rest.split(',').next());
    dropped.any(|packets| packets != "0")
}
