// SPDX-License-Identifier: MIT OR Apache-2.0
//! The recorder around an application, on a mock of ibex (`mock/`): all raised events are in the trace, however the
//! process ends. Needs Open MPI with its headers and commands, and no device.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use ibex_trace::{Clock, Error, Event, Folder, Reader};

mod place;
use place::{Ran, apart, application, place};

fn traced_with(words: &[&str], environment: &[(&str, &str)]) -> Ran {
    Ran::new(words, &[&[("IBEX_TRACE", "t")], environment].concat())
}

fn folder(traced: &Ran) -> Folder {
    Folder::open(&traced.folder.join("t")).unwrap_or_else(|error| panic!("{error}: {}", traced.said()))
}

fn only(traced: &Ran) -> Reader {
    let files: Vec<_> = std::fs::read_dir(traced.folder.join("t")).expect("made").flatten().collect();
    assert_eq!(files.len(), 1, "{files:?}");
    Reader::open(&files[0].path()).expect("a trace")
}

fn tempfolder(name: &str) -> PathBuf {
    place().join(format!("{name}-{}", std::process::id()))
}

fn traced(what: &str) -> Ran {
    traced_with(&[&application(), what], &[])
}

/// All events of a file, which has no fault.
fn events(reader: &Reader) -> Vec<Event> {
    reader.events().collect::<Result<_, _>>().expect("no fault")
}

fn told(reader: &Reader, event: &Event) -> (String, u64, i64) {
    let name = reader.head().types[usize::from(event.event_type)].name.clone();
    (name, event.values[0], event.values[1].cast_signed())
}

#[test]
fn the_trace_has_each_event_with_its_values_and_times_and_counts_losses() {
    let traced = traced("pairs");
    assert!(traced.output.status.success(), "{}", traced.said());
    let reader = only(&traced);
    let head = reader.head();
    assert_eq!((head.rank, head.ranks, head.world, &*head.ibex), (Some(0), Some(1), 0, env!("CARGO_PKG_VERSION")));
    assert!(head.program.ends_with("application") && head.pid > 0 && !head.host.is_empty() && head.clock.len() > 36);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_nanos();
    let events = events(&reader);
    let first = events[0].time.expect("its clock is known") + head.calendar;
    assert!(now.abs_diff(first.unsigned_abs().into()) < 1_000_000_000_000, "{first}: nanoseconds since 1970");
    let told: Vec<_> = events.iter().map(|event| told(&reader, event)).collect();
    assert_eq!(told.len(), 24);
    assert_eq!(told[0], ("ibex_get_started".to_owned(), 1, -1));
    assert_eq!(told[19], ("ibex_get_complete".to_owned(), 10, 10));
    assert_eq!(told[20], ("ibex_late".to_owned(), 0, 99), "after MPI_Finalize");
    assert_eq!(told[21], ("ibex_late".to_owned(), 0, 3), "delivered only when the registration was freed");
    let times: Vec<i64> = events.iter().map(|event| event.time.expect("its clock is known")).collect();
    assert!(times.is_sorted(), "{times:?}");
    // The pause was 30 ms or more, on two clocks, one of which is wrong by 1 %.
    let [least, most] = apart(&traced.said());
    assert!((least - 50_000..most + 50_000).contains(&(times[10] - times[0])), "{least} {most} {times:?}");
    let counts: Vec<_> = reader.counts().iter().map(|of| (of.events, of.lost)).collect();
    assert_eq!(
        counts,
        [(10, 0), (10, 7), (4, 0), (0, 0), (0, 0), (0, 0), (0, 0)],
        "the last are of communicators, and the recorder's own: calls of MPI, where it is stopped"
    );
    assert!(traced.said().contains("7 events lost (7 get_complete): ibex could not deliver"), "{}", traced.said());
    assert!(reader.is_finished());
}

#[test]
fn the_trace_has_the_events_of_several_threads_once_in_each_threads_order() {
    let traced = traced("threads");
    let reader = only(&traced);
    let mut last = std::collections::BTreeMap::new();
    let events = events(&reader);
    for event in &events {
        let before = last.insert(event.thread, event.values[0]);
        assert!(before.is_none_or(|before| before < event.values[0]), "{event:?}");
    }
    assert_eq!((events.len(), last.len()), (20_001, 5), "four threads, and one event after MPI_Finalize");
}

