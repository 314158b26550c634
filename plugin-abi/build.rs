// SPDX-License-Identifier: MIT OR Apache-2.0
//! How libibex.so is linked, and the C part of the tool interface compiled: by the installed Open MPI's headers, as the
//! MPI compiler wrapper (`mpicc`, or the one `$MPICC` names) has them.

use std::process::Command;

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
    println!("cargo::rerun-if-env-changed=MPICC");
    let mut build = cc::Build::new();
    // Unused parameters stand in Open MPI's own inline functions; the 16-byte compare-and-swap too.
    build.files(files).flag_if_supported("-Wno-unused-parameter").flag_if_supported("-mcx16");
    build.includes(showme("-showme:incdirs"));
    build.compile("ibex-tool-host");
    for directory in showme("-showme:libdirs") {
        println!("cargo::rustc-link-search=native={directory}");
    }
    println!("cargo::rustc-link-lib=dylib=mpi");
}

/// What the wrapper prints. That it works and is Open MPI's was found out by ibex-ffi's build already.
fn showme(option: &str) -> Vec<String> {
    let wrapper = std::env::var("MPICC").unwrap_or_else(|_| "mpicc".to_owned());
    let output = Command::new(&wrapper).arg(option).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}
