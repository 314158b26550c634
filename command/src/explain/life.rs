// SPDX-License-Identifier: MIT OR Apache-2.0
//! The life of one message: each known time and the duration to the next, and its parts. Grade: setup. Tests: below.

use std::fmt;

use anyhow::{Result, bail};
use ibex_messages::{Job, Message, Protocol, Reason, Time};
use serde::Serialize;

use super::parts::Parts;
use super::text::{bytes, duration, name, table};
use super::unknown::Unknown;

/// The n-th message, from 1, that a rank sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    world: u32,
    rank: u32,
    number: usize,
}

/// Parses `RANK:N`, or `WORLD.RANK:N`.
pub(super) fn wanted(text: &str) -> Result<Wanted, String> {
    let parse = || {
        let (rank, number) = text.split_once(':')?;
        let (world, rank) = rank.split_once('.').unwrap_or(("0", rank));
        let number = number.parse().ok().filter(|number| *number > 0)?;
        Some(Wanted { world: world.parse().ok()?, rank: rank.parse().ok()?, number })
    };
    parse().ok_or_else(|| "expected a rank and a number from 1 on, for example 0:3".to_owned())
}

#[derive(Serialize)]
pub(super) struct Life {
    sender: String,
    receiver: String,
    communicator: String,
    tag: i64,
    #[serde(skip)]
    tag_text: String,
    bytes: u64,
    protocol: Option<Protocol>,
    reason: Option<Reason>,
    port: Option<String>,
    queue_pair: Option<u32>,
    rails: u32,
    send_request: Option<u64>,
    receive_request: Option<u64>,
    moments: Vec<Moment>,
    #[serde(flatten)]
    parts: Parts,
    one_way_delay_nanoseconds: Option<i64>,
    delay_error_nanoseconds: Option<i64>,
    #[serde(flatten)]
    unknown: Unknown,
}

#[derive(Serialize)]
struct Moment {
    rank: String,
    what: &'static str,
    clock: &'static str,
    time_nanoseconds: i64,
    since_begin_nanoseconds: i64,
    step_nanoseconds: i64,
}

impl Life {
    pub(super) fn of(job: &Job, wanted: Wanted) -> Result<Life> {
        let rank = job.ranks.iter().position(|rank| (rank.world, rank.rank) == (wanted.world, wanted.rank));
        let Some(rank) = rank else { bail!("the trace has no rank {}", wanted.rank) };
        let mut sent: Vec<_> = job.messages.iter().enumerate().filter(|(_, of)| of.sender as usize == rank).collect();
        // Messages without a known sender's side are ordered by their first known time.
        sent.sort_by_key(|(_, of)| begin(of).or(of.first()));
        let Some((place, message)) = sent.get(wanted.number - 1).copied() else {
            bail!("rank {} has sent {} messages", wanted.rank, sent.len());
        };
        let error = |rank: u32| job.ranks.get(rank as usize).and_then(|rank| rank.clock_error);
        let both = error(message.sender).zip(error(message.receiver));
        let delay = message.delay();
        let communicator = job.communicators.get(message.communicator as usize);
        Ok(Life {
            sender: name(job, message.sender),
            receiver: name(job, message.receiver),
            communicator: communicator.map_or_else(String::new, |of| match of.name.as_str() {
                "" => format!("with context {}", of.context),
                name => name.to_owned(),
            }),
            tag: message.tag,
            tag_text: tag_text(job, message),
            bytes: message.bytes,
            protocol: message.protocol,
            reason: message.reason,
            port: message.port.and_then(|port| job.ports.get(port as usize)).map(|port| {
                let gid = if port.gid.is_empty() { String::new() } else { format!(", GID {}", port.gid) };
                format!("{}:{}{gid}", port.device, port.number)
            }),
            queue_pair: message.queue_pair,
            rails: message.rails,
            send_request: message.send.map(|send| send.request),
            receive_request: message.receive.map(|receive| receive.request),
            moments: moments(job, message),
            parts: Parts::of(job, place, begin(message).or(message.first())),
            one_way_delay_nanoseconds: delay,
            delay_error_nanoseconds: delay.and(both).map(|(one, other)| one.saturating_add(other)),
            unknown: Unknown::of(job),
        })
    }
}

/// Returns the tag of a message as people read it.
pub(super) fn tag_text(job: &Job, message: &Message) -> String {
    let communicator = job.communicators.get(message.communicator as usize);
    communicator.map_or_else(|| message.tag.to_string(), |communicator| communicator.tag_text(message.tag))
}

/// Returns the time of the call of the send; if that is unknown, of its first bytes or rendezvous request.
fn begin(message: &Message) -> Option<Time> {
    message.send.and_then(|send| send.activated.or(send.left()))
}

