// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receives jobs over a stream and runs them: the agent of a guest, and of this machine's devices.
//!
//! [`serve_port`] is the agent of a guest, [`serve_parent`] that of a device of this machine; `mpirun` in a guest uses
//! [`remote_shell`] as its `rsh`. The jobs of a stream end with it, so a caller that dies leaves nothing running. Setup
//! grade; one thread per stream and one per job. Tests: `channel` tests both ends together.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, bail};
use ibex_jobs::{Event, Job, Kill, Purpose, Stream};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::wire::{self, Hello, Message, Messages, PROTOCOL};

/// The TCP port on which agents take jobs from the other node.
const SHELL_PORT: u16 = 4790;
/// The name of the virtio-serial port that joins a guest's agent with the host.
pub(crate) const PORT_NAME: &str = "fabric";

/// Environment and folder that jobs on this machine start with.
#[derive(Default)]
pub(crate) struct Here {
    environment: Vec<(String, String)>,
    /// Folder of jobs that name none; `None`: this program's own.
    folder: Option<PathBuf>,
}

/// A job of a stream, and the thread that passes on its events until it has ended.
struct Started {
    kill: Kill,
    passing: JoinHandle<()>,
}

type Shared<W> = Arc<Mutex<W>>;

/// Serves one stream until it ends or the caller asks to stop; by then all jobs of the stream have ended.
pub(crate) fn serve(
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
    hello: Hello,
    here: &Here,
) -> anyhow::Result<()> {
    let output = Arc::new(Mutex::new(output));
    send(&output, &Message::Hello(hello))?;
    let mut jobs = HashMap::new();
    let served = take_jobs(wire::read(input), &output, here, &mut jobs);
    for job in jobs.values() {
        (job.kill)();
    }
    for job in jobs.into_values() {
        // It does not panic; if it did, its job's supervisor would still end the job.
        let _ = job.passing.join();
    }
    served
}

fn take_jobs<W: Write + Send + 'static>(
    messages: Messages,
    output: &Shared<W>,
    here: &Here,
    jobs: &mut HashMap<u32, Started>,
) -> anyhow::Result<()> {
    for message in messages {
        match message.context("read what an agent is told")? {
            Message::Start(number, job) => {
                jobs.retain(|_, job| !job.passing.is_finished());
                jobs.insert(number, start(number, job, output, here));
            }
            // A job that is not in the table has ended.
            Message::Kill(number) => {
                if let Some(job) = jobs.get(&number) {
                    (job.kill)();
                }
            }
            Message::Stop => break,
            other => bail!("an agent is told {other:?}"),
        }
    }
    Ok(())
}

fn start<W: Write + Send + 'static>(number: u32, mut job: Job, output: &Shared<W>, here: &Here) -> Started {
    job.cwd = job.cwd.or_else(|| here.folder.clone());
    let (sender, events) = mpsc::channel();
    let kill = ibex_jobs::start(&job, &here.environment, Purpose::Test, sender);
    let output = Arc::clone(output);
    let passing = thread::spawn(move || pass_on(number, events, &output));
    Started { kill, passing }
}

fn pass_on<W: Write>(number: u32, events: Receiver<Event>, output: &Shared<W>) {
    let mut heard = true;
    for event in events {
        // A stream that fails has ended; its reader sees that too, and kills the jobs.
        heard = heard && send(output, &Message::Told(number, event)).is_ok();
    }
}

fn send<W: Write>(output: &Shared<W>, message: &Message) -> io::Result<()> {
    wire::write(&mut *output.lock().unwrap_or_else(PoisonError::into_inner), message)
}

/// Runs the agent of a guest: serves the other node, and the host until that closes the port. `trouble` says why the
/// set-up of the guest failed; the host reports it.
///
/// # Errors
/// The guest has no such port, or the stream broke.
pub fn serve_port(node: usize, trouble: Option<String>, environment: Vec<(String, String)>) -> anyhow::Result<()> {
    lift_limits()?;
    let here = Arc::new(Here { environment, folder: Some(PathBuf::from("/tmp")) });
    let listener = TcpListener::bind(("0.0.0.0", SHELL_PORT)).context("listen for the other node")?;
    let shells = Arc::clone(&here);
    thread::spawn(move || serve_nodes(&listener, node, &shells));
    let port = open_port()?;
    let hello = Hello { protocol: PROTOCOL, node, trouble };
    serve(port.try_clone().context("share the port")?, port, hello, &here)
}

fn open_port() -> anyhow::Result<fs::File> {
    let class = "/sys/class/virtio-ports";
    for entry in fs::read_dir(class).with_context(|| format!("list {class}"))?.flatten() {
        let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        if name.trim() == PORT_NAME {
            let file = PathBuf::from("/dev").join(entry.file_name());
            return OpenOptions::new()
                .read(true)
                .write(true)
                .open(&file)
                .with_context(|| format!("open the host's port {}", file.display()));
        }
    }
    bail!("no virtio-serial port is named {PORT_NAME:?}; this is no guest of a fabric");
}

/// Lifts the limit of locked memory (for registrations), and raises that of open files (for many ranks).
fn lift_limits() -> anyhow::Result<()> {
    let unlimited = Rlimit { current: None, maximum: None };
    setrlimit(Resource::Memlock, unlimited).context("lift the limit of locked memory")?;
    let files = Rlimit { current: Some(65536), maximum: Some(65536) };
    setrlimit(Resource::Nofile, files).context("raise the limit of open files")
}

fn serve_nodes(listener: &TcpListener, node: usize, here: &Arc<Here>) {
    for stream in listener.incoming().flatten() {
        let here = Arc::clone(here);
        thread::spawn(move || -> anyhow::Result<()> {
            stream.set_nodelay(true)?;
            let hello = Hello { protocol: PROTOCOL, node, trouble: None };
            serve(stream.try_clone()?, stream, hello, &here)
        });
    }
}

/// Serves the program that started this one, over standard input and output, until that program ends.
///
/// # Errors
/// The stream broke.
pub fn serve_parent() -> anyhow::Result<()> {
    let hello = Hello { protocol: PROTOCOL, node: 0, trouble: None };
    serve(io::stdin(), io::stdout(), hello, &Here::default())
}

/// Runs `command` with a shell in the node named `host`, as `rsh` does; returns its status.
///
/// # Errors
/// The node cannot be reached, or its connection broke.
pub fn remote_shell(host: &str, command: &str) -> anyhow::Result<i32> {
    let stream = TcpStream::connect((host, SHELL_PORT)).with_context(|| format!("reach the agent of {host}"))?;
    stream.set_nodelay(true)?;
    let channel = crate::channel::Channel::over(wire::read(stream.try_clone()?), stream)?;
    let job = Job::new(["sh", "-c", command]).limit(Duration::from_hours(24));
    let outcome = channel.start(&job)?.wait_with(|stream, line| match stream {
        Stream::Stdout => println!("{line}"),
        Stream::Stderr => eprintln!("{line}"),
    })?;
    Ok(outcome.status())
}
