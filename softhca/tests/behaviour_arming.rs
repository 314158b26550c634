// SPDX-License-Identifier: MIT OR Apache-2.0
//! A completion queue that is armed while completions wait in it: verbs promise an event for later ones only, and some
//! adapters give it for these at once.

mod engine_support;

use std::sync::Arc;

use engine_support::{Settings, Side, behaves, wait};
use softhca::engine::{Channel, Cq, Errno, Hca};

const COOKIE: u64 = 42;
const NOTHING: softhca::engine::Result<u64> = Err(Errno(libc::EAGAIN));

/// Two connected sides, of which the second receives to a queue with a channel that does not block.
fn with_channel(hca: &Arc<Hca>) -> (Side, Side, Cq, Channel) {
    let channel = hca.create_channel().unwrap();
    // SAFETY: the descriptor is the channel's, which lives.
    unsafe { libc::fcntl(channel.fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    let cq = hca.create_cq(16, Some(&channel), COOKIE, 0).unwrap();
    let settings = Settings::default();
    let (a, mut b) = (Side::new(hca, 4096, &settings), Side::new(hca, 4096, &settings));
    b.replace((&cq, &cq), None);
    a.connect(b.qp.number(), &settings);
    b.connect(a.qp.number(), &settings);
    (a, b, cq, channel)
}

#[test]
fn a_queue_armed_with_completions_in_it_gives_the_event_at_once_where_the_adapter_compares() {
    for tells in [false, true] {
        let hca = behaves(|ways| ways.arm_tells_of_unread = tells);
        let (a, b, cq, channel) = with_channel(&hca);
        (0..4).for_each(|number| b.recv(number, 0, 8));
        a.send(1, 0, 8);
        cq.arm(false);
        assert_eq!(channel.read_event(), if tells { Ok(COOKIE) } else { NOTHING });
        // One event each time it is armed, and that was it, or the next completion is.
        assert_eq!(channel.read_event(), NOTHING);
        a.send(2, 0, 8);
        assert_eq!(channel.read_event(), if tells { NOTHING } else { Ok(COOKIE) });
        wait(&cq);
        cq.arm(false);
        assert_eq!(channel.read_event(), if tells { Ok(COOKIE) } else { NOTHING }, "one of two was polled");
        a.send(3, 0, 8);
        assert_eq!(channel.read_event(), if tells { NOTHING } else { Ok(COOKIE) });
        (0..2).for_each(|_| assert!(wait(&cq).wr_id < 4));
        // All is polled: the event is the next completion's on every adapter.
        cq.arm(false);
        assert_eq!(channel.read_event(), NOTHING);
        a.send(4, 0, 8);
        assert_eq!(channel.read_event(), Ok(COOKIE));
    }
}

#[test]
fn a_queue_armed_for_solicited_completions_gives_no_event_for_others() {
    let hca = behaves(|ways| ways.arm_tells_of_unread = true);
    let (a, b, cq, channel) = with_channel(&hca);
    b.recv(0, 0, 8);
    a.send(1, 0, 8);
    cq.arm(true);
    assert_eq!(channel.read_event(), NOTHING);
}
