// SPDX-License-Identifier: MIT OR Apache-2.0
//! A kept fabric: a background process that holds one booted fabric for several calls of the `fabric` command.
//!
//! [`attach`] joins the fabric of a name and starts its process first where there is none; [`hold`] is that process. It
//! ends on `stop`, when nothing ran for its idle time, or when a node is gone; a file lock keeps it the only one of its
//! name. For people at work: tests and benches open their own. Setup grade. Frames as in [`crate::wire`], over a Unix
//! socket.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::agent::{Starter, serve};
use crate::channel::Channel;
use crate::fabric::Fabric;
use crate::job::{Event, Job};
use crate::process::Kill;
use crate::wire::{Hello, PROTOCOL};

const TICK: Duration = Duration::from_millis(100);
/// How long a kept fabric may take to be there.
const OPENING: Duration = Duration::from_secs(400);

struct Files {
    socket: PathBuf,
    lock: PathBuf,
    log: PathBuf,
}

fn files(name: &str) -> anyhow::Result<Files> {
    if name.is_empty() || !name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter)) {
        bail!("{name:?} cannot name a kept fabric; use letters, digits, - and _");
    }
    let user = rustix::process::getuid().as_raw();
    let folder = std::env::temp_dir().join(format!("ibex-kept-{user}"));
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.with_context(|| format!("make the folder {}", folder.display()))?;
    let file = |ending: &str| folder.join(format!("{name}.{ending}"));
    Ok(Files { socket: file("socket"), lock: file("lock"), log: file("log") })
}

/// Joins the kept fabric `name`; starts it with the program and arguments of `holder` where there is none.
///
/// # Errors
/// It does not come up; the message has its log.
pub fn attach(name: &str, holder: &mut Command) -> anyhow::Result<Channel> {
    let files = files(name)?;
    if let Some(channel) = joined(&files)? {
        return Ok(channel);
    }
    let log = File::create(&files.log).with_context(|| format!("make {}", files.log.display()))?;
    holder.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
    let mut child = holder.spawn().context("start the process that keeps the fabric")?;
    let until = Instant::now() + OPENING;
    loop {
        if let Some(channel) = joined(&files)? {
            return Ok(channel);
        }
        let failed = child.try_wait().context("look after the kept fabric")?.filter(|status| !status.success());
        if failed.is_some() || Instant::now() >= until {
            let log = fs::read_to_string(&files.log).unwrap_or_default();
            bail!("the kept fabric {name} did not come up: {}", log.trim());
        }
        thread::sleep(TICK);
    }
}

/// Ends the kept fabric `name`; returns whether there was one.
///
/// # Errors
/// It does not answer.
pub fn stop(name: &str) -> anyhow::Result<bool> {
    let Some(channel) = joined(&files(name)?)? else {
        return Ok(false);
    };
    channel.stop()?;
    while !channel.ended() {
        thread::sleep(TICK);
    }
    Ok(true)
}

fn joined(files: &Files) -> anyhow::Result<Option<Channel>> {
    match UnixStream::connect(&files.socket) {
        Ok(stream) => Channel::over(stream.try_clone().context("share the socket")?, stream).map(Some),
        Err(_) => Ok(None),
    }
}

struct Held {
    fabric: Fabric,
    stopped: AtomicBool,
    callers: AtomicUsize,
    last_used: Mutex<Instant>,
}

impl Starter for Held {
    fn start(&self, job: Job, events: Sender<Event>) -> anyhow::Result<Kill> {
        Fabric::start(&self.fabric, &job, events)
    }
}

/// Holds a fabric under `name` until it is stopped or idle for `idle`. Returns at once where another process holds it.
///
/// # Errors
/// `open` fails, or the socket cannot be made.
pub fn hold(name: &str, idle: Duration, open: impl FnOnce() -> anyhow::Result<Fabric>) -> anyhow::Result<()> {
    let files = files(name)?;
    let lock = File::create(&files.lock).context("make the lock of the kept fabric")?;
    if lock.try_lock().is_err() {
        return Ok(());
    }
    let fabric = open()?;
    // Whoever made it has lost the lock, so it is dead.
    let _ = fs::remove_file(&files.socket);
    let listener =
        UnixListener::bind(&files.socket).with_context(|| format!("listen on {}", files.socket.display()))?;
    listener.set_nonblocking(true).context("listen without waiting")?;
    let held = Arc::new(Held {
        fabric,
        stopped: AtomicBool::new(false),
        callers: AtomicUsize::new(0),
        last_used: Mutex::new(Instant::now()),
    });
    while !held.stopped.load(Ordering::Relaxed) && held.fabric.alive() && !held.idle_for(idle) {
        match listener.accept() {
            Ok((stream, _)) => held.serve(stream)?,
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(TICK),
            Err(error) => return Err(error).context("accept a caller"),
        }
    }
    let _ = fs::remove_file(&files.socket);
    Ok(())
}

impl Held {
    fn idle_for(&self, idle: Duration) -> bool {
        let last = *self.last_used.lock().unwrap_or_else(PoisonError::into_inner);
        self.callers.load(Ordering::Relaxed) == 0 && last.elapsed() >= idle
    }

    fn serve(self: &Arc<Self>, stream: UnixStream) -> anyhow::Result<()> {
        stream.set_nonblocking(false).context("set the caller's stream to wait")?;
        let input = stream.try_clone().context("share the caller's stream")?;
        self.callers.fetch_add(1, Ordering::Relaxed);
        let held = Arc::clone(self);
        thread::spawn(move || {
            let trouble = held.fabric.refresh().err().map(|error| format!("{error:#}"));
            let hello = Hello { protocol: PROTOCOL, node: 0, trouble };
            // A caller that breaks off is as good as one that ends.
            if serve(input, stream, &hello, held.as_ref()).unwrap_or(false) {
                held.stopped.store(true, Ordering::Relaxed);
            }
            *held.last_used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
            held.callers.fetch_sub(1, Ordering::Relaxed);
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_would_leave_the_folder_is_refused() {
        assert!(files("../x").is_err());
        assert!(files("").is_err());
        assert!(files("two-nodes_1").is_ok());
    }
}
