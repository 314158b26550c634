// SPDX-License-Identifier: MIT OR Apache-2.0
//! How libibex.so is linked, and the C part of the tool interface compiled, by the headers that ibex-ffi's build found.

use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Open MPI unloads its components in MPI_Finalize; what it still holds of ibex then (a performance variable's
    // callback, a tool's handler) must not point into unmapped memory.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The name under which a tool that links -libex looks for it at run time.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libibex.so");
    compile_tool();
}

fn compile_tool() {
    let files = ["src/tool/host.c", "src/tool/communicator.c"];
    for file in files {
        println!("cargo::rerun-if-changed={file}");
    }
    let mut build = cc::Build::new();
    // Unused parameters stand in Open MPI's own inline functions; the 16-byte compare-and-swap too.
    build.files(files).flag_if_supported("-Wno-unused-parameter").flag_if_supported("-mcx16");
    build.includes(found("INCLUDES"));
    build.compile("ibex-tool-host");
    for directory in found("LIBRARIES") {
        println!("cargo::rustc-link-search=native={}", directory.display());
    }
    println!("cargo::rustc-link-lib=dylib=mpi");
    // What libmpi needs is not named (ibex-ffi's build/installation.rs).
    println!("cargo::rustc-link-arg=-Wl,-z,undefs");
}

/// The directories that ibex-ffi's build has found, its own headers of the release series included.
fn found(what: &str) -> Vec<PathBuf> {
    let list = std::env::var_os(format!("DEP_IBEX_OPENMPI_{what}")).unwrap_or_default();
    std::env::split_paths(&list).collect()
}
