// SPDX-License-Identifier: MIT OR Apache-2.0
//! A root file system of Debian 13, which has Open MPI 5: makes it from packages, and runs commands in it. It is in the
//! target folder, under the hash of its recipe ([`Recipe`]). If there is none with that hash, `mmdebstrap` makes one,
//! and those of other recipes are removed. A command in it sees the checkout, the target folder, cargo and rustup at
//! their own paths, the host's `/dev`, `/proc`, `/sys` and `/tmp`, and the host's network (debian13/enter.sh). These
//! are mounted in the command's own mount namespace, and so disappear with it. Root makes that namespace directly,
//! other users inside a user namespace, if the kernel allows it.
//!
//! Called by `series.rs`. Grade: setup. Tests: at the end of this file.

use crate::command::{output, run, step};
use crate::environment::Environment;
use crate::workspace::Workspace;
use crate::{manifest, mmdebstrap, setup};
use anyhow::{Context, Result, bail, ensure};
use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The release, by the name that its archive knows.
const SUITE: &str = "trixie";

/// What enters the root.
const ENTER: &str = include_str!("debian13/enter.sh");

/// To be raised when a root has to be made anew although its packages are the same.
const VERSION: u32 = 1;

/// What a root is made of.
struct Recipe {
    suite: &'static str,
    packages: Vec<&'static str>,
}

impl Recipe {
    fn of_this_release() -> Self {
        // Among what a Debian has anyway, and `--variant=apt` leaves out.
        let mut packages = vec!["ca-certificates", "procps"];
        packages.extend(setup::packages_of_a_root());
        Self { suite: SUITE, packages }
    }

    /// The name of the folder for roots made so.
    fn hash(&self) -> String {
        let text = format!("{VERSION} {} {}", self.suite, self.packages.join(","));
        manifest::hash_of(text.as_bytes())[..16].to_owned()
    }
}

/// A root that is there and can be entered.
#[derive(Debug)]
pub(crate) struct Root(PathBuf);

impl Root {
    /// The root of this checkout; made now where there is none.
    ///
    /// # Errors
    /// It cannot be entered from here, or cannot be made; the message says what is missing.
    pub(crate) fn ready(workspace: &Workspace) -> Result<Self> {
        may_enter()?;
        let folder = workspace.target().join("debian13");
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        // Of two that come at once the second waits, and finds it made.
        let lock = File::create(folder.join("lock")).context("cannot make the lock of the Debian 13 root")?;
        lock.lock().context("cannot lock the Debian 13 root")?;
        let recipe = Recipe::of_this_release();
        let root = folder.join(recipe.hash());
        if !root.is_dir() {
            setup::ensure_for_root()?;
            make(&recipe, &folder, &root)?;
        }
        Ok(Self(root))
    }

    /// A command that runs these words in the root, in the checkout, with a target folder of its own.
    ///
    /// # Errors
    /// Rust is where it cannot be shown in the root.
    pub(crate) fn command(&self, workspace: &Workspace, words: &[OsString]) -> Result<Command> {
        let mut command = namespace();
        command.args(["sh", "-c", ENTER, "enter"]).arg(&self.0).arg(workspace.root());
        let rust = Rust::found()?;
        command.arg(workspace.root()).arg(workspace.target()).args(rust.folders());
        command.arg("--").args(words);
        let programs = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        command
            .env("PATH", format!("{}:{programs}", rust.programs.display()))
            .env("CARGO_TARGET_DIR", workspace.target().join("mpi-5"))
            // Of the host, where the root need not have it.
            .env("LC_ALL", "C.UTF-8")
            // Cargo's, for programs that were built outside.
            .env_remove("LD_LIBRARY_PATH")
            .env_remove("CARGO");
        Ok(command)
    }
}

/// Where Rust is on this machine.
struct Rust {
    /// The folder with `cargo`.
    programs: PathBuf,
    cargo_home: PathBuf,
    rustup_home: PathBuf,
    /// Of the toolchain in use.
    sysroot: PathBuf,
}

impl Rust {
    fn found() -> Result<Self> {
        let home = env::var_os("HOME").map(PathBuf::from).context("HOME is not set, so where is cargo's folder?")?;
        let folder = |variable, name| env::var_os(variable).map_or_else(|| home.join(name), PathBuf::from);
        let sysroot = PathBuf::from(output(Command::new("rustc").args(["--print", "sysroot"]))?.trim());
        ensure!(
            sysroot != Path::new("/usr"),
            "this Rust is the system's own (its folder is /usr), which cannot be shown inside of a Debian 13 root; \
             use one that rustup installed"
        );
        Ok(Self {
            programs: sysroot.join("bin"),
            cargo_home: folder("CARGO_HOME", ".cargo"),
            rustup_home: folder("RUSTUP_HOME", ".rustup"),
            sysroot,
        })
    }

