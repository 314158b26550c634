// SPDX-License-Identifier: MIT OR Apache-2.0
//! `install` puts the library where Open MPI finds it; `uninstall` removes exactly that.
//!
//! Without `--prefix`, the library goes under `~/.local` and its component link into `~/.openmpi/components`, where a
//! stock Open MPI looks by itself. With `--prefix DIR` everything goes under DIR, and Open MPI is told by a variable.
//! The library is one file, each component a symlink to it: two copies would be two instances. Beside it lies the
//! logger. The command `ibex` goes where programs go, with its manual pages and completions, and the MPI programs that
//! `ibex bench` measures with into `libexec/ibex`. These are compiled here and not by their user: like the library they
//! are for the Open MPI that they were built with, and the hosts of a cluster often have no compiler. The emulated adapter
//! comes along, for who wants to try it all without one.
//!
//! Order matters (a dangling link in its folder hides all of Open MPI's components there): files before links, and
//! links removed before files. Each is renamed into place. The manifest is written before anything else.
//!
//! [`place`] says where things go. Grade: setup. Tests: install/tests.rs.

use crate::build;
use crate::command::{is_in_path, output, step};
use crate::manifest::{File, Link, Manifest, hash, replace_by_copy, replace_link};
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

mod place;

use place::Place;

/// The components the library holds.
pub(crate) const COMPONENTS: &[&str] = &["mca_btl_ibex.so", "mca_pml_ibex.so"];

/// What `ibex bench` measures with: the programs of `benches/mpi`.
const BENCH_PROGRAMS: [&str; 2] = ["ibex_mpi_bench", "ibex_mpi_instructions"];

/// Arguments of `cargo xtask install`.
#[derive(clap::Args)]
pub(crate) struct InstallArguments {
    /// Install under this folder [default: your own home, where Open MPI looks by itself]
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
}

/// Arguments of `cargo xtask uninstall`.
#[derive(clap::Args)]
pub(crate) struct UninstallArguments {
    /// The folder that was given to `install`
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
}

/// `cargo xtask install`.
pub(crate) fn install(arguments: &InstallArguments) -> Result<ExitCode> {
    let workspace = Workspace::here();
    let place = Place::chosen(arguments.prefix.as_deref())?;
    crate::setup::ensure(None)?;
    let (library, command) = (build::library(&workspace)?, build::command(&workspace)?);
    build::programs(&workspace, "benches/mpi")?;
    build::emulated_adapter(&workspace)?;
    step("Installing");
    let manifest = put(&place, &Built::of(&workspace, &library, &command))?;
    let paths = manifest.files.iter().map(|file| &file.path).chain(manifest.links.iter().map(|link| &link.path));
    paths.for_each(|path| println!("    {}", path.display()));
    check_that_open_mpi_sees_it(&place)?;
    print!("{}", how_to_run(&place));
    Ok(ExitCode::SUCCESS)
}

