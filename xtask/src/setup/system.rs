// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system: its package manager, and checks of requirements, however they were installed. Grade: setup. Called by
//! [`super`]. Tests: tests.rs.

use super::requirements::{MANAGERS, Manager, Proof, Requirement};
use crate::environment::Environment;
use std::collections::HashSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs};

pub(super) struct System<'a> {
    environment: &'a Environment,
    /// `None`: unknown.
    pub(super) manager: Option<&'static Manager>,
}

impl<'a> System<'a> {
    /// Describes this environment. An active Conda environment decides: its compiler sees nothing else.
    pub(super) fn of(environment: &'a Environment) -> Self {
        let has = |programs: &[&str]| programs.iter().all(|program| environment.program(program).is_some());
        let in_conda = environment.variable("CONDA_PREFIX").is_some() && has(&["conda", "mpicc"]);
        let is_here = |manager: &&Manager| {
            if in_conda { manager.programs == ["conda"] } else { has(manager.programs) }
        };
        Self { environment, manager: MANAGERS.iter().find(is_here) }
    }

    fn has_apt(&self) -> bool {
        self.manager.is_some_and(|manager| manager.column.is_none())
    }

    pub(super) fn missing(&self, needed: Vec<&'static Requirement>) -> std::io::Result<Vec<&'static Requirement>> {
        if !self.has_apt() {
            return Ok(needed.into_iter().filter(|thing| !self.has(&thing.proof)).collect());
        }
        let installed = self.installed_by_apt(&needed)?;
        let missing: Vec<&Requirement> = needed.into_iter().filter(|thing| !installed.contains(thing.name)).collect();
        // If nothing can be installed, a passed check is enough.
        let is_lacking = |thing: &&Requirement| self.may_install() || !self.has(&thing.proof);
        Ok(missing.into_iter().filter(is_lacking).collect())
    }

    pub(super) fn may_install(&self) -> bool {
        self.has_apt() && (is_root() || self.environment.program("sudo").is_some())
    }

    /// Returns the packages that dpkg has installed. dpkg exits with 1 for an unknown name, which is also an answer.
    fn installed_by_apt(&self, things: &[&Requirement]) -> std::io::Result<HashSet<String>> {
        let program = self.environment.program("dpkg-query").unwrap_or_else(|| "dpkg-query".into());
        let output = (self.environment.command(&program))
            .args(["--show", "--showformat", "${db:Status-Status} ${Package}\\n"])
            .args(things.iter().map(|thing| thing.name))
            .output()?;
        Ok(parse_installed(&String::from_utf8_lossy(&output.stdout)))
    }

    pub(super) fn has(&self, proof: &Proof) -> bool {
        match proof {
            Proof::Program(names) => names.iter().any(|name| self.environment.program(name).is_some()),
            Proof::Header { header, module } => self.has_header(header, module),
            Proof::LibClang => self.has_libclang(),
            Proof::Drivers => self.has_library_folder("libibverbs"),
            Proof::Python(module) => self.says_yes("python3", &["-c", &format!("import {module}")], ""),
        }
    }

    fn has_header(&self, header: &str, module: &str) -> bool {
        let include = format!("#include <{header}>\n");
        let flags = self.said("pkg-config", &["--cflags", module]).unwrap_or_default();
        let mut options = vec!["-E", "-x", "c", "-o", "/dev/null", "-"];
        options.extend(flags.split_whitespace());
        let folder = self.environment.variable("CONDA_PREFIX").map(|prefix| format!("-I{}/include", prefix.display()));
        options.extend(folder.as_deref());
        self.says_yes("cc", &options, &include)
    }

    /// Looks where bindgen does: in `LIBCLANG_PATH`, the answer of `llvm-config`, and the folders of libraries.
    fn has_libclang(&self) -> bool {
        let mut folders: Vec<String> = Vec::new();
        folders.extend(self.environment.variable("LIBCLANG_PATH").map(|path| path.to_string_lossy().into_owned()));
        folders.extend(self.said("llvm-config", &["--libdir"]).map(|folder| folder.trim().to_owned()));
        folders.extend(self.library_folders());
        let is_libclang = |folder: &String| {
            let path = Path::new(folder);
            let named =
                |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libclang"));
            let is_library = |path: &Path| named(path) && path.to_string_lossy().contains(".so");
            is_library(path) || entries(folder).any(|entry| is_library(&entry.path()))
        };
        // One folder for each version: /usr/lib/llvm-14/lib.
        let versions = entries("/usr/lib").map(|entry| entry.path().join("lib").display().to_string());
        let versions = versions.filter(|folder| folder.contains("/llvm"));
        folders.into_iter().chain(versions).any(|folder| is_libclang(&folder))
    }

    fn has_library_folder(&self, name: &str) -> bool {
        self.library_folders().iter().any(|folder| entries(Path::new(folder).join(name)).next().is_some())
    }

    /// Returns the folders in which a loader looks for libraries.
    fn library_folders(&self) -> Vec<String> {
        let told = self.environment.variable("LD_LIBRARY_PATH").map(env::split_paths).into_iter().flatten();
        let conda = self.environment.variable("CONDA_PREFIX").map(|prefix| Path::new(prefix).join("lib"));
        let told = told.chain(conda).map(|folder| folder.display().to_string());
        let multiarch = format!("/usr/lib/{}-linux-gnu", env::consts::ARCH);
        let of_system = ["/usr/lib64", "/usr/lib", "/lib64", "/lib", &multiarch];
        told.chain(of_system.map(str::to_owned)).collect()
    }

    /// Returns the output of a program that succeeds.
    fn said(&self, program: &str, options: &[&str]) -> Option<String> {
        let program = self.environment.program(program)?;
        let output = self.environment.command(&program).args(options).stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn says_yes(&self, program: &str, options: &[&str], input: &str) -> bool {
        let Some(program) = self.environment.program(program) else { return false };
        let mut command = self.environment.command(&program);
        command.args(options).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(mut child) = command.spawn() else { return false };
        // A program that does not read its input has ended, and its status is the answer.
        let _ = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
        child.wait().is_ok_and(|status| status.success())
    }
}

pub(super) fn apt_get() -> Command {
    if is_root() {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    } else {
        let mut command = Command::new("sudo");
        command.args(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
        command
    }
}

fn entries(folder: impl AsRef<Path>) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

pub(super) fn parse_installed(listing: &str) -> HashSet<String> {
    listing.lines().filter_map(|line| line.strip_prefix("installed ")).map(str::to_owned).collect()
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
