// SPDX-License-Identifier: MIT OR Apache-2.0
//! The logger around an application, on a mock of ibex (`mock/`), a library of the same soname with the public calls.
//! Needs Open MPI with its headers and commands, and no device.

use std::process::Command;

mod place;
use place::{Ran, apart, application, done, place};

fn logged(what: &str, events: &str) -> (String, String) {
    let ran = run(what, events);
    assert!(ran.output.status.success(), "{what}: {}\n{}", ran.output.status, ran.said());
    (ran.said(), ran.log())
}

fn run(what: &str, events: &str) -> Ran {
    let ran = Ran::new(&[&application(), what], &[("IBEX_LOG_EVENTS", events)]);
    assert_eq!(ran.files(), 1, "{what}: {}", ran.said());
    ran
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
    let (said, log) = logged("pairs", "get_started:ibex_get_complete; late");
    let events = events(&log);
    let text: Vec<&str> = events.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(text.len(), 24, "{log}");
    assert_eq!(text[0], "host:0 ibex_get_started operation=1 value=-1");
    assert_eq!(text[19], "adapter:1 ibex_get_complete operation=10 value=10");
    assert_eq!(text[20], "host:0 ibex_late operation=0 value=99", "after MPI_Finalize");
    assert_eq!(text[21], "host:0 ibex_late operation=0 value=3", "delivered only when the registration was freed");
    assert!(events.windows(2).all(|two| two[0].0 <= two[1].0), "in order of time: {log}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs_f64();
    assert!((now - events[0].0).abs() < 1000.0, "seconds since 1970: {log}");
    // The pause between them was 30 ms or more, on two clocks, one of which is wrong by 1 %.
    let pair = log.lines().find(|line| line.starts_with("# get_started - get_complete")).expect("statistics");
    let numbers: Vec<f64> = pair.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [count, min, mean, max, total, open, unbegun] = numbers[..] else { panic!("{pair}") };
    assert_eq!((count, open, unbegun), (10.0, 0.0, 0.0), "{pair}");
    let [least, most] = apart(&said).map(|nanoseconds| nanoseconds as f64 / 1000.0);
    assert!(least - 50.0 < min && min <= mean && mean <= max && max < most + 50.0, "{least} {most} {pair}");
    assert!((total - 10.0 * mean).abs() < 0.1, "{pair}");
    let counts = |name: &str| -> Vec<u64> {
        let line = log.lines().find(|line| line.split_whitespace().nth(1) == Some(name)).expect("counted");
        line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    };
    assert_eq!((counts("get_started"), counts("get_complete"), counts("late")), (vec![10, 0], vec![10, 7], vec![4, 0]));
}

#[test]
fn without_names_the_logger_lists_all_events_and_logs_none() {
    for (what, events) in [("pairs", ""), ("threads", " ")] {
        let (_, log) = logged(what, events);
        for part in
            ["# ibex_get_started", "A description.", "8 int            value", "# adapter:1: ordered, 1000000 ticks"]
        {
            assert!(log.contains(part), "{part} is missing in {log}");
        }
        assert!(log.lines().all(|line| line.starts_with('#')), "{log}");
    }
}

#[test]
fn a_program_stops_the_log_and_resumes_it_and_mpi_gets_the_calls_too() {
    let (said, log) = logged("control", "all");
    assert!(said.contains("levels 00711\n"), "{said}");
    let written: Vec<String> = events(&log).into_iter().map(|(_, text)| text).collect();
    let wanted = [
        "host:0 ibex_get_started operation=1 value=1",
        "host:0 ibex_get_started operation=4 value=4",
        "host:0 ibex_late operation=0 value=99",
    ];
    assert_eq!(written, wanted, "{log}");
    let place = |text: &str| {
        assert_eq!(log.matches(text).count(), 1, "{text}: {log}");
        log.find(text).expect("it is there")
    };
    let (stopped, resumed) = (place("MPI_Pcontrol(0): events are not"), place("MPI_Pcontrol(1): events are written"));
    assert!(place("operation=1 ") < stopped && stopped < resumed && resumed < place("operation=4 "), "{log}");
    place("MPI_Pcontrol(0): nothing was written 1 time(s), ");
}

#[test]
fn a_program_can_have_waiting_lines_written() {
    let (said, log) = logged("flush", "get_started");
    assert!(said.contains("missing 0\n"), "{said}");
    assert_eq!(events(&log).len(), 200, "{log}");
}

#[test]
fn a_process_that_is_forked_off_writes_nothing_and_one_that_exits_or_aborts_has_its_log() {
    for what in ["fork", "exit", "abort"] {
        let ran = run(what, "get_started");
        let log = ran.log();
        assert_eq!(events(&log).len(), 1, "{what}: {}, {log}", ran.output.status);
        assert_eq!(log.matches("# event").count(), 1, "{what}: {log}");
    }
}

#[test]
fn the_logger_logs_a_program_that_begins_by_the_profiling_name_as_fortran_does() {
    let (_, log) = logged("profiling-names", "all");
    assert_eq!(events(&log).len(), 2, "{log}");
}

#[test]
fn a_killed_process_leaves_the_written_lines() {
    let ran = run("killed", "get_started");
    let log = ran.log();
    assert!(!ran.output.status.success());
    assert_eq!(events(&log).len(), 1, "{log}");
    assert!(log.starts_with("# rank 0, host ") && !log.contains("# event"), "{log}");
}

#[test]
fn the_logger_leaves_a_process_without_mpi_alone() {
    let application = application();
    for (words, wanted) in [
        (&[application.as_str(), "no-mpi"][..], ""),
        (&["sh", "-c", "echo $((1 + 1)) | cat"], "2\n"),
        (&["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", "echo", "x"], "x\nx\n"),
    ] {
        let ran = Ran::new(words, &[("IBEX_LOG_EVENTS", "all")]);
        assert_eq!((ran.said().as_str(), ran.files()), (wanted, 0), "{words:?}");
    }
}

#[test]
fn the_linked_logger_does_the_same_as_the_preloaded_one() {
    let linked = place().join("linked");
    let environment = [("LD_PRELOAD", ""), ("IBEX_LOG_EVENTS", "all")];
    let ran = Ran::new(&[linked.to_str().expect("UTF-8"), "fork"], &environment);
    assert!(ran.output.status.success(), "{}", ran.said());
    assert_eq!(events(&ran.log()).len(), 2, "{}", ran.log());
}

#[test]
fn the_logger_reports_a_file_that_it_cannot_make_and_writes_to_standard_error() {
    let environment = [("IBEX_LOG_FILE", "/dev/null/log"), ("IBEX_LOG_EVENTS", "get_started")];
    let ran = Ran::new(&[&application(), "fork"], &environment);
    let said = ran.said();
    assert!(ran.output.status.success() && ran.files() == 0, "{said}");
    assert!(said.contains("IBEX_LOG_FILE: cannot make /dev/null/log.0: Not a directory"), "{said}");
    let line = said.lines().find(|line| line.contains("ibex_get_started")).expect("the event");
    assert!(line.starts_with("[0] "), "{said}");
}

#[test]
fn a_job_that_sent_nothing_through_ibex_gets_a_message() {
    let (_, log) = logged("nothing", "get_started");
    assert!(log.contains("# none of these occurred. If ibex should have carried messages:"), "{log}");
    let (_, log) = logged("fork", "get_started");
    assert!(!log.contains("# none"), "{log}");
}

#[test]
fn the_logger_reports_unknown_names_once_with_the_known_ones() {
    for (rank, told) in [("0", 1), ("1", 0)] {
        // The launcher's variable, for a process that is asked before MPI is initialised.
        let environment = [("IBEX_LOG_EVENTS", "get_started,got:got;gone"), ("OMPI_COMM_WORLD_RANK", rank)];
        let ran = Ran::new(&[&application(), "fork"], &environment);
        let said = ran.said();
        assert!(ran.output.status.success(), "{said}");
        let line = format!(
            "IBEX_LOG_EVENTS: there is no event and no group got, gone; use the groups {}, or the events {}\n",
            ibex_trace::GROUPS.join(", "),
            "get_started, get_complete, late, communicator_freed"
        );
        assert_eq!(said.matches(&line).count(), told, "{said}");
    }
}

#[test]
fn the_library_uses_only_public_calls() {
    let mut nm = Command::new("nm");
    let listed = done(nm.args(["--dynamic", "--undefined-only"]).arg(place().join("libibex-log.so"))).stdout;
    let listed = String::from_utf8_lossy(&listed).into_owned();
    // Symbols of the system's libraries have a version.
    let names: Vec<&str> =
        listed.lines().filter_map(|line| line.split_whitespace().last()).filter(|name| !name.contains('@')).collect();
    assert!(names.contains(&"MPI_T_event_copy"), "{listed}");
    for name in names {
        // `ompi_mpi_...`: handles of mpi.h, as MPI_INT; `_...`: the compiler's; weak ones: zstd's for tracing.
        let is_public =
            ["MPI_T_", "PMPI_", "ompi_mpi_", "ZSTD_trace_", "_"].iter().any(|public| name.starts_with(public));
        assert!(is_public, "{name} is no public call of MPI: {listed}");
    }
}
