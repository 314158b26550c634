// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ports' sources: from raw ticks to ordered events, whichever thread delivers; and the conversion to the host's clock.

use crate::events::tests::*;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// An adapter whose clock is the host's monotonic one, times a drift, with a narrow mask.
#[derive(Clone)]
struct Adapter {
    start: std::time::Instant,
    bits: u32,
}

impl Adapter {
    fn new(bits: u32) -> Adapter {
        Adapter { start: std::time::Instant::now(), bits }
    }

    /// 1 GHz nominal, 100 ppm fast.
    fn ticks(&self) -> u64 {
        let ns = self.start.elapsed().as_nanos() as u64;
        ns + ns / 10_000
    }

    fn raw(&self, ticks: u64) -> u64 {
        ticks & (u64::MAX >> (64 - self.bits))
    }

    fn clock(&self, name: &str, ask: bool) -> PortClock {
        let adapter = self.clone();
        PortClock {
            name: name.to_owned(),
            gid: [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7],
            ticks_per_second: 1_000_000_000,
            bits: self.bits,
            room: 256,
            read_clock: ask.then(|| -> ReadClock { Box::new(move || Some(adapter.raw(adapter.ticks()))) }),
        }
    }
}

fn put_complete(source: SourceId, raw: u64, number: u64) {
    stage_stamped(source, raw, || PutComplete { operation: number, ..PutComplete::default() });
}

fn listen_puts(options: Options, seen: &Seen) -> Arc<Registration> {
    listen_to(PutComplete::TYPE, Safety::ThreadSafe, options, seen.callback())
}

#[test]
fn a_flush_waits_for_a_thread_that_is_delivering_the_held_events_of_a_port() {
    let _alone = alone();
    let adapter = Adapter::new(48);
    let source = open_port(adapter.clock("flushed:1", true)).expect("there is room");
    let (gate, stay) = Gate::new();
    let seen = Seen::default();
    let also = seen.clone();
    let _registration = calling(PutComplete::TYPE, Safety::ThreadSafe, Options::default(), move |instance, _, _| {
        if instance.words[0] == 1 {
            stay();
        }
        also.lock().push(*instance);
    });
    // The adapter stamps a completion before a thread can poll it.
    let stamp = adapter.raw(adapter.ticks());
    let batch = begin_batch(source).expect("a port's");
    (1..=2).for_each(|number| put_complete(source, stamp, number));
    end_batch(source, batch);
    let other = std::thread::spawn(|| deliver(0, Safety::ThreadSafe));
    gate.is_reached();
    let flushing = held_up::begin(move || (flush(Safety::None), seen.numbers()));
    gate.open();
    assert_eq!(flushing.join().expect("no panic"), (true, vec![1, 2]));
    other.join().expect("no panic");
    close_port(source, Safety::ThreadSafe);
}

#[test]
fn the_source_of_a_reopened_port_shows_the_new_gid() {
    let _alone = alone();
    let adapter = Adapter::new(48);
    let source = open_port(adapter.clock("gid:1", false)).expect("room");
    let says = |gid| source_info(source).description.ends_with(gid);
    assert!(says(", GID fe80::7"), "{}", source_info(source).description);
    close_port(source, Safety::MpiRestricted);
    let again = PortClock { gid: [0; 16], ..adapter.clock("gid:1", false) };
    assert_eq!(open_port(again), Some(source));
    assert!(says(", GID ::") && source_info(source).name == "gid:1");
    close_port(source, Safety::MpiRestricted);
}

#[test]
fn a_port_without_stamps_has_a_source_without_events_that_shows_its_gid() {
    let _alone = alone();
    let mut gid = [0; 16];
    gid[15] = 9;
    open_unstamped_port("unstamped:1", gid);
    let sources = || (0..source_count()).filter_map(SourceId::from_index);
    let found: Vec<_> = sources().filter(|source| source_info(*source).name == "unstamped:1").collect();
    let [source] = found[..] else { panic!("{found:?}") };
    assert!(source_info(source).description.ends_with(", GID ::9"), "{}", source_info(source).description);
    assert!(timestamp(source).is_some() && to_host(source, 5).is_some_and(|host| host.ticks == 5));
    let before = source_count();
    gid[15] = 10;
    open_unstamped_port("unstamped:1", gid);
    assert!(source_info(source).description.ends_with(", GID ::a") && source_count() == before);
}

#[test]
fn catch_up_delivers_the_held_events_to_a_registration_that_is_then_freed() {
    let (_alone, seen, registration) = listening_to(PutComplete::TYPE, Safety::ThreadSafe, Options::default());
    let port = open_port(Adapter::new(48).clock("test_catch_up:1", false)).expect("room");
    put_complete(port, 1000, 7);
    catch_up(Safety::ThreadSafe);
    free(&registration, Safety::ThreadSafe, None).expect("live");
    assert_eq!(seen.numbers(), [7]);
    close_port(port, Safety::ThreadSafe);
}