/// Number of threads by their number of recorded events. Checks that the events of each thread are in order.
fn by_thread(reader: &Reader) -> std::collections::BTreeMap<usize, usize> {
    let mut threads: std::collections::BTreeMap<u32, Vec<u64>> = std::collections::BTreeMap::new();
    for event in events(reader) {
        threads.entry(event.thread).or_default().push(event.values[0]);
    }
    let mut counts = std::collections::BTreeMap::new();
    for values in threads.values() {
        assert!(values.windows(2).all(|two| two[0] < two[1]) || values.len() == 2, "{values:?}");
        *counts.entry(values.len()).or_default() += 1;
    }
    counts
}

#[test]
fn the_trace_has_all_events_of_many_short_threads_and_of_many_that_live_together() {
    // The event after MPI_Finalize is of the first thread.
    let counts = [("short-threads", vec![(1, 1), (50, 300)]), ("living-threads", vec![(2, 1), (50, 63), (100, 37)])];
    for (what, wanted) in counts {
        let traced = traced(what);
        assert!(!traced.said().contains("lost"), "{}", traced.said());
        assert!(by_thread(&only(&traced)).into_iter().eq(wanted), "{what}");
    }
}

#[test]
fn the_trace_counts_a_thread_without_memory_and_records_it_once_others_have_ended() {
    let traced = traced("living-threads-limited");
    let said = traced.said();
    assert!(said.contains("1850 events lost (1850 get_started): "), "{said}");
    assert!(said.contains("no memory for the events of more threads") && said.contains("ulimit -v"), "{said}");
    assert!(!said.contains("IBEX_TRACE_EVENTS"), "fewer events would not help: {said}");
    let reader = only(&traced);
    assert_eq!(by_thread(&reader), [(2, 1), (50, 63 + 37)].into());
    assert_eq!(reader.counts()[0].lost, 1850);
    let notes = reader.notes();
    assert!(notes.len() == 1 && notes[0].contains("no memory for the events of more threads"), "{notes:?}");
}

#[test]
fn the_trace_has_each_call_that_can_wait_once_whichever_library_wraps_it() {
    let traced = traced("calls");
    assert!(traced.said().contains("wrapped 1"), "{}", traced.said());
    let reader = only(&traced);
    let types = &reader.head().types;
    let calls: Vec<_> = events(&reader)
        .into_iter()
        .filter(|event| types[usize::from(event.event_type)].elements[0].name == "call")
        .collect();
    assert!(calls.is_sorted_by_key(|event| event.time.expect("its clock is known")), "{calls:?}");
    let names = types[4].description.rsplit_once(" in ").expect("a list").1.split(' ').collect::<Vec<_>>();
    let mut found = Vec::new();
    for (number, of) in (0..).zip(calls.chunks(2)) {
        let told = of
            .iter()
            .map(|event| (types[usize::from(event.event_type)].name.as_str(), event.values[0], event.values[1]));
        let call = of[0].values[0];
        assert!(told.eq([("mpi_call_begin", call, number), ("mpi_call_end", call, number)]), "{of:?}");
        found.push(names[call as usize]);
    }
    let fortran_and_c = ["MPI_Barrier", "MPI_Barrier"];
    let once = ["MPI_Ssend", "MPI_Wait", "MPI_Comm_dup", "MPI_Comm_free"];
    assert_eq!(found, [&fortran_and_c[..], &once].concat());
    assert!(reader.counts().iter().all(|of| of.lost == 0));
}

