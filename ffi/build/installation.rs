// SPDX-License-Identifier: MIT OR Apache-2.0
//! The installed Open MPI: its headers and libraries, its release series, and the headers that it lacks. Part of
//! `build.rs`. The compiler wrapper (`mpicc`, or `$MPICC`) names its folders. Missing headers come from a source tree
//! of the same release (`$IBEX_OPENMPI_SOURCE`), then from ibex's replacements (`openmpi/v*/absent`); else the build
//! ends with a list.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fail;

struct Series {
    major: u32,
    minor: u32,
    /// Name in `cfg(openmpi = ...)` and in messages.
    name: &'static str,
    folder: &'static str,
    /// Whether its headers include those of PMIx, and its macros call PMIx.
    pmix: bool,
}

const SERIES: [Series; 2] = [
    Series { major: 4, minor: 1, name: "4.1", folder: "v4_1", pmix: false },
    Series { major: 5, minor: 0, name: "5.0", folder: "v5_0", pmix: true },
];

pub(crate) struct Installation {
    /// Folders of headers, also ibex' own, in the order of the search.
    pub(crate) includes: Vec<PathBuf>,
    libraries: Vec<PathBuf>,
    series: &'static Series,
}

impl Installation {
    pub(crate) fn find() -> Self {
        println!("cargo::rerun-if-env-changed=MPICC");
        let wrapper = std::env::var("MPICC").unwrap_or_else(|_| "mpicc".to_owned());
        let installed = showme(&wrapper, "-showme:incdirs");
        if !installed.iter().any(|directory| directory.join("opal/version.h").exists()) {
            fail(&format!(
                "The headers of Open MPI's components (such as opal/version.h) are in none of {installed:?}.\n\
                 ibex is a component of Open MPI and is built against them. On Debian and Ubuntu: apt install libopenmpi-dev.\n\
                 For an Open MPI of your own: configure it --with-devel-headers, an option that installs them beside mpi.h, and set MPICC\n\
                 to its mpicc."
            ));
        }
        let release = Release::of(&installed);
        let series = release.series();
        let own = std::env::current_dir().expect("cargo runs this in the package's directory").join("openmpi");
        let libraries = showme(&wrapper, "-showme:libdirs");
        let mut includes = vec![own.join(series.folder), own.clone()];
        includes.extend(installed);
        if series.pmix {
            find_pmix(&mut includes);
        }
        includes.extend(source_tree(&release));
        includes.push(own.join(series.folder).join("absent"));
        end_if_missing(&includes, &release);
        Installation { includes, libraries, series }
    }

    /// Tells cargo the libraries to link, the series, and the folders of headers for plugin-abi's C.
    pub(crate) fn tell_cargo(&self) {
        let names: Vec<_> = SERIES.iter().map(|series| format!("{:?}", series.name)).collect();
        println!("cargo::rustc-check-cfg=cfg(openmpi, values({}))", names.join(", "));
        println!("cargo::rustc-cfg=openmpi={:?}", self.series.name);
        for directory in &self.libraries {
            println!("cargo::rustc-link-search=native={}", directory.display());
        }
        println!("cargo::rustc-link-lib=dylib=mpi");
        // Does not link libopen-pal and PMIx, whose names differ between series: ibex must load in each to print why it
        // declines.
        println!("cargo::rustc-link-arg=-Wl,-z,undefs");
        println!("cargo::metadata=includes={}", joined(&self.includes));
        println!("cargo::metadata=libraries={}", joined(&self.libraries));
    }
}

fn joined(directories: &[PathBuf]) -> String {
    std::env::join_paths(directories).map_or_else(
        |error| fail(&format!("a directory of Open MPI has a name that cannot be in a list: {error}")),
        |list| list.to_string_lossy().into_owned(),
    )
}

struct Release {
    header: PathBuf,
    numbers: [u32; 3],
}

impl Release {
    fn of(includes: &[PathBuf]) -> Self {
        // With a path that does not exist cargo would run this script in every build.
        let header = includes.iter().map(|directory| directory.join("opal/version.h")).find(|path| path.exists());
        let header = header.unwrap_or_else(|| fail(&format!("opal/version.h is in none of {includes:?}.")));
        println!("cargo::rerun-if-changed={}", header.display());
        let text = read(&header);
        let number = |name: &str| {
            let mut lines = text.lines().map(str::split_whitespace);
            let value = lines.find_map(|mut line| (line.nth(1) == Some(name)).then(|| line.next()).flatten());
            value.and_then(|value| value.parse::<u32>().ok()).unwrap_or_else(|| {
                fail(&format!("{} does not say {name}: is it the header of an Open MPI?", header.display()))
            })
        };
        let numbers = ["OPAL_MAJOR_VERSION", "OPAL_MINOR_VERSION", "OPAL_RELEASE_VERSION"].map(number);
        Release { header, numbers }
    }

