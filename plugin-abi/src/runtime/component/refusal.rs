// SPDX-License-Identifier: MIT OR Apache-2.0
//! Refuses an Open MPI that ibex was not built for. Called by each component before it does anything else. The
//! comparisons are pure functions, so that the unit tests below reach every refusal; `plugin-abi/tests/component.rs`
//! loads the real library and preloads another `opal_version_string`. Grade: setup. Threads: one.

use std::fmt;

use ibex_ffi::openmpi::version::{self, ClassSize, Framework};

/// Difference between the Open MPI in this process and the one that ibex was built for.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum OtherOpenMpi {
    /// Another release series.
    Version { built: String, running: String },
    /// The same series with a type of another size, by another configuration or release.
    Layout { built: String, running: String, class: ClassSize },
    /// The same series with components that declare another version of an interface.
    Interface { built: String, running: String, framework: Framework, others: u32 },
}

impl fmt::Display for OtherOpenMpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OtherOpenMpi::Version { built, running } => {
                writeln!(f, "ibex was built for Open MPI {built}, but this is Open MPI {running}.")?;
            }
            OtherOpenMpi::Layout { built, running, class } => writeln!(
                f,
                "ibex was built for an Open MPI {built} in which {} is {} bytes; in this Open MPI {running} it is {} bytes.",
                class.name, class.built, class.running
            )?,
            OtherOpenMpi::Interface { built, running, framework, others } => writeln!(
                f,
                "ibex was built for Open MPI {built}, whose {} interface is {}; in this Open MPI {running} it is {}.",
                framework.name(),
                dotted(framework.built()),
                dotted(*others)
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

/// Formats 310 as `3.1.0`.
fn dotted(version: u32) -> String {
    format!("{}.{}.{}", version / 100, version / 10 % 10, version % 10)
}

pub(crate) fn other_openmpi() -> Result<(), OtherOpenMpi> {
    let (built, running) = (version::built(), version::running());
    // The sizes can be read only in the series that ibex was built for.
    let sizes = if version::is_of_series() { Vec::from(version::class_sizes()) } else { Vec::new() };
    compare(&built, &running, &sizes)?;
    // Last, because another series may have other lists of components.
    compare_interfaces(&built, &running, version::interface_of_others)
}

fn compare(built: &str, running: &str, classes: &[ClassSize]) -> Result<(), OtherOpenMpi> {
    let both = || (built.to_owned(), running.to_owned());
    if version::series(running).is_none() || version::series(running) != version::series(built) {
        let (built, running) = both();
        return Err(OtherOpenMpi::Version { built, running });
    }
    match classes.iter().find(|class| class.built != class.running) {
        Some(class) => {
            let (built, running) = both();
            Err(OtherOpenMpi::Layout { built, running, class: *class })
        }
        None => Ok(()),
    }
}

fn compare_interfaces(
    built: &str,
    running: &str,
    declared: impl Fn(Framework) -> Option<u32>,
) -> Result<(), OtherOpenMpi> {
    for framework in [Framework::Btl, Framework::Pml] {
        if let Some(others) = declared(framework).filter(|others| *others != framework.built()) {
            let (built, running) = (built.to_owned(), running.to_owned());
            return Err(OtherOpenMpi::Interface { built, running, framework, others });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ibex_accepts_the_open_mpi_it_was_built_for_and_other_releases_of_its_series() {
        let class = ClassSize { name: "t", built: 8, running: 8 };
        for other in ["4.1.4", "v4.1.4rc2", "4.1.5", "4.1.10"] {
            assert_eq!(compare("4.1.4", other, &[class]), Ok(()), "{other}");
        }
    }

    #[test]
    fn ibex_refuses_another_series_and_names_both_releases() {
        for other in ["5.0.0", "4.10.4", "41.4", "4", ""] {
            let text = compare("4.1.4", other, &[]).expect_err(other).to_string();
            let first = text.lines().next().unwrap_or_default();
            assert!(
                first.contains("built for Open MPI 4.1.4") && first.contains(&format!("this is Open MPI {other}")),
                "{text}"
            );
            assert!(text.contains("cargo xtask install"), "{text}");
        }
    }

    #[test]
    fn ibex_refuses_another_layout_and_names_the_type() {
        let class = ClassSize { name: "opal_proc_t", built: 72, running: 80 };
        let text = compare("4.1.4", "4.1.5", &[class]).expect_err("the sizes differ").to_string();
        assert!(text.contains("Open MPI 4.1.4 in which opal_proc_t is 72 bytes"), "{text}");
        assert!(text.contains("in this Open MPI 4.1.5 it is 80 bytes"), "{text}");
    }

    #[test]
    fn ibex_refuses_another_interface_and_accepts_an_open_mpi_without_other_components() {
        let right = |framework: Framework| Some(framework.built());
        assert_eq!(compare_interfaces("4.1.4", "4.1.5", right), Ok(()));
        assert_eq!(compare_interfaces("4.1.4", "4.1.5", |_| None), Ok(()));
        let other = |framework| (framework == Framework::Pml).then_some(987);
        let text = compare_interfaces("4.1.4", "4.1.5", other).expect_err("another").to_string();
        assert!(text.contains("whose PML interface is ") && text.contains("this Open MPI 4.1.5 it is 9.8.7"), "{text}");
    }
}
