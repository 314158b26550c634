// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared receive queues: their limit, their size, and reuse of requests; and those of extended reliable connections:
//! requests that name their queue, and domains.

mod engine_support;

use engine_support::prelude::*;

#[test]
fn a_shared_queue_gives_its_limit_event_once() {
    let (hca, a, b) = connected(4096, &Settings { srq: true, ..Settings::default() });
    b.recvs(3, 8);
    let srq = b.srq.as_ref().unwrap();
    srq.set_limit(2).unwrap();
    a.send(1, 0, 8);
    assert_eq!(srq.query().2, 2);
    a.send(2, 0, 8);
    assert_eq!(hca.read_async_event().unwrap().kind, event::SRQ_LIMIT_REACHED);
    assert_eq!(srq.query().2, 0);
}

#[test]
fn a_shared_queue_grows_and_shrinks_around_the_requests_in_it() {
    let (_hca, a, b) = connected(4096, &Settings { srq: true, wr: 4, ..Settings::default() });
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

const PRIVATE: XrcdOpen = XrcdOpen { file: None, create: true, exclusive: false };

/// The answering end, whose receives complete to `recv_cq`, and its domain.
fn answering(hca: &Arc<Hca>, how: XrcdOpen) -> (Side, Xrcd) {
    let (mut side, domain) = (Side::new(hca, 4096, &Settings::default()), hca.open_xrcd(how).unwrap());
    side.qp.destroy().unwrap();
    side.srq = Some(hca.create_srq(&side.pd, 4, 1, 5, Some((&domain, &side.recv_cq))).unwrap());
    side.qp = hca.create_xrc_recv(&domain, 6).unwrap();
    (side, domain)
}

fn srqn(side: &Side) -> u32 {
    side.srq.as_ref().unwrap().number()
}

fn initiating(hca: &Arc<Hca>) -> Side {
    Side::new(hca, 4096, &Settings { kind: qp_type::XRC_SEND, ..Settings::default() })
}

/// An end of a connection to `peer`, to RTS; `answers`: it is the one that answers.
fn ready(qp: &Qp, peer: u32, answers: bool) {
    let kind = if answers { qp_type::XRC_RECV } else { qp_type::XRC_SEND };
    let settings = Settings { kind, min_rnr_timer: 31, ..Settings::default() };
    init(qp, &settings);
    engine_support::ready(qp, peer, &settings, lid(1));
}

fn connect(a: &Qp, b: &Qp) {
    ready(a, b.number(), false);
    ready(b, a.number(), true);
}

fn send(from: &Side, wr_id: u64, len: usize, remote_srqn: u32) {
    let wr = SendWr { wr_id, flags: send_flags::SIGNALED, sge: &[from.sge(0, len)], remote_srqn, ..SendWr::empty() };
    from.qp.post_send(&wr).unwrap();
}

#[test]
fn the_request_names_the_shared_queue_that_takes_it() {
    let hca = adapter();
    let (mut a, (b, domain)) = (initiating(&hca), answering(&hca, PRIVATE));
    connect(&a.qp, &b.qp);
    let other_cq = hca.create_cq(16, None, 0, 0).unwrap();
    let other = hca.create_srq(&b.pd, 4, 1, 7, Some((&domain, &other_cq))).unwrap();
    b.recv(1, 0, 4096);
    for (len, seed) in [(8, 3), (4000, 9)] {
        a.fill(0, len, seed);
        other.post_recv([RecvWr { wr_id: 2, sge: &[b.sge(0, 4096)] }]).unwrap();
        send(&a, 11, len, other.number());
        let got = wait(&other_cq);
        assert_eq!((got.wr_id, got.qp_num, got.byte_len), (2, b.qp.number(), len as u32));
        assert!((0..len).all(|i| b.byte(i) == seed.wrapping_add(i as u8)));
        assert_eq!(wait(&a.send_cq).status, 0);
    }
    assert!(none(&b.recv_cq));
    send(&a, 12, 8, srqn(&b));
    assert_eq!((wait(&b.recv_cq).wr_id, wait(&a.send_cq).wr_id), (1, 12));
}

#[test]
fn a_sender_waits_for_the_queue_it_names_and_memory_is_that_of_its_domain() {
    let hca = adapter();
    let (a, b) = (initiating(&hca), answering(&hca, PRIVATE).0);
    connect(&a.qp, &b.qp);
    send(&a, 1, 300, srqn(&b));
    assert!(none(&a.send_cq));
    b.recv(2, 0, 4096);
    assert_eq!((wait(&a.send_cq).wr_id, wait(&b.recv_cq).wr_id), (1, 2));

    let wr = SendWr {
        opcode: wr_opcode::ATOMIC_FETCH_AND_ADD,
        flags: send_flags::SIGNALED,
        sge: &[a.sge(0, 8)],
        remote_addr: b.addr(),
        rkey: b.mr.key(),
        compare_add: 7,
        remote_srqn: srqn(&b),
        ..SendWr::empty()
    };
    a.qp.post_send(&wr).unwrap();
    assert_eq!((wait(&a.send_cq).opcode, b.byte(0)), (wc_opcode::FETCH_ADD, 7));
    // The initiating side's own memory is of another domain than the shared queue.
    a.qp.post_send(&SendWr { rkey: a.mr.key(), remote_addr: a.addr(), ..wr }).unwrap();
    assert_eq!(wait(&a.send_cq).status, wc_status::REM_ACCESS_ERR);
}

#[test]
fn a_queue_that_is_not_of_the_domain_or_is_gone_ends_the_connection() {
    let hca = adapter();
    for is_gone in [false, true] {
        let (a, b) = (initiating(&hca), answering(&hca, PRIVATE).0);
        let stranger = answering(&hca, PRIVATE).0;
        connect(&a.qp, &b.qp);
        let number = if is_gone { srqn(&b) } else { srqn(&stranger) };
        if is_gone {
            b.srq.as_ref().unwrap().destroy().unwrap();
        }
        send(&a, 1, 8, number);
        assert_eq!(wait(&a.send_cq).status, wc_status::REM_INV_REQ_ERR);
        assert_eq!((a.qp.state(), b.qp.state()), (qp_state::ERR, qp_state::ERR));
        assert_eq!(hca.read_async_event().unwrap().kind, event::QP_REQ_ERR);
    }
}

#[test]
fn arrived_messages_belong_to_the_shared_queue_whatever_happens_to_the_connection() {
    let hca = adapter();
    let (a, (b, domain)) = (initiating(&hca), answering(&hca, PRIVATE));
    connect(&a.qp, &b.qp);
    for turn in 0..4 {
        b.recv(turn, 0, 64);
        send(&a, turn, 8, srqn(&b));
    }
    b.qp.destroy().unwrap();
    let (srq, sge) = (b.srq.as_ref().unwrap(), [b.sge(0, 64)]);
    let full = srq.post_recv([RecvWr { wr_id: 9, sge: &sge }]);
    assert_eq!(full, Err(Errno(libc::ENOMEM)), "all four are taken until they are polled");
    assert_eq!((0..4).map(|_| wait(&b.recv_cq).wr_id).collect::<Vec<_>>(), [0, 1, 2, 3]);
    b.recv(9, 0, 64);
    srq.destroy().unwrap();
    assert!(none(&b.recv_cq));
    b.recv_cq.destroy().unwrap();
    domain.close().unwrap();
}

#[test]
fn a_file_names_a_shared_domain_which_ends_with_its_last_user() {
    let hca = adapter();
    let named = XrcdOpen { file: Some((1, 2)), create: false, exclusive: false };
    let open = |how| hca.open_xrcd(how).err();
    assert_eq!(open(named), Some(Errno(libc::EAGAIN)), "no process has it open");
    let (a, (b, domain)) = (initiating(&hca), answering(&hca, XrcdOpen { create: true, ..named }));
    assert_eq!(open(XrcdOpen { create: true, exclusive: true, ..named }), Some(Errno(libc::EINVAL)));
    let (again, as_well) = answering(&hca, named);
    connect(&a.qp, &b.qp);
    again.recv(1, 0, 64);
    send(&a, 1, 8, srqn(&again));
    assert_eq!(wait(&again.recv_cq).wr_id, 1, "a queue that was made through another handle of the domain");
    assert_eq!(domain.close(), Err(Errno(libc::EBUSY)));
    for (side, domain) in [(b, domain), (again, as_well)] {
        side.qp.destroy().unwrap();
        side.srq.as_ref().unwrap().destroy().unwrap();
        domain.close().unwrap();
    }
    assert_eq!(open(named), Some(Errno(libc::EAGAIN)), "it went with its last user");
}

#[test]
fn each_end_of_an_xrc_connection_has_only_the_queues_of_its_kind() {
    let hca = adapter();
    let (a, b) = (initiating(&hca), answering(&hca, PRIVATE).0);
    connect(&a.qp, &b.qp);
    assert_eq!(a.qp.post_recv(&RecvWr { wr_id: 1, sge: &[] }), Err(Errno(libc::EINVAL)));
    assert_eq!(b.qp.post_recv(&RecvWr { wr_id: 1, sge: &[] }), Err(Errno(libc::EINVAL)));
    assert_eq!(b.qp.post_send(&SendWr::empty()), Err(Errno(libc::EINVAL)));
    assert_eq!(a.recv_cq.destroy().and(a.send_cq.destroy()), Err(Errno(libc::EBUSY)));
}

/// The domain that the two processes of the next test share.
const SHARED: XrcdOpen = XrcdOpen { file: Some((7, 7)), create: true, exclusive: false };

#[test]
fn the_connection_may_end_in_another_process_than_the_queue() {
    let hca = adapter();
    let (mut a, b) = (initiating(&hca), answering(&hca, SHARED).0);
    let mut other = Process::start_in("the_end_of_the_connection", &hca.folder);
    ready(&a.qp, other.hear().parse().unwrap(), false);
    // Longer than a payload in a completion: the other process cannot copy it, so it waits for the sender's timer.
    a.fill(0, 3000, 8);
    send(&a, 1, 3000, srqn(&b));
    b.recv(2, 0, 4096);
    other.tell(a.qp.number());
    assert_eq!(other.hear(), "connected");
    assert_eq!((wait(&a.send_cq).status, wait(&b.recv_cq).wr_id), (0, 2));
    assert!((0..3000).all(|i| b.byte(i) == 8_u8.wrapping_add(i as u8)));
    for (turn, len) in [8, 200, 3000].into_iter().enumerate() {
        b.recv(turn as u64, 0, 4096);
        send(&a, 1, len, srqn(&b));
        let got = wait(&b.recv_cq);
        assert_eq!((got.wr_id, got.byte_len, wait(&a.send_cq).status), (turn as u64, len as u32, 0));
    }
    assert!(other.ends());
}

#[test]
#[ignore = "started by the test above, as its second process"]
fn the_end_of_the_connection() {
    let hca = joined();
    let domain = hca.open_xrcd(SHARED).unwrap();
    let qp = hca.create_xrc_recv(&domain, 0).unwrap();
    println!("say: {}", qp.number());
    let mut lines = std::io::stdin().lines();
    ready(&qp, lines.next().unwrap().unwrap().trim().parse().unwrap(), true);
    println!("say: connected");
    assert!(lines.next().is_none(), "the end of the input");
}
