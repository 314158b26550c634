// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command `ibex`, on emulated adapters: that `info` gives the reasons that a job gives, and that `doctor` finds
//! each fault that is made here, and nothing on a host without.
//!
//! `IBEX_COMMAND` names the program. Setup grade; one test at a time.

use crate::doctor::{self, Fault, finding};
use crate::launch::Launch;
use crate::site::{Site, command};
use crate::test::Test;
use anyhow::{Result, ensure};
use hw_tests::Outcome;

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

/// The tests of this file.
pub(crate) fn tests() -> Vec<Test> {
    let faults = FAULTS.iter().map(|fault| {
        Test::on_emulated(format!("the doctor finds {}", fault.sentence), move |site| is_found(site, fault))
    });
    let others = [
        Test::on_emulated("the doctor finds nothing on a sound host", is_silent),
        Test::on_emulated("info gives the reasons that a job gives", same_reasons),
        Test::on_emulated("parameters that do not exist are refused with the one that is meant", refused),
    ];
    others.into_iter().chain(faults).map(Test::device_independent).collect()
}

/// Runs the command in a fabric of these adapters, inside a script.
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
