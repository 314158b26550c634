// SPDX-License-Identifier: MIT OR Apache-2.0
//! The core clock: width, drift and offset of its own for each adapter, and the times in completions.

mod engine_support;

use std::sync::Arc;

use engine_support::{Adapter, Folder, Settings, Side, described, spec, wait};
use softhca::engine::codes::qp_state;
use softhca::engine::{CQ_TIMESTAMP_RAW, CQ_TIMESTAMP_WALL, ClockSpec, Cq, Fabric, Hca};

const SECOND: u64 = 1_000_000_000;

fn adapter(clock: ClockSpec) -> Adapter {
    described(|spec| spec.devices[0].clock = clock)
}

fn host(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a place for the answer.
    assert_eq!(unsafe { libc::clock_gettime(clock, &raw mut time) }, 0);
    time.tv_sec as u64 * SECOND + time.tv_nsec as u64
}

fn around<T>(clock: libc::clockid_t, read: impl FnOnce() -> T) -> (u64, T, u64) {
    let before = host(clock);
    let value = read();
    (before, value, host(clock))
}

#[test]
fn a_clock_follows_the_hosts_by_its_frequency_drift_and_offset() {
    for (frequency_hz, drift_ppm, offset) in
        [(SECOND, 0.0, 0), (156_250_000, 0.0, 77), (SECOND, 250.0, 0), (SECOND, -50_000.0, 1 << 60)]
    {
        let hca = adapter(ClockSpec { frequency_hz, offset, drift_ppm, mask_bits: 64 });
        let (before, ticks, after) = around(libc::CLOCK_MONOTONIC, || hca.read_clock());
        let expected = |ns: u64| {
            let seconds = ns as f64 / SECOND as f64;
            seconds * frequency_hz as f64 * (1.0 + drift_ppm / 1e6)
        };
        let ticks = ticks.wrapping_sub(offset) as f64;
        // A microsecond aside for rounding.
        let slack = frequency_hz as f64 / 1e6;
        assert!(
            ticks >= expected(before) - slack && ticks <= expected(after) + slack,
            "{frequency_hz} Hz, {drift_ppm} ppm: {ticks} is not between {} and {}",
            expected(before),
            expected(after)
        );
    }
}

#[test]
fn two_adapters_of_a_fabric_have_clocks_of_their_own() {
    let folder = Folder::new();
    let mut spec = spec(&folder.0);
    let mut other = spec.devices[0].clone();
    other.ports[0].lid = 2;
    other.clock = ClockSpec { offset: 1 << 50, ..ClockSpec::USUAL };
    spec.devices.push(other);
    let fabric = Fabric::join(spec).unwrap();
    let (first, second) = (fabric.open(0).unwrap(), fabric.open(1).unwrap());
    let (before, ticks, after) = (first.read_clock(), second.read_clock(), first.read_clock());
    assert!((before..=after).contains(&(ticks - (1 << 50))));
}

#[test]
fn a_narrow_clock_wraps_and_differences_go_on() {
    let hca = adapter(ClockSpec { mask_bits: 16, ..ClockSpec::USUAL }); // 65.536 us
    let (mut last, mut wraps, mut ticks) = (hca.read_clock(), 0, 0);
    let (began, first) = (host(libc::CLOCK_MONOTONIC), last);
    while wraps < 20 {
        let now = hca.read_clock();
        assert!(now < 1 << 16);
        wraps += u32::from(now < last);
        ticks += now.wrapping_sub(last) & 0xffff;
        last = now;
    }
    let took = host(libc::CLOCK_MONOTONIC) - began;
    // Whole turns are missed where the machine pauses this test; nothing is counted that did not pass.
    assert!(ticks <= took + 1000 && ticks >= 19 << 16, "{ticks} ticks from {first} in {took} ns");
}

fn timed(hca: &Arc<Hca>, flags: u32) -> (Side, Side, Cq) {
    let settings = Settings::default();
    let (mut a, b) = (Side::new(hca, 4096, &settings), Side::new(hca, 4096, &settings));
    let cq = hca.create_cq(16, None, 0, flags).unwrap();
    a.replace((&cq, &cq), None);
    a.connect(b.qp.number(), &settings);
    b.connect(a.qp.number(), &settings);
    assert_eq!(a.qp.state(), qp_state::RTS);
    (a, b, cq)
}

#[test]
fn completions_carry_when_they_completed_not_when_they_were_polled() {
    let hca = adapter(ClockSpec::USUAL);
    let (a, b, cq) = timed(&hca, CQ_TIMESTAMP_RAW | CQ_TIMESTAMP_WALL);
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
fn the_trace_has_a_line_for_each_completion_with_its_time_before_it_wraps() {
    let hca = described(|spec| {
        spec.devices[0].clock.mask_bits = 20;
        spec.trace = true;
    });
    let (a, b, cq) = timed(&hca, CQ_TIMESTAMP_RAW);
    let (before, stamps, after) = around(libc::CLOCK_MONOTONIC, || {
        [8, 64].map(|bytes| {
            b.recv(1, 0, 64);
            a.send(1, 0, bytes);
            let done = wait(&cq);
            wait(&b.recv_cq); // a queue without times has no lines
            done.ts_raw
        })
    });
    let text = std::fs::read_to_string(hca.folder.0.join("trace")).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!(lines.len(), 2, "{text}");
    for ((line, stamp), bytes) in lines.iter().zip(stamps).zip(["8", "64"]) {
        let number = a.qp.number().to_string();
        assert_eq!(line[..5], ["softhca0", number.as_str(), "0", "0", bytes], "a successful send");
        let ticks: u64 = line[5].parse().unwrap();
        assert!((before..=after).contains(&ticks) && ticks & 0xf_ffff == stamp, "{ticks}, stamp {stamp}");
    }
}
