// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Open MPI of `PATH`: its version, its component folders, and the components of ibex in them. From its own
//! `ompi_info`, run so that it opens no component. Called by [`super`]. Grade: setup. Tests: below.

use crate::answer::rows;
use crate::installed;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};
use which::which;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct OpenMpi {
    pub(crate) mpirun: PathBuf,
    pub(crate) version: String,
    pub(crate) folders: Vec<PathBuf>,
    pub(crate) components: Vec<Component>,
    pub(crate) dangling: Vec<PathBuf>,
    /// The component path of a job's ranks, if `mpirun` gives them one without components of ibex.
    #[serde(default)]
    pub(crate) elsewhere: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Component {
    pub(crate) name: String,
    /// Its file, with links resolved; `None`: no folder has it.
    pub(crate) file: Option<PathBuf>,
    /// Whether Open MPI lists it; it does not list one built for another Open MPI.
    pub(crate) is_listed: bool,
    /// The folders of other Open MPIs' libraries, if there is none for this one.
    #[serde(default)]
    pub(crate) of_others: Vec<String>,
}

pub(crate) const COMPONENT_PATH: &str = "OMPI_MCA_mca_base_component_path";

const COMPONENTS: [&str; 2] = ["mca_pml_ibex.so", "mca_btl_ibex.so"];

/// Examines the Open MPI of `PATH`.
pub(crate) fn look() -> Option<OpenMpi> {
    of(which("mpirun").ok()?, &[])
}

/// Runs the `ompi_info` next to an `mpirun`, with these variables.
pub(crate) fn of(mpirun: PathBuf, told: &[(&'static str, OsString)]) -> Option<OpenMpi> {
    let told = || told.iter().map(|(name, value)| (name, value));
    let info = mpirun.with_file_name("ompi_info");
    let answer = Command::new(info).args(["--parsable", "--all"]).envs(told()).output().ok()?;
    let answer = String::from_utf8_lossy(&answer.stdout).into_owned();
    let folders = folders(&answer);
    let version = value(&answer, "ompi:version:full:").unwrap_or("unknown").to_owned();
    let component = |name: &str| {
        let found = folders.iter().find_map(|folder| found(folder, name));
        let (file, of_others) = found.map(|file| chosen(file, &version)).unwrap_or_default();
        Component { name: name.to_owned(), file, is_listed: is_listed(&answer, name), of_others }
    };
    let components = COMPONENTS.into_iter().map(component).collect();
    let has_one = |path: &String| folders_of(path, &answer).iter().any(|folder| found(folder, COMPONENTS[0]).is_some());
    Some(OpenMpi {
        elsewhere: path_of_ranks(&mpirun, &version, told()).filter(|path| !has_one(path)),
        mpirun,
        version,
        dangling: folders.iter().flat_map(|folder| dangling(folder)).collect(),
        folders,
        components,
    })
}

/// Returns the component path of a rank: from Open MPI 5 on, `mpirun` passes `PMIx`' parameters to the ranks as Open
/// MPI's own, and some distributions set this one. `None`: not set, or no job can be started.
fn path_of_ranks<'a>(
    mpirun: &Path,
    version: &str,
    told: impl Iterator<Item = (&'a &'static str, &'a OsString)>,
) -> Option<String> {
    let major = version.split('.').next()?.parse::<u32>().ok()?;
    let mut job = Command::new("timeout");
    job.arg("30").arg(mpirun).args(["-n", "1", "printenv", COMPONENT_PATH]).envs(told);
    job.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1").stdin(Stdio::null());
    let said = if major < 5 { return None } else { job.output().ok()?.stdout };
    String::from_utf8_lossy(&said).lines().next().map(str::trim).filter(|path| !path.is_empty()).map(str::to_owned)
}

impl OpenMpi {
    /// Whether it loads all components of ibex.
    pub(crate) fn has_ibex(&self) -> bool {
        self.components.iter().all(|component| component.is_listed)
    }

    /// Returns the folder with components of ibex, and the path in which the ranks look instead; `None` if they find
    /// the components.
    pub(crate) fn lost_to_ranks(&self) -> Option<(&Path, &str)> {
        let elsewhere = self.elsewhere.as_ref()?;
        let file = self.components.iter().find_map(|component| component.file.as_ref())?;
        let holds = |folder: &&PathBuf| self.components.iter().any(|component| folder.join(&component.name).exists());
        let folder = self.folders.iter().find(holds).map(PathBuf::as_path).or_else(|| file.parent())?;
        Some((folder, elsewhere))
    }
}

fn found(folder: &Path, name: &str) -> Option<PathBuf> {
    fs::canonicalize(folder.join(name)).ok()
}

/// Returns the library that the chooser component loads for this Open MPI, and the folders next to it; any other
/// component is itself the library.
fn chosen(file: PathBuf, version: &str) -> (Option<PathBuf>, Vec<String>) {
    let folder = file.parent().unwrap_or(Path::new("/"));
    if file.file_name().is_none_or(|name| name != "ibex-chooser.so") {
        return (Some(file), Vec::new());
    }
    let (release, names) = (installed::release(version).unwrap_or_default(), installed::names(folder));
    match names.iter().find(|name| installed::is_of_release(name, &release)) {
        Some(name) => (Some(folder.join(name).join("libibex.so")), Vec::new()),
        None => (None, names),
    }
}

/// Whether `ompi_info` lists a component: `mca_pml_ibex.so` is a line of `mca:pml:ibex:version`.
fn is_listed(answer: &str, name: &str) -> bool {
    let kind = name.split('_').nth(1).unwrap_or_default();
    answer.lines().any(|line| line.starts_with(&format!("mca:{kind}:ibex:version")))
}

/// Returns the dangling links in a folder, because of which Open MPI finds no component there.
pub(crate) fn dangling(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.is_symlink() && !path.exists()).collect()
}

fn value<'a>(answer: &'a str, key: &str) -> Option<&'a str> {
    answer.lines().find_map(|line| line.strip_prefix(key))
}