    fn folders(&self) -> [&Path; 3] {
        [&self.cargo_home, &self.rustup_home, &self.sysroot]
    }
}

/// Makes a root beside its place, and puts it there when it is whole.
fn make(recipe: &Recipe, folder: &Path, root: &Path) -> Result<()> {
    step(&format!("Making a Debian 13 root with Open MPI 5 (once; some minutes, 1.9 GB) in {}", root.display()));
    let unfinished = folder.join("unfinished");
    remove_all_in(folder)?;
    let mut make = mmdebstrap::command()?;
    make.args(["--quiet", "--format=directory", "--aptopt=APT::Install-Recommends \"false\""]);
    make.arg(format!("--include={}", recipe.packages.join(",")));
    make.arg(recipe.suite).arg(&unfinished).arg(mmdebstrap::mirror()?);
    run(&mut make).context("the Debian 13 root cannot be made")?;
    fs::rename(&unfinished, root).with_context(|| format!("cannot name the root {}", root.display()))
}

/// Removes what other recipes made, and what was not finished. Nothing is ever mounted there but in namespaces of
/// commands; where that were otherwise, what is mounted would be left alone.
fn remove_all_in(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            // Files of the root belong to users whom only the namespace knows.
            run(namespace().args(["rm", "-rf", "--one-file-system"]).arg(path))?;
        }
    }
    Ok(())
}

/// The beginning of a command line that runs the rest in a mount namespace of its own.
fn namespace() -> Command {
    let mut command = Command::new("unshare");
    if !setup::is_root() {
        command.args(["--user", "--map-root-user", "--map-auto"]);
    }
    command.args(["--mount", "--propagation", "private", "--"]);
    command
}

/// That namespaces can be made here.
fn may_enter() -> Result<()> {
    if Environment::here().program("unshare").is_none() {
        bail!("there is no `unshare` in PATH, which enters the Debian 13 root (Debian: util-linux)");
    }
    let tried = namespace().arg("true").stdin(Stdio::null()).output().context("cannot start unshare")?;
    if tried.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&tried.stderr).trim().to_owned();
    if setup::is_root() {
        bail!(
            "root may not make a mount namespace here ({said}), so a Debian 13 root cannot be entered; in a container \
             that takes `--privileged`, or CAP_SYS_ADMIN and a seccomp profile that allows unshare and mount"
        );
    }
    bail!(
        "this user may not make a user namespace ({said}), so a Debian 13 root cannot be entered without root; that \
         takes newuidmap (Debian: uidmap), a range of the user's in /etc/subuid and /etc/subgid, and a kernel that \
         allows it (kernel.unprivileged_userns_clone=1, user.max_user_namespaces above 0, \
         kernel.apparmor_restrict_unprivileged_userns=0, as far as it has these)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn another_list_of_packages_is_another_root() {
        let (one, other) = (Recipe::of_this_release(), Recipe { suite: SUITE, packages: vec!["gcc"] });
        assert_ne!(one.hash(), other.hash());
        assert_eq!((one.hash(), one.hash().len()), (Recipe::of_this_release().hash(), 16));
        assert!(one.packages.contains(&"libopenmpi-dev") && !one.packages.contains(&"chromium"));
    }

    /// Mounts a folder in an empty root, and looks whether anything is left of it outside. What would run there is
    /// replaced: an empty root has no programs.
    #[test]
    fn what_is_mounted_in_a_root_is_seen_inside_and_not_outside() {
        if let Err(error) = may_enter() {
            let _ = writeln!(std::io::stderr(), "skip what is mounted in a root: {error:#}");
            return;
        }
        let folder = env::temp_dir().join(format!("xtask-root-{}", std::process::id()));
        let (root, shown) = (folder.join("root"), folder.join("shown"));
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::create_dir_all(&shown).unwrap();
        fs::write(shown.join("file"), "text").unwrap();
        let inside = "exec cat \"$root$1/file\" #";
        let script = ENTER.replace("exec chroot", &format!("set -- '{}'; {inside}", shown.display()));
        let mut command = namespace();
        command.args(["sh", "-c", &script, "enter"]).arg(&root).arg("/").arg(&shown).args(["--", "true"]);
        assert_eq!(output(&mut command).unwrap(), "text");
        assert!(!root.join(shown.strip_prefix("/").unwrap()).join("file").exists(), "it is mounted outside, too");
        run(namespace().args(["rm", "-rf", "--one-file-system"]).arg(&folder)).unwrap();
    }
}
