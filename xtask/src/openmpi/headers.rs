// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that an Open MPI has the headers for compiling a component, and says what to do if not.
//!
//! Called by [`super`]. The build script of `ffi` reads them, and has the last word: this only finds out early, before
//! minutes of compiling, and knows the release. Grade: setup. Tests: tests.rs.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// Of each part of Open MPI that ibex is compiled with, a header that only developers need.
pub(super) const NEEDED: [&str; 8] = [
    "opal_config.h",
    "opal/class/opal_object.h",
    "opal/datatype/opal_convertor.h",
    "opal/mca/mca.h",
    "opal/mca/btl/btl.h",
    "opal/mca/rcache/rcache.h",
    "ompi/communicator/communicator.h",
    "ompi/mca/pml/pml.h",
];

/// The folders of a source tree in which headers are. Its configuration writes `opal_config.h` into the first.
const FOLDERS: [&str; 3] = ["opal/include", "ompi/include", "."];

/// Which headers are in none of these folders.
pub(super) fn missing(includes: &[PathBuf]) -> Vec<&'static str> {
    NEEDED.into_iter().filter(|header| !includes.iter().any(|folder| folder.join(header).is_file())).collect()
}

/// The source tree to take headers from, if one is needed or was given.
///
/// # Errors
/// Headers are missing and there is no source tree, or it is of another release, or lacks them as well.
pub(super) fn checked(release: &str, includes: &[PathBuf], source: Option<&Path>) -> Result<Option<PathBuf>> {
    let missing = missing(includes);
    let Some(source) = source else {
        if missing.is_empty() {
            return Ok(None);
        }
        bail!("{}", what_to_do(release, includes, &missing));
    };
    let source = fs::canonicalize(source).with_context(|| format!("--openmpi-source {}", source.display()))?;
    let found = release_of(&source)?;
    if found != release {
        bail!(
            "--openmpi-source {} is Open MPI {found}, and ibex is to be built for {release}: check out the tag v{release} there",
            source.display()
        );
    }
    let folders: Vec<PathBuf> = FOLDERS.iter().map(|folder| source.join(folder)).chain(includes.to_vec()).collect();
    let lacks = self::missing(&folders);
    if !lacks.is_empty() {
        let configure = if lacks.contains(&"opal_config.h") {
            "; opal_config.h is written when it is configured: there run ./autogen.pl and ./configure, with the options of the \
             installation (`ompi_info` tells them), without `make`"
        } else {
            ""
        };
        bail!("--openmpi-source {} has no {} either{configure}", source.display(), lacks.join(", "));
    }
    Ok(Some(source))
}

fn what_to_do(release: &str, includes: &[PathBuf], missing: &[&str]) -> String {
    let folders: Vec<String> = includes.iter().map(|folder| folder.display().to_string()).collect();
    format!(
        "this Open MPI {release} was installed without the headers that components are compiled with: there is no {} in {}.\n\
         Its configure option --with-devel-headers installs them; distributions put them into the package for developers (Debian and \
         Ubuntu: libopenmpi-dev).\n\
         Without another installation, take them from its source, of the same tag:\n    \
         git clone --branch v{release} --depth 1 --recursive https://github.com/open-mpi/ompi openmpi-{release}\n    \
         cargo xtask install --openmpi-source openmpi-{release}",
        missing.join(", "),
        folders.join(" and ")
    )
}

/// What the file `VERSION` of a source tree says.
fn release_of(source: &Path) -> Result<String> {
    let file = source.join("VERSION");
    let text = fs::read_to_string(&file).with_context(|| {
        format!("{} is not a source tree of Open MPI: cannot read {}", source.display(), file.display())
    })?;
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.map(str::trim).with_context(|| format!("{} has no line {name}=", file.display()))
    };
    Ok(format!("{}.{}.{}", number("major")?, number("minor")?, number("release")?))
}
