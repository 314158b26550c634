// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fabric: one or two nodes with an RDMA device, in which jobs run.
//!
//! The face of this crate, for tests, benches and commands. On [`Device::SoftRoce`] the nodes are virtual machines, booted by
//! [`Fabric::open`] and ended when it is dropped or this program ends in any way; on [`Device::Local`] the one node is this
//! machine, where a process of our own runs the jobs. Setup grade; a fabric may be shared between threads, and jobs may overlap. Tests: at the end of this file, and the
//! device tests of this package.
//!
//! Packets are lost or filtered with the tools of the guest; the kernel loads what they need by itself. Only what crosses
//! between two nodes can be lost: within one node rxe hands packets over without a network.
//!
//! ```no_run
//! # use hw_tests::{Device, Fabric, Job};
//! let fabric = Fabric::open(&Device::SoftRoce, 2)?;
//! let tc = |words: &str| fabric.run(&Job::new(words.split(' '))).and_then(hw_tests::Outcome::checked);
//! // Lose 5 % of all that node 0 sends:
//! tc("tc qdisc add dev eth0 root netem loss 5%")?;
//! tc("tc qdisc del dev eth0 root")?;
//! // Lose all RoCE packets (UDP port 4791) that arrive at node 0, and nothing else:
//! tc("tc qdisc add dev eth0 ingress")?;
//! tc("tc filter add dev eth0 ingress protocol ip u32 match ip protocol 17 0xff match ip dport 4791 0xffff action drop")?;
//! tc("tc qdisc del dev eth0 ingress")?;
//! # Ok::<(), anyhow::Error>(())
//! ```

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Sender};

use anyhow::{Context, bail};

use crate::channel::Channel;
use crate::device::{self, Device};
use crate::job::{Job, Outcome, Running, Stream};
use crate::process::Kill;
use crate::vm::{self, accelerator, boot, kernel};

/// The configuration of the emulated adapters that a fabric has: two, so that there is something to stripe over.
const TWO_RAILS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/softhca/two-rails.toml");

/// Names the folder for the kernel and what is known of this machine, instead of `soft-roce` in the target folder.
pub const CACHE_VARIABLE: &str = "FABRIC_CACHE";
/// Names the agent's program, instead of `fabric-agent` beside the running program.
pub const AGENT_VARIABLE: &str = "FABRIC_AGENT";

/// How a fabric is made. The processors, memory and cache matter to virtual machines only.
#[derive(Clone, Debug)]
pub struct Options {
    /// One or two.
    pub nodes: usize,
    /// Processors of each node. With one, a loop that polls starves the kernel's part of soft-RoCE.
    pub cpus: usize,
    /// Memory of each node in MiB; bounded by three quarters of this machine's, shared between the nodes. Used when touched.
    pub memory: u64,
    /// See [`CACHE_VARIABLE`].
    pub cache: PathBuf,
    /// See [`AGENT_VARIABLE`]; built with cargo where `None` and not found.
    pub agent: Option<PathBuf>,
    /// Called with what takes long.
    pub say: fn(&str),
}

impl Options {
    /// The usual fabric of so many nodes: one node has memory for two ranks with a message over 2 GiB.
    #[must_use]
    pub fn new(nodes: usize) -> Self {
        let memory = if nodes == 1 { 10 << 10 } else { 4 << 10 };
        Self { nodes, cpus: 2, memory, cache: default_cache(), agent: None, say: |text| eprintln!("{text}") }
    }
}

/// Nodes with an RDMA device.
pub struct Fabric {
    device_name: String,
    interface: String,
    /// To the agents, by node.
    channels: Vec<Channel>,
    keeper: Keeper,
}

/// What ends with the fabric.
enum Keeper {
    /// The agent of this machine.
    Local { _agent: LocalAgent },
    /// The virtual machines.
    Virtual(boot::Machines),
}

impl Fabric {
    /// Opens the usual fabric; see [`Options::new`].
    ///
    /// # Errors
    /// Those of [`Fabric::open_with`].
    pub fn open(device: &Device, nodes: usize) -> anyhow::Result<Self> {
        Self::open_with(device, &Options::new(nodes))
    }

