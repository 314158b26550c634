// SPDX-License-Identifier: MIT OR Apache-2.0
//! What two processes say to each other about messages. So far, how it looks on the wire: [`header`].
//!
//! Knows no adapter and no MPI library. Called by what carries messages of its own matching ([`crate::matching`]).

pub mod header;
