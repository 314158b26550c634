// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the verbs types from the installed `<infiniband/verbs.h>` and sets how the shared object is linked: its name,
//! and the version nodes that its symbols carry.
//!
//! The version script has *empty* nodes. rustc hands the linker an anonymous version script of its own, which would
//! clash with names in ours; the symbols are put in their nodes by `.symver` directives (src/abi/exports.rs) instead.
//! This needs lld, which is Rust's own default linker on x86-64 Linux.

use std::path::PathBuf;

/// The version nodes of libibverbs, oldest first, each with its predecessor; as `nm -D` of the real library lists them.
const NODES: [(&str, &str); 13] = [
    ("IBVERBS_1.0", ""),
    ("IBVERBS_1.1", "IBVERBS_1.0"),
    ("IBVERBS_1.5", "IBVERBS_1.1"),
    ("IBVERBS_1.6", "IBVERBS_1.5"),
    ("IBVERBS_1.7", "IBVERBS_1.6"),
    ("IBVERBS_1.8", "IBVERBS_1.7"),
    ("IBVERBS_1.9", "IBVERBS_1.8"),
    ("IBVERBS_1.10", "IBVERBS_1.9"),
    ("IBVERBS_1.11", "IBVERBS_1.10"),
    ("IBVERBS_1.12", "IBVERBS_1.11"),
    ("IBVERBS_1.13", "IBVERBS_1.12"),
    ("IBVERBS_1.14", "IBVERBS_1.13"),
    ("IBVERBS_PRIVATE_34", ""),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));

    let script = NODES.map(|(node, previous)| format!("{node} {{ }} {previous};\n")).concat();
    let map = out.join("libibverbs.map");
    std::fs::write(&map, script).expect("OUT_DIR can be written to");
    // For every target, not the shared object alone: the tests and the command link the same objects, and the linker
    // refuses a `.symver` whose node it has not been told of.
    println!("cargo::rustc-link-arg=-Wl,--version-script={}", map.display());
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libibverbs.so.1");
    // A process that has opened a device belongs to its fabric until it ends, and a thread looks after that
    // (engine/service/thread.rs). `dlclose` must not take the code from under it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");

    let bindings = bindgen::Builder::default()
        .header_contents("verbs.h", "#include <infiniband/verbs.h>\n")
        .allowlist_type("ibv_.*|verbs_context|_compat_ibv_port_attr")
        .allowlist_var("IBV_.*")
        .ignore_functions()
        .prepend_enum_name(false)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .derive_default(true)
        .generate_comments(false)
        .layout_tests(true)
        .rust_target(bindgen::RustTarget::stable(85, 0).ok().expect("a Rust version that bindgen knows"))
        .rust_edition(bindgen::RustEdition::Edition2024)
        .generate();
    match bindings {
        Ok(bindings) => bindings.write_to_file(out.join("verbs.rs")).expect("OUT_DIR can be written to"),
        Err(error) => {
            println!("cargo::error=bindgen cannot read <infiniband/verbs.h>: {error}");
            println!("cargo::error=On Debian and Ubuntu: apt install libibverbs-dev libclang-dev.");
            std::process::exit(1);
        }
    }
}
