// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two ports over simulated adapters, and the wire between them.

use super::*;
use crate::connect::hello::Hello;
use crate::select::address::tests::ethernet;
use crate::select::key::Key;
use crate::select::partners::partners;
use crate::transport::adapter::simulated::{self, Script, Sizes};
use ibex_ffi::verbs::InlineSpan;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) const SLOTS: u32 = 16;
pub(super) const CAPACITY: u32 = 48;
pub(super) const DEPTH: u32 = 8;

/// Published entries of the ports of rank 0 and of rank 1; the rank of this side.
#[derive(Clone, Default)]
pub(super) struct Published(Arc<Mutex<[Vec<PortEntry>; 2]>>, u32);

impl Published {
    fn of(&self, rank: u32) -> Vec<PortEntry> {
        self.0.lock().expect("no test failed in it")[rank as usize].clone()
    }
}

impl Directory for Published {
    fn entry(&self, peer: PeerName, port: u8) -> Option<PortEntry> {
        self.of(peer.rank).get(usize::from(port)).copied()
    }

    fn partners(&self, peer: PeerName, port: u8) -> Vec<u8> {
        let addresses = |rank| self.of(rank).iter().map(|entry| entry.address).collect::<Vec<_>>();
        partners(&addresses(self.1), &addresses(peer.rank), port.into(), self.1 < peer.rank)
    }

    fn host(&self, _peer: PeerName) -> String {
        "here".to_owned()
    }
}

pub(super) struct Side {
    pub(super) port: Port<simulated::Adapter>,
    pub(super) script: Script,
    pub(super) peer: EndpointId,
    pub(super) key: Key,
    batch: Batch,
    /// Reported completions that the test has not looked at yet.
    pub(super) seen: Vec<Completion>,
}

impl Side {
    /// The port `port_number` of `rank`, at `address`; its partner is the other side's port of the same number.
    pub(super) fn of(
        (rank, port_number): (u32, u8),
        address: PortAddress,
        published: &Published,
        tunables: &Tunables,
        atomics: Atomics,
    ) -> Self {
        let script = Script::default();
        let key = Key::from_bytes([16 * rank as u8 + port_number + 1; Key::SIZE]);
        let mut state = script.state();
        state.is_without_atomics = atomics == Atomics::None;
        (state.ud_qpn, state.has_tcp) = (address.ud_qpn, address.tcp_port != 0);
        drop(state);
        let sizes = Sizes { inline: 64, bounce: 1024, receive: 4096, slots: SLOTS, bounces: 64, depth: DEPTH };
        let device = script.device(sizes, atomics, PortEntry { address, key });
        let setup = Setup {
            index: port_number,
            me: PeerName { job: 1, rank },
            instance: None,
            processes: 1,
            ports: 1,
            receive_size: sizes.receive,
            bounce_size: sizes.bounce,
            sleeps: false,
            directory: Box::new(Published(Arc::clone(&published.0), rank)),
        };
        let mut port = Port::of_stand_in(device, tunables, setup).expect("the script refuses nothing");
        published.0.lock().expect("no test failed in it")[rank as usize].push(port.entry());
        let peer = port.peer(PeerName { job: 1, rank: 1 - rank }, port_number);
        Side { port, script, peer, key, batch: Batch::new(), seen: Vec::new() }
    }

    pub(super) fn poll(&mut self) {
        self.port.poll(&mut self.batch);
        self.seen.extend_from_slice(self.batch.completions());
    }

    /// Gives the other side up, and makes the peer again.
    pub(super) fn part(&mut self) {
        let name = self.port.peer_name(self.peer).expect("the other side");
        self.port.forget(self.peer);
        self.peer = self.port.peer(name, 0);
    }

    /// Sends a message of one byte; queues it if it cannot be posted.
    pub(super) fn send(&mut self, token: u64) -> Result<(), Refused> {
        let bytes: Arc<[u8]> = [token as u8].into();
        self.port.queue_bytes(self.peer, 5, (bytes, 1), Token(token), WhenDiverted::Wait)
    }

    /// Posts an inline message of one byte if there is room.
    pub(super) fn post(&mut self) -> Sent {
        let sent = self.port.send_inline(self.peer, 5, [1_u8][..].into(), InlineSpan::EMPTY);
        sent.expect("connected")
    }