#[test]
fn catch_up_all_waits_for_the_event_that_another_thread_is_delivering() {
    let _alone = alone();
    let seen = Seen::default();
    let (gate, stay) = Gate::new();
    let also = seen.clone();
    let registration = calling(PutComplete::TYPE, Safety::ThreadSafe, Options::default(), move |instance, _, _| {
        stay();
        also.lock().push(*instance);
    });
    let port = open_port(Adapter::new(48).clock("test_in_hand:1", false)).expect("room");
    put_complete(port, 1000, 7);
    let other = std::thread::spawn(|| catch_up(Safety::ThreadSafe));
    gate.is_reached();
    let stops = held_up::begin(move || {
        catch_up_all(Safety::ThreadSafe);
        seen.numbers()
    });
    assert!(!stops.is_finished(), "it did not wait");
    gate.open();
    assert_eq!(stops.join().expect("no panic"), [7]);
    other.join().expect("no panic");
    free(&registration, Safety::ThreadSafe, None).expect("live");
    close_port(port, Safety::ThreadSafe);
}

#[test]
fn a_port_delivers_completions_in_order_and_counts_those_that_come_too_late() {
    let (_alone, seen, registration) = listening_to(PutComplete::TYPE, Safety::ThreadSafe, Options::default());
    let port = open_port(Adapter::new(48).clock("test_late:1", false)).expect("room");
    let before = counts(port);
    let batch = begin_batch(port).expect("a port's");
    for (raw, number) in [(1000, 0), (1300, 3), (1100, 1), (1200, 2)] {
        put_complete(port, raw, number);
    }
    deliver(256, Safety::ThreadSafe);
    assert_eq!(seen.numbers(), [], "an earlier one may come");
    end_batch(port, batch);
    deliver(256, Safety::ThreadSafe);
    assert_eq!(seen.numbers(), [0, 1, 2, 3]);
    put_complete(port, 1400, 4);
    put_complete(port, 1250, 5);
    close_port(port, Safety::ThreadSafe);
    assert_eq!(seen.numbers(), [0, 1, 2, 3, 4]);
    let now = counts(port);
    assert_eq!((now.raised - before.raised, now.late - before.late, now.dropped - before.dropped), (6, 1, 1));
    assert_eq!(registration.dropped(), 1);
    let info = source_info(port);
    assert!(info.ordered && info.name == "test_late:1" && info.ticks_per_second == 1_000_000_000, "{info:?}");
}

fn put_is_seen(source: SourceId, raw: u64, number: u64) {
    let mut group = EventGroup::new(interest());
    group.add(|| PutComplete { operation: number, ..PutComplete::default() });
    group.raise_stamped(source, raw, Safety::ThreadSafe);
}

#[test]
fn an_immediate_registration_gets_events_as_raised_and_others_in_the_order_of_their_stamps() {
    let _alone = alone();
    let (as_they_happen, ordered) = (Seen::default(), Seen::default());
    let _one = listen_puts(Options { immediate: true, ..Options::default() }, &as_they_happen);
    let other = listen_puts(Options::default(), &ordered);
    let port = open_port(Adapter::new(48).clock("test_as_it_happens:1", false)).expect("room");
    put_is_seen(port, 1200, 2);
    raise(Safety::ThreadSafe, || PutComplete { operation: 7, ..PutComplete::default() });
    put_is_seen(port, 1100, 1);
    assert_eq!(as_they_happen.numbers(), [2, 7, 1], "as they happened");
    assert_eq!(ordered.numbers(), [7], "the event that the host has stamped");
    // The ordered delivery below does not reach the registration for immediate delivery.
    put_complete(port, 1000, 0);
    close_port(port, Safety::ThreadSafe);
    assert_eq!(as_they_happen.numbers(), [2, 7, 1]);
    assert_eq!(ordered.numbers(), [7, 0, 1, 2]);
    let seen = as_they_happen.lock().clone();
    assert!(seen.is_sorted_by_key(|instance| instance.timestamp) && seen.iter().all(|one| one.source != port));
    assert!(ordered.lock().iter().skip(1).all(|instance| instance.source == port));
    free(&other, Safety::ThreadSafe, None).expect("live");
    let held = counts(port).raised;
    put_is_seen(port, 1300, 3);
    assert_eq!((as_they_happen.numbers().last(), counts(port).raised), (Some(&3), held), "nobody wants the stamp");
}

