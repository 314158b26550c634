// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts QEMU for each node, waits for the agents, and ends QEMU whatever happens.
//!
//! Called by [`super::open`]. Setup grade. A thread owns each QEMU, which the kernel kills when that thread ends
//! (`setpriv --pdeathsig`), so it cannot outlive this program, and QEMU connects to a socket of this program, so it
//! does not start without it. A boot removes the folders (sockets, consoles, archives) that killed programs left.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ibex_jobs::crowding;

use super::accelerator::{self, Accelerator, QEMU};
use super::image::{Settings, initramfs};
use super::kernel::Kernel;
use crate::agent::PORT_NAME;
use crate::channel::{Channel, await_hello};
use crate::{Folder, wire};

/// Beginning of the name of a boot's folder, before the number of the process.
const FOLDER: &str = "ibex-fabric";
/// `noreplace-smp`: `init.sh` starts the other processors late (it says why), so the kernel must not replace its locks
/// as if there were one processor. `tsc=reliable`: a kernel that finds its clock unsteady, as on a busy machine,
/// patches itself while it runs, which the translator gets wrong.
const KERNEL_OPTIONS: &str =
    "console=ttyS0 quiet mitigations=off panic=-1 random.trust_cpu=on maxcpus=1 noreplace-smp tsc=reliable";
/// Processors of each node. With one, a polling loop starves the kernel's part of soft-RoCE.
const CPUS: &str = "2";
/// Number of attempts to boot under the translator: see `init.sh`.
const ATTEMPTS: usize = 3;
/// Pause between two checks of a condition that a thread can only poll.
const TICK: Duration = Duration::from_millis(20);

pub(crate) struct Plan<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) agent: &'a Path,
    pub(crate) nodes: usize,
    /// Memory of each node, in MiB.
    pub(crate) memory: u64,
    pub(crate) accelerator: Accelerator,
}

/// The booted nodes; dropping them ends them.
pub(crate) struct Machines {
    pub(crate) channels: Vec<Channel>,
    // Declared before `folder`, so that QEMU ends before its folder is removed.
    owners: Vec<Machine>,
    folder: Folder,
}

impl Machines {
    /// Returns the last lines that the guests wrote to their consoles.
    pub(crate) fn consoles(&self) -> String {
        (0..self.owners.len()).map(|node| trouble_of(&self.folder, node)).collect()
    }
}

pub(crate) fn boot(plan: &Plan) -> anyhow::Result<Machines> {
    let mut attempt = 1;
    loop {
        match boot_once(plan) {
            // Only the translator fails by chance.
            Err(_) if plan.accelerator == Accelerator::Tcg && attempt < ATTEMPTS => attempt += 1,
            result => return result,
        }
    }
}

fn boot_once(plan: &Plan) -> anyhow::Result<Machines> {
    remove_left_ones(&std::env::temp_dir());
    let folder = Folder::new(FOLDER)?;
    let deadline = Instant::now() + plan.accelerator.boot_limit() * crowding();
    let mut machines = Vec::new();
    let mut listeners = Vec::new();
    for node in 0..plan.nodes {
        let listener = UnixListener::bind(file(&folder, node, "agent")).context("listen for the guest's agent")?;
        listener.set_nonblocking(true).context("listen without waiting")?;
        listeners.push(listener);
        let settings =
            Settings { node, nodes: plan.nodes, agent: plan.agent.to_owned(), modules: plan.kernel.modules.clone() };
        fs::write(file(&folder, node, "initramfs"), initramfs(&settings)?)
            .context("write the guest's first file system")?;
        if node > 0 {
            await_file(&file(&folder, 0, "net"), &machines, deadline).with_context(|| trouble_of(&folder, 0))?;
        }
        machines.push(Machine::start(plan, node, &folder)?);
    }
    let mut channels = Vec::new();
    for (node, listener) in listeners.iter().enumerate() {
        let channel = await_agent(listener, &machines[node], deadline).with_context(|| {
            format!(
                "the virtual machine of node {node} did not come up with {}{}",
                plan.accelerator,
                trouble_of(&folder, node)
            )
        })?;
        channels.push(channel);
    }
    Ok(Machines { channels, owners: machines, folder })
}

fn await_file(file: &Path, machines: &[Machine], deadline: Instant) -> anyhow::Result<()> {
    while !file.exists() {
        if machines.iter().any(Machine::ended) {
            bail!("QEMU ended");
        }
        if Instant::now() >= deadline {
            bail!("QEMU did not make {}", file.display());
        }
        thread::sleep(TICK);
    }
    Ok(())
}

