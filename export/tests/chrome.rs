// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trace events in JSON, read by a parser of JSON and held against the rules of the format.

mod scratch;

use std::collections::{HashMap, HashSet};

use ibex_export::{Format, export};
use ibex_messages::Job;
use scratch::Scratch;
use serde_json::Value;

/// Nanoseconds of a field that has microseconds with three decimals.
fn nanoseconds(event: &Value, key: &str) -> i64 {
    (event[key].as_f64().expect("a time") * 1000.0).round() as i64
}

fn events(job: &Job, test: &str) -> Vec<Value> {
    let scratch = Scratch::new(test);
    let out = scratch.path("job.json");
    export(job, Format::Chrome, &out).expect("written");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(&out).expect("a file")).expect("JSON");
    file["traceEvents"].as_array().expect("a list").clone()
}

fn of_kind<'e>(events: &'e [Value], kind: &str) -> Vec<&'e Value> {
    events.iter().filter(|event| event["ph"] == kind).collect()
}

#[test]
fn each_phase_is_an_event_that_overlaps_no_other_of_its_thread() {
    let mut job = Job::synthetic(3, 1500, 8);
    job.ranks[0].host = "quoted \"host\"\\".to_owned();
    let events = events(&job, "chrome-phases");
    let phases = of_kind(&events, "X");
    let expected: usize = job.messages.iter().map(|message| message.moments().count() - 2).sum();
    assert_eq!(phases.len(), expected);

    let mut busy: HashMap<(i64, i64), i64> = HashMap::new();
    for event in &phases {
        let thread = (event["pid"].as_i64().expect("pid"), event["tid"].as_i64().expect("tid"));
        let begin = nanoseconds(event, "ts");
        let until = busy.entry(thread).or_insert(0);
        assert!(begin >= *until, "{event} begins before the one before it ends");
        *until = begin + nanoseconds(event, "dur");
    }
    let named: HashSet<(i64, i64)> = of_kind(&events, "M")
        .iter()
        .filter(|event| event["name"] == "thread_name")
        .map(|event| (event["pid"].as_i64().expect("pid"), event["tid"].as_i64().expect("tid")))
        .collect();
    assert!(busy.keys().all(|thread| named.contains(thread)));
    let bytes: u64 =
        phases.iter().filter(|e| e["name"] == "send waits").filter_map(|e| e["args"]["bytes"].as_u64()).sum();
    assert_eq!(bytes, job.messages.iter().map(|message| message.bytes).sum::<u64>());
}

#[test]
fn each_message_has_a_flow_from_its_sender_to_its_receiver() {
    let job = Job::synthetic(4, 800, 3);
    let events = events(&job, "chrome-flows");
    let ends: HashMap<u64, &Value> =
        of_kind(&events, "f").into_iter().map(|event| (event["id"].as_u64().expect("id"), event)).collect();
    let begins = of_kind(&events, "s");
    assert_eq!((begins.len(), ends.len()), (800, 800));
    for begin in begins {
        let id = begin["id"].as_u64().expect("id");
        let message = &job.messages[id as usize];
        assert_eq!(begin["pid"], message.sender);
        assert_eq!(ends[&id]["pid"], message.receiver);
        let delay = nanoseconds(ends[&id], "ts") - nanoseconds(begin, "ts");
        assert_eq!(Some(delay), message.delay());
    }
    assert!(!of_kind(&events, "C").is_empty());
}
