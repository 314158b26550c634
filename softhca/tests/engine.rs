// SPDX-License-Identifier: MIT OR Apache-2.0
//! The emulated adapter's rules, between two queue pairs of one process.

mod engine_support;

use engine_support::prelude::*;

#[test]
fn a_send_lands_in_the_receive_buffer_whatever_its_size() {
    let (_hca, mut a, b) = connected(1 << 20, &Settings::default());
    for (turn, len) in [0, 1, 8, 24, 25, 64, 255, 256, 257, 4096, 100_000, 1 << 20].into_iter().enumerate() {
        a.fill(0, len, turn as u8);
        b.recv(turn as u64, 0, 1 << 20);
        a.send(100 + turn as u64, 0, len);
        let (got, sent) = (wait(&b.recv_cq), wait(&a.send_cq));
        assert_eq!((got.wr_id, got.status, got.opcode, got.byte_len), (turn as u64, 0, wc_opcode::RECV, len as u32));
        assert_eq!((sent.wr_id, sent.status, sent.opcode), (100 + turn as u64, 0, wc_opcode::SEND));
        assert_eq!((got.qp_num, got.src_qp), (b.qp.number(), a.qp.number()));
        assert!((0..len).all(|i| b.byte(i) == (turn as u8).wrapping_add(i as u8)), "{len} bytes");
    }
}

#[test]
fn inline_data_and_immediate_arrive_and_unsignalled_sends_give_no_completion() {
    let (_hca, a, b) = connected(4096, &Settings::default());
    b.recv(1, 0, 100);
    let data = *b"hello";
    let wr = SendWr {
        opcode: wr_opcode::SEND_WITH_IMM,
        flags: send_flags::INLINE,
        imm: 0x01020304,
        sge: &[Sge { addr: data.as_ptr() as u64, length: 5, lkey: 0 }],
        ..SendWr::empty()
    };
    a.qp.post_send(&wr).unwrap();
    let got = wait(&b.recv_cq);
    assert_eq!((got.flags, got.imm, got.byte_len), (wc_flags::WITH_IMM, 0x01020304, 5));
    assert_eq!((0..5).map(|i| b.byte(i)).collect::<Vec<_>>(), data);
    assert!(none(&a.send_cq));
}

#[test]
fn a_send_waits_for_a_receive_request_whose_posting_executes_it() {
    for srq in [false, true] {
        let hca = adapter();
        let settings = Settings { srq, min_rnr_timer: 31, ..Settings::default() };
        let (mut a, b) = pair(&hca, 4096, &settings);
        a.fill(0, 4096, 3);
        a.send(1, 0, 8);
        a.send(2, 8, 1000);
        assert!(none(&a.send_cq));
        b.recv(11, 0, 1000);
        assert_eq!(wait(&a.send_cq).wr_id, 1);
        assert!(none(&a.send_cq));
        b.recv(12, 1000, 1000);
        assert_eq!(wait(&a.send_cq).wr_id, 2);
        assert_eq!((wait(&b.recv_cq).wr_id, wait(&b.recv_cq).wr_id), (11, 12));
        assert_eq!(b.byte(0), 3);
        assert_eq!(b.byte(1999), (3 + 8 + 999) as u8);
    }
}

