// SPDX-License-Identifier: MIT OR Apache-2.0
//! Completion queues: their channels (`channel`), the queues (`object`), their extended interface (`cq_ex`), and their
//! events (`event`).

pub(crate) mod channel;
pub(crate) mod cq_ex;
pub(crate) mod event;
pub(crate) mod object;
