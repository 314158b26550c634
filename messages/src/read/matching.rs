// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests and messages of a process in which ibex does the matching, and their matches. Events name a request or a
//! message by its number. A match shows in consecutive events of one thread (docs/peruse.md): a message arrives and
//! finds its receive, or a receive finds its unexpected message; `comm_req_protocol` of a receive names both. Nothing
//! joins a pair that lost events have broken. Path: pending, once per event. Threads: one; the events of several come
//! by their times (`pass.rs`). Tests: tests/.

use std::collections::HashMap;

use crate::model::{Protocol, Reason, ReceiveSide, SendSide};
use crate::read::calls::Calls;
use crate::read::half::{Continued, Envelope, Received, Route, Sent};
use crate::read::slots::Slots;
use crate::read::vocabulary::{Element, Seen, Step};
use crate::time::Time;

#[derive(Default)]
pub(crate) struct Matching {
    /// Send `i` has the number `2 * i + 2` here, receive `i` the number `2 * i + 1`.
    requests: Slots,
    messages: Slots,
    sends: Vec<Sent>,
    posted: Vec<Posted>,
    arrivals: Vec<Arrival>,
    threads: HashMap<u32, Thread>,
    pub(crate) fragments: Vec<Continued>,
    /// Messages that a matched probe has dequeued, until their receives come.
    probed: Vec<u32>,
    /// Number of sends and messages with a known begin.
    begun: usize,
    /// Number of broken pairs.
    pub(crate) torn: u64,
}

#[derive(Default)]
struct Posted {
    envelope: Envelope,
    message: Option<u32>,
    /// Times of the receive; its `call` is the MPI call that notified the caller.
    side: ReceiveSide,
    /// The probe before the receive.
    probe: Option<u32>,
    protocol: Option<Protocol>,
    reason: Option<Reason>,
}

#[derive(Default)]
struct Arrival {
    envelope: Envelope,
    id: u64,
    thread: u32,
    request: Option<u32>,
    arrived: Option<Time>,
    unexpected: Option<Time>,
    taken: Option<Time>,
    matched: Option<Time>,
}

/// The last event of a thread that needs its counterpart.
#[derive(Default, Clone, Copy)]
struct Thread {
    removed: Option<u32>,
    taken: Option<u32>,
}

enum Request {
    Send(u32),
    Receive(u32),
}

impl Matching {
    /// Handles an event of a request or message. `call`: the MPI call that reports it, or the probe before a receive.
    pub(crate) fn see(&mut self, step: Step, seen: &Seen<'_>, time: Option<Time>, thread: u32, call: Option<u32>) {
        match step {
            Step::Continue => {
                let (request, is_received) = (seen.value(Element::Id), seen.value(Element::Operation) != 0);
                let of = |time| Continued { request, is_received, thread, time, is_by_adapter: false, part: None };
                self.fragments.extend(time.map(of));
            }
            Step::Arrived | Step::Unexpected | Step::Taken | Step::MatchPosted => {
                self.see_message(step, seen, time, thread);
            }
            // The request is persistent and was never started: the trace has nothing else about it.
            Step::Free if *self.requests.of(seen.value(Element::Id)) == 0 => {}
            _ => match self.request(seen, thread) {
                Request::Send(at) => {
                    let side = &mut self.sends[at as usize].side;
                    match step {
                        Step::Activate => {
                            (side.activated, side.thread) = (time, thread);
                            self.begun += 1;
                        }
                        Step::Begin => side.begun = side.begun.or(time),
                        Step::End => side.ended = time,
                        Step::Complete => side.completed = time,
                        Step::Notify => (side.notified, side.call) = (time, call),
                        Step::Free => side.freed = time,
                        _ => {}
                    }
                }
                Request::Receive(at) => self.see_receive(step, at, time, thread, call),
            },
        }
    }

    fn see_receive(&mut self, step: Step, at: u32, time: Option<Time>, thread: u32, call: Option<u32>) {
        let Posted { side, probe, .. } = &mut self.posted[at as usize];
        match step {
            Step::Activate => {
                (side.activated, side.thread, *probe) = (time, thread, call);
                self.forget(thread);
            }
            Step::Insert => side.posted = time,
            Step::Remove => {
                side.removed = time;
                self.threads.entry(thread).or_default().removed = Some(at);
            }
            Step::MatchUnexpected => {
                side.matched = time;
                self.match_unexpected(at, thread);
            }
            Step::Begin => side.begun = side.begun.or(time),
            Step::End => side.ended = time,
            Step::Complete => {
                side.completed = time;
                // The receive was cancelled.
                let last = self.threads.entry(thread).or_default();
                last.removed = last.removed.filter(|removed| *removed != at);
            }
            Step::Notify => (side.notified, side.call) = (time, call),
            Step::Cancel => side.cancelled = time,
            Step::Free => side.freed = time,
            _ => {}
        }
    }