#[test]
fn a_port_counts_its_errors_and_nothing_else() {
    let (hca, a, b) = connected(4096, &Settings { rnr_retry: 2, ..Settings::default() });
    b.recv(1, 0, 8);
    a.send(1, 0, 8);
    wait(&a.send_cq);
    for name in ["out_of_buffer", "rnr_nak_retry_err", "local_ack_timeout_err", "req_cqe_error", "resp_cqe_error"] {
        assert_eq!(hca.counter(name), 0, "{name}");
    }
    a.send(2, 0, 8);
    a.send(3, 0, 8);
    assert_eq!(wait(&a.send_cq).status, wc_status::RNR_RETRY_EXC_ERR);
    assert_eq!(wait(&a.send_cq).status, wc_status::WR_FLUSH_ERR);
    assert_eq!((a.qp.state(), b.qp.state()), (qp_state::ERR, qp_state::RTS));
    // The first answer and one for each of the two repetitions.
    assert_eq!((hca.counter("out_of_buffer"), hca.counter("rnr_nak_retry_err")), (3, 3));
    assert_eq!((hca.counter("req_cqe_error"), hca.counter("local_ack_timeout_err")), (1, 0));

    let (a, b) = pair(&hca, 4096, &Settings { retry_cnt: 1, timeout: 8, ..Settings::default() });
    b.qp.destroy().unwrap();
    let began = std::time::Instant::now();
    a.send(1, 0, 8);
    assert_eq!(wait(&a.send_cq).status, wc_status::RETRY_EXC_ERR);
    assert!(began.elapsed() >= std::time::Duration::from_micros(2 * 1048), "{:?}", began.elapsed());
    a.stops();
    assert_eq!((hca.counter("req_cqe_error"), hca.counter("local_ack_timeout_err")), (2, 2));

    let (a, b) = pair(&hca, 4096, &Settings::default());
    a.rdma(wr_opcode::RDMA_READ, 0, 8, b.addr(), 1);
    assert_eq!(wait(&a.send_cq).status, wc_status::REM_ACCESS_ERR);
    for side in ["req", "resp"] {
        assert_eq!(hca.counter(&format!("{side}_remote_access_errors")), 1);
    }
    let (a, b) = pair(&hca, 4096, &Settings { kind: qp_type::UC, ..Settings::default() });
    a.send(1, 0, 8);
    assert_eq!(hca.counter("out_of_buffer"), 4);
    drop(b);
}

#[test]
fn a_message_longer_than_the_receive_request_fails_on_both_sides() {
    let hca = adapter();
    for len in [100, 1000] {
        let (a, b) = pair(&hca, 4096, &Settings::default());
        b.recv(1, 0, 99);
        b.recv(2, 0, 99);
        a.send(3, 0, len);
        assert_eq!(wait(&a.send_cq).status, wc_status::REM_INV_REQ_ERR);
        let (first, second) = (wait(&b.recv_cq), wait(&b.recv_cq));
        assert_eq!((first.wr_id, first.status), (1, wc_status::LOC_LEN_ERR));
        assert_eq!((second.wr_id, second.status), (2, wc_status::WR_FLUSH_ERR));
        assert_eq!((a.qp.state(), b.qp.state()), (qp_state::ERR, qp_state::ERR));
    }
}

#[test]
fn the_sending_side_checks_keys_and_bounds() {
    let hca = adapter();
    for wrong in 0..2 {
        let (a, b) = pair(&hca, 4096, &Settings::default());
        b.recv(1, 0, 4096);
        let mut sge = [a.sge(0, 8)];
        if wrong == 0 {
            sge[0].lkey ^= 1;
        } else {
            sge[0].addr += 4089;
        }
        a.qp.post_send(&SendWr { sge: &sge, ..SendWr::empty() }).unwrap();
        assert_eq!(wait(&a.send_cq).status, wc_status::LOC_PROT_ERR);
        assert!(none(&b.recv_cq));
    }
}

