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

/// `FI_PROV_SPECIFIC` of a number: the provider's own value. libfabric 2 has no such name any more.
pub(crate) const PROVIDER_SPECIFIC: u32 = 1 << 31;

/// `FI_MR_BASIC`: the `mr_mode` that stands for all bits of memory registered with an adapter. Deprecated in libfabric
/// 2.
pub(crate) const MR_BASIC: i32 = 1;

/// `FI_MR_SCALABLE`: the `mr_mode` of versions before 1.5 that needs nothing. Deprecated in libfabric 2.
pub(crate) const MR_SCALABLE: i32 = 1 << 1;

/// Place of `fi_domain_attr.data_progress`, which is in a union since libfabric 2: after `control_progress`.
const DATA_PROGRESS: usize = std::mem::offset_of!(fi_domain_attr, control_progress) + size_of::<fi_progress>();

/// Returns `data_progress`.
pub(crate) fn data_progress(attributes: &fi_domain_attr) -> fi_progress {
    // SAFETY: the field is there in every version, and any number is a value of it.
    unsafe { std::ptr::from_ref(attributes).byte_add(DATA_PROGRESS).cast::<fi_progress>().read() }
}

/// Sets `data_progress`.
pub(crate) fn set_data_progress(attributes: &mut fi_domain_attr, progress: fi_progress) {
    // SAFETY: as above.
    unsafe { std::ptr::from_mut(attributes).byte_add(DATA_PROGRESS).cast::<fi_progress>().write(progress) }
}

/// Returns the pieces of a registration, which are in a union since libfabric 1.20: the first field.
pub(crate) fn mr_iov(attributes: &fi_mr_attr) -> *const iovec {
    // SAFETY: the first field is this pointer in every version.
    unsafe { std::ptr::from_ref(attributes).cast::<*const iovec>().read() }
}
