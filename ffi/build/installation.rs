// SPDX-License-Identifier: MIT OR Apache-2.0
//! The installed Open MPI: where its headers and libraries are, which release series it is, and what it lacks. Part of
//! `build.rs`.
//!
//! The MPI compiler wrapper says where (`mpicc`, or the one `$MPICC` names).

use std::path::{Path, PathBuf};
use std::process::Command;

/// A release series that there are files for.
struct Series {
    /// As its headers say it.
    major: u32,
    minor: u32,
    /// As `cfg(openmpi = ...)`, and in texts.
    name: &'static str,
    /// Its folder in `openmpi`.
    folder: &'static str,
}

const SERIES: [Series; 2] = [
    Series { major: 4, minor: 1, name: "4.1", folder: "v4_1" },
    Series { major: 5, minor: 0, name: "5.0", folder: "v5_0" },
];

/// The installed Open MPI, as its compiler wrapper describes it.
pub(crate) struct Installation {
    /// Directories of headers, ibex' own included, in the order in which they are searched.
    pub(crate) includes: Vec<PathBuf>,
    libraries: Vec<PathBuf>,
    series: &'static Series,
}

impl Installation {
    pub(crate) fn find() -> Self {
        println!("cargo::rerun-if-env-changed=MPICC");
        let wrapper = std::env::var("MPICC").unwrap_or_else(|_| "mpicc".to_owned());
        let installed = showme(&wrapper, "-showme:incdirs");
        if !installed.iter().any(|directory| directory.join("opal/mca/btl/btl.h").exists()) {
            fail(&format!(
                "Open MPI's component headers (opal/mca/btl/btl.h) are in none of {installed:?}.\n\
                 ibex is a component of Open MPI and is built against them. On Debian and Ubuntu: apt install libopenmpi-dev.\n\
                 For an Open MPI of your own: configure it --with-devel-headers, and set MPICC to its mpicc."
            ));
        }
        let series = series_of(&installed);
        let own = std::env::current_dir().expect("cargo runs this in the package's directory").join("openmpi");
        let mut includes = vec![own.join(series.folder), own];
        includes.extend(installed);
        Installation { includes, libraries: showme(&wrapper, "-showme:libdirs"), series }
    }

    /// Says what is linked, which files of the seam are compiled, and where plugin-abi's own C finds the headers.
    pub(crate) fn tell_cargo(&self) {
        let names: Vec<_> = SERIES.iter().map(|series| format!("{:?}", series.name)).collect();
        println!("cargo::rustc-check-cfg=cfg(openmpi, values({}))", names.join(", "));
        println!("cargo::rustc-cfg=openmpi={:?}", self.series.name);
        for directory in &self.libraries {
            println!("cargo::rustc-link-search=native={}", directory.display());
        }
        println!("cargo::rustc-link-lib=dylib=mpi");
        println!("cargo::rustc-link-lib=dylib=open-pal");
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

/// The series that the headers declare.
fn series_of(includes: &[PathBuf]) -> &'static Series {
    // A path that does not exist would make cargo run this script at every build.
    let header = includes.iter().map(|directory| directory.join("opal/version.h")).find(|path| path.exists());
    let header = header.unwrap_or_else(|| fail(&format!("opal/version.h is in none of {includes:?}.")));
    println!("cargo::rerun-if-changed={}", header.display());
    let text = std::fs::read_to_string(&header)
        .unwrap_or_else(|error| fail(&format!("cannot read {}: {error}", header.display())));
    let number = |name: &str| {
        let mut words = text.lines().map(str::split_whitespace);
        let value = words.find_map(|mut line| (line.nth(1) == Some(name)).then(|| line.next()).flatten());
        value.and_then(|value| value.parse::<u32>().ok()).unwrap_or_else(|| {
            fail(&format!("{} does not say {name}: is it the header of an Open MPI?", header.display()))
        })
    };
    let (major, minor) = (number("OPAL_MAJOR_VERSION"), number("OPAL_MINOR_VERSION"));
    SERIES.iter().find(|series| (series.major, series.minor) == (major, minor)).unwrap_or_else(|| {
        let known: Vec<_> = SERIES.iter().map(|series| series.name).collect();
        fail(&format!(
            "The installed Open MPI is {major}.{minor} ({}); ibex can be built for {}.\n\
             Set MPICC to the mpicc of one of these.",
            header.display(),
            known.join(" and ")
        ))
    })
}

/// The directories that `wrapper option` prints.
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

/// Ends the build with a message that cargo shows.
pub(crate) fn fail(message: &str) -> ! {
    for line in message.lines() {
        println!("cargo::error={line}");
    }
    std::process::exit(1)
}
