// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cost of an event: without a registration, with callbacks, through a buffer, on a port's source; `cargo bench -p
//! ibex --bench events`. Budgets: without a registration one load and a branch; a buffered event 20 ns and one with a
//! callback 60 ns, without the reading of the clock (the first line); through a buffer 10 million per second and
//! thread, raised and delivered.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ibex::events::{
    Callback, EventGroup, EventInstance, HostClock, Options, Payload, PortClock, PutComplete, Registration, Safety,
    TypeId, XferBegin, deliver, free, interest, open_port, progress, raise, register, set_callback,
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

fn counting(count: &Arc<AtomicU64>) -> Callback {
    let count = Arc::clone(count);
    Arc::new(move |_: &EventInstance, _: &Registration, _| {
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    })
}

fn listen(kind: TypeId, options: Options, count: &Arc<AtomicU64>) -> Arc<Registration> {
    let registration = register(kind, options);
    set_callback(&registration, Safety::AsyncSignalSafe, Some(counting(count))).expect("live");
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
    for (name, registrations) in [("callback", 1), ("callbacks_4", 4)] {
        let handles: Vec<_> = (0..registrations).map(|_| listen(XferBegin::TYPE, Options::default(), &count)).collect();
        group.bench_function(name, |b| b.iter(|| raise(Safety::MpiRestricted, || event(black_box(1)))));
        for registration in &handles {
            gone(registration);
        }
    }

    let buffered = Options { buffered: true, room: 4096, ..Options::default() };
    let registration = listen(XferBegin::TYPE, buffered, &count);
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

    let registration = listen(PutComplete::TYPE, Options::default(), &count);
    let clock = PortClock {
        name: "bench:1".into(),
        gid: [0; 16],
        ticks_per_second: 1_000_000_000,
        bits: 48,
        window: 1000,
        room: 1024,
        read_clock: None,
    };
    let port = open_port(clock).expect("room");
    let mut raw = 0;
    group.throughput(Throughput::Elements(16));
    group.bench_function("port_batch_of_16", |b| {
        b.iter(|| {
            for _ in 0..16 {
                raw += 100;
                let mut group = EventGroup::new(interest());
                group.add(|| PutComplete { operation: raw, ..PutComplete::default() });
                group.raise_stamped(port, raw, Safety::MpiRestricted);
            }
            progress(Safety::MpiRestricted);
        });
    });
    gone(&registration);
}

criterion_group!(benches, events);
criterion_main!(benches);
