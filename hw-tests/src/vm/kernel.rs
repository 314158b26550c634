// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's kernel: a Debian package that apt downloads. This module unpacks it, without installing it, in the
//! target folder, under its final name only when complete. [`super::open`] calls [`obtain`]. Setup grade; a file lock
//! serialises processes. Tests: at the end of this file.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

/// Variable with the name of the package to take instead of the best one.
pub(crate) const PACKAGE_VARIABLE: &str = "FABRIC_KERNEL_PACKAGE";

#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    pub(crate) image: PathBuf,
    /// Folder of its modules, with `modules.dep`.
    pub(crate) modules: PathBuf,
}

/// Returns the kernel in `cache`, and downloads it first if there is none.
pub(crate) fn obtain(cache: &Path) -> anyhow::Result<Kernel> {
    fs::create_dir_all(cache).with_context(|| format!("make the folder {}", cache.display()))?;
    let lock = File::create(cache.join("lock")).context("make the lock of the kernel folder")?;
    lock.lock().context("lock the kernel folder")?;
    let wanted = std::env::var(PACKAGE_VARIABLE).ok().filter(|name| !name.is_empty());
    if let Some(package) = wanted.clone().or_else(|| newest(&there(cache)))
        && let Some(kernel) = opened(cache, &package)
    {
        return Ok(kernel);
    }
    let package = match wanted {
        Some(package) => package,
        None => offered()?,
    };
    eprintln!("soft-RoCE: downloading {package} for the virtual machine (once)");
    unpack(cache, &package)?;
    opened(cache, &package).with_context(|| {
        format!(
            "the package {package} has no kernel image or no rdma_rxe module; set {PACKAGE_VARIABLE} to another package"
        )
    })
}

fn there(cache: &Path) -> Vec<String> {
    let entries = fs::read_dir(cache).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn opened(cache: &Path, package: &str) -> Option<Kernel> {
    let folder = cache.join(package);
    let image = first_named(&folder.join("boot"), "vmlinuz-")?;
    let modules = first_named(&folder.join("lib/modules"), "")?;
    modules.join("modules.dep").exists().then_some(Kernel { image, modules })
}

fn first_named(folder: &Path, beginning: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    entries
        .map(|entry| entry.path())
        .find(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(beginning)))
}

/// Returns the best package that apt offers; updates apt's lists if they have none.
fn offered() -> anyhow::Result<String> {
    if let Some(package) = newest(&listed()?) {
        return Ok(package);
    }
    eprintln!("soft-RoCE: apt lists no kernel; running apt-get update");
    let mut update = Command::new("apt-get");
    let updated = output_of(update.args(["-qq", "update"]));
    match (newest(&listed()?), updated) {
        (Some(package), _) => Ok(package),
        (None, Err(error)) => Err(error.context("apt lists no kernel package; run `apt-get update` as root")),
        (None, Ok(_)) => {
            bail!("apt offers no package linux-image-6.*; set {PACKAGE_VARIABLE} to the name of a kernel package")
        }
    }
}

