// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fabric: one or two nodes with an RDMA device, in which jobs run.
//!
//! The face of this crate, for tests, benches and commands. On [`Device::SoftRoce`] the nodes are virtual machines,
//! booted by [`Fabric::open`] and ended when it is dropped or this program ends in any way; on [`Device::Local`] and
//! [`Device::SoftHca`], of whatever profile, the one node is this machine, where a process of our own runs the jobs.
//! Setup grade; a fabric may be shared between threads, and jobs may overlap. Tests: at the end of this file, and the
//! device tests of this package.
//!
//! Packets are lost or filtered with the tools of the guest; the kernel loads what they need by itself. Only what
//! crosses between two nodes can be lost: within one node rxe hands packets over without a network.
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

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::channel::Channel;
use crate::device::{self, Device};
use crate::job::{Job, Outcome, Stream};
use crate::pace;
use crate::programs;
use crate::running::Running;
use crate::vm::{self, boot};
use crate::wire;

/// The configuration of the usual emulated adapters: two, so that there is something to stripe over.
const TWO_RAILS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../softhca/two-rails.toml");

/// Options of a fabric.
#[derive(Clone, Debug)]
pub struct Options {
    /// One or two.
    pub nodes: usize,
    /// The configuration file of the emulated adapters (docs/softhca.md); two InfiniBand adapters where `None`.
    pub adapters: Option<PathBuf>,
}

impl Options {
    /// The usual fabric of so many nodes.
    #[must_use]
    pub fn new(nodes: usize) -> Self {
        Self { nodes, adapters: None }
    }
}

/// Nodes with an RDMA device.
pub struct Fabric {
    /// At least one.
    devices: Vec<String>,
    interface: String,
    /// To the agents, by node.
    channels: Vec<Channel>,
    keeper: Keeper,
    /// The command of the adapters, if they are emulated.
    softhca: Option<PathBuf>,
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
    /// No such device on this machine, a number of nodes it cannot have, a missing program, or guests that do not come
    /// up.
    pub fn open_with(device: &Device, options: &Options) -> anyhow::Result<Self> {
        let nodes = if *device == Device::SoftRoce { 1..=2 } else { 1..=1 };
        ensure!(
            nodes.contains(&options.nodes),
            "the device {device} makes a fabric of {}, not of {}",
            if nodes.contains(&2) { "one or two nodes" } else { "one node" },
            options.nodes
        );
        match device {
            Device::Local(name) => {
                let interface = device::local_interface(name)?.unwrap_or_default();
                Self::local(Command::new(programs::agent()?), vec![name.clone()], interface, None)
            }
            Device::SoftHca | Device::SoftHcaAs(_) => {
                let softhca = programs::softhca()?;
                let adapters = options.adapters.as_deref().unwrap_or(Path::new(TWO_RAILS));
                // What runs under `softhca run` finds the emulated library, and so does all that the agent starts.
                let mut command = Command::new(&softhca);
                command.arg("run").arg("--config").arg(adapters).args(profile_of(device));
                command.arg("--").arg(programs::agent()?);
                let devices = emulated(&softhca, device, adapters)?;
                Self::local(command, devices, "lo".to_owned(), Some(softhca))
            }
            Device::SoftRoce => {
                let machines = vm::open::open(options, &programs::agent()?)?;
                Ok(Self {
                    devices: vec![vm::DEVICE.to_owned()],
                    interface: vm::INTERFACE.to_owned(),
                    channels: machines.channels.clone(),
                    keeper: Keeper::Virtual(machines),
                    softhca: None,
                })
            }
        }
    }

    /// A fabric of this machine, whose jobs the agent runs that `command` starts.
    fn local(
        command: Command,
        devices: Vec<String>,
        interface: String,
        softhca: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        let (agent, channel) = LocalAgent::start(command)?;
        Ok(Self { devices, interface, channels: vec![channel], keeper: Keeper::Local { _agent: agent }, softhca })
    }