#[test]
fn a_port_delivers_a_batch_once_the_events_of_all_earlier_batches_are_raised() {
    let (_alone, seen, _registration) = listening_to(PutComplete::TYPE, Safety::ThreadSafe, Options::default());
    let port = open_port(Adapter::new(48).clock("test_settled:1", false)).expect("room");
    let take = || begin_batch(port).expect("a port's");
    let first = take();
    put_complete(port, 1000, 0);
    // Another thread polls, or this one polls again within its batch.
    let second = take();
    put_complete(port, 1200, 2);
    end_batch(port, second);
    deliver_due(Safety::ThreadSafe);
    assert_eq!(seen.numbers(), [], "an earlier batch is not raised yet");
    put_complete(port, 1100, 1);
    let third = take();
    end_batch(port, first);
    deliver_due(Safety::ThreadSafe);
    assert_eq!(seen.numbers(), [0, 1, 2], "the events of the open batch are later");
    end_batch(port, third);
    close_port(port, Safety::ThreadSafe);
    assert_eq!(counts(port).late, 0);
}

#[test]
fn a_port_delivers_an_event_in_the_end_although_the_batch_of_a_preempted_thread_is_open() {
    let (_alone, seen, _registration) = listening_to(PutComplete::TYPE, Safety::ThreadSafe, Options::default());
    let port = open_port(Adapter::new(48).clock("test_held:1", false)).expect("room");
    let batch = begin_batch(port).expect("a port's");
    put_complete(port, 1000, 7);
    while seen.numbers().is_empty() {
        deliver(256, Safety::ThreadSafe);
    }
    assert_eq!(seen.numbers(), [7]);
    end_batch(port, batch);
    close_port(port, Safety::ThreadSafe);
}

/// Spins for two periods of the clock, without a poll.
fn compute(adapter: &Adapter) {
    let until = adapter.ticks() + (2 << adapter.bits);
    while adapter.ticks() < until {
        std::hint::spin_loop();
    }
}

#[test]
fn an_event_whose_stamp_may_be_a_lap_old_gets_the_hosts_time_until_the_queue_is_emptied() {
    let (_alone, seen, _registration) = listening_to(PutComplete::TYPE, Safety::ThreadSafe, Options::default());
    let adapter = Adapter::new(26);
    let port = open_port(adapter.clock("test_laps:1", true)).expect("room");
    compute(&adapter);
    let (before, counted) = (HostClock::get().now(), counts(port));
    put_complete(port, adapter.raw(adapter.ticks()), 7);
    deliver(256, Safety::ThreadSafe);
    let instance = *seen.lock().last().expect("delivered");
    assert!(source_info(instance.source).name.starts_with("host:"), "{instance:?}");
    assert!(instance.timestamp >= before && instance.timestamp <= HostClock::get().now());
    assert_eq!(counts(port), counted, "it is the thread's");
    // A thread that the system preempts for a period is as late as one that computes, so this tries again.
    let placed = || {
        (0..1100).for_each(|_| progress(Safety::ThreadSafe));
        put_complete(port, adapter.raw(adapter.ticks()), 8);
        deliver(256, Safety::ThreadSafe);
        seen.lock().last().is_some_and(|instance| instance.source == port)
    };
    let began = std::time::Instant::now();
    while !placed() {
        assert!(began.elapsed() < std::time::Duration::from_mins(2), "no stamp is placed any more");
    }
    close_port(port, Safety::ThreadSafe);
}

#[test]
fn one_thread_at_a_time_delivers_a_ports_events() {
    let _alone = alone();
    let seen = Seen::default();
    let also = seen.clone();
    let port = open_port(Adapter::new(48).clock("test_one_at_a_time:1", false)).expect("room");
    let _registration = calling(PutComplete::TYPE, Safety::ThreadSafe, Options::default(), move |instance, _, _| {
        if instance.words[0] == 1 {
            // While this callback runs, another thread submits a later event and delivers.
            let other = std::thread::spawn(move || {
                put_complete(port, 1001, 2);
                deliver(256, Safety::ThreadSafe);
            });
            other.join().expect("no panic");
        }
        also.lock().push(*instance);
    });
    put_complete(port, 1000, 1);
    (0..2).for_each(|_| deliver(256, Safety::ThreadSafe));
    assert_eq!(seen.numbers(), [1, 2]);
    close_port(port, Safety::ThreadSafe);
}

/// The masks of the rails below, one run after the other: they wrap every 4.2 ms to 4.3 s, and tolerate stalls of half
/// of that. On a busy machine only a run with a wide mask is conclusive.
const BITS: [u32; 6] = [22, 24, 26, 28, 30, 32];

/// Ticks for which rails with such a mask are polled: it wraps at least three times.
const fn polled_for(bits: u32) -> u64 {
    if bits < 25 { 20 << BITS[0] } else { 3 << bits }
}

/// A polled port, and its adapter's true events: time and number of each.
struct Rail {
    adapter: Adapter,
    port: SourceId,
    truth: Mutex<Vec<(u64, u64)>>,
}

