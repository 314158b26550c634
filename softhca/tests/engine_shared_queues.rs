// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared receive queues: their limit, their size, and requests that come back.

mod engine_support;

use engine_support::{Settings, adapter, none, pair, wait};
use softhca::engine::{
    Errno, QpAttr, RecvWr,
    codes::{attr_mask, event},
};

#[test]
fn a_shared_queue_gives_its_limit_event_once() {
    let hca = adapter();
    let (a, b) = pair(&hca, 4096, &Settings { srq: true, ..Settings::default() });
    for i in 0..3 {
        b.recv(i, 0, 8);
    }
    let srq = b.srq.as_ref().unwrap();
    srq.set_limit(2).unwrap();
    a.send(1, 0, 8);
    assert_eq!(srq.query().2, 2);
    a.send(2, 0, 8);
    assert_eq!(hca.read_async_event().unwrap().kind, event::SRQ_LIMIT_REACHED);
    assert_eq!(srq.query().2, 0);
}

#[test]
fn requests_of_a_shared_queue_come_back_when_their_queue_pair_goes_or_is_reset() {
    let hca = adapter();
    let settings = Settings { srq: true, wr: 4, ..Settings::default() };
    for is_reset in [false, true] {
        let (a, b) = pair(&hca, 4096, &settings);
        for i in 0..4 {
            b.recv(i, 0, 8);
            a.send(i, 0, 8);
        }
        let sge = [b.sge(0, 8)];
        let wr = RecvWr { wr_id: 9, sge: &sge };
        let srq = b.srq.as_ref().unwrap();
        assert_eq!(srq.post_recv([wr]), Err(Errno(libc::ENOMEM)));
        if is_reset {
            b.qp.modify(&QpAttr::default(), attr_mask::STATE).unwrap();
        } else {
            b.qp.destroy().unwrap();
        }
        srq.post_recv([wr; 4]).unwrap();
        assert!(none(&b.recv_cq));
    }
}

#[test]
fn a_shared_queue_grows_and_shrinks_around_the_requests_in_it() {
    let hca = adapter();
    let (a, b) = pair(&hca, 4096, &Settings { srq: true, wr: 4, ..Settings::default() });
    let srq = b.srq.as_ref().unwrap();
    let sge = [b.sge(0, 8)];
    let post = |wr_id| srq.post_recv([RecvWr { wr_id, sge: &sge }]);
    let full = Err(Errno(libc::ENOMEM));
    // One taken and polled, one taken and not yet polled, three waiting: round the end of the ring.
    for wr_id in 0..4 {
        post(wr_id).unwrap();
    }
    a.send(0, 0, 8);
    a.send(1, 0, 8);
    assert_eq!(wait(&b.recv_cq).wr_id, 0);
    post(4).unwrap();
    assert_eq!(post(5), full);
    assert_eq!(srq.resize(2), Err(Errno(libc::EINVAL)), "four are in it");
    srq.resize(8).unwrap();
    assert_eq!(srq.query().0, 8);
    for wr_id in 5..9 {
        post(wr_id).unwrap();
    }
    assert_eq!(post(9), full);
    assert_eq!(wait(&b.recv_cq).wr_id, 1);
    for expected in 2..9 {
        a.send(9, 0, 8);
        assert_eq!(wait(&b.recv_cq).wr_id, expected);
        wait(&a.send_cq);
    }
    srq.resize(2).unwrap();
    assert_eq!((post(10), post(11), post(12)), (Ok(()), Ok(()), full));
    wait(&a.send_cq);
    a.send(9, 0, 8);
    assert_eq!(wait(&b.recv_cq).wr_id, 10);
    assert_eq!((srq.resize(0), srq.resize(u32::MAX)), (Err(Errno(libc::EINVAL)), Err(Errno(libc::EINVAL))));
}
