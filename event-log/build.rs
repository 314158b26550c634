// SPDX-License-Identifier: MIT OR Apache-2.0
//! Binds the public header that tools compile against (plugin-abi/include/ibex_mpi_t.h), and links with `-libex`. Cargo
//! cannot order two shared libraries, so this links with a stub: a library of the same soname with empty functions. At
//! run time the loader finds the real one next to libibex-log.so. The unit tests, which call none of the functions, get
//! the stub as a static library (mpi.rs).

use std::path::{Path, PathBuf};
use std::process::Command;

const INCLUDE: &str = "../plugin-abi/include";

fn main() {
    for file in ["build.rs", "src/mpi.c", "src/exchange.c", INCLUDE] {
        println!("cargo::rerun-if-changed={file}");
    }
    println!("cargo::rerun-if-env-changed=MPICC");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let includes = showme("-showme:incdirs");
    bind(&out, &includes);
    let mut shim = cc::Build::new();
    shim.file("src/mpi.c")
        .file("src/exchange.c")
        .include(INCLUDE)
        .includes(&includes)
        .flag_if_supported("-Wno-unused-parameter");
    shim.compile("ibex-log-mpi");
    stand_in(&out);
    for directory in showme("-showme:libdirs") {
        println!("cargo::rustc-link-search=native={directory}");
    }
    println!("cargo::rustc-link-lib=dylib=mpi");
    println!("cargo::rustc-link-search=native={}", out.display());
    // Loads the libibex.so beside it, even if LD_LIBRARY_PATH names another: that would be a second transport.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--disable-new-dtags,-rpath,$ORIGIN");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libibex-log.so");
    // Open MPI's libraries stay until the process ends, and so must the callbacks that it knows.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}

fn bind(out: &Path, includes: &[String]) {
    let bound = bindgen::Builder::default()
        .header(format!("{INCLUDE}/ibex_mpi_t.h"))
        .clang_args(includes.iter().map(|directory| format!("-I{directory}")))
        .allowlist_function("MPI_T_.*")
        .prepend_enum_name(false)
        .generate_comments(false)
        .rust_target(bindgen::RustTarget::stable(85, 0).ok().expect("a Rust version that bindgen knows"))
        .rust_edition(bindgen::RustEdition::Edition2024)
        .generate()
        .expect("bindgen reads ibex_mpi_t.h with the installed Open MPI's mpi.h")
        .to_string();
    std::fs::write(out.join("mpi.rs"), bound).expect("OUT_DIR can be written to");
}

/// Makes a library with every function of the header: static, and shared in a folder that no loader searches.
fn stand_in(out: &Path) {
    let header = std::fs::read_to_string(format!("{INCLUDE}/ibex_mpi_t.h")).expect("the header is there");
    let names = header.split("int NAME##").skip(1).filter_map(|rest| rest.split('(').next());
    let code: Vec<String> = names.map(|name| format!("int MPI_T_{name}(void) {{ return -1; }}\n")).collect();
    let source = out.join("stand_in.c");
    std::fs::write(&source, code.concat()).expect("OUT_DIR can be written to");
    cc::Build::new().file(&source).cargo_metadata(false).compile("ibex-log-stand-in");
    let folder = out.join("stand-in");
    std::fs::create_dir_all(&folder).expect("OUT_DIR can be written to");
    let library = folder.join("libibex.so");
    let mut command = cc::Build::new().get_compiler().to_command();
    command.args(["-shared", "-fPIC", "-Wl,-soname,libibex.so", "-o"]).arg(&library).arg(&source);
    assert!(command.status().is_ok_and(|status| status.success()), "{command:?} failed");
    println!("cargo::rustc-cdylib-link-arg={}", library.display());
}

/// Output of the MPI compiler wrapper (`mpicc`, or the one that `$MPICC` names).
fn showme(option: &str) -> Vec<String> {
    let wrapper = std::env::var("MPICC").unwrap_or_else(|_| "mpicc".to_owned());
    let output = Command::new(&wrapper).arg(option).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}
