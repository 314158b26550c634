// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C types of `<infiniband/verbs.h>`, made by bindgen from the installed header at each build (build.rs), with
//! bindgen's own layout tests. Types and constants only: this crate *provides* the functions (crate::abi). Enumerations
//! are integers with constants, since programs may pass any value.

#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, missing_docs, unreachable_pub)] // C's names
#![allow(clippy::all, clippy::pedantic, clippy::undocumented_unsafe_blocks)] // generated
include!(concat!(env!("OUT_DIR"), "/verbs.rs"));
