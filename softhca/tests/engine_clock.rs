// SPDX-License-Identifier: MIT OR Apache-2.0
//! The times in completions, and in the trace.

mod engine_support;

use engine_support::prelude::*;

fn host(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a place for the answer.
    assert_eq!(unsafe { libc::clock_gettime(clock, &raw mut time) }, 0);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn around<T>(clock: libc::clockid_t, read: impl FnOnce() -> T) -> (u64, T, u64) {
    let before = host(clock);
    let value = read();
    (before, value, host(clock))
}

fn timed(hca: &Arc<Hca>, flags: u32) -> (Side, Side, Cq) {
    let settings = Settings::default();
    let (mut a, b) = (Side::new(hca, 4096, &settings), Side::new(hca, 4096, &settings));
    let cq = hca.create_cq(16, None, 0, flags).unwrap();
    a.replace((&cq, &cq), None);
    a.meet(&b, &settings);
    (a, b, cq)
}

#[test]
fn completions_carry_the_time_of_their_completion_and_not_of_the_poll() {
    let hca = adapter();
    let (a, b, cq) = timed(&hca, TIMESTAMP_RAW | TIMESTAMP_WALL);
    b.recv(1, 0, 64);
    let wall = host(libc::CLOCK_REALTIME);
    let (before, (), after) = around(libc::CLOCK_MONOTONIC, || a.send(1, 0, 8));
    let wall = (wall, host(libc::CLOCK_REALTIME));
    while hca.read_clock() < after + 1_000_000 {
        std::hint::spin_loop(); // polled a millisecond later
    }
    let done = wait(&cq);
    assert!((before..=after).contains(&done.ts_raw), "{} in {before}..={after}", done.ts_raw);
    // The host's clock may be slewed between its two readings for a completion: half the millisecond is aside for that.
    let (early, late) = (wall.0 - 500_000, wall.1 + 500_000);
    assert!((early..=late).contains(&done.ts_wall), "{} in {early}..={late}", done.ts_wall);
    assert_eq!(wait(&b.recv_cq).ts_raw, 0, "a queue that was not asked for times has none");
}

#[test]
fn a_completion_made_before_stamps_were_switched_on_has_the_time_of_the_switch() {
    let hca = adapter();
    let (a, b, cq) = timed(&hca, TIMESTAMP_RAW);
    (0..2).for_each(|_| b.recv(1, 0, 64));
    assert_eq!(cq.poll_each(1, |_, _| ()), 0);
    a.send(2, 0, 8);
    let (before, between, changed) = (hca.read_clock(), wait(&cq), hca.read_clock());
    assert!((before..=changed).contains(&between.ts_raw));
    assert_eq!(between.ts_wall, 0, "the queue was not asked for the time of day");
    a.send(3, 0, 8);
    assert!(wait(&cq).ts_raw >= changed, "its own");
}

#[test]
fn the_trace_has_a_line_for_each_completion_with_its_time_before_it_wraps() {
    let hca = described(|spec| {
        spec.devices[0].clock.mask_bits = 20;
        spec.trace = true;
    });
    let (a, b, cq) = timed(&hca, TIMESTAMP_RAW);
    let (before, stamps, after) = around(libc::CLOCK_MONOTONIC, || {
        [8, 64].map(|bytes| {
            b.recv(1, 0, 64);
            a.send(1, 0, bytes);
            let done = wait(&cq);
            wait(&b.recv_cq); // a queue without times has no lines
            done.ts_raw
        })
    });
    let text = std::fs::read_to_string(hca.folder.file("trace")).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!(lines.len(), 2, "{text}");
    for ((line, stamp), bytes) in lines.iter().zip(stamps).zip(["8", "64"]) {
        let number = a.qp.number().to_string();
        assert_eq!(line[..5], ["softhca0", number.as_str(), "0", "0", bytes], "a successful send");
        let ticks: u64 = line[5].parse().unwrap();
        assert!((before..=after).contains(&ticks) && ticks & 0xf_ffff == stamp, "{ticks}, stamp {stamp}");
    }
}
