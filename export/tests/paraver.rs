// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paraver traces, checked by rules of the format independently of the writer, and read by the parser of Paraver's own
//! kernel (`readers/read_paraver.cpp`), which does not check the order of times or overlaps of states.

mod readers;
mod scratch;

use std::collections::{HashMap, HashSet};
use std::path::Path;

use ibex_export::{Format, export};
use ibex_messages::{Call, Fragment, Incident, IncidentKind, Job, Pause, Queue, ReceiveSide, Search, Time};
use scratch::Scratch;

/// Counts of a trace that keeps the rules.
#[derive(Default)]
struct Found {
    states: usize,
    /// Number of states of threads, without those of lanes.
    of_threads: usize,
    events: HashMap<u64, usize>,
    communications: usize,
    bytes: u64,
    tags: i64,
    in_states: u64,
}

struct Header {
    end: u64,
    nodes: u64,
    processors: u64,
    node_of: Vec<u64>,
    nodes_of_tasks: Vec<u64>,
    tasks: Vec<u64>,
    communicators: usize,
}

fn numbers(text: &str) -> Vec<u64> {
    text.split(':').map(|field| field.parse().unwrap_or_else(|_| panic!("{field:?} in {text:?}"))).collect()
}

fn header(line: &str) -> Header {
    let rest = line.strip_prefix("#Paraver (").expect("the header's begin");
    let (date, rest) = rest.split_once("):").expect("the date's end");
    let digits = |text: &str| text.len() == 2 && text.chars().all(|letter| letter.is_ascii_digit());
    let (day, time) = date.split_once(" at ").expect("a day and a time");
    assert!(day.split('/').all(digits) && time.split(':').all(digits), "{date}");
    let (end, rest) = rest.split_once("_ns:").expect("the last time and its unit");
    let (nodes, rest) = rest.split_once("):").expect("nodes");
    let (count, processors) = nodes.split_once('(').expect("their processors");
    let processors: Vec<u64> = processors.split(',').map(|number| number.parse().expect("a number")).collect();
    assert_eq!(count.parse(), Ok(processors.len()));
    let (tasks, communicators) = rest.rsplit_once(',').expect("how many communicators");
    let (application, tasks) = tasks.strip_suffix(')').and_then(|text| text.split_once('(')).expect("tasks");
    let tasks: Vec<Vec<u64>> = tasks.split(',').map(numbers).collect();
    assert_eq!(application, format!("1:{}", tasks.len()), "one application");
    assert!(tasks.iter().all(|task| task[1] >= 1 && task[1] <= processors.len() as u64), "nodes in range");
    assert!(tasks.iter().map(|task| task[0]).sum::<u64>() <= 65_535, "Paraver numbers threads by 16 bits");
    Header {
        end: end.parse().expect("a time"),
        nodes: processors.len() as u64,
        processors: processors.iter().sum(),
        node_of: (1..).zip(&processors).flat_map(|(node, count)| (0..*count).map(move |_| node)).collect(),
        nodes_of_tasks: tasks.iter().map(|task| task[1]).collect(),
        tasks: tasks.iter().map(|task| task[0]).collect(),
        communicators: communicators.parse().expect("a number"),
    }
}

impl Header {
    fn check_object(&self, object: &[u64]) {
        assert!(object[0] >= 1 && object[0] <= self.processors, "processor of {object:?}");
        assert_eq!(object[1], 1, "application");
        assert!(object[2] >= 1 && object[2] <= self.tasks.len() as u64, "task of {object:?}");
        assert!(object[3] >= 1 && object[3] <= self.tasks[object[2] as usize - 1], "thread of {object:?}");
        let (processor, task) = (object[0] as usize - 1, object[2] as usize - 1);
        assert_eq!(self.node_of[processor], self.nodes_of_tasks[task], "the processor's and the task's node");
    }
}