    /// Opens a fabric; boots where it is virtual (some seconds; the first time a kernel is downloaded).
    ///
    /// # Errors
    /// No such device on this machine, a number of nodes it cannot have, a missing program, or guests that do not come up.
    pub fn open_with(device: &Device, options: &Options) -> anyhow::Result<Self> {
        match device {
            Device::Local(name) => {
                if options.nodes != 1 {
                    bail!("the device {name} of this machine makes a fabric of one node, not of {}", options.nodes);
                }
                let interface = device::local_interface(name)?.unwrap_or_default();
                Self::local(Command::new(agent_of(options)?), name.clone(), interface)
            }
            Device::SoftHca => {
                if options.nodes != 1 {
                    bail!("the emulated adapters make a fabric of one node, not of {}", options.nodes);
                }
                // What runs under `softhca run` finds the emulated library, and so does all that the agent starts.
                let mut command = Command::new(find_softhca(options.say)?);
                command.arg("run").arg("--config").arg(TWO_RAILS).arg("--").arg(agent_of(options)?);
                Self::local(command, "softhca0".to_owned(), "lo".to_owned())
            }
            Device::SoftRoce => {
                if !(1..=2).contains(&options.nodes) {
                    bail!("soft-RoCE makes a fabric of one or two nodes, not of {}", options.nodes);
                }
                let machines = open_virtual(options)?;
                Ok(Self {
                    device_name: vm::DEVICE.to_owned(),
                    interface: vm::INTERFACE.to_owned(),
                    channels: machines.channels.clone(),
                    keeper: Keeper::Virtual(machines),
                })
            }
        }
    }

    /// A fabric of this machine, whose jobs the agent runs that `command` starts.
    fn local(command: Command, device_name: String, interface: String) -> anyhow::Result<Self> {
        let (agent, channel) = LocalAgent::start(command)?;
        Ok(Self { device_name, interface, channels: vec![channel], keeper: Keeper::Local { _agent: agent } })
    }

    /// Runs a job to its end.
    ///
    /// # Errors
    /// There is no such node, or it is gone. A job that fails is an [`Outcome`].
    pub fn run(&self, job: &Job) -> anyhow::Result<Outcome> {
        self.run_with(job, |_, _| {})
    }

    /// Runs a job to its end and calls `line` with each line it prints, as it comes.
    ///
    /// # Errors
    /// As [`Fabric::run`].
    pub fn run_with(&self, job: &Job, line: impl FnMut(Stream, &str)) -> anyhow::Result<Outcome> {
        self.spawn(job)?.wait_with(line).map_err(|error| self.explained(error))
    }

    /// Starts a job; others may run beside it.
    ///
    /// # Errors
    /// There is no such node, or it is gone.
    pub fn spawn(&self, job: &Job) -> anyhow::Result<Running> {
        let (sender, events) = mpsc::channel();
        let kill = self.start(job, sender)?;
        Ok(Running::new(job, events, kill))
    }

    /// Starts a job whose events go to `events`; the returned function kills it.
    pub(crate) fn start(&self, job: &Job, events: Sender<crate::job::Event>) -> anyhow::Result<Kill> {
        let Some(channel) = self.channels.get(job.node) else {
            bail!("there is no node {}; this fabric has {}", job.node, self.channels.len());
        };
        channel.start_for(job, events).map_err(|error| self.explained(error))
    }

    /// Makes the nodes see what has changed on this machine since they booted, such as a program that was built anew.
    ///
    /// Only what no job in a node uses at the moment is seen anew.
    ///
    /// # Errors
    /// A node is gone.
    pub fn refresh(&self) -> anyhow::Result<()> {
        if self.is_virtual() {
            for node in 0..self.nodes() {
                let drop = Job::new(["sh", "-c", "echo 3 > /proc/sys/vm/drop_caches"]);
                self.run(&drop.on(node))?.checked()?;
            }
        }
        Ok(())
    }