#[test]
fn rdma_and_atomics_work_on_the_targets_memory() {
    let (_hca, mut a, mut b) = connected(8192, &Settings::default());
    a.fill(0, 4096, 9);
    b.fill(4096, 4096, 77);
    let rdma = |opcode, at: usize, remote: usize, len: usize| {
        a.rdma(opcode, at, len, b.addr() + remote as u64, b.mr.key());
        wait(&a.send_cq)
    };
    assert_eq!(rdma(wr_opcode::RDMA_WRITE, 0, 0, 3000).opcode, wc_opcode::RDMA_WRITE);
    assert!((0..3000).all(|i| b.byte(i) == 9_u8.wrapping_add(i as u8)));
    assert_eq!(rdma(wr_opcode::RDMA_READ, 4096, 4096, 4096).opcode, wc_opcode::RDMA_READ);
    assert!((0..4096).all(|i| a.byte(4096 + i) == 77_u8.wrapping_add(i as u8)));
    let word = |side: &Side, at: usize| u64::from_ne_bytes(std::array::from_fn(|i| side.byte(at + i)));
    let before = word(&b, 4096);
    assert_eq!(rdma(wr_opcode::ATOMIC_FETCH_AND_ADD, 0, 4096, 8).byte_len, 8);
    assert_eq!((word(&a, 0), word(&b, 4096)), (before, before + 1));
    rdma(wr_opcode::ATOMIC_CMP_AND_SWP, 0, 4096, 8);
    assert_eq!((word(&a, 0), word(&b, 4096)), (before + 1, before + 1));
    b.recv(9, 0, 0);
    assert_eq!(rdma(wr_opcode::RDMA_WRITE_WITH_IMM, 0, 8000, 100).status, 0);
    let got = wait(&b.recv_cq);
    assert_eq!((got.wr_id, got.opcode, got.byte_len), (9, wc_opcode::RECV_RDMA_WITH_IMM, 100));
}

#[test]
fn a_wrong_remote_key_stops_both_sides_and_raises_an_event_at_the_target() {
    let (hca, a, b) = connected(4096, &Settings::default());
    a.rdma(wr_opcode::RDMA_WRITE, 0, 8, b.addr() + 4090, b.mr.key());
    assert_eq!(wait(&a.send_cq).status, wc_status::REM_ACCESS_ERR);
    assert_eq!((a.qp.state(), b.qp.state()), (qp_state::ERR, qp_state::ERR));
    assert_eq!(hca.read_async_event().unwrap().kind, event::QP_ACCESS_ERR);
}

#[test]
fn a_request_that_the_targets_queue_pair_gives_no_right_to_is_invalid() {
    for opcode in [wr_opcode::RDMA_WRITE, wr_opcode::RDMA_READ, wr_opcode::ATOMIC_FETCH_AND_ADD] {
        let (hca, a, b) = connected(4096, &Settings::default());
        b.qp.modify(&QpAttr { qp_access_flags: 0, ..QpAttr::default() }, m::ACCESS_FLAGS).unwrap();
        a.rdma(opcode, 0, 8, b.addr(), b.mr.key());
        assert_eq!(wait(&a.send_cq).status, wc_status::REM_INV_REQ_ERR);
        assert_eq!((a.qp.state(), b.qp.state()), (qp_state::ERR, qp_state::ERR));
        assert_eq!(hca.read_async_event().unwrap().kind, event::QP_REQ_ERR);
    }
}

#[test]
fn unreliable_connections_lose_messages_without_a_receive_request() {
    let (_hca, a, b) = connected(4096, &Settings { kind: qp_type::UC, ..Settings::default() });
    a.send(1, 0, 100);
    assert_eq!(wait(&a.send_cq).status, 0);
    b.recv(2, 0, 100);
    assert!(none(&b.recv_cq));
    a.send(3, 0, 100);
    assert_eq!(wait(&b.recv_cq).wr_id, 2);
}

#[test]
fn the_send_queue_is_full_until_a_completion_is_polled() {
    let (_hca, a, b) = connected(4096, &Settings { wr: 4, ..Settings::default() });
    for i in 0..4 {
        b.recv(i, 0, 8);
        a.send(i, 0, 8);
    }
    assert_eq!(a.qp.post_send(&SendWr { sge: &[a.sge(0, 8)], ..SendWr::empty() }), Err(Errno(libc::ENOMEM)));
    wait(&a.send_cq);
    wait(&b.recv_cq);
    b.recv(9, 0, 8);
    a.send(9, 0, 8);
}

#[test]
fn an_overrun_queue_fails_its_queue_pairs() {
    let (hca, a, b) = connected(4096, &Settings { cqe: 4, wr: 16, ..Settings::default() });
    b.recvs(5, 8);
    for i in 0..5 {
        a.send(i, 0, 8);
        let _sent = a.send_cq.poll(&mut [Wc::default()]);
    }
    assert_eq!(hca.read_async_event().unwrap().kind, event::CQ_ERR);
    b.stops();
}

