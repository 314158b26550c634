// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records an application with `ibex trace`, and summarises its trace: the times of its messages, its queues, its
//! waits. Records all events, searches of queues among them. The trace stays, for `ibex view`. Called by [`super`].
//! Grade: setup. Tests: below.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use ibex_messages::{Job as Traced, Message, Protocol, ReceiveSide};
use ibex_trace::{Folder, Reader};
use serde::Serialize;

use super::distribution::Distribution;
use super::planted::{Explained, Waits};
use super::program::{self, Program};
use super::queues::{self, Queue};
use crate::catalogue::Transport;
use crate::nodes::{Job, Nodes, Where, job};
use crate::programs::mpi;

#[derive(Clone, Debug, Serialize)]
pub(super) struct Application {
    pub(super) name: &'static str,
    pub(super) words: String,
    pub(super) ranks: u32,
    pub(super) span_nanoseconds: Option<i64>,
    pub(super) messages: usize,
    pub(super) bytes: u64,
    /// Numbers of recorded and of lost events.
    pub(super) events: u64,
    pub(super) lost: u64,
    pub(super) times: Vec<Times>,
    pub(super) queues: Vec<Queue>,
    pub(super) searches: Vec<Queue>,
    pub(super) waits: Vec<Waits>,
    pub(super) faults: Vec<String>,
}

/// Times of one stage of messages, nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Times {
    pub(super) from: &'static str,
    pub(super) to: &'static str,
    pub(super) of: String,
    pub(super) took: Distribution,
}

const LIMIT: Duration = Duration::from_mins(8);

/// Records a program below the folder of the reports. Returns a summary of the trace, and the result of `ibex explain`.
pub(super) fn recorded(nodes: &dyn Nodes, place: Where, program: &Program) -> Result<(Application, Explained)> {
    let folder = place.reports.join("study").join(program.name);
    program.prepare(&folder)?;
    let trace = folder.join("trace");
    eprintln!("Recording {}", program.name);
    let recorder = program::recorder(place, &trace, true);
    let argv = program.command(place, Transport::Ibex, &folder, &recorder)?;
    let job = mpi::job(place, Transport::Ibex, argv).limit(LIMIT);
    job::run(nodes, &job)?.checked().with_context(|| format!("{} could not be recorded", program.name))?;
    let explain = [&place.command.display().to_string(), "explain", &trace.display().to_string(), "--waits", "--json"];
    let outcome = job::run(nodes, &Job::new(explain))?.checked()?;
    let explained: Explained =
        serde_json::from_str(&outcome.stdout).context("ibex explain says something else than was expected")?;
    let files = Folder::open(&trace)?;
    let traced = Traced::read(&files);
    let counts = || files.readers().iter().flat_map(Reader::counts);
    Ok((
        Application {
            name: program.name,
            words: program.words.clone(),
            ranks: program.ranks,
            span_nanoseconds: explained.span_nanoseconds,
            messages: traced.messages.len(),
            bytes: traced.messages.iter().map(|message| message.bytes).sum(),
            events: counts().map(|of| of.events).sum(),
            lost: counts().map(|of| of.lost).sum(),
            times: times(&traced.messages),
            queues: queues::queues(&traced),
            searches: queues::searches(files.readers()),
            waits: explained.kinds.clone(),
            faults: traced.faults,
        },
        explained,
    ))
}

/// Returns the times of messages at their receivers.
fn times(messages: &[Message]) -> Vec<Times> {
    let sides = || messages.iter().filter_map(|message| Some((message, message.receive?)));
    let arrived = |side: ReceiveSide| Some(side.matched?.since(side.arrived?) as f64);
    let is_unexpected = |side: &ReceiveSide| side.unexpected.is_some();
    let waited = |is: bool| {
        sides().filter(move |(_, side)| is_unexpected(side) == is).filter_map(move |(_, side)| arrived(side))
    };
    let (arrival, matched) = ("arrival", "match");
    let mut found = vec![
        (arrival, matched, "whose receive was posted".to_owned(), waited(false).collect::<Vec<_>>()),
        (arrival, matched, "unexpected".to_owned(), waited(true).collect()),
    ];
    let mut ways: BTreeMap<Option<Protocol>, Vec<f64>> = BTreeMap::new();
    for (message, side) in sides() {
        if let (Some(from), Some(to)) = (side.matched, side.completed) {
            ways.entry(message.protocol).or_default().push(to.since(from) as f64);
        }
    }
    found.extend(ways.into_iter().map(|(way, took)| (matched, "completion", by(way), took)));
    let row = |(from, to, of, took)| Some(Times { from, to, of, took: Distribution::of(took)? });
    found.into_iter().filter_map(row).collect()
}

fn by(way: Option<Protocol>) -> String {
    let word = serde_json::to_value(way).ok().and_then(|value| value.as_str().map(|word| word.replace('_', " ")));
    word.unwrap_or_else(|| "by an unknown way".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_is_matched_once_and_completed_by_its_way() {
        let job = Traced::synthetic(4, 1000, 7);
        let times = times(&job.messages);
        let count = |from: &str| times.iter().filter(|of| of.from == from).map(|of| of.took.count).sum::<usize>();
        assert_eq!((count("arrival"), count("match")), (1000, 1000));
        let unexpected = times.iter().find(|of| of.of == "unexpected").unwrap();
        let expected = times.iter().find(|of| of.of != "unexpected").unwrap();
        assert!(expected.took.greatest < unexpected.took.median, "{times:?}");
        assert!(times.iter().any(|of| of.of == "read") && times.iter().any(|of| of.of == "inline"), "{times:?}");
    }
}
