// SPDX-License-Identifier: MIT OR Apache-2.0
//! One side of a run: the queue pairs of the model or of the device, the posts to them, and what their completions say.
//! Called by `lockstep.rs`. Grade: test.

use super::adapters::{AREA, COUNTERS, Port, SHOWN, SINK, SOURCE, TARGET};
use super::program::{CONNECTIONS, Fault, Kind, PORTS, QUEUE_PAIRS, RECEIVE, Request};
use crate::pair::pattern;
use ibex_ffi::verbs::{
    Access, InlineSpan, LocalSpan, Path, PostError, Reception, RemoteSpan, Status, TakesWork, Transition, Work, Wr,
};

/// First identifier of a request; those of receives are their slots.
pub(super) const REQUESTS: u64 = 1 << 32;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    /// Identifier of a request; 0 of a receive.
    pub(super) id: u64,
    pub(super) status: Status,
    /// Immediate data, length and bytes of a message that was received.
    message: Option<(Option<u32>, u32, Vec<u8>)>,
}

pub(super) fn port_of(qp: usize) -> usize {
    CONNECTIONS[qp / 2][qp % 2]
}

pub(super) struct Side<P: Port> {
    pub(super) ports: Vec<P>,
    /// Queue pairs that were not destroyed, and the numbers of all.
    pub(super) qps: Vec<Option<P::QueuePair>>,
    numbers: Vec<u32>,
    /// Completions of the requests and of the receives of each queue pair.
    pub(super) seen: Vec<[Vec<Seen>; 2]>,
}

impl<P: Port> Side<P> {
    pub(super) fn new(mut ports: Vec<P>) -> Self {
        for (number, port) in ports.iter_mut().enumerate() {
            for seed in 0..2 * QUEUE_PAIRS {
                let area = if seed % 2 == 0 { SOURCE } else { SHOWN };
                port.write(area, seed / 2, &pattern((number << 8 | seed) as u32, AREA));
            }
        }
        let qps: Vec<_> = (0..QUEUE_PAIRS).map(|qp| Some(ports[port_of(qp)].queue_pair())).collect();
        let numbers = qps.iter().flatten().map(TakesWork::number).collect();
        Side { ports, qps, numbers, seen: vec![Default::default(); QUEUE_PAIRS] }
    }

    /// Connects two queue pairs that live.
    pub(super) fn connect(&mut self, ends: [usize; 2], access: Access, path: &Path, to: Transition) {
        let reception = Reception { rnr_timer: 1, max_dest_rd_atomic: to.max_rd_atomic };
        let mut each = |step: &dyn Fn(&mut P::QueuePair, Path) -> std::io::Result<()>| {
            for end in ends {
                let path = Path { qp_num: self.numbers[end ^ 1], ..*path };
                step(self.qps[end].as_mut().expect("it lives"), path).expect("a change of its state");
            }
        };
        each(&|qp, _| qp.reset());
        each(&|qp, path| qp.initialise(path.port, 0, access));
        each(&|qp, path| qp.ready_to_receive(&path, &reception));
        each(&|qp, _| qp.ready_to_send(&to));
    }

    pub(super) fn post(&mut self, qp: usize, id: u64, request: Request) -> Result<(), PostError> {
        let Request { kind, length, signalled, fault } = request;
        let (port, peer) = (&self.ports[port_of(qp)], &self.ports[port_of(qp ^ 1)]);
        let local = |area: usize| match fault {
            Some(Fault::LocalRange) => LocalSpan::simulated(1 << 63, length, port.span(area, qp).lkey()),
            Some(Fault::LocalRight) => port.span(SHOWN, qp).first(length),
            _ => port.span(area, qp).first(length),
        };
        let remote = |area: usize| {
            let area = if fault == Some(Fault::RemoteRight) { SINK } else { area };
            let (addr, rkey) = (peer.span(area, qp).addr() + id % 8 * 8, peer.rkey(area));
            match fault {
                Some(Fault::RemoteKey) => RemoteSpan { addr, rkey: rkey ^ 0x15 },
                Some(Fault::RemoteRange) => RemoteSpan { addr: peer.end(area) - u64::from((length / 2) & !7), rkey },
                Some(Fault::Unaligned) => RemoteSpan { addr: addr + 4, rkey },
                _ => RemoteSpan { addr, rkey },
            }
        };
        let (bytes, immediate, half) = (pattern(id as u32, length as usize), id as u32 * 0x0101_0101, length / 2);
        let inline = |bytes| InlineSpan::from(bytes);
        let whole = [local(SOURCE)];
        let halves = [whole[0].first(half), port.span(SOURCE, qp ^ 1).first(length - half)];
        let work = match kind {
            Kind::Send => Work::Send { spans: &whole, immediate },
            Kind::SendOfTwo => Work::Send { spans: &halves, immediate },
            Kind::SendInline => {
                let (header, payload) = bytes.split_at(half as usize);
                Work::SendInline { header: inline(header), payload: inline(payload), immediate }
            }
            Kind::Write => Work::Write { local: whole[0], remote: remote(TARGET) },
            Kind::WriteInline => Work::WriteInline { bytes: inline(&bytes), remote: remote(TARGET) },
            Kind::Read => Work::Read { local: local(SINK), remote: remote(SHOWN) },
            Kind::FetchAdd => Work::FetchAdd { local: local(SINK), remote: remote(COUNTERS), operand: id },
            // It finds what it expects unless another atomic came first.
            Kind::CompareSwap => {
                Work::CompareSwap { local: local(SINK), remote: remote(COUNTERS), compare: 0, swap: id }
            }
        };
        self.qps[qp].as_mut().expect("it lives").post(Wr { id, signalled }, work)
    }

    /// Polls a port once.
    pub(super) fn poll(&mut self, port: usize) {
        let completions = self.ports[port].poll().to_vec();
        for completion in completions {
            let qp = self.numbers.iter().position(|number| *number == completion.qp_num()).expect("a queue pair");
            let (id, is_receive) = (completion.id(), completion.id() < REQUESTS);
            let message = (is_receive && completion.succeeded()).then(|| {
                let mut bytes = vec![0; completion.len().min(RECEIVE) as usize];
                assert!(self.ports[port].received(id as u32, &mut bytes));
                (completion.immediate(), completion.len(), bytes)
            });
            let (id, status) = (if is_receive { 0 } else { id }, completion.status().0);
            self.seen[qp][usize::from(is_receive)].push(Seen { id, status, message });
        }
    }

    pub(super) fn poll_all(&mut self) {
        (0..PORTS).for_each(|port| self.poll(port));
    }

    pub(super) fn count(&self) -> usize {
        self.seen.iter().flatten().map(Vec::len).sum()
    }
}