/// Returns the folders of `mca_base_component_path`, in which `SYSTEM_DEFAULT` and `USER_DEFAULT` are two folders.
fn folders(answer: &str) -> Vec<PathBuf> {
    let path =
        value(answer, "mca:mca:base:param:mca_base_component_path:value:").unwrap_or("SYSTEM_DEFAULT:USER_DEFAULT");
    // `--parsable` escapes colons.
    folders_of(path.replace("\\:", ":").trim_matches('"'), answer)
}

fn folders_of(path: &str, answer: &str) -> Vec<PathBuf> {
    let path = path.split(':').filter(|folder| !folder.is_empty());
    let folder = |name: &str| match name {
        "SYSTEM_DEFAULT" => value(answer, "path:pkglibdir:").map(PathBuf::from),
        "USER_DEFAULT" => env::home_dir().map(|home| home.join(".openmpi/components")),
        other => Some(PathBuf::from(other)),
    };
    path.filter_map(folder).collect()
}

impl fmt::Display for OpenMpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folders: Vec<String> = self.folders.iter().map(|folder| folder.display().to_string()).collect();
        let found = [("mpirun", self.mpirun.display().to_string()), ("looks for components in", folders.join("\n"))];
        write!(f, "Open MPI {}\n{}", self.version, rows(2, found))?;
        let file = |component: &Component| match &component.file {
            Some(file) => file.display().to_string(),
            None if !component.of_others.is_empty() => {
                format!("installed for {} only: `cargo xtask install`", installed::releases(&component.of_others))
            }
            None => "not installed: `cargo xtask install`".to_owned(),
        };
        write!(f, "{}", rows(2, self.components.iter().map(|component| (component.name.as_str(), file(component)))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "ompi:version:full:4.1.4\npath:pkglibdir:/usr/lib/openmpi\n\
                          mca:mca:base:param:mca_base_component_path:value:/opt/ibex/openmpi:SYSTEM_DEFAULT\n";

    #[test]
    fn the_component_folders_are_those_of_ompi_info() {
        assert_eq!(folders(ANSWER), ["/opt/ibex/openmpi", "/usr/lib/openmpi"].map(PathBuf::from));
        let default = folders("path:pkglibdir:/usr/lib/openmpi\n");
        assert_eq!(default[0], Path::new("/usr/lib/openmpi"));
        assert!(default.len() < 2 || default[1].ends_with(".openmpi/components"));
    }

    #[test]
    fn a_missing_component_is_printed_with_advice() {
        let component = Component { name: COMPONENTS[0].to_owned(), ..Component::default() };
        let of_others = vec!["openmpi-5.0.7".to_owned()];
        let other = Component { name: COMPONENTS[1].to_owned(), of_others, ..Component::default() };
        let components = vec![component, other];
        let openmpi =
            OpenMpi { mpirun: "/usr/bin/mpirun".into(), version: "4.1.4".into(), components, ..OpenMpi::default() };
        let text = openmpi.to_string();
        assert!(text.contains("mca_pml_ibex.so  not installed: `cargo xtask install`"), "{text}");
        assert!(text.contains("mca_btl_ibex.so  installed for Open MPI 5.0.7 only: `cargo xtask install`"), "{text}");
    }

    #[test]
    fn the_file_of_a_component_is_the_library_of_this_open_mpi() {
        let folder = env::temp_dir().join(format!("ibex-facts-openmpi-{}", std::process::id()));
        fs::create_dir_all(folder.join("openmpi-4.1.4")).unwrap();
        let chooser = folder.join("ibex-chooser.so");
        let (file, _) = chosen(chooser.clone(), "4.1.4rc1");
        assert_eq!(file, Some(folder.join("openmpi-4.1.4/libibex.so")));
        assert_eq!(chosen(chooser, "5.0.7"), (None, vec!["openmpi-4.1.4".to_owned()]));
        assert_eq!(chosen("/x/libibex.so".into(), "5.0.7"), (Some("/x/libibex.so".into()), vec![]));
        fs::remove_dir_all(folder).unwrap();
    }
}
