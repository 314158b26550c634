// SPDX-License-Identifier: MIT OR Apache-2.0
//! What it costs to take a descriptor and to give it back. `cargo bench -p ibex-plugin-abi`; needs no device and no MPI
//! job, only Open MPI's library, which constructs the object at the head of a descriptor.
//!
//! The plugin is a shared object for Open MPI, which a bench cannot link; so this is made of the same source files.
//! What the engine's part costs: `benches/hot_path.rs` of the package `ibex`.

#[path = "../../src/btl/descriptor/pool.rs"]
#[allow(dead_code, reason = "the rest is for the plugin")]
mod pool;
mod runtime;

use std::hint::black_box;
use std::ptr::NonNull;

use criterion::{Criterion, criterion_group, criterion_main};
use ibex_ffi::verbs::LocalSpan;
use pool::{Descriptor, Descriptors, Slots};

/// Bytes of the slots: the plugin's defaults.
const EAGER: usize = 12 << 10;
const LARGE: usize = 32 << 10;

/// Slots at addresses that nobody touches.
struct Invented(u64);

impl Slots for Invented {
    fn grow(&mut self, size: u32, count: u32) -> Option<Vec<LocalSpan>> {
        let start = self.0;
        self.0 += u64::from(size * count);
        // SAFETY: no adapter gets them, and their bytes are not touched.
        let span = |index: u32| unsafe { LocalSpan::new(start + u64::from(index * size), size, 7) };
        Some((0..count).map(span).collect())
    }

    fn reclaim(&mut self, _silent: &mut dyn FnMut(NonNull<Descriptor>) -> bool) {}
}

/// As `btl_free` does when the port has been entered.
fn free(descriptors: &mut Descriptors, descriptor: NonNull<Descriptor>) {
    // SAFETY: taken, and never sent.
    black_box(unsafe { pool::take_registration(descriptor.as_ptr()) });
    // SAFETY: as above.
    unsafe { descriptors.give_back(descriptor.as_ptr()) };
}

/// One descriptor, taken and given back: it stays in the processor's cache.
fn one(c: &mut Criterion) {
    let (mut slots, mut descriptors) = (Invented(1 << 20), Descriptors::new(EAGER, LARGE, 0, 64));
    for (name, size) in [("eager", EAGER), ("large", LARGE)] {
        c.bench_function(&format!("descriptor: alloc and free, {name}"), |b| {
            b.iter(|| {
                let descriptor =
                    descriptors.take(&mut slots, black_box(size), black_box(3)).expect("there is no limit");
                free(&mut descriptors, black_box(descriptor));
            });
        });
    }
}

/// A window of messages: all taken, each named for the adapter, all given back.
fn window(c: &mut Criterion) {
    let (mut slots, mut descriptors) = (Invented(1 << 20), Descriptors::new(EAGER, LARGE, 0, 64));
    let mut taken = Vec::with_capacity(64);
    c.bench_function("descriptor: alloc, gather list, free, 64 in flight", |b| {
        b.iter(|| {
            for _ in 0..64 {
                let descriptor = descriptors.take(&mut slots, black_box(64), black_box(3)).expect("there is no limit");
                // SAFETY: just taken.
                black_box(unsafe { pool::spans(descriptor.as_ptr()) });
                taken.push(descriptor);
            }
            for descriptor in taken.drain(..) {
                free(&mut descriptors, descriptor);
            }
        });
    });
}

criterion_group!(benches, one, window);
criterion_main!(benches);