/// Checks a `.prv` against the rules, and that its `.pcf` and `.row` name its objects.
fn check(folder: &Path, name: &str) -> Found {
    let read = |extension: &str| std::fs::read_to_string(folder.join(format!("{name}.{extension}"))).expect("a file");
    let (records, labels, rows) = (read("prv"), read("pcf"), read("row"));
    let mut lines = records.lines();
    let header = header(lines.next().expect("a header"));
    for number in 1..=header.communicators as u64 {
        let line = numbers(lines.next().and_then(|line| line.strip_prefix("c:")).expect("a communicator"));
        assert_eq!((line[0], line[1], line[2]), (1, number, line.len() as u64 - 3), "{line:?}");
    }
    let mut found = Found::default();
    let (mut before, mut states, mut kinds) = (0, HashSet::new(), HashSet::new());
    let mut busy: HashMap<Vec<u64>, u64> = HashMap::new();
    for line in lines {
        let (line, tag) = match line.strip_prefix("3:").and_then(|_| line.rsplit_once(':')) {
            Some((before, tag)) => (before, tag.parse().expect("a tag")),
            None => (line, 0),
        };
        let record = numbers(line);
        header.check_object(&record[1..5]);
        let time = record[5];
        assert!(time >= before && time <= header.end, "time of {line}");
        before = time;
        match record[0] {
            1 => {
                assert_eq!(record.len(), 8, "{line}");
                assert!(record[6] >= time && record[6] <= header.end, "end of {line}");
                let until = busy.entry(record[1..5].to_vec()).or_insert(0);
                assert!(time >= *until, "{line} begins before the state before it ends");
                *until = record[6];
                states.insert(record[7]);
                found.states += 1;
                found.of_threads += usize::from(record[7] < 20);
                found.in_states += record[6] - time;
            }
            2 => {
                assert!(record.len() >= 8 && record.len().is_multiple_of(2), "{line}");
                for pair in record[6..].chunks(2) {
                    kinds.insert(pair[0]);
                    *found.events.entry(pair[0]).or_default() += 1;
                }
            }
            3 => {
                assert_eq!(record.len(), 14, "{line}");
                header.check_object(&record[7..11]);
                let times = [time, record[6], record[12], record[11]];
                assert!(times.is_sorted() && times[3] <= header.end, "times of {line}");
                found.communications += 1;
                found.bytes += record[13];
                found.tags += tag;
            }
            _ => panic!("a record of no kind: {line}"),
        }
    }
    let first_words: HashSet<&str> = labels.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(states.iter().all(|state| first_words.contains(state.to_string().as_str())), "states have names");
    let second_words: HashSet<&str> = labels.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert!(kinds.iter().all(|kind| second_words.contains(kind.to_string().as_str())), "events have names");
    check_rows(&rows, &header);
    compare_with_paraver(&folder.join(format!("{name}.prv")), &header, &found);
    found
}

fn compare_with_paraver(records: &Path, header: &Header, found: &Found) {
    let Some(lines) = readers::paraver(records) else { return };
    let of =
        |name: &str| -> Vec<&[String]> { lines.iter().filter(|line| line[0] == name).map(|line| &line[1..]).collect() };
    let (tasks, threads) = (header.tasks.len() as u64, header.tasks.iter().sum());
    let sizes = [1, header.end, header.nodes, header.processors, tasks, threads];
    let sizes = sizes.into_iter().chain([header.communicators as u64]).map(|number| number.to_string());
    assert_eq!(of("header"), [sizes.collect::<Vec<_>>()], "nanoseconds, the last of them, and the objects");
    assert_eq!(of("states"), [[found.states, found.in_states as usize].map(|number| number.to_string())]);
    let communications = [found.communications.to_string(), found.bytes.to_string(), found.tags.to_string()];
    assert_eq!(of("communications"), [communications]);
    let events: HashMap<u64, usize> = of("events")
        .iter()
        .map(|line| (line[0].parse().expect("a type"), line[1].parse().expect("how many")))
        .collect();
    assert_eq!(events, found.events);
    assert_eq!(of("labels")[0][2], "NANOSEC");
    let named = [("CPU", header.processors), ("NODE", header.nodes), ("TASK", tasks), ("THREAD", threads)];
    let named = named.map(|(level, count)| [level.to_owned(), count.to_string(), "0".to_owned()]);
    assert_eq!(of("rows"), named, "each object has a name, and no name is left over");
}

