// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits by kind and pair of ranks, with the longest of each kind. Several ranks can wait at a time, so percentages of
//! the span can add up to more than 100. Grade: setup. Tests: in `mod.rs`.

use std::collections::BTreeMap;
use std::fmt;

use ibex_messages::{Job, WaitKind};
use serde::Serialize;

use super::life::tag_text;
use super::text::{self, duration, known, name, table};
use super::unknown::Unknown;

/// Number of longest waits per kind, in text and in JSON: a late process in a collective operation makes many late.
const LONGEST: usize = 5;
const TOLD: usize = 20;

#[derive(Serialize)]
pub(super) struct Waits {
    span_nanoseconds: Option<i64>,
    kinds: Vec<Alike>,
    #[serde(flatten)]
    unknown: Unknown,
}

#[derive(Serialize)]
struct Alike {
    kind: WaitKind,
    count: u64,
    nanoseconds: i64,
    percent_of_span: Option<f64>,
    pairs: Vec<Pair>,
    longest: Vec<One>,
}

#[derive(Serialize)]
struct Pair {
    from: String,
    to: String,
    count: u64,
    nanoseconds: i64,
    percent_of_span: Option<f64>,
}

#[derive(Serialize)]
struct One {
    from: String,
    to: String,
    tag: Option<i64>,
    #[serde(skip)]
    tag_text: Option<String>,
    bytes: Option<u64>,
    begin_nanoseconds: i64,
    nanoseconds: i64,
}

#[derive(Default)]
struct Gathered {
    pairs: BTreeMap<(u32, u32), (u64, i64)>,
    all: Vec<(i64, i64, u32, u32, Option<usize>)>,
}

impl Waits {
    pub(super) fn of(job: &Job) -> Waits {
        let (first, span) = job.span.map_or((None, None), |(first, last)| (Some(first), Some(last.since(first))));
        let of_messages = job.message_waits().into_iter().map(|(place, wait)| {
            let message = &job.messages[place];
            (message.sender, message.receiver, wait, Some(place))
        });
        let of_processes = job.process_waits().into_iter().map(|of| (of.rank, of.peer, of.wait, None));
        let mut gathered: BTreeMap<WaitKind, Gathered> = BTreeMap::new();
        for (from, to, wait, message) in of_messages.chain(of_processes) {
            let of = gathered.entry(wait.kind).or_default();
            let took = wait.to.since(wait.from);
            let pair = of.pairs.entry((from, to)).or_default();
            *pair = (pair.0 + 1, pair.1.saturating_add(took));
            of.all.push((took, first.map_or(0, |first| wait.from.since(first)), from, to, message));
        }
        let percent = |took: i64| span.filter(|span| *span > 0).map(|span| took as f64 * 100.0 / span as f64);
        let kind = |(kind, mut of): (WaitKind, Gathered)| {
            of.all.sort_unstable_by_key(|one| std::cmp::Reverse((one.0, one.1)));
            let one = |(took, begin, from, to, message): &(i64, i64, u32, u32, Option<usize>)| One {
                from: name(job, *from),
                to: name(job, *to),
                tag: message.map(|place| job.messages[place].tag),
                tag_text: message.map(|place| tag_text(job, &job.messages[place])),
                bytes: message.map(|place| job.messages[place].bytes),
                begin_nanoseconds: *begin,
                nanoseconds: *took,
            };
            let mut pairs: Vec<Pair> = of
                .pairs
                .iter()
                .map(|((from, to), (count, took))| Pair {
                    from: name(job, *from),
                    to: name(job, *to),
                    count: *count,
                    nanoseconds: *took,
                    percent_of_span: percent(*took),
                })
                .collect();
            pairs.sort_by_key(|pair| std::cmp::Reverse(pair.nanoseconds));
            let all: i64 = of.all.iter().map(|one| one.0).fold(0, i64::saturating_add);
            Alike {
                kind,
                count: of.all.len() as u64,
                nanoseconds: all,
                percent_of_span: percent(all),
                pairs,
                longest: of.all.iter().take(TOLD).map(one).collect(),
            }
        };
        let kinds = gathered.into_iter().map(kind).collect();
        Waits { span_nanoseconds: span, kinds, unknown: Unknown::of(job) }
    }
}

fn meaning(kind: WaitKind) -> &'static str {
    match kind {
        WaitKind::LateSender => "the receiver waits in MPI; the sender has not called its send",
        WaitKind::LateReceiver => "the sender waits in MPI; the receiver has not called its receive",
        WaitKind::NoProgress => "the sender waits in MPI; the receiver has called its receive, but is outside MPI",
        WaitKind::LateWait => "nobody waits; the message is there, and the receiver has not asked for it yet",
        WaitKind::Connection => "the sender has no connection yet",
        WaitKind::Queue => "the adapter has no room for the sender's request",
    }
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |of: Option<f64>| of.map_or_else(String::new, |of| format!("{of:.2} %"));
        if let Some(span) = self.span_nanoseconds {
            writeln!(f, "The trace covers {}; several ranks may wait at a time", duration(span))?;
        }
        let rows = self.kinds.iter().map(|of| {
            vec![of.kind.name().to_owned(), of.count.to_string(), duration(of.nanoseconds), percent(of.percent_of_span)]
        });
        writeln!(f, "\n{}", table(&["wait", "count", "time", "of the span"], &[1, 2, 3], rows))?;
        for kind in &self.kinds {
            writeln!(f, "\n{}, by pair: {}", kind.kind.name(), meaning(kind.kind))?;
            let rows = kind.pairs.iter().map(|of| {
                let numbers = (of.count.to_string(), duration(of.nanoseconds), percent(of.percent_of_span));
                vec![of.from.clone(), of.to.clone(), numbers.0, numbers.1, numbers.2]
            });
            writeln!(f, "{}", table(&["from", "to", "count", "time", "of the span"], &[2, 3, 4], rows))?;
            writeln!(f, "\nthe longest")?;
            let rows = kind.longest.iter().take(LONGEST).map(|of| {
                vec![
                    of.from.clone(),
                    of.to.clone(),
                    known(of.tag_text.clone(), |tag| tag),
                    known(of.bytes, text::bytes),
                    duration(of.begin_nanoseconds),
                    duration(of.nanoseconds),
                ]
            });
            writeln!(f, "{}", table(&["from", "to", "tag", "bytes", "begins at", "takes"], &[2, 3, 4, 5], rows))?;
        }
        write!(f, "{}", self.unknown)
    }
}
