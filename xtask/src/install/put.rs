// SPDX-License-Identifier: MIT OR Apache-2.0
//! Puts the files of a build in place, and removes them.
//!
//! A dangling link in its folder hides all of Open MPI's components there, so files are written before links, and links
//! removed before files. Each is renamed into place. Manifests are written first. All folders stand in the manifest of
//! the files that all Open MPIs share, which is removed last. Grade: setup. Called by [`super`]. Tests: tests.rs.

use super::place::{Place, Set};
use super::sets::{self, Installed};
use crate::build::{self, COMPONENTS};
use crate::manifest::{File, Link, Manifest, Owner, hash, replace_by_copy, replace_link};
use crate::openmpi::OpenMpi;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Programs of `benches/mpi`, with which `ibex bench` measures.
pub(super) const BENCH_PROGRAMS: [&str; 2] = ["ibex_mpi_bench", "ibex_mpi_instructions"];

pub(super) struct Built {
    /// `libibex.so`; the logger is in the same folder.
    pub(super) library: PathBuf,
    pub(super) chooser: PathBuf,
    /// `libibex-fi.so`; libibex-mpi4.so is in the same folder.
    pub(super) provider: PathBuf,
    pub(super) headers: PathBuf,
    pub(super) command: PathBuf,
    /// Folder of manual pages and completions.
    pub(super) share: PathBuf,
    pub(super) bench: PathBuf,
    /// Folder of the command `softhca` and its library.
    pub(super) adapter: PathBuf,
    /// `libopen-pal.so` of the Open MPI of the build, if found.
    pub(super) openmpi: Option<PathBuf>,
}

impl Built {
    pub(super) fn of(workspace: &Workspace, openmpi: &OpenMpi) -> Self {
        Self {
            library: workspace.library(),
            chooser: workspace.chooser(),
            provider: build::provider(workspace.shared_target()),
            headers: workspace.headers(),
            command: workspace.shared_target().join("release/ibex"),
            share: workspace.share(),
            bench: workspace.programs(),
            adapter: workspace.shared_target().join("debug"),
            openmpi: openmpi.library.clone(),
        }
    }
}

type Copy = (PathBuf, PathBuf);

/// Links beside the sets to the libraries of one set, for the chooser and the linker of tools.
const FIRST: [&str; 2] = ["libibex.so", "libibex-log.so"];

/// Puts everything in place, and returns the manifests of this Open MPI, and of the shared files.
pub(super) fn put(place: &Place, built: &Built, owner: &Owner) -> Result<[Manifest; 2]> {
    let all = sets::all(place)?;
    let set = sets::of(place, &all, owner);
    let before = Manifest::read(&place.manifest())?.unwrap_or_default();
    let set_before = all.iter().find(|installed| installed.set.name == set.name);
    let set_before = set_before.map(|installed| installed.manifest.clone()).unwrap_or_default();
    let (for_set, for_all) = (copies_of_set(&set, built), copies_of_all(place, built)?);
    let links_of_set = built.openmpi.iter().map(|to| Link { path: set.library.join("openmpi"), target: to.clone() });
    let mut manifest = Manifest {
        version: env!("CARGO_PKG_VERSION").into(),
        folders: before.folders.clone(),
        links: links(place, &first_set(place, &before, &all, (&set, owner))),
        files: files(&for_all)?,
        openmpi: None,
    };
    let set_manifest = Manifest {
        version: manifest.version.clone(),
        folders: Vec::new(),
        links: links_of_set.collect(),
        files: files(&for_set)?,
        openmpi: Some(owner.clone()),
    };
    refuse_what_is_not_ours(&[&before, &set_before], &[&manifest, &set_manifest])?;
    refuse_dangling_links(&place.components)?;

    let copies: Vec<&Copy> = for_set.iter().chain(&for_all).collect();
    let folders = copies.iter().filter_map(|(_, to)| to.parent());
    for folder in folders.chain([place.manifests.as_path(), place.components.as_path()]) {
        make_folder(folder, &mut manifest.folders)?;
    }
    manifest.write(&place.manifest())?;
    set_manifest.write(&set.manifest)?;
    copies.iter().try_for_each(|(from, to)| replace_by_copy(to, from))?;
    set_manifest.links.iter().chain(&manifest.links).try_for_each(replace_link)?;
    remove_leftovers(&before, &manifest)?;
    remove_leftovers(&set_before, &set_manifest)?;
    Ok([set_manifest, manifest])
}

/// Returns sources and destinations of the files for this Open MPI alone.
fn copies_of_set(set: &Set, built: &Built) -> Vec<Copy> {
    let mut copies = vec![
        (built.library.clone(), set.library.join("libibex.so")),
        (build::logger(&built.library), set.library.join("libibex-log.so")),
    ];
    copies.extend(BENCH_PROGRAMS.map(|name| (built.bench.join(name), set.bench.join(name))));
    copies
}

