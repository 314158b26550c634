// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a descriptor needs of the plugin's `runtime`: its free list, and what stands in for its registrations.
//!
//! Used by the plugin's `pool.rs`, which `main` is made of.

#[path = "../../src/runtime/free_list.rs"]
#[allow(dead_code, reason = "the rest is for the plugin")]
pub(crate) mod free_list;

/// Stands in for the plugin's registrations, which need Open MPI's cache: no descriptor has one here.
pub(crate) mod memory {
    /// As large as the plugin's.
    #[derive(Clone, Copy)]
    #[allow(dead_code, reason = "none is made")]
    pub(crate) struct Registered(std::ptr::NonNull<u32>);

    impl Registered {
        pub(crate) fn lkey(self) -> u32 {
            self.0.addr().get() as u32
        }
    }
}
