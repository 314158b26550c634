// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibex doctor` of several hosts: on emulated adapters, where this machine plays all of them, and on two nodes.
//!
//! The tests' own `ssh` first makes the fault and then runs the command here; hosts `a` and `b` each use one of two
//! adapters. docs/doctor.md lists the findings. Setup grade; one test at a time.

use crate::site::{Site, command, faults_applied};
use crate::test::Test;
use anyhow::{Context, Result, ensure};
use hw_tests::{Folder, Job, Outcome};
use serde_json::Value;
use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

/// A fault of a host or between two hosts, and the doctor's check and message for it.
pub(crate) struct Fault {
    pub(crate) sentence: &'static str,
    pub(crate) adapters: &'static str,
    /// Shell script that runs the command, `"$@"`. With two hosts, it runs the command of host `b`.
    pub(crate) script: &'static str,
    pub(crate) check: &'static str,
    pub(crate) says: &'static str,
    mends: &'static str,
}

impl Fault {
    pub(crate) const fn on(self, adapters: &'static str) -> Self {
        Self { adapters, ..self }
    }

    pub(crate) const fn inside(self, script: &'static str) -> Self {
        Self { script, ..self }
    }
}

const START: &str = "exec \"$@\"";

const SOUND: &str = "[[device]]\n[[device]]\n";

/// Makes a fault with sound adapters and an unchanged command. `mends`: words of the doctor's advice.
pub(crate) const fn fault(
    sentence: &'static str,
    check: &'static str,
    says: &'static str,
    mends: &'static str,
) -> Fault {
    Fault { sentence, adapters: SOUND, script: START, check, says, mends }
}

