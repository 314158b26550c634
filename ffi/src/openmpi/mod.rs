// SPDX-License-Identifier: MIT OR Apache-2.0
//! Open MPI's component interface, as the installed headers give it (feature `openmpi`): the raw bindings (`sys`) and
//! the safe calls into Open MPI that a component makes. Only `release` has differences between release series. The
//! functions that Open MPI calls are in `plugin-abi`. Grade: setup, but for [`convertor`], which is hot. Threads: each
//! file says. The build compares the layout of the mirrored types with the C compiler's (`build/layout.rs`).

pub mod blank;
pub mod cache;
pub mod convertor;
mod hooks;
pub mod messages;
pub mod process;
pub mod release;
pub mod unmapped;
pub mod variable;
pub mod version;

/// The raw bindings, under their C names.
#[allow(
    clippy::all,
    clippy::pedantic,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    reason = "generated from Open MPI's headers at each build"
)]
pub mod sys {
    include!(concat!(env!("OUT_DIR"), "/openmpi.rs"));
}
