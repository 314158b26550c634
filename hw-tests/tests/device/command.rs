// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command `ibex`: `info` gives the same reasons as a job, `doctor` finds each fault and no others, `bench`
//! measures within a host and between two. `IBEX_COMMAND` names it. Setup grade; one test at a time.

use crate::doctor::{self, Fault, finding};
use crate::launch::Launch;
use crate::site::{Site, command};
use crate::test::Test;
use anyhow::{Context, Result, ensure};
use hw_tests::{Folder, Job, Outcome};
use std::env;
use std::time::Duration;

const SOUND: &str = "[[device]]\nprofile = \"mlx5\"\n";

/// Makes a fault of one host, with the doctor's check and message. The test adds the cause to the sound host.
const fn fault(sentence: &'static str, check: &'static str, says: &'static str) -> Fault {
    doctor::fault(sentence, check, says, "").on(SOUND)
}

static FAULTS: &[Fault] = &[
    fault("a port that is down", "port-state", "it is down").on("[[device]]\n[[device.port]]\nstate = \"down\"\n"),
    fault("a port without a subnet manager", "port-state", "opensm")
        .on("[[device]]\n[[device.port]]\nstate = \"init\"\n"),
    fault("a host without a port to use", "no-port", "no RDMA port it could use")
        .on("[[device]]\n[[device.port]]\nstate = \"armed\"\n"),
    fault("a small mtu", "mtu", "its active MTU is 1024").on("[[device]]\n[[device.port]]\nmtu = 1024\n"),
    fault("ports of very different rates", "rates", "btl_ibex_if_exclude softhca1:1")
        .on("[[device]]\n[[device]]\n[[device.port]]\nwidth = \"1x\"\nspeed = \"sdr\"\n"),
    fault("a link at the slowest speed", "link", "at the speed SDR")
        .on("[[device]]\n[[device.port]]\nspeed = \"sdr\"\n"),
    fault("a roce port without an ip address", "gid-type", "ip addr add")
        .on("[[device]]\nlink_layer = \"ethernet\"\n[[device.port]]\ngids = [\"fe80::1\"]\n"),
    fault("a limited member of a partition", "partition", "limited member")
        .on("[[device]]\n[[device.port]]\npkeys = [0x7fff]\n"),
    fault("a clock that drifts", "clock", "parts per million").on("[[device]]\n[device.clock]\ndrift_ppm = 2000\n"),
    fault("too few open files", "open-files", "100 files").inside("ulimit -n 100; \"$@\""),
    fault("too little locked memory", "locked-memory", "8192 KiB")
        .inside("ulimit -l 8192; setpriv --bounding-set -ipc_lock \"$@\""),
    fault("an open mpi that does not find the components", "components", "cargo xtask install")
        .inside("OMPI_MCA_mca_base_component_path=SYSTEM_DEFAULT \"$@\""),
    fault("a component that open mpi does not take", "components", "does not take").inside(
        "folder=$(mktemp -d); echo broken >$folder/mca_pml_ibex.so; \
         cp $folder/mca_pml_ibex.so $folder/mca_btl_ibex.so; \
         OMPI_MCA_mca_base_component_path=$folder:SYSTEM_DEFAULT \"$@\"",
    ),
    fault("a dangling link among the components", "components", "the link is dangling").inside(
        "folder=$(mktemp -d); ln -s nowhere $folder/mca_x.so; \
         OMPI_MCA_mca_base_component_path=$OMPI_MCA_mca_base_component_path:$folder \"$@\"",
    ),
    fault("a host without open mpi", "openmpi", "apt-get install openmpi-bin")
        .inside("command=$1; shift; PATH=/nowhere \"$command\" \"$@\""),
];

