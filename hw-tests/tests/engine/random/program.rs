// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random programs of verbs calls: made from a seed, and made small. A step that makes no sense where it stands does
//! nothing, so a program stays one if steps are removed. Called by `random.rs`. Grade: test.

use ibex_ffi::verbs::Access;
use ibex_simulation::random::Random;

pub(super) const PORTS: usize = 3;
/// The two ports of each connection `c`. Their queue pairs are numbered `2 * c` and `2 * c + 1`.
pub(super) const CONNECTIONS: [[usize; 2]; 4] = [[0, 1], [0, 1], [1, 2], [0, 2]];
pub(super) const QUEUE_PAIRS: usize = 2 * CONNECTIONS.len();
/// Size of a receive, bytes.
pub(super) const RECEIVE: u32 = 512;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Send,
    SendOfTwo,
    SendInline,
    Write,
    WriteInline,
    Read,
    FetchAdd,
    CompareSwap,
}

impl Kind {
    pub(super) fn is_send(self) -> bool {
        self.right().is_empty()
    }

    /// Right that the peer's queue pair must give.
    pub(super) fn right(self) -> Access {
        match self {
            Kind::Send | Kind::SendOfTwo | Kind::SendInline => Access::empty(),
            Kind::Write | Kind::WriteInline => Access::REMOTE_WRITE,
            Kind::Read => Access::REMOTE_READ,
            Kind::FetchAdd | Kind::CompareSwap => Access::REMOTE_ATOMIC,
        }
    }
}

/// What is wrong with the memory that a request names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fault {
    /// Its own memory is at an address beyond the registration.
    LocalRange,
    /// A read may not write to its own memory.
    LocalRight,
    RemoteKey,
    /// It ends beyond the registration.
    RemoteRange,
    RemoteRight,
    /// The address of an atomic is no multiple of 8.
    Unaligned,
}

impl Fault {
    const ALL: [Fault; 6] = [
        Fault::LocalRange,
        Fault::LocalRight,
        Fault::RemoteKey,
        Fault::RemoteRange,
        Fault::RemoteRight,
        Fault::Unaligned,
    ];

    fn fits(self, kind: Kind) -> bool {
        match self {
            Fault::LocalRange => matches!(kind, Kind::Send | Kind::SendOfTwo | Kind::Write | Kind::Read),
            Fault::LocalRight => kind == Kind::Read,
            Fault::RemoteKey | Fault::RemoteRange | Fault::RemoteRight => !kind.is_send(),
            Fault::Unaligned => kind.right() == Access::REMOTE_ATOMIC,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Request {
    pub(super) kind: Kind,
    pub(super) length: u32,
    pub(super) signalled: bool,
    pub(super) fault: Option<Fault>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    Post(usize, Request),
    /// Posts receives at a port.
    Receive(usize, u32),
    /// Takes a batch of completions at a port.
    Poll(usize),
    /// Waits until nothing moves any more.
    Settle,
    /// Puts a queue pair in error.
    Fail(usize),
    Destroy(usize),
    /// Resets both queue pairs of a connection, and connects them again without these rights.
    Reconnect(usize, Access),
    /// Posts to a queue pair until it is full.
    Fill(usize),
}

pub(super) fn random(seed: u64) -> Vec<Step> {
    let mut random = Random::new(seed, 0);
    let (count, mut qp) = (10 + random.below(50), 0);
    let mut steps = Vec::new();
    for _ in 0..count {
        if random.one_in(3) {
            qp = random.below(QUEUE_PAIRS);
        }
        let port = random.below(PORTS);
        steps.push(match random.by_weight(&[60, 16, 6, 6, 3, 2, 5, 2]) {
            0 => Step::Post(qp, request(&mut random)),
            1 => Step::Receive(port, 1 + random.below(5) as u32),
            2 => Step::Poll(port),
            3 => Step::Settle,
            4 => Step::Fail(qp),
            5 => Step::Destroy(qp),
            6 => {
                let none = Access::empty();
                let lacks = [none, none, Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC];
                Step::Reconnect(random.below(CONNECTIONS.len()), random.one_of(&lacks))
            }
            _ => Step::Fill(qp),
        });
    }
    steps
}

fn request(random: &mut Random) -> Request {
    use Kind::{CompareSwap, FetchAdd, Read, Send, SendInline, SendOfTwo, Write, WriteInline};
    let kind =
        random.one_of(&[Send, Send, SendOfTwo, SendInline, Write, WriteInline, Read, Read, FetchAdd, CompareSwap]);
    let length = match kind {
        SendInline | WriteInline => random.one_of(&[0, 1, 8, 33, 64]),
        FetchAdd | CompareSwap => 8,
        // The path's packets have 256 bytes.
        Send | SendOfTwo if random.one_in(20) => random.one_of(&[RECEIVE + 1, 700]),
        Send | SendOfTwo => random.one_of(&[0, 1, 8, 200, 256, 257, 511, RECEIVE]),
        Write | Read => random.one_of(&[0, 1, 8, 100, 256, 300, 700]),
    };
    let fault = random.one_in(5).then(|| random.one_of(&Fault::ALL)).filter(|fault| fault.fits(kind));
    Request { kind, length, signalled: random.one_in(2), fault }
}

/// Returns a small program that still fails. `fails`: whether a program fails; it is called at most `runs` times.
pub(super) fn shrink(steps: Vec<Step>, mut runs: usize, mut fails: impl FnMut(&[Step]) -> bool) -> Vec<Step> {
    let mut best = steps;
    let mut tries = |best: &mut Vec<Step>, other: Vec<Step>| {
        let is_better = runs > 0 && other != *best && fails(&other);
        runs = runs.saturating_sub(1);
        if is_better {
            *best = other;
        }
        is_better
    };
    let mut size = best.len().div_ceil(2);
    while size > 0 {
        let mut start = 0;
        while start < best.len() {
            let end = (start + size).min(best.len());
            let without = [&best[..start], &best[end..]].concat();
            if !tries(&mut best, without) {
                start += size;
            }
        }
        size /= 2;
    }
    for at in 0..best.len() {
        if let Step::Post(qp, request) = best[at] {
            let simpler = [
                Request { fault: None, ..request },
                Request { length: request.length.min(8), ..request },
                Request { signalled: true, ..request },
            ];
            for simpler in simpler {
                let mut other = best.clone();
                other[at] = Step::Post(qp, simpler);
                tries(&mut best, other);
            }
        }
    }
    best
}
