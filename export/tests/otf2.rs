// SPDX-License-Identifier: MIT OR Apache-2.0
//! OTF2 archives, read by the programs of the OTF2 project (Debian: otf2-tools, python3-otf2): `otf2-print` validates
//! an archive and prints its records, which are counted and compared with the job; the Python module follows them as an
//! analysis does; `otf2-snapshots` finds the open regions, and writes them into the archive; `otf2-estimator` computes
//! the largest size of records, to compare with the files. `otf2-marker` reads only records that ibex does not write.

mod readers;
mod scratch;

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ibex_export::{Format, export};
use ibex_messages::{Call, Communicator, Job, Pause, Queue, Search, Time};
use scratch::Scratch;

fn printed(archive: &Path, arguments: &[&str]) -> String {
    let output = Command::new("otf2-print")
        .args(arguments)
        .arg(archive.join("traces.otf2"))
        .output()
        .expect("otf2-print starts (apt-get install otf2-tools)");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "otf2-print: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the number of records of each kind, and their bytes if they have a length.
fn records(text: &str) -> HashMap<&str, (usize, u64)> {
    let mut records = HashMap::new();
    for line in text.lines() {
        let Some(name) = line.split_whitespace().next() else { continue };
        let bytes = line.split("Length: ").nth(1).and_then(|rest| rest.split(',').next()?.trim().parse().ok());
        let record: &mut (usize, u64) = records.entry(name).or_default();
        record.0 += 1;
        record.1 += bytes.unwrap_or(0);
    }
    records
}

fn archive(name: &str, job: &Job) -> (Scratch, PathBuf) {
    let scratch = Scratch::new(name);
    let out = scratch.path("archive");
    export(job, Format::Otf2, &out).expect("written");
    (scratch, out)
}

#[test]
fn otf2_print_counts_the_messages_and_bytes_that_the_job_has() {
    // A location with so many messages exceeds its buffer.
    let job = Job::synthetic(2, 5000, 11);
    let (_scratch, out) = archive("counts", &job);

    let text = printed(&out, &["--warnings-as-errors"]);
    let records = records(&text);
    let bytes: u64 = job.messages.iter().map(|message| message.bytes).sum();
    assert_eq!(records["MPI_ISEND"], (5000, bytes));
    assert_eq!(records["MPI_IRECV"], (5000, bytes));
    assert_eq!(records["MPI_ISEND_COMPLETE"].0, 5000);
    assert_eq!(records["MPI_IRECV_REQUEST"].0, 5000);
    assert_eq!(records["ENTER"].0, records["LEAVE"].0);
    // Each side has one phase less than moments.
    let moments = |message: &ibex_messages::Message| message.moments().count() - 2;
    let phases = job.messages.iter().map(moments).sum::<usize>();
    assert_eq!(records["ENTER"].0, phases + job.calls.len(), "and a call for each side");
    assert!(text.contains("MPI_COMM_WORLD") || text.contains("\"MPI_COMM_WORLD\""));
}

#[test]
fn otf2s_python_module_matches_each_send_with_its_receive() {
    let job = Job::synthetic(5, 2000, 23);
    let (_scratch, out) = archive("module", &job);
    let bytes: u64 = job.messages.iter().map(|message| message.bytes).sum();
    let phases: usize = job.messages.iter().map(|message| message.moments().count() - 2).sum();
    let numbers = [2000, bytes, phases as u64, job.calls.len() as u64].map(|number| number.to_string());
    let [messages, bytes, phases, calls] = &numbers;
    let anchor = out.join("traces.otf2");
    let anchor = anchor.to_str().expect("UTF-8");
    readers::debian_python("read_otf2.py", "otf2", "python3-otf2", &[anchor, messages, bytes, phases, calls]);
}

#[test]
fn calls_are_regions_of_their_threads_with_the_searches_in_them_and_pauses_are_marked() {
    let mut job = Job::synthetic(2, 200, 8);
    let first = job.span.expect("made").0.nanoseconds();
    let at = |time: i64| Time::new(first + time);
    job.functions = ["MPI_Recv", "MPI_Barrier", "MPI_Win_fence"].map(str::to_owned).to_vec();
    let call = |rank, function, begun, ended: Option<i64>| Call::made(rank, function, at(begun), ended.map(at));
    job.calls = vec![
        call(0, 0, 1000, Some(5000)),
        call(0, 1, 5000, Some(7000)),
        call(0, u32::MAX, 7100, Some(7200)),
        call(1, 2, 2000, None),
    ];
    let search = |queue, tag, length, begun, ended| Search {
        queue,
        peer: -1,
        tag,
        length,
        ..Search::made(0, at(begun), at(ended))
    };
    // By its clock, the second search ends after its call.
    job.searches =
        vec![search(Queue::Unexpected, -1, Some(3), 1100, 1900), search(Queue::Posted, -17, None, 4000, 5100)];
    job.pauses =
        vec![Pause { rank: 1, from: at(100), to: Some(at(1500)) }, Pause { rank: 0, from: at(8000), to: None }];
    let (_scratch, out) = archive("calls", &job);
    let text = printed(&out, &["--warnings-as-errors", "--show-all"]);
    let regions: Vec<&str> = text.lines().filter(|line| line.starts_with("REGION ")).collect();
    for (name, role) in [
        ("MPI_Recv", "POINT2POINT"),
        ("MPI_Barrier", "BARRIER"),
        ("MPI_Win_fence", "RMA"),
        ("MPI call", "FUNCTION"),
        ("search posted queue", "ARTIFICIAL"),
    ] {
        let of_name: Vec<_> = regions.iter().filter(|line| line.contains(&format!("\"{name}\""))).collect();
        assert!(of_name.len() == 1 && of_name[0].contains(role) && of_name[0].contains("MPI"), "{name}: {regions:#?}");
    }
    let events = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (kind, location) = (words.next()?, words.next()?.parse::<u32>().ok()?);
        let time = words.next()?.parse::<i64>().ok()?;
        let is_known = matches!(kind, "ENTER" | "LEAVE" | "MEASUREMENT_ON_OFF") && location < 2;
        let what = line.split('"').nth(1).or_else(|| line.split("Mode: ").nth(1)?.split_whitespace().next());
        is_known.then(|| (location, time, kind, what.unwrap_or_default().to_owned()))
    });
    let of = |location: u32| {
        events.clone().filter(move |event| event.0 == location).map(|event| (event.1, event.2, event.3))
    };
    let last = job.span.expect("made").1.nanoseconds() - first;
    let wanted = [
        (1000, "ENTER", "MPI_Recv"),
        (1100, "ENTER", "search unexpected queue"),
        (1900, "LEAVE", "search unexpected queue"),
        (4000, "ENTER", "search posted queue"),
        (5000, "LEAVE", "search posted queue"),
        (5000, "LEAVE", "MPI_Recv"),
        (5000, "ENTER", "MPI_Barrier"),
        (7000, "LEAVE", "MPI_Barrier"),
        (7100, "ENTER", "MPI call"),
        (7200, "LEAVE", "MPI call"),
        (8000, "MEASUREMENT_ON_OFF", "OFF"),
        (last, "MEASUREMENT_ON_OFF", "ON"),
    ];
    assert_eq!(of(0).collect::<Vec<_>>(), wanted.map(|(time, kind, what)| (time, kind, what.to_owned())));
    let wanted = [
        (100, "MEASUREMENT_ON_OFF", "OFF"),
        (1500, "MEASUREMENT_ON_OFF", "ON"),
        (2000, "ENTER", "MPI_Win_fence"),
        (last, "LEAVE", "MPI_Win_fence"),
    ];
    assert_eq!(of(1).collect::<Vec<_>>(), wanted.map(|(time, kind, what)| (time, kind, what.to_owned())));
    for attribute in ["\"ibex peer\"", "\"ibex tag\"", "\"ibex queue length\""] {
        assert!(text.matches(attribute).count() > 1, "{attribute} is defined and used");
    }
}