static FAULTS: &[Fault] = &[
    fault("hosts in different partitions", "partition-keys", "a has 0x8001, and b has 0x8002", "btl_ibex_pkey_index")
        .on("[[device]]\n[[device.port]]\npkeys = [0x8001]\n[[device]]\n[[device.port]]\npkeys = [0x8002]\n"),
    fault("an mtu that differs between hosts", "mtu-of-hosts", "a has 4096, and b has 2048", "the same MTU")
        .on("[[device]]\n[[device]]\n[[device.port]]\nmtu = 2048\n"),
    fault("subnets that do not meet", "subnets", "b in 0xfe80000000000007", "btl_ibex_if_include")
        .on("[[device]]\n[[device]]\n[[device.port]]\nsubnet_prefix = \"fe80:0000:0000:0007\"\n"),
    fault("ports that no job would connect", "connection", "b has softhca1:1 with GID", "subnet_prefix")
        .on("[[device]]\n[[device]]\n[[device.port]]\nsubnet_prefix = \"fe80:0000:0000:0007\"\n"),
    fault("gids of different types", "gid-types", "a has RoCE v2, and b has RoCE v1", "btl_ibex_gid_index").on(
        "[[device]]\nlink_layer = \"ethernet\"\n[[device.port]]\ngids = [\"10.0.0.1\"]\n\
         [[device]]\nlink_layer = \"ethernet\"\n[[device.port]]\n\
         gids = [{ gid = \"10.0.0.2\", index = 0, type = \"RoCE v1\" }]\n",
    ),
    fault("a fabric that connects nothing", "connection", "the connection to rank", "cabled to one fabric")
        .on("[[device]]\n[[device.port]]\nnetwork = \"one\"\n[[device]]\n[[device.port]]\nnetwork = \"other\"\n"),
    fault("a host whose packets are lost", "connection", "the connection to rank", "cabled to one fabric")
        .on("[[device]]\n[[device]]\n[[fault]]\naction = \"drop\"\ndevice = \"softhca1\"\nfraction = 1.0\n"),
    fault("a connection that breaks under long messages", "connection", "short messages pass", "btl_ibex_mtu")
        .on("[[device]]\n[[device]]\n[[fault]]\naction = \"status\"\nstatus = \"RETRY_EXC_ERR\"\n\
             device = \"softhca1\"\nnth = 30\ncount = 1\n"),
    fault("retransmission counters that grow", "counters", "local_ack_timeout_err has grown by", "flow control")
        .on("[[device]]\n[[device]]\n[[fault]]\naction = \"drop\"\ndevice = \"softhca1\"\nnth = 40\ncount = 1\n"),
    fault("a port that cannot be opened", "port-open", "softhca1:1", "as the message says")
        .on("[[device]]\n[[device]]\n[[fault]]\naction = \"registration-error\"\ndevice = \"softhca1\"\n"),
    fault("a host that uses fewer ports", "rails", "a has 2, and b has 1", "ibex info")
        .on("[[device]]\n[[device.port]]\n[[device.port]]\n[[device]]\n"),
    fault("a host with a slow network", "rates-of-hosts", "a has 100000 Mb/s, and b has", "cable")
        .on("[[device]]\n[[device]]\n[[device.port]]\nspeed = \"ddr\"\n"),
    fault("a link of one lane", "link", "one lane", "cable")
        .on("[[device]]\n[[device]]\n[[device.port]]\nwidth = \"1x\"\n"),
    fault("a host with other parameters", "parameters", "b has btl_ibex_mtu=1024", "mpirun --mca")
        .inside("OMPI_MCA_btl_ibex_mtu=1024; export OMPI_MCA_btl_ibex_mtu; exec \"$@\""),
    fault(
        "ports that are cabled crosswise",
        "cabling",
        "to which the order of ports pairs this one",
        "cable all hosts alike",
    )
    .on("[[device]]\n[[device.port]]\nnetwork = \"one\"\n[[device.port]]\nnetwork = \"other\"\n\
         [[device]]\n[[device.port]]\nnetwork = \"other\"\n[[device.port]]\nnetwork = \"one\"\n"),
    fault("a host without ibex", "no-ibex", "has no ibex", "cargo xtask install")
        .inside("exec sh -c \"$(printf %s \"$3\" | sed 's,exec ibex,exec /nowhere/ibex,')\""),
    fault("a host with another ibex", "ibex-version", "b has 0.0.1", "install the same ibex")
        .inside("\"$@\" | sed -u 's/\"ibex\":\"[0-9.]*\"/\"ibex\":\"0.0.1\"/'"),
    fault("a host whose ibex knows no doctor's agent", "ibex-version", "unexpected argument", "install the same ibex")
        .inside("exec sh -c \"$(printf %s \"$3\" | sed 's/--agent/--facts-of-old/')\""),
    fault("a host with another open mpi", "openmpi-version", "b has 4.0.0", "install the same Open MPI")
        .inside("\"$@\" | sed -u 's/\"version\":\"[0-9.]*\"/\"version\":\"4.0.0\"/'"),
    fault("a host whose key is not known", "ssh", "does not know the host's key", "ssh_known_hosts")
        .inside("echo 'Host key verification failed.' >&2; exit 255"),
    fault("a host that lets nobody in", "ssh", "Permission denied", "ssh-copy-id b")
        .inside("echo 'b: Permission denied (publickey).' >&2; exit 255"),
    fault("a host that hangs", "host", "it has not answered for", "ssh -o BatchMode=yes b").inside("exec sleep 1000"),
    fault("a host that is lost on the way", "host", "did not answer", "ssh -o BatchMode=yes b")
        .inside("\"$@\" | sed -u 1q"),
    fault("too little locked memory of another host", "locked-memory", "8192 KiB", "memlock")
        .inside("ulimit -l 8192; exec setpriv --bounding-set -ipc_lock \"$@\""),
];

/// A change to one of two nodes, and the doctor's finding. `IFACE` stands for the node's network interface.
struct Change {
    sentence: &'static str,
    node: usize,
    does: &'static str,
    undo: &'static str,
    check: &'static str,
    says: &'static str,
}

impl Change {
    const fn by(self, does: &'static str, undo: &'static str) -> Self {
        Self { does, undo, ..self }
    }
}

/// Makes a change of a node; [`Change::by`] says how.
const fn change(sentence: &'static str, node: usize, check: &'static str, says: &'static str) -> Change {
    Change { sentence, node, does: "", undo: "", check, says }
}