    /// How many nodes there are.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.channels.len()
    }

    /// The RDMA device's name in the nodes.
    #[must_use]
    pub fn device_name(&self) -> &str {
        &self.device_name
    }

    /// The network interface of the RDMA device in the nodes (for the tcp BTL); empty where a local device has none.
    #[must_use]
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Where the other node, and its own, reach a node: an IPv4 address of the fabric, or `localhost` on a local device.
    #[must_use]
    pub fn address(&self, node: usize) -> String {
        if self.is_virtual() { vm::address(node) } else { "localhost".to_owned() }
    }

    /// A node's host name, as `mpirun --host` takes it.
    #[must_use]
    pub fn host_name(&self, node: usize) -> String {
        if self.is_virtual() { vm::host_name(node) } else { "localhost".to_owned() }
    }

    /// Whether the nodes are virtual machines.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        matches!(self.keeper, Keeper::Virtual(_))
    }

    /// Whether all nodes still answer.
    #[must_use]
    pub fn alive(&self) -> bool {
        !self.channels.iter().any(Channel::ended)
    }

    fn explained(&self, error: anyhow::Error) -> anyhow::Error {
        match &self.keeper {
            Keeper::Local { .. } => error,
            Keeper::Virtual(machines) => error.context(format!("soft-RoCE failed{}", machines.consoles())),
        }
    }
}

/// The agent that runs the jobs of a local device. A process of its own, it also ends them when this program is killed.
struct LocalAgent {
    process: Child,
    channel: Channel,
}

impl LocalAgent {
    fn start(mut command: Command) -> anyhow::Result<(Self, Channel)> {
        // Its own process group: a Ctrl-C for this program must not end it before it has ended the jobs.
        command.arg("local").stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut process = command.spawn().with_context(|| format!("start {}", command.get_program().display()))?;
        let output = process.stdin.take().context("take the agent's input")?;
        let input = process.stdout.take().context("take the agent's output")?;
        let channel = Channel::over(input, output)?;
        Ok((Self { process, channel: channel.clone() }, channel))
    }
}

impl Drop for LocalAgent {
    fn drop(&mut self) {
        // It fails only where the agent has ended; ending the jobs takes it a bounded time.
        let _ = self.channel.stop();
        let _ = self.process.wait();
    }
}

fn open_virtual(options: &Options) -> anyhow::Result<boot::Machines> {
    for (program, package) in [
        (accelerator::QEMU, "qemu-system-x86"),
        (vm::image::BUSYBOX, "busybox-static"),
        ("ip", "iproute2"),
        ("depmod", "kmod"),
    ] {
        if !is_there(program) {
            bail!("soft-RoCE needs the program {program}; install it: apt-get install {package}");
        }
    }
    let agent = agent_of(options)?;
    let kernel = kernel::obtain(&options.cache, &options.say)?;
    let memory = options.memory.min(memory_of_machine() * 3 / 4 / options.nodes as u64);
    let candidates = accelerator::candidates(&options.cache)?;
    let mut failure = None;
    for accelerator in candidates {
        let nodes = options.nodes;
        let plan = boot::Plan { kernel: &kernel, agent: &agent, nodes, cpus: options.cpus, memory, accelerator };
        match boot::boot(&plan) {
            Ok(machines) => {
                if failure.is_some() || accelerator == accelerator::Accelerator::Kvm {
                    accelerator::remember(&options.cache, accelerator)?;
                }
                return Ok(machines);
            }
            Err(error) => {
                if accelerator == accelerator::Accelerator::Kvm {
                    (options.say)("soft-RoCE: no guest comes up with KVM on this machine; translating instead");
                }
                failure = Some(error);
            }
        }
    }
    Err(failure.unwrap_or_else(|| anyhow::anyhow!("there is no way to run a virtual machine")))
}

fn is_there(program: &str) -> bool {
    if program.starts_with('/') {
        return Path::new(program).exists();
    }
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':').chain(vm::SYSTEM_PATH.split(':')).any(|folder| Path::new(folder).join(program).exists())
}

