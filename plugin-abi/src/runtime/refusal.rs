// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reasons for which no component of ibex takes part: another Open MPI, another ibex.
//!
//! Called by a face's component before it does anything else, and by `tool`. The comparisons are pure functions over
//! plain values, so that the unit tests below reach every refusal; the test that loads the real library into an Open
//! MPI of another version (`plugin-abi/tests/component.rs`) preloads another `opal_version_string`, so no test hook is
//! in the product. Grade: setup. Threads: one.

use std::fmt;

use ibex_ffi::openmpi::version::{self, ClassSize};

use super::copies;

/// The Open MPI in this process is not the one ibex was built for.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum OtherOpenMpi {
    /// Another release.
    Version { built: String, running: String },
    /// The same release, with a type of another size: another configuration or a patched build.
    Layout { version: String, class: ClassSize },
}

impl fmt::Display for OtherOpenMpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OtherOpenMpi::Version { built, running } => {
                writeln!(f, "ibex was built for Open MPI {built}, but this is Open MPI {running}.")?;
            }
            OtherOpenMpi::Layout { version, class } => writeln!(
                f,
                "ibex was built for an Open MPI {version} in which {} is {} bytes; in this Open MPI {version} it is {} bytes.",
                class.name, class.built, class.running
            )?,
        }
        write!(
            f,
            "ibex takes no part in this job; the job goes on with its other transports.\n\
             To use ibex: install the headers of this Open MPI, make its mpicc the first in PATH, and build and install ibex\n\
             again (cargo xtask install)."
        )
    }
}

/// Compares the Open MPI of the headers with the one in this process.
pub(crate) fn other_openmpi() -> Result<(), OtherOpenMpi> {
    compare(&version::built(), &version::running(), &version::class_sizes())
}

fn compare(built: &str, running: &str, classes: &[ClassSize]) -> Result<(), OtherOpenMpi> {
    if release(running) != built {
        return Err(OtherOpenMpi::Version { built: built.to_owned(), running: running.to_owned() });
    }
    match classes.iter().find(|class| class.built != class.running) {
        Some(class) => Err(OtherOpenMpi::Layout { version: built.to_owned(), class: *class }),
        None => Ok(()),
    }
}

/// `4.1.4` of `v4.1.4rc2`: the numbers alone.
fn release(version: &str) -> &str {
    let version = version.trim_start_matches('v');
    let end = version.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(version.len());
    &version[..end]
}

/// Another libibex.so was loaded before this one.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct AnotherIbex {
    first: String,
    this: String,
}

impl fmt::Display for AnotherIbex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "There are two copies of ibex in this process:\n  {}, which was loaded first (a tool is linked with it, or it was preloaded)\n  \
             {}, which Open MPI loads now\n\
             They know nothing of each other: what goes through one is not shown to a tool by the other, and the dynamic linker would mix\n\
             their functions. ibex takes no part in this job; the job goes on with its other transports, if it has any.\n\
             Link (or preload) the tool with the file that Open MPI loads: one libibex.so, installed once (cargo xtask install), to\n\
             which mca_btl_ibex.so is a link.",
            with_target(&self.first),
            with_target(&self.this)
        )
    }
}

/// A path, and where it leads if it is a link.
fn with_target(path: &str) -> String {
    match std::fs::canonicalize(path) {
        Ok(target) if target != std::path::Path::new(path) => format!("{path} ({})", target.display()),
        _ => path.to_owned(),
    }
}

/// Looks whether this is the only ibex in the process, or the first.
pub(crate) fn another_ibex() -> Result<(), AnotherIbex> {
    match copies::first() {
        Some(first) => Err(AnotherIbex { first: first.path.clone(), this: first.this.clone() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_open_mpi_is_accepted() {
        let class = ClassSize { name: "t", built: 8, running: 8 };
        assert_eq!(compare("4.1.4", "4.1.4", &[class]), Ok(()));
        assert_eq!(compare("4.1.4", "v4.1.4rc2", &[class]), Ok(()));
    }

    #[test]
    fn another_release_is_refused_and_both_are_named() {
        for other in ["4.1.5", "4.1.44", "5.0.0", "4.1", ""] {
            let text = compare("4.1.4", other, &[]).expect_err(other).to_string();
            assert!(
                text.contains("built for Open MPI 4.1.4") && text.contains(&format!("this is Open MPI {other}")),
                "{text}"
            );
            assert!(text.contains("cargo xtask install"), "{text}");
        }
    }

    #[test]
    fn another_layout_is_refused_and_the_type_is_named() {
        let class = ClassSize { name: "opal_proc_t", built: 72, running: 80 };
        let text = compare("4.1.4", "4.1.4", &[class]).expect_err("the sizes differ").to_string();
        assert!(text.contains("opal_proc_t is 72 bytes") && text.contains("80 bytes"), "{text}");
    }

    #[test]
    fn another_ibex_is_refused_and_both_are_named() {
        let text = AnotherIbex { first: "/no/a.so".into(), this: "/no/b.so".into() }.to_string();
        assert!(
            text.contains("  /no/a.so, which was loaded first") && text.contains("  /no/b.so, which Open MPI"),
            "{text}"
        );
        assert!(text.contains("cargo xtask install"), "{text}");
        assert_eq!(with_target("/proc/self/.."), "/proc/self/.. (/proc)");
    }
}
