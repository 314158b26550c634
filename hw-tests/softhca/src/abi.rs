// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exported symbols, and those exported functions that concern no object of an adapter: names of states, rates,
//! fork, sysfs, and what is exported without being emulated. The others live with their objects in `crate::verbs`.

pub mod exports;
pub(crate) mod fork;
mod interpose;
pub(crate) mod kernel_copies;
pub(crate) mod names;
pub(crate) mod rates;
pub(crate) mod sysfs;
pub(crate) mod unsupported;
