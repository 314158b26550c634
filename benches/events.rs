// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cost of an event: without a registration, with a callback, through a buffer; `cargo bench -p ibex --bench
//! events`. Budgets: without a registration one load and a branch; a buffered event 20 ns and one with a callback
//! 60 ns, without the reading of the clock (the first line); through a buffer 10 million per second and thread, raised
//! and delivered, which `cargo xtask bench --events` checks.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ibex::events::{
    Callback, EventInstance, HostClock, Options, Payload, Registration, Safety, XferBegin, deliver, free, raise,
    register, set_callback,
};

/// Events between two deliveries from the buffer.
const BATCH: u64 = 1024;

fn event(number: u64) -> XferBegin {
    XferBegin {
        request: number,
        message: number,
        bytes: 8,
        total: 8,
        context: 3,
        tag: 7,
        peer: 1,
        ..XferBegin::default()
    }
}

fn listen(options: Options, count: &Arc<AtomicU64>) -> Arc<Registration> {
    let count = Arc::clone(count);
    let callback: Callback = Arc::new(move |_: &EventInstance, _: &Registration, _| {
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    });
    let registration = register(XferBegin::TYPE, options);
    set_callback(&registration, Safety::AsyncSignalSafe, Some(callback)).expect("live");
    registration
}

fn gone(registration: &Registration) {
    free(registration, Safety::None, None).expect("live");
}

fn events(criterion: &mut Criterion) {
    let clock = HostClock::get();
    let mut group = criterion.benchmark_group("event");
    group.bench_function("clock", |b| b.iter(|| black_box(clock.now())));
    group.bench_function("unregistered", |b| b.iter(|| raise(Safety::MpiRestricted, || event(black_box(1)))));

    let count = Arc::default();
    let registration = listen(Options::default(), &count);
    group.bench_function("callback", |b| b.iter(|| raise(Safety::MpiRestricted, || event(black_box(1)))));
    gone(&registration);

    let buffered = Options { buffered: true, room: 4096, ..Options::default() };
    let registration = listen(buffered, &count);
    group.throughput(Throughput::Elements(BATCH));
    group.bench_function("buffer_in", |b| {
        b.iter_custom(|rounds| {
            let mut spent = std::time::Duration::ZERO;
            for _ in 0..rounds {
                let start = std::time::Instant::now();
                (0..BATCH).for_each(|number| raise(Safety::MpiRestricted, || event(black_box(number))));
                spent += start.elapsed();
                deliver(usize::MAX, Safety::MpiRestricted);
            }
            spent
        });
    });
    group.bench_function("buffer_in_and_out", |b| {
        b.iter(|| {
            (0..BATCH).for_each(|number| raise(Safety::MpiRestricted, || event(black_box(number))));
            deliver(usize::MAX, Safety::MpiRestricted);
        });
    });
    assert_eq!(registration.dropped(), 0);
    gone(&registration);
}

criterion_group!(benches, events);
criterion_main!(benches);
