// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask package --wheel`: a Python wheel with the libfabric provider and the commands `ibex` and `softhca`, for
//! the MPIs that pip installs. Building it needs no Open MPI. pip puts the files under the prefix of its Python
//! environment, where `cargo xtask install` would put them.
//!
//! The wheel is for `linux`, not for a `manylinux`: it is linked with the C library of this machine, and uses the
//! `libibverbs.so.1` of the user's. Format: "Binary distribution format" of the Python Packaging User Guide. Grade:
//! setup. Called by [`super`]. Tests: below, and `--try`.

use crate::build::{self, Profile};
use crate::command::{quietly, run, step};
use crate::install::files_under;
use crate::manifest::replace_file;
use crate::mpis::MPICH;
use crate::python;
use crate::workspace::Workspace;
use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use std::env::consts::ARCH;
use std::fs;
use std::io::{Cursor, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// Begins the wheel's name, and those of its folders.
const NAME: &str = concat!("ibex_libfabric-", env!("CARGO_PKG_VERSION"));

/// Folder of the provider in the wheel.
const LIBFABRIC: &str = concat!("ibex_libfabric-", env!("CARGO_PKG_VERSION"), ".data/data/lib/libfabric");

/// Folder of the programs.
const SCRIPTS: &str = concat!("ibex_libfabric-", env!("CARGO_PKG_VERSION"), ".data/scripts");

/// A file of the wheel: its path in there, and its bytes.
type Member = (String, Vec<u8>);

/// Builds the wheel in a folder. Returns its path.
pub(super) fn build(workspace: &Workspace, folder: &Path) -> Result<PathBuf> {
    build::provider_and_command(workspace)?;
    build::command(workspace, Profile::Release)?;
    build::emulated_adapter(workspace)?;
    step("Packing the wheel");
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let wheel = folder.join(format!("{NAME}-{}.whl", tag()));
    replace_file(&wheel, &packed(members(workspace)?)?)?;
    Ok(wheel)
}

fn tag() -> String {
    format!("py3-none-linux_{ARCH}")
}

fn members(workspace: &Workspace) -> Result<Vec<Member>> {
    let adapter = build::softhca(workspace);
    let target = workspace.shared_target();
    let mut files = vec![
        (target.join("release/ibex"), format!("{SCRIPTS}/ibex")),
        (adapter.clone(), format!("{SCRIPTS}/softhca")),
        (build::provider(target), format!("{LIBFABRIC}/libibex-fi.so")),
        (build::mpi4_calls(&build::provider(target)), format!("{LIBFABRIC}/libibex-mpi4.so")),
        // Where the command looks for it.
        (adapter.with_file_name("libsofthca.so"), format!("{NAME}.data/data/lib/libsofthca.so")),
    ];
    for path in files_under(&workspace.share())? {
        let to = format!("{NAME}.data/data/share/{}", path.strip_prefix(workspace.share())?.display());
        files.push((path, to));
    }
    for license in ["LICENSE-MIT", "LICENSE-APACHE"] {
        files.push((workspace.root().join(license), format!("{NAME}.dist-info/licenses/{license}")));
    }
    let read = |(path, to): (PathBuf, String)| {
        Ok((to, fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?))
    };
    let mut members = files.into_iter().map(read).collect::<Result<Vec<Member>>>()?;
    members.sort();
    members.push((format!("{NAME}.dist-info/METADATA"), metadata().into_bytes()));
    members.push((format!("{NAME}.dist-info/WHEEL"), wheel().into_bytes()));
    Ok(members)
}

fn metadata() -> String {
    format!(
        "Metadata-Version: 2.4\nName: ibex-libfabric\nVersion: {}\n\
         Summary: InfiniBand and RoCE for MPICH, Intel MPI, Open MPI and other programs that use libfabric\n\
         License-Expression: MIT OR Apache-2.0\nLicense-File: LICENSE-MIT\nLicense-File: LICENSE-APACHE\n",
        env!("CARGO_PKG_VERSION")
    )
}

fn wheel() -> String {
    format!("Wheel-Version: 1.0\nGenerator: cargo xtask package\nRoot-Is-Purelib: false\nTag: {}\n", tag())
}

/// Returns the archive of these files and of RECORD, their list.
fn packed(mut members: Vec<Member>) -> Result<Vec<u8>> {
    let record = format!("{NAME}.dist-info/RECORD");
    let lines: Vec<String> = members.iter().map(recorded).collect();
    let list = format!("{}\n{record},,\n", lines.join("\n"));
    members.push((record, list.into_bytes()));
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (path, bytes) in members {
        // pip makes a program executable if it is so in the archive.
        let permissions = if path.starts_with(SCRIPTS) { 0o755 } else { 0o644 };
        archive.start_file(path, SimpleFileOptions::default().unix_permissions(permissions))?;
        archive.write_all(&bytes)?;
    }
    Ok(archive.finish()?.into_inner())
}

fn recorded((path, bytes): &Member) -> String {
    format!("{path},sha256={},{}", URL_SAFE_NO_PAD.encode(Sha256::digest(bytes)), bytes.len())
}

/// Installs the wheel beside mpi4py and MPICH of the Python package index, runs a job over an emulated adapter, removes
/// the wheel, and checks that it has left no file.
pub(super) fn try_beside_mpi4py(workspace: &Workspace, wheel: &Path) -> Result<()> {
    step("Trying it beside mpi4py and MPICH of the Python package index");
    let folder = workspace.shared_target().join("wheel");
    python::ensure(&folder, &workspace.root().join(MPICH.list))?;
    let bin = folder.join("bin");
    let pip = || {
        let mut pip = Command::new(bin.join("python"));
        pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]);
        pip
    };
    quietly(pip().args(["install", "--no-index", "--force-reinstall"]).arg(wheel))?;
    let mut job = Command::new(bin.join("softhca"));
    job.args(["run", "--"]).arg(bin.join("ibex")).args(["run", "--no-shared-memory", "--"]);
    job.arg(bin.join("mpiexec")).args(["-n", "2"]).arg(bin.join("python")).args(["-m", "mpi4py.bench", "ringtest"]);
    run(&mut job)?;
    quietly(pip().args(["uninstall", "--yes", "ibex-libfabric"]))?;
    let libraries = ["lib/libfabric/libibex-fi.so", "lib/libfabric/libibex-mpi4.so", "lib/libsofthca.so"];
    let left = ["bin/ibex", "bin/softhca"].into_iter().chain(libraries);
    let left: Vec<&str> = left.filter(|file| folder.join(file).exists()).collect();
    ensure!(left.is_empty(), "pip has removed the wheel, but these files are left: {}", left.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn the_record_lists_every_file_with_its_digest_and_size_and_programs_are_executable() {
        assert_eq!(recorded(&("a".into(), Vec::new())), "a,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0");
        let members = [format!("{SCRIPTS}/program"), "a/b".into()].map(|path| (path, b"bytes".to_vec()));
        let archive = packed(members.into()).unwrap();
        let mut archive = zip::ZipArchive::new(Cursor::new(archive)).unwrap();
        let mut read = |path: &str| {
            let (mut file, mut text) = (archive.by_name(path).unwrap(), String::new());
            file.read_to_string(&mut text).unwrap();
            (text, file.unix_mode().unwrap() & 0o777)
        };
        assert_eq!(read(&format!("{SCRIPTS}/program")), ("bytes".into(), 0o755));
        assert_eq!(read("a/b"), ("bytes".into(), 0o644));
        let record = format!("{NAME}.dist-info/RECORD");
        let (list, _) = read(&record);
        assert_eq!(list.lines().count(), 3, "{list}");
        assert!(list.contains("\na/b,sha256=") && list.ends_with(&format!(",5\n{record},,\n")), "{list}");
    }
}
