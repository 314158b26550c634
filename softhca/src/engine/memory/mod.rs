// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that all processes of a fabric share: the one file that each of them maps whole, and what every structure
//! in it is made of.
//!
//! From the bottom up: `words` (atomic fields), `layout` (how much fits, and where), `region` (the mapping), `process`
//! (who maps it, and who of them lives), `lock`, `heap`, and `header` (the fixed tables at the start of the file).
//! Nothing here knows a queue.

pub(crate) mod header;
pub(crate) mod heap;
pub(crate) mod layout;
pub(crate) mod lock;
pub(crate) mod process;
pub(crate) mod region;
pub(crate) mod words;
