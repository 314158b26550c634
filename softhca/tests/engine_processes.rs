// SPDX-License-Identifier: MIT OR Apache-2.0
//! The emulated adapter between processes: this test program starts itself again as the other side, by the ignored test
//! `the_other_side`. The two exchange queue pair numbers, keys and addresses by lines of its standard streams.

mod engine_support;

use engine_support::prelude::*;
use engine_support::unmapped::Pages;

const BYTES: usize = 1 << 20;

/// Two connected sides, the second in another process; and address and key of its memory.
fn connected(part: &str, folder: &Folder) -> (Side, Process, u64, u32) {
    let mut other = Process::start_in("the_other_side", folder);
    let side = Side::new(&join(folder.path()), 2 * BYTES, &settings());
    let numbers: Vec<u64> = other.hear().split(' ').map(|number| number.parse().unwrap()).collect();
    side.connect(numbers[0] as u32, &settings());
    other.tell(format!("{} {part}", side.qp.number()));
    assert_eq!(other.hear(), "connected");
    (side, other, numbers[1], numbers[2] as u32)
}

fn settings() -> Settings {
    Settings { timeout: 8, retry_cnt: 2, wr: 256, ..Settings::default() }
}

#[test]
#[ignore = "started by the other tests of this file, as their second process"]
fn the_other_side() {
    let side = Side::new(&joined(), BYTES, &settings());
    side.init(&settings());
    side.recvs(64, BYTES);
    println!("say: {} {} {}", side.qp.number(), side.addr(), side.mr.key());
    let line = std::io::stdin().lines().next().unwrap().unwrap();
    let (peer, part) = line.split_once(' ').unwrap();
    side.ready(peer.parse().unwrap(), &settings());
    println!("say: connected");
    if part == "sleep" {
        std::thread::sleep(Duration::from_mins(15));
        return;
    }
    // Echo, until a message of one byte.
    loop {
        let got = wait(&side.recv_cq);
        assert_eq!(got.status, 0);
        side.recv(got.wr_id, 0, BYTES);
        if got.byte_len == 1 {
            break;
        }
        side.send(0, 0, got.byte_len as usize);
        assert_eq!(wait(&side.send_cq).status, 0);
    }
}

#[test]
fn two_processes_exchange_messages_of_all_sizes() {
    let folder = new_folder();
    let (mut side, mut other, ..) = connected("echo", &folder);
    for (turn, len) in [0, 8, 24, 25, 256, 257, 5000, BYTES].into_iter().cycle().take(800).enumerate() {
        side.fill(0, len, turn as u8);
        side.recv(7, BYTES, BYTES);
        side.send(8, 0, len);
        let got = wait(&side.recv_cq);
        assert_eq!((got.status, got.byte_len as usize, wait(&side.send_cq).status), (0, len, 0));
        let steps = (0..len).step_by(1 + len / 100);
        assert!(steps.clone().all(|i| side.byte(BYTES + i) == (turn as u8).wrapping_add(i as u8)), "{len} bytes");
    }
    side.send(9, 0, 1);
    assert!(other.ends());
}

#[test]
fn rdma_and_atomics_reach_a_process_that_sleeps() {
    let folder = new_folder();
    let (mut side, _other, remote, key) = connected("sleep", &folder);
    side.fill(0, 1000, 1);
    let rdma = |opcode, at: usize, len: usize| {
        side.rdma(opcode, at, len, remote, key);
        assert_eq!(wait(&side.send_cq).status, wc_status::SUCCESS);
    };
    rdma(wr_opcode::RDMA_WRITE, 0, 1000);
    rdma(wr_opcode::RDMA_READ, 2000, 1000);
    assert!((0..1000).all(|i| side.byte(2000 + i) == 1_u8.wrapping_add(i as u8)));
    rdma(wr_opcode::ATOMIC_FETCH_AND_ADD, 4000, 8);
    assert!((0..8).all(|i| side.byte(4000 + i) == 1 + i as u8));
    rdma(wr_opcode::RDMA_READ, 2000, 1);
    assert_eq!(side.byte(2000), 2);
}

#[test]
fn a_killed_peer_costs_the_retries_and_no_more() {
    for len in [8, 1000] {
        let folder = new_folder();
        let (side, mut other, ..) = connected("sleep", &folder);
        side.send(1, 0, len);
        assert_eq!(wait(&side.send_cq).status, 0);
        other.child.kill().unwrap();
        other.child.wait().unwrap();
        let began = Instant::now();
        let mut ends = Vec::new();
        while ends.last() != Some(&wc_status::RETRY_EXC_ERR) {
            assert!(began.elapsed() < Duration::from_mins(2), "{ends:?}");
            side.send(2, 0, len);
            ends.push(wait(&side.send_cq).status);
        }
        side.send(3, 0, len);
        assert_eq!(wait(&side.send_cq).status, wc_status::WR_FLUSH_ERR);
    }
}

#[test]
fn requests_of_unmapped_memory_fail_and_their_process_lives() {
    // In a completion, through the inbox, by a system call.
    for len in [8, 200, 5000, BYTES] {
        let folder = new_folder();
        for opcode in [wr_opcode::SEND, wr_opcode::RDMA_WRITE, wr_opcode::RDMA_READ] {
            let (side, _other, remote_addr, rkey) = connected("sleep", &folder);
            let pages = Pages::of(&side, len);
            pages.unmap();
            let (sge, flags) = ([pages.sge()], send_flags::SIGNALED);
            side.qp.post_send(&SendWr { opcode, flags, sge: &sge, remote_addr, rkey, ..SendWr::empty() }).unwrap();
            assert_eq!(wait(&side.send_cq).status, wc_status::LOC_PROT_ERR, "opcode {opcode}, {len} bytes");
        }
    }
    for len in [8, 200, 5000] {
        let folder = new_folder();
        let (side, _other, ..) = connected("echo", &folder);
        let pages = Pages::of(&side, len);
        side.qp.post_recv(&RecvWr { wr_id: 5, sge: &[pages.sge()] }).unwrap();
        pages.unmap();
        side.send(1, 0, len);
        assert_eq!(wait(&side.recv_cq).status, wc_status::LOC_PROT_ERR, "a receive of {len} bytes");
    }
}