#[test]
fn otf2_snapshots_finds_the_messages_that_are_open_at_a_moment() {
    let mut job = Job::synthetic(3, 1000, 5);
    // otf2-snapshots rounds the widths of its 4096 columns down to ticks: traces below 17 ms get too many columns.
    job.span = job.span.map(|(first, last)| (first, Time::new(last.nanoseconds() + 20_000_000)));
    let (_scratch, out) = archive("snapshots", &job);
    let output = Command::new("otf2-snapshots")
        .args(["-p", "20000"])
        .arg(out.join("traces.otf2"))
        .output()
        .expect("otf2-snapshots starts (apt-get install otf2-tools)");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "otf2-snapshots: {errors}");

    // otf2-print 3.0 ends with a complaint, because it cannot read the thumbnail of otf2-snapshots 3.0.
    let output =
        Command::new("otf2-print").arg("--show-all").arg(out.join("traces.otf2")).output().expect("started above");
    let text = String::from_utf8(output.stdout).expect("text");
    let records = records(&text);
    let first = job.span.expect("made").0.nanoseconds();
    let columns =
        |line: &str| line.split_whitespace().skip(1).map_while(|word| word.parse().ok()).collect::<Vec<i64>>();
    let starts = text.lines().filter(|line| line.starts_with("SNAPSHOT_START")).map(columns);
    let moments: Vec<i64> = starts.filter(|columns| columns[0] == 0).map(|columns| first + columns[1]).collect();
    assert!(moments.len() > 20, "{moments:?}");
    assert_eq!(records["SNAPSHOT_END"].0, moments.len() * records["LOCATION"].0);
    let open = |begin: Option<Time>, end: Option<Time>| {
        let (begin, end) = (begin.expect("made").nanoseconds(), end.expect("made").nanoseconds());
        moments.iter().filter(|moment| (begin..end).contains(*moment)).count()
    };
    // OTF2's reference manual: a send is open until it is complete and its message received.
    let sides = job.messages.iter().filter_map(|message| message.send.zip(message.receive));
    let sends = sides.map(|(send, receive)| open(send.activated, send.completed.max(receive.completed)));
    let sends: usize = sends.sum();
    assert!(sends > 20, "{sends} are open at {moments:?}");
    assert_eq!(records["MPI_ISEND"].0, 1000 + sends, "in events and in snapshots");
}

