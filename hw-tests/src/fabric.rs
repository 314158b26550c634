// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fabric: one or two nodes with an RDMA device, in which jobs run.
//!
//! The interface of this crate for tests, benches and commands. On [`Device::SoftRoce`] the nodes are virtual machines,
//! booted by [`Fabric::open`] and ended when it is dropped or this program ends in any way; on other devices the one
//! node is this machine. Setup grade; threads may share a fabric, and jobs may overlap. Tests: at the end of this file,
//! and the device tests of this package.
//!
//! The guest's own tools lose or filter packets, but only between two nodes: within one node rxe uses no network.
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
use ibex_jobs::{Job, Outcome, Running, Stream, crowding};

use crate::channel::Channel;
use crate::device::{self, Device};
use crate::folder::Folder;
use crate::programs;
use crate::vm::{self, boot};
use crate::wire;

// Two, so that there are rails to stripe over.
const TWO_RAILS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../softhca/two-rails.toml");

/// Options of a fabric.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of nodes, 1 or 2.
    pub nodes: usize,
    /// Path of the configuration of the emulated adapters (docs/softhca.md); `None`: two InfiniBand adapters.
    pub adapters: Option<PathBuf>,
}

impl Options {
    /// Returns the options of the usual fabric, with this number of nodes.
    pub fn new(nodes: usize) -> Self {
        Self { nodes, adapters: None }
    }
}

/// Nodes with an RDMA device.
pub struct Fabric {
    /// Names, at least one.
    devices: Vec<String>,
    interface: String,
    /// Channels to the agents, by node.
    channels: Vec<Channel>,
    keeper: Keeper,
    /// Path of the command `softhca`, if the adapters are emulated.
    softhca: Option<PathBuf>,
}

/// Owner of the processes that end with the fabric.
enum Keeper {
    Local { _agent: LocalAgent, _temporary: Folder },
    Virtual(boot::Machines),
}

impl Fabric {
    /// Opens the usual fabric; see [`Options::new`].
    ///
    /// # Errors
    /// As [`Fabric::open_with`].
    pub fn open(device: &Device, nodes: usize) -> anyhow::Result<Self> {
        Self::open_with(device, &Options::new(nodes))
    }

    /// Opens a fabric and boots its virtual machines (some seconds; the first time it downloads a kernel).
    ///
    /// # Errors
    /// The machine lacks the device or a program, the device cannot have so many nodes, or a guest does not come up.
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
                // The agent and all processes that it starts find the emulated library by `softhca run`.
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

    fn local(
        mut command: Command,
        devices: Vec<String>,
        interface: String,
        softhca: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        // Open MPI keeps folders of sessions there, and removes those of other fabrics' jobs with its own.
        let temporary = Folder::new("ibex-fabric")?;
        command.env("TMPDIR", temporary.path());
        let (agent, channel) = LocalAgent::start(command)?;
        let keeper = Keeper::Local { _agent: agent, _temporary: temporary };
        Ok(Self { devices, interface, channels: vec![channel], keeper, softhca })
    }

    /// Gives emulated adapters a command (`softhca ctl`), in force on return, and returns what the command printed.
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
            // A guest cannot see which processes of the host keep it from running.
            job.limit *= crowding();
        }
        let Some(channel) = self.channels.get(job.node) else {
            bail!("there is no node {}; this fabric has {}", job.node, self.channels.len());
        };
        channel.start(&job).map_err(|error| self.explained(error))
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> usize {
        self.channels.len()
    }

    /// Returns the name of the RDMA device in the nodes, or of the first one.
    pub fn device_name(&self) -> &str {
        &self.devices[0]
    }

    /// Returns the names of all RDMA devices of the fabric.
    pub fn device_names(&self) -> &[String] {
        &self.devices
    }

    /// Returns the network interface of the RDMA device, for the tcp BTL; empty if a local device has none.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Returns the host name of a node, as `mpirun --host` takes it.
    pub fn host_name(&self, node: usize) -> String {
        if self.is_virtual() { vm::host_name(node) } else { "localhost".to_owned() }
    }

    /// Whether the nodes are virtual machines.
    pub fn is_virtual(&self) -> bool {
        matches!(self.keeper, Keeper::Virtual(_))
    }

    /// Whether all nodes still answer.
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

/// The agent of a device of this machine. It is a process of its own, so that its jobs end when the program that
/// started them is killed, and so that it can run them under `softhca run`.
struct LocalAgent {
    process: Child,
    channel: Channel,
}

impl LocalAgent {
    fn start(mut command: Command) -> anyhow::Result<(Self, Channel)> {
        // Its own process group: a Ctrl-C for this program must not end the agent before it has ended the jobs.
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
        // `stop` fails only if the agent has ended; the agent ends its jobs in bounded time.
        let _ = self.channel.stop();
        let _ = self.process.wait();
    }
}

fn profile_of(device: &Device) -> impl Iterator<Item = &str> {
    device.profile().into_iter().flat_map(|profile| ["--profile", profile])
}

/// Returns the names of the adapters that a configuration file describes.
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