#[test]
fn a_program_stops_the_recording_and_resumes_it_and_the_trace_says_where() {
    let traced = traced("control");
    assert!(traced.said().contains("levels 00711\n"), "{}", traced.said());
    let reader = only(&traced);
    let types = &reader.head().types;
    let name = |event: &Event| types[usize::from(event.event_type)].name.as_str();
    let names = types[4].description.rsplit_once(" in ").expect("a list").1.split(' ').collect::<Vec<_>>();
    let events = events(&reader);
    assert!(events.is_sorted_by_key(|event| event.time.expect("its clock is known")), "{events:?}");
    let told = |event: &Event| match name(event) {
        "mpi_call_begin" => format!("begin {}", names[event.values[0] as usize]),
        "mpi_call_end" => format!("end {}", names[event.values[0] as usize]),
        name => format!("{name} {}", event.values[0]),
    };
    let told: Vec<String> = events.iter().map(told).collect();
    let wanted = [
        "ibex_get_started 1",
        "begin MPI_Comm_dup",
        "mpi_pcontrol 0",
        "end MPI_Comm_dup",
        "ibex_communicator_freed 3",
        "mpi_pcontrol 1",
        "ibex_get_started 4",
        "begin MPI_Barrier",
        "end MPI_Barrier",
        "begin MPI_Comm_free",
        "end MPI_Comm_free",
        "ibex_late 0",
    ];
    assert_eq!(told, wanted, "the ends of begun calls are recorded, and all events of communicators");
    assert!(reader.counts().iter().all(|of| of.lost == 0));
}

#[test]
fn a_program_can_have_waiting_events_written() {
    let traced = traced("flush");
    assert!(traced.said().contains("missing 0\n"), "{}", traced.said());
    assert_eq!(events(&only(&traced)).len(), 201);
}

#[test]
fn a_process_that_is_forked_off_writes_nothing_and_one_that_exits_or_aborts_has_its_trace() {
    for (what, count) in [("fork", 2), ("exit", 1), ("abort", 1)] {
        let traced = traced(what);
        let reader = only(&traced);
        assert_eq!((events(&reader).len(), reader.is_finished()), (count, true), "{what}: {}", traced.said());
    }
}

#[test]
fn a_killed_process_leaves_the_events_up_to_a_moment_before() {
    let traced = traced("killed");
    let reader = only(&traced);
    let events: Vec<_> = reader.events().collect();
    assert!(matches!(events[..], [Ok(_), Err(Error::Unfinished { .. })]), "{events:?}");
    assert!(events[0].as_ref().is_ok_and(|event| event.time.is_some()), "its clock was written before it");
}

#[test]
fn a_callback_allocates_nothing() {
    let traced = traced("allocations");
    let said = traced.said();
    assert!(said.starts_with("allocated 0 of ") && !said.contains("of 0\n"), "{said}");
    assert_eq!(events(&only(&traced)).len(), 1002);
}

#[test]
fn a_process_without_mpi_leaves_no_trace() {
    let traced = traced("no-mpi");
    assert!(traced.output.status.success() && traced.files() == 0, "{}", traced.said());
}

#[test]
fn text_and_trace_have_the_same_events_and_without_names_there_is_no_text() {
    let application = application();
    let both = traced_with(&[&application, "threads"], &[("IBEX_LOG_EVENTS", "get_started,late")]);
    let text = both.log();
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let reader = only(&both);
    let calendar = reader.head().calendar;
    // Each has measured the calendar by itself, so only the events are compared.
    let line = |event: &Event| {
        let (name, operation, value) = told(&reader, event);
        format!("host:0 {name} operation={operation} value={value}")
    };
    let events = events(&reader);
    let mut recorded: Vec<String> = events.iter().map(line).collect();
    recorded.sort();
    lines.sort_unstable_by_key(|line| line.split_once(' ').expect("a time and more").1);
    assert!(recorded.iter().eq(lines.iter().map(|line| line.split_once(' ').expect("a time and more").1)));
    let seconds = |time: i64| (time + calendar) as f64 / 1e9;
    let first = events.iter().filter_map(|event| event.time).min().map(seconds).expect("its clock is known");
    let logged = lines.iter().map(|line| line.split_once(' ').expect("a time and more").0);
    let logged = logged.map(|time| time.parse::<f64>().expect("seconds")).fold(f64::INFINITY, f64::min);
    assert!((first - logged).abs() < 0.001, "{first} {logged}");
    let alone = traced_with(&[&application, "fork"], &[]);
    assert!(!alone.folder.join("log.0").exists(), "nothing was asked of the text");
}

#[test]
fn the_recorder_chooses_events_by_name_and_group_and_reports_unknown_names() {
    let application = application();
    let traced = traced_with(&[&application, "pairs"], &[("IBEX_TRACE_EVENTS", "operations,gone")]);
    let names: Vec<String> = only(&traced).head().types.iter().map(|of| of.name.clone()).collect();
    assert_eq!(names, ["ibex_get_started", "ibex_get_complete", "mpi_pcontrol"], "where it is stopped is always told");
    let said = traced.said();
    assert!(said.contains("there is no event and no group gone; use the groups all, default, messages, "), "{said}");
}

