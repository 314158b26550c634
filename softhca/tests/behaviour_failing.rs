// SPDX-License-Identifier: MIT OR Apache-2.0
//! How connections fail on adapters that differ in it: retries, events, flushes; datagrams whose address handle is an
//! index, or whose sender is reported wrongly; and arming a completion queue in which completions wait: verbs promise
//! an event for later ones only, and some adapters give it for these at once.

mod engine_support;

use engine_support::prelude::*;

fn events(hca: &Hca) -> Vec<u32> {
    // SAFETY: the descriptor is the adapter's own, and open.
    unsafe { libc::fcntl(hca.async_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    std::iter::from_fn(|| hca.read_async_event().ok()).map(|event| event.kind).collect()
}

#[test]
fn used_up_retries_raise_a_fatal_error_of_the_queue_pair_if_the_adapter_does_that() {
    for is_fatal in [false, true] {
        let hca = behaves(|ways| ways.qp_fatal_on_retry_exc = is_fatal);
        let settings = Settings { retry_cnt: 0, timeout: 4, ..Settings::default() };
        let (a, b) = pair(&hca, 4096, &settings);
        b.qp.destroy().unwrap();
        a.send(1, 0, 8);
        assert_eq!(wait(&a.send_cq).status, wc_status::RETRY_EXC_ERR);
        while a.qp.state() != qp_state::ERR {
            std::thread::yield_now(); // the event is raised before
        }
        assert_eq!(events(&hca).contains(&event::QP_FATAL), is_fatal);
    }
}

#[test]
fn a_retry_count_of_seven_ends_or_never_does() {
    for (is_endless, is_rnr) in [(false, false), (true, false), (false, true), (true, true)] {
        let hca = behaves(|ways| {
            ways.retry7_endless = is_endless;
            ways.rnr7_endless = is_endless;
        });
        let settings = Settings { timeout: 1, min_rnr_timer: 1, ..Settings::default() };
        let (a, b) = pair(&hca, 4096, &settings);
        if !is_rnr {
            b.to(qp_state::RESET);
        }
        a.send(1, 0, 8);
        let expected = if is_rnr { wc_status::RNR_RETRY_EXC_ERR } else { wc_status::RETRY_EXC_ERR };
        if is_endless {
            let name = if is_rnr { "rnr_nak_retry_err" } else { "local_ack_timeout_err" };
            let until = Instant::now() + Duration::from_mins(2);
            while hca.counter(name) < 70 {
                assert!(Instant::now() < until, "it does not try any more");
                assert!(none(&a.send_cq));
            }
        } else {
            assert_eq!(wait(&a.send_cq).status, expected);
        }
    }
}

#[test]
fn only_an_adapter_with_the_last_wqe_event_raises_it() {
    for is_told in [false, true] {
        let hca = behaves(|ways| ways.last_wqe_event = is_told);
        let (_a, b) = pair(&hca, 4096, &Settings { srq: true, ..Settings::default() });
        b.to(qp_state::ERR);
        assert_eq!(events(&hca).contains(&event::QP_LAST_WQE_REACHED), is_told);
    }
}

#[test]
fn an_adapter_raises_only_the_events_that_it_has() {
    for (groups, expected) in [
        (r#"["qp"]"#, &[event::QP_ACCESS_ERR][..]),
        (r#"["srq", "gid"]"#, &[event::SRQ_LIMIT_REACHED]),
        (r#"["cq", "device"]"#, &[event::CQ_ERR, event::CQ_ERR]),
        (r#"["comm-est"]"#, &[event::COMM_EST]),
        ("[]", &[]),
    ] {
        let hca = described(|spec| spec.devices[0].behaviour.async_events = event_groups(groups));
        // A limit, an established connection whose access is refused, an overrun.
        let settings = Settings { srq: true, cqe: 1, ..Settings::default() };
        let (a, b) = pair(&hca, 4096, &settings);
        b.recvs(3, 64);
        b.srq.as_ref().unwrap().set_limit(3).unwrap();
        let (c, d) = (Side::new(&hca, 4096, &Settings::default()), Side::new(&hca, 4096, &Settings::default()));
        c.connect(d.qp.number(), &Settings::default());
        d.init(&Settings::default());
        to_rtr(&d.qp, c.qp.number(), &Settings::default(), lid(1)).unwrap();
        d.recv(1, 0, 64);
        c.send(1, 0, 8); // establishes
        c.rdma(wr_opcode::RDMA_WRITE, 0, 8, d.addr(), 1);
        for number in 0..3 {
            a.send(number, 0, 8);
        }
        assert_eq!(events(&hca), expected, "{groups}");
    }
}

#[test]
fn an_adapter_that_needs_it_flushes_requests_only_once_the_event_is_read() {
    for waits in [false, true] {
        let hca = behaves(|ways| ways.flush_needs_async_read = waits);
        let (a, b) = pair(&hca, 4096, &Settings::default());
        b.recv(1, 0, 64);
        a.rdma(wr_opcode::RDMA_WRITE, 0, 8, b.addr(), 1);
        assert_eq!(wait(&a.send_cq).status, wc_status::REM_ACCESS_ERR);
        assert_eq!(b.qp.state(), qp_state::ERR);
        b.send(2, 0, 8);
        if waits {
            assert!(none(&b.recv_cq) && none(&b.send_cq));
        }
        assert!(events(&hca).contains(&event::QP_ACCESS_ERR));
        assert_eq!(wait(&b.recv_cq).status, wc_status::WR_FLUSH_ERR);
        assert_eq!(wait(&b.send_cq).status, wc_status::WR_FLUSH_ERR);
    }
}

fn datagrams(tell: impl FnOnce(&mut Behaviour)) -> (Side, Side, Adapter) {
    let hca = behaves(tell);
    let (a, b) = pair(&hca, 4096, &Settings { kind: qp_type::UD, ..Settings::default() });
    (a, b, hca)
}

#[test]
fn a_datagram_with_a_destroyed_address_handle_stops_its_queue_pair_if_handles_are_indices() {
    for (by_index, is_kept) in [(true, false), (true, true), (false, false)] {
        let (a, b, _hca) = datagrams(|ways| ways.ah_by_index = by_index);
        b.recv(1, 0, 64);
        let ah = a.hca.create_ah(&a.pd, &lid(1)).unwrap();
        // While the queue is drained the send waits.
        a.to(qp_state::SQD);
        a.datagram(&ah, b.qp.number());
        if !is_kept {
            ah.destroy().unwrap();
        }
        a.to(qp_state::RTS);
        let is_lost = by_index && !is_kept;
        let expected = if is_lost { wc_status::LOC_QP_OP_ERR } else { wc_status::SUCCESS };
        assert_eq!(wait(&a.send_cq).status, expected, "by index: {by_index}, kept: {is_kept}");
        assert_eq!(a.qp.state(), if is_lost { qp_state::ERR } else { qp_state::RTS });
        assert_eq!(none(&b.recv_cq), is_lost);
        if is_kept {
            // Sends that are not held up take their time; only the poll executes them.
            a.datagram(&ah, b.qp.number());
            assert_eq!(wait(&a.send_cq).status, wc_status::SUCCESS);
        }
    }
}

#[test]
fn the_src_qp_of_a_datagram_is_wrong_if_the_adapter_masks_it() {
    for ways in [SrcQp::Right, SrcQp::Wrong] {
        let (a, b, _hca) = datagrams(|behaviour| behaviour.src_qp_top_bits = ways);
        assert!(a.qp.number() > 0xffff, "otherwise it would not be seen");
        b.recv(1, 0, 64);
        let ah = a.hca.create_ah(&a.pd, &lid(1)).unwrap();
        a.datagram(&ah, b.qp.number());
        assert_eq!(wait(&b.recv_cq).src_qp == a.qp.number(), ways == SrcQp::Right);
    }
}

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
    a.meet(&b, &settings);
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
        // Arming gives one event: this was it, or the next completion gives it.
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
