// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of one message: the MPI calls that began it and waited for it, its fragments, and the searches of queues
//! for it. Called by `life`. Grade: setup. Tests: below.

use std::fmt;

use ibex_messages::{Call, Job, Queue, Time};
use serde::Serialize;

use super::text::{duration, known, name, table};

/// All parts of a message. `since_begin_nanoseconds` counts from the call of its send.
#[derive(Serialize)]
pub(super) struct Parts {
    calls: Vec<Called>,
    fragments: Vec<Fragment>,
    searches: Vec<Searched>,
}

#[derive(Serialize)]
struct Called {
    rank: String,
    what: &'static str,
    /// Name of the function; `None`: unknown, because a process cannot wait in it.
    function: Option<String>,
    since_begin_nanoseconds: Option<i64>,
    nanoseconds: Option<i64>,
}

#[derive(Serialize)]
struct Fragment {
    rank: String,
    side: &'static str,
    clock: &'static str,
    offset: Option<u64>,
    bytes: Option<u64>,
    time_nanoseconds: i64,
    since_first_nanoseconds: i64,
    step_nanoseconds: i64,
}

#[derive(Serialize)]
struct Searched {
    rank: String,
    queue: Queue,
    queue_length: Option<u32>,
    is_found: Option<bool>,
    since_begin_nanoseconds: i64,
    nanoseconds: i64,
}

impl Parts {
    /// Collects the parts of the message with this index in the job, whose send is called at `begin`.
    pub(super) fn of(job: &Job, place: usize, begin: Option<Time>) -> Parts {
        let since = |time: Time| begin.map_or(0, |begin| time.since(begin));
        let of_message = job.searches.iter().filter(|of| of.message == Some(place as u32));
        let search = |of: &ibex_messages::Search| Searched {
            rank: name(job, of.rank),
            queue: of.queue,
            queue_length: of.length,
            is_found: of.is_found,
            since_begin_nanoseconds: since(of.begun),
            nanoseconds: of.ended.since(of.begun),
        };
        let mut searches: Vec<Searched> = of_message.map(search).collect();
        searches.sort_by_key(|of| of.since_begin_nanoseconds);
        Parts { calls: calls(job, place, since), fragments: fragments(job, place), searches }
    }
}

fn calls(job: &Job, place: usize, since: impl Fn(Time) -> i64) -> Vec<Called> {
    const BEGINS: [&str; 3] = ["begins the send", "waits for it", "begins the send and waits for it"];
    const RECEIVES: [&str; 3] = ["begins the receive", "waits for it", "begins the receive and waits for it"];
    let message = &job.messages[place];
    let sent = message.send.map(|of| (message.sender, of.thread, of.activated, of.call, BEGINS));
    let received = message.receive.map(|of| (message.receiver, of.thread, of.activated, of.call, RECEIVES));
    let mut all = Vec::new();
    for (rank, thread, activated, waits, [begins, awaits, does_both]) in sent.into_iter().chain(received) {
        let holds = |call: &Call, time: Time| call.begun <= time && call.ended.is_none_or(|ended| time <= ended);
        let is_of = |call: &Call| (call.rank, call.thread) == (rank, thread);
        let begin = activated.and_then(|time| job.calls.iter().position(|call| is_of(call) && holds(call, time)));
        let waits = waits.map(|call| call as usize).filter(|call| *call < job.calls.len());
        let is_both = begin.is_some() && begin == waits;
        let mut add = |what, call: Option<usize>| {
            let call = call.map(|place| &job.calls[place]);
            all.push(Called {
                rank: name(job, rank),
                what,
                function: call.map(|call| job.function(call).to_owned()),
                since_begin_nanoseconds: call.map(|call| since(call.begun)),
                nanoseconds: call.and_then(|call| Some(call.ended?.since(call.begun))),
            });
        };
        if activated.is_some() && (begin.is_some() || job.ranks.get(rank as usize).is_some_and(|of| of.has_calls)) {
            add(if is_both { does_both } else { begins }, begin);
        }
        if waits.is_some() && !is_both {
            add(awaits, waits);
        }
    }
    all
}