#[test]
fn the_recorder_reports_a_folder_that_it_cannot_make_and_the_application_runs() {
    let environment = [("IBEX_TRACE", "/dev/null/trace")];
    let traced = traced_with(&[&application(), "pairs"], &environment);
    let said = traced.said();
    assert!(traced.output.status.success(), "{said}");
    assert!(said.contains("=/dev/null/trace: Not a directory") && said.contains("nothing is recorded"), "{said}");
}

#[test]
fn a_disk_that_fills_up_ends_the_trace_and_each_event_is_in_it_or_counted() {
    // A file system of 256 KiB that only the process sees; its files are copied out of it.
    let space = ["unshare", "--user", "--map-root-user", "--mount"];
    let script = "mkdir \"$IBEX_TRACE\" && mount -t tmpfs -o size=256k none \"$IBEX_TRACE\"";
    let probe = tempfolder("probe");
    let mounted =
        Command::new(space[0]).args(&space[1..]).args(["sh", "-c", script]).env("IBEX_TRACE", &probe).output();
    let _ = std::fs::remove_dir(&probe);
    if !mounted.is_ok_and(|mounted| mounted.status.success()) {
        skip("a disk that fills up: unshare --user --mount and a tmpfs do not work here");
        return;
    }
    let script = format!(
        "{script} || exit 9; \"$0\" many; status=$?; cp -r \"$IBEX_TRACE\" \"${{IBEX_TRACE}}.copy\"; exit $status"
    );
    let traced = traced_with(&[&space[..], &["sh", "-c", &script, &application()]].concat(), &[]);
    let said = traced.said();
    assert!(traced.output.status.success() && said.contains("went on to the end"), "{said}");
    assert!(said.contains("No space left on device") && said.contains("later events are not recorded"), "{said}");
    let lost = said.split_once(" events lost").expect(&said).0.rsplit(' ').next().expect("a word");
    let folder = Folder::open(&traced.folder.join("t.copy")).expect("a trace");
    let events: Vec<_> = folder.readers()[0].events().collect();
    assert!(events.last().is_some_and(Result::is_err), "it says that it is not whole");
    let recorded = events.iter().filter(|event| event.is_ok()).count();
    assert_eq!(recorded + lost.parse::<usize>().expect("a number"), 200_001, "{said}");
    assert!(recorded > 10_000, "{recorded}");
}

/// Reports a skipped test on the real standard error, because the output of a passed test is not shown.
fn skip(why: &str) {
    let _ = writeln!(std::io::stderr(), "skip {why}");
}

/// Two ranks, the second with its own monotonic clock, and after `before`; `None`: there are no time namespaces here.
fn on_two_clocks(what: &str, before: &str, environment: &[(&str, &str)]) -> Option<Ran> {
    let probe = Command::new("unshare").args(["--time", "--monotonic", "5000", "true"]).output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        skip("ranks on two clocks: unshare --time does not work here");
        return None;
    }
    let application = application();
    let script = format!(
        "export OMPI_COMM_WORLD_LOCAL_SIZE=1; \
         if [ $OMPI_COMM_WORLD_RANK = 1 ]; then {before}; exec unshare --time --monotonic 5000 \"$@\"; fi; exec \"$@\""
    );
    let words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", "--mca", "mpi_yield_when_idle", "1"];
    let words = [&words[..], &["sh", "-c", &script, "sh", &application, what]].concat();
    Some(traced_with(&words, &[environment, &[("IBEX_TRACE_CLOCKS", "1")]].concat()))
}

fn asked(folder: &Folder) -> Vec<usize> {
    let of_rank_0 = |reader: &Reader| reader.samples().iter().filter(|sample| sample.clock == Clock::Rank(0)).count();
    folder.readers().iter().map(of_rank_0).collect()
}