fn check_rows(rows: &str, header: &Header) {
    let mut sizes = HashMap::new();
    for block in rows.split("\n\n").filter(|block| !block.trim().is_empty()) {
        let mut lines = block.lines();
        let words: Vec<&str> = lines.next().expect("a level").split_whitespace().collect();
        assert_eq!((words[0], words[2]), ("LEVEL", "SIZE"));
        assert_eq!(words[3].parse(), Ok(lines.count()), "{words:?}");
        sizes.insert(words[1].to_owned(), words[3].parse::<u64>().expect("a number"));
    }
    assert_eq!(sizes["CPU"], header.processors);
    assert_eq!((sizes["NODE"], sizes["TASK"]), (header.nodes, header.tasks.len() as u64));
    assert_eq!(sizes["THREAD"], header.tasks.iter().sum::<u64>());
}

/// Returns the number of a message's moments that are events of PERUSE: an announcement is none.
fn of_peruse(message: &ibex_messages::Message) -> usize {
    message.moments().count() - message.send.iter().filter_map(|side| side.announced).count()
}

/// Writes a job, and checks its trace.
fn written(name: &str, job: &Job) -> (Scratch, Found) {
    let scratch = Scratch::new(name);
    export(job, Format::Paraver, &scratch.path("job")).expect("written");
    let found = check(&scratch.path(""), "job");
    (scratch, found)
}

#[test]
fn a_trace_keeps_the_rules_and_has_every_message() {
    let mut job = Job::synthetic(5, 4000, 13);
    let (rank, time) = (2, job.messages[1000].moments().min().expect("a moment"));
    let kind = IncidentKind::ReceiverNotReady;
    job.incidents.push(Incident { rank, time, kind, peer: Some(1), port: Some(2), value: 3 });
    let scratch = Scratch::new("paraver");
    export(&job, Format::Paraver, &scratch.path("job.prv")).expect("written");
    let found = check(&scratch.path(""), "job");
    assert_eq!(found.communications, 4000);
    assert_eq!(found.bytes, job.messages.iter().map(|message| message.bytes).sum::<u64>());
    let phases = job.messages.iter().map(|message| message.moments().count() - 2).sum::<usize>();
    assert_eq!(found.states - found.of_threads, phases);
    assert_eq!(found.events[&50_000_001], 2 * job.calls.len(), "each call begins and ends");
    let moments = job.messages.iter().map(of_peruse).sum::<usize>();
    assert_eq!(found.events[&77_000_201] + found.events[&77_000_202], moments, "each is an event of PERUSE");
    assert_eq!(found.events[&77_000_203], moments);
    assert_eq!(found.events[&77_000_001], 4000, "the protocol of each");
    assert_eq!(found.events[&77_000_002], 1);
}

/// Makes a job with calls in two threads of rank 0 and one of rank 1.
fn with_calls() -> Job {
    let mut job = Job::synthetic(2, 100, 8);
    let first = job.span.expect("made").0.nanoseconds();
    let at = |time: i64| Time::new(first + time);
    job.ranks[0].threads = vec![0, 4];
    job.functions = ["MPI_Recv", "MPI_Barrier", "MPI_Win_flush", "MPI_Waitall"].map(str::to_owned).to_vec();
    let call = |rank, thread, function, begun, ended: Option<i64>| Call {
        thread,
        ..Call::made(rank, function, at(begun), ended.map(at))
    };
    job.calls = vec![
        call(0, 0, 0, 1000, Some(5000)),
        call(0, 4, 1, 2000, Some(2500)),
        call(0, 0, 1, 5000, Some(7000)),
        call(0, 4, 3, 3000, Some(3100)),
        call(0, 0, 2, 7500, Some(7500)),
        call(1, 0, 2, 2000, None),
    ];
    let search = Search::made(0, at(1100), at(1200));
    job.searches = vec![Search { queue: Queue::Unexpected, peer: 1, tag: 2, ..search }];
    job.pauses = vec![Pause { rank: 0, from: at(6500), to: Some(at(9000)) }];
    job
}

