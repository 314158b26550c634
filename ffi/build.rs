// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the bindings of libibverbs and, with the feature `openmpi`, of Open MPI's component interface from the
//! *installed* headers, and compiles the shim over what Open MPI's offer only as macros and inline functions.
//!
//! Nothing generated is committed: a component must match the Open MPI it is built for, so the headers of that Open MPI
//! are read at each build (`build/installation.rs`); which release series it is chooses the files of the release series
//! (`src/openmpi/release`, `openmpi/v*`).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    verbs::bind();
    #[cfg(feature = "openmpi")]
    openmpi::bind();
}

#[path = "build/verbs.rs"]
mod verbs;

#[path = "build/refusal.rs"]
mod refusal;

#[cfg(feature = "openmpi")]
#[path = "build/openmpi.rs"]
mod openmpi;

#[cfg(feature = "openmpi")]
#[path = "build/installation.rs"]
mod installation;

#[cfg(feature = "openmpi")]
#[path = "build/layout.rs"]
mod layout;