#[test]
fn ranks_with_clocks_of_their_own_are_on_one_time_line() {
    let Some(traced) = on_two_clocks("exchange", "true", &[("IBEX_TRACE_CLOCKS_EVERY", "0")]) else { return };
    assert!(traced.output.status.success(), "{}", traced.said());
    let folder = folder(&traced);
    assert_eq!(asked(&folder), [0, 2], "rank 1 has asked at the start and at the end");
    assert_eq!(folder.error(0), Some(0));
    let bound = folder.error(1).expect("it was measured");
    assert!(bound < 1_000_000_000_000, "{bound} ns, where the clocks differ by 5000 s");
    let mut times = std::collections::BTreeMap::new();
    for (reader, line) in folder.readers().iter().zip(folder.lines()) {
        for event in reader.events().map(|event| event.expect("no fault")) {
            let name = &reader.head().types[usize::from(event.event_type)].name;
            if name.starts_with("ibex_get") {
                let time = line.time(event.time.expect("its clock is known"));
                times.insert((event.values[0], name == "ibex_get_complete"), time);
            }
        }
    }
    assert_eq!(times.len(), 400);
    for reader in folder.readers() {
        let counts = reader.counts();
        assert_eq!(
            counts[4..6].iter().map(|of| of.events).collect::<Vec<_>>(),
            [200; 2],
            "the recorder's own do not count"
        );
    }
    for message in 0..200 {
        let took = times[&(message, true)] - times[&(message, false)];
        assert!(took >= -bound, "message {message} took {took} ns: the bound is {bound}");
        assert!(message == 0 || times[&(message, false)] >= times[&(message - 1, true)], "one rank knows its order");
    }
}

#[test]
fn a_rank_that_never_finalizes_ends_the_job_as_it_does_without_the_recorder() {
    let Some(traced) = on_two_clocks("one-leaves", "true", &[]) else { return };
    assert_eq!(traced.output.status.code(), Some(3), "{}", traced.said());
    assert!(folder(&traced).readers().iter().any(|reader| reader.head().rank == Some(1) && reader.is_finished()));
}

#[test]
fn in_a_long_run_hosts_compare_their_clocks_at_intervals() {
    let Some(traced) = on_two_clocks("exchange-long", "true", &[("IBEX_TRACE_CLOCKS_EVERY", "0.1")]) else { return };
    assert!(traced.output.status.success(), "{}", traced.said());
    let folder = folder(&traced);
    let asked = asked(&folder);
    assert!(asked[0] == 0 && asked[1] > 4, "{asked:?} samples, of which two are of the start and the end");
    assert!(folder.readers().iter().all(|reader| reader.notes().is_empty()));
    let samples: Vec<_> = folder.readers()[1].samples().iter().filter(|of| of.clock == Clock::Rank(0)).collect();
    assert!(samples.windows(2).all(|two| two[0].before < two[1].before && two[0].shown < two[1].shown), "{samples:?}");
    let ahead = |shown: u64, own: i64| own - shown.cast_signed();
    for sample in samples {
        let half = (sample.after - sample.before) / 2;
        let off = ahead(sample.shown, sample.before + half) - 5_000_000_000_000;
        assert!(off.abs() <= half + 1, "{sample:?}: the clocks differ by 5000 s, and go alike");
    }
}

#[test]
fn a_note_in_the_trace_says_that_no_datagram_passes_between_hosts() {
    let environment = [("IBEX_TRACE_CLOCKS_EVERY", "0.1"), ("APPLICATION_FILTERS", "1")];
    let Some(traced) = on_two_clocks("exchange-long", "true", &environment) else { return };
    let said = traced.said();
    assert!(traced.output.status.success(), "{said}");
    let folder = folder(&traced);
    assert_eq!(asked(&folder), [0, 2], "at the start and at the end");
    let notes = folder.readers()[1].notes();
    assert!(notes.len() == 1 && notes[0].contains("only at the start and at the end: no answer by UDP"), "{notes:?}");
}

#[test]
fn no_rank_waits_for_one_that_cannot_record() {
    for before in ["export IBEX_TRACE=/dev/null/t", "ulimit -v 1000000"] {
        let Some(traced) = on_two_clocks("exchange", before, &[]) else { return };
        let said = traced.said();
        assert!(traced.output.status.success() && said.contains("nothing is recorded"), "{before}: {said}");
        let only = only(&traced);
        assert!(only.head().rank == Some(0) && only.is_finished(), "{before}: {said}");
    }
}