#[test]
fn calls_are_states_of_their_threads_and_events_as_extrae_writes_them() {
    let job = with_calls();
    let (scratch, found) = written("paraver-calls", &job);
    let text = std::fs::read_to_string(scratch.path("job.prv")).expect("a file");
    let last = job.span.expect("made").1.nanoseconds() - job.span.expect("made").0.nanoseconds();
    let is_of_call = |line: &&str| {
        let words: Vec<&str> = line.split(':').collect();
        let kind = words[6].parse::<u32>().unwrap_or(0);
        (words[0] == "1" && words[7].parse::<u32>().is_ok_and(|state| state < 20))
            || (words[0] == "2" && (kind / 1_000_000 == 50 || kind == 77_000_004))
    };
    let records: Vec<&str> = text.lines().skip(2).filter(is_of_call).collect();
    // Processor, application, task and thread; then time, or begin and end; then the value.
    let wanted = [
        "1:1:1:1:1:0:1000:1".to_owned(),
        "1:2:1:2:1:0:2000:1".to_owned(),
        "1:1:1:1:1:1000:5000:3".to_owned(),
        "2:1:1:1:1:1000:50000001:2".to_owned(),
        "2:1:1:1:1:1100:77000004:2".to_owned(),
        "2:1:1:1:1:1200:77000004:0".to_owned(),
        "1:1:1:1:2:2000:2500:5".to_owned(),
        format!("1:2:1:2:1:2000:{last}:15"),
        "2:1:1:1:2:2000:50000002:8".to_owned(),
        "2:2:1:2:1:2000:50000004:1002".to_owned(),
        "1:1:1:1:2:2500:3000:1".to_owned(),
        "2:1:1:1:2:2500:50000002:0".to_owned(),
        "1:1:1:1:2:3000:3100:8".to_owned(),
        "2:1:1:1:2:3000:50000001:6".to_owned(),
        "1:1:1:1:2:3100:6500:1".to_owned(),
        "2:1:1:1:2:3100:50000001:0".to_owned(),
        "1:1:1:1:1:5000:7000:5".to_owned(),
        "2:1:1:1:1:5000:50000001:0".to_owned(),
        "2:1:1:1:1:5000:50000002:8".to_owned(),
        "1:1:1:1:2:6500:9000:14".to_owned(),
        "1:1:1:1:1:7000:9000:14".to_owned(),
        "2:1:1:1:1:7000:50000002:0".to_owned(),
        format!("2:2:1:2:1:{last}:50000004:0"),
    ];
    assert_eq!(records, wanted);
    assert_eq!(found.of_threads, 11);
    let labels = std::fs::read_to_string(scratch.path("job.pcf")).expect("a file");
    for line in [
        "1    Running",
        "14    Tracing Disabled",
        "8      MPI_Barrier",
        "1002      MPI_Win_flush",
        "0      Outside MPI",
    ] {
        assert!(labels.lines().any(|label| label == line), "{line}: {labels}");
    }
}