    /// Gives emulated adapters a command (`softhca ctl`), also while a job runs, and returns what it printed. It is in
    /// force then.
    ///
    /// # Errors
    /// The adapters are not emulated, or the command was not carried out.
    pub fn ctl(&self, words: &[&str]) -> anyhow::Result<String> {
        let softhca = self.softhca.as_ref().context("only emulated adapters take commands")?.display().to_string();
        let words = [&softhca, "ctl"].into_iter().chain(words.iter().copied());
        Ok(self.run(&Job::new(words))?.checked()?.stdout)
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
        let mut job = job.clone();
        if self.is_virtual() {
            // A guest does not see who keeps its machine from running.
            job.limit *= pace::crowding();
        }
        let Some(channel) = self.channels.get(job.node) else {
            bail!("there is no node {}; this fabric has {}", job.node, self.channels.len());
        };
        channel.start(&job).map_err(|error| self.explained(error))
    }

    /// How many nodes there are.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.channels.len()
    }

    /// The RDMA device's name in the nodes; of several, the first.
    #[must_use]
    pub fn device_name(&self) -> &str {
        &self.devices[0]
    }

    /// The names of all RDMA devices that are the fabric's: emulated adapters may be several.
    #[must_use]
    pub fn device_names(&self) -> &[String] {
        &self.devices
    }

    /// The network interface of the RDMA device in the nodes (for the tcp BTL); empty where a local device has none.
    #[must_use]
    pub fn interface(&self) -> &str {
        &self.interface
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

/// The agent of a device of this machine, the process that runs the jobs of its one node. A process of its own, so that
/// the jobs end when the program that wanted them is killed, and so that on emulated adapters it and all it starts can
/// run under `softhca run`.
struct LocalAgent {
    process: Child,
    channel: Channel,
}

impl LocalAgent {
    /// Starts the agent: what `command` runs, with the words that make it one.
    fn start(mut command: Command) -> anyhow::Result<(Self, Channel)> {
        // Its own process group: a Ctrl-C for this program must not end it before it has ended the jobs.
        command.arg("local").stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut process = command.spawn().with_context(|| format!("start {}", command.get_program().display()))?;
        let output = process.stdin.take().context("take the agent's input")?;
        let input = process.stdout.take().context("take the agent's output")?;
        let channel = Channel::over(wire::read(input), output)?;
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

/// The words that give emulated adapters their profile.
fn profile_of(device: &Device) -> impl Iterator<Item = &str> {
    device.profile().into_iter().flat_map(|profile| ["--profile", profile])
}

/// The adapters that a configuration file describes, by name.
fn emulated(softhca: &Path, device: &Device, adapters: &Path) -> anyhow::Result<Vec<String>> {
    let output = Command::new(softhca).arg("check").args(profile_of(device)).arg(adapters).output();
    let output = output.with_context(|| format!("cannot start {}", softhca.display()))?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    let text = String::from_utf8_lossy(&output.stdout);
    let names: Vec<String> =
        text.lines().filter_map(|line| line.split_once(": guid ")).map(|(name, _)| name.to_owned()).collect();
    if names.is_empty() {
        bail!("`softhca check {}` names no adapter: {text}", adapters.display());
    }
    Ok(names)
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
    fn two_nodes_are_refused_on_a_device_of_this_machine_and_on_emulated_ones() {
        for device in [Device::Local("mlx5_0".to_owned()), Device::SoftHca, Device::SoftHcaAs("mlx5".to_owned())] {
            let refusal = Fabric::open(&device, 2).err().unwrap().to_string();
            assert!(refusal.contains("one node") && refusal.contains(&device.to_string()), "{refusal}");
        }
    }

    #[test]
    fn three_nodes_are_refused_on_soft_roce() {
        let refusal = Fabric::open(&Device::SoftRoce, 3).err().unwrap().to_string();
        assert!(refusal.contains("one or two"), "{refusal}");
    }
}
