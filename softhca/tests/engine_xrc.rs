// SPDX-License-Identifier: MIT OR Apache-2.0
//! Extended reliable connections: requests that name the shared receive queue they are for, and domains.

mod engine_support;

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    sync::Arc,
};

use engine_support::{RIGHTS, Settings, Side, adapter, join, lid, none, wait};
use softhca::engine::{
    Cq, Errno, Hca, Mr, Pd, Qp, QpAttr, RecvWr, SendWr, Sge, Srq, Xrcd, XrcdOpen,
    codes::{attr_mask as m, event, qp_state, qp_type, send_flags, wc_opcode, wc_status, wr_opcode},
};

const PRIVATE: XrcdOpen = XrcdOpen { file: None, create: true, exclusive: false };

/// What answers: a domain, a shared queue in it, and the end of a connection.
struct Answering {
    pd: Pd,
    domain: Xrcd,
    cq: Cq,
    srq: Srq,
    qp: Qp,
    mr: Mr,
    memory: Box<[u8]>,
}

impl Answering {
    fn new(hca: &Arc<Hca>, how: XrcdOpen) -> Answering {
        let (pd, domain, cq) = (hca.alloc_pd(), hca.open_xrcd(how).unwrap(), hca.create_cq(64, None, 0, 0).unwrap());
        let srq = hca.create_xrc_srq(&pd, &domain, &cq, 4, 1, 5).unwrap();
        let qp = hca.create_xrc_recv(&domain, 6).unwrap();
        let memory = vec![0_u8; 4096].into_boxed_slice();
        let addr = memory.as_ptr() as u64;
        let mr = pd.reg_mr(addr, 4096, addr, RIGHTS).unwrap();
        Answering { pd, domain, cq, srq, qp, mr, memory }
    }

    fn recv(&self, srq: &Srq, wr_id: u64, len: u32) -> Result<(), Errno> {
        let sge = [Sge { addr: self.memory.as_ptr() as u64, len, lkey: self.mr.key() }];
        srq.post_recv([RecvWr { wr_id, sge: &sge }])
    }

    fn byte(&self, at: usize) -> u8 {
        // SAFETY: inside the buffer; volatile, because the adapter writes it behind the compiler's back.
        unsafe { std::ptr::from_ref(&self.memory[at]).read_volatile() }
    }
}

/// The initiating end, with memory of its own.
fn initiating(hca: &Arc<Hca>) -> Side {
    Side::new(hca, 4096, &Settings { kind: qp_type::XRC_SEND, ..Settings::default() })
}

/// An end of a connection to `peer`, to RTS; `answers`: it is the one that answers.
fn ready(qp: &Qp, peer: u32, answers: bool) {
    let init = QpAttr { qp_state: qp_state::INIT, port_num: 1, qp_access_flags: RIGHTS, ..QpAttr::default() };
    qp.modify(&init, m::STATE | m::PKEY_INDEX | m::PORT | m::ACCESS_FLAGS).unwrap();
    let rtr = QpAttr {
        qp_state: qp_state::RTR,
        path_mtu: 5,
        dest_qp_num: peer,
        max_dest_rd_atomic: 4,
        min_rnr_timer: 31,
        ah_attr: lid(1),
        ..QpAttr::default()
    };
    let path = m::STATE | m::AV | m::PATH_MTU | m::DEST_QPN | m::RQ_PSN;
    qp.modify(&rtr, path | if answers { m::MAX_DEST_RD_ATOMIC | m::MIN_RNR_TIMER } else { 0 }).unwrap();
    let rts = QpAttr {
        qp_state: qp_state::RTS,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        max_rd_atomic: 4,
        ..QpAttr::default()
    };
    let counted = m::RETRY_CNT | m::RNR_RETRY | m::MAX_QP_RD_ATOMIC;
    qp.modify(&rts, m::STATE | m::TIMEOUT | m::SQ_PSN | if answers { 0 } else { counted }).unwrap();
}

fn connect(a: &Qp, b: &Qp) {
    ready(a, b.number(), false);
    ready(b, a.number(), true);
}

fn send(from: &Side, wr_id: u64, len: usize, remote_srqn: u32) {
    let sge = [from.sge(0, len)];
    let wr = SendWr { wr_id, flags: send_flags::SIGNALED, sge: &sge, remote_srqn, ..SendWr::empty() };
    from.qp.post_send(&wr).unwrap();
}

