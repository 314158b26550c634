// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ibex doctor` and several hosts: on emulated adapters, where this machine plays all of them, and on two nodes.
//!
//! An `ssh` of the tests' own starts what it is asked to start here, after what a fault does to that host: hosts `a`
//! and `b` each use one of two adapters of a fabric. docs/doctor.md lists what is found. Setup grade; one test at a
//! time.

use crate::site::{Site, faults_applied};
use crate::test::Test;
use anyhow::{Context, Result, ensure};
use hw_tests::{Job, Outcome};
use serde_json::Value;
use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

/// What is wrong with one of two hosts, or between them, and what the doctor says of it.
struct Fault {
    sentence: &'static str,
    adapters: &'static str,
    /// What host `b` does before it starts the agent, which is `"$@"`; by itself it starts nothing.
    on_b: &'static str,
    check: &'static str,
    says: &'static str,
    mends: &'static str,
}

const START: &str = "exec \"$@\"";

const SOUND: &str = "[[device]]\n[[device]]\n";

const PLAIN: Fault = Fault { sentence: "", adapters: SOUND, on_b: START, check: "", says: "", mends: "" };

static FAULTS: &[Fault] = &[
    Fault {
        sentence: "hosts in different partitions",
        adapters: "[[device]]\n[[device.port]]\npkeys = [0x8001]\n[[device]]\n[[device.port]]\npkeys = [0x8002]\n",
        check: "partition-keys",
        says: "a has 0x8001, and b has 0x8002",
        mends: "btl_ibex_pkey_index",
        ..PLAIN
    },
    Fault {
        sentence: "an mtu that differs between hosts",
        adapters: "[[device]]\n[[device]]\n[[device.port]]\nmtu = 2048\n",
        check: "mtu-of-hosts",
        says: "a has 4096, and b has 2048",
        mends: "the same MTU",
        ..PLAIN
    },
    Fault {
        sentence: "subnets that do not meet",
        adapters: "[[device]]\n[[device]]\n[[device.port]]\nsubnet_prefix = \"fe80:0000:0000:0007\"\n",
        check: "subnets",
        says: "b in 0xfe80000000000007",
        mends: "btl_ibex_if_include",
        ..PLAIN
    },
    Fault {
        sentence: "ports that no job would connect",
        adapters: "[[device]]\n[[device]]\n[[device.port]]\nsubnet_prefix = \"fe80:0000:0000:0007\"\n",
        check: "connection",
        says: "b has softhca1:1 with GID",
        mends: "subnet_prefix",
        ..PLAIN
    },
    Fault {
        sentence: "gids of different types",
        adapters: "[[device]]\nlink_layer = \"ethernet\"\n[[device.port]]\ngids = [\"10.0.0.1\"]\n\
                   [[device]]\nlink_layer = \"ethernet\"\n[[device.port]]\n\
                   gids = [{ gid = \"10.0.0.2\", index = 0, type = \"RoCE v1\" }]\n",
        check: "gid-types",
        says: "a has RoCE v2, and b has RoCE v1",
        mends: "btl_ibex_gid_index",
        ..PLAIN
    },
    Fault {
        sentence: "a fabric that connects nothing",
        adapters: "[[device]]\n[[device.port]]\nnetwork = \"one\"\n[[device]]\n[[device.port]]\nnetwork = \"other\"\n",
        check: "connection",
        says: "the connection to rank",
        mends: "cabled to one fabric",
        ..PLAIN
    },
    Fault {
        sentence: "a host whose packets are lost",
        adapters: "[[device]]\n[[device]]\n[[fault]]\naction = \"drop\"\ndevice = \"softhca1\"\nfraction = 1.0\n",
        check: "connection",
        says: "the connection to rank",
        mends: "cabled to one fabric",
        ..PLAIN
    },
    Fault {
        sentence: "a connection that breaks under long messages",
        adapters: "[[device]]\n[[device]]\n[[fault]]\naction = \"status\"\nstatus = \"RETRY_EXC_ERR\"\n\
                   device = \"softhca1\"\nnth = 30\ncount = 1\n",
        check: "connection",
        says: "short messages pass",
        mends: "btl_ibex_mtu",
        ..PLAIN
    },
    Fault {
        sentence: "retransmission counters that grow",
        adapters: "[[device]]\n[[device]]\n[[fault]]\naction = \"drop\"\ndevice = \"softhca1\"\nnth = 40\ncount = 1\n",
        check: "counters",
        says: "local_ack_timeout_err has grown by",
        mends: "flow control",
        ..PLAIN
    },
    Fault {
        sentence: "a port that cannot be opened",
        adapters: "[[device]]\n[[device]]\n[[fault]]\naction = \"registration-error\"\ndevice = \"softhca1\"\n",
        check: "port-open",
        says: "softhca1:1",
        mends: "as the message says",
        ..PLAIN
    },
    Fault {
        sentence: "a host that uses fewer ports",
        adapters: "[[device]]\n[[device.port]]\n[[device.port]]\n[[device]]\n",
        check: "rails",
        says: "a has 2, and b has 1",
        mends: "ibex info",
        ..PLAIN
    },
    Fault {
        sentence: "a host with a slow network",
        adapters: "[[device]]\n[[device]]\n[[device.port]]\nspeed = \"ddr\"\n",
        check: "rates-of-hosts",
        says: "a has 100000 Mb/s, and b has",
        mends: "cable",
        ..PLAIN
    },
    Fault {
        sentence: "a link of one lane",
        adapters: "[[device]]\n[[device]]\n[[device.port]]\nwidth = \"1x\"\n",
        check: "link",
        says: "one lane",
        mends: "cable",
        ..PLAIN
    },
    Fault {
        sentence: "a host with other parameters",
        on_b: "OMPI_MCA_btl_ibex_mtu=1024; export OMPI_MCA_btl_ibex_mtu; exec \"$@\"",
        check: "parameters",
        says: "b has btl_ibex_mtu=1024",
        mends: "mpirun --mca",
        ..PLAIN
    },
    Fault {
        sentence: "ports that are cabled crosswise",
        adapters: "[[device]]\n[[device.port]]\nnetwork = \"one\"\n[[device.port]]\nnetwork = \"other\"\n\
                   [[device]]\n[[device.port]]\nnetwork = \"other\"\n[[device.port]]\nnetwork = \"one\"\n",
        check: "cabling",
        says: "to which the order of ports pairs this one",
        mends: "cable all hosts alike",
        ..PLAIN
    },
    Fault {
        sentence: "a host without ibex",
        on_b: "exec sh -c \"$(printf %s \"$3\" | sed 's,exec ibex,exec /nowhere/ibex,')\"",
        check: "no-ibex",
        says: "has no ibex",
        mends: "cargo xtask install",
        ..PLAIN
    },
    Fault {
        sentence: "a host with another ibex",
        on_b: "\"$@\" | sed -u 's/\"ibex\":\"[0-9.]*\"/\"ibex\":\"0.0.1\"/'",
        check: "ibex-version",
        says: "b has 0.0.1",
        mends: "install the same ibex",
        ..PLAIN
    },
    Fault {
        sentence: "a host whose ibex knows no doctor's agent",
        on_b: "exec sh -c \"$(printf %s \"$3\" | sed 's/--agent/--facts-of-old/')\"",
        check: "ibex-version",
        says: "unexpected argument",
        mends: "install the same ibex",
        ..PLAIN
    },
    Fault {
        sentence: "a host with another open mpi",
        on_b: "\"$@\" | sed -u 's/\"version\":\"[0-9.]*\"/\"version\":\"4.0.0\"/'",
        check: "openmpi-version",
        says: "b has 4.0.0",
        mends: "install the same Open MPI",
        ..PLAIN
    },
    Fault {
        sentence: "a host whose key is not known",
        on_b: "echo 'Host key verification failed.' >&2; exit 255",
        check: "ssh",
        says: "does not know the host's key",
        mends: "ssh_known_hosts",
        ..PLAIN
    },
    Fault {
        sentence: "a host that lets nobody in",
        on_b: "echo 'b: Permission denied (publickey).' >&2; exit 255",
        check: "ssh",
        says: "Permission denied",
        mends: "ssh-copy-id b",
        ..PLAIN
    },
    Fault {
        sentence: "a host that hangs",
        on_b: "exec sleep 1000",
        check: "host",
        says: "it has not answered for",
        mends: "ssh -o BatchMode=yes b",
        ..PLAIN
    },
    Fault {
        sentence: "a host that is lost on the way",
        on_b: "\"$@\" | sed -u 1q",
        check: "host",
        says: "did not answer",
        mends: "ssh -o BatchMode=yes b",
        ..PLAIN
    },
    Fault {
        sentence: "too little locked memory of another host",
        on_b: "ulimit -l 8192; exec setpriv --bounding-set -ipc_lock \"$@\"",
        check: "locked-memory",
        says: "8192 KiB",
        mends: "memlock",
        ..PLAIN
    },
];