static CHANGES: &[Change] = &[
    change("an mtu that differs", 1, "mtu-of-hosts", "node0 has 4096, and node1 has 1024")
        .by("ip link set IFACE mtu 1500", "ip link set IFACE mtu 9000"),
    // Drops each SYN, except to the port by which mpirun starts processes (4790).
    change("a firewall between handshakes", 1, "firewall", "node0 does not reach 192.168.77.2:").by(
        "tc qdisc add dev IFACE ingress; \
         tc filter add dev IFACE ingress protocol ip prio 1 u32 \
         match ip protocol 6 0xff match ip dport 4790 0xffff action pass; \
         tc filter add dev IFACE ingress protocol ip prio 2 u32 \
         match ip protocol 6 0xff match u8 0x02 0x3f at 33 action drop",
        "tc qdisc del dev IFACE ingress",
    ),
    change("a firewall that drops roce", 0, "connection", "UDP port 4791").by(
        "tc qdisc add dev IFACE ingress; tc filter add dev IFACE ingress protocol ip u32 \
         match ip protocol 17 0xff match ip dport 4791 0xffff action drop",
        "tc qdisc del dev IFACE ingress",
    ),
    change("a node whose adapter is gone", 1, "no-port", "no RDMA device on this host")
        .by("rdma link delete rxe0", "rdma link add rxe0 type rxe netdev IFACE"),
];

pub(crate) fn tests() -> Vec<Test> {
    let faults = FAULTS.iter().map(|fault| {
        Test::on_emulated(format!("the doctor of two hosts finds {}", fault.sentence), move |site| {
            is_found(site, fault)
        })
    });
    let others = [
        Test::on_emulated("the doctor of two hosts finds nothing between sound ones", is_silent),
        Test::on_emulated("the doctor of two hosts finds a firewall between handshakes", firewall),
        Test::on_emulated("the doctor connects every two of three hosts that mpirun starts", three),
    ];
    let changes = CHANGES.iter().map(|change| {
        Test::on_two_nodes(format!("the doctor of two nodes finds {}", change.sentence), move |site| {
            is_seen(site, change)
        })
    });
    let nodes = [Test::on_two_nodes("the doctor of two nodes finds nothing between sound ones", |site| {
        let outcome = on_two_nodes(site)?.checked()?;
        let found: Value = serde_json::from_str(&outcome.stdout)?;
        let milliseconds = &found["connections"][0]["milliseconds"];
        ensure!(milliseconds.is_number(), "the nodes did not meet: {outcome}");
        Ok(())
    })];
    let emulated = others.into_iter().chain(faults).map(Test::device_independent);
    emulated.chain(nodes).chain(changes).collect()
}

/// Returns the finding of this check whose text or advice contains `says`; it must have all parts.
pub(crate) fn finding(outcome: &Outcome, check: &str, says: &str) -> Result<Value> {
    let found: Value = serde_json::from_str(&outcome.stdout).with_context(|| format!("no JSON: {outcome}"))?;
    let findings = found["findings"].as_array().with_context(|| format!("no findings: {outcome}"))?;
    let is_it = |finding: &&Value| {
        let has_words = ["measured", "mend"].iter().any(|field| finding[field].to_string().contains(says));
        finding["check"] == check && has_words
    };
    let finding = findings.iter().find(is_it).with_context(|| format!("{check} was not found: {outcome}"))?;
    for field in ["severity", "place", "measured", "expected", "mend"] {
        ensure!(finding[field].as_str().is_some_and(|text| !text.is_empty()), "{field} is missing in {finding}");
    }
    Ok(finding.clone())
}

/// A folder with an `ssh` that runs commands here.
fn shell(on_a: &str, on_b: &str) -> Result<Folder> {
    let folder = Folder::new("ibex-doctor")?;
    // The words after `--`: the host, and the command of its shell, which becomes `"$@"`.
    let script = format!(
        "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nhost=$2\nset -- sh -c \"$3\"\n\
         case $host in\na) {on_a} ;;\nb) {on_b} ;;\nesac\n"
    );
    fs::write(folder.file("ssh"), script)?;
    fs::set_permissions(folder.file("ssh"), fs::Permissions::from_mode(0o755))?;
    Ok(folder)
}

/// Runs the doctor of two hosts, with scripts of `a` and `b` that start the agent.
fn run(site: &mut Site, adapters: &str, (on_a, on_b): (&str, &str), arguments: &[&str]) -> Result<Outcome> {
    let command = command()?;
    let shell = shell(on_a, on_b)?;
    let path = format!("{}:{}", shell.path().display(), env::var("PATH").unwrap_or_default());
    let words = [command.as_str(), "doctor", "--watch", "0.5"].into_iter().chain(arguments.iter().copied());
    let job =
        site.job(words).env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1").env("PATH", path);
    let fabric = site.fabric_on(adapters)?;
    let outcome = fabric.run(&job)?;
    faults_applied(fabric, adapters, &outcome)?;
    Ok(outcome)
}