/// `cargo xtask uninstall`.
pub(crate) fn uninstall(arguments: &UninstallArguments) -> Result<ExitCode> {
    let place = Place::chosen(arguments.prefix.as_deref())?;
    for path in take_away(&place)? {
        println!("removed {}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// What was built to be installed.
pub(crate) struct Built {
    /// `libibex.so`; the logger lies beside it.
    library: PathBuf,
    /// The folder of the headers.
    headers: PathBuf,
    /// The command `ibex`.
    command: PathBuf,
    /// The folder of its manual pages and completions.
    share: PathBuf,
    /// The folder of [`BENCH_PROGRAMS`].
    bench: PathBuf,
    /// The folder of the emulated adapter: the command `softhca` and its library.
    adapter: PathBuf,
}

impl Built {
    /// From this checkout.
    pub(crate) fn of(workspace: &Workspace, library: &Path, command: &Path) -> Self {
        let (library, command) = (library.to_path_buf(), command.to_path_buf());
        let (headers, share, bench) = (workspace.headers(), workspace.share(), workspace.programs());
        Built { library, headers, command, share, bench, adapter: workspace.target().join("debug") }
    }
}

/// Installs under a prefix, and returns the folder of the component links.
///
/// # Errors
/// As the command.
pub(crate) fn put_under(prefix: &Path, built: &Built) -> Result<PathBuf> {
    let place = Place::under(prefix);
    put(&place, built).map(|_| place.components)
}

/// Uninstalls from a prefix.
///
/// # Errors
/// As the command.
pub(crate) fn take_away_from(prefix: &Path) -> Result<()> {
    take_away(&Place::under(prefix)).map(drop)
}

/// Puts library, headers, command and links in place.
fn put(place: &Place, built: &Built) -> Result<Manifest> {
    let before = Manifest::read(&place.manifest)?.unwrap_or_default();
    let copies = copies(place, built)?;
    let links: Vec<Link> = COMPONENTS
        .iter()
        .map(|name| Link { path: place.components.join(name), target: place.link_to.join("libibex.so") })
        .collect();
    refuse_what_is_not_ours(&before, copies.iter().map(|(_, to)| to).chain(links.iter().map(|link| &link.path)))?;
    refuse_dangling_links(&place.components)?;

    let mut manifest =
        Manifest { version: env!("CARGO_PKG_VERSION").into(), folders: before.folders.clone(), ..Manifest::default() };
    let folders = copies.iter().map(|(_, to)| to).chain([&place.manifest]).filter_map(|file| file.parent());
    for folder in folders.chain([place.components.as_path()]) {
        make_folder(folder, &mut manifest.folders)?;
    }
    for (from, to) in &copies {
        manifest.files.push(File { path: to.clone(), sha256: hash(from)? });
    }
    manifest.links.clone_from(&links);
    manifest.write(&place.manifest)?;

    for (from, to) in &copies {
        replace_by_copy(to, from)?;
    }
    links.iter().try_for_each(replace_link)?;
    remove_leftovers(&before, &manifest)?;
    Ok(manifest)
}

/// What an older version had installed and this one has not.
fn remove_leftovers(before: &Manifest, now: &Manifest) -> Result<()> {
    let mut leftovers = before.clone();
    leftovers.links.retain(|link| !now.lists(&link.path));
    leftovers.files.retain(|file| !now.lists(&file.path));
    leftovers.remove().map(drop)
}

/// Removes what the manifest of this place lists.
fn take_away(place: &Place) -> Result<Vec<PathBuf>> {
    let Some(manifest) = Manifest::read(&place.manifest)? else {
        bail!(
            "nothing is installed here: there is no {}; was it installed with another --prefix?",
            place.manifest.display()
        );
    };
    let mut removed = manifest.remove()?;
    fs::remove_file(&place.manifest).with_context(|| format!("cannot remove {}", place.manifest.display()))?;
    removed.push(place.manifest.clone());
    manifest.remove_folders();
    Ok(removed)
}

/// Each file to copy, and where to.
fn copies(place: &Place, built: &Built) -> Result<Vec<(PathBuf, PathBuf)>> {
    let logger = build::logger(&built.library);
    let mut copies = vec![
        (built.library.clone(), place.library.join("libibex.so")),
        (logger, place.library.join("libibex-log.so")),
        (built.command.clone(), place.programs.join("ibex")),
        (built.adapter.join("softhca"), place.programs.join("softhca")),
        // Where the command looks for it.
        (built.adapter.join("libsofthca.so"), place.library.join("libsofthca.so")),
    ];
    let is_header = |path: &Path| path.extension().is_some_and(|extension| extension == "h");
    for path in files_under(&built.headers)?.into_iter().filter(|path| is_header(path)) {
        let name = path.file_name().unwrap_or_default().to_owned();
        copies.push((path, place.headers.join(name)));
    }
    for path in files_under(&built.share)? {
        let to = place.share.join(path.strip_prefix(&built.share)?);
        copies.push((path, to));
    }
    copies.extend(BENCH_PROGRAMS.map(|name| (built.bench.join(name), place.bench.join(name))));
    copies.sort();
    Ok(copies)
}

/// The files of a folder and of those in it; none where there is no such folder.
fn files_under(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    if folder.is_dir() {
        for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() { files.extend(files_under(&path)?) } else { files.push(path) }
        }
    }
    Ok(files)
}

fn refuse_what_is_not_ours<'a>(before: &Manifest, mut paths: impl Iterator<Item = &'a PathBuf>) -> Result<()> {
    match paths.find(|path| fs::symlink_metadata(path).is_ok() && !before.lists(path)) {
        None => Ok(()),
        Some(path) => bail!(
            "{} exists and was not put there by cargo xtask install; move it away, then try again",
            path.display()
        ),
    }
}

/// One dangling link makes Open MPI skip the rest of the folder, ibex included.
fn refuse_dangling_links(folder: &Path) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        if path.is_symlink() && !path.exists() {
            bail!(
                "{} is a symlink to nothing, and Open MPI stops its search for components at one; remove it, then try again",
                path.display()
            );
        }
    }
    Ok(())
}

