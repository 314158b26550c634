// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices before and after they are opened: the list of them (`list`), their attributes (`attr`) and ports (`port`),
//! and what of them stands in sysfs (`sysfs`).

pub(crate) mod attr;
pub(crate) mod list;
pub(crate) mod port;
pub(crate) mod sysfs;
