// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the library and the C programs, for the bench, the tests and the installation. The library and its component
//! links have a separate folder (see [`crate::workspace`]). A folder that Open MPI searches must not contain a dangling
//! link, so each step replaces a complete file. Grade: setup. Tests: below.

use crate::command::{cargo, output, run, step};
use crate::manifest::{Link, replace_file, replace_link};
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::SystemTime;

mod chooser;
mod test_programs;

pub(crate) use chooser::chooser;
pub(crate) use test_programs::{TestProgram, Tests};

pub(crate) const COMPONENTS: &[&str] = &["mca_btl_ibex.so", "mca_pml_ibex.so"];

/// Cargo's profile for the library.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Profile {
    /// For tests: quickly built, with assertions.
    Dev,
    /// For users and measurements.
    Release,
}

impl Profile {
    /// Name of the profile's folder in the target folder.
    fn folder(self) -> &'static str {
        match self {
            Self::Dev => "debug",
            Self::Release => "release",
        }
    }
}

/// Builds packages that are the same for every Open MPI.
fn build_shared(workspace: &Workspace, words: &[&str]) -> Result<()> {
    let mut build = cargo(workspace.root());
    run(build.args(["build", "--target-dir"]).arg(workspace.shared_target()).args(words))
}

/// The provider, and the library that it needs beside it.
const PROVIDER: [&str; 4] = ["--package", "ibex-provider", "--package", "ibex-mpi4-calls"];

/// Builds all that is installed in release: `libibex.so`, `libibex-log.so`, the libfabric provider and the command.
pub(crate) fn library(workspace: &Workspace) -> Result<()> {
    library_alone(workspace)?;
    step("Building the logger (release)");
    run(workspace.cargo_build().args(["--release", "--package", "ibex-event-log"]))?;
    put_down_logger(workspace, Profile::Release)?;
    provider_and_command(workspace)
}

/// Builds what is the same for every Open MPI in release: the libfabric provider and the command.
pub(crate) fn provider_and_command(workspace: &Workspace) -> Result<()> {
    step("Building the libfabric provider and the command ibex (release)");
    build_shared(workspace, &[&["--release", "--package", "ibex-command"], &PROVIDER[..]].concat())?;
    put_down_provider(workspace.shared_target(), Profile::Release)
}

/// Builds `libibex.so` alone in release; with the logger and the command it would take three times as long.
///
/// Other packages in the same build would add features to its dependencies; each bench would then build it anew.
pub(crate) fn library_alone(workspace: &Workspace) -> Result<()> {
    step("Building libibex.so (release)");
    run(workspace.cargo_build().args(["--release", "--package", "ibex-plugin-abi"]))?;
    put_down(workspace, Profile::Release)
}

/// Builds the libfabric provider alone in release.
pub(crate) fn provider_alone(workspace: &Workspace) -> Result<()> {
    step("Building libibex-fi.so (release)");
    build_shared(workspace, &[&["--release"], &PROVIDER[..]].concat())?;
    put_down_provider(workspace.shared_target(), Profile::Release)
}

/// Packages to build with their tests. A target folder has one selection: another would choose other features of the
/// same crates, and compile them again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Packages {
    All,
    /// The packages that a device test runs, and that may be built for another Open MPI.
    OfDeviceTests,
}

/// Builds packages with all their tests in one run of cargo, in the profile for development.
pub(crate) fn tests(workspace: &Workspace, packages: Packages) -> Result<Tests> {
    step("Building ibex and its tests (dev)");
    let mut build = workspace.cargo_build();
    match packages {
        Packages::All => drop(build.arg("--workspace")),
        Packages::OfDeviceTests => {
            let packages = [
                "ibex-ffi",
                "ibex-plugin-abi",
                "ibex-provider",
                "ibex-mpi4-calls",
                "ibex-event-log",
                "ibex-command",
                "softhca",
                "ibex-hw-tests",
            ];
            build.args(packages.iter().flat_map(|package| ["--package", package]));
        }
    }
    build.args(["--lib", "--bins", "--tests"]);
    let messages = output(build.args(["--message-format", "json-render-diagnostics"]))?;
    put_down(workspace, Profile::Dev)?;
    put_down_logger(workspace, Profile::Dev)?;
    put_down_provider(workspace.target(), Profile::Dev)?;
    Ok(Tests::of_messages(&messages, &workspace.target().join(Profile::Dev.folder())))
}

/// Builds a `libibex.so` that has no events, to compare with, in a target folder of its own, because cargo would take
/// one build for the other.
pub(crate) fn library_without_events(workspace: &Workspace) -> Result<()> {
    step("Building libibex.so without events (release)");
    let without = workspace.without_events();
    run(without.cargo_build().args(["--release", "--package", "ibex-plugin-abi", "--no-default-features"]))?;
    put_down(&without, Profile::Release)
}

