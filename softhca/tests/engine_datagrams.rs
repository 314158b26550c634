// SPDX-License-Identifier: MIT OR Apache-2.0
//! Datagrams: to one queue pair, to groups, and from many threads at once.

mod engine_support;

use engine_support::prelude::*;

const MULTICAST_QPN: u32 = 0xff_ffff;

fn settings() -> Settings {
    Settings { kind: qp_type::UD, ..Settings::default() }
}

fn ready(hca: &Arc<Hca>, settings: &Settings) -> Side {
    let side = Side::new(hca, 1 << 16, settings);
    side.connect(0, settings);
    side
}

fn group(last: u8) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[..2].copy_from_slice(&[0xff, 0x12]);
    gid[15] = last;
    gid
}

fn send_to_group(from: &Side, gid: [u8; 16], qkey: u32) {
    let address = global(gid, 0xc001);
    let ah = from.hca.create_ah(&from.pd, &address).unwrap();
    from.datagram_with(&ah, MULTICAST_QPN, qkey, 8);
    assert_eq!(wait(&from.send_cq).status, 0);
}

#[test]
fn datagrams_carry_forty_bytes_before_them_and_are_lost_silently() {
    let (hca, mut a, b) = connected(8192, &settings());
    a.fill(0, 4096, 5);
    let dgid = hca.spec().ports[0].gids[0].raw;
    for (is_global, len) in [(false, 8), (true, 8), (true, 200), (true, 4096)] {
        let attr = AhAttr { is_global: u8::from(is_global), ..global(dgid, 1) };
        let ah = hca.create_ah(&a.pd, &attr).unwrap();
        // No receive request takes it, or it has the wrong key.
        for qkey in [QKEY, QKEY + 1] {
            a.datagram_with(&ah, b.qp.number(), qkey, len);
            assert_eq!(wait(&a.send_cq).status, 0);
        }
        b.recv(1, 0, 8192);
        assert!(none(&b.recv_cq));
        a.datagram_with(&ah, b.qp.number(), QKEY, len);
        let got = wait(&b.recv_cq);
        assert_eq!((got.byte_len, got.slid, got.src_qp), (len as u32 + 40, 1, a.qp.number()));
        assert_eq!(got.flags & wc_flags::GRH != 0, is_global);
        assert!((0..len).all(|i| b.byte(40 + i) == 5_u8.wrapping_add(i as u8)), "{len} bytes");
        if is_global {
            assert_eq!((b.byte(0) >> 4, b.byte(24)), (6, 0xfe));
        }
        assert_eq!(wait(&a.send_cq).status, 0);
        ah.destroy().unwrap();
    }
}

#[test]
fn every_member_of_a_group_gets_one_copy_until_it_leaves() {
    let hca = adapter();
    let settings = settings();
    let mut sender = ready(&hca, &settings);
    sender.fill(0, 8, 40);
    let members = [ready(&hca, &settings), ready(&hca, &settings)];
    let stranger = ready(&hca, &settings);
    for member in &members {
        member.qp.attach_mcast(&group(1), 0xc001).unwrap();
        member.qp.attach_mcast(&group(1), 0xc001).unwrap(); // again, which changes nothing
    }
    stranger.qp.attach_mcast(&group(2), 0xc002).unwrap();
    for side in members.iter().chain([&stranger]) {
        side.recv(1, 0, 64);
        side.recv(2, 64, 64);
    }
    send_to_group(&sender, group(1), QKEY);
    for member in &members {
        let got = wait(&member.recv_cq);
        assert_eq!((got.wr_id, got.byte_len, got.src_qp), (1, 48, sender.qp.number()));
        assert_ne!(got.flags & wc_flags::GRH, 0, "a group is addressed by a global route");
        assert_eq!((member.byte(24), member.byte(39), member.byte(40)), (0xff, 1, 40));
        assert!(none(&member.recv_cq));
    }
    send_to_group(&sender, group(1), QKEY + 1);
    members[0].qp.detach_mcast(&group(1), 0xc001).unwrap();
    send_to_group(&sender, group(1), QKEY);
    assert!(none(&members[0].recv_cq));
    assert_eq!(wait(&members[1].recv_cq).wr_id, 2, "the one with the wrong key was not taken");
    assert!(none(&stranger.recv_cq));

    assert_eq!(members[0].qp.detach_mcast(&group(1), 0xc001), Err(Errno(libc::EINVAL)), "it has left");
    assert_eq!(members[1].qp.destroy(), Err(Errno(libc::EBUSY)), "it is a member");
    members[1].qp.detach_mcast(&group(1), 0xc001).unwrap();
    members[1].qp.destroy().unwrap();
}

#[test]
fn a_group_is_for_datagrams_and_has_a_groups_address() {
    let hca = adapter();
    let connected = Side::new(&hca, 4096, &Settings::default());
    assert_eq!(connected.qp.attach_mcast(&group(1), 0), Err(Errno(libc::EINVAL)));
    let datagrams = ready(&hca, &settings());
    assert_eq!(datagrams.qp.attach_mcast(&[0xfe; 16], 0), Err(Errno(libc::EINVAL)));
}

#[test]
fn datagrams_from_many_threads_arrive_whole_and_in_their_senders_order_or_are_counted_as_lost() {
    const THREADS: usize = 4;
    const EACH: u32 = 5000;
    let hca = adapter();
    let settings = Settings { wr: 1024, cqe: 4096, ..settings() };
    let receiver = ready(&hca, &settings);
    let place = |slot: u64| slot as usize * 64;
    for slot in 0..512 {
        receiver.recv(slot, place(slot), 64);
    }
    let (mut next, mut taken) = ([0_u32; THREADS], 0_u32);
    let mut take = |wc: &Wc| {
        let word = |at| u32::from_ne_bytes(std::array::from_fn(|i| receiver.byte(place(wc.wr_id) + 40 + at + i)));
        let (thread, number) = (word(0) as usize, word(4));
        assert_eq!((wc.status, wc.byte_len), (0, 48));
        assert!(number >= next[thread], "{number} of thread {thread} comes after {}", next[thread]);
        next[thread] = number + 1;
        taken += 1;
        receiver.recv(wc.wr_id, place(wc.wr_id), 64);
    };
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..THREADS as u32)
            .map(|thread| {
                let (hca, settings, to) = (&hca, &settings, receiver.qp.number());
                scope.spawn(move || {
                    let mut side = ready(hca, settings);
                    let ah = hca.create_ah(&side.pd, &lid(1)).unwrap();
                    side.memory[..4].copy_from_slice(&thread.to_ne_bytes());
                    for number in 0..EACH {
                        side.memory[4..8].copy_from_slice(&number.to_ne_bytes());
                        side.datagram(&ah, to);
                        assert_eq!(wait(&side.send_cq).status, 0);
                    }
                })
            })
            .collect();
        let mut out = [Wc::default(); 16];
        loop {
            let over = senders.iter().all(std::thread::ScopedJoinHandle::is_finished);
            let count = receiver.recv_cq.poll(&mut out);
            out[..count].iter().for_each(&mut take);
            if over && count == 0 {
                break;
            }
        }
    });
    let lost = hca.counter("out_of_buffer") as u32;
    println!("{taken} taken, {lost} lost");
    assert_eq!(taken + lost, THREADS as u32 * EACH);
}