    fn see_message(&mut self, step: Step, seen: &Seen<'_>, time: Option<Time>, thread: u32) {
        let at = self.message(seen.value(Element::Id), thread);
        let arrival = &mut self.arrivals[at as usize];
        if !arrival.envelope.is_known() {
            arrival.envelope = envelope(seen);
        }
        match step {
            Step::Arrived => {
                (arrival.arrived, arrival.thread) = (time, thread);
                self.begun += 1;
                self.forget(thread);
            }
            Step::Unexpected => arrival.unexpected = time,
            Step::Taken => {
                arrival.taken = time;
                self.forget(thread);
                self.threads.entry(thread).or_default().taken = Some(at);
            }
            _ => {
                arrival.matched = time;
                if let Some(removed) = self.threads.entry(thread).or_default().removed.take() {
                    self.link(removed, at);
                }
            }
        }
    }

    /// Handles the protocol of a request, which ibex reports when the rendezvous request leaves.
    pub(crate) fn see_protocol(&mut self, seen: &Seen<'_>, time: Option<Time>, thread: u32) {
        let (message, bytes) = (seen.value(Element::Message), seen.value(Element::Bytes));
        let route = route(seen);
        match self.numbered(seen.value(Element::Id), message != 0, thread) {
            Request::Send(at) => {
                let sent = &mut self.sends[at as usize];
                sent.route = route;
                if sent.side.begun.is_none() && route.is_rendezvous() {
                    // A second event comes if the receiver has asked for copies.
                    sent.side.announced = sent.side.announced.or(time);
                }
                if sent.envelope.is_known() {
                    sent.envelope.bytes = bytes;
                }
            }
            Request::Receive(at) => {
                let posted = &mut self.posted[at as usize];
                (posted.protocol, posted.reason) = (route.protocol, route.reason);
                if message != 0 {
                    let found = self.message(message, thread);
                    // The event names both, so it overrides an earlier match.
                    if self.posted[at as usize].message != Some(found) {
                        self.part(at, found);
                        self.posted[at as usize].message = Some(found);
                        self.arrivals[found as usize].request = Some(at);
                    }
                    self.probed.retain(|probed| *probed != found);
                    let arrival = &mut self.arrivals[found as usize];
                    if arrival.envelope.is_known() {
                        arrival.envelope.bytes = bytes;
                    }
                }
            }
        }
    }

    fn request(&mut self, seen: &Seen<'_>, thread: u32) -> Request {
        let is_receive = seen.value(Element::Operation) != 0;
        let request = self.numbered(seen.value(Element::Id), is_receive, thread);
        let known = match request {
            Request::Send(at) => &mut self.sends[at as usize].envelope,
            Request::Receive(at) => &mut self.posted[at as usize].envelope,
        };
        if !known.is_known() {
            *known = envelope(seen);
        }
        request
    }

    /// Returns the request of this number; `is_receive` is for a new one.
    fn numbered(&mut self, id: u64, is_receive: bool, thread: u32) -> Request {
        let place = self.requests.of(id);
        if *place == 0 {
            *place = if is_receive {
                let side = ReceiveSide { request: id, thread, ..ReceiveSide::default() };
                self.posted.push(Posted { side, ..Posted::default() });
                self.posted.len() as u32 * 2 - 1
            } else {
                let side = SendSide { request: id, thread, ..SendSide::default() };
                self.sends.push(Sent { envelope: Envelope::UNKNOWN, side, route: Route::default() });
                self.sends.len() as u32 * 2
            };
        }
        if place.is_multiple_of(2) { Request::Send(*place / 2 - 1) } else { Request::Receive(*place / 2) }
    }

    fn message(&mut self, id: u64, thread: u32) -> u32 {
        let place = self.messages.of(id);
        if *place == 0 {
            self.arrivals.push(Arrival { id, thread, ..Arrival::default() });
            *place = self.arrivals.len() as u32;
        }
        *place - 1
    }

    /// Drops the pending event of a thread, because an unrelated event follows.
    fn forget(&mut self, thread: u32) {
        let last = std::mem::take(self.threads.entry(thread).or_default());
        // A matched probe has dequeued it, or an event is lost; unless another thread has received it already.
        self.probed.extend(last.taken.filter(|taken| self.arrivals[*taken as usize].request.is_none()));
    }

    /// Forgets pending events: while the recording is stopped, messages may be received.
    pub(crate) fn interrupt(&mut self) {
        self.threads.clear();
        self.probed.clear();
    }