/// Returns the built command `ibex`, after it has written its manual pages and completions ([`Workspace::share`]).
pub(crate) fn command(workspace: &Workspace, profile: Profile) -> Result<PathBuf> {
    let command = workspace.shared_target().join(profile.folder()).join("ibex");
    if workspace.share().exists() {
        fs::remove_dir_all(workspace.share())?;
    }
    run(Command::new(&command).arg("pages").arg(workspace.share()))?;
    Ok(command)
}

/// Builds the emulated adapter, optimised also in the profile for development, so that tests and installation share it.
/// Writes its manual pages beside those of `ibex`; call [`command`] first.
pub(crate) fn emulated_adapter(workspace: &Workspace) -> Result<()> {
    step("Building the emulated adapter");
    build_shared(workspace, &["--package", "softhca"])?;
    emulated_adapter_pages(workspace)
}

pub(crate) fn emulated_adapter_pages(workspace: &Workspace) -> Result<()> {
    run(Command::new(softhca(workspace)).arg("pages").arg(workspace.share()))
}

pub(crate) fn softhca(workspace: &Workspace) -> PathBuf {
    workspace.shared_target().join(Profile::Dev.folder()).join("softhca")
}

/// Builds the agent that runs a device's jobs, beside this command, where [`hw_tests`] looks for it. An agent of an
/// older commit would not understand this command.
pub(crate) fn agent(workspace: &Workspace) -> Result<()> {
    build_shared(workspace, &["--quiet", "--package", "ibex-hw-tests", "--bin", "fabric-agent"])
}

/// Copies the library that cargo built to its folder, with the component links.
fn put_down(workspace: &Workspace, profile: Profile) -> Result<()> {
    fs::create_dir_all(workspace.components())?;
    replace_file(&workspace.library(), &built(workspace.target(), profile, "libibex.so")?)?;
    let link = |name: &&str| Link { path: workspace.components().join(name), target: "../libibex.so".into() };
    COMPONENTS.iter().map(link).try_for_each(|link| replace_link(&link))
}

/// Puts the logger beside the library, where the library looks for it.
fn put_down_logger(workspace: &Workspace, profile: Profile) -> Result<()> {
    replace_file(&logger(&workspace.library()), &built(workspace.target(), profile, "libibex_log.so")?)
}

/// Puts the libfabric provider where the command looks for it, under the name that libfabric looks for.
fn put_down_provider(target: &Path, profile: Profile) -> Result<()> {
    let provider = provider(target);
    fs::create_dir_all(provider.parent().unwrap_or(target))?;
    replace_file(&provider, &built(target, profile, "libibex_fi.so")?)?;
    replace_file(&mpi4_calls(&provider), &built(target, profile, "libibex_mpi4.so")?)
}

pub(crate) fn provider(target: &Path) -> PathBuf {
    target.join("ibex/lib/libfabric/libibex-fi.so")
}

fn built(target: &Path, profile: Profile, name: &str) -> Result<Vec<u8>> {
    let path = target.join(profile.folder()).join(name);
    fs::read(&path).with_context(|| format!("cargo built no {}", path.display()))
}

/// The calls of MPI 4, for the provider's recorder, which are beside it.
pub(crate) fn mpi4_calls(provider: &Path) -> PathBuf {
    provider.with_file_name("libibex-mpi4.so")
}

pub(crate) fn logger(library: &Path) -> PathBuf {
    library.with_file_name("libibex-log.so")
}

/// Compiles each C file of a folder into an MPI program, if a source is newer.
pub(crate) fn programs(workspace: &Workspace, folder: &str) -> Result<()> {
    compiled(workspace, folder, &Compiler::new(workspace.mpicc(), "-lm", workspace.programs()))
}

/// Compiles the programs of a folder that run with every MPI, with the compiler of an MPI.
pub(crate) fn programs_of(workspace: &Workspace, folder: &str, mpicc: &Path, to: &Path) -> Result<()> {
    let compiler = Compiler::new(mpicc.to_path_buf(), "-lm", to.to_path_buf());
    // gcc takes the MPI_STATUSES_IGNORE of Debian's MPICH for the address of an array without elements.
    let options = &["-Wno-stringop-overflow"];
    let root = mpicc.ancestors().nth(2).map(Path::to_path_buf);
    compiled(workspace, folder, &Compiler { is_for_all_mpis: true, options, root, ..compiler })
}

/// Compiles tools to preload, which are libraries: `NAME.so`.
pub(crate) fn preloaded_tools(workspace: &Workspace, folder: &str) -> Result<()> {
    let compiler = Compiler::new(workspace.mpicc(), "-lm", workspace.programs());
    compiled(workspace, folder, &Compiler { options: &["-shared", "-fPIC"], extension: "so", ..compiler })
}