fn await_agent(listener: &UnixListener, machine: &Machine, deadline: Instant) -> anyhow::Result<Channel> {
    let stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("accept QEMU's connection"),
        }
        if machine.ended() {
            bail!("QEMU ended at once");
        }
        if Instant::now() >= deadline {
            bail!("QEMU did not connect in time");
        }
        thread::sleep(TICK);
    };
    stream.set_nonblocking(false).context("set the agent's stream to wait")?;
    let left = deadline.saturating_duration_since(Instant::now()).max(TICK);
    stream.set_read_timeout(Some(left)).context("limit the wait for the agent")?;
    let mut messages = wire::read(stream.try_clone().context("share the agent's stream")?);
    await_hello(&mut messages).with_context(|| format!("no answer of the agent within {:.0} s", left.as_secs_f64()))?;
    stream.set_read_timeout(None).context("lift the limit of the agent's stream")?;
    Ok(Channel::greeted(messages, stream))
}

struct Machine {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Machine {
    fn start(plan: &Plan, node: usize, folder: &Folder) -> anyhow::Result<Self> {
        let arguments = arguments(plan, node, folder);
        let log = File::create(file(folder, node, "qemu")).context("make QEMU's log")?;
        let (end, ends) = mpsc::channel::<()>();
        let (started, starts) = mpsc::channel();
        let thread = thread::Builder::new().name(format!("node{node}")).spawn(move || {
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL", "--", QEMU]).args(arguments);
            let mut child = match command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn() {
                Ok(child) => child,
                Err(error) => {
                    let _ = started.send(Err(error));
                    return;
                }
            };
            let _ = started.send(Ok(()));
            while let Ok(None) = child.try_wait() {
                if ends.recv_timeout(TICK) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            // Both fail only if QEMU has ended already.
            let _ = child.kill();
            let _ = child.wait();
        });
        let thread = thread.context("start the thread that owns QEMU")?;
        starts.recv().context("start QEMU")?.context("start QEMU through setpriv (package util-linux)")?;
        Ok(Self { end: Some(end), thread: Some(thread) })
    }

    fn ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The thread sees that the sender is gone, and ends QEMU.
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn kernel_options(accelerator: Accelerator) -> String {
    let rate = if accelerator == Accelerator::Tcg { accelerator::counter_rate() } else { None };
    rate.map_or(KERNEL_OPTIONS.to_owned(), |rate| format!("{KERNEL_OPTIONS} tsc_early_khz={rate}"))
}

fn arguments(plan: &Plan, node: usize, folder: &Folder) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(OsString::from));
    add(&["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    add(&plan.accelerator.options());
    add(&["-smp", CPUS, "-m", &format!("{}M", plan.memory)]);
    let path = |name: &str| file(folder, node, name).display().to_string();
    add(&["-kernel", &plan.kernel.image.display().to_string(), "-initrd", &path("initramfs")]);
    add(&["-append", &kernel_options(plan.accelerator)]);
    add(&["-serial", &format!("file:{}", path("console"))]);
    add(&["-virtfs", "local,path=/,security_model=none,readonly=on,multidevs=remap,mount_tag=host"]);
    add(&["-device", "virtio-rng-pci", "-device", "virtio-serial-pci"]);
    add(&["-chardev", &format!("socket,id=agent,path={}", path("agent"))]);
    add(&["-device", &format!("virtserialport,chardev=agent,name={PORT_NAME}")]);
    if plan.nodes > 1 {
        let server = if node == 0 { "on" } else { "off" };
        let meeting = file(folder, 0, "net");
        add(&["-netdev", &format!("stream,id=net,server={server},addr.type=unix,addr.path={}", meeting.display())]);
        add(&["-device", &format!("virtio-net-pci,netdev=net,mac=52:54:00:69:62:0{node}")]);
    }
    arguments
}

fn file(folder: &Folder, node: usize, name: &str) -> PathBuf {
    folder.file(&format!("node{node}.{name}"))
}

fn trouble_of(folder: &Folder, node: usize) -> String {
    let mut text = String::new();
    for name in ["qemu", "console"] {
        let bytes = fs::read(file(folder, node, name)).unwrap_or_default();
        let all = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = all.lines().filter(|line| !line.trim().is_empty()).collect();
        if !lines.is_empty() {
            let last = lines[lines.len().saturating_sub(30)..].join("\n");
            text.extend(["\n--- ", name, &format!(" of node {node} ---\n"), &last]);
        }
    }
    text
}

fn remove_left_ones(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(FOLDER)?.split('-').nth(1));
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
