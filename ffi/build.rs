// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the bindings of Open MPI's component interface from the *installed* headers (feature `openmpi`), and compiles
//! the shim over what those headers offer only as macros and inline functions.
//!
//! Nothing generated is committed: a component must match the Open MPI it is built for, so the headers of that Open MPI
//! are read at each build. Where they are comes from the MPI compiler wrapper (`mpicc`, or the one `$MPICC` names).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "openmpi")]
    openmpi::bind();
}

#[cfg(feature = "openmpi")]
mod openmpi {
    use std::path::{Path, PathBuf};
    use std::process::Command;

    /// What a component uses of Open MPI, as bindgen's regular expressions.
    const TYPES: &str = "mca_base_(component|pvar|var)_.*|mca_btl_.*|mca_rcache_base_.*|mca_pml_base_(component|module)_t|ompi_(communicator|datatype|group|message|proc|request|status_public)_t|opal_(bitmap|class|convertor|datatype|object|proc|process_name|free_list_item)_t|ibex_.*";
    const FUNCTIONS: &str = "mca_base_component_(var|pvar)_register|mca_base_var_(find|get|get_value)|mca_btl_base_param_register|mca_rcache_base_module_(create|destroy)|mca_pml_base_(pml_check_selected|bsend_request_alloc_buf|bsend_request_free)|opal_(bitmap_set_bit|convertor_pack|convertor_unpack|get_proc_hostname|output|proc_local_get|class_initialize|progress)|ibex_.*";
    const VARIABLES: &str = "MCA_.*|MPI_(ANY_.*|ERR_.*|SUCCESS|UNDEFINED)|OMPI_(ANY_.*|COMM_INTER|ERR.*|REQUEST_.*|SUCCESS|(MAJOR|MINOR|RELEASE)_VERSION)|OPAL_(DATATYPE_FLAG_.*|SUCCESS|ERR.*|VERSION|INFO_LVL.*|(MAJOR|MINOR|RELEASE)_VERSION)|BTL_VERSION|mca_btl_base_active_message_trigger|mca_pml|mca_pml_base_pml|ompi_mpi_thread_multiple|ompi_request_functions|ompi_(communicator|request|message|datatype|group)_t_class|opal_progress_yield_when_idle|opal_(version_string|process_info|proc_for_name|convertor_t_class|proc_t_class|free_list_item_t_class|list_item_t_class)|mca_(btl_base_descriptor|rcache_base_registration|base_pvar|base_var)_t_class|ibex_.*";

    /// The installed Open MPI, as its compiler wrapper describes it.
    struct OpenMpi {
        includes: Vec<PathBuf>,
        libraries: Vec<PathBuf>,
    }

    pub(crate) fn bind() {
        for file in ["wrapper.h", "shim.h", "shim.c", "pml.c", "shared_memory.c", "ob1.c", "layout.c"] {
            println!("cargo::rerun-if-changed=openmpi/{file}");
        }
        println!("cargo::rerun-if-env-changed=MPICC");
        let openmpi = OpenMpi::find();
        openmpi.write_bindings();
        openmpi.compile_shim();
        for directory in &openmpi.libraries {
            println!("cargo::rustc-link-search=native={}", directory.display());
        }
        println!("cargo::rustc-link-lib=dylib=open-pal");
    }

    impl OpenMpi {
        fn find() -> Self {
            let wrapper = std::env::var("MPICC").unwrap_or_else(|_| "mpicc".to_owned());
            let includes = showme(&wrapper, "-showme:incdirs");
            if !includes.iter().any(|directory| directory.join("opal/mca/btl/btl.h").exists()) {
                fail(&format!(
                    "Open MPI's component headers (opal/mca/btl/btl.h) are in none of {includes:?}.\n\
                     ibex is a component of Open MPI and is built against them. On Debian and Ubuntu: apt install libopenmpi-dev.\n\
                     For an Open MPI of your own: configure it --with-devel-headers, and set MPICC to its mpicc."
                ));
            }
            // A path that does not exist would make cargo run this script at every build.
            for version in
                includes.iter().map(|directory| directory.join("opal/version.h")).filter(|path| path.exists())
            {
                println!("cargo::rerun-if-changed={}", version.display());
            }
            OpenMpi { includes, libraries: showme(&wrapper, "-showme:libdirs") }
        }

        fn write_bindings(&self) {
            let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
            bindgen::Builder::default()
                .header("openmpi/wrapper.h")
                .clang_args(self.includes.iter().map(|directory| format!("-I{}", directory.display())))
                .clang_arg("-Iopenmpi")
                .allowlist_type(TYPES)
                .allowlist_function(FUNCTIONS)
                .allowlist_var(VARIABLES)
                .prepend_enum_name(false)
                .derive_default(false)
                .generate_comments(false)
                .layout_tests(true)
                .rust_target(bindgen::RustTarget::stable(85, 0).ok().expect("a Rust version that bindgen knows"))
                .rust_edition(bindgen::RustEdition::Edition2024)
                .generate()
                .unwrap_or_else(|error| {
                    fail(&format!(
                        "bindgen cannot read Open MPI's headers: {error}.\nIt needs libclang: on Debian and Ubuntu, apt install libclang-dev."
                    ))
                })
                .write_to_file(out.join("openmpi.rs"))
                .expect("OUT_DIR can be written to");
        }

        fn compile_shim(&self) {
            cc::Build::new()
                .files([
                    "openmpi/shim.c",
                    "openmpi/pml.c",
                    "openmpi/shared_memory.c",
                    "openmpi/ob1.c",
                    "openmpi/layout.c",
                ])
                .include("openmpi")
                .includes(&self.includes)
                // Open MPI's inline list functions use the 16-byte compare-and-swap; without the flag gcc calls a
                // function that no library has.
                .flag_if_supported("-mcx16")
                // Unused parameters stand in Open MPI's own inline functions.
                .flag_if_supported("-Wno-unused-parameter")
                .compile("ibex-openmpi-shim");
        }
    }

    /// The directories that `wrapper option` prints.
    fn showme(wrapper: &str, option: &str) -> Vec<PathBuf> {
        let output = Command::new(wrapper).arg(option).output().unwrap_or_else(|error| {
            fail(&format!(
                "cannot run {wrapper} {option}: {error}.\nibex is built against an installed Open MPI. On Debian and Ubuntu: apt install \
                 libopenmpi-dev. For an Open MPI elsewhere, set MPICC to its mpicc."
            ))
        });
        if !output.status.success() {
            fail(&format!(
                "{wrapper} {option} failed ({}): {}\nIs {wrapper} the compiler wrapper of an Open MPI? Set MPICC to the one to build for.",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            ));
        }
        String::from_utf8_lossy(&output.stdout).split_whitespace().map(|word| Path::new(word).to_path_buf()).collect()
    }

    /// Ends the build with a message that cargo shows.
    fn fail(message: &str) -> ! {
        for line in message.lines() {
            println!("cargo::error={line}");
        }
        std::process::exit(1)
    }
}
