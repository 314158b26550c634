// SPDX-License-Identifier: MIT OR Apache-2.0
//! Destroys or resets queue pairs with work left, and checks their completions and their requests of a shared queue.

mod engine_support;

use engine_support::prelude::*;

fn adapter(purge: Purge, lost: Lost) -> Adapter {
    behaves(|ways| {
        ways.purge_cq_on_destroy = purge;
        ways.srq_wr_lost_on_destroy = lost;
    })
}

#[test]
fn a_program_polls_the_completions_of_a_destroyed_queue_pair_if_the_adapter_purges_none() {
    for is_reset in [false, true] {
        let hca = adapter(Purge::No, Lost::No);
        let (mut a, b) = pair(&hca, 65536, &Settings::default());
        a.fill(0, 4096, 7);
        // In the entry, beside it, and moved at once.
        for (number, len) in (1..).zip([8, 200, 4096]) {
            b.recv(number, number as usize * 8192, 8192);
            a.send(number, 0, len);
        }
        let number = b.qp.number();
        for side in [&a, &b] {
            if is_reset {
                side.to(qp_state::RESET);
            } else {
                side.qp.destroy().unwrap();
            }
        }
        for (wr_id, len) in (1..).zip([8, 200, 4096]) {
            let got = wait(&b.recv_cq);
            assert_eq!((got.wr_id, got.status, got.byte_len, got.qp_num), (wr_id, 0, len as u32, number));
            let at = wr_id as usize * 8192;
            assert!((0..len).all(|i| b.byte(at + i) == 7_u8.wrapping_add(i as u8)), "{len} bytes");
            assert_eq!(wait(&a.send_cq).wr_id, wr_id);
        }
        assert!(none(&a.send_cq) && none(&b.recv_cq));
    }
}

/// Number of completions that fit before overrun after the end of a queue pair that had filled all places but one.
fn room_after(purge: Purge) -> usize {
    let hca = adapter(purge, Lost::No);
    let settings = Settings { cqe: 4, ..Settings::default() };
    let (a, b) = pair(&hca, 4096, &settings);
    let second = queue_pair(&hca, &a.pd, qp_type::RC, (&a.send_cq, &a.recv_cq), None, a.qp.cap()).unwrap();
    for number in 0..3 {
        b.recv(number, 0, 64);
        a.send(number, 0, 8);
    }
    a.qp.destroy().unwrap();
    // Each failure of the second is a completion: it is in ERR.
    second.modify(&QpAttr { qp_state: qp_state::ERR, ..QpAttr::default() }, m::STATE).unwrap();
    let sge = [a.sge(0, 8)];
    for wr_id in 10..14 {
        second.post_send(&SendWr { wr_id, flags: send_flags::SIGNALED, sge: &sge, ..SendWr::empty() }).unwrap();
    }
    let mut got = 0;
    while !none(&a.send_cq) {
        got += 1;
    }
    got
}

#[test]
fn a_compacted_queue_has_the_room_of_completions_that_were_purged() {
    assert_eq!(room_after(Purge::Compact), 4);
    assert_eq!(room_after(Purge::Skip), 1, "three places are taken until they are polled");
}

#[test]
fn compacting_leaves_completions_of_others_in_their_order() {
    let hca = adapter(Purge::Compact, Lost::No);
    let settings = Settings::default();
    let (goes, to) = pair(&hca, 4096, &settings);
    let (mut stays, peer) = pair(&hca, 4096, &settings);
    // Both complete to one queue.
    stays.qp = queue_pair(&hca, &stays.pd, qp_type::RC, (&goes.send_cq, &stays.recv_cq), None, stays.qp.cap()).unwrap();
    peer.to(qp_state::RESET);
    stays.meet(&peer, &settings);
    for number in 0..8 {
        to.recv(number, 0, 64);
        peer.recv(number, 0, 64);
    }
    for number in 0..8 {
        goes.send(100 + number, 0, 8);
        stays.send(number, 0, 8);
    }
    goes.qp.destroy().unwrap();
    for number in 0..8 {
        let got = wait(&goes.send_cq);
        assert_eq!((got.wr_id, got.qp_num), (number, stays.qp.number()));
    }
    assert!(none(&goes.send_cq));
    peer.recv(9, 0, 64);
    stays.send(9, 0, 8);
    assert_eq!(wait(&goes.send_cq).wr_id, 9, "the queue goes on");
}

