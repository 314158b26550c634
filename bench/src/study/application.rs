// SPDX-License-Identifier: MIT OR Apache-2.0
//! An application under `ibex trace`, and what its trace says: where the time of its messages goes, its queues, what it
//! waited for.
//!
//! All events are recorded, searches of queues among them. The trace stays, to be looked at with `ibex view`. Grade:
//! setup. Called by [`super`]. Tests: at the end of this file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use ibex_messages::{Job as Traced, Message, Protocol, ReceiveSide};
use ibex_trace::{Folder, Reader};
use serde::Serialize;

use super::distribution::Distribution;
use super::planted::{self, Explained, Planted, Waits};
use super::queues::{self, Queue, Searches};
use crate::catalogue::transport::Transport;
use crate::nodes::hosts::quoted;
use crate::nodes::job::{self, Job, Nodes};
use crate::nodes::place::Where;
use crate::programs::mpi;

/// A program to be recorded.
pub(super) struct Program {
    name: &'static str,
    /// What it is, for a reader.
    words: String,
    ranks: u32,
    argv: Vec<String>,
    /// A file that it reads in its folder, and what is in it.
    input: Option<(&'static str, String)>,
}

/// What its trace says.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Application {
    pub(super) name: &'static str,
    pub(super) words: String,
    pub(super) ranks: u32,
    pub(super) span_nanoseconds: Option<i64>,
    pub(super) messages: usize,
    pub(super) bytes: u64,
    /// Events that were recorded, and such as were lost.
    pub(super) events: u64,
    pub(super) lost: u64,
    pub(super) times: Vec<Times>,
    pub(super) queues: Vec<Queue>,
    pub(super) searches: Vec<Searches>,
    pub(super) waits: Vec<Waits>,
    /// What could not be read.
    pub(super) faults: Vec<String>,
}

/// How long a part of messages' lives takes, nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Times {
    pub(super) from: &'static str,
    pub(super) to: &'static str,
    /// Of which messages.
    pub(super) of: String,
    pub(super) took: Distribution,
}

impl Program {
    /// The HPC Challenge, with matrices of this order.
    pub(super) fn hpcc(order: u32) -> Self {
        let words = format!("the HPC Challenge (Debian's hpcc), matrices of order {order}, one more of {}", order / 2);
        // HPL.dat with two numbers for PTRANS behind it.
        let input = format!(
            "\n\nHPL.out\n8 device\n1 sizes\n{order}\n1 block sizes\n40\n0 mapping\n1 grids\n1 Ps\n2 Qs\n16.0 threshold\n\
             1\n2 PFACTs\n1\n4 NBMINs\n1\n2 NDIVs\n1\n1 RFACTs\n1\n1 BCASTs\n1\n1 DEPTHs\n2 SWAP\n64\n0 L1\n0 U\n\
             1 equilibration\n8 alignment\n-\n1 more for PTRANS\n{}\n1 more block sizes\n24\n",
            order / 2
        );
        Self { name: "hpcc", words, ranks: 2, argv: vec!["hpcc".to_owned()], input: Some(("hpccinf.txt", input)) }
    }

    /// Our own proxy, a grid in strips whose edges are exchanged, with these faults.
    pub(super) fn halo(place: Where, planted: Planted) -> Self {
        let faults = planted.words();
        let words = format!(
            "examples/halo.c, edges of a grid; rank {} has twice the work ({})",
            planted::RANKS / 2,
            faults.join(" ")
        );
        let argv = [place.programs.join("halo").display().to_string()].into_iter().chain(faults).collect();
        Self { name: "halo", words, ranks: planted::RANKS, argv, input: None }
    }

    /// The command that records it in this folder.
    fn command(&self, place: Where, folder: &Path) -> Result<Vec<String>> {
        let trace = folder.join("trace").display().to_string();
        let command = place.command.display().to_string();
        let mut words =
            [command, "trace".into(), "--events".into(), "all".into(), "-o".into(), trace, "--".into()].to_vec();
        words.extend(mpi::mpirun(place, Transport::Ibex)?);
        // It may have fewer processors than ranks.
        words.extend(["--oversubscribe".to_owned(), "-n".to_owned(), self.ranks.to_string()]);
        words.extend(self.argv.iter().cloned());
        let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        let script = format!("cd {} && exec {}", quoted(&folder.display().to_string()), words.join(" "));
        Ok(vec!["sh".to_owned(), "-c".to_owned(), script])
    }
}

/// How long a program may take.
const LIMIT: Duration = Duration::from_mins(8);

/// Records it below the folder of the reports; gives what the trace says, and what `ibex explain` finds.
///
/// # Errors
/// It fails, or leaves no trace that can be read.
pub(super) fn recorded(nodes: &dyn Nodes, place: Where, program: &Program) -> Result<(Application, Explained)> {
    let folder = place.reports.join("study").join(program.name);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    if let Some((name, text)) = &program.input {
        fs::write(folder.join(name), text).with_context(|| format!("cannot write {name}"))?;
    }
    eprintln!("Recording {}", program.name);
    let mut job = Job::new(program.command(place, &folder)?).limit(LIMIT);
    job.env = mpi::environment(place, Transport::Ibex);
    job::run(nodes, &job)?.checked().with_context(|| format!("{} could not be recorded", program.name))?;
    let trace = folder.join("trace");
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

/// Where messages' time goes at their receivers.
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

/// How a message went, in words.
fn by(way: Option<Protocol>) -> String {
    let word = serde_json::to_value(way).ok().and_then(|value| value.as_str().map(|word| word.replace('_', " ")));
    word.unwrap_or_else(|| "by an unknown way".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::place::tests::place;

    #[test]
    fn the_recorder_is_around_mpirun_and_ibex_is_the_only_way() {
        let place = place();
        let script = Program::halo(place, Planted::usual()).command(place, Path::new("/t/a b")).unwrap().pop().unwrap();
        assert!(script.starts_with(
            "cd '/t/a b' && exec '/t/bin/ibex' 'trace' '--events' 'all' '-o' '/t/a b/trace' '--' 'mpirun'"
        ));
        assert!(script.contains("'--mca' 'pml' 'ibex' '--mca' 'btl' 'self,ibex'"), "{script}");
        assert!(
            script.ends_with("'-n' '4' '/t/mpi/halo' '--late-sender' '0:300' '--late-receiver' '3:200'"),
            "{script}"
        );
    }

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
