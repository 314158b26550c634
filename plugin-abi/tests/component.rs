// SPDX-License-Identifier: MIT OR Apache-2.0
//! The component in the installed Open MPI, on a machine without an adapter: the output of `ompi_info`, and jobs that
//! go on without ibex, with the right message for each reason to decline. Needs the same as building the crate (Open
//! MPI with its headers and commands) and no device: existing ports are excluded by name. Each test has a directory of
//! its own, and a time limit for every command.

use std::process::Command;

mod built;

use built::{Place, done, library};
use engine::counters::COUNTERS;
use engine::tunables::{Faces, TABLE};

/// Runs a job of two ranks that exchange a message. Returns whether it succeeded, and its output.
fn job(place: &Place, options: &[&str]) -> (bool, String) {
    let program = place.compiled("exchange", &[]);
    let words = [&["mpirun", "-n", "2", "--mca", "pml", "ob1"], options, &[&program]].concat();
    let (code, said) = place.run(&words);
    (code == Some(0), said)
}

/// Joins words that `ompi_info` may have wrapped over lines.
fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn ompi_info_shows_every_parameter_with_default_bounds_and_help() {
    let place = Place::new("parameters");
    let shown = unwrapped(&place.run(&["ompi_info", "--param", "btl", "ibex", "--level", "9"]).1);
    for row in TABLE.iter().filter(|row| row.faces != Faces::Pml) {
        assert!(shown.contains(&format!("parameter \"{}\"", row.full_name())), "{} is missing in {shown}", row.name);
        let default = format!("Default: {}", row.default_value());
        for part in [row.help, row.effect, &default, &format!("permitted: {}", row.permitted())] {
            assert!(shown.contains(&unwrapped(part)), "{}: {part:?} is missing in {shown}", row.name);
        }
    }
    for name in ["exclusivity", "flags", "eager_limit", "rndv_eager_limit", "max_send_size", "get_limit", "put_limit"] {
        assert!(shown.contains(&format!("\"btl_ibex_{name}\"")), "{name} is missing in {shown}");
    }
}

#[test]
fn ompi_info_shows_every_counter_with_its_class() {
    let place = Place::new("counters");
    let shown = unwrapped(&place.run(&["ompi_info", "--param", "btl", "ibex", "--level", "9"]).1);
    let of_the_port = COUNTERS.iter().map(|row| (row.name, format!("{:?}", row.class).to_lowercase()));
    let events = ["raised", "delivered", "buffered", "dropped", "late"].map(|count| format!("events_{count}"));
    let of_the_events = events.iter().map(|name| (name.as_str(), "counter".to_owned()));
    for (name, class) in of_the_port.chain(of_the_events) {
        let line = format!("performance \"btl_ibex_{name}\" (type: unsigned_long_long, class: {class})");
        assert!(shown.contains(&line), "{line} is missing in {shown}");
    }
}

#[test]
fn symbols_that_another_series_lacks_are_weak_so_that_the_library_loads_there_and_prints_why_it_declines() {
    // The dynamic linker binds the library when it loads it, so a strong reference to one of these would be an error.
    let lacking = "PMIx_Get PMIx_Put PMIx_Value_free ompi_ftmpi_enabled ompi_group_get_proc_ptr_raw opal_pmix \
                   opal_convertor_set_position_nocheck opal_pmix_convert_jobid opal_pmix_convert_status \
                   opal_value_t_class";
    let mut command = Command::new("nm");
    command.args(["--dynamic", "--undefined-only"]).arg(library().join("libibex.so"));
    let output = done(&command);
    let symbols = String::from_utf8_lossy(&output.stdout);
    let strong: Vec<_> = symbols
        .lines()
        .filter_map(|line| line.trim().strip_prefix("U "))
        .filter(|symbol| lacking.split(' ').any(|name| name == *symbol))
        .collect();
    assert!(strong.is_empty(), "{strong:?}");
    // The table is this library's: it has a symbol of every series.
    assert!(symbols.contains("U opal_version_string"), "{symbols}");
}

#[test]
fn ibex_refuses_a_parameter_out_of_bounds_and_the_job_goes_on() {
    let place = Place::new("bounds");
    // The least eager limit has room for a header, and headers are longer with Open MPI 5.
    let is_5 = place.run(&["mpirun", "--version"]).1.contains("(Open MPI) 5");
    let eager_limits = if is_5 { "80 to 32768" } else { "64 to 32768" };
    for (name, value, range) in [
        ("service_level", "16", "0 to 15"),
        ("mtu", "1500", "256"),
        ("eager_limit", "63", eager_limits),
        ("max_send_size", "2097152", "4096 to 1048576"),
    ] {
        let option = format!("btl_ibex_{name}");
        let (succeeded, said) = job(&place, &["--mca", "btl", "self,vader,ibex", "--mca", &option, value]);
        assert!(succeeded, "{said}");
        for part in [option.as_str(), value, range] {
            assert!(said.contains(part), "{part} is missing in: {said}");
        }
    }
}

#[test]
fn without_a_port_a_user_who_named_ibex_gets_a_message_and_the_job_goes_on() {
    let place = Place::new("no-port");
    let (succeeded, said) = job(&place, &["--mca", "btl", "self,vader,ibex", "--mca", "btl_ibex_if_include", "none:1"]);
    assert!(succeeded, "{said}");
    assert!(said.contains("ibex found no port it can use"), "{said}");
}

#[test]
fn without_a_port_a_user_who_did_not_name_ibex_gets_no_message() {
    let place = Place::new("silent");
    let (succeeded, said) = job(&place, &["--mca", "btl_ibex_if_include", "none:1"]);
    assert!(succeeded, "{said}");
    // PMIx of Open MPI 5 looks into the directory of this test, too, and prints the names of other files.
    let path = place.component().parent().expect("it lies in one").display().to_string();
    let by_ibex = said.lines().find(|line| line.contains("ibex") && !line.contains(&path));
    assert_eq!(by_ibex, None, "{said}");
}

#[test]
fn ibex_reports_that_it_runs_in_another_open_mpi_and_the_job_goes_on() {
    let place = Place::new("version");
    // The symbol of Open MPI's library, with a release series that does not exist.
    std::fs::write(place.0.join("other.c"), "const char opal_version_string[] = \"4.9.999\";\n").expect("a new file");
    let (code, said) = place.run(&["cc", "-shared", "-fPIC", "-o", "other.so", "other.c"]);
    assert_eq!(code, Some(0), "{said}");
    let preload = format!("LD_PRELOAD={}", place.0.join("other.so").display());
    let (succeeded, said) = job(&place, &["-x", &preload, "--mca", "btl", "self,vader,ibex"]);
    assert!(succeeded, "{said}");
    assert!(said.contains("but this is Open MPI 4.9.999"), "{said}");
}
