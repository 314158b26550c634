// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several threads of a process on the same queues.

mod engine_support;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use engine_support::prelude::*;

const POSTERS: u32 = 3;
const POLLERS: u32 = 2;
const EACH: u32 = 3000;
const ALL: u32 = POSTERS * EACH;

/// Polls with others until `ALL` completions were seen by all together.
fn poll_all(cq: &Cq, seen: &AtomicU32, mut take: impl FnMut(&Wc)) {
    let mut out = [Wc::default(); 7];
    while seen.load(Ordering::Relaxed) < ALL {
        let count = cq.poll(&mut out);
        out[..count].iter().for_each(&mut take);
        seen.fetch_add(count as u32, Ordering::Relaxed);
    }
}

#[test]
fn threads_that_share_a_queue_pair_and_a_completion_queue_lose_and_double_no_message() {
    for (name, srq, len) in [("threads", false, 8), ("threads-srq", true, 8), ("threads-long", false, 700)] {
        let (_hca, a, b) = connected(1 << 20, &Settings { wr: 256, cqe: 1024, srq, ..Settings::default() });
        let sent = Mutex::new(vec![0_u32; ALL as usize]);
        let received = Mutex::new(vec![0_u32; POSTERS as usize * EACH as usize]);
        let (seen_by_a, seen_by_b) = (AtomicU32::new(0), AtomicU32::new(0));
        for slot in 0..256 {
            b.recv(slot, slot as usize * 1024, 1024);
        }
        std::thread::scope(|scope| {
            for thread in 0..POSTERS {
                let a = &a;
                scope.spawn(move || {
                    for number in 0..EACH {
                        let data = [thread, number];
                        let sge = [Sge { addr: data.as_ptr() as u64, length: 8, lkey: 0 }];
                        let wr_id = u64::from(thread * EACH + number);
                        let whole = [a.sge(thread as usize * 4096, len)];
                        // Short ones are inline and name their sender; long ones are only counted.
                        let (sge, inline) = if len == 8 { (&sge, send_flags::INLINE) } else { (&whole, 0) };
                        let wr = SendWr { wr_id, flags: send_flags::SIGNALED | inline, sge, ..SendWr::empty() };
                        while let Err(errno) = a.qp.post_send(&wr) {
                            assert_eq!(errno, Errno(libc::ENOMEM));
                            std::thread::yield_now();
                        }
                    }
                });
            }
            for _ in 0..POLLERS {
                scope.spawn(|| {
                    poll_all(&a.send_cq, &seen_by_a, |wc| {
                        assert_eq!(wc.status, 0);
                        sent.lock().unwrap()[wc.wr_id as usize] += 1;
                    });
                });
                scope.spawn(|| {
                    poll_all(&b.recv_cq, &seen_by_b, |wc| {
                        assert_eq!((wc.status, wc.byte_len), (0, len as u32));
                        let at = wc.wr_id as usize * 1024;
                        let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| b.byte(at + i)));
                        if len == 8 {
                            received.lock().unwrap()[(word(at) * EACH + word(at + 4)) as usize] += 1;
                        }
                        b.recv(wc.wr_id, at, 1024);
                    });
                });
            }
        });
        assert!(sent.lock().unwrap().iter().all(|count| *count == 1), "{name}: each send completes once");
        assert!(len != 8 || received.lock().unwrap().iter().all(|count| *count == 1), "{name}: each arrives once");
        assert_eq!((seen_by_a.into_inner(), seen_by_b.into_inner()), (ALL, ALL));
    }
}
