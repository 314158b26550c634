// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the bindings of libibverbs and, with the feature `openmpi`, of Open MPI's component interface from the
//! *installed* headers (`build/installation.rs`), and compiles the shim (`openmpi/`). The repository has no bindings,
//! because a component must match the Open MPI for which it is built.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    verbs::bind();
    #[cfg(feature = "openmpi")]
    openmpi::bind();
}

/// Ends a build that cannot continue.
fn fail(message: &str) -> ! {
    for line in message.lines() {
        println!("cargo::error={line}");
    }
    std::process::exit(1)
}

#[path = "build/verbs.rs"]
mod verbs;

#[cfg(feature = "openmpi")]
#[path = "build/openmpi.rs"]
mod openmpi;

#[cfg(feature = "openmpi")]
#[path = "build/installation.rs"]
mod installation;

#[cfg(feature = "openmpi")]
#[path = "build/layout.rs"]
mod layout;
