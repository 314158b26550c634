// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's first file system (initramfs): a cpio archive with busybox, the modules that reach the real root,
//! `init.sh` and its settings. [`super::boot`] writes one for each node. Setup grade. Tests: at the end of this file.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::Folder;

const INIT: &str = include_str!("init.sh");
/// Path of the statically linked busybox of Debian's `busybox-static`.
pub(crate) const BUSYBOX: &str = "/usr/bin/busybox";
/// Modules that the guest needs to reach its root, unless they are built into the kernel.
const ROOT_MODULES: [&str; 5] = ["virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_console"];

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) node: usize,
    pub(crate) nodes: usize,
    /// Path of the agent's program on the host.
    pub(crate) agent: PathBuf,
    /// Folder of the kernel's modules on the host.
    pub(crate) modules: PathBuf,
}

pub(crate) fn initramfs(settings: &Settings) -> anyhow::Result<Vec<u8>> {
    let root = Folder::new("ibex-initramfs")?;
    for folder in ["proc", "sys", "dev", "lower", "upper", "root", "bin", "fabric/modules"] {
        fs::create_dir_all(root.file(folder)).with_context(|| format!("make {folder}"))?;
    }
    let busybox = fs::read(BUSYBOX).with_context(|| format!("read {BUSYBOX}; install the package busybox-static"))?;
    let write = |path: &str, content: &[u8]| {
        let file = root.file(path);
        let written = fs::write(&file, content);
        let written = written.and_then(|()| fs::set_permissions(&file, fs::Permissions::from_mode(0o755)));
        written.with_context(|| format!("write {path}"))
    };
    write("fabric/busybox", &busybox)?;
    // The kernel starts /init by the interpreter that its first line names.
    write("bin/busybox", &busybox)?;
    write("init", INIT.as_bytes())?;
    write("fabric/init", INIT.as_bytes())?;
    let needed = with_dependencies(&settings.modules, &ROOT_MODULES)?;
    let names: Vec<String> = needed.iter().map(|file| module_name(file)).collect();
    for (file, name) in needed.iter().zip(&names) {
        write(&format!("fabric/modules/{name}.ko"), &read_module(file)?)?;
    }
    write("fabric/settings", settings.text(&names).as_bytes())?;
    let archive = "\"$0\" find . | \"$0\" cpio -o -H newc -R 0:0";
    output_of(Command::new("sh").args(["-c", archive, BUSYBOX]).current_dir(root.path()))
}

impl Settings {
    fn text(&self, modules: &[String]) -> String {
        let mut text = String::new();
        let lines = [
            ("NODE", self.node.to_string()),
            ("NODES", self.nodes.to_string()),
            ("AGENT", self.agent.display().to_string()),
            ("MODULES", self.modules.display().to_string()),
            ("BOOT_MODULES", modules.join(" ")),
        ];
        for (name, value) in lines {
            let _ = writeln!(text, "{name}={}", quoted(&value));
        }
        text
    }
}

fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

/// Returns the files of these modules and their dependencies, in the order to load them. `modules.dep` lacks modules
/// that are built in.
fn with_dependencies(folder: &Path, names: &[&str]) -> anyhow::Result<Vec<PathBuf>> {
    let file = folder.join("modules.dep");
    let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    let lines: HashMap<String, (&str, Vec<&str>)> = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(module, needs)| (module_name(Path::new(module)), (module, needs.split_whitespace().collect())))
        .collect();
    let mut order: Vec<&str> = Vec::new();
    for (module, needs) in names.iter().filter_map(|name| lines.get(*name)) {
        // depmod lists all dependencies, direct or not, the last to load first.
        for each in needs.iter().rev().chain(std::iter::once(module)) {
            if !order.contains(each) {
                order.push(each);
            }
        }
    }
    Ok(order.into_iter().map(|module| folder.join(module)).collect())
}

/// Returns `9pnet_virtio` for `kernel/net/9p/9pnet_virtio.ko.xz`. The kernel treats `-` and `_` alike.
fn module_name(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.split(".ko").next().unwrap_or_default().replace('-', "_")
}

fn read_module(file: &Path) -> anyhow::Result<Vec<u8>> {
    let applet = match file.extension().and_then(|ending| ending.to_str()) {
        Some("xz") => "xzcat",
        Some("gz") => "zcat",
        _ => return fs::read(file).with_context(|| format!("read the module {}", file.display())),
    };
    output_of(Command::new(BUSYBOX).arg(applet).arg(file))
}

fn output_of(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    if !output.status.success() || output.stdout.is_empty() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_with_a_quote_stays_one_word_of_a_shell() {
        let value = "it's here; $HOME";
        let output = Command::new("sh").arg("-c").arg(format!("printf %s {}", quoted(value))).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), value);
    }

    #[test]
    fn each_module_comes_once_and_after_its_dependencies() {
        let folder = Folder::new("hw-tests-modules").unwrap();
        let text = "net/9pnet.ko.xz:\nfs/9p.ko.xz: net/9pnet.ko.xz fs/netfs.ko.xz\nfs/netfs.ko.xz:\n\
                    net/9pnet-virtio.ko.xz: drivers/virtio.ko net/9pnet.ko.xz drivers/ring.ko\n";
        fs::write(folder.file("modules.dep"), text).unwrap();
        let order = with_dependencies(folder.path(), &["9pnet_virtio", "built_in", "9p"]).unwrap();
        let names: Vec<String> = order.iter().map(|file| module_name(file)).collect();
        assert_eq!(names, ["ring", "9pnet", "virtio", "9pnet_virtio", "netfs", "9p"]);
    }
}