fn with_adapter(device: &str, does: &str) -> String {
    format!("export OMPI_MCA_btl_ibex_if_include=${{OMPI_MCA_btl_ibex_if_include:-{device}}}; {does}")
}

fn is_found(site: &mut Site, fault: &Fault) -> Result<()> {
    let hosts = (with_adapter("softhca0", START), with_adapter("softhca1", fault.script));
    // A busy host takes long to list its facts; one that hangs takes all of the time.
    let patience = if fault.check == "host" { "8" } else { "30" };
    let arguments = ["--host", "a,b", "--launch", "ssh", "--patience", patience, "--json"];
    let outcome = run(site, fault.adapters, (&hosts.0, &hosts.1), &arguments)?;
    ensure!(outcome.status() == 1, "the exit status is {}, and not 1: {outcome}", outcome.status());
    let finding = finding(&outcome, fault.check, fault.says)?;
    ensure!(finding["mend"].to_string().contains(fault.mends), "{} is not said: {finding}", fault.mends);
    Ok(())
}

fn is_silent(site: &mut Site) -> Result<()> {
    let hosts = (with_adapter("softhca0", START), with_adapter("softhca1", START));
    let arguments = ["--host", "a,b", "--launch", "ssh", "--patience", "120"];
    let outcome = run(site, SOUND, (&hosts.0, &hosts.1), &arguments)?.checked()?;
    let silent = "1 connected pair of ports.\nNothing is wrong with 2 hosts.\n";
    ensure!(outcome.stdout == silent, "something was found: {outcome}");
    Ok(())
}

/// Gives `b` a network namespace of its own: the adapters reach each other, but TCP does not.
fn firewall(site: &mut Site) -> Result<()> {
    let apart = "unshare -n sh -c 'ip link set lo up && ip addr add 192.0.2.77/32 dev lo && exec \"$@\"' sh";
    let trial = Job::new(["sh", "-c", &format!("{apart} true")]);
    if !site.fabric_on(SOUND)?.run(&trial)?.success() {
        site.skip("the doctor finds a firewall", "a network of its own needs root, and the program ip");
        return Ok(());
    }
    let hosts = (with_adapter("softhca0", START), with_adapter("softhca1", &format!("exec {apart} \"$@\"")));
    let arguments = ["--host", "a,b", "--launch", "ssh", "--patience", "120", "--json"];
    let outcome = run(site, SOUND, (&hosts.0, &hosts.1), &arguments)?;
    let finding = finding(&outcome, "firewall", "a does not reach 192.0.2.77:")?;
    ensure!(finding["mend"].to_string().contains("ip_local_port_range"), "{finding}");
    Ok(())
}

fn three(site: &mut Site) -> Result<()> {
    let arguments = ["--host", "localhost,localhost,localhost", "--launch", "mpirun", "--patience", "120", "--json"];
    let outcome = run(site, SOUND, (START, START), &arguments)?.checked()?;
    let found: Value = serde_json::from_str(&outcome.stdout)?;
    let connections = found["connections"].as_array().context("no connections")?;
    // Each host has two ports.
    ensure!(connections.len() == 6, "{} connections: {outcome}", connections.len());
    ensure!(connections.iter().all(|each| each["milliseconds"].is_number() && each["failure"].is_null()), "{outcome}");
    Ok(())
}

fn on_two_nodes(site: &mut Site) -> Result<Outcome> {
    let command = command()?;
    let words = ["doctor", "--host", "node0,node1", "--launch", "mpirun", "--patience", "240", "--json"];
    let job = site.job([command.as_str()].into_iter().chain(words)).limit(Duration::from_mins(15));
    site.fabric(2)?.run(&job)
}

fn is_seen(site: &mut Site, change: &Change) -> Result<()> {
    let fabric = site.fabric(2)?;
    let script = |text: &str| text.replace("IFACE", fabric.interface());
    let job = |text: &str| Job::new(["sh", "-ec", &script(text)]).on(change.node);
    let undo = job(change.undo);
    fabric.run(&job(change.does))?.checked()?;
    let outcome = on_two_nodes(site);
    site.fabric(2)?.run(&undo)?.checked()?;
    let outcome = outcome?;
    ensure!(outcome.status() == 1, "the exit status is {}, and not 1: {outcome}", outcome.status());
    finding(&outcome, change.check, change.says).map(drop)
}
