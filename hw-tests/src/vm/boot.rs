// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts QEMU for each node, waits for the agents, and ends QEMU again whatever happens.
//!
//! Called by [`crate::fabric`]. Setup grade. A thread owns each QEMU: QEMU asks the kernel to be killed when that
//! thread ends (`setpriv --pdeathsig`), so it cannot outlive this program, however that ends; and QEMU connects to a
//! socket of ours, so it does not even start for a program that is gone. The folder of a boot holds sockets, consoles
//! and archives; folders that killed programs left are removed by the next boot.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::accelerator::{Accelerator, QEMU};
use super::image::{Settings, initramfs};
use super::kernel::Kernel;
use crate::agent::PORT_NAME;
use crate::channel::{Channel, await_hello};
use crate::pace;

const FOLDER_PREFIX: &str = "ibex-fabric-";
/// `init.sh` starts the other processors, and says why so late; the kernel then must not have patched its locks away.
/// Nor may it look whether its clock is steady: where it is found not to be, on a busy machine, the kernel patches itself
/// while it runs, which the translator gets wrong.
const KERNEL_OPTIONS: &str =
    "console=ttyS0 quiet mitigations=off panic=-1 random.trust_cpu=on maxcpus=1 noreplace-smp tsc=reliable";
/// How many times a boot is tried: see `init.sh` on the translator.
const ATTEMPTS: usize = 3;
/// How often a thread looks at what it cannot wait for.
const TICK: Duration = Duration::from_millis(20);

/// What to boot.
pub struct Plan<'a> {
    /// The guests' kernel.
    pub kernel: &'a Kernel,
    /// The agent's program.
    pub agent: &'a Path,
    /// How many nodes.
    pub nodes: usize,
    /// Processors of each node.
    pub cpus: usize,
    /// Memory of each node, in MiB.
    pub memory: u64,
    /// How QEMU runs them.
    pub accelerator: Accelerator,
}

/// The booted nodes; dropping them ends them.
pub struct Machines {
    /// The agents, by node.
    pub channels: Vec<Channel>,
    // Ended before their folder is removed.
    owners: Vec<Machine>,
    folder: Folder,
}

impl Machines {
    /// The last lines that the guests wrote to their consoles, for messages.
    #[must_use]
    pub fn consoles(&self) -> String {
        (0..self.owners.len()).map(|node| self.folder.trouble_of(node)).collect()
    }
}

/// Boots all nodes and waits until their agents said hello.
///
/// # Errors
/// A program is missing, or a guest did not come up in time: the message has the end of its console.
pub fn boot(plan: &Plan) -> anyhow::Result<Machines> {
    let mut attempt = 1;
    loop {
        match boot_once(plan) {
            // A guest that the processor itself runs fails for good.
            Err(_) if plan.accelerator == Accelerator::Tcg && attempt < ATTEMPTS => attempt += 1,
            result => return result,
        }
    }
}

fn boot_once(plan: &Plan) -> anyhow::Result<Machines> {
    let folder = Folder::new()?;
    let deadline = Instant::now() + plan.accelerator.boot_limit() * pace::crowding();
    let mut machines = Vec::new();
    let mut listeners = Vec::new();
    for node in 0..plan.nodes {
        let listener = UnixListener::bind(folder.file(node, "agent")).context("listen for the guest's agent")?;
        listener.set_nonblocking(true).context("listen without waiting")?;
        listeners.push(listener);
        let settings =
            Settings { node, nodes: plan.nodes, agent: plan.agent.to_owned(), modules: plan.kernel.modules.clone() };
        fs::write(folder.file(node, "initramfs"), initramfs(&settings)?)
            .context("write the guest's first file system")?;
        if node > 0 {
            await_file(&folder.file(0, "net"), &machines, deadline).with_context(|| folder.trouble_of(0))?;
        }
        machines.push(Machine::start(plan, node, &folder)?);
    }
    let mut channels = Vec::new();
    for (node, listener) in listeners.iter().enumerate() {
        let channel = await_agent(listener, &machines[node], deadline).with_context(|| {
            format!(
                "the virtual machine of node {node} did not come up with {}{}",
                plan.accelerator,
                folder.trouble_of(node)
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
    let mut stream = loop {
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
    await_hello(&mut stream).with_context(|| format!("no answer of the agent within {:.0} s", left.as_secs_f64()))?;
    stream.set_read_timeout(None).context("lift the limit of the agent's stream")?;
    let output: UnixStream = stream.try_clone().context("share the agent's stream")?;
    Ok(Channel::greeted(stream, output))
}

/// One QEMU, owned by a thread.
struct Machine {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Machine {
    fn start(plan: &Plan, node: usize, folder: &Folder) -> anyhow::Result<Self> {
        let arguments = arguments(plan, node, folder);
        let log = File::create(folder.file(node, "qemu")).context("make QEMU's log")?;
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
            // Both fail only for a QEMU that has ended.
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
        // The thread sees the sender go, and ends QEMU.
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn arguments(plan: &Plan, node: usize, folder: &Folder) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(OsString::from));
    add(&["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    add(&plan.accelerator.options());
    add(&["-smp", &plan.cpus.to_string(), "-m", &format!("{}M", plan.memory)]);
    let path = |name: &str| folder.file(node, name).display().to_string();
    add(&["-kernel", &plan.kernel.image.display().to_string(), "-initrd", &path("initramfs")]);
    add(&["-append", KERNEL_OPTIONS]);
    add(&["-serial", &format!("file:{}", path("console"))]);
    add(&["-virtfs", "local,path=/,security_model=none,readonly=on,multidevs=remap,mount_tag=host"]);
    add(&["-device", "virtio-rng-pci", "-device", "virtio-serial-pci"]);
    add(&["-chardev", &format!("socket,id=agent,path={}", path("agent"))]);
    add(&["-device", &format!("virtserialport,chardev=agent,name={PORT_NAME}")]);
    if plan.nodes > 1 {
        let server = if node == 0 { "on" } else { "off" };
        let meeting = folder.file(0, "net");
        add(&["-netdev", &format!("stream,id=net,server={server},addr.type=unix,addr.path={}", meeting.display())]);
        add(&["-device", &format!("virtio-net-pci,netdev=net,mac=52:54:00:69:62:0{node}")]);
    }
    arguments
}

/// The folder of one boot, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> anyhow::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let parent = std::env::temp_dir();
        remove_left_ones(&parent);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{FOLDER_PREFIX}{}-{count}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("make the folder {}", path.display()))?;
        Ok(Self(path))
    }

    fn file(&self, node: usize, name: &str) -> PathBuf {
        self.0.join(format!("node{node}.{name}"))
    }

    /// The ends of QEMU's log and of the guest's console.
    fn trouble_of(&self, node: usize) -> String {
        let mut text = String::new();
        for name in ["qemu", "console"] {
            let bytes = fs::read(self.file(node, name)).unwrap_or_default();
            let all = String::from_utf8_lossy(&bytes);
            let lines: Vec<&str> = all.lines().filter(|line| !line.trim().is_empty()).collect();
            if !lines.is_empty() {
                let last = lines[lines.len().saturating_sub(30)..].join("\n");
                text.extend(["\n--- ", name, &format!(" of node {node} ---\n"), &last]);
            }
        }
        text
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed now is removed by a later boot.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes the folders of programs that were killed.
fn remove_left_ones(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(FOLDER_PREFIX)?.split('-').next());
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
