// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exported symbols, and those exported functions that concern no adapter: names of states, rates, the device files
//! that programs look for, and what is exported without being emulated. All others are in `crate::verbs`.

mod exports;
mod interpose;
mod names;
