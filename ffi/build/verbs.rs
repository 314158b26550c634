// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the bindings of libibverbs from the installed `infiniband/verbs.h`, and links it. Part of `build.rs`.

use std::path::PathBuf;

use crate::fail;

/// Enumerations whose constants the code names as members.
const BITS: &str = "ibv_(access_flags|qp_attr_mask|wc_flags|send_flags)";
const VALUES: &str = "ibv_(qp_type|qp_state|wc_opcode|wr_opcode|wc_status)";

pub(crate) fn builder() -> bindgen::Builder {
    bindgen::Builder::default()
        .prepend_enum_name(false)
        .generate_comments(false)
        .layout_tests(true)
        .rust_target(bindgen::RustTarget::stable(85, 0).ok().expect("a Rust version that bindgen knows"))
        .rust_edition(bindgen::RustEdition::Edition2024)
}

pub(crate) fn bind() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let found = pkg_config::probe_library("libibverbs");
    if found.is_err() {
        // pkg-config does not know it, so it must be in the compiler's own folders.
        println!("cargo::rustc-link-lib=ibverbs");
    }
    let includes = found.map(|library| library.include_paths).unwrap_or_default();
    builder()
        .header_contents("verbs.h", "#include <infiniband/verbs.h>")
        .clang_args(includes.iter().map(|directory| format!("-I{}", directory.display())))
        .allowlist_function("_?ibv_.*")
        .allowlist_type("ibv_.*")
        .bitfield_enum(BITS)
        .constified_enum_module(VALUES)
        .derive_default(true)
        .generate()
        .unwrap_or_else(|error| {
            fail(&format!(
                "bindgen cannot read infiniband/verbs.h: {error}.\nIt is a part of rdma-core (Debian and Ubuntu: libibverbs-dev; \
                 others: rdma-core-devel), and bindgen needs libclang (libclang-dev)."
            ))
        })
        .write_to_file(out.join("verbs.rs"))
        .expect("OUT_DIR is writable");
}
