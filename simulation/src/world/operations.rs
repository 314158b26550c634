// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operations of a program: begins them in their process, and notes in the model what they wish and get. Grade:
//! test. Threads: one.

use ibex::messenger::matching::{ANY_SOURCE, ANY_TAG};
use ibex::messenger::receive::probe::Found;
use ibex::messenger::request::Outcome;

use super::{Probed, Receive, World, content};
use crate::history::Step;
use crate::model::{Got, Sent, Wish};
use crate::process::{Ended, Handle, Wanted};
use crate::program::{Fault, Mode, Operation};

impl World {
    pub(super) fn begin(&mut self, index: usize) {
        let operation = self.program.operations[index];
        self.now += 1;
        self.schedule.history.note(Step::Began { at: operation.at(), operation: index as u32 });
        match operation {
            Operation::Send { persistent: true, .. } | Operation::Receive { persistent: true, .. } => {
                self.make_persistent(operation);
            }
            Operation::Send { from, to, context, tag, length, mode, gaps, .. } => {
                self.send((from, to), (context, tag), length, (mode, gaps));
            }
            Operation::Receive { at, from, context, tag, room, gaps, .. } => {
                let wanted = self.wanted(context, from, tag);
                self.receive(at, wanted, (room, gaps));
            }
            Operation::Start { at, which } => self.start_persistent(at, which),
            Operation::Free { at, which } => self.free_persistent(at, which),
            Operation::Renew { context, .. } => self.renew(context),
            Operation::Probe { at, from, context, tag, takes } => {
                let wanted = self.wanted(context, from, tag);
                self.probe(at, wanted, takes);
            }
            Operation::ReceiveProbed { at, room, gaps } => self.receive_probed(at, Some((room, gaps))),
            Operation::Cancel { at, which } => self.cancel_one(at, which),
            Operation::Settle { .. } => self.rest(),
            Operation::Part { at, other, fails } => self.part(at, other, fails),
            Operation::Refuse { at, rail, refuses } => {
                let place = self.place(at, rail);
                self.memory.refuse(place, refuses);
                self.schedule.fabric.refuse_slots(place, refuses);
            }
            Operation::Link { at, rail, up, noticed } => {
                self.schedule.fabric.set_link(self.place(at, rail), up);
                if noticed {
                    self.notice(at as usize);
                    self.process(at).check_homes();
                }
            }
            Operation::Fail { .. } if self.schedule.has_failed || self.schedule.failing.is_some() => {}
            Operation::Fail { at, queue_pair, fault: Fault::Post } => {
                self.schedule.fabric.break_post(self.place(at, queue_pair % self.program.rails));
                (self.schedule.has_failed, self.is_broken) = (true, true);
            }
            Operation::Fail { at, queue_pair, fault: Fault::Connect } => {
                self.schedule.fabric.refuse_queue_pair(self.place(at, queue_pair % self.program.rails));
                self.schedule.has_failed = true;
            }
            Operation::Fail { queue_pair, fault, .. } => {
                self.schedule.failing = Some((queue_pair, fault == Fault::Reads));
            }
            Operation::Stop { at, steps } => self.schedule.stopped[at as usize] = steps,
            Operation::Die { at } => {
                self.model.gone.push(at as usize);
                self.note_matched();
                self.processes[at as usize] = None;
                self.schedule.left[at as usize].clear();
                self.probed[at as usize].clear();
                self.persistent[at as usize].clear();
            }
        }
        if let Some(process) = &mut self.processes[operation.at() as usize] {
            process.wind();
        }
        self.look(operation.at() as usize);
    }

    /// Returns the number in the fabric of a port.
    pub(super) fn place(&self, at: u32, rail: usize) -> usize {
        at as usize * self.program.rails + rail
    }

    pub(super) fn send(&mut self, to: (u32, u32), of: (u32, i32), length: usize, (mode, gaps): (Mode, bool)) {
        let Some((message, bytes)) = self.begin_send(to, of, length, mode) else { return };
        let ((from, to), (context, tag)) = (to, of);
        let (_, number) = self.communicator(context);
        let process = self.process(from);
        match process.send(2 * message, (to, number, tag), mode, (&bytes, gaps)) {
            Some(send) => _ = self.sends.insert(message, (from, send)),
            None => self.model.sent[message].done = Some(self.now),
        }
    }