/// This machine's memory in MiB.
fn memory_of_machine() -> u64 {
    let information = rustix::system::sysinfo();
    (information.totalram as u64).saturating_mul(u64::from(information.mem_unit)) >> 20
}

fn default_cache() -> PathBuf {
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let target = || of("CARGO_TARGET_DIR").unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"));
    let cache = of(CACHE_VARIABLE).unwrap_or_else(|| target().join("soft-roce"));
    // The guest, and tools run in other folders, need it from the root on; where it does not exist yet, it will.
    let made = fs::create_dir_all(&cache).and_then(|()| cache.canonicalize());
    made.unwrap_or(cache)
}

fn agent_of(options: &Options) -> anyhow::Result<PathBuf> {
    options.agent.clone().map_or_else(|| find_agent(options.say), Ok)
}

/// The agent's program: named by the environment, beside this program (or beside its `deps` folder), or built now.
fn find_agent(say: fn(&str)) -> anyhow::Result<PathBuf> {
    if let Some(named) = std::env::var_os(AGENT_VARIABLE).filter(|value| !value.is_empty()) {
        return PathBuf::from(&named)
            .canonicalize()
            .with_context(|| format!("{AGENT_VARIABLE} is {}", named.display()));
    }
    let program = std::env::current_exe().context("find this program's folder")?;
    let folders = program.ancestors().skip(1).take(2);
    if let Some(agent) = folders.map(|folder| folder.join("fabric-agent")).find(|file| file.is_file()) {
        return Ok(agent);
    }
    say("building fabric-agent");
    let (folder, target) = build_folders(&program)?;
    let profile = if folder.ends_with("release") { "release" } else { "dev" };
    build("ibex-hw-tests", "fabric-agent", profile, target)?;
    built(folder.join("fabric-agent"), "ibex-hw-tests")
}

/// The program `softhca`, beside its library; optimised in the dev profile too, as the workspace says.
fn find_softhca(say: fn(&str)) -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("find this program's folder")?;
    let (_, target) = build_folders(&program)?;
    say("building softhca");
    build("softhca", "softhca", "dev", target)?;
    built(target.join("debug/softhca"), "softhca")
}

/// The folder of build outputs that this program lies in, and the target folder.
fn build_folders(program: &Path) -> anyhow::Result<(&Path, &Path)> {
    let folder =
        program.parent().filter(|folder| !folder.ends_with("deps")).or(program.parent().and_then(Path::parent));
    let folder = folder.context("find the folder of build outputs")?;
    Ok((folder, folder.parent().context("find the target folder")?))
}

/// Has cargo build a program of this workspace; nothing to do where it is new.
fn build(package: &str, program: &str, profile: &str, target: &Path) -> anyhow::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args([
        "build",
        "--quiet",
        "--package",
        package,
        "--bin",
        program,
        "--lib",
        "--profile",
        profile,
        "--target-dir",
    ]);
    let status = build.arg(target).current_dir(env!("CARGO_MANIFEST_DIR")).status();
    let status = status.with_context(|| format!("run cargo to build {program}"))?;
    if !status.success() {
        bail!("cargo did not build {program}; try `cargo build -p {package}`");
    }
    Ok(())
}

fn built(program: PathBuf, package: &str) -> anyhow::Result<PathBuf> {
    if !program.is_file() {
        bail!("cargo built no {}; try `cargo build -p {package}`", program.display());
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_device_that_is_not_there_is_refused_before_anything_runs() {
        let refusal = Fabric::open(&Device::Local("no_such_device_0".to_owned()), 1).err().unwrap().to_string();
        assert!(refusal.contains("no_such_device_0"), "{refusal}");
    }

    #[test]
    fn two_nodes_are_refused_on_a_local_device() {
        let refusal = Fabric::open(&Device::Local("mlx5_0".to_owned()), 2).err().unwrap().to_string();
        assert!(refusal.contains("one node"), "{refusal}");
    }

    #[test]
    fn three_nodes_are_refused_on_soft_roce() {
        let refusal = Fabric::open(&Device::SoftRoce, 3).err().unwrap().to_string();
        assert!(refusal.contains("one or two"), "{refusal}");
    }
}
