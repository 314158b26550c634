// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plain values that cross the engine's borders: what adapters are (`device`), the attributes of queue pairs and
//! addresses (`attributes`), requests and completions (`work_request`).

pub(crate) mod attributes;
pub(crate) mod device;
pub(crate) mod work_request;