    /// Notes a send that begins. Returns its index and its data; `None` if the attached buffer has no room.
    pub(super) fn begin_send(
        &mut self,
        (from, to): (u32, u32),
        (context, tag): (u32, i32),
        length: usize,
        mode: Mode,
    ) -> Option<(usize, Vec<u8>)> {
        self.meet(from, to);
        let (comm, _) = self.communicator(context);
        if mode == Mode::Buffered && !self.process(from).attach(length) {
            self.schedule.history.note(Step::NoBuffer { at: from });
            return None;
        }
        let envelope = (to as usize, comm, from as usize, tag);
        let is_ready = mode == Mode::Ready && self.is_receive_certain(envelope);
        let message = self.model.sent.len();
        if is_ready {
            self.ready.insert(message, self.now);
        }
        self.model.sent.push(Sent {
            from: from as usize,
            to: to as usize,
            comm,
            tag,
            length,
            is_synchronous: mode == Mode::Synchronous,
            done: (mode == Mode::Buffered).then_some(self.now),
        });
        Some((message, content(message, length)))
    }

    /// Whether a receive of exactly these messages is posted for certain: more of them were posted than messages sent.
    fn is_receive_certain(&self, (to, comm, from, tag): (usize, usize, usize, i32)) -> bool {
        let is_for = |wish: &&Wish| (wish.at, wish.comm, wish.from, wish.tag) == (to, comm, Some(from), Some(tag));
        let posted = self.model.wishes.iter().filter(is_for).filter(|wish| wish.takes && wish.got != Got::Cancelled);
        let is_such = |sent: &&Sent| (sent.to, sent.comm, sent.from, sent.tag) == (to, comm, from, tag);
        posted.count() > self.model.sent.iter().filter(is_such).count()
    }

    pub(super) fn wish(&mut self, at: u32, wanted: Wanted, takes: bool, got: Got) -> usize {
        self.model.wishes.push(Wish {
            at: at as usize,
            comm: self.communicators.with_number(wanted.context),
            from: (wanted.source != ANY_SOURCE).then_some(wanted.source as usize),
            tag: (wanted.tag != ANY_TAG).then_some(wanted.tag),
            made: self.now,
            takes,
            got,
        });
        self.model.wishes.len() - 1
    }

    pub(super) fn receive(&mut self, at: u32, wanted: Wanted, (room, gaps): (usize, bool)) {
        let wish = self.wish(at, wanted, true, Got::Nothing);
        let handle = self.process(at).receive(2 * wish + 1, wanted, (room, gaps));
        self.receives.insert(wish, Receive { at, handle, room, gaps, bytes: None, has_failed: false });
    }

    fn probe(&mut self, at: u32, wanted: Wanted, takes: bool) {
        let Some(Found { envelope, length, message }) = self.process(at).probe(wanted, takes) else { return };
        let (from, tag) = (envelope.source() as u32, envelope.tag());
        let wish = self.wish(at, wanted, takes, Got::Message { source: from as usize, tag, length });
        self.schedule.history.note(Step::Received { at, wish: wish as u32, from, length: length as u32 });
        if let Some(message) = message {
            self.probed[at as usize].push_back(Probed { wish, wanted, length, message });
        }
    }

    /// Receives the oldest message that a probe took out, into this room, or else one of its length.
    pub(super) fn receive_probed(&mut self, at: u32, room: Option<(usize, bool)>) {
        let Some(Probed { wish, wanted, length, message }) = self.probed[at as usize].pop_front() else { return };
        let (room, gaps) = room.unwrap_or((length, false));
        let handle = self.process(at).receive_probed(2 * wish + 1, wanted, message, (room, gaps));
        self.receives.insert(wish, Receive { at, handle, room, gaps, bytes: None, has_failed: false });
    }