/// What is done to a node of two, and what the doctor says of it. `IFACE` stands for its network interface.
struct Change {
    sentence: &'static str,
    node: usize,
    does: &'static str,
    undo: &'static str,
    check: &'static str,
    says: &'static str,
}

static CHANGES: &[Change] = &[
    Change {
        sentence: "an mtu that differs",
        node: 1,
        does: "ip link set IFACE mtu 1500",
        undo: "ip link set IFACE mtu 9000",
        check: "mtu-of-hosts",
        says: "node0 has 4096, and node1 has 1024",
    },
    Change {
        // All but what starts processes there; a connection begins with SYN alone among its flags.
        sentence: "a firewall between handshakes",
        node: 1,
        does: "tc qdisc add dev IFACE ingress; \
               tc filter add dev IFACE ingress protocol ip prio 1 u32 \
               match ip protocol 6 0xff match ip dport 4790 0xffff action pass; \
               tc filter add dev IFACE ingress protocol ip prio 2 u32 \
               match ip protocol 6 0xff match u8 0x02 0x3f at 33 action drop",
        undo: "tc qdisc del dev IFACE ingress",
        check: "firewall",
        says: "node0 does not reach 192.168.77.2:",
    },
    Change {
        sentence: "a firewall that drops roce",
        node: 0,
        does: "tc qdisc add dev IFACE ingress; tc filter add dev IFACE ingress protocol ip u32 \
               match ip protocol 17 0xff match ip dport 4791 0xffff action drop",
        undo: "tc qdisc del dev IFACE ingress",
        check: "connection",
        says: "UDP port 4791",
    },
    Change {
        sentence: "a node whose adapter is gone",
        node: 1,
        does: "rdma link delete rxe0",
        undo: "rdma link add rxe0 type rxe netdev IFACE",
        check: "no-port",
        says: "no RDMA device on this host",
    },
];

