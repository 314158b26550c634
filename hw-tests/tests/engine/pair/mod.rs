// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two ports of one process on one device, named rank 0 (`a`) and rank 1 (`b`), with functions for tests.

use ibex::counters::COUNTERS;
use ibex::peer::PeerName;
use ibex::select::address::PortEntry;
use ibex::select::address::compact::CompactAddress;
use ibex::select::device::{PortChoice, survey};
use ibex::transport::WhenDiverted;
use ibex::transport::{Batch, Completion, EndpointId, Token};
use ibex::transport::{Directory, Port, Setup};
use ibex::transport::{Refused, Sent};
use ibex::tunables::Tunables;
use ibex_ffi::verbs::{Access, Arena, HugePages, LocalSpan, RemoteSpan, Status};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Time after which a wait counts as a hang; a slow emulated processor needs far less.
pub(crate) const PATIENCE: Duration = Duration::from_mins(3);

/// The port entries that both published, the lines they wrote, and the verbosity.
#[derive(Clone, Default)]
pub(crate) struct Published(Arc<Mutex<Vec<PortEntry>>>, Arc<Mutex<Vec<String>>>, u64);

impl Directory for Published {
    fn entry(&self, peer: PeerName, _port: u8) -> Option<PortEntry> {
        self.0.lock().unwrap().get(peer.rank as usize).copied()
    }

    fn host(&self, _peer: PeerName) -> String {
        "here".to_owned()
    }

    fn verbosity(&self) -> u64 {
        self.2
    }

    fn print(&self, line: &str) {
        self.1.lock().unwrap().push(line.to_owned());
    }
}

/// Bytes that differ by place and by `seed`.
pub(crate) fn pattern(seed: u32, len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(31).wrapping_add(seed.wrapping_mul(17)) ^ (i >> 8)) as u8).collect()
}

/// Slots of memory of a port, which its peer may use.
pub(crate) struct Memory {
    arena: Arena,
    len: usize,
}

impl Memory {
    pub(crate) fn new(port: &Port, len: usize, slots: usize) -> Self {
        let access = Access::RIGHTS;
        Memory { arena: Arena::with(&port.domain(), len, slots, access, HugePages::No).expect("memory"), len }
    }

    pub(crate) fn span(&self, slot: usize) -> LocalSpan {
        self.arena.span(slot).expect("a slot")
    }

    pub(crate) fn remote(&self, slot: usize) -> RemoteSpan {
        RemoteSpan { addr: self.span(slot).addr(), rkey: self.arena.rkey() }
    }

    pub(crate) fn write(&mut self, slot: usize, bytes: &[u8]) {
        self.arena.write(slot, bytes).expect("a slot");
    }

    pub(crate) fn read(&self, slot: usize) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        assert!(self.arena.read(slot, 0, &mut bytes));
        bytes
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Got {
    Message { tag: u8, bytes: Vec<u8>, from: Option<EndpointId> },
    Done { token: u64, outcome: Result<(), Status> },
    Failure,
}

pub(crate) fn received(events: &[Got]) -> Vec<(u8, Vec<u8>)> {
    let message = |event: &Got| match event {
        Got::Message { tag, bytes, .. } => Some((*tag, bytes.clone())),
        _ => None,
    };
    events.iter().filter_map(message).collect()
}

pub(crate) fn completed(events: &[Got]) -> Vec<(u64, Result<(), Status>)> {
    let done = |event: &Got| match event {
        Got::Done { token, outcome } => Some((*token, *outcome)),
        _ => None,
    };
    events.iter().filter_map(done).collect()
}

pub(crate) fn choice(tunables: &Tunables) -> PortChoice {
    let device = std::env::var("IBEX_DEVICE").expect("IBEX_DEVICE names the RDMA device to test on");
    let survey = survey(&Tunables { if_include: device.clone(), ..tunables.clone() });
    survey.ports.first().unwrap_or_else(|| panic!("{device}: {}", survey.complaint)).clone()
}

/// Opens the port once more, for `rank`, the next one without a published entry.
pub(crate) fn open(choice: &PortChoice, tunables: &Tunables, rank: u32, published: &Published) -> Port {
    let me = PeerName { job: 1, rank };
    let setup = Setup {
        index: 0,
        me,
        instance: None,
        processes: 1,
        ports: 1,
        receive_size: 8192,
        bounce_size: 4096,
        sleeps: false,
        directory: Box::new(Published(Arc::clone(&published.0), Arc::clone(&published.1), tunables.verbose)),
    };
    let port = Port::open(choice, tunables, setup).expect("a port");
    published.0.lock().unwrap().push(port.entry());
    port
}

/// Two ports that know each other and are not connected yet.
pub(crate) struct Pair {
    pub(crate) a: Port,
    b: Option<Port>,
    pub(crate) to_b: EndpointId,
    pub(crate) to_a: EndpointId,
    published: Published,
    choice: PortChoice,
    got_a: Vec<Got>,
    got_b: Vec<Got>,
}

impl Pair {
    pub(crate) fn open(tunables: &Tunables) -> Self {
        let (choice, published) = (choice(tunables), Published::default());
        let (mut a, mut b) = (open(&choice, tunables, 0, &published), open(&choice, tunables, 1, &published));
        let to_b = a.peer(PeerName { job: 1, rank: 1 }, 0);
        // A second endpoint first, so that the two sides have different ids for each other.
        b.peer(PeerName { job: 1, rank: 9 }, 0);
        let to_a = b.peer(PeerName { job: 1, rank: 0 }, 0);
        Pair { a, b: Some(b), to_b, to_a, published, choice, got_a: Vec::new(), got_b: Vec::new() }
    }

