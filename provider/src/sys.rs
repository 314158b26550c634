// SPDX-License-Identifier: MIT OR Apache-2.0
//! libfabric's types and constants: the bindings that `build.rs` makes, and what bindgen cannot read.
//!
//! Structures grow at their end with libfabric's versions: tables of functions say their size, and `info` allocates
//! more than it fills. Flags are `u64`, error numbers `u32` and positive. Grade: none, no code. Tests: the layout
//! checks of bindgen, at compile time.

#![allow(
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    non_snake_case,
    reason = "the names are libfabric's"
)]
#![allow(
    unreachable_pub,
    dead_code,
    unsafe_op_in_unsafe_fn,
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks,
    reason = "generated"
)]

include!(concat!(env!("OUT_DIR"), "/libfabric.rs"));

/// `FI_ADDR_UNSPEC`, and `FI_ADDR_NOTAVAIL`: any address, or none.
pub(crate) const FI_ADDR_UNSPEC: fi_addr_t = u64::MAX;
pub(crate) const FI_ADDR_NOTAVAIL: fi_addr_t = u64::MAX;

/// `FI_VERSION`.
pub(crate) const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}
