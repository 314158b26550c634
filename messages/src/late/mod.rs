// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits of one process for another, and of messages for their program: [`Job::message_waits`].
//!
//! A process waits only inside an MPI call, and for a message only inside the call that completed its request
//! (`MPI_Test` does not wait). By Scalasca's definitions:
//! - *late sender*: from when the receiver is in that call and has called the receive, until the sender calls the send;
//! - *late receiver*: from when the sender is in that call and has called the send, until the receiver calls the
//!   receive. Only for synchronous sends and rendezvous, because other sends do not wait for the receiver;
//! - *no progress*: the same sends, after both calls, before or after the transfer, while the receiver is outside MPI.
//!
//! A message waits for its program (*late wait*) from when the receive has been called and the data is there, until the
//! receiver is in the call that completes the receive. Without the adapter's timestamps the data seems to come only
//! when the receiver polls.
//!
//! If one call waits for several messages, the longest wait counts (Scalasca's rule for `MPI_Waitall`), so that the
//! waits of a kind never exceed the call. A wait shorter than the clock error of both ranks may not be real. Path:
//! pending. Threads: plain data. Tests: late/tests.rs; from traces, tests/waits.rs.

use std::cmp::Reverse;

use crate::model::{Call, Job, Message, Protocol, ReceiveSide, SendSide, Wait, WaitKind};
use crate::time::Time;

#[cfg(test)]
mod tests;

const NEVER: i64 = i64::MAX;

struct Waited {
    message: usize,
    call: u32,
    wait: Wait,
}

impl Job {
    /// Returns waits in MPI calls, and late waits, each with its message's index, in that order. Empty without calls.
    pub fn message_waits(&self) -> Vec<(usize, Wait)> {
        let times = TimesInMpi::of(self);
        let mut all = Vec::new();
        for (place, message) in self.messages.iter().enumerate() {
            let (Some(send), Some(receive)) = (&message.send, &message.receive) else { continue };
            let mut add = |call: Option<u32>, wait: Option<Wait>| {
                let waited = call.zip(wait).filter(|(_, wait)| wait.from < wait.to);
                all.extend(waited.map(|(call, wait)| Waited { message: place, call, wait }));
            };
            add(receive.call, self.late_sender(send, receive));
            add(receive.call, self.late_wait(message, receive));
            if self.needs_its_receiver(message, send, receive) {
                add(send.call, self.late_receiver(message, send, receive));
                for wait in self.no_progress(message, send, receive, &times) {
                    add(send.call, Some(wait));
                }
            }
        }
        apart(&mut all);
        all.sort_by_key(|waited| (waited.message, waited.wait.from));
        all.into_iter().map(|waited| (waited.message, waited.wait)).collect()
    }

    fn call(&self, call: Option<u32>) -> Option<&Call> {
        self.calls.get(call? as usize)
    }

    fn late_sender(&self, send: &SendSide, receive: &ReceiveSide) -> Option<Wait> {
        let call = self.call(receive.call)?;
        // The receive of a probed message is called after the probe.
        let called = receive.activated.filter(|called| *called < call.end());
        let from = call.begun.max(called.unwrap_or(call.begun));
        let to = [Some(call.end()), receive.matched].into_iter().flatten().fold(send.activated?, Time::min);
        Some(Wait { kind: WaitKind::LateSender, from, to })
    }

    fn late_receiver(&self, message: &Message, send: &SendSide, receive: &ReceiveSide) -> Option<Wait> {
        let (call, called) = (self.call(send.call)?, receive.activated?);
        // A send that completed before the receive was called did not wait for it, within the clock error.
        if send.completed.is_some_and(|completed| called.since(completed) > self.error(message)) {
            return None;
        }
        let from = call.begun.max(send.activated?);
        Some(Wait { kind: WaitKind::LateReceiver, from, to: called.min(end(call, send)) })
    }

    fn late_wait(&self, message: &Message, receive: &ReceiveSide) -> Option<Wait> {
        let there = match message.protocol? {
            Protocol::Inline | Protocol::Copied => receive.arrived,
            _ => receive.ended,
        };
        let (from, to) = (there?.max(receive.activated?), self.call(receive.call)?.begun);
        Some(Wait { kind: WaitKind::LateWait, from, to })
    }

