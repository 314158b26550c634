// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links libibex.so, and compiles the C part of the tool interface with the headers that ibex-ffi's build has found.

use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Open MPI unloads its components in MPI_Finalize; the pointers that it still holds then (to a performance
    // variable's callback, or a tool's handler) must not lead into unmapped memory.
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
    // Open MPI's own inline functions have unused parameters, and use the 16-byte compare-and-swap.
    build.files(files).flag_if_supported("-Wno-unused-parameter").flag_if_supported("-mcx16");
    build.includes(found("INCLUDES"));
    build.compile("ibex-tool-host");
    for directory in found("LIBRARIES") {
        println!("cargo::rustc-link-search=native={}", directory.display());
    }
    println!("cargo::rustc-link-lib=dylib=mpi");
    // The libraries that libmpi needs are not named (ibex-ffi's build/installation.rs).
    println!("cargo::rustc-link-arg=-Wl,-z,undefs");
}

/// The directories that ibex-ffi's build has found, its own headers of the release series included.
fn found(what: &str) -> Vec<PathBuf> {
    let list = std::env::var_os(format!("DEP_IBEX_OPENMPI_{what}")).unwrap_or_default();
    std::env::split_paths(&list).collect()
}
