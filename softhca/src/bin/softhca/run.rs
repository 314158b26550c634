// SPDX-License-Identifier: MIT OR Apache-2.0
//! `softhca run`: the fabric's folder, the environment of the program, and its end. The loader finds the library twice:
//! by name in a folder at the front of `LD_LIBRARY_PATH` (as libibverbs.so.1), and preloaded, for programs that look
//! for device files themselves. The command passes signals that ask it to end to the program. The program's exit status
//! becomes the command's (128 + n after signal n), even if it leaves processes behind.

use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicI32, Ordering};

use anyhow::{Context, Result, ensure};
use softhca::config::Config;
use softhca::fabric_folder::{
    begin_run, is_fabric_name, library_of, make_private, named_folder, remove_stale_runs, run_folder,
};
use softhca::profiles::Name;

const FABRIC: &str = "SOFTHCA_FABRIC";
const CONFIG: &str = "SOFTHCA_CONFIG";
const PROFILE: &str = "SOFTHCA_PROFILE";

/// The process that signals go to; 0 before it runs.
static PROGRAM: AtomicI32 = AtomicI32::new(0);

struct Folder {
    path: PathBuf,
    own: bool,
    /// Kept open here and in the program as long as the run lives.
    _alive: Option<OwnedFd>,
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.own
            && let Err(error) = std::fs::remove_dir_all(&self.path)
        {
            eprintln!("softhca: cannot remove {}: {error}", self.path.display());
        }
    }
}

pub(crate) fn run(
    config: Option<&Path>,
    profile: Option<Name>,
    fabric: Option<&str>,
    program: &[OsString],
) -> Result<ExitCode> {
    let config_path = config.map(std::path::absolute).transpose()?;
    let config = config_path.as_deref().map(|path| Config::read(path, profile)).transpose()?;
    let library = library_of(&std::env::current_exe()?)?;
    let folder = folder(fabric.or_else(|| config.as_ref().and_then(|config| config.fabric.as_deref())))?;
    let libraries = folder.path.join("lib");
    std::fs::create_dir_all(&libraries)?;
    let link = libraries.join("libibverbs.so.1");
    match symlink(&library, &link) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        result => result.with_context(|| format!("cannot make {}", link.display()))?,
    }

    let mut command = Command::new(&program[0]);
    command
        .args(&program[1..])
        .env(FABRIC, &folder.path)
        .env("LD_LIBRARY_PATH", in_front(libraries.as_os_str(), "LD_LIBRARY_PATH"))
        .env("LD_PRELOAD", in_front(link.as_os_str(), "LD_PRELOAD"));
    match &config_path {
        Some(path) => command.env(CONFIG, path),
        None => command.env_remove(CONFIG),
    };
    match profile {
        Some(profile) => command.env(PROFILE, profile.word()),
        None => command.env_remove(PROFILE),
    };
    forward_signals()?;
    let mut child = command.spawn().with_context(|| format!("cannot run {}", program[0].to_string_lossy()))?;
    PROGRAM.store(child.id() as i32, Ordering::SeqCst);
    let status = child.wait()?;
    drop(folder);
    Ok(ExitCode::from(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)) as u8))
}

fn folder(name: Option<&str>) -> Result<Folder> {
    if let Some(name) = name {
        ensure!(is_fabric_name(name), "{name:?} names no fabric: 1 to 64 letters, digits, dashes and underscores");
        let path = named_folder(name);
        make_private(&path)?;
        return Ok(Folder { path, own: false, _alive: None });
    }
    remove_stale_runs();
    // Random, because numbers of processes are used again.
    let path = run_folder(std::process::id(), RandomState::new().build_hasher().finish());
    make_private(&path)?;
    let alive = begin_run(&path).with_context(|| format!("cannot use {}", path.display()))?;
    Ok(Folder { path, own: true, _alive: Some(alive) })
}

fn in_front(first: &OsStr, variable: &str) -> OsString {
    let mut value = first.to_owned();
    if let Some(rest) = std::env::var_os(variable).filter(|rest| !rest.is_empty()) {
        value.push(":");
        value.push(rest);
    }
    value
}

/// Passes the signals that end a command on to the program: the fabric must still be removed when it has ended.
fn forward_signals() -> Result<()> {
    extern "C" fn forward(signal: libc::c_int) {
        let program = PROGRAM.load(Ordering::SeqCst);
        if program > 0 {
            // SAFETY: a signal handler may call kill, which only fails if the process is gone.
            unsafe { libc::kill(program, signal) };
        }
    }
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: the handler only loads an atomic and calls kill, both allowed in one.
        let previous = unsafe { libc::signal(signal, forward as extern "C" fn(libc::c_int) as libc::sighandler_t) };
        ensure!(previous != libc::SIG_ERR, "cannot handle signal {signal}: {}", std::io::Error::last_os_error());
    }
    Ok(())
}
