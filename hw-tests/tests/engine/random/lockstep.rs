// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a program on the model and on a device, step by step, and compares what they report.
//!
//! Compared for each queue pair, apart for requests and for received messages: the identifiers and statuses in their
//! order; of a message its length, immediate data and bytes; the memory that was written. The last step posts to each
//! queue pair, so that its state shows. Left open by the InfiniBand specification, and so not compared:
//! - The order of completions of different queues, and the slot that a message fills.
//!   Two queue pairs never compete for the last receive, and a part of an area belongs to one queue pair.
//! - Whether a request without a signal has ended, if no later one has completed: it may still be flushed. So
//!   each series of posts ends with a signal, which also tells when the device is at rest.
//! - Fields of a failed completion but its identifier, queue pair and status (`ibv_poll_cq(3)`), and completions that
//!   are not polled before their queue pair is destroyed (`ibv_destroy_qp(3)`). So all are.
//! - What becomes of requests behind a read that may not write to its own memory. So there are none. An atomic
//!   that fails so may have changed the peer's memory. So none does.
//! - Whether a receive is lost with a connected queue pair that is reset or destroyed. So the port has none,
//!   or the queue pair is in error.
//! - Which of two faults is reported. So a request has one, and a peer that does not answer is one.
//! - The number of requests that a queue pair takes: at least as many as it was made for.
//! - How far one side of a connection comes while the other stops it. So they take turns.
//!
//! Called by `mod.rs`. Grade: test.

use super::Hardware;
use super::adapters::{COUNTERS, DEPTH, Device, Model, Port as _, SINK, SLOTS, TARGET};
use super::program::{CONNECTIONS, Fault, Kind, PORTS, QUEUE_PAIRS, Request, Step};
use super::side::{REQUESTS, Seen, Side, port_of};
use ibex_ffi::verbs::{Access, Path, Status, TakesWork, Transition};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Most requests that a program leaves at a queue pair. Only [`Step::Fill`] goes on until the adapter refuses one.
const MOST: usize = DEPTH - 4;
const FULL: usize = 4 * DEPTH;

/// What a run knows of a queue pair.
#[derive(Default)]
struct End {
    /// In error, or destroyed.
    is_broken: bool,
    /// Requests that wait: their identifiers, and whether they are sends.
    left: VecDeque<(u64, bool)>,
    /// Requests that have ended on the model after its last completion; the device may still flush them.
    silent: Vec<u64>,
    /// Since the network was at rest: the last request, and the number of sends.
    posted: Option<Request>,
    sends: usize,
}

pub(super) struct Lockstep<'a> {
    hardware: &'a Hardware,
    /// Time without a completion after which one counts as missing.
    quiet: Duration,
    model: Side<Model>,
    device: Side<Device>,
    ends: [End; QUEUE_PAIRS],
    /// Rights of the queue pairs of each connection.
    access: [Access; CONNECTIONS.len()],
    last: u64,
    /// Number of receives that were posted to each port, and of those that have ended.
    posted: [u32; PORTS],
    received: [u32; PORTS],
    completions: usize,
}

/// Runs a program. Returns the number of completions, or the difference.
pub(super) fn run(steps: &[Step], hardware: &Hardware, quiet: Duration) -> Result<usize, String> {
    let mut run = Lockstep {
        hardware,
        quiet,
        model: Side::new(Model::all()),
        device: Side::new(Device::all(&hardware.context)),
        ends: Default::default(),
        access: [Access::empty(); CONNECTIONS.len()],
        last: REQUESTS,
        posted: Default::default(),
        received: Default::default(),
        completions: 0,
    };
    (0..CONNECTIONS.len()).for_each(|connection| run.connect(connection, Access::empty()));
    for step in steps {
        run.step(*step)?;
    }
    for qp in 0..QUEUE_PAIRS {
        run.settle()?;
        run.signal(qp);
    }
    run.settle().map(|()| run.completions)
}

impl End {
    /// Most requests that the adapter may count.
    fn count(&self) -> usize {
        self.left.len() + self.silent.len()
    }
}

