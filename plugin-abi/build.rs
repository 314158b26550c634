// SPDX-License-Identifier: MIT OR Apache-2.0
//! How libibex.so is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Open MPI unloads its components in MPI_Finalize; what it still holds of ibex then (a performance variable's callback,
    // a tool's handler) must not point into unmapped memory.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The name under which a tool that links -libex looks for it at run time.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libibex.so");
}