    pub(crate) fn b(&self) -> &Port {
        self.b.as_ref().expect("b has not ended")
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.published.1.lock().unwrap().clone()
    }

    pub(crate) fn choice(&self) -> &PortChoice {
        &self.choice
    }

    /// Replaces both published addresses by what their compact forms say.
    pub(crate) fn shorten_addresses(&self) {
        for entry in &mut *self.published.0.lock().unwrap() {
            let bytes = CompactAddress { entry: *entry, rank: 0 }.encode();
            *entry = CompactAddress::decode(&bytes).expect("it was just encoded").entry;
        }
    }

    /// Gives up the connection at `a`, which then meets `b` again.
    pub(crate) fn renew_a(&mut self) {
        self.a.forget(self.to_b);
        self.to_b = self.a.peer(PeerName { job: 1, rank: 1 }, 0);
    }

    /// Gives up the connection at both ends, which then know each other again.
    pub(crate) fn part(&mut self) {
        let b = self.b.as_mut().expect("b has not ended");
        b.forget(self.to_a);
        self.to_a = b.peer(PeerName { job: 1, rank: 0 }, 0);
        self.renew_a();
    }

    /// Polls `b` alone, as if the process of `a` were gone, until a line contains `words`; returns the events of `b`.
    pub(crate) fn until_b_says(&mut self, words: &str) -> Vec<Got> {
        self.until(Self::poll_b, |pair| pair.has_said(words));
        std::mem::take(&mut self.got_b)
    }

    pub(crate) fn has_said(&self, words: &str) -> bool {
        self.lines().iter().any(|line| line.contains(words))
    }

    /// Destroys b's queue pairs, as if its process had died.
    pub(crate) fn end_b(&mut self) {
        self.b = None;
    }

    /// Connects both by one message that is thrown away.
    pub(crate) fn connect(&mut self) {
        self.send_inline(0, b"hello", b"");
        self.until_b(|events| !received(events).is_empty());
    }

    /// Sends inline, or queues the message in ordinary memory.
    pub(crate) fn send_inline(&mut self, tag: u8, header: &[u8], payload: &[u8]) {
        inline_or_queued(&mut self.a, self.to_b, tag, header, payload);
    }

    pub(crate) fn send_inline_from_b(&mut self, tag: u8, header: &[u8], payload: &[u8]) {
        inline_or_queued(self.b.as_mut().expect("b has not ended"), self.to_a, tag, header, payload);
    }

    pub(crate) fn send(&mut self, tag: u8, spans: &[LocalSpan], token: u64) {
        if self.a.send(self.to_b, tag, spans, Token(token), false) == Ok(Sent::Busy) {
            self.a.queue_send(self.to_b, tag, spans, Token(token), WhenDiverted::Refuse).expect("taken");
        }
    }

    pub(crate) fn queue_bytes(&mut self, tag: u8, bytes: &[u8], token: u64) {
        self.a
            .queue_bytes(self.to_b, tag, (bytes.into(), bytes.len() as u32), Token(token), WhenDiverted::Refuse)
            .expect("taken");
    }

