// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who kept whom waiting: [`Job::message_waits`].
//!
//! A process waits only in a call of MPI, and for a message only in the call that waited for it: that which told its caller
//! that the request is done. Between computing and MPI nobody waits. By Scalasca's definitions:
//!
//! - *late sender*: from when the receiver is in that call and the receive has been called, until the send is called;
//! - *late receiver*: from when the sender is in that call and the send has been called, until the receive is called. Only of
//!   synchronous sends, and of messages that cannot go before: what is copied or sent at once makes no sender wait;
//! - *no progress*: likewise, but after both have been called, while the receiver is in no such call of MPI, and before the
//!   transfer or after it. What needs the receiver's processor lies still meanwhile.
//!
//! Of several messages that one call waited for at the same time, the one that kept it longest counts (Scalasca's rule for
//! `MPI_Waitall`), so that no call is longer in a kind than it was. A process that tests again and again (`MPI_Test`) is in no
//! wait. Times of two ranks are compared: a wait that is shorter than the error of both clocks may be none.
//!
//! Path: pending. Threads: plain data. Tests: late/tests.rs; from traces, tests/waits.rs.

use std::cmp::Reverse;

use crate::model::{Call, Job, Message, Protocol, ReceiveSide, SendSide, Wait, WaitKind};
use crate::time::Time;

#[cfg(test)]
mod tests;

/// Until a call returned of which the trace does not say when.
const NEVER: i64 = i64::MAX;

/// A wait for a message in a call; both by their places.
struct Waited {
    message: usize,
    call: u32,
    wait: Wait,
}

impl Job {
    /// What was waited for in calls of MPI: each wait with the place of its message, by these. Nothing where no calls are
    /// recorded.
    #[must_use]
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
        // The receive of what a probe has waited for is called after it.
        let called = receive.activated.filter(|called| *called < call.end());
        let from = call.begun.max(called.unwrap_or(call.begun));
        let to = [Some(call.end()), receive.matched].into_iter().flatten().fold(send.activated?, Time::min);
        Some(Wait { kind: WaitKind::LateSender, from, to })
    }

    fn late_receiver(&self, message: &Message, send: &SendSide, receive: &ReceiveSide) -> Option<Wait> {
        let (call, called) = (self.call(send.call)?, receive.activated?);
        // What was done before the receive was called has not waited for it. Times of two ranks may be wrong.
        if send.completed.is_some_and(|completed| called.since(completed) > self.error(message)) {
            return None;
        }
        let from = call.begun.max(send.activated?);
        Some(Wait { kind: WaitKind::LateReceiver, from, to: called.min(end(call, send)) })
    }

    /// As often as the receiver was away.
    fn no_progress(&self, message: &Message, send: &SendSide, receive: &ReceiveSide, times: &TimesInMpi) -> Vec<Wait> {
        let moments = || Some((self.call(send.call)?, send.activated?.max(receive.activated?)));
        let Some((call, both_called)) = moments() else { return Vec::new() };
        // Once the receive is done, nothing lacks but its answer's way.
        let done = receive.completed.unwrap_or(end(call, send));
        let (from, to) = (call.begun.max(both_called), end(call, send).min(done));
        let transfer = receive.begun.zip(receive.ended).unwrap_or((to, to));
        let wait = |from, to| Wait { kind: WaitKind::NoProgress, from, to };
        let away = times.outside(message.receiver, from, to).into_iter();
        // Before the transfer, and after it.
        away.flat_map(|(from, to)| [wait(from, to.min(transfer.0)), wait(from.max(transfer.1), to)]).collect()
    }

    /// Whether a send is done only when its receiver has done something: its bytes cannot go before, or it is synchronous.
    fn needs_its_receiver(&self, message: &Message, send: &SendSide, receive: &ReceiveSide) -> bool {
        match message.protocol {
            Some(Protocol::Inline | Protocol::Copied | Protocol::ReceiverFirst) => {
                // As soon as the adapter has it, unless it is synchronous.
                let (error, before) =
                    (self.error(message), |moment: Option<Time>| Some(receive.matched?.since(moment?)));
                before(send.ended).is_some_and(|before| before > error)
                    && before(send.completed).is_some_and(|before| before <= error)
            }
            Some(_) => true,
            None => false,
        }
    }

    /// By how much times of both ends may be wrong against each other, nanoseconds.
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

/// Up to when a sender waits in a call at most.
fn end(call: &Call, send: &SendSide) -> Time {
    send.completed.map_or(call.end(), |completed| completed.min(call.end()))
}

/// Takes from each wait what another of its call and kind has of it: of those that overlap, the longer one stays.
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

/// When processes were in calls of MPI, by rank and time; `None` of ranks of which that is not known.
struct TimesInMpi(Vec<Option<Vec<(Time, Time)>>>);

impl TimesInMpi {
    fn of(job: &Job) -> TimesInMpi {
        let mut ranks: Vec<_> = job.ranks.iter().map(|rank| rank.has_calls.then(Vec::new)).collect();
        for call in &job.calls {
            if let Some(Some(rank)) = ranks.get_mut(call.rank as usize) {
                rank.push((call.begun, call.end()));
            }
        }
        for (rank, of) in ranks.iter_mut().zip(&job.ranks) {
            let Some(rank) = rank else { continue };
            rank.sort_unstable();
            // Those of several threads overlap.
            rank.dedup_by(|next, before| {
                let overlaps = next.0 <= before.1;
                before.1 = if overlaps { before.1.max(next.1) } else { before.1 };
                overlaps
            });
            // Nobody knows what it did when its trace had ended.
            if !of.is_whole {
                let last = rank.last().map_or(Time::new(i64::MIN), |(_, ended)| *ended);
                rank.push((last, Time::new(NEVER)));
            }
        }
        TimesInMpi(ranks)
    }

    /// The stretches between two times in which a rank was in no call.
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