#[test]
fn a_message_has_its_events_of_peruse_as_flags_and_each_fragment_one() {
    let mut job = Job::synthetic(2, 50, 3);
    let is_unexpected =
        |message: &ibex_messages::Message| message.receive.is_some_and(|side| side.unexpected.is_some());
    let places = [true, false].map(|of| job.messages.iter().position(|message| is_unexpected(message) == of));
    let [unexpected, expected] = places.map(|place| place.expect("made"));
    let side = job.messages[expected].receive.expect("made");
    let (begun, ended) = (side.begun.expect("made").nanoseconds(), side.ended.expect("made").nanoseconds());
    let times = [1, 2, 3].map(|part| begun + (ended - begun) * part / 4);
    for time in times {
        let (rank, message, time) = (job.messages[expected].receiver, expected as u32, Time::new(time));
        job.fragments.push(Fragment::made(rank, message, time));
    }
    let after = |time: Option<Time>| time.map(|time| Time::new(time.nanoseconds() + 1));
    for message in [unexpected, expected] {
        let message = &mut job.messages[message];
        let (send, side) = (message.send.as_mut().expect("made"), message.receive.as_mut().expect("made"));
        (send.freed, side.freed) = (after(send.notified), after(side.notified));
        side.removed = side.matched.filter(|_| side.posted.is_some());
        side.taken = side.matched.filter(|_| side.posted.is_none());
        let search = |queue, begun, ended: Option<Time>| {
            let search = Search::made(message.receiver, after(begun).expect("made"), ended.expect("made"));
            Search { queue, message: Some(unexpected as u32), ..search }
        };
        if side.taken.is_some() {
            job.searches.push(search(Queue::Posted, side.arrived, side.unexpected));
            job.searches.push(search(Queue::Unexpected, side.activated, side.matched));
        } else {
            job.cancelled.push((message.receiver, ReceiveSide { cancelled: side.removed, ..*side }));
        }
    }
    let (scratch, found) = written("paraver-flags", &job);
    assert_eq!(found.events[&77_000_203], job.messages.iter().map(of_peruse).sum::<usize>() + 3 + 10);
    let text = std::fs::read_to_string(scratch.path("job.prv")).expect("a file");
    let first = job.span.expect("made").0.nanoseconds();
    // Type, value and time of each flag of a message.
    let flags = |place: usize| -> Vec<(u32, u32, i64)> {
        let lines = text.lines().filter_map(|line| line.strip_suffix(&format!(":77000203:{}", place + 1)));
        let flag = |line: &str| {
            let words: Vec<i64> = line.split(':').map(|word| word.parse().expect("a number")).collect();
            let message = &job.messages[place];
            let rank = if words[6] == 77_000_201 { message.sender } else { message.receiver };
            assert_eq!(words[..5], [2, i64::from(rank) + 1, 1, i64::from(rank) + 1, 1], "{line}");
            (words[6] as u32 - 77_000_200, words[7] as u32, words[5] + first)
        };
        lines.map(flag).collect()
    };
    let of = |flags: &[(u32, u32, i64)], side: u32| -> Vec<u32> {
        flags.iter().filter(|flag| flag.0 == side).map(|flag| flag.1).collect()
    };
    let (early, late) = (flags(unexpected), flags(expected));
    for flags in [&early, &late] {
        assert_eq!(of(flags, 1), [1, 5, 6, 7, 8, 19], "activate, xfer begin and end, complete, notify, free");
    }
    let wanted = [9, 13, 14, 10, 1, 15, 16, 11, 2, 5, 6, 7, 8, 19];
    assert_eq!(of(&early, 2), wanted, "arrived, search, unexpected, activate, search, removed, match");
    let wanted = [1, 3, 9, 4, 12, 5, 17, 17, 17, 6, 7, 8, 19];
    assert_eq!(of(&late, 2), wanted, "activate, posted, arrived, removed, match; fragments");
    let gone = text.lines().filter_map(|line| line.rsplit_once(":77000202:")).map(|(_, rest)| rest);
    let gone: Vec<&str> = gone.filter(|rest| !rest.contains(':')).collect();
    assert_eq!(gone, ["1", "3", "4", "18", "7", "8", "19"], "of the cancelled receive, which has no message");
    let continued: Vec<i64> = late.iter().filter(|flag| flag.1 == 17).map(|flag| flag.2).collect();
    assert_eq!(continued, times, "so the interval between two is seen");
}

#[test]
fn times_of_disagreeing_clocks_still_keep_the_rules() {
    let mut job = Job::synthetic(2, 300, 1);
    for message in &mut job.messages {
        let side = message.receive.as_mut().expect("made");
        for time in [&mut side.arrived, &mut side.matched, &mut side.begun, &mut side.ended] {
            *time = time.map(|time| ibex_messages::Time::new(time.nanoseconds() - 100_000));
        }
        (side.completed, side.notified) = (side.ended, side.ended);
    }
    job.span = None;
    assert_eq!(written("paraver-clocks", &job).1.communications, 300);
}

#[test]
fn a_name_of_several_lines_is_one_line() {
    let mut job = Job::synthetic(2, 50, 3);
    for (rank, name) in job.ranks.iter_mut().zip(["first\n\nsecond", "LEVEL TASK SIZE 9"]) {
        rank.host = name.to_owned();
    }
    assert_eq!(written("paraver-names", &job).1.communications, 50);
}

#[test]
fn there_are_no_more_threads_than_paraver_can_number() {
    let mut job = Job::synthetic(2, 2000, 7);
    // With two lanes for each thread there would be 66 000.
    let (begin, hold) = (job.messages[0].moments().min().expect("made"), 1_000_000_000);
    job.ranks[0].threads = (0..65_500).collect();
    for message in &mut job.messages {
        let end = Some(ibex_messages::Time::new(begin.nanoseconds() + hold));
        if let Some(send) = &mut message.send {
            (send.ended, send.completed, send.notified) = (end, end, end);
        }
    }
    job.span = None;
    let (_, found) = written("paraver-threads", &job);
    assert_eq!(found.communications, 2000);
    assert!(found.states > 0);
}
