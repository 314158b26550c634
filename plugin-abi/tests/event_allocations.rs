// SPDX-License-Identifier: MIT OR Apache-2.0
//! An event allocates nothing, however it is delivered. Counts the allocations of the test's thread, because the
//! harness allocates in its own. Not among the engine's tests, because a counting allocator is unsafe code.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::events::{
    Callback, EventGroup, EventInstance, Options, Payload, PortClock, PutComplete, Registration, Safety, XferBegin,
    close_port, deliver, free, interest, open_port, progress, raise, register, set_callback, stage,
};

struct Counting;

thread_local!(static ALLOCATIONS: Cell<u64> = const { Cell::new(0) });

// SAFETY: the system's allocator; counting does not change what it does.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`.
        unsafe { System.dealloc(pointer, layout) };
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations(run: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    run();
    ALLOCATIONS.get() - before
}

#[test]
fn raising_buffering_staging_ordering_and_delivering_allocate_nothing() {
    let seen = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&seen);
    let callback: Callback = Arc::new(move |_: &EventInstance, _: &Registration, _| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let options = [Options::default(), Options { buffered: true, room: 4096, ..Options::default() }];
    let registrations: Vec<_> = [XferBegin::TYPE, PutComplete::TYPE]
        .into_iter()
        .flat_map(|kind| options.map(|options| register(kind, options)))
        .inspect(|registration| {
            set_callback(registration, Safety::AsyncSignalSafe, Some(Arc::clone(&callback))).expect("it is not freed");
        })
        .collect();
    let clock = PortClock {
        name: "test:1".into(),
        gid: [0; 16],
        ticks_per_second: 1_000_000_000,
        bits: 32,
        room: 256,
        read_clock: Some(Box::new(|| Some(7))),
    };
    let port = open_port(clock).expect("room for a source");
    let mut raw = 0;
    let mut round = || {
        raise(Safety::MpiRestricted, XferBegin::default);
        stage(Safety::MpiRestricted, XferBegin::default);
        raw += 500;
        let mut group = EventGroup::new(interest());
        group.add(PutComplete::default);
        group.stage_seen(port, raw, Safety::MpiRestricted);
        progress(Safety::MpiRestricted);
    };
    // A thread's state and lists are allocated at its first events.
    round();
    deliver(usize::MAX, Safety::MpiRestricted);
    assert!(allocations(|| drop(Box::new(7))) >= 1, "the count counts");
    let before = seen.load(Ordering::Relaxed);
    let made = allocations(|| {
        (0..1000).for_each(|_| round());
        deliver(usize::MAX, Safety::MpiRestricted);
    });
    assert_eq!(made, 0, "allocations for {} deliveries", seen.load(Ordering::Relaxed) - before);
    assert!(seen.load(Ordering::Relaxed) - before >= 4000);
    close_port(port, Safety::MpiRestricted);
    for registration in registrations {
        free(&registration, Safety::None, None).expect("it is not freed");
    }
}