#[test]
fn the_request_says_which_shared_queue_takes_it() {
    let hca = adapter();
    let (mut a, b) = (initiating(&hca), Answering::new(&hca, PRIVATE));
    connect(&a.qp, &b.qp);
    let other_cq = hca.create_cq(16, None, 0, 0).unwrap();
    let other = hca.create_xrc_srq(&b.pd, &b.domain, &other_cq, 4, 1, 7).unwrap();
    b.recv(&b.srq, 1, 4096).unwrap();
    b.recv(&other, 2, 4096).unwrap();
    for (len, seed) in [(8, 3), (4000, 9)] {
        a.fill(0, len, seed);
        send(&a, 11, len, other.number());
        let got = wait(&other_cq);
        assert_eq!((got.wr_id, got.qp_num, got.byte_len), (2, b.qp.number(), len as u32));
        assert!((0..len).all(|i| b.byte(i) == seed.wrapping_add(i as u8)));
        assert_eq!(wait(&a.send_cq).status, 0);
        b.recv(&other, 2, 4096).unwrap();
    }
    assert!(none(&b.cq));
    send(&a, 12, 8, b.srq.number());
    assert_eq!((wait(&b.cq).wr_id, wait(&a.send_cq).wr_id), (1, 12));
}

#[test]
fn a_sender_waits_for_the_queue_it_names_and_memory_is_that_of_its_domain() {
    let hca = adapter();
    let (a, b) = (initiating(&hca), Answering::new(&hca, PRIVATE));
    connect(&a.qp, &b.qp);
    send(&a, 1, 300, b.srq.number());
    assert!(none(&a.send_cq));
    b.recv(&b.srq, 2, 4096).unwrap();
    assert_eq!((wait(&a.send_cq).wr_id, wait(&b.cq).wr_id), (1, 2));

    let sge = [a.sge(0, 8)];
    let wr = SendWr {
        opcode: wr_opcode::ATOMIC_FETCH_AND_ADD,
        flags: send_flags::SIGNALED,
        sge: &sge,
        remote_addr: b.memory.as_ptr() as u64,
        rkey: b.mr.key(),
        compare_add: 7,
        remote_srqn: b.srq.number(),
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
        let (a, b) = (initiating(&hca), Answering::new(&hca, PRIVATE));
        let stranger = Answering::new(&hca, PRIVATE);
        connect(&a.qp, &b.qp);
        let number = if is_gone { b.srq.number() } else { stranger.srq.number() };
        if is_gone {
            b.srq.destroy().unwrap();
        }
        send(&a, 1, 8, number);
        assert_eq!(wait(&a.send_cq).status, wc_status::REM_INV_REQ_ERR);
        assert_eq!((a.qp.state(), b.qp.state()), (qp_state::ERR, qp_state::ERR));
        assert_eq!(hca.read_async_event().unwrap().kind, event::QP_REQ_ERR);
    }
}

#[test]
fn what_has_arrived_is_the_shared_queues_whatever_becomes_of_the_connection() {
    let hca = adapter();
    let (a, b) = (initiating(&hca), Answering::new(&hca, PRIVATE));
    connect(&a.qp, &b.qp);
    for turn in 0..4 {
        b.recv(&b.srq, turn, 64).unwrap();
        send(&a, turn, 8, b.srq.number());
    }
    b.qp.destroy().unwrap();
    assert_eq!(b.recv(&b.srq, 9, 64), Err(Errno(libc::ENOMEM)), "all four are taken until they are polled");
    assert_eq!((0..4).map(|_| wait(&b.cq).wr_id).collect::<Vec<_>>(), [0, 1, 2, 3]);
    b.recv(&b.srq, 9, 64).unwrap();
    b.srq.destroy().unwrap();
    assert!(none(&b.cq));
    b.cq.destroy().unwrap();
    b.domain.close().unwrap();
}

