// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the verbs types from the installed `<infiniband/verbs.h>` and sets how the shared object is linked: its name,
//! and the version nodes of its symbols. The version script has *empty* nodes: rustc hands the linker an anonymous
//! version script of its own, which would clash with names in ours, so `.symver` directives (src/abi/exports.rs) put
//! the symbols in their nodes. This needs lld, Rust's own default linker on x86-64 Linux.

use std::path::PathBuf;

/// The version nodes of libibverbs after `IBVERBS_1.0`, oldest first, as `nm -D` of the real library lists them; each
/// names its predecessor.
const NODES: [&str; 11] = ["1.1", "1.5", "1.6", "1.7", "1.8", "1.9", "1.10", "1.11", "1.12", "1.13", "1.14"];

/// The enumerations that the engine uses: their module in src/engine/codes.rs, name, and prefix of their values.
const CODES: [(&str, &str, &str); 12] = [
    ("access", "ibv_access_flags", "IBV_ACCESS_"),
    ("attr_mask", "ibv_qp_attr_mask", "IBV_QP_"),
    ("device_cap", "ibv_device_cap_flags", "IBV_DEVICE_"),
    ("event", "ibv_event_type", "IBV_EVENT_"),
    ("port_state", "ibv_port_state", "IBV_PORT_"),
    ("qp_state", "ibv_qp_state", "IBV_QPS_"),
    ("qp_type", "ibv_qp_type", "IBV_QPT_"),
    ("send_flags", "ibv_send_flags", "IBV_SEND_"),
    ("wc_flags", "ibv_wc_flags", "IBV_WC_"),
    ("wc_opcode", "ibv_wc_opcode", "IBV_WC_"),
    ("wc_status", "ibv_wc_status", "IBV_WC_"),
    ("wr_opcode", "ibv_wr_opcode", "IBV_WR_"),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));

    let mut script = "IBVERBS_PRIVATE_34 { };\nIBVERBS_1.0 { };\n".to_owned();
    for (node, previous) in NODES.iter().zip(["1.0"].iter().chain(&NODES)) {
        script.extend(["IBVERBS_", *node, " { } IBVERBS_", *previous, ";\n"]);
    }
    let map = out.join("libibverbs.map");
    std::fs::write(&map, script).expect("OUT_DIR can be written to");
    // For every target, not the shared object alone: the tests and the command link the same objects, and the linker
    // refuses a `.symver` with a node that no version script defines.
    println!("cargo::rustc-link-arg=-Wl,--version-script={}", map.display());
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libibverbs.so.1");
    // A process that has opened a device belongs to its fabric until it ends, and its service thread
    // (engine/service.rs) runs as long: `dlclose` must not take its code.
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
    let bindings = match bindings {
        Ok(bindings) => bindings.to_string(),
        Err(error) => {
            println!("cargo::error=bindgen cannot read <infiniband/verbs.h>: {error}");
            println!("cargo::error=On Debian and Ubuntu: apt install libibverbs-dev libclang-dev.");
            std::process::exit(1);
        }
    };
    std::fs::write(out.join("verbs.rs"), &bindings).expect("OUT_DIR can be written to");
    let codes = CODES.map(|(module, kind, prefix)| {
        let constants = bindings.split("pub const ").filter_map(|item| Some(item.split_once(&format!(": {kind} "))?.0));
        let names = constants.filter_map(|name| name.strip_prefix(prefix));
        let values: Vec<_> = names.map(|name| format!("    pub use crate::sys::{prefix}{name} as {name};\n")).collect();
        format!("pub mod {module} {{\n{}}}\n", values.concat())
    });
    std::fs::write(out.join("codes.rs"), codes.concat()).expect("OUT_DIR can be written to");
}
