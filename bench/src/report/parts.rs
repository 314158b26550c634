// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the instructions of a message go: how many in each object.
//!
//! Grade: setup. Called by the bench; read by [`crate::text`].

use crate::numbers::rounded;
use crate::programs::instructions::{Count, Counted, OfObject};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The instructions that one message takes in one object, sent and received.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// What carried the message.
    pub(crate) transport: String,
    /// A shared library, or the program.
    pub(crate) object: String,
    /// Whether that is the adapter.
    pub(crate) adapter: bool,
    /// Instructions per message.
    pub(crate) instructions: f64,
}

/// Where the instructions of a message of 8 B go, over each transport, the largest part of a transport first.
pub(crate) fn parts(counted: &BTreeMap<Count, Counted>) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (count, counted) in counted {
        let transport = count.transport;
        if *count != Count::of_short_blocking(transport) {
            continue;
        }
        let mut objects: Vec<&OfObject> = counted.objects.iter().collect();
        objects.sort_by(|a, b| b.per_message.total_cmp(&a.per_message));
        parts.extend(objects.into_iter().map(|object| Part {
            transport: transport.name().to_owned(),
            object: object.object.clone(),
            adapter: object.adapter,
            instructions: rounded(object.per_message),
        }));
    }
    parts
}