    /// Takes tokens and results of the requests that ended since the last call.
    pub(super) fn ended(&mut self) -> Vec<(u64, Result<(), Failed>)> {
        let ended = self.seen.iter().filter_map(|completion| match completion {
            Completion::Request { token, outcome, .. } => Some((token.0, *outcome)),
            _ => None,
        });
        let ended = ended.collect();
        self.seen.retain(|completion| !matches!(completion, Completion::Request { .. }));
        ended
    }

    /// Takes the tokens of the requests that ended since the last call, and sorts them.
    pub(super) fn tokens(&mut self) -> Vec<u64> {
        let mut tokens: Vec<u64> = self.ended().into_iter().map(|(token, _)| token).collect();
        tokens.sort_unstable();
        tokens
    }

    /// The oldest request of the first connection fails, and the adapter flushes all others.
    pub(super) fn fail_first(&mut self) {
        assert!(self.script.complete(0, Status::RETRY_EXCEEDED));
        self.script.complete_all(0, Status::FLUSHED);
        (0..2).for_each(|_| self.poll());
        assert_eq!(self.failures(), 1);
    }

    /// `count` messages of 8 bytes arrive by the first connection.
    pub(super) fn deliver(&self, count: u32) {
        (0..count).for_each(|_| assert!(self.script.deliver(0, 8, Some(0)).is_some(), "a slot"));
    }

    /// Asserts that no slot is lost, and that the port counts those as posted that the adapter has.
    pub(super) fn has_all_slots(&self) {
        let (posted, released) = self.port.rx.slots();
        assert_eq!((posted as usize, posted as usize + released), (self.script.state().receives.len(), SLOTS as usize));
    }

    pub(super) fn count(&self, of: impl Fn(&Counters) -> &AtomicU64) -> u64 {
        of(&self.port.counters()).load(Ordering::Relaxed)
    }

    pub(super) fn failures(&self) -> usize {
        self.seen.iter().filter(|completion| matches!(completion, Completion::PeerFailed { .. })).count()
    }

    pub(super) fn messages(&self) -> usize {
        self.seen.iter().filter(|completion| matches!(completion, Completion::Message { .. })).count()
    }
}

pub(super) struct Pair {
    pub(super) published: Published,
    pub(super) a: Side,
    pub(super) b: Side,
}

impl Pair {
    /// Two ports that know each other and are not connected.
    pub(super) fn apart() -> Self {
        Pair::with(Atomics::Adapter)
    }

    /// Like [`Pair::apart`], of adapters with these atomics.
    pub(super) fn with(atomics: Atomics) -> Self {
        let (published, tunables) = (Published::default(), Tunables::default());
        let [a, b] = [0, 1].map(|rank| {
            let address = PortAddress { instance: 7 + u64::from(rank), tcp_port: 0, ..ethernet() };
            Side::of((rank, 0), address, &published, &tunables, atomics)
        });
        Pair { published, a, b }
    }

    /// Two ports connected by a first message from `a`, which was delivered and consumed.
    pub(super) fn connected() -> Self {
        let mut pair = Pair::apart();
        pair.a.send(1).expect("it may wait");
        pair.carry();
        pair.a.script.complete_all(0, Status::SUCCESS);
        pair.a.poll();
        assert_eq!(pair.a.ended(), [(1, Ok(()))]);
        pair
    }

    pub(super) fn carry(&mut self) {
        for _ in 0..20 {
            let Pair { a, b, .. } = self;
            let moved = carry(a, b) + carry(b, a);
            a.poll();
            b.poll();
            if moved == 0 {
                return;
            }
        }
        panic!("they never stop to say hello");
    }

    /// The adapters deliver `a`'s posted requests to `b`, as far as `b` has slots; these requests succeed.
    pub(super) fn transfer(&mut self) {
        let Pair { a, b, .. } = self;
        let (Some(from), Some(to)) = (a.script.connected(), b.script.connected()) else { return };
        loop {
            let next = a.script.state().qps[from].posted.front().cloned();
            let Some(request) = next else { return };
            if let Work::Send { immediate, .. } = request.work
                && b.script.deliver(to, 1, Some(immediate)).is_none()
            {
                return;
            }
            a.script.complete(from, Status::SUCCESS);
        }
    }
}

/// Moves the hellos that one side has sent into the other's queue. Returns their number.
pub(super) fn carry(from: &mut Side, to: &mut Side) -> usize {
    let sent = std::mem::take(&mut from.script.state().sent);
    let hellos = sent.iter().map(|(_, frame)| Hello::decode(frame, &to.key).expect("sealed for the other side"));
    to.script.state().incoming.extend(hellos);
    sent.len()
}