/// Number of requests that a shared queue of 4 takes after a queue pair with two in completions and two left was in
/// these states, and was destroyed unless it was reset.
fn free_after(purge: Purge, lost: Lost, states: &[u32]) -> usize {
    let hca = adapter(purge, lost);
    let (a, b) = pair(&hca, 4096, &Settings { srq: true, wr: 4, ..Settings::default() });
    b.recvs(4, 8);
    for number in 0..2 {
        a.send(number, 0, 8);
    }
    let (srq, sge) = (b.srq.as_ref().unwrap(), [b.sge(0, 8)]);
    let post = || srq.post_recv([RecvWr { wr_id: 9, sge: &sge }]);
    assert_eq!(post(), Err(Errno(libc::ENOMEM)), "it is full");
    for to in states {
        b.to(*to);
    }
    if states != [qp_state::RESET] {
        b.qp.destroy().unwrap();
    }
    let free = std::iter::from_fn(|| post().ok()).count();
    assert_eq!(none(&b.recv_cq), purge != Purge::No);
    free
}

#[test]
fn a_destroyed_queue_pair_costs_a_shared_queue_the_requests_that_the_adapter_loses() {
    let (in_error, reset) = (&[qp_state::ERR][..], &[qp_state::RESET][..]);
    for purge in [Purge::Skip, Purge::Compact] {
        for states in [&[], reset] {
            assert_eq!(free_after(purge, Lost::No, states), 2, "those of its completions are free again");
        }
        assert_eq!(free_after(purge, Lost::Purged, &[]), 0, "they are lost");
        assert_eq!(free_after(purge, Lost::Both, in_error), 0, "they are lost in ERR, too");
    }
    assert_eq!(free_after(Purge::No, Lost::Both, in_error), 2, "completions that stay give theirs back");
}

#[test]
fn a_queue_pair_that_is_destroyed_outside_of_err_takes_a_request_with_it() {
    for (lost, is_in_error, expected) in
        [(Lost::No, false, 4), (Lost::Taken, true, 4), (Lost::Taken, false, 3), (Lost::Both, false, 3)]
    {
        let hca = adapter(Purge::Skip, lost);
        let settings = Settings { srq: true, wr: 4, rnr_retry: 0, ..Settings::default() };
        let (_a, b) = pair(&hca, 4096, &settings);
        b.recvs(4, 8);
        if is_in_error {
            b.to(qp_state::ERR);
        }
        b.qp.destroy().unwrap();
        let (c, mut d) = pair(&hca, 4096, &settings);
        let cqs = (&d.send_cq, &d.recv_cq);
        d.qp = queue_pair(&hca, &b.pd, settings.kind, cqs, b.srq.as_ref(), d.qp.cap()).unwrap();
        c.to(qp_state::RESET);
        c.meet(&d, &settings);
        let arrived = (0..5).take_while(|number| {
            c.send(*number, 0, 8);
            wait(&c.send_cq).status == 0
        });
        assert_eq!(arrived.count(), expected, "{lost:?}, in ERR: {is_in_error}");
    }
}

#[test]
fn an_adapter_without_recycling_refuses_a_queue_pair_that_was_in_error_or_reset() {
    for (can, states) in [
        (true, &[qp_state::ERR, qp_state::RESET][..]),
        (false, &[qp_state::ERR, qp_state::RESET]),
        (false, &[qp_state::RESET]),
    ] {
        let hca = behaves(|ways| ways.qp_recycle_via_reset = can);
        let (a, _b) = pair(&hca, 4096, &Settings::default());
        for to in states {
            a.to(*to);
        }
        let expected = if can { Ok(()) } else { Err(Errno(libc::EINVAL)) };
        assert_eq!(init_with(&a.qp, qp_type::RC, 0), expected, "after {states:?}");
    }
}