fn moments(job: &Job, message: &Message) -> Vec<Moment> {
    let mut all: Vec<(Time, u32, &'static str, bool)> = Vec::new();
    let mut stamp = |rank, what, time: Option<Time>, is_by_adapter| {
        all.extend(time.map(|time| (time, rank, what, is_by_adapter)));
    };
    if let Some(side) = message.send {
        stamp(message.sender, "the send is called", side.activated, false);
        stamp(message.sender, "the rendezvous request leaves", side.announced, false);
        if message.protocol == Some(Protocol::Read) && side.announced.is_some() {
            // The sender of a read sees only the answer.
            let answer = side.ended.or(side.begun);
            stamp(message.sender, "the receiver's answer comes: it has read all", answer, side.by_adapter.ended);
        } else {
            stamp(message.sender, "the first bytes leave", side.begun, side.by_adapter.begun);
            stamp(message.sender, "the adapter has the last bytes", side.ended, side.by_adapter.ended);
        }
        stamp(message.sender, "the send is complete", side.completed, false);
        stamp(message.sender, "its caller is notified", side.notified, false);
    }
    if let Some(side) = message.receive {
        stamp(message.receiver, "the receive is called", side.activated, false);
        stamp(message.receiver, "the receive waits for the message", side.posted, false);
        stamp(message.receiver, "the message arrives", side.arrived, side.by_adapter.arrived);
        stamp(message.receiver, "no receive matches: it is unexpected", side.unexpected, false);
        stamp(message.receiver, "message and receive are matched", side.matched, false);
        stamp(message.receiver, "the first bytes are in place", side.begun, side.by_adapter.begun);
        stamp(message.receiver, "the last bytes are in place", side.ended, side.by_adapter.ended);
        stamp(message.receiver, "the receive is complete", side.completed, false);
        stamp(message.receiver, "its caller is notified", side.notified, false);
    }
    all.sort_by_key(|(time, ..)| *time);
    let first = begin(message).or(all.first().map(|of| of.0));
    let mut last = all.first().map(|of| of.0);
    let moment = |(time, rank, what, is_by_adapter): (Time, u32, &'static str, bool)| {
        let step = last.map_or(0, |last| time.since(last));
        last = Some(time);
        Moment {
            rank: name(job, rank),
            what,
            clock: if is_by_adapter { "adapter" } else { "host" },
            time_nanoseconds: time.nanoseconds(),
            since_begin_nanoseconds: first.map_or(0, |first| time.since(first)),
            step_nanoseconds: step,
        }
    };
    all.into_iter().map(moment).collect()
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to, size) = (&self.sender, &self.receiver, bytes(self.bytes));
        writeln!(
            f,
            "From rank {from} to rank {to}, {size}, tag {}, communicator {}",
            self.tag_text, self.communicator
        )?;
        if let Some(protocol) = self.protocol {
            let reason = self.reason.map(|reason| format!(", because: {}", reason.name())).unwrap_or_default();
            writeln!(f, "{}{reason}", protocol.name())?;
        }
        if let Some(port) = &self.port {
            let pair = self.queue_pair.map(|pair| format!(", queue pair {pair:#x}")).unwrap_or_default();
            writeln!(f, "by {port}{pair}, rails: {}", self.rails)?;
        }
        let rows = self.moments.iter().map(|of| {
            let times = (duration(of.since_begin_nanoseconds), duration(of.step_nanoseconds));
            vec![of.rank.clone(), times.0, times.1, of.clock.to_owned(), of.what.to_owned()]
        });
        writeln!(f, "\n{}", table(&["rank", "since the send", "step", "clock", "what"], &[1, 2], rows))?;
        write!(f, "{}", self.parts)?;
        let delay = "\nOne-way delay, from the post to the arrival";
        match (self.one_way_delay_nanoseconds, self.delay_error_nanoseconds) {
            (Some(time), Some(error)) => writeln!(f, "{delay}: {} ±{}", duration(time), duration(error))?,
            (Some(time), None) => writeln!(f, "{delay}: {}; the clocks were never compared", duration(time))?,
            (None, _) => writeln!(f, "{delay}: unknown, because one side or the rendezvous request is unknown")?,
        }
        write!(f, "{}", self.unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_recognised_by_its_request_and_answer_and_another_send_by_its_bytes() {
        let job = Job::synthetic(2, 40, 3);
        for message in &job.messages {
            let told: Vec<_> = moments(&job, message).iter().map(|of| of.what).collect();
            let has = |what: &str| told.iter().any(|told| told.starts_with(what));
            let is_read = message.protocol == Some(Protocol::Read);
            assert_eq!(["the rendezvous request", "the receiver's answer"].map(has), [is_read; 2]);
            assert_eq!(["the first bytes leave", "the adapter has"].map(has), [!is_read; 2]);
        }
    }

    #[test]
    fn a_message_is_named_by_rank_and_number() {
        assert_eq!(wanted("3:1"), Ok(Wanted { world: 0, rank: 3, number: 1 }));
        assert_eq!(wanted("1.3:20"), Ok(Wanted { world: 1, rank: 3, number: 20 }));
        for wrong in ["", "3", "3:0", "a:1", "3:-1"] {
            assert!(wanted(wrong).is_err(), "{wrong}");
        }
    }
}
