// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paraver traces, held against the rules of the format by a checker that knows nothing of how they are written.

mod scratch;

use std::collections::{HashMap, HashSet};
use std::path::Path;

use ibex_export::{Format, export};
use ibex_messages::{Incident, IncidentKind, Job};
use scratch::Scratch;

/// What the checker found in a trace that keeps the rules.
#[derive(Default)]
struct Found {
    states: usize,
    events: HashMap<u64, usize>,
    communications: usize,
    bytes: u64,
}

/// What a header says.
struct Header {
    end: u64,
    processors: u64,
    /// Threads of each task.
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
    Header {
        end: end.parse().expect("a time"),
        processors: processors.iter().sum(),
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
    }
}

/// Checks a `.prv` against the rules, and that its `.pcf` and `.row` name what it has.
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
        // Tags of collective operations are negative.
        let (line, _) = line.split_once(":-").map_or((line, ""), |(before, _)| (before, ""));
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
            }
            2 => {
                assert!(record.len() >= 8 && record.len().is_multiple_of(2), "{line}");
                for pair in record[6..].chunks(2) {
                    kinds.insert(pair[0]);
                    *found.events.entry(pair[0]).or_default() += 1;
                }
            }
            3 => {
                header.check_object(&record[7..11]);
                let times = [time, record[6], record[12], record[11]];
                assert!(times.is_sorted() && times[3] <= header.end, "times of {line}");
                found.communications += 1;
                found.bytes += record[13];
            }
            _ => panic!("a record of no kind: {line}"),
        }
    }
    let first_words: HashSet<&str> = labels.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(states.iter().all(|state| first_words.contains(state.to_string().as_str())), "states have names");
    let second_words: HashSet<&str> = labels.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert!(kinds.iter().all(|kind| second_words.contains(kind.to_string().as_str())), "events have names");
    check_rows(&rows, &header);
    found
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
    assert_eq!(sizes["THREAD"], header.tasks.iter().sum::<u64>());
}

#[test]
fn a_trace_keeps_the_rules_and_has_every_message() {
    let scratch = Scratch::new("paraver");
    let mut job = Job::made(5, 4000, 13);
    let (rank, time) = (2, job.messages[1000].moments().min().expect("a moment"));
    let kind = IncidentKind::ReceiverNotReady;
    job.incidents.push(Incident { rank, time, kind, peer: Some(1), port: Some(2), value: 3 });
    export(&job, Format::Paraver, &scratch.path("job.prv")).expect("written");
    let found = check(&scratch.path(""), "job");
    assert_eq!(found.communications, 4000);
    assert_eq!(found.bytes, job.messages.iter().map(|message| message.bytes).sum::<u64>());
    assert_eq!(found.states, job.messages.iter().map(|message| message.moments().count() - 2).sum::<usize>());
    assert_eq!(found.events[&77_000_001], 4000, "the protocol of each");
    assert_eq!(found.events[&77_000_002], 1);
}

#[test]
fn what_clocks_disagree_about_still_keeps_the_rules() {
    let scratch = Scratch::new("paraver-clocks");
    let mut job = Job::made(2, 300, 1);
    for message in &mut job.messages {
        let side = message.receive.as_mut().expect("made");
        for time in [&mut side.arrived, &mut side.matched, &mut side.begun, &mut side.ended] {
            *time = time.map(|time| ibex_messages::Time::new(time.nanoseconds() - 100_000));
        }
        (side.completed, side.notified) = (side.ended, side.ended);
    }
    job.span = None;
    export(&job, Format::Paraver, &scratch.path("job")).expect("written");
    assert_eq!(check(&scratch.path(""), "job").communications, 300);
}