#[test]
fn an_armed_queue_gives_one_event() {
    let hca = adapter();
    let channel = hca.create_channel().unwrap();
    let cq = hca.create_cq(16, Some(&channel), 42, 0).unwrap();
    assert_eq!(channel.destroy(), Err(Errno(libc::EBUSY)));
    let settings = Settings::default();
    let (a, mut b) = (Side::new(&hca, 4096, &settings), Side::new(&hca, 4096, &settings));
    b.replace((&cq, &cq), None);
    a.meet(&b, &settings);
    b.recvs(3, 8);
    cq.arm(true);
    a.send(1, 0, 8);
    a.qp.post_send(&SendWr { flags: send_flags::SOLICITED, sge: &[a.sge(0, 8)], ..SendWr::empty() }).unwrap();
    a.send(1, 0, 8);
    assert_eq!(channel.read_event(), Ok(42));
    // SAFETY: the descriptor is the channel's, which lives.
    unsafe { libc::fcntl(channel.fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    assert_eq!(channel.read_event(), Err(Errno(libc::EAGAIN)));
    b.qp.destroy().unwrap();
    assert_eq!(cq.destroy(), Ok(()));
    assert_eq!(channel.destroy(), Ok(()));
}

#[test]
fn destroy_refuses_an_object_in_use() {
    let (_hca, a, _b) = connected(4096, &Settings { srq: true, ..Settings::default() });
    for refused in [a.pd.destroy(), a.send_cq.destroy(), a.srq.as_ref().unwrap().destroy()] {
        assert_eq!(refused, Err(Errno(libc::EBUSY)));
    }
    a.qp.destroy().unwrap();
    a.mr.destroy().unwrap();
    a.srq.as_ref().unwrap().destroy().unwrap();
    a.send_cq.destroy().unwrap();
    a.pd.destroy().unwrap();
}

#[test]
fn a_drained_send_queue_ends_requests_under_way_raises_its_event_and_keeps_the_rest() {
    let (hca, a, b) = connected(4096, &Settings::default());
    let drained = QpAttr { qp_state: qp_state::SQD, en_sqd_async_notify: 1, ..QpAttr::default() };
    let drain = || a.qp.modify(&drained, m::STATE | m::EN_SQD_ASYNC_NOTIFY).unwrap();
    let go_on = || a.to(qp_state::RTS);
    drain();
    assert_eq!(hca.read_async_event().unwrap().kind, event::SQ_DRAINED, "nothing was under way");
    assert_eq!(a.qp.query().sq_draining, 0);
    go_on();

    a.send(1, 0, 8); // waits for a receive
    a.send(2, 0, 8);
    drain();
    a.send(3, 0, 8);
    assert_eq!(a.qp.query().sq_draining, 1);
    b.recvs(3, 8);
    assert_eq!(wait(&a.send_cq).wr_id, 1);
    assert_eq!(hca.read_async_event().unwrap().kind, event::SQ_DRAINED);
    assert_eq!((a.qp.query().sq_draining, none(&a.send_cq)), (0, true));
    go_on();
    assert_eq!((wait(&a.send_cq).wr_id, wait(&a.send_cq).wr_id), (2, 3));
}

#[test]
fn a_queue_pair_in_the_error_state_flushes_receives_posted_to_it() {
    let (_hca, a, b) = connected(4096, &Settings::default());
    b.recv(1, 0, 8);
    b.to(qp_state::ERR);
    b.recv(2, 0, 8);
    b.send(3, 0, 8);
    assert_eq!((wait(&b.recv_cq).wr_id, wait(&b.recv_cq).status), (1, wc_status::WR_FLUSH_ERR));
    assert_eq!(wait(&b.send_cq).status, wc_status::WR_FLUSH_ERR);
    drop(a);
}