/// Compiles programs that use a library (`-libverbs`), and no MPI.
pub(crate) fn programs_without_mpi(workspace: &Workspace, folder: &str, library: &'static str) -> Result<()> {
    compiled(workspace, folder, &Compiler::new("cc".into(), library, workspace.programs()))
}

struct Compiler {
    program: PathBuf,
    options: &'static [&'static str],
    library: &'static str,
    /// Folder of what it makes.
    to: PathBuf,
    extension: &'static str,
    /// Whether it leaves out programs that need Open MPI.
    is_for_all_mpis: bool,
    /// Prefix of a stock MPI, which the compiler wrapper of Intel MPI gets from its environment.
    root: Option<PathBuf>,
}

impl Compiler {
    fn new(program: PathBuf, library: &'static str, to: PathBuf) -> Self {
        Self { program, options: &[], library, to, extension: "", is_for_all_mpis: false, root: None }
    }
}

fn compiled(workspace: &Workspace, folder: &str, compiler: &Compiler) -> Result<()> {
    let mut sources = sources(&workspace.root().join(folder))?;
    sources.retain(|source| !compiler.is_for_all_mpis || hw_tests::openmpi::why_needed(source).is_none());
    // Tools also include headers of the MPI programs.
    let headers_of = |folder: &str| files_with(&workspace.root().join(folder), "h");
    let headers = newest(&[headers_of(folder)?, headers_of("hw-tests/mpi")?].concat());
    fs::create_dir_all(&compiler.to)?;
    step(&format!("Compiling the programs of {folder} with {}", compiler.program.display()));
    let compile_one = |source: &PathBuf| {
        let program = compiler.to.join(source.file_stem().unwrap_or_default()).with_extension(compiler.extension);
        let is_new = modified(&program) > headers.max(modified(source));
        if is_new { Ok(()) } else { compile(workspace, compiler, source, &program) }
    };
    let share = sources.len().div_ceil(thread::available_parallelism().map_or(1, usize::from));
    thread::scope(|scope| {
        let side_by_side: Vec<_> =
            sources.chunks(share).map(|sources| scope.spawn(|| sources.iter().try_for_each(compile_one))).collect();
        side_by_side.into_iter().try_for_each(|thread| thread.join().expect("a thread that does not panic"))
    })
}

fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let sources = files_with(folder, "c")?;
    if sources.is_empty() {
        bail!("{} holds no C file to compile", folder.display());
    }
    Ok(sources)
}

fn compile(workspace: &Workspace, compiler: &Compiler, source: &Path, program: &Path) -> Result<()> {
    let mut compile = Command::new(&compiler.program);
    compile.envs(compiler.root.iter().map(|root| ("I_MPI_ROOT", root)));
    compile.args(["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]).args(compiler.options);
    compile.arg("-o").arg(program).arg(source);
    let text = fs::read_to_string(source).with_context(|| format!("cannot read {}", source.display()))?;
    if is_tool(&text) {
        // The target of the component link, so that tool and component are one library; and its folder, because cargo's
        // LD_LIBRARY_PATH names the folder of other builds.
        let ibex = workspace.library();
        let folder = ibex.parent().unwrap_or(Path::new("."));
        compile.arg("-I").arg(workspace.headers()).arg("-L").arg(folder).arg("-libex");
        compile.arg(format!("-Wl,--disable-new-dtags,-rpath,{}", folder.display()));
    }
    run(compile.arg(compiler.library))
}

/// Whether a program includes a header of ibex.
fn is_tool(source: &str) -> bool {
    let mut includes = source.lines().filter(|line| line.starts_with("#include"));
    includes.any(|line| line.contains("ibex_mpi_t.h") || line.contains("peruse.h"))
}

fn files_with(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.retain(|path| path.extension().is_some_and(|found| found == extension));
    files.sort();
    Ok(files)
}

/// Returns the time at which a file was written; 1970 if there is none.
fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).and_then(|metadata| metadata.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}

fn newest(files: &[PathBuf]) -> SystemTime {
    files.iter().map(|file| modified(file)).max().unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::tests::scratch;

    #[test]
    fn a_folder_without_a_program_is_an_error_and_what_is_missing_is_older_than_all_else() {
        let folder = scratch();
        let error = sources(folder.path()).unwrap_err().to_string();
        assert!(error.contains("holds no C file"), "{error}");
        let missing = folder.path().join("missing");
        assert!(sources(&missing).is_err() && modified(&missing) < modified(folder.path()));
        assert_eq!(newest(&[]), modified(&missing));
    }

    #[test]
    fn a_program_that_includes_a_header_of_ibex_is_a_tool() {
        assert!(is_tool("#include <mpi.h>\n#include <peruse.h>\n") && is_tool("#include \"ibex_mpi_t.h\"\n"));
        assert!(!is_tool("#include <mpi.h>\n// not peruse.h\n"));
    }
}
