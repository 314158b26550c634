// SPDX-License-Identifier: MIT OR Apache-2.0
//! Words in memory that several processes touch: the fields of every shared structure.
//!
//! Called by: every structure of the region. Grade: hot. Thread rule: any thread of any process. `get` and `set` are
//! relaxed, for what a lock guards or what is a hint; `seen` (acquire) and `publish` (release) are a pair: what was
//! written before `publish` is seen after `seen`.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

macro_rules! word {
    ($name:ident, $atomic:ident, $plain:ident) => {
        #[repr(transparent)]
        #[derive(Default)]
        pub(crate) struct $name($atomic);

        #[allow(dead_code, reason = "both widths offer the same calls")]
        impl $name {
            #[inline]
            pub(crate) fn get(&self) -> $plain {
                self.0.load(Ordering::Relaxed)
            }
            #[inline]
            pub(crate) fn set(&self, value: $plain) {
                self.0.store(value, Ordering::Relaxed);
            }
            #[inline]
            pub(crate) fn seen(&self) -> $plain {
                self.0.load(Ordering::Acquire)
            }
            #[inline]
            pub(crate) fn publish(&self, value: $plain) {
                self.0.store(value, Ordering::Release);
            }
            /// Adds and gives the value before.
            pub(crate) fn add(&self, value: $plain) -> $plain {
                self.0.fetch_add(value, Ordering::AcqRel)
            }
            /// Replaces `old` by `new`; whether it was `old`.
            #[inline]
            pub(crate) fn replace(&self, old: $plain, new: $plain) -> bool {
                self.0.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            }
            /// Puts `value` and gives the one before.
            pub(crate) fn swap(&self, value: $plain) -> $plain {
                self.0.swap(value, Ordering::AcqRel)
            }
        }
    };
}

word!(W32, AtomicU32, u32);
word!(W64, AtomicU64, u64);