/// The tests of this file.
pub(crate) fn tests() -> Vec<Test> {
    let faults = FAULTS.iter().map(|fault| {
        Test::on_emulated(format!("the doctor of two hosts finds {}", fault.sentence), move |site| {
            is_found(site, fault)
        })
    });
    let others = [
        Test::on_emulated("the doctor of two hosts finds nothing between sound ones", is_silent),
        Test::on_emulated("the doctor of two hosts finds a firewall between handshakes", firewall),
        Test::on_emulated("the doctor has every two of three hosts meet that mpirun starts", three),
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

/// The finding of this name that says this, as what was found or what to do; it must say all that a finding says.
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

/// A folder with an `ssh` that starts what it is told to start here; removed after it.
struct Shell(PathBuf);

impl Shell {
    fn new(on_a: &str, on_b: &str) -> Result<Self> {
        let folder = env::temp_dir().join(format!("ibex-doctor-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let shell = Shell(folder);
        // The words behind `--`: the host, and what its shell is to run; they become a command as `"$@"`.
        let script = format!(
            "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nhost=$2\nset -- sh -c \"$3\"\n\
             case $host in\na) {on_a} ;;\nb) {on_b} ;;\nesac\n"
        );
        let file = shell.0.join("ssh");
        fs::write(&file, script)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
        Ok(shell)
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // It lies in the folder for temporary files, where nobody is hurt by what stays.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the doctor of hosts, with what `a` and `b` do before they start the agent.
fn run(site: &mut Site, adapters: &str, (on_a, on_b): (&str, &str), arguments: &[&str]) -> Result<Outcome> {
    let command = env::var("IBEX_COMMAND").context("IBEX_COMMAND is not set; `cargo xtask test` does it")?;
    let components = format!("{}:SYSTEM_DEFAULT", site.components().display());
    let shell = Shell::new(on_a, on_b)?;
    let path = format!("{}:{}", shell.0.display(), env::var("PATH").unwrap_or_default());
    let words = [command.as_str(), "doctor", "--watch", "0.5"].into_iter().chain(arguments.iter().copied());
    let job = Job::new(words)
        .env("OMPI_MCA_mca_base_component_path", components)
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("PATH", path);
    let fabric = site.fabric_on(adapters)?;
    let outcome = fabric.run(&job)?;
    faults_applied(fabric, adapters, &outcome)?;
    Ok(outcome)
}

/// Each host has an adapter of its own.
fn with_adapter(device: &str, does: &str) -> String {
    format!("export OMPI_MCA_btl_ibex_if_include=${{OMPI_MCA_btl_ibex_if_include:-{device}}}; {does}")
}

fn is_found(site: &mut Site, fault: &Fault) -> Result<()> {
    let hosts = (with_adapter("softhca0", START), with_adapter("softhca1", fault.on_b));
    let arguments = ["--host", "a,b", "--launch", "ssh", "--patience", "8", "--json"];
    let outcome = run(site, fault.adapters, (&hosts.0, &hosts.1), &arguments)?;
    ensure!(outcome.status() == 1, "the exit status is {}, and not 1: {outcome}", outcome.status());
    let finding = finding(&outcome, fault.check, fault.says)?;
    ensure!(finding["mend"].to_string().contains(fault.mends), "{} is not said: {finding}", fault.mends);
    Ok(())
}

fn is_silent(site: &mut Site) -> Result<()> {
    let hosts = (with_adapter("softhca0", START), with_adapter("softhca1", START));
    let arguments = ["--host", "a,b", "--launch", "ssh"];
    let outcome = run(site, SOUND, (&hosts.0, &hosts.1), &arguments)?.checked()?;
    let silent = "1 connected pair of ports.\nNothing is wrong with 2 hosts.\n";
    ensure!(outcome.stdout == silent, "something was found: {outcome}");
    Ok(())
}

/// A network of its own for `b`, from which nothing leads to `a`: adapters reach each other, TCP does not.
fn firewall(site: &mut Site) -> Result<()> {
    let apart = "unshare -n sh -c 'ip link set lo up && ip addr add 192.0.2.77/32 dev lo && exec \"$@\"' sh";
    let trial = Job::new(["sh", "-c", &format!("{apart} true")]);
    if !site.fabric_on(SOUND)?.run(&trial)?.success() {
        site.skip("the doctor finds a firewall", "a network of its own needs root, and the program ip");
        return Ok(());
    }
    let hosts = (with_adapter("softhca0", START), with_adapter("softhca1", &format!("exec {apart} \"$@\"")));
    let arguments = ["--host", "a,b", "--launch", "ssh", "--json"];
    let outcome = run(site, SOUND, (&hosts.0, &hosts.1), &arguments)?;
    let finding = finding(&outcome, "firewall", "a does not reach 192.0.2.77:")?;
    ensure!(finding["mend"].to_string().contains("ip_local_port_range"), "{finding}");
    Ok(())
}

fn three(site: &mut Site) -> Result<()> {
    let arguments = ["--host", "localhost,localhost,localhost", "--launch", "mpirun", "--json"];
    let outcome = run(site, SOUND, (START, START), &arguments)?.checked()?;
    let found: Value = serde_json::from_str(&outcome.stdout)?;
    let connections = found["connections"].as_array().context("no connections")?;
    // Each host has two ports.
    ensure!(connections.len() == 6, "{} connections: {outcome}", connections.len());
    ensure!(connections.iter().all(|each| each["milliseconds"].is_number() && each["failure"].is_null()), "{outcome}");
    Ok(())
}

/// The doctor of both nodes, which mpirun starts.
fn on_two_nodes(site: &mut Site) -> Result<Outcome> {
    let command = env::var("IBEX_COMMAND").context("IBEX_COMMAND is not set; `cargo xtask test` does it")?;
    let components = format!("{}:SYSTEM_DEFAULT", site.components().display());
    let words = ["doctor", "--host", "node0,node1", "--launch", "mpirun", "--patience", "240", "--json"];
    let job = Job::new([command.as_str()].into_iter().chain(words));
    let job = job.env("OMPI_MCA_mca_base_component_path", components).limit(Duration::from_mins(15));
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