fn listed() -> anyhow::Result<Vec<String>> {
    let mut list = Command::new("apt-cache");
    let text = output_of(list.args(["--generate", "pkgnames", "linux-image-6."]))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Returns the best package: series 6.12, whose `rdma_rxe` moves large messages more than twice as fast as that of 6.1,
/// else the newest.
fn newest(packages: &[String]) -> Option<String> {
    let candidates = packages.iter().filter_map(|package| Some((version(package)?, package)));
    candidates
        .max_by_key(|(version, _)| (version.starts_with(&[6, 12]), version.clone()))
        .map(|(_, package)| package.clone())
}

/// Returns 6, 12, 117, 12 for `linux-image-6.12.117+deb12-amd64`; `None` for meta packages and for kernels that are
/// unsigned, real-time or for clouds (without rxe).
fn version(package: &str) -> Option<Vec<u32>> {
    let middle = package.strip_prefix("linux-image-")?.strip_suffix("-amd64")?;
    let plain =
        middle.chars().all(|letter| letter.is_ascii_digit() || ".+-~".contains(letter) || "debpo".contains(letter));
    let numbers: Vec<u32> =
        middle.split(|letter: char| !letter.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect();
    (plain && numbers.len() >= 3).then_some(numbers)
}

fn unpack(cache: &Path, package: &str) -> anyhow::Result<()> {
    let partial = cache.join(format!("{package}.partial"));
    if partial.exists() {
        fs::remove_dir_all(&partial).with_context(|| format!("remove {}", partial.display()))?;
    }
    fs::create_dir_all(&partial).with_context(|| format!("make {}", partial.display()))?;
    output_of(Command::new("apt-get").args(["-q", "download", package]).current_dir(&partial)).with_context(|| {
        format!("download {package}; is there a network, and are apt's lists fresh (`apt-get update`)?")
    })?;
    let archive = first_named(&partial, package).context("apt-get download left no file")?;
    output_of(Command::new("dpkg").arg("-x").arg(&archive).arg(&partial))?;
    fs::remove_file(&archive).context("remove the package file")?;
    name_libraries_twice(&partial)?;
    let modules = first_named(&partial.join("lib/modules"), "").context("the package has no modules")?;
    let release = modules.file_name().unwrap_or_default();
    output_of(Command::new("depmod").env("PATH", crate::vm::SYSTEM_PATH).arg("-b").arg(&partial).arg(release))
        .context("list the modules' dependencies; depmod is in the package kmod")?;
    let folder = cache.join(package);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    fs::rename(&partial, &folder).with_context(|| format!("name {}", folder.display()))
}

/// Links `lib` of a kernel's folder as `usr/lib`, or the reverse. Debian 12 has the modules in `lib`, 13 in `usr/lib`.
fn name_libraries_twice(folder: &Path) -> anyhow::Result<()> {
    let (old, new) = (folder.join("lib"), folder.join("usr/lib"));
    let (name, target) = if new.join("modules").exists() { (&old, "usr/lib") } else { (&new, "../lib") };
    if name.exists() {
        return Ok(());
    }
    fs::create_dir_all(folder.join("usr")).with_context(|| format!("make usr in {}", folder.display()))?;
    symlink(target, name).with_context(|| format!("make the link {}", name.display()))
}

fn output_of(command: &mut Command) -> anyhow::Result<String> {
    let shown = format!("{command:?}");
    let output = command.output().with_context(|| format!("run {shown}"))?;
    if !output.status.success() {
        bail!("{shown} failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(packages: &[&str]) -> Option<String> {
        newest(&packages.iter().map(|package| (*package).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_newest_plain_kernel_of_the_preferred_series_is_chosen() {
        let offered = [
            "linux-image-6.1.0-56-amd64",
            "linux-image-6.12-amd64",
            "linux-image-6.12.100+deb12-amd64",
            "linux-image-6.12.9+deb12-amd64",
            "linux-image-6.12.117+deb12-rt-amd64",
            "linux-image-6.12.117+deb12-cloud-amd64",
            "linux-image-6.12.117+deb12-amd64-unsigned",
            "linux-image-6.16.3+deb13-amd64",
        ];
        assert_eq!(chosen(&offered).as_deref(), Some("linux-image-6.12.100+deb12-amd64"));
    }

    #[test]
    fn without_the_preferred_series_the_newest_is_chosen() {
        let offered = ["linux-image-6.1.0-9-amd64", "linux-image-6.1.0-56-amd64", "linux-image-6.1.0-50-cloud-amd64"];
        assert_eq!(chosen(&offered).as_deref(), Some("linux-image-6.1.0-56-amd64"));
    }

    #[test]
    fn meta_packages_and_nothing_give_no_kernel() {
        assert_eq!(chosen(&["linux-image-amd64", "linux-image-6.12-amd64"]), None);
        assert_eq!(chosen(&[]), None);
    }

    #[test]
    fn modules_are_found_by_the_name_of_either_release() {
        for there in ["lib", "usr/lib"] {
            let folder = crate::Folder::new("hw-tests-modules-of").unwrap();
            fs::create_dir_all(folder.file(there).join("modules/6.12.1")).unwrap();
            name_libraries_twice(folder.path()).unwrap();
            for name in ["lib/modules", "usr/lib/modules"] {
                let found = first_named(&folder.file(name), "").unwrap();
                assert_eq!(found, folder.file(name).join("6.12.1"), "where they lie in {there}");
            }
        }
    }

    #[test]
    fn a_folder_of_an_interrupted_download_is_no_kernel() {
        let cache = crate::Folder::new("hw-tests-kernel").unwrap();
        let package = "linux-image-6.12.1-1-amd64";
        let partial = cache.file("linux-image-6.12.1-1-amd64.partial");
        fs::create_dir_all(partial.join("boot")).unwrap();
        fs::create_dir_all(partial.join("lib/modules/6.12.1")).unwrap();
        fs::write(partial.join("boot/vmlinuz-6.12.1"), "").unwrap();
        fs::write(partial.join("lib/modules/6.12.1/modules.dep"), "").unwrap();
        assert_eq!((newest(&there(cache.path())), opened(cache.path(), package).is_some()), (None, false));
        fs::rename(&partial, cache.file(package)).unwrap();
        assert_eq!(newest(&there(cache.path())).as_deref(), Some(package));
        assert!(opened(cache.path(), package).is_some());
    }
}
