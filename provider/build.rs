// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the bindings of libfabric's types from the installed headers. Nothing is linked: each libfabric that loads
//! the provider has its own functions, and the provider needs none of them.

use std::path::PathBuf;

use bindgen::callbacks::{IntKind, ParseCallbacks};

const HEADERS: &str = "
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_tagged.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_collective.h>
#include <rdma/providers/fi_prov.h>
#include <rdma/providers/fi_log.h>
";

/// Gives constants the types of the fields that they are for.
#[derive(Debug)]
struct Constants;

impl ParseCallbacks for Constants {
    fn int_macro(&self, name: &str, value: i64) -> Option<IntKind> {
        let is_short = i32::try_from(value).is_ok();
        if is_short && name.starts_with("FI_MR_") {
            Some(IntKind::I32)
        } else if is_short && name.starts_with("FI_E") && name != "FI_EVENT" {
            // Error numbers, as in enumerations.
            Some(IntKind::U32)
        } else {
            name.starts_with("FI_").then_some(IntKind::U64)
        }
    }
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // libfabric unloads its providers when a process ends; a thread may still be inside.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libibex-fi.so");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // If pkg-config does not know it, it must be in the compiler's own folders.
    let found = pkg_config::Config::new().cargo_metadata(false).probe("libfabric");
    let includes = found.map(|library| library.include_paths).unwrap_or_default();
    let generated = bindgen::Builder::default()
        .header_contents("libfabric.h", HEADERS)
        .clang_args(includes.iter().map(|directory| format!("-I{}", directory.display())))
        .prepend_enum_name(false)
        .generate_comments(false)
        .rust_target(bindgen::RustTarget::stable(85, 0).ok().expect("a Rust version that bindgen knows"))
        .rust_edition(bindgen::RustEdition::Edition2024)
        .parse_callbacks(Box::new(Constants))
        .allowlist_type("fi_.*|fid(_.*)?|iovec")
        .allowlist_var("FI_.*")
        .derive_default(true)
        .generate();
    match generated {
        Ok(bindings) => bindings.write_to_file(out.join("libfabric.rs")).expect("OUT_DIR is writable"),
        Err(error) => {
            println!("cargo::error=bindgen cannot read libfabric's headers: {}", error.to_string().replace('\n', " "));
            println!("cargo::error=Debian and Ubuntu have them in libfabric-dev, others in libfabric-devel.");
            std::process::exit(1)
        }
    }
}
