// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps of a random history, and how proptest chooses them. Called by `histories.rs`. Threads: the test's.

use super::operation::How;
use super::*;
use crate::pml::request::Owner;
use proptest::prelude::*;

/// One step of a history. An index is taken modulo the number of processes, ports, queue pairs or receives.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    /// Sends a message.
    Send { from: usize, to: usize, comm: usize, tag: usize, length: usize, mode: Mode, how: How },
    /// Posts a receive with a buffer of `room` bytes.
    Receive { at: usize, wanted: Wanted, how: How, room: usize },
    /// Starts a persistent request.
    Start(usize),
    /// `takes`: a matched probe, which takes the message out.
    Probe { at: usize, wanted: Wanted, takes: bool },
    /// Receives the oldest message that a probe took out.
    ReceiveProbed { how: How, room: usize },
    /// Cancels a receive; `under_way`: a matched one.
    Cancel { which: usize, under_way: bool },
    /// Frees the request of a send, which may be in progress.
    Free(usize),
    /// Frees a communicator in which only matched probes have messages left, and makes another one.
    FreeComm(usize),
    /// The fabric carries `count` requests of a queue pair.
    Carry { queue_pair: usize, count: usize },
    /// The peers acknowledge `count` requests of a queue pair.
    Acknowledge { queue_pair: usize, count: usize },
    /// A process polls.
    Poll(usize),
    /// The fabric and all processes move until nothing happens any more.
    Settle,
    /// A port refuses to register memory, or accepts it again.
    Refuse { port: usize, refuses: bool },
    /// The link of a port goes down or up, if there are several. `is_noticed`: its process polls until it has noticed.
    Link { port: usize, is_up: bool, is_noticed: bool },
    /// The next queue pair with a request fails, once, in worlds where one fails. `reads`: one with nothing but reads.
    Fail { queue_pair: usize, reads: bool },
}

/// The communicator, source and tag of a receive or probe. Source and tag 0 are wildcards; others count from 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) comm: usize,
    pub(super) from: usize,
    pub(super) tag: usize,
}

/// Three tags of a program, and a negative one of the MPI library itself.
pub(super) const TAGS: [i32; 4] = [0, 1, 7, -20];

fn wanted() -> impl Strategy<Value = Wanted> {
    (0..2_usize, 0..9_usize, 0..5_usize).prop_map(|(comm, from, tag)| Wanted { comm, from, tag })
}

fn how() -> impl Strategy<Value = How> {
    let owner = prop_oneof![
        Just((Owner::Call, false)),
        Just((Owner::WatchedCall, false)),
        Just((Owner::Mpi, false)),
        Just((Owner::Mpi, true))
    ];
    let has_gaps = prop::bool::weighted(0.2);
    (owner, has_gaps).prop_map(|((owner, is_persistent), has_gaps)| How { owner, is_persistent, has_gaps })
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let length = 0..LENGTHS.len();
    let mode = prop_oneof![6 => Just(Mode::Standard), 2 => Just(Mode::Synchronous), 1 => Just(Mode::Buffered)];
    let send = (0..8_usize, 0..8_usize, 0..2_usize, 0..4_usize, length.clone(), mode, how())
        .prop_map(|(from, to, comm, tag, length, mode, how)| Step::Send { from, to, comm, tag, length, mode, how });
    let receive = (0..8_usize, wanted(), how(), length.clone());
    prop_oneof![
        12 => send,
        10 => receive.prop_map(|(at, wanted, how, room)| Step::Receive { at, wanted, how, room }),
        2 => (0..100_usize).prop_map(Step::Start),
        2 => (0..8_usize, wanted(), any::<bool>()).prop_map(|(at, wanted, takes)| Step::Probe { at, wanted, takes }),
        1 => (how(), length).prop_map(|(how, room)| Step::ReceiveProbed { how, room }),
        3 => (0..100_usize, any::<bool>()).prop_map(|(which, under_way)| Step::Cancel { which, under_way }),
        1 => (0..100_usize).prop_map(Step::Free),
        2 => (0..2_usize).prop_map(Step::FreeComm),
        6 => (0..64_usize, 1..20_usize).prop_map(|(queue_pair, count)| Step::Carry { queue_pair, count }),
        4 => (0..64_usize, 1..20_usize).prop_map(|(queue_pair, count)| Step::Acknowledge { queue_pair, count }),
        8 => (0..8_usize).prop_map(Step::Poll),
        1 => Just(Step::Settle),
        1 => (0..8_usize, any::<bool>()).prop_map(|(port, refuses)| Step::Refuse { port, refuses }),
        2 => (0..8_usize, any::<bool>(), any::<bool>())
            .prop_map(|(port, is_up, is_noticed)| Step::Link { port, is_up, is_noticed }),
        4 => (0..64_usize, prop::bool::weighted(0.9)).prop_map(|(queue_pair, reads)| Step::Fail { queue_pair, reads }),
    ]
}