    fn series(&self) -> &'static Series {
        let [major, minor, _] = self.numbers;
        SERIES.iter().find(|series| (series.major, series.minor) == (major, minor)).unwrap_or_else(|| {
            let known: Vec<_> = SERIES.iter().map(|series| series.name).collect();
            fail(&format!(
                "The installed Open MPI is {} ({}); ibex can be built for {}.\n\
                 Set MPICC to the mpicc of one of these. What was found of other releases: docs/openmpi-releases.md.",
                self.text(),
                self.header.display(),
                known.join(" and ")
            ))
        })
    }

    fn text(&self) -> String {
        self.numbers.map(|number| number.to_string()).join(".")
    }
}

/// Adds the folder of PMIx' headers, unless Open MPI has installed its own.
fn find_pmix(includes: &mut Vec<PathBuf>) {
    if includes.iter().any(|directory| directory.join("pmix.h").exists()) {
        return;
    }
    let output = Command::new("pkg-config").args(["--cflags-only-I", "pmix"]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    includes.extend(text.split_whitespace().filter_map(|word| word.strip_prefix("-I")).map(PathBuf::from));
}

fn source_tree(release: &Release) -> Vec<PathBuf> {
    println!("cargo::rerun-if-env-changed=IBEX_OPENMPI_SOURCE");
    let Some(tree) = std::env::var_os("IBEX_OPENMPI_SOURCE").filter(|tree| !tree.is_empty()).map(PathBuf::from) else {
        return Vec::new();
    };
    let version = tree.join("VERSION");
    if !version.exists() {
        fail(&format!(
            "IBEX_OPENMPI_SOURCE is {}, which is no source tree of Open MPI: it has no file VERSION.",
            tree.display()
        ));
    }
    println!("cargo::rerun-if-changed={}", version.display());
    let text = read(&version);
    let numbers = ["major", "minor", "release"].map(|name| {
        let mut lines = text.lines().filter_map(|line| line.split_once('='));
        lines.find(|(key, _)| key.trim() == name).and_then(|(_, value)| value.trim().parse::<u32>().ok())
    });
    if numbers != release.numbers.map(Some) {
        let found = numbers.map(|number| number.map_or("?".to_owned(), |number| number.to_string())).join(".");
        fail(&format!(
            "IBEX_OPENMPI_SOURCE is {}, a source tree of Open MPI {found}, but Open MPI {} is installed.\n\
             Check out the tag v{} there.",
            tree.display(),
            release.text(),
            release.text()
        ));
    }
    vec![tree.clone(), tree.join("opal/include"), tree.join("ompi/include")]
}

/// Ends the build if an included header is missing, and lists the missing ones.
fn end_if_missing(includes: &[PathBuf], release: &Release) {
    let mut compiler = cc::Build::new().includes(includes).cargo_warnings(false).get_compiler().to_command();
    // With -MG the compiler lists missing headers by the names in the `#include`s.
    let output = compiler.args(["-E", "-M", "-MG", "openmpi/wrapper.h"]).output();
    let Ok(output) = output else { return };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let named = text.split_whitespace().filter(|word| *word != "\\" && !word.ends_with(':'));
    let missing: Vec<_> = named.filter(|name| !Path::new(name).exists()).collect();
    if missing.is_empty() {
        return;
    }
    fail(&format!(
        "The installed Open MPI {} lacks headers that its components are built with:\n  {}\n\
         They are installed where Open MPI is configured --with-devel-headers, an option of its configure script that installs the headers of\n\
         its component interfaces beside mpi.h (Debian and Ubuntu: package libopenmpi-dev).\n\
         Or take them from the source of the same release: git clone --depth 1 --branch v{} https://github.com/open-mpi/ompi DIR, and then\n\
         cargo xtask install --openmpi-source DIR (for cargo alone: IBEX_OPENMPI_SOURCE=DIR).",
        release.text(),
        missing.join("\n  "),
        release.text()
    ))
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_else(|error| fail(&format!("cannot read {}: {error}", file.display())))
}

fn showme(wrapper: &str, option: &str) -> Vec<PathBuf> {
    let output = Command::new(wrapper).arg(option).output().unwrap_or_else(|error| {
        fail(&format!(
            "cannot run {wrapper} {option}: {error}.\nibex is built against an installed Open MPI. On Debian and Ubuntu: apt install \
             libopenmpi-dev. For an Open MPI elsewhere, set MPICC to its mpicc."
        ))
    });
    if !output.status.success() {
        fail(&format!(
            "{wrapper} {option} failed ({}): {}\nIs {wrapper} the compiler wrapper of an Open MPI? Set MPICC to the one to build for.",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    String::from_utf8_lossy(&output.stdout).split_whitespace().map(|word| Path::new(word).to_path_buf()).collect()
}