/// Makes a folder and notes which ones were new, outermost first.
fn make_folder(folder: &Path, made: &mut Vec<PathBuf>) -> Result<()> {
    let mut new: Vec<PathBuf> = folder.ancestors().take_while(|path| !path.exists()).map(Path::to_path_buf).collect();
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    new.reverse();
    made.extend(new);
    Ok(())
}

fn check_that_open_mpi_sees_it(place: &Place) -> Result<()> {
    if !is_in_path("ompi_info") {
        println!("ompi_info is not in PATH, so nothing checked that Open MPI finds it.");
        return Ok(());
    }
    let mut ompi_info = Command::new("ompi_info");
    ompi_info.arg("--parsable").env_remove("OMPI_MCA_mca_base_component_path");
    if let Some((name, value)) = place.variable().as_deref().and_then(|line| line.split_once('=')) {
        ompi_info.env(name, value);
    }
    let listing = output(&mut ompi_info)?;
    if ["mca:pml:ibex:", "mca:btl:ibex:"]
        .iter()
        .all(|component| listing.lines().any(|line| line.starts_with(component)))
    {
        return Ok(());
    }
    bail!(
        "it is installed, but ompi_info does not list it; `ompi_info --mca mca_base_component_show_load_errors 1{}` says why",
        place.variable().map_or_else(String::new, |variable| format!("` with {variable} in the environment `"))
    )
}

fn how_to_run(place: &Place) -> String {
    let found = place.variable().map_or_else(String::new, |variable| {
        format!(
            "Open MPI finds it with\n    export {variable}\n\
             or, for every user of the machine, with this line in openmpi-mca-params.conf\n    \
             mca_base_component_path = {}:SYSTEM_DEFAULT\n",
            place.components.display()
        )
    });
    format!(
        "\n{found}See what it makes of this host:\n    {}\n\
         Measure it:\n    {} --quick\n\
         Run a program over it:\n    mpirun -n 2 ./app\n\
         Record one, and look at its messages:\n    {} -o run -- mpirun -n 2 ./app\n    {} run\n\
         See its parameters:\n    ompi_info --param pml ibex --level 9\n    ompi_info --param btl ibex --level 9\n\
         See its events:\n    mpirun -n 2 -x LD_PRELOAD={} -x IBEX_LOG_EVENTS=all ./app\n",
        place.programs.join("ibex").display().to_string() + " info",
        place.programs.join("ibex").display().to_string() + " bench",
        place.programs.join("ibex").display().to_string() + " trace",
        place.programs.join("ibex").display().to_string() + " view",
        place.library.join("libibex-log.so").display()
    )
}

#[cfg(test)]
pub(crate) mod tests;
