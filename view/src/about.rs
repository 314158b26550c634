// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page's first data: the ranks, the totals, and warnings about missing or unreliable data, as JSON in the element
//! `about`. Called by `page`. Tests: below.

use crate::columns::{CHUNK, STAMPED};
use crate::lanes::{Lane, Lanes};
use crate::levels::{Bands, DETAILS};
use crate::rows::Row;
use crate::spans::Spans;
use ibex_messages::{Communicator, Job, Port, Rank};
use serde::Serialize;

#[derive(Serialize)]
pub(crate) struct About<'a> {
    name: &'a str,
    /// Nanoseconds since 1970, as text, because a browser's numbers are too short.
    start: String,
    span: i64,
    ranks: &'a [Rank],
    lanes: &'a [Lane],
    ports: &'a [Port],
    communicators: Vec<Known<'a>>,
    messages: usize,
    bytes: u64,
    chunk: usize,
    stamped: [&'static str; STAMPED.len()],
    details: u8,
    operations: usize,
    connections: usize,
    incidents: usize,
    calls: usize,
    searches: usize,
    fragments: usize,
    functions: &'a [String],
    bands: &'a Bands,
    notices: Vec<String>,
}

#[derive(Serialize)]
struct Known<'a> {
    context: u32,
    name: &'a str,
    members: usize,
    remote: usize,
    /// Whether its tags have 64 bits: those of libfabric's messages.
    has_wide_tags: bool,
}

impl About<'_> {
    pub(crate) fn of<'a>(job: &'a Job, lanes: &'a Lanes, rows: &[Row], spans: &Spans, bands: &'a Bands) -> About<'a> {
        let [calls, searches, fragments, operations] = spans.counts();
        let known = |communicator: &'a Communicator| Known {
            context: communicator.context,
            name: &communicator.name,
            members: communicator.members.len(),
            remote: communicator.remote.len(),
            has_wide_tags: communicator.is_of_libfabric(),
        };
        About {
            name: &job.name,
            start: job.span.map_or(0, |span| span.0.nanoseconds()).to_string(),
            span: job.span.map_or(0, |span| span.1.since(span.0)),
            ranks: &job.ranks,
            lanes: &lanes.all,
            ports: &job.ports,
            communicators: job.communicators.iter().map(known).collect(),
            messages: rows.len(),
            bytes: rows.iter().map(|row| job.messages[row.place].bytes).fold(0, u64::saturating_add),
            chunk: CHUNK,
            stamped: STAMPED,
            details: DETAILS,
            operations,
            connections: job.connections.len(),
            incidents: job.incidents.len(),
            calls,
            searches,
            fragments,
            functions: &job.functions,
            bands,
            notices: notices(job, rows.len()),
        }
    }
}

fn notices(job: &Job, shown: usize) -> Vec<String> {
    let mut notices: Vec<String> = Vec::new();
    let lost = job.losses.iter().map(|loss| loss.count).fold(0, u64::saturating_add);
    if lost > 0 {
        let mut worst: Vec<_> = job.losses.iter().filter(|loss| loss.count > 0).collect();
        worst.sort_by_key(|loss| std::cmp::Reverse(loss.count));
        let named = |loss: &&ibex_messages::Loss| format!("{} {} of rank {}", loss.count, loss.event, loss.rank);
        let mut named: Vec<_> = worst.iter().take(4).map(named).collect();
        if worst.len() > 4 {
            named.push("others".to_owned());
        }
        notices
            .push(format!("{lost} events were lost, so messages or parts of them are missing: {}.", named.join(", ")));
    }
    let untimed = job.messages.len() - shown;
    if untimed > 0 {
        notices.push(format!("{untimed} messages are not shown, because no time is known."));
    }
    let is_apart = |rank: &&Rank| !rank.host.is_empty() && rank.clock_error.is_none();
    let apart: Vec<String> = job.ranks.iter().filter(is_apart).map(|rank| rank.rank.to_string()).collect();
    if !apart.is_empty() {
        let (named, others) = apart.split_at(apart.len().min(8));
        let more = if others.is_empty() { String::new() } else { format!(" and {} others", others.len()) };
        notices.push(format!(
            "These ranks have a clock that was never compared, so their arrows may be wrong: {}{more}.",
            named.join(", ")
        ));
    }
    notices.extend(job.faults.iter().cloned());
    notices
}

#[cfg(test)]
mod tests {
    use super::*;
    use ibex_messages::Loss;

    #[test]
    fn a_sound_job_has_no_notice_and_each_fault_has_a_sentence() {
        let mut job = Job::synthetic(20, 50, 1);
        assert!(notices(&job, 50).is_empty());
        job.ranks.iter_mut().for_each(|rank| rank.clock_error = None);
        job.ranks[3].host.clear();
        job.losses = vec![Loss { rank: 1, event: "ibex_comm_msg_arrived".to_owned(), count: 7 }];
        job.faults = vec!["Block 3 of a file is damaged.".to_owned()];
        let notices = notices(&job, 49).join("\n");
        for sentence in [
            "7 events were lost",
            "7 ibex_comm_msg_arrived of rank 1",
            "1 messages are not shown",
            "0, 1, 2, 4, 5, 6, 7, 8 and 11 others.",
            "Block 3 of a file is damaged.",
        ] {
            assert!(notices.contains(sentence), "{sentence:?} is not in {notices}");
        }
    }
}
