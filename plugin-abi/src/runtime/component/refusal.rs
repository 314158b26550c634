// SPDX-License-Identifier: MIT OR Apache-2.0
//! Refuses an Open MPI that ibex was not built for. Called by each component before it does anything else. The
//! comparisons are pure functions, so that the unit tests below reach every refusal; `plugin-abi/tests/component.rs`
//! loads the real library and preloads another `opal_version_string`. Grade: setup. Threads: one.

use ibex_ffi::openmpi::version::{self, ClassSize, FRAMEWORKS};

/// Returns the message for the user that names the difference between two releases of Open MPI.
fn refusal(difference: &str) -> String {
    format!(
        "{difference}\n\
         ibex takes no part in this job; the job goes on with its other transports.\n\
         To use ibex: install the headers of this Open MPI, make its mpicc the first in PATH, and build and install ibex\n\
         again (cargo xtask install)."
    )
}

/// Formats 310 as `3.1.0`.
fn dotted(version: u32) -> String {
    format!("{}.{}.{}", version / 100, version / 10 % 10, version % 10)
}

/// The error is the message for the user if the Open MPI in this process is not the one that ibex was built for.
pub(crate) fn other_openmpi() -> Result<(), String> {
    let (built, running) = (version::built(), version::running());
    // The sizes can be read only in the series that ibex was built for.
    let sizes = if version::is_of_series() { Vec::from(version::class_sizes()) } else { Vec::new() };
    compare(&built, &running, &sizes)?;
    // Last, because another series may have other lists of components.
    compare_interfaces(&built, &running, version::interface_of_others)
}

/// Compares the release series and, in the same series, the sizes of types, which another configuration may change.
fn compare(built: &str, running: &str, classes: &[ClassSize]) -> Result<(), String> {
    if version::series(running).is_none() || version::series(running) != version::series(built) {
        return Err(refusal(&format!("ibex was built for Open MPI {built}, but this is Open MPI {running}.")));
    }
    let Some(class) = classes.iter().find(|class| class.built != class.running) else { return Ok(()) };
    Err(refusal(&format!(
        "ibex was built for an Open MPI {built} in which {} is {} bytes; in this Open MPI {running} it is {} bytes.",
        class.name, class.built, class.running
    )))
}

/// Compares the interfaces that ibex was built for with those that other components in this process declare.
fn compare_interfaces(built: &str, running: &str, declared: impl Fn(&str) -> Option<u32>) -> Result<(), String> {
    for (framework, version) in FRAMEWORKS {
        if let Some(others) = declared(framework).filter(|others| *others != version) {
            let (ours, others) = (dotted(version), dotted(others));
            return Err(refusal(&format!(
                "ibex was built for Open MPI {built}, whose {framework} interface is {ours}; in this Open MPI {running} it is \
                 {others}."
            )));
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
            let text = compare("4.1.4", other, &[]).expect_err(other);
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
        let text = compare("4.1.4", "4.1.5", &[class]).expect_err("the sizes differ");
        assert!(text.contains("Open MPI 4.1.4 in which opal_proc_t is 72 bytes"), "{text}");
        assert!(text.contains("in this Open MPI 4.1.5 it is 80 bytes"), "{text}");
    }

    #[test]
    fn another_interface_is_refused_and_no_other_component_says_nothing() {
        let right = |name: &str| FRAMEWORKS.iter().find(|(other, _)| *other == name).map(|(_, version)| *version);
        assert_eq!(compare_interfaces("4.1.4", "4.1.5", right), Ok(()));
        assert_eq!(compare_interfaces("4.1.4", "4.1.5", |_| None), Ok(()));
        let other = |framework: &str| (framework == "PML").then_some(987);
        let text = compare_interfaces("4.1.4", "4.1.5", other).expect_err("another");
        assert!(text.contains("whose PML interface is ") && text.contains("this Open MPI 4.1.5 it is 9.8.7"), "{text}");
    }
}