#[test]
fn a_domain_is_shared_by_its_file_and_closes_when_nothing_is_in_it() {
    let hca = adapter();
    let named = XrcdOpen { file: Some((1, 2)), create: false, exclusive: false };
    let open = |how| hca.open_xrcd(how).err();
    assert_eq!(open(named), Some(Errno(libc::EAGAIN)), "nobody has it open");
    let (a, b) = (initiating(&hca), Answering::new(&hca, XrcdOpen { create: true, ..named }));
    assert_eq!(open(XrcdOpen { create: true, exclusive: true, ..named }), Some(Errno(libc::EINVAL)));
    let again = Answering::new(&hca, named);
    connect(&a.qp, &b.qp);
    again.recv(&again.srq, 1, 64).unwrap();
    send(&a, 1, 8, again.srq.number());
    assert_eq!(wait(&again.cq).wr_id, 1, "a queue that was made through another handle of the domain");
    assert_eq!(b.domain.close(), Err(Errno(libc::EBUSY)));
    for side in [b, again] {
        side.qp.destroy().unwrap();
        side.srq.destroy().unwrap();
        side.domain.close().unwrap();
    }
    assert_eq!(open(named), Some(Errno(libc::EAGAIN)), "it went with its last user");
}

#[test]
fn the_ends_have_only_what_their_kind_has() {
    let hca = adapter();
    let (a, b) = (initiating(&hca), Answering::new(&hca, PRIVATE));
    connect(&a.qp, &b.qp);
    assert_eq!(a.qp.post_recv(&RecvWr { wr_id: 1, sge: &[] }), Err(Errno(libc::EINVAL)));
    assert_eq!(b.qp.post_recv(&RecvWr { wr_id: 1, sge: &[] }), Err(Errno(libc::EINVAL)));
    assert_eq!(b.qp.post_send(&SendWr::empty()), Err(Errno(libc::EINVAL)));
    assert_eq!(a.recv_cq.destroy().and(a.send_cq.destroy()), Err(Errno(libc::EBUSY)));
}

/// What names the domain of the two processes of the next test.
const SHARED: XrcdOpen = XrcdOpen { file: Some((7, 7)), create: true, exclusive: false };
const FOLDER: &str = "SOFTHCA_TEST_FOLDER";

#[test]
fn the_connection_may_end_in_another_process_than_the_queue() {
    let hca = adapter();
    let (mut a, b) = (initiating(&hca), Answering::new(&hca, SHARED));
    let mut other = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "the_end_of_the_connection", "--nocapture"])
        .env(FOLDER, &hca.folder.0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut to = other.stdin.take().unwrap();
    let mut from = BufReader::new(other.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut word = |name: &str| loop {
        let line = from.next().expect("the other process goes on");
        if let Some((_, word)) = line.split_once(name) {
            return word.trim().to_owned();
        }
    };
    ready(&a.qp, word("number").parse().unwrap(), false);
    // Longer than what travels in a completion: the sender waits for the other process to be ready, which may not copy
    // from one process to another.
    a.fill(0, 3000, 8);
    send(&a, 1, 3000, b.srq.number());
    b.recv(&b.srq, 2, 4096).unwrap();
    writeln!(to, "{}", a.qp.number()).unwrap();
    assert_eq!(word("connected"), "");
    assert_eq!((wait(&a.send_cq).status, wait(&b.cq).wr_id), (0, 2));
    assert!((0..3000).all(|i| b.byte(i) == 8_u8.wrapping_add(i as u8)));
    for (turn, len) in [8, 200, 3000].into_iter().enumerate() {
        b.recv(&b.srq, turn as u64, 4096).unwrap();
        send(&a, 1, len, b.srq.number());
        let got = wait(&b.cq);
        assert_eq!((got.wr_id, got.byte_len, wait(&a.send_cq).status), (turn as u64, len as u32, 0));
    }
    drop(to);
    assert!(other.wait().unwrap().success());
}

#[test]
#[ignore = "started by the test above, as its second process"]
fn the_end_of_the_connection() {
    let folder = std::env::var_os(FOLDER).expect("started by another test");
    let hca = join(std::path::Path::new(&folder));
    let domain = hca.open_xrcd(SHARED).unwrap();
    let qp = hca.create_xrc_recv(&domain, 0).unwrap();
    println!("\nnumber {}", qp.number());
    let mut lines = std::io::stdin().lines();
    ready(&qp, lines.next().unwrap().unwrap().trim().parse().unwrap(), true);
    println!("\nconnected");
    assert!(lines.next().is_none(), "the end of the input");
}
