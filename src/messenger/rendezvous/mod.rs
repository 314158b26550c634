// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rendezvous: how the bytes of an announced message travel once a receive has matched it. The receiver reads them from
//! the sender's memory (`read.rs`), or the sender sends copies (`copies.rs`).

pub mod copies;
pub mod read;
