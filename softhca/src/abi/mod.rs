// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exported symbols, and the exported functions that concern no adapter. All others are in `crate::verbs`.

mod exports;
mod interpose;
mod names;