pub(crate) fn tests() -> Vec<Test> {
    let faults = FAULTS.iter().map(|fault| {
        Test::on_emulated(format!("the doctor finds {}", fault.sentence), move |site| is_found(site, fault))
    });
    let others = [
        Test::on_emulated("the doctor finds nothing on a sound host", is_silent),
        Test::on_emulated("info gives the reasons that a job gives", same_reasons),
        Test::on_emulated("parameters that do not exist are refused with the one that is meant", refused),
        Test::on_emulated("the bench's program names the word that it refuses", names_what_it_refuses),
    ];
    let benches = [
        Test::on_emulated("a user measures ibex beside other transports within a host", within_a_host)
            .device_independent(),
        Test::on_emulated("a study finds the late sender and the late receiver that were planted", study)
            .device_independent(),
        Test::on_two_nodes("a user measures ibex beside other transports between two hosts", between_two_hosts),
    ];
    others.into_iter().chain(faults).map(Test::device_independent).chain(benches).collect()
}

fn run(site: &mut Site, adapters: &str, script: &str, arguments: &[&str]) -> Result<Outcome> {
    let command = command()?;
    let job = site.job(["sh", "-c", script, "sh", &command].into_iter().chain(arguments.iter().copied()));
    site.fabric_on(adapters)?.run(&job)
}

fn is_found(site: &mut Site, fault: &Fault) -> Result<()> {
    let outcome = run(site, fault.adapters, fault.script, &["doctor", "--json", "--watch", "0.5"])?;
    ensure!(outcome.status() == 1, "the exit status is {}, and not 1: {outcome}", outcome.status());
    finding(&outcome, fault.check, fault.says)?;
    Ok(())
}

fn is_silent(site: &mut Site) -> Result<()> {
    let outcome = run(site, SOUND, "\"$@\"", &["doctor"])?.checked()?;
    ensure!(outcome.stdout == "Nothing is wrong with this host.\n", "something was found: {outcome}");
    Ok(())
}

fn same_reasons(site: &mut Site) -> Result<()> {
    let adapters = "[[device]]\n[[device]]\n[[device.port]]\nstate = \"down\"\n";
    let launch = Launch::of_a_short_exchange().with("btl_ibex_verbose", "1").with("btl_ibex_if_exclude", "");
    let job = launch.on_adapters(adapters).succeeds(site)?;
    let outcome = run(site, adapters, "\"$@\"", &["info"])?.checked()?;
    let reasons: Vec<_> =
        job.stderr.lines().filter_map(|line| line.split_once(" refused: ").map(|(_, why)| why)).collect();
    ensure!(!reasons.is_empty(), "the job gives no reason: {job}");
    ensure!(reasons.iter().all(|why| outcome.stdout.contains(why)), "other reasons than {reasons:?}: {outcome}");
    Ok(())
}

fn refused(site: &mut Site) -> Result<()> {
    let outcome = run(site, SOUND, "\"$@\"", &["info", "--mca", "btl_ibex_if_inclide", "x"])?;
    ensure!(!outcome.success() && outcome.stderr.contains("btl_ibex_if_include is meant"), "{outcome}");
    Ok(())
}

fn names_what_it_refuses(site: &mut Site) -> Result<()> {
    let refusals: [(&[&str], &str); 4] = [
        (&["--sizes", "8,4G"], "--sizes cannot be '8,4G'"),
        (&["--tests", "latency,rate"], "--tests cannot be 'latency,rate'"),
        (&["--tests", "message_rate", "--sizes", "8K"], "there is nothing to measure"),
        (&["8"], "'8' is no option"),
    ];
    refusals.iter().try_for_each(|(arguments, said)| {
        Launch::new("ibex_mpi_bench", 2).arguments(arguments).is_refused_with(site, &[said]).map(drop)
    })
}

/// A short bench on node 0, which prints its report.
fn bench(site: &Site, arguments: &[&str]) -> Result<Job> {
    let (command, programs) = (command()?, site.programs());
    let out = env::temp_dir().join("ibex-bench-of-a-test").display().to_string();
    let words = ["bench", "--json", "--tests", "latency", "--rounds", "1"];
    let words = [command.as_str()].into_iter().chain(words).chain(["--programs", &programs, "--out", &out]);
    Ok(site.job(words.chain(arguments.iter().copied())).limit(Duration::from_mins(15)))
}

