// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask package`: Debian packages for the Open MPI that is installed here, or with `--mpi 5` in a Debian 13
//! root. The recipe is `debian/`; this runs it, shows lintian's findings, and with `--try` installs the packages in a
//! temporary root file system (`packaging/try.sh`). [`wheel`] makes the Python wheel. Other recipes, in `packaging/`,
//! are for RPM and Spack. Grade: setup. Tests: below, and `--try`.

mod wheel;

use crate::command::{output, run, step};
use crate::environment::Environment;
use crate::setup::Need;
use crate::workspace::Workspace;
use crate::{mmdebstrap, series, setup};
use anyhow::{Context, Result};
use hw_tests::openmpi::Series;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Install what was built in a fresh system or Python environment, run a job, remove it, and check that no file is
    /// left
    #[arg(long = "try")]
    try_them: bool,
    /// For this Open MPI, 4.1 or 5; those for 5 are built in a Debian 13 root where this machine has another [default:
    /// this machine's]
    #[arg(long, value_name = "SERIES")]
    mpi: Option<Series>,
    /// Build a Python wheel instead, of the libfabric provider and the commands `ibex` and `softhca`; needs no Open MPI
    #[arg(long, conflicts_with = "mpi")]
    wheel: bool,
}

pub(crate) fn command(arguments: &Arguments) -> Result<ExitCode> {
    let workspace = Workspace::here();
    if arguments.wheel {
        return python_wheel(&workspace, arguments.try_them);
    }
    if let Some(ended) = series::elsewhere(&workspace, arguments.mpi)? {
        return Ok(ended);
    }
    setup::ensure(&Environment::here(), None, &[Need::OpenMpi, Need::Package, Need::Root])?;
    let folder = workspace.target().join("packages");
    build(&workspace, &folder)?;
    let packages = packages_in(&folder)?;
    step("What lintian finds");
    run(Command::new("lintian").args(["--allow-root", "--fail-on", "error,warning"]).args(&packages))?;
    if arguments.try_them {
        try_in_fresh_root(&workspace, &packages)?;
    }
    println!("\nInstall them with apt-get, each with its path:");
    for package in &packages {
        println!("    {}", workspace.shown(package).display());
    }
    Ok(ExitCode::SUCCESS)
}

fn python_wheel(workspace: &Workspace, try_it: bool) -> Result<ExitCode> {
    setup::ensure(&Environment::here(), None, &[])?;
    let wheel = wheel::build(workspace, &workspace.target().join("packages"))?;
    if try_it {
        wheel::try_beside_mpi4py(workspace, &wheel)?;
    }
    println!("\nInstall it beside mpi4py:\n    pip install {}", workspace.shown(&wheel).display());
    Ok(ExitCode::SUCCESS)
}

fn build(workspace: &Workspace, folder: &Path) -> Result<()> {
    step("Building the packages");
    for package in packages_in(folder)? {
        fs::remove_file(&package).with_context(|| format!("cannot remove {}", package.display()))?;
    }
    let mut rules = Command::new("debian/rules");
    rules.current_dir(workspace.root()).args(["clean", "binary"]).env("output", folder);
    // Cargo sets LD_LIBRARY_PATH for this program; dpkg-shlibdeps would search there.
    run(rules.env("CARGO_TARGET_DIR", workspace.target()).env_remove("LD_LIBRARY_PATH"))?;
    run(Command::new("debian/rules").current_dir(workspace.root()).arg("clean"))
}

/// Returns the packages that a user installs, without debugging symbols; none if the folder does not exist.
fn packages_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let mut packages: Vec<PathBuf> = paths.into_iter().filter(|path| is_for_users(path)).collect();
    packages.sort();
    Ok(packages)
}

fn is_for_users(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.extension().is_some_and(|extension| extension == "deb") && !name.contains("-dbgsym_")
}

/// Installs the packages in a fresh Debian of this machine's release.
fn try_in_fresh_root(workspace: &Workspace, packages: &[PathBuf]) -> Result<()> {
    let release = output(Command::new("sh").args(["-c", ". /etc/os-release && printf %s \"$VERSION_CODENAME\""]))?;
    step(&format!("Trying them in a fresh Debian ({release})"));
    let mut make = mmdebstrap::command()?;
    make.arg("--customize-hook=mkdir -p \"$1/packages\"");
    for package in packages {
        make.arg(format!("--customize-hook=copy-in {} /packages", package.display()));
    }
    make.arg(format!("--customize-hook=copy-in {} /packages", workspace.root().join("packaging/try.sh").display()));
    // mmdebstrap runs the hooks and discards the root.
    run(make.args(["--customize-hook=chroot \"$1\" /packages/try.sh", &release, "/dev/null"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debugging_symbols_are_not_for_users_and_a_folder_that_is_not_there_has_no_packages() {
        assert!(packages_in(Path::new("/nonexistent/packages")).unwrap().is_empty());
        let of_users = ["softhca_0.1.0_amd64.deb", "softhca-dbgsym_0.1.0_amd64.deb", "files", "try.sh"]
            .map(|name| is_for_users(Path::new(name)));
        assert_eq!(of_users, [true, false, false, false]);
    }

    #[test]
    fn every_package_has_a_recipe_for_each_system() {
        let root = Workspace::here().root().to_path_buf();
        let control = fs::read_to_string(root.join("debian/control")).unwrap();
        let of_debian: Vec<&str> = control.lines().filter_map(|line| line.strip_prefix("Package: ")).collect();
        assert_eq!(
            of_debian,
            ["ibex-openmpi-4.1", "ibex-openmpi-5", "ibex-libfabric", "libibex-dev", "ibex-tools", "softhca"]
        );
        let spec = fs::read_to_string(root.join("packaging/ibex.spec")).unwrap();
        for part in ["%files openmpi", "%files libfabric", "%files devel", "%files tools", "%files -n softhca"] {
            assert!(spec.lines().any(|line| line == part), "{part} is not in packaging/ibex.spec");
        }
    }

    #[test]
    fn every_recipe_installs_the_provider_and_its_manual_page() {
        let root = Workspace::here().root().to_path_buf();
        for (file, words) in [
            ("debian/rules", ["/lib/libfabric/*.so", "man7/fi_ibex.7"]),
            ("packaging/ibex.spec", ["%{_libdir}/libfabric/libibex-*.so", "%{_mandir}/man7/fi_ibex*"]),
            // `install` puts both under the prefix; where the provider is, libfabric does not look by itself.
            (
                "packaging/spack/package.py",
                ["\"install\", \"--prefix\"", "\"FI_PROVIDER_PATH\", self.prefix.lib.libfabric"],
            ),
        ] {
            let text = fs::read_to_string(root.join(file)).unwrap();
            assert!(words.iter().all(|words| text.contains(words)), "{file} lacks one of {words:?}");
        }
    }

    #[test]
    fn recipes_have_the_version_of_the_workspace() {
        let root = Workspace::here().root().to_path_buf();
        let version = env!("CARGO_PKG_VERSION");
        for (file, line) in [
            ("debian/changelog", format!("ibex ({version}) ")),
            ("packaging/ibex.spec", format!("Version:        {version}")),
            ("packaging/spack/package.py", format!("version(\"{version}\"")),
        ] {
            let text = fs::read_to_string(root.join(file)).unwrap();
            assert!(text.contains(&line), "{file} has no `{line}`");
        }
    }
}