/// Returns the fragments of a message: the sender's, then the receiver's, each ordered by time.
fn fragments(job: &Job, place: usize) -> Vec<Fragment> {
    let message = &job.messages[place];
    let mut of: Vec<_> = job.fragments.iter().filter(|of| of.message as usize == place).collect();
    of.sort_by_key(|of| (of.is_received, of.time));
    let sides = of.chunk_by(|one, other| one.is_received == other.is_received);
    let side = |of: &[&ibex_messages::Fragment]| {
        let is_received = of[0].is_received;
        let begun =
            if is_received { message.receive.and_then(|of| of.begun) } else { message.send.and_then(|of| of.begun) };
        let first = begun.unwrap_or(of[0].time);
        let mut last = first;
        let fragment = |of: &&ibex_messages::Fragment| Fragment {
            rank: name(job, of.rank),
            side: if is_received { "receive" } else { "send" },
            clock: if of.is_by_adapter { "adapter" } else { "host" },
            offset: of.part.map(|(offset, _)| offset),
            bytes: of.part.map(|(_, bytes)| bytes),
            time_nanoseconds: of.time.nanoseconds(),
            since_first_nanoseconds: of.time.since(first),
            step_nanoseconds: of.time.since(std::mem::replace(&mut last, of.time)),
        };
        of.iter().map(fragment).collect::<Vec<_>>()
    };
    sides.flat_map(side).collect()
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.calls.is_empty() {
            let rows = self.calls.iter().map(|of| {
                let function = of.function.clone().unwrap_or_else(|| "one that cannot wait".to_owned());
                let times = (known(of.since_begin_nanoseconds, duration), known(of.nanoseconds, duration));
                vec![of.rank.clone(), times.0, times.1, function, of.what.to_owned()]
            });
            let names = ["rank", "since the send", "takes", "MPI call", "what it does"];
            writeln!(f, "\n{}", table(&names, &[1, 2], rows))?;
        }
        if !self.searches.is_empty() {
            let rows = self.searches.iter().map(|of| {
                let found = known(of.is_found, |is_found| if is_found { "found" } else { "not found" }.to_owned());
                let (since, took) = (duration(of.since_begin_nanoseconds), duration(of.nanoseconds));
                let length = known(of.queue_length, |length| length.to_string());
                vec![of.rank.clone(), since, took, of.queue.name().to_owned(), length, found]
            });
            let names = ["rank", "since the send", "takes", "searches the queue", "of length", "and it is"];
            writeln!(f, "\n{}", table(&names, &[1, 2, 4], rows))?;
        }
        if !self.fragments.is_empty() {
            let rows = self.fragments.iter().map(|of| {
                let times = (duration(of.since_first_nanoseconds), duration(of.step_nanoseconds));
                let (offset, bytes) = (known(of.offset, |at| at.to_string()), known(of.bytes, |all| all.to_string()));
                vec![of.rank.clone(), times.0, times.1, of.clock.to_owned(), offset, bytes]
            });
            let names = ["rank", "fragment, since the first", "step", "clock", "offset", "bytes"];
            writeln!(f, "\n{}", table(&names, &[1, 2, 4, 5], rows))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Job {
        let mut job = Job::synthetic(2, 1, 3);
        let message = &mut job.messages[0];
        let (rank, side) = (message.receiver, message.receive.as_mut().expect("made"));
        let at = |time: Time, after: i64| Time::new(time.nanoseconds() + after);
        let (begun, posted) = (side.begun.expect("made"), side.activated.expect("made"));
        let fragment = |after, part| ibex_messages::Fragment {
            is_by_adapter: after > 20,
            part,
            ..ibex_messages::Fragment::made(rank, 0, at(begun, after))
        };
        job.fragments = vec![fragment(50, Some((64, 32))), fragment(20, None)];
        let search = |message, begun| ibex_messages::Search {
            length: Some(3),
            message,
            is_found: Some(true),
            ..ibex_messages::Search::made(rank, begun, at(begun, 70))
        };
        job.searches = vec![search(Some(0), begun), search(None, begun)];
        let call = side.call.expect("made") as usize;
        job.calls[call].begun = at(posted, 1);
        job
    }

    #[test]
    fn a_message_has_the_calls_that_began_it_and_waited_for_it() {
        let job = job();
        let parts = Parts::of(&job, 0, job.messages[0].send.expect("made").activated);
        let called: Vec<_> = parts.calls.iter().map(|of| (of.function.as_deref(), of.what)).collect();
        let wanted = [
            (Some("MPI_Send"), "begins the send and waits for it"),
            (None, "begins the receive"),
            (Some("MPI_Recv"), "waits for it"),
        ];
        assert_eq!(called, wanted);
        assert_eq!(parts.calls[0].since_begin_nanoseconds, Some(0));
    }

    #[test]
    fn fragments_count_from_the_first_bytes_and_searches_are_those_for_the_message() {
        let job = job();
        let parts = Parts::of(&job, 0, None);
        let found: Vec<_> = parts
            .fragments
            .iter()
            .map(|of| (of.since_first_nanoseconds, of.step_nanoseconds, of.clock, of.offset, of.bytes))
            .collect();
        assert_eq!(found, [(20, 20, "host", None, None), (50, 30, "adapter", Some(64), Some(32))]);
        assert_eq!(parts.searches.iter().map(|of| of.nanoseconds).collect::<Vec<_>>(), [70]);
        let text = parts.to_string();
        for words in ["one that cannot wait", "adapter", "posted", "found"] {
            assert!(text.contains(words), "{words} is not in {text}");
        }
    }
}
