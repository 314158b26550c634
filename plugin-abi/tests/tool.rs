// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tool interface for C programs (`tests/tool/`): header, library, every call with every code, and the profiling
//! names. `src/tool/tests` tests events that fire, and hw-tests events on a device. Needs the same as building the
//! crate (Open MPI with its headers and commands) and no device.

mod built;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use built::{Place, done, library};

/// Compiles a file of this package for a tool of ibex, into a file of this name. Returns its path.
fn compile(language: &[&str], source: &str, name: &str, options: &[&str]) -> PathBuf {
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let package = env!("CARGO_MANIFEST_DIR");
    let mut command = Command::new(language[0]);
    command.args(&language[1..]).args(["-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&output);
    command.arg(format!("{package}/{source}")).arg(format!("-I{package}/include")).args(options);
    command.arg(format!("-L{}", library().display())).arg("-libex");
    done(&command);
    output
}

fn compiled(name: &str, test: &str) -> PathBuf {
    compile(&["mpicc"], &format!("tests/tool/{name}.c"), &format!("tool-{name}-{test}"), &[])
}

fn program(path: &Path) -> Command {
    let mut command = Command::new(path);
    command.env("LD_LIBRARY_PATH", library());
    for (name, value) in [("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")] {
        command.env(name, value);
    }
    // Excludes an ibex that the user has installed, which would be a second copy.
    command.env("OMPI_MCA_mca_base_component_path", "SYSTEM_DEFAULT");
    command
}

#[test]
fn every_call_answers_the_standards_code_in_every_phase_of_mpi() {
    done(&program(&compiled("calls", "codes")));
}

#[test]
fn the_interface_counts_its_initialisations_and_registrations_outlive_the_last_one() {
    done(&program(&compiled("phases", "phases")));
}

#[test]
fn several_threads_may_make_every_call_at_once() {
    done(&program(&compiled("threads", "threads")));
}

#[test]
fn every_function_of_peruse_answers_the_specifications_code() {
    done(&program(&compiled("peruse", "codes")));
}

/// Runs a program that finds the component, which finds no port.
fn done_with_component(test: &str, command: &mut Command) -> Output {
    let place = Place::new(test);
    place.show_to(command);
    done(command.env("OMPI_MCA_btl_ibex_if_include", "none:1"))
}

#[test]
fn the_events_are_in_the_category_of_the_transport_where_it_is_loaded() {
    done_with_component("category", program(&compiled("calls", "category")).arg("component"));
}

#[test]
fn counts_have_a_value_per_source_and_registrations_have_the_users_defaults() {
    let mut command = program(&compiled("variables", "variables"));
    command.env("OMPI_MCA_btl_ibex_event_buffered", "1").env("OMPI_MCA_btl_ibex_event_buffer", "1000");
    done_with_component("variables", &mut command);
}

#[test]
fn a_tools_write_to_a_control_variable_takes_effect_before_mpi_init_and_fails_after_the_component_is_unloaded() {
    done_with_component("written", &mut program(&compiled("parameters", "written")));
}

#[test]
fn mpi_init_refuses_a_tools_invalid_value_like_one_from_the_environment() {
    let output = done_with_component("refused", program(&compiled("parameters", "refused")).arg("refused"));
    let said = String::from_utf8_lossy(&output.stderr);
    for part in ["btl_ibex_service_level is 16, but may be 0 to 15", "ibex takes no part in this job"] {
        assert!(said.contains(part), "{part} is missing in: {said}");
    }
}

#[test]
fn the_page_on_writing_a_tool_shows_the_program_that_is_tested() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let page = read("docs/writing-a-tool.md");
    let pieces = page.split("```c\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    assert!(pieces.collect::<String>() == read("hw-tests/tools/writing_a_tool.c"), "the page and the program differ");
    let of_another =
        page.split("```C\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a function of another");
    assert!(read("hw-tests/tools/mpi_t_parameters.c").contains(of_another), "it is not that of the program");
}

#[test]
fn the_tool_of_the_page_runs_without_a_device_as_well() {
    let tool = compile(&["mpicc"], "../hw-tests/tools/writing_a_tool.c", "tool-of-the-page", &[]);
    let output = done(program(&tool).env("OMPI_MCA_btl", "self"));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("rank 0, peer 0: 0 messages of 0 bytes sent"), "{said}");
}

#[test]
fn two_tools_in_one_process_do_not_disturb_each_other_and_one_may_intercept_the_others_calls() {
    let place = env!("CARGO_TARGET_TMPDIR");
    let shared = ["mpicc", "-shared", "-fPIC"];
    compile(&shared, "tests/tool/tool_library.c", "libtool-one.so", &["-DTOOL=one", "-DINTERCEPTS"]);
    compile(&shared, "tests/tool/tool_library.c", "libtool-two.so", &["-DTOOL=two"]);
    // The tools before ibex, because the linker takes the first definition.
    let options = [&format!("-L{place}"), "-ltool-one", "-ltool-two", "-Wl,-rpath", place];
    done(&program(&compile(&["mpicc"], "tests/tool/two_tools.c", "tool-two_tools-tools", &options)));
}

#[test]
fn the_mpi_t_header_compiles_in_strict_c_and_cplusplus_before_and_after_mpi_h_and_peruse_h_in_cplusplus() {
    let cplusplus = ["mpicxx", "-DOMPI_SKIP_MPICXX", "-x", "c++", "-std=c++11", "-pedantic"];
    for language in [&["mpicc", "-std=c99", "-pedantic"][..], &["mpicc", "-std=c11", "-pedantic"], &cplusplus] {
        for order in ["-DMPI_H_FIRST", "-UMPI_H_FIRST"] {
            compile(language, "tests/tool/header.c", "tool-header.o", &[order, "-c"]);
        }
    }
    compile(&cplusplus[..4], "include/peruse.h", "tool-peruse.o", &["-c"]);
}
