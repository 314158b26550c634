// SPDX-License-Identifier: MIT OR Apache-2.0
//! The logger around an application, on a mock of ibex of which the tests know everything (`mock/`).
//!
//! The logger uses the public calls alone, so a library of the same soname that has them stands in for ibex. With ibex and a
//! device it is tested by hw-tests. Needs Open MPI with its headers and commands, and no device.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Runs a command that must succeed, within two minutes but for cargo.
fn done(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    output
}

/// A folder with the logger, the mock and the application, made once.
fn place() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("event-log");
        std::fs::create_dir_all(&place).expect("the target directory can be written to");
        let target = place.ancestors().nth(2).expect("cargo's directory lies in the target directory");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "ibex-event-log", "--lib", "--target-dir"]).arg(target);
        let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
        if profile == "release" {
            cargo.arg("--release");
        }
        done(&mut cargo);
        // A copy, not a link: the loader looks for libibex.so beside the real file.
        std::fs::copy(target.join(profile).join("libibex_log.so"), place.join("libibex-log.so")).expect("it was built");
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let include = format!("-I{}", here.join("../plugin-abi/include").display());
        let mut mock = Command::new("mpicc");
        mock.args(["-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libibex.so", &include, "-o"]);
        done(mock.arg(place.join("libibex.so")).arg(here.join("tests/mock/ibex.c")));
        let mut application = Command::new("mpicc");
        application.args(["-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(place.join("application"));
        application.arg(here.join("tests/mock/application.c")).arg(format!("-L{}", place.display())).arg("-libex");
        done(application.arg(format!("-Wl,-rpath,{}", place.display())));
        place
    })
}

/// The application under the logger; its output and the log.
fn logged(what: &str, events: Option<&str>) -> (String, String) {
    let (output, log) = run(what, events);
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{what}: {}\n{said}", output.status);
    (said, log)
}

/// The same, however it ends.
fn run(what: &str, events: Option<&str>) -> (Output, String) {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    // Only a number of its own for each run.
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let folder = place().join(format!("run-{}-{run}", std::process::id()));
    std::fs::create_dir(&folder).expect("the target directory can be written to");
    let file = folder.join("log");
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "120"]).arg(place().join("application")).arg(what);
    command.env("LD_PRELOAD", place().join("libibex-log.so"));
    command.env("IBEX_LOG_FILE", &file);
    command.env("OMPI_MCA_btl", "self").env_remove("IBEX_LOG_EVENTS").env_remove("LD_LIBRARY_PATH");
    if let Some(events) = events {
        command.env("IBEX_LOG_EVENTS", events);
    }
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let files: Vec<_> =
        std::fs::read_dir(&folder).expect("it is there").flatten().map(|file| file.file_name()).collect();
    assert!(files.iter().all(|file| file == "log.0"), "{what}: {files:?}");
    let log = std::fs::read_to_string(folder.join("log.0")).unwrap_or_default();
    let _ = std::fs::remove_dir_all(&folder);
    (output, log)
}

/// Seconds, source, name and elements of each event in a log.
fn events(log: &str) -> Vec<(f64, String)> {
    let lines = log.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (time, rest) = line.split_once(' ').expect("a time and more");
            (time.parse().expect("seconds"), rest.to_owned())
        })
        .collect()
}

#[test]
fn each_event_is_a_line_and_each_pair_a_time_on_the_common_clock() {
    let (_, log) = logged("pairs", Some("get_started:btl_ibex_get_complete; late"));
    let events = events(&log);
    let text: Vec<&str> = events.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(text.len(), 24, "{log}");
    assert_eq!(text[0], "host:0 btl_ibex_get_started operation=1 value=-1");
    assert_eq!(text[19], "adapter:1 btl_ibex_get_complete operation=10 value=10");
    assert_eq!(text[20], "host:0 btl_ibex_late operation=0 value=99", "after MPI_Finalize");
    assert_eq!(text[21], "host:0 btl_ibex_late operation=0 value=3", "what was delivered only by freeing");
    assert!(events.windows(2).all(|two| two[0].0 <= two[1].0), "in order of time: {log}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs_f64();
    assert!((now - events[0].0).abs() < 120.0, "seconds since 1970: {log}");
    // The pause between them was 30 ms, on two clocks of which one goes wrong by 1 %; half a second for a busy machine.
    let pair = log.lines().find(|line| line.starts_with("# get_started - get_complete")).expect("statistics");
    let numbers: Vec<f64> = pair.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [count, min, mean, max, total, open] = numbers[..] else { panic!("{pair}") };
    assert_eq!((count, open), (10.0, 0.0), "{pair}");
    assert!(29_990.0 < min && min <= mean && mean <= max && max < 530_000.0, "{pair}");
    assert!((total - 10.0 * mean).abs() < 0.1, "{pair}");
    let counts = |name: &str| -> Vec<u64> {
        let line = log.lines().find(|line| line.split_whitespace().nth(1) == Some(name)).expect("counted");
        line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    };
    assert_eq!((counts("get_started"), counts("get_complete"), counts("late")), (vec![10, 0], vec![10, 7], vec![4, 0]));
}

#[test]
fn without_names_all_there_is_is_listed_and_nothing_written_down() {
    for (what, events) in [("pairs", None), ("threads", Some(" "))] {
        let (_, log) = logged(what, events);
        for part in [
            "# btl_ibex_get_started",
            "A description.",
            "8 int            value",
            "# adapter:1: ordered, 1000000 ticks",
        ] {
            assert!(log.contains(part), "{part} is missing in {log}");
        }
        assert!(log.lines().all(|line| line.starts_with('#')), "{log}");
    }
}

#[test]
fn what_several_threads_raise_is_written_once_each() {
    let (_, log) = logged("threads", Some("all"));
    let mut seen: Vec<String> = events(&log).into_iter().map(|(_, text)| text).collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 20_001, "20000 and one after MPI_Finalize");
}

#[test]
fn a_process_that_is_forked_off_writes_nothing() {
    let (_, log) = logged("fork", Some("get_started"));
    assert_eq!(events(&log).len(), 1, "{log}");
    assert_eq!(log.matches("# event").count(), 1, "{log}");
}

#[test]
fn a_process_that_ends_without_finalizing_or_aborts_the_job_has_its_log() {
    for what in ["exit", "abort"] {
        let (output, log) = run(what, Some("get_started"));
        assert_eq!(events(&log).len(), 1, "{what}: {}, {log}", output.status);
        assert_eq!(log.matches("# event").count(), 1, "{what}: {log}");
    }
}

#[test]
fn a_callback_allocates_nothing() {
    let (said, _) = logged("allocations", Some("get_started"));
    assert!(said.contains("allocated 0\n"), "{said}");
}

#[test]
fn a_process_without_mpi_is_left_alone() {
    let (said, log) = logged("no-mpi", Some("get_started"));
    assert_eq!((said.as_str(), log.as_str()), ("", ""));
}

#[test]
fn a_name_that_no_event_has_is_told() {
    let (said, log) = logged("fork", Some("get_started,got"));
    assert!(said.contains("there is no event got"), "{said}");
    assert_eq!(events(&log).len(), 1);
}
