// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the bindings of Open MPI's component interface from the *installed* headers (feature `openmpi`), and compiles
//! the shim over what those headers offer only as macros and inline functions.
//!
//! Nothing generated is committed: a component must match the Open MPI it is built for, so the headers of that Open MPI
//! are read at each build (`build/installation.rs`); which release series it is chooses the files of the seam
//! (`src/openmpi/release`, `openmpi/v*`).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    #[cfg(feature = "openmpi")]
    openmpi::bind();
}

#[cfg(feature = "openmpi")]
#[path = "build/openmpi.rs"]
mod openmpi;

#[cfg(feature = "openmpi")]
#[path = "build/installation.rs"]
mod installation;
