// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that all processes of a fabric share: one file that each of them maps whole. From the bottom up: `layout`
//! (sizes, offsets, the header), `region` (the mapping, its words), `process`, `lock`, `heap`. It knows no queue.
pub(crate) mod heap;
pub(crate) mod layout;
pub(crate) mod lock;
pub(crate) mod process;
pub(crate) mod region;

pub(crate) use lock::{Held, SharedLock};
pub(crate) use process::Process;
pub(crate) use region::{Region, Shared, W32, W64};
