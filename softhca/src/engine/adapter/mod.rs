// SPDX-License-Identifier: MIT OR Apache-2.0
//! An opened adapter, and the objects on it that need no queue: protection domains, address handles, completion
//! channels, async events.

pub(crate) mod ah;
pub(crate) mod async_event;
pub(crate) mod channel;
pub(crate) mod hca;
pub(crate) mod pd;
