// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reasons for which the component does not take part: another Open MPI, a parameter that may not be so.
//!
//! Called by `component` before it does anything else. The comparisons are pure functions over plain values, so that the
//! unit tests below reach every refusal; the test that loads the real library into an Open MPI of another version
//! (`plugin-abi/tests/component.rs`) preloads another `opal_version_string`, so no test hook is in the product.
//! Grade: setup. Threads: one.

use std::fmt;

use ibex_ffi::openmpi::version::{self, ClassSize};

use crate::copies;
use crate::variables::Limits;

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

/// One of the parameters that Open MPI gives every BTL is out of its range.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct LimitOutOfBounds {
    name: &'static str,
    value: usize,
    min: usize,
    max: usize,
    reason: &'static str,
}

impl fmt::Display for LimitOutOfBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the parameter btl_ibex_{} is {}, but may be {} to {} bytes ({}): set it so (mpirun --mca btl_ibex_{} VALUE) or leave it out",
            self.name, self.value, self.min, self.max, self.reason, self.name
        )
    }
}

/// The smallest first fragment: ob1's largest header (PUT, 56 bytes) with a registration handle behind it.
const SMALLEST: usize = 56 + crate::memory::HANDLE_SIZE;

/// Checks the limits that `mca_btl_base_param_register` let the user set; Open MPI itself checks none of them.
pub(crate) fn limits(limits: &Limits) -> Result<(), LimitOutOfBounds> {
    let check = |name, value, min, max, reason| {
        if (min..=max).contains(&value) { Ok(()) } else { Err(LimitOutOfBounds { name, value, min, max, reason }) }
    };
    check("max_send_size", limits.max_send_size, 4096, 1 << 20, "every receive slot is that large")?;
    check("eager_limit", limits.eager_limit, SMALLEST, limits.max_send_size, "up to max_send_size")?;
    check("rndv_eager_limit", limits.rndv_eager_limit, SMALLEST, limits.eager_limit, "up to eager_limit")?;
    check("rdma_pipeline_frag_size", limits.rdma_pipeline_frag_size, 4096, 1 << 31, "one put of the pipeline protocol")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { max_send_size: 32768, eager_limit: 12288, rndv_eager_limit: 12288, rdma_pipeline_frag_size: 1 << 20 };

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

    #[test]
    fn limits_out_of_bounds_name_parameter_value_and_range() {
        assert_eq!(super::limits(&LIMITS), Ok(()));
        let cases = [
            (Limits { max_send_size: 4095, ..LIMITS }, "btl_ibex_max_send_size is 4095, but may be 4096 to 1048576"),
            (Limits { max_send_size: (1 << 20) + 1, ..LIMITS }, "btl_ibex_max_send_size is 1048577"),
            (Limits { eager_limit: 32769, ..LIMITS }, "btl_ibex_eager_limit is 32769, but may be 64 to 32768"),
            (Limits { eager_limit: 63, rndv_eager_limit: 63, ..LIMITS }, "btl_ibex_eager_limit is 63"),
            (
                Limits { rndv_eager_limit: 12289, ..LIMITS },
                "btl_ibex_rndv_eager_limit is 12289, but may be 64 to 12288",
            ),
            (Limits { rdma_pipeline_frag_size: 0, ..LIMITS }, "btl_ibex_rdma_pipeline_frag_size is 0"),
        ];
        for (limits, expected) in cases {
            let text = super::limits(&limits).expect_err(expected).to_string();
            assert!(text.contains(expected), "{text}");
        }
    }
}