impl Rail {
    /// Polls four completions, slightly out of order. False if the thread was preempted before it submitted them, for
    /// longer than the mask tolerates (`unwrap.rs`), so that the run is inconclusive.
    fn poll(&self, number: &AtomicU64) -> bool {
        let period = 1 << self.adapter.bits;
        // One thread at a time polls a port.
        let mut truth = self.truth.lock().expect("no panic");
        let now = self.adapter.ticks();
        let batch = begin_batch(self.port).expect("a port's");
        for back in [300, 0, 200, 100] {
            let mine = number.fetch_add(1, Ordering::Relaxed);
            truth.push((now - back, mine));
            put_complete(self.port, self.adapter.raw(now - back), mine);
        }
        end_batch(self.port, batch);
        self.adapter.ticks() - now < period / 2
    }
}

type Tool = (Seen, u64);

/// Three threads poll two rails. Returns the events of an unbuffered and a buffered registration, `None`: inconclusive.
fn polled(bits: u32) -> Option<(Vec<Rail>, [Tool; 2], u64)> {
    let seen = [Seen::default(), Seen::default()];
    let options = Options { room: 65536, ..Options::default() };
    let registrations = [listen_puts(options, &seen[0]), listen_puts(Options { buffered: true, ..options }, &seen[1])];
    let rails: Vec<_> = (1..=2)
        .map(|rail| {
            let adapter = Adapter::new(bits);
            let port = open_port(adapter.clock(&format!("test_run{bits}:{rail}"), true)).expect("room");
            Rail { adapter, port, truth: Mutex::default() }
        })
        .collect();
    let (good, number) = (AtomicBool::new(true), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for turn in 0.. {
                    let rail = &rails[turn % 2];
                    if !good.load(Ordering::Relaxed) || rail.adapter.ticks() > polled_for(bits) {
                        return;
                    }
                    if !rail.poll(&number) {
                        good.store(false, Ordering::Relaxed);
                    }
                    deliver(256, Safety::ThreadSafe);
                    if turn % 64 == 0 {
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    for rail in &rails {
        close_port(rail.port, Safety::ThreadSafe);
    }
    deliver_all();
    for registration in &registrations {
        free(registration, Safety::ThreadSafe, None).expect("live");
    }
    // A run in which the threads hardly ran is inconclusive.
    let is_good = good.into_inner() && rails.iter().all(|rail| counts(rail.port).raised > 0);
    let [one, two] = seen;
    let seen = [(one, registrations[0].dropped()), (two, registrations[1].dropped())];
    is_good.then_some((rails, seen, number.into_inner()))
}

#[test]
fn several_threads_that_poll_two_ports_with_narrow_masks_see_every_event_in_order_across_wraps() {
    let _alone = alone();
    let run =
        BITS.into_iter().find_map(polled).expect("a run without a stall of half a wrap, which is 2 s in the last");
    let (rails, seen, number) = run;
    for (seen, lost) in seen {
        let instances = seen.lock();
        for rail in &rails {
            let mine: Vec<_> = instances.iter().filter(|instance| instance.source == rail.port).collect();
            assert!(mine.is_sorted_by_key(|instance| instance.timestamp), "delivered by timestamp");
            let truth = rail.truth.lock().expect("no panic");
            let truth: HashMap<_, _> = truth.iter().map(|&(at, number)| (number, at)).collect();
            let away: HashSet<_> = mine.iter().map(|one| one.timestamp.wrapping_sub(truth[&one.words[0]])).collect();
            assert_eq!(away.len(), 1, "all stamps are one constant from the truth: {away:?}");
        }
        assert_eq!(instances.len() as u64 + lost, number);
    }
}

#[test]
fn to_host_converts_a_stamp_within_its_bound_if_the_adapters_clock_can_be_read() {
    let (_alone, seen, _registration) = listening_to(PutComplete::TYPE, Safety::ThreadSafe, Options::default());
    for ask in [true, false] {
        let adapter = Adapter::new(40);
        let port = open_port(adapter.clock(&format!("test_fit_{ask}:1"), ask)).expect("room");
        assert_eq!(timestamp(port).is_some(), ask);
        for _ in 0..20 {
            let before = HostClock::get().now();
            put_complete(port, adapter.raw(adapter.ticks()), 1);
            deliver(256, Safety::ThreadSafe);
            let after = HostClock::get().now();
            let stamped = seen.lock().last().expect("delivered").timestamp;
            let host = to_host(port, stamped);
            assert_eq!(host.is_some(), ask);
            if let Some(host) = host {
                let is_within = host.ticks + host.error >= before && host.ticks <= after + host.error;
                assert!(is_within, "{host:?} not in {before}..{after}");
            }
        }
        close_port(port, Safety::ThreadSafe);
    }
}