#[test]
fn definitions_name_hosts_ranks_and_communicators() {
    let mut job = Job::synthetic(4, 50, 2);
    let both = Communicator { context: 9, members: vec![2, 0], remote: vec![3, 1], ..Communicator::default() };
    job.communicators.push(both);
    let (_scratch, out) = archive("definitions", &job);

    let text = printed(&out, &["--show-global-defs"]);
    let records = records(&text);
    assert_eq!(records["SYSTEM_TREE_NODE"].0, 3, "the job and two hosts");
    assert_eq!(records["LOCATION_GROUP"].0, 4);
    assert!(records["LOCATION"].0 >= 4 + 4 * 2);
    assert_eq!((records["COMM"].0, records["INTER_COMM"].0, records["GROUP"].0), (1, 1, 4));
    for name in ["node1", "rank 3", "rank 0 sends 0", "receive waits", "mlx5_0:1 bytes in flight", "context 9"] {
        assert!(text.contains(&format!("\"{name}\"")), "{name} is not defined");
    }
}

#[test]
fn an_archive_is_as_long_as_its_events_where_nobody_says_how_long_the_job_was() {
    let mut job = Job::synthetic(2, 100, 4);
    let (first, last) = job.span.take().expect("made");
    let (_scratch, out) = archive("length", &job);
    let text = printed(&out, &["--show-global-defs"]);
    let clock = text.lines().find(|line| line.starts_with("CLOCK_PROPERTIES")).expect("a clock");
    let length = last.nanoseconds() - first.nanoseconds();
    assert!(clock.contains(&format!("Length: {length},")), "{length}: {clock}");
}

