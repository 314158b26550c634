// SPDX-License-Identifier: MIT OR Apache-2.0
//! libibverbs as the installed `infiniband/verbs.h` declares it, without its inline functions (build/verbs.rs).

#![allow(
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    reason = "generated from the header at each build"
)]

include!(concat!(env!("OUT_DIR"), "/verbs.rs"));