    fn cancel_one(&mut self, at: u32, which: usize) {
        // The receive of a ready send stays, and one that a send in a freed communicator needs to end.
        let is_needed = |wish: &Wish| {
            let of = |sent: &Sent| (sent.to, sent.comm, Some(sent.from), Some(sent.tag));
            let mut ready = self.ready.keys().map(|message| of(&self.model.sent[*message]));
            let is_freed = !self.communicators.is_present(wish.comm);
            is_freed || ready.any(|envelope| envelope == (wish.at, wish.comm, wish.from, wish.tag))
        };
        let open = self.receives.iter().filter(|(_, receive)| receive.at == at && receive.bytes.is_none());
        let open = open.filter(|(wish, _)| !is_needed(&self.model.wishes[**wish]));
        let open: Vec<Handle> = open.map(|(_, receive)| receive.handle).collect();
        if let Some(handle) = open.get(which % open.len().max(1)) {
            self.process(at).cancel(*handle);
        }
    }

    /// Notes that a request has failed, which must have needed a lost peer.
    fn note_failed(&mut self, (at, number): (u32, usize), outcome: Option<Outcome>, bytes: Box<[u8]>) {
        let index = number / 2;
        self.schedule.history.note(Step::Failed { at, number: number as u32 });
        let (from, to) = if number.is_multiple_of(2) {
            self.sends.remove(&index).expect("a send ends once");
            (at as usize, self.model.sent[index].to)
        } else {
            let receive = self.receives.get_mut(&index).expect("a receive that has begun");
            assert!(receive.bytes.replace(bytes).is_none(), "a receive ends once");
            receive.has_failed = true;
            let wish = &mut self.model.wishes[index];
            wish.got = outcome.map_or(Got::Cancelled, |Outcome { source, tag, length, .. }| Got::Message {
                source: source as usize,
                tag,
                length,
            });
            let from = outcome.map(|outcome| outcome.source as usize).or(wish.from);
            let from = from.expect("a receive from any source fails only with its message");
            let is_early = |outlived: &usize| wish.made <= *outlived;
            let may_match = wish.from.is_some() || self.outlived.get(&(at as usize, from)).is_none_or(is_early);
            assert!(may_match, "receive {index} from any source gets a message of a peer that was lost before");
            (from, at as usize)
        };
        assert!(self.model.may_lose(from, to), "request {number} of process {at} fails, and its peer is not lost");
    }

    /// Notes what has ended in a process.
    pub(super) fn look(&mut self, at: usize) {
        self.note_lost(at);
        let Some(process) = &mut self.processes[at] else { return };
        for Ended { number, outcome, bytes, has_failed } in process.take_ended() {
            let (at, index) = (at as u32, number / 2);
            if has_failed {
                self.note_failed((at, number), outcome, bytes);
                continue;
            }
            if number.is_multiple_of(2) {
                self.schedule.history.note(Step::Sent { at, message: index as u32 });
                self.model.sent[index].done = Some(self.now);
                self.sends.remove(&index).expect("a send ends once");
                continue;
            }
            let receive = self.receives.get_mut(&index).expect("a receive that has begun");
            assert!(receive.bytes.replace(bytes).is_none(), "a receive ends once");
            let known = &mut self.model.wishes[index].got;
            let got = outcome.map_or(Got::Cancelled, |outcome| {
                assert_eq!(outcome.is_truncated, outcome.length > receive.room);
                let (source, wish) = (outcome.source as usize, index as u32);
                let length = outcome.length as u32;
                self.schedule.history.note(Step::Received { at, wish, from: source as u32, length });
                Got::Message { source, tag: outcome.tag, length: outcome.length }
            });
            if got == Got::Cancelled {
                self.schedule.history.note(Step::Cancelled { at, wish: index as u32 });
            }
            assert!(
                *known == Got::Nothing || *known == got,
                "a probe has found {known:?}, and its receive got {got:?}"
            );
            *known = got;
        }
        if let Some(process) = &self.processes[at]
            && let Some(outlived) = process.outlived()
        {
            for peer in outlived {
                self.outlived.entry((at, peer as usize)).or_insert(self.now);
            }
        }
    }
}