#[test]
fn messages_that_one_side_saw_are_written_and_none_is_received_that_was_not() {
    let mut job = Job::synthetic(2, 100, 4);
    for message in &mut job.messages[..10] {
        message.receive = None;
    }
    for message in &mut job.messages[10..30] {
        message.send = None;
    }
    for message in &mut job.messages[30..35] {
        let side = message.receive.as_mut().expect("made");
        // No receive has taken it.
        (side.activated, side.posted, side.matched, side.begun, side.ended) = (None, None, None, None, None);
        (side.completed, side.notified) = (None, None);
    }
    let (_scratch, out) = archive("sides", &job);
    let text = printed(&out, &["--warnings-as-errors"]);
    let records = records(&text);
    assert_eq!((records["MPI_ISEND"].0, records["MPI_IRECV"].0), (80, 85));
    assert_eq!(records["MPI_IRECV_REQUEST"].0, 85);
}

#[test]
fn an_archive_is_no_larger_than_otf2_estimates() {
    let job = Job::synthetic(2, 2000, 6);
    let (_scratch, out) = archive("estimate", &job);
    let text = printed(&out, &["--show-all"]);
    let records = records(&text);
    let of = |name: &str| records.get(name).map_or(0, |record| record.0);

    let definitions = [
        ("String", of("STRING")),
        ("Region", of("REGION")),
        ("Metric", of("METRIC_CLASS")),
        ("Location", of("LOCATION")),
    ];
    let list = "get AttributeList STRING STRING STRING UINT32";
    let events = ["Timestamp", "Enter", "Leave", "MpiIsend", "MpiIsendComplete", "MpiIrecvRequest", "MpiIrecv"];
    let mut questions: Vec<String> = definitions.iter().map(|(name, count)| format!("set {name} {count}")).collect();
    questions.extend(events.iter().map(|event| format!("get {event}")));
    questions.extend(["get Metric 1", list, "exit", ""].map(str::to_owned));
    let questions = questions.join("\n");
    let sizes = estimates(&questions);
    assert_eq!(sizes.len(), events.len() + 2, "{sizes:?}");

    let counts = ["ENTER", "LEAVE", "MPI_ISEND", "MPI_ISEND_COMPLETE", "MPI_IRECV_REQUEST", "MPI_IRECV", "METRIC"];
    let size: u64 = counts.iter().zip(&sizes[1..]).map(|(name, size)| (of(name) as u64) * (sizes[0] + size)).sum();
    let lists = (of("MPI_ISEND") + of("MPI_IRECV")) as u64 * sizes[events.len() + 1];
    let files: u64 = std::fs::read_dir(out.join("traces"))
        .expect("a folder of events")
        .flatten()
        .filter(|file| file.path().extension().is_some_and(|extension| extension == "evt"))
        .map(|file| file.metadata().expect("a file").len())
        .sum();
    let heads = of("LOCATION") as u64 * 256;
    assert!(files <= size + lists + heads, "{files} bytes, estimated {size} + {lists} + {heads}");
    assert!(files * 4 >= size, "{files} bytes, estimated {size}");
}

fn estimates(questions: &str) -> Vec<u64> {
    let mut estimator = Command::new("otf2-estimator")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("otf2-estimator starts (apt-get install otf2-tools)");
    let mut input = estimator.stdin.take().expect("piped");
    input.write_all(questions.as_bytes()).expect("it reads");
    drop(input);
    let output = estimator.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    text.lines().filter_map(|line| line.split_whitespace().last()?.parse().ok()).collect()
}
