// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that a program unmaps while it is registered and requests use it: the request fails at the side whose memory
//! is gone, and the process lives. The peer is of the same process here, so that no system call moves the data; the
//! same between processes is in `engine_processes.rs`.

mod engine_support;

use engine_support::prelude::*;
use engine_support::unmapped::Pages;

/// Short messages travel in completions, longer ones in one copy.
const LENGTHS: [usize; 4] = [8, 200, 5000, 100 << 10];

fn fast() -> Settings {
    Settings { timeout: 8, retry_cnt: 2, ..Settings::default() }
}

#[test]
fn a_receive_whose_memory_is_unmapped_fails_and_kills_nobody() {
    let hca = adapter();
    for len in LENGTHS {
        let (a, b) = pair(&hca, 128 << 10, &fast());
        let pages = Pages::of(&b, len);
        b.qp.post_recv(&RecvWr { wr_id: 5, sge: &[pages.sge()] }).unwrap();
        pages.unmap();
        a.send(1, 0, len);
        let got = wait(&b.recv_cq);
        assert_eq!((got.wr_id, got.status), (5, wc_status::LOC_PROT_ERR), "{len} bytes");
        // An arrival that the poll copies was acknowledged before.
        let sent = wait(&a.send_cq).status;
        assert!([wc_status::SUCCESS, wc_status::REM_OP_ERR].contains(&sent), "{len} bytes: {sent}");
        b.stops();
    }
}

#[test]
fn a_send_whose_memory_is_unmapped_fails_and_leaves_the_receive_posted() {
    let hca = adapter();
    for len in LENGTHS {
        for waits in [false, true] {
            let (a, b) = pair(&hca, 128 << 10, &fast());
            let pages = Pages::of(&a, len);
            let receive = || b.recv(6, 0, 128 << 10);
            let send = || {
                let wr = SendWr { flags: send_flags::SIGNALED, sge: &[pages.sge()], ..SendWr::empty() };
                a.qp.post_send(&wr).unwrap();
            };
            if waits {
                send();
                pages.unmap();
                receive();
            } else {
                pages.unmap();
                receive();
                send();
            }
            // A short payload that has to wait is kept when it is posted.
            let is_kept = waits && len <= 256;
            let wanted = if is_kept { wc_status::SUCCESS } else { wc_status::LOC_PROT_ERR };
            assert_eq!(wait(&a.send_cq).status, wanted, "{len} bytes, waiting: {waits}");
            if !is_kept {
                assert!(none(&b.recv_cq), "{len} bytes: the receive was not used");
                assert_eq!(b.qp.state(), qp_state::RTS, "{len} bytes: nothing wrong at the receiver");
            }
        }
    }
}

#[test]
fn an_rdma_operation_fails_at_the_side_whose_memory_is_unmapped() {
    let hca = adapter();
    for opcode in [wr_opcode::RDMA_WRITE, wr_opcode::RDMA_READ, wr_opcode::ATOMIC_FETCH_AND_ADD] {
        for is_own in [true, false] {
            let (a, b) = pair(&hca, 4096, &fast());
            let (own, target) = (Pages::of(&a, 8), Pages::of(&b, 8));
            if is_own {
                own.unmap();
            } else {
                target.unmap();
            }
            let (sge, flags) = ([own.sge()], send_flags::SIGNALED);
            let to = target.sge();
            let wr = SendWr { opcode, flags, sge: &sge, remote_addr: to.addr, rkey: to.lkey, ..SendWr::empty() };
            a.qp.post_send(&wr).unwrap();
            let wanted = if is_own { wc_status::LOC_PROT_ERR } else { wc_status::REM_ACCESS_ERR };
            assert_eq!(wait(&a.send_cq).status, wanted, "opcode {opcode}, own: {is_own}");
        }
    }
}

#[test]
fn a_datagram_for_unmapped_memory_fails_its_receive() {
    let settings = Settings { kind: qp_type::UD, ..Settings::default() };
    let (_hca, a, b) = connected(4096, &settings);
    let pages = Pages::of(&b, 100);
    b.qp.post_recv(&RecvWr { wr_id: 5, sge: &[pages.sge()] }).unwrap();
    pages.unmap();
    a.datagram(&a.hca.create_ah(&a.pd, &lid(1)).unwrap(), b.qp.number());
    assert_eq!(wait(&a.send_cq).status, wc_status::SUCCESS);
    assert_eq!(wait(&b.recv_cq).status, wc_status::LOC_PROT_ERR);
}