    pub(crate) fn put(&mut self, local: LocalSpan, remote: RemoteSpan, token: u64) {
        self.try_put(local, remote, token).expect("taken");
    }

    pub(crate) fn try_put(&mut self, local: LocalSpan, remote: RemoteSpan, token: u64) -> Result<(), Refused> {
        self.a.put(self.to_b, local, remote, Token(token))
    }

    pub(crate) fn put_inline(&mut self, bytes: &[u8], remote: RemoteSpan, token: u64) {
        self.a.put_inline(self.to_b, bytes.into(), remote, Token(token)).expect("taken");
    }

    pub(crate) fn until(&mut self, mut turn: impl FnMut(&mut Self), enough: impl Fn(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !enough(self) {
            assert!(
                Instant::now() < end,
                "a: {:?}; b: {} events; said: {:?}",
                self.got_a,
                self.got_b.len(),
                self.lines()
            );
            turn(self);
            // The kernel's side of a software adapter needs a processor too.
            std::thread::yield_now();
        }
    }

    /// Polls both until the events of `a` since the last call satisfy `enough`; returns them.
    pub(crate) fn until_a(&mut self, enough: impl Fn(&[Got]) -> bool) -> Vec<Got> {
        self.until(Self::poll, |pair| enough(&pair.got_a));
        std::mem::take(&mut self.got_a)
    }

    /// As [`Pair::until_a`], for `b`.
    pub(crate) fn until_b(&mut self, enough: impl Fn(&[Got]) -> bool) -> Vec<Got> {
        self.until(Self::poll, |pair| enough(&pair.got_b));
        std::mem::take(&mut self.got_b)
    }

    /// As [`Pair::until_b`], but calls `does` instead of polling `a`.
    pub(crate) fn until_b_while_a(
        &mut self,
        mut does: impl FnMut(&mut Port),
        enough: impl Fn(&[Got]) -> bool,
    ) -> Vec<Got> {
        let turn = |pair: &mut Self| {
            does(&mut pair.a);
            pair.poll_b();
        };
        self.until(turn, |pair| enough(&pair.got_b));
        std::mem::take(&mut self.got_b)
    }

    /// As [`Pair::until_a`], but polls `a` alone.
    pub(crate) fn until_a_alone(&mut self, enough: impl Fn(&[Got]) -> bool) -> Vec<Got> {
        self.until(Self::poll_a, |pair| enough(&pair.got_a));
        std::mem::take(&mut self.got_a)
    }

    pub(crate) fn count_a(&self, name: &str) -> u64 {
        count(&self.a, name)
    }

    pub(crate) fn count_b(&self, name: &str) -> u64 {
        count(self.b(), name)
    }

    fn poll(&mut self) {
        self.poll_a();
        self.poll_b();
    }

    fn poll_a(&mut self) {
        poll(&mut self.a, &mut self.got_a);
    }

    fn poll_b(&mut self) {
        if let Some(b) = &mut self.b {
            poll(b, &mut self.got_b);
        }
    }
}

fn inline_or_queued(port: &mut Port, to: EndpointId, tag: u8, header: &[u8], payload: &[u8]) {
    if port.send_inline(to, tag, header.into(), payload.into()) == Ok(Sent::Posted) {
        return;
    }
    let bytes = [header, payload].concat();
    let length = bytes.len() as u32;
    port.queue_bytes(to, tag, (bytes.into(), length), Token(0), WhenDiverted::Refuse).expect("taken");
}

pub(crate) fn poll(port: &mut Port, got: &mut Vec<Got>) {
    let mut batch = Batch::new();
    port.poll(&mut batch);
    for event in batch.completions() {
        match *event {
            Completion::Message { ref message, slot, immediate, qp_num } => {
                let (bytes, from) = (port.copy_received(slot, message.length()), port.sender(immediate, qp_num));
                got.push(Got::Message { tag: immediate.tag(), bytes, from });
            }
            Completion::Request { token, outcome, .. } => {
                got.push(Got::Done { token: token.0, outcome: outcome.map_err(|failed| failed.status) });
            }
            Completion::PeerFailed { .. } => got.push(Got::Failure),
            Completion::LinkChanged { .. } => {}
        }
    }
    port.release(&mut batch);
}

pub(crate) fn count(port: &Port, name: &str) -> u64 {
    let row = COUNTERS.iter().find(|row| row.name == name).expect("a count of this name");
    (row.read)(&port.counters())
}
