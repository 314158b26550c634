// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completion queues: their channels (`channel`), the queues (`object`, and `cursor` for the extended interface, which
//! is `cq_ex`), and their events (`event`).

pub(crate) mod channel;
pub(crate) mod cq_ex;
mod cursor;
pub(crate) mod event;
pub(crate) mod object;
