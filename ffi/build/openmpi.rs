// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the bindings and compiles the shim. Part of `build.rs`.

use std::path::{Path, PathBuf};

use crate::fail;
use crate::installation::Installation;
use crate::{layout, verbs};

/// The items of Open MPI that ibex uses, as regular expressions for bindgen.
const TYPES: &str = "mca_base_(component|pvar|var)_.*|mca_btl_.*|mca_rcache_base_.*|mca_pml_base_(component|module)_t|ompi_(communicator|datatype|group|message|proc|request|status_public)_t|opal_(bitmap|class|convertor|datatype|mutex|object|proc|process_name|free_list_item)_t|ibex_.*";
const FUNCTIONS: &str = "mca_base_component_(var|pvar)_register|mca_base_var_(find|get|get_value|set_flag)|mca_btl_base_param_register|mca_rcache_base_module_(create|destroy)|mca_pml_base_(pml_check_selected|bsend_request_alloc_buf|bsend_request_free)|PMPI_T_cvar_get_num|opal_(bitmap_set_bit|convertor_pack|convertor_unpack|get_proc_hostname|mem_hooks_release_hook|output|proc_local_get|class_initialize|progress)|ibex_.*";
const VARIABLES: &str = "MCA_.*|MPI_(ANY_.*|ERR_.*|SUCCESS|UNDEFINED)|OMPI_(ANY_.*|COMM_INTER|ERR.*|REQUEST_.*|SUCCESS|(MAJOR|MINOR|RELEASE)_VERSION)|OPAL_(DATATYPE_FLAG_.*|SUCCESS|ERR.*|VERSION|INFO_LVL.*|(MAJOR|MINOR|RELEASE)_VERSION)|BTL_VERSION|IBEX_.*|mca_btl_base_active_message_trigger|mca_pml|mca_pml_base_pml|ompi_mpi_thread_multiple|ompi_request_functions|ompi_(communicator|request|message|datatype|group|proc)_t_class|opal_progress_yield_when_idle|opal_(get_proc_hostname|version_string|process_info|proc_for_name|convertor_t_class|proc_t_class|free_list_item_t_class|list_item_t_class|mutex_t_class)|mca_(btl_base_descriptor|rcache_base_registration|base_pvar|base_pvar_handle|base_var)_t_class|ibex_.*";

const SHIM: [&str; 3] = ["shim.c", "pml.c", "shared_memory.c"];

pub(crate) fn bind() {
    println!("cargo::rerun-if-changed=openmpi");
    let openmpi = Installation::find();
    openmpi.tell_cargo();
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let bindings = bindings(&openmpi).to_string();
    let layout = out.join("layout.c");
    std::fs::write(&layout, layout::assertions(&bindings)).expect("OUT_DIR is writable");
    std::fs::write(out.join("openmpi.rs"), bindings).expect("OUT_DIR is writable");
    compile_shim(&openmpi, &layout);
}

fn bindings(openmpi: &Installation) -> bindgen::Bindings {
    verbs::builder()
        .header("openmpi/wrapper.h")
        .clang_args(openmpi.includes.iter().map(|directory| format!("-I{}", directory.display())))
        // gcc 12 has this type, clang 14 does not. The headers only declare names for it; this type has the same size.
        .clang_arg("-D_Float16=short")
        .allowlist_type(TYPES)
        .allowlist_function(FUNCTIONS)
        .allowlist_var(VARIABLES)
        .derive_default(false)
        .generate()
        .unwrap_or_else(|error| {
            fail(&format!(
                "bindgen cannot read Open MPI's headers: {error}.\nIt needs libclang: on Debian and Ubuntu, apt install libclang-dev."
            ))
        })
}

fn compile_shim(openmpi: &Installation, layout: &Path) {
    cc::Build::new()
        .files(SHIM.map(|file| format!("openmpi/{file}")))
        .file(layout)
        .includes(&openmpi.includes)
        // Open MPI's inline list functions use the 16-byte compare-and-swap, for which gcc needs the flag.
        .flag_if_supported("-mcx16")
        // Open MPI's inline functions have unused parameters.
        .flag_if_supported("-Wno-unused-parameter")
        .compile("ibex-openmpi-shim");
}