    fn no_progress(&self, message: &Message, send: &SendSide, receive: &ReceiveSide, times: &TimesInMpi) -> Vec<Wait> {
        let moments = || Some((self.call(send.call)?, send.activated?.max(receive.activated?)));
        let Some((call, both_called)) = moments() else { return Vec::new() };
        // After `done`, only the receiver's answer is in flight.
        let done = receive.completed.unwrap_or(end(call, send));
        let (from, to) = (call.begun.max(both_called), end(call, send).min(done));
        let transfer = receive.begun.zip(receive.ended).unwrap_or((to, to));
        let wait = |from, to| Wait { kind: WaitKind::NoProgress, from, to };
        let away = times.outside(message.receiver, from, to).into_iter();
        away.flat_map(|(from, to)| [wait(from, to.min(transfer.0)), wait(from.max(transfer.1), to)]).collect()
    }

    /// Whether a send completes only after an action of its receiver: a rendezvous, or a synchronous send.
    fn needs_its_receiver(&self, message: &Message, send: &SendSide, receive: &ReceiveSide) -> bool {
        match message.protocol {
            Some(Protocol::Inline | Protocol::Copied) => {
                // A short send is complete as soon as the adapter has it, unless it is synchronous.
                let (error, before) =
                    (self.error(message), |moment: Option<Time>| Some(receive.matched?.since(moment?)));
                before(send.ended).is_some_and(|before| before > error)
                    && before(send.completed).is_some_and(|before| before <= error)
            }
            Some(_) => true,
            None => false,
        }
    }

    /// Returns the error bound between the clocks of both ends, nanoseconds.
    fn error(&self, message: &Message) -> i64 {
        let of = |rank: u32| self.ranks.get(rank as usize).and_then(|rank| rank.clock_error).unwrap_or(0);
        of(message.sender).saturating_add(of(message.receiver))
    }
}

impl Call {
    fn end(&self) -> Time {
        self.ended.unwrap_or(Time::new(NEVER))
    }
}

fn end(call: &Call, send: &SendSide) -> Time {
    send.completed.map_or(call.end(), |completed| completed.min(call.end()))
}

/// Removes overlaps of waits with the same call and kind: the longer one stays.
fn apart(all: &mut Vec<Waited>) {
    all.sort_by_key(|waited| (waited.wait.kind, waited.call, waited.wait.from, Reverse(waited.wait.to)));
    let mut last = None;
    all.retain_mut(|waited| {
        let (key, wait) = ((waited.wait.kind, waited.call), &mut waited.wait);
        let counted = last.filter(|(known, _)| *known == key).map_or(wait.from, |(_, to)| to);
        wait.from = wait.from.max(counted);
        let stays = wait.from < wait.to;
        last = if stays { Some((key, wait.to)) } else { last };
        stays
    });
}

/// Times that each rank spent in MPI calls, or may have spent there; `None` if unknown.
struct TimesInMpi(Vec<Option<Vec<(Time, Time)>>>);

impl TimesInMpi {
    fn of(job: &Job) -> TimesInMpi {
        let mut ranks: Vec<_> = job.ranks.iter().map(|rank| rank.has_calls.then(Vec::new)).collect();
        for call in &job.calls {
            if let Some(Some(rank)) = ranks.get_mut(call.rank as usize) {
                rank.push((call.begun, call.end()));
            }
        }
        for pause in &job.pauses {
            if let Some(Some(rank)) = ranks.get_mut(pause.rank as usize) {
                rank.push((pause.from, pause.to.unwrap_or(Time::new(NEVER))));
            }
        }
        for (rank, of) in ranks.iter_mut().zip(&job.ranks) {
            let Some(rank) = rank else { continue };
            rank.sort_unstable();
            // Calls of several threads overlap.
            rank.dedup_by(|next, before| {
                let overlaps = next.0 <= before.1;
                before.1 = if overlaps { before.1.max(next.1) } else { before.1 };
                overlaps
            });
            // After the end of its trace this is unknown.
            if !of.is_whole {
                let last = rank.last().map_or(Time::new(i64::MIN), |(_, ended)| *ended);
                rank.push((last, Time::new(NEVER)));
            }
        }
        TimesInMpi(ranks)
    }

    /// Returns the times between `from` and `to` in which a rank was in no call.
    fn outside(&self, rank: u32, from: Time, to: Time) -> Vec<(Time, Time)> {
        let Some(Some(calls)) = self.0.get(rank as usize) else { return Vec::new() };
        let (mut away, mut from) = (Vec::new(), from);
        for (begun, ended) in &calls[calls.partition_point(|(_, ended)| *ended < from)..] {
            if from >= to {
                break;
            }
            away.push((from, to.min(*begun)));
            from = from.max(*ended);
        }
        away.push((from, to));
        away.retain(|(from, to)| from < to);
        away
    }
}
