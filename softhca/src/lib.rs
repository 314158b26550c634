// SPDX-License-Identifier: MIT OR Apache-2.0
//! softhca: an emulated InfiniBand adapter, as a drop-in `libibverbs.so.1` for the processes of one host.
//!
//! A device for tests and development: it needs no root, no kernel module and no hardware, and moves data between
//! processes through shared memory. docs/softhca.md says what it emulates.
//!
//! From the program inwards: `abi` (the exported symbols), `verbs` (the C structures of each object, and their
//! translation), `engine` (the adapter itself: of C it knows the header's numbers and attributes, and no call).
//! `config` reads the description of the adapters, `fabric_folder` finds the folder of a fabric.

#![expect(
    clippy::missing_errors_doc,
    reason = "nobody but this package's tests and command links it; error numbers need no heading"
)]

mod abi;
pub mod behaviour;
pub mod config;
pub mod engine;
pub mod fabric_folder;
pub mod limits;
pub mod profiles;
pub mod sys;
pub mod verbs;