/// Returns sources and destinations of the files that all Open MPIs share.
fn copies_of_all(place: &Place, built: &Built) -> Result<Vec<Copy>> {
    let mut copies = vec![
        (built.chooser.clone(), place.library.join("ibex/ibex-chooser.so")),
        (built.provider.clone(), place.provider.join("libibex-fi.so")),
        (build::mpi4_calls(&built.provider), place.provider.join("libibex-mpi4.so")),
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
    copies.sort();
    Ok(copies)
}

/// Returns the set that `-libex` means: the previous one if it stays, else this one.
fn first_set(place: &Place, before: &Manifest, all: &[Installed], (set, owner): (&Set, &Owner)) -> String {
    let link = before.links.iter().find(|link| link.path == place.library.join(FIRST[0]));
    let linked = link.and_then(|link| link.target.parent()?.file_name());
    // Another release in the same prefix is older, or of another system with the same home; the link leaves it.
    let stays = |one: &&Installed| one.owner == *owner || one.owner.prefix != owner.prefix;
    let mut staying = all.iter().filter(stays).map(|one| &one.set.name);
    staying.find(|name| linked == Some(OsStr::new(name))).unwrap_or(&set.name).clone()
}

fn links(place: &Place, first: &str) -> Vec<Link> {
    let component =
        |name: &&str| Link { path: place.components.join(name), target: place.link_to.join("ibex/ibex-chooser.so") };
    let library =
        |name: &str| Link { path: place.library.join(name), target: Path::new("ibex").join(first).join(name) };
    COMPONENTS.iter().map(component).chain(FIRST.into_iter().map(library)).collect()
}

fn files(copies: &[Copy]) -> Result<Vec<File>> {
    copies.iter().map(|(from, to)| Ok(File { path: to.clone(), sha256: hash(from)? })).collect()
}

/// Removes files of an older version that this one does not have.
fn remove_leftovers(before: &Manifest, now: &Manifest) -> Result<()> {
    let mut leftovers = before.clone();
    leftovers.links.retain(|link| !now.lists(&link.path));
    leftovers.files.retain(|file| !now.lists(&file.path));
    leftovers.remove().map(drop)
}

/// Changes the links to one set into links to another.
fn relink(place: &Place, from: &str, to: &str) -> Result<()> {
    let Some(mut shared) = Manifest::read(&place.manifest())? else { return Ok(()) };
    let target = Path::new("ibex").join(from);
    if shared.links.iter().any(|link| link.target.starts_with(&target)) {
        shared.links = links(place, to);
        shared.write(&place.manifest())?;
        shared.links.iter().try_for_each(replace_link)?;
    }
    Ok(())
}

fn remove_set(installed: &Installed) -> Result<Vec<PathBuf>> {
    let mut removed = installed.manifest.remove()?;
    let manifest = &installed.set.manifest;
    fs::remove_file(manifest).with_context(|| format!("cannot remove {}", manifest.display()))?;
    removed.push(manifest.clone());
    for folder in [&installed.set.library, &installed.set.bench] {
        // Fails, as it should, if a user put files there.
        let _ = fs::remove_dir(folder);
    }
    Ok(removed)
}

/// Removes the files of one Open MPI, and with the last one the shared files. Removes nothing if a file has changed.
pub(super) fn take_away_one(place: &Place, name: &Path) -> Result<Vec<PathBuf>> {
    let installed = sets::named(sets::all(place)?, name)?;
    let others = sets::all(place)?.into_iter().find(|other| other.set.name != installed.set.name);
    let Some(other) = others else { return take_away(place) };
    refuse_changed(&[&installed.manifest])?;
    relink(place, &installed.set.name, &other.set.name)?;
    remove_set(&installed)
}

/// Removes everything that the manifests of this place list, or nothing if a file has changed.
pub(super) fn take_away(place: &Place) -> Result<Vec<PathBuf>> {
    let path = place.manifest();
    let Some(manifest) = Manifest::read(&path)? else {
        bail!("nothing is installed here: there is no {}; was it installed with another --prefix?", path.display());
    };
    let all = sets::all(place)?;
    refuse_changed(&all.iter().map(|installed| &installed.manifest).chain([&manifest]).collect::<Vec<_>>())?;
    let mut removed = manifest.remove()?;
    for installed in &all {
        removed.extend(remove_set(installed)?);
    }
    fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    removed.push(path);
    manifest.remove_folders();
    Ok(removed)
}

/// Checks all manifests before the first removal.
fn refuse_changed(manifests: &[&Manifest]) -> Result<()> {
    manifests.iter().try_for_each(|manifest| manifest.ensure_unchanged())
}

/// Returns the files of a folder and its subfolders; none if it does not exist.
pub(crate) fn files_under(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    if folder.is_dir() {
        for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() { files.extend(files_under(&path)?) } else { files.push(path) }
        }
    }
    Ok(files)
}

fn refuse_what_is_not_ours(before: &[&Manifest], now: &[&Manifest]) -> Result<()> {
    let paths = now.iter().flat_map(|manifest| manifest.paths());
    let is_ours = |path: &Path| before.iter().any(|manifest| manifest.lists(path));
    match paths.into_iter().find(|path| fs::symlink_metadata(path).is_ok() && !is_ours(path)) {
        None => Ok(()),
        Some(path) => bail!(
            "{} exists and was not put there by cargo xtask install; move it away, then try again",
            path.display()
        ),
    }
}

/// Refuses a folder with a dangling link, because Open MPI would skip the rest of the folder.
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
    new.retain(|folder| !made.contains(folder));
    made.extend(new);
    Ok(())
}
