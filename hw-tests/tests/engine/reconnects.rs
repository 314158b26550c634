// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peers that are given up and met again while received messages are unpolled: adapters differ in what they lose then.
//! Run on the usual adapter, and on emulated ones that lose as much as possible (`tests/device/engine.rs`).

use crate::pair::{Got, Pair, completed, received};
use ibex::tunables::Tunables;

/// Number of receive slots of a port, and of unpolled messages when a peer is given up.
const SLOTS: u64 = 64;
const UNSEEN: usize = 8;

fn has(events: &[Got], tag: u8) -> bool {
    received(events).iter().any(|(of, _)| *of == tag)
}

#[test]
#[ignore = "needs an RDMA device (IBEX_DEVICE)"]
fn a_receiver_stays_ready_however_often_it_gives_up_a_peer_with_unread_messages() {
    let mut pair = Pair::open(&Tunables { receive_queue_depth: SLOTS, ..Tunables::default() });
    // Often enough to lose every slot several times.
    for round in 0..32_u8 {
        pair.send_inline(round, b"hello", b"");
        pair.until_b(|events| has(events, round));
        for number in 0..UNSEEN {
            pair.queue_bytes(200, b"unseen", number as u64 + 1);
        }
        pair.until_a_alone(|events| completed(events).len() == UNSEEN);
        pair.part();
    }
}
