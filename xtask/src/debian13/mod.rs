// SPDX-License-Identifier: MIT OR Apache-2.0
//! A root file system of Debian 13, which has Open MPI 5: makes it from packages, and runs commands in it. It is in the
//! target folder, under the hash of its packages; roots with other hashes are removed. A command in it sees the
//! checkout, the target folder, cargo and rustup at their own paths, the host's `/dev`, `/proc`, `/sys` and `/tmp`, and
//! the host's network (debian13/enter.sh). These are mounted in the command's own mount namespace, and so disappear
//! with it. Root makes that namespace directly, other users inside a user namespace, if the kernel allows it. Called by
//! `series.rs`. Grade: setup. Tests: below.

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

const SUITE: &str = "trixie";

const ENTER: &str = include_str!("enter.sh");

/// Part of the hash: a new number makes the root anew although its packages are the same.
const VERSION: u32 = 1;

fn packages() -> Vec<&'static str> {
    // Any Debian has these two, except with `--variant=apt`.
    [vec!["ca-certificates", "procps"], setup::packages_of_a_root()].concat()
}

fn name_of(packages: &[&str]) -> String {
    let text = format!("{VERSION} {SUITE} {}", packages.join(","));
    manifest::hash_of(text.as_bytes())[..16].to_owned()
}

/// Returns the root of this checkout; makes it if there is none.
fn root(workspace: &Workspace) -> Result<PathBuf> {
    may_enter()?;
    let folder = workspace.target().join("debian13");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    // If two commands run at once, the second waits and finds the finished root.
    let lock = File::create(folder.join("lock")).context("cannot make the lock of the Debian 13 root")?;
    lock.lock().context("cannot lock the Debian 13 root")?;
    let packages = packages();
    let root = folder.join(name_of(&packages));
    if !root.is_dir() {
        setup::ensure_for_root()?;
        make(&packages, &folder, &root)?;
    }
    Ok(root)
}

/// Returns a command that runs these words in the root, in the checkout, with a target folder of its own.
pub(crate) fn command(workspace: &Workspace, words: &[OsString]) -> Result<Command> {
    let root = root(workspace)?;
    let home = env::var_os("HOME").map(PathBuf::from).context("HOME is not set, so where is cargo's folder?")?;
    let folder = |variable, name| env::var_os(variable).map_or_else(|| home.join(name), PathBuf::from);
    let toolchain = PathBuf::from(output(Command::new("rustc").args(["--print", "sysroot"]))?.trim());
    ensure!(
        toolchain != Path::new("/usr"),
        "this Rust is the system's own (its folder is /usr), which cannot be shown inside of a Debian 13 root; \
         use one that rustup installed"
    );
    let path =
        format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", toolchain.join("bin").display());
    let mut command = namespace();
    command
        .args(["sh", "-c", ENTER, "enter"])
        .args([root.as_path(), workspace.root(), workspace.root(), workspace.target()])
        .args([folder("CARGO_HOME", ".cargo"), folder("RUSTUP_HOME", ".rustup"), toolchain])
        .arg("--")
        .args(words)
        .env("PATH", path)
        .env("CARGO_TARGET_DIR", workspace.target().join("mpi-5"))
        // The host's locale, which the root may not have.
        .env("LC_ALL", "C.UTF-8")
        // Cargo's, for programs built outside the root.
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("CARGO");
    Ok(command)
}

/// Makes a root in a folder beside `root`, and renames it when it is complete.
fn make(packages: &[&str], folder: &Path, root: &Path) -> Result<()> {
    step(&format!("Making a Debian 13 root with Open MPI 5 (once; some minutes, 1.9 GB) in {}", root.display()));
    let unfinished = folder.join("unfinished");
    remove_all_in(folder)?;
    let mut make = mmdebstrap::command()?;
    make.args(["--quiet", "--format=directory", "--aptopt=APT::Install-Recommends \"false\""]);
    make.arg(format!("--include={}", packages.join(",")));
    make.arg(SUITE).arg(&unfinished).arg(mmdebstrap::mirror()?);
    run(&mut make).context("the Debian 13 root cannot be made")?;
    fs::rename(&unfinished, root).with_context(|| format!("cannot name the root {}", root.display()))
}

/// Removes roots of other packages, and unfinished ones, but nothing that is mounted there.
fn remove_all_in(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            // Only the namespace knows the users of the root's files.
            run(namespace().args(["rm", "-rf", "--one-file-system"]).arg(path))?;
        }
    }
    Ok(())
}

/// Returns the beginning of a command line that runs the rest in a mount namespace of its own.
fn namespace() -> Command {
    let mut command = Command::new("unshare");
    if !setup::is_root() {
        command.args(["--user", "--map-root-user", "--map-auto"]);
    }
    command.args(["--mount", "--propagation", "private", "--"]);
    command
}

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
        let packages = packages();
        assert_ne!(name_of(&packages), name_of(&["gcc"]));
        assert_eq!((name_of(&packages), name_of(&packages).len()), (name_of(&self::packages()), 16));
        assert!(packages.contains(&"libopenmpi-dev") && !packages.contains(&"chromium"));
    }

    /// Mounts a folder in an empty root, which has no programs, so the command is replaced.
    #[test]
    fn a_mount_in_a_root_is_visible_inside_and_not_outside() {
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