impl Lockstep<'_> {
    fn connect(&mut self, connection: usize, lacks: Access) {
        let atomics = if self.hardware.has_atomics { Access::empty() } else { Access::REMOTE_ATOMIC };
        let (access, ends) = (Access::RIGHTS.difference(lacks | atomics), [2 * connection, 2 * connection + 1]);
        self.access[connection] = access;
        self.last += 1;
        let psn = self.last as u32;
        let Hardware { path, ack_timeout, rd_atomic: max_rd_atomic, .. } = *self.hardware;
        let (path, rnr_retry) = (Path { psn, ..path }, 7);
        let to = Transition { ack_timeout, retry_count: 3, rnr_retry, max_rd_atomic, psn };
        self.model.connect(ends, access, &path, to);
        self.device.connect(ends, access, &path, to);
        for end in ends {
            self.ends[end] = End::default();
        }
    }

    fn lives(&self, qp: usize) -> bool {
        self.model.qps[qp].is_some()
    }

    fn step(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Post(qp, request) => return self.post(qp, request),
            Step::Poll(port) => {
                self.model.poll(port);
                self.device.poll(port);
                return Ok(());
            }
            _ => self.settle()?,
        }
        match step {
            Step::Receive(port, count) => self.receive(port, count),
            Step::Fail(qp) => self.fail(qp),
            Step::Destroy(qp) => {
                self.leave(qp, false)?;
                (self.model.qps[qp], self.device.qps[qp]) = (None, None);
                self.ends[qp] = End { is_broken: true, ..End::default() };
            }
            Step::Reconnect(connection, lacks) if self.lives(2 * connection) && self.lives(2 * connection + 1) => {
                // After a reset, soft-RoCE executes requests that were posted before it as empty RDMA writes
                // (`rxe_qp.c`, `rxe_qp_reset`: the requester stays behind the queue's consumer).
                self.leave(2 * connection, self.hardware.is_soft_roce)?;
                self.leave(2 * connection + 1, self.hardware.is_soft_roce)?;
                self.connect(connection, lacks);
            }
            Step::Fill(qp) if self.lives(qp) => self.fill(qp)?,
            _ => {}
        }
        self.settle()
    }

    fn fail(&mut self, qp: usize) {
        if let (Some(of_model), Some(of_device)) = (&mut self.model.qps[qp], &mut self.device.qps[qp]) {
            of_model.fail().and_then(|()| of_device.fail()).expect("a change of its state");
            self.ends[qp].is_broken = true;
        }
    }

    /// Puts a queue pair that is to be reset or destroyed in error, if its port has receives to lose, or it must.
    fn leave(&mut self, qp: usize, must: bool) -> Result<(), String> {
        if must || self.free(port_of(qp)) > 0 {
            self.fail(qp);
        }
        self.settle()
    }

    /// Number of receives that wait at a port.
    fn free(&self, port: usize) -> usize {
        (self.posted[port] - self.received[port]) as usize
    }

    /// The queue pairs that send to a port.
    fn senders(port: usize) -> impl Iterator<Item = usize> {
        (0..QUEUE_PAIRS).filter(move |qp| port_of(qp ^ 1) == port)
    }

    fn post(&mut self, qp: usize, mut request: Request) -> Result<(), String> {
        let (hardware, peer, right) = (self.hardware, port_of(qp ^ 1), request.kind.right());
        if right == Access::REMOTE_ATOMIC && !hardware.has_atomics || self.ends[qp].count() >= MOST {
            return Ok(());
        }
        let Some(handle) = &self.device.qps[qp] else { return Ok(()) };
        let is_long = request.length > handle.max_inline();
        request.kind = match request.kind {
            Kind::SendOfTwo if hardware.spans < 2 => Kind::Send,
            Kind::SendInline if is_long => Kind::Send,
            Kind::WriteInline if is_long => Kind::Write,
            kind => kind,
        };
        let is_read = request.kind == Kind::Read;
        if !self.access[qp / 2].contains(right) || is_read && self.ends[qp ^ 1].is_broken {
            request.fault = None;
        }
        let is_local = matches!(request.fault, Some(Fault::LocalRange | Fault::LocalRight));
        if is_local {
            request.length = request.length.max(2);
        }
        let rivals: usize = Self::senders(peer).filter(|other| *other != qp).map(|other| self.ends[other].sends).sum();
        let compete = request.kind.is_send() && rivals > 0 && rivals + self.ends[qp].sends >= self.free(peer);
        // Soft-RoCE flushes what was posted before a request that may not use its own memory, executed or not, and it
        // refuses the post of an atomic that is not aligned.
        if self.ends[qp ^ 1].posted.is_some() || compete || is_local && hardware.is_soft_roce {
            self.settle()?;
        }
        let is_odd = is_local && !self.ends[qp].left.is_empty() || request.fault == Some(Fault::Unaligned);
        if !hardware.is_soft_roce || !is_odd {
            assert!(self.submit(qp, request), "queue pair {qp} is full");
        }
        if is_local && is_read { self.settle() } else { Ok(()) }
    }

    /// Posts to both, unless the device's queue pair is full. The model takes any number: the transport counts.
    fn submit(&mut self, qp: usize, request: Request) -> bool {
        let (id, is_send) = (self.last + 1, request.kind.is_send());
        match self.device.post(qp, id, request) {
            Err(full) if full.is_full() => return false,
            outcome => outcome.expect("posted"),
        }
        self.model.post(qp, id, request).expect("posted");
        self.last = id;
        let end = &mut self.ends[qp];
        end.left.push_back((id, is_send));
        end.sends += usize::from(is_send);
        end.posted = Some(request);
        true
    }

    /// Posts a request that moves nothing, and has a signal. It needs a right that the connection has.
    fn signal(&mut self, qp: usize) {
        let has_write = self.access[qp / 2].contains(Access::REMOTE_WRITE);
        let kind = if has_write { Kind::Write } else { Kind::Read };
        if self.lives(qp) {
            self.submit(qp, Request { kind, length: 0, signalled: true, fault: None });
        }
    }

    fn receive(&mut self, port: usize, count: u32) {
        let sends = |qp: usize| self.ends[qp].left.iter().filter(|(_, is_send)| *is_send).count() as u32;
        let waiting: Vec<u32> = Self::senders(port).map(sends).filter(|sends| *sends > 0).collect();
        let count = if waiting.len() > 1 { count.max(waiting.iter().sum()) } else { count };
        let first = self.posted[port];
        if first + count <= SLOTS {
            let slots: Vec<u32> = (first..first + count).collect();
            self.model.ports[port].receive(&slots);
            self.device.ports[port].receive(&slots);
            self.posted[port] += count;
        }
    }

    fn fill(&mut self, qp: usize) -> Result<(), String> {
        let request = Request { kind: Kind::Send, length: 8, signalled: true, fault: None };
        let mut taken = self.ends[qp].count();
        while taken < FULL && self.submit(qp, request) {
            taken += 1;
        }
        self.settle()?;
        if self.ends[qp].count() == taken && !(DEPTH..FULL).contains(&taken) {
            return Err(format!("queue pair {qp} takes {taken} requests, and was made for {DEPTH}"));
        }
        Ok(())
    }

    /// Lets both come to rest, and compares.
    fn settle(&mut self) -> Result<(), String> {
        for qp in 0..QUEUE_PAIRS {
            if self.ends[qp].posted.is_some_and(|last| !last.signalled) {
                self.signal(qp);
            }
        }
        let mut before = usize::MAX;
        while self.model.count() != before {
            before = self.model.count();
            self.model.poll_all();
        }
        let (mut last, mut count) = (Instant::now(), 0);
        self.device.poll_all();
        while let Some((difference, is_missing)) = self.difference() {
            if !is_missing || last.elapsed() > self.quiet {
                return Err(difference);
            }
            self.device.poll_all();
            if count < self.device.count() {
                (last, count) = (Instant::now(), self.device.count());
            }
            // The kernel's side of a software adapter needs a processor too.
            std::thread::yield_now();
        }
        self.completions += before;
        for (qp, [requests, receives]) in self.model.seen.iter().enumerate() {
            self.received[port_of(qp)] += receives.len() as u32;
            for ended in requests {
                self.ends[qp].silent.clear();
                while self.ends[qp].left.pop_front().is_some_and(|(id, _)| id != ended.id) {}
                self.ends[qp].is_broken |= ended.status != Status::SUCCESS;
                let is_of_both = [Status::REMOTE_ACCESS, Status::REMOTE_INVALID_REQUEST].contains(&ended.status);
                self.ends[qp ^ 1].is_broken |= is_of_both;
            }
        }
        for (qp, end) in self.ends.iter_mut().enumerate() {
            let ended = end.left.len() - self.model.ports[0].waiting(qp);
            end.silent.extend(end.left.drain(..ended).map(|(id, _)| id));
            (end.posted, end.sends) = (None, 0);
        }
        self.model.seen.iter_mut().chain(&mut self.device.seen).flatten().for_each(Vec::clear);
        Ok(())
    }

    /// Returns the first difference, and whether the device may only be late.
    fn difference(&self) -> Option<(String, bool)> {
        for (qp, end) in self.ends.iter().enumerate() {
            for (of_model, of_device) in self.model.seen[qp].iter().zip(&self.device.seen[qp]) {
                let is_open = |seen: &Seen| seen.status == Status::FLUSHED && end.silent.contains(&seen.id);
                let (mut of_model, mut of_device) = (of_model.iter(), of_device.iter().filter(|seen| !is_open(seen)));
                loop {
                    match (of_model.next(), of_device.next()) {
                        (None, None) => break,
                        (Some(a), Some(b)) if a == b || self.hardware.is_soft_roce && is_known(a, b) => {}
                        (model, device) => {
                            let difference = format!("queue pair {qp}: {model:x?}; the device: {device:x?}");
                            return Some((difference, device.is_none()));
                        }
                    }
                }
            }
        }
        let mut posted = (0..QUEUE_PAIRS).filter(|qp| self.ends[*qp].posted.is_some());
        posted.find_map(|qp| self.other_bytes(qp)).map(|difference| (difference, true))
    }

    /// Returns the first difference of a queue pair's parts of areas. No completion may tell that the device is ready.
    fn other_bytes(&self, qp: usize) -> Option<String> {
        let (here, there) = (port_of(qp), port_of(qp ^ 1));
        [(here, SINK), (there, TARGET), (there, COUNTERS)].into_iter().find_map(|(port, area)| {
            let (model, device) = (self.model.ports[port].read(area, qp), self.device.ports[port].read(area, qp));
            let at = model.iter().zip(&device).position(|(a, b)| a != b)?;
            let (model, device) = (model[at], device[at]);
            Some(format!("queue pair {qp}: byte {at} of area {area} is {model}; the device: {device}"))
        })
    }
}

/// Whether soft-RoCE is known to complete a request with the status of `device`, where the InfiniBand specification
/// (11.6.2) prescribes that of `model`.
fn is_known(model: &Seen, device: &Seen) -> bool {
    /// Statuses that ibex has no name for.
    const LOCAL_OPERATION: Status = Status(2);
    const REMOTE_OPERATION: Status = Status(11);
    // A message that is too long ends at both sides as if the receive were malformed: `rxe_resp.c`, `send_data_in`.
    // A request that may not read its own memory is flushed like those behind it: `rxe_req.c`, `rxe_requester`.
    let known = [
        (Status::LOCAL_LENGTH, LOCAL_OPERATION),
        (Status::REMOTE_INVALID_REQUEST, REMOTE_OPERATION),
        (Status::LOCAL_PROTECTION, Status::FLUSHED),
    ];
    model.id == device.id && known.contains(&(model.status, device.status))
}
