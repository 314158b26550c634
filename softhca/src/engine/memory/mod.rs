// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that all processes of a fabric share: the one file that each of them maps whole, and what every structure
//! in it is made of.
//!
//! From the bottom up: `layout` (how much fits, and where; the header), `region` (the mapping, and its words),
//! `process` (who maps it, and who of them lives), `lock`, `heap`. Nothing here knows a queue.

pub(crate) mod heap;
pub(crate) mod layout;
pub(crate) mod lock;
pub(crate) mod process;
pub(crate) mod region;

pub(crate) use lock::{Held, SharedLock};
pub(crate) use process::Process;
pub(crate) use region::{Region, Shared, W32, W64};