fn measured(outcome: &Outcome, sizes: usize, transports: &[&str]) -> Result<()> {
    for transport in transports {
        let rows = outcome.stdout.matches(&format!("\"transport\": \"{transport}\"")).count();
        ensure!(rows >= sizes, "there are {rows} rows of {transport}, and not one for each size: {outcome}");
    }
    Ok(())
}

fn within_a_host(site: &mut Site) -> Result<()> {
    let job = bench(site, &["--sizes", "8,4K", "--transports", "ibex,ibex-btl,tcp"])?;
    measured(&site.fabric(1)?.run(&job)?.checked()?, 2, &["ibex", "ibex-btl", "tcp"])
}

/// The study's findings are those of `ibex explain --waits --json`. This checks the ranks; how long they waited depends
/// on the load of the machine, so the command judges that.
fn study(site: &mut Site) -> Result<()> {
    let (command, programs) = (command()?, site.programs());
    let folder = Folder::new("ibex-study-of-a-test")?;
    let out = folder.file("out").display().to_string();
    let words = [&command, "bench", "--study", "--json", "--programs", &programs, "--out", &out];
    let job = site.job(words).limit(Duration::from_mins(10));
    let outcome = site.fabric(1)?.run(&job)?;
    let study: serde_json::Value = serde_json::from_str(&outcome.stdout).with_context(|| outcome.to_string())?;
    for (fault, (kind, pair)) in [("late_sender", ("0", "1")), ("late_receiver", ("2", "3"))].into_iter().enumerate() {
        let found = &study["planted"][fault];
        ensure!(found["kind"] == kind, "{found} is no {kind}");
        ensure!(
            (&found["wait"]["from"], &found["wait"]["to"]) == (&pair.0.into(), &pair.1.into()),
            "{found}: {outcome}"
        );
    }
    let applications = study["applications"].as_array().context("no applications")?;
    for application in applications {
        let has = |name: &str| application[name].as_array().is_some_and(|rows| !rows.is_empty());
        ensure!(has("times") && has("queues") && has("searches") && application["lost"] == 0, "{application}");
    }
    ensure!(applications.len() == 2, "hpcc or halo lacks: {}", study["left_out"]);
    compared(&study["sizes"]["rows"], 11, 3)?;
    compared(&study["rma_threads"]["rows"], 12, 3)?;
    // LAMMPS is there only if somebody installed it.
    let programs = study["run_times"].as_array().context("no run times")?;
    ensure!(programs.iter().any(|of| of["program"] == "hpcc"), "hpcc is not timed: {}", study["left_out"]);
    compared(&study["run_times"], programs.len(), 5)
}

/// Checks that `count` things were measured, each in `ways` ways: all but the build without events, which is missing.
fn compared(rows: &serde_json::Value, count: usize, ways: usize) -> Result<()> {
    let rows = rows.as_array().context("a part of the study lacks")?;
    let is_whole = |row: &serde_json::Value| row["ways"].as_array().is_some_and(|of| of.len() == ways);
    ensure!(rows.len() == count && rows.iter().all(is_whole), "not {count} rows of {ways} ways: {rows:?}");
    Ok(())
}

fn between_two_hosts(site: &mut Site) -> Result<()> {
    let fabric = site.fabric(2)?;
    let [one, other] = [fabric.host_name(0), fabric.host_name(1)];
    let hosts = format!("{one},{other}");
    let job = bench(site, &["--sizes", "8", "--host", &hosts, "--transports", "ibex,raw,tcp"])?;
    let outcome = site.fabric(2)?.run(&job)?;
    // On a busy machine perftest may not find its clock; the rest is measured all the same.
    let (busy, transports) = (outcome.stdout.contains("too busy"), ["ibex", "tcp", "raw"]);
    ensure!(outcome.success() || busy, "{outcome}");
    measured(&outcome, 1, &transports[..if busy { 2 } else { 3 }])?;
    ensure!(outcome.stdout.contains(&format!("between {one} and {other}")), "{outcome}");
    Ok(())
}