    /// Matches a receive with an unexpected message: the one just dequeued, or one that a matched probe has dequeued.
    fn match_unexpected(&mut self, at: u32, thread: u32) {
        if let Some(taken) = self.threads.entry(thread).or_default().taken.take() {
            return self.link(at, taken);
        }
        if self.posted[at as usize].message.is_some() {
            return;
        }
        let receive = self.posted[at as usize].envelope;
        let fits = |probed: &u32| receive.takes(&self.arrivals[*probed as usize].envelope);
        if let Some(place) = self.probed.iter().position(fits) {
            let message = self.probed.remove(place);
            self.link(at, message);
        }
    }

    fn link(&mut self, request: u32, message: u32) {
        let (posted, arrival) = (&self.posted[request as usize], &self.arrivals[message as usize]);
        if posted.message == Some(message) {
            return;
        }
        let is_free = posted.message.is_none() && arrival.request.is_none();
        if is_free && posted.envelope.takes(&arrival.envelope) {
            self.posted[request as usize].message = Some(message);
            self.arrivals[message as usize].request = Some(request);
        } else {
            self.torn += 1;
        }
    }

    fn part(&mut self, request: u32, message: u32) {
        let was = self.posted[request as usize].message.take();
        let had = self.arrivals[message as usize].request.take();
        if let Some(was) = was {
            self.arrivals[was as usize].request = None;
        }
        if let Some(had) = had {
            self.posted[had as usize].message = None;
        }
        self.torn += u64::from(was.is_some() || had.is_some());
    }

    /// Returns the number of sends and messages without a known begin.
    pub(crate) fn headless(&self) -> usize {
        (self.sends.len() + self.arrivals.len()).saturating_sub(self.begun)
    }

    pub(crate) fn cancelled(&self) -> Vec<ReceiveSide> {
        self.posted.iter().map(|posted| posted.side).filter(|side| side.cancelled.is_some()).collect()
    }

    /// Returns the sent and received halves, and the number left out because their processes are unknown.
    pub(crate) fn halves(mut self, calls: &Calls) -> (Vec<Sent>, Vec<Received>, u64) {
        let all = self.sends.len();
        self.sends.retain(|sent| sent.envelope.is_known());
        let mut unknown = all - self.sends.len();
        let mut received = Vec::with_capacity(self.arrivals.len());
        for arrival in &self.arrivals {
            let posted = arrival.request.map(|at| &self.posted[at as usize]);
            if arrival.envelope.is_known() {
                received.push(arrival.received(posted, calls));
            } else {
                unknown += 1;
            }
        }
        // Receives whose messages' events are lost.
        for posted in self.posted.iter().filter(|posted| posted.message.is_none() && posted.side.begun.is_some()) {
            if posted.envelope.is_known() && posted.envelope.is_certain() {
                let nothing = Arrival { envelope: posted.envelope, thread: posted.side.thread, ..Arrival::default() };
                received.push(nothing.received(Some(posted), calls));
            } else {
                unknown += 1;
            }
        }
        (self.sends, received, unknown as u64)
    }
}

impl Arrival {
    /// Returns the call that waited for it: the probe during which it arrived, or the call that reported the receive.
    fn awaited_by(&self, posted: &Posted, calls: &Calls) -> Option<u32> {
        let has_seen = |probe: &u32| self.arrived.is_some_and(|arrived| calls.contains(*probe, arrived));
        posted.probe.filter(has_seen).or(posted.side.call)
    }

    fn received(&self, posted: Option<&Posted>, calls: &Calls) -> Received {
        let side = ReceiveSide {
            message: self.id,
            arrived: self.arrived,
            unexpected: self.unexpected,
            taken: self.taken,
            matched: self.matched.or(posted.and_then(|of| of.side.matched.or(of.side.removed).or(self.taken))),
            call: posted.and_then(|posted| self.awaited_by(posted, calls)),
            ..posted.map_or(ReceiveSide { thread: self.thread, ..ReceiveSide::default() }, |posted| posted.side)
        };
        let (protocol, reason) = posted.map_or((None, None), |posted| (posted.protocol, posted.reason));
        Received { envelope: self.envelope, side, protocol, reason }
    }
}

fn envelope(seen: &Seen<'_>) -> Envelope {
    Envelope {
        context: seen.unsigned(Element::Context),
        peer: seen.signed(Element::Peer),
        tag: seen.value(Element::Tag).cast_signed(),
        ignore: seen.value(Element::Ignore),
        bytes: seen.value(Element::Bytes),
    }
}

fn route(seen: &Seen<'_>) -> Route {
    Route {
        protocol: Protocol::ALL.get(seen.value(Element::Protocol) as usize).copied(),
        reason: Reason::ALL.get(seen.value(Element::Reason) as usize).copied(),
        port: Some(seen.unsigned(Element::Port)).filter(|port| *port != u32::MAX),
        queue_pair: seen.unsigned(Element::QueuePair),
        rails: seen.unsigned(Element::Rails),
    }
}
