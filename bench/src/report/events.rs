// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `--events` adds to a report: what events cost, as ratios to a build that has none.
//!
//! The six ways ([`transport::EVENTS`]) take turns, and times are compared as [`super::ratios`] says. Instructions,
//! allocations and counts of events are exact. Of the events of the matching, over the PML, the instructions alone are
//! counted ([`transport::EVENTS_OF_MATCHING`]).
//!
//! Grade: setup. Called by the bench; read by [`crate::text`] and by the bars of `cargo xtask bench`.
//! Tests: those of the bars, and of [`super::ratios`].

use super::ratios::{Ratio, ratios};
use crate::catalogue::transport::{self, Transport};
use crate::programs::event_counts::Counts;
use crate::programs::instructions::{self, Counted};
use crate::run::found::Found;
use serde::{Deserialize, Serialize};

/// What is compared with everything else.
const BASE: Transport = transport::EVENTS[0];

/// The part of `report.json` about events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Each value over that of the build without events.
    pub ratios: Vec<Ratio>,
    /// What one 8-byte message takes, sent and received.
    pub messages: Vec<Message>,
    /// The events of all runs of each way, and of one with a buffer that is too small.
    pub counts: Vec<NamedCounts>,
    /// Events raised and delivered through a buffer, per second and thread.
    pub deliveries_per_second: Option<f64>,
}

/// What was counted of one message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The way of listening, by its name.
    pub transport: String,
    /// Instructions of libibex.so.
    pub instructions_of_ibex: f64,
    /// Of MPI and all below it, the tool's among them, without the adapter's.
    #[serde(default)]
    pub instructions: f64,
    /// Events raised.
    pub events: f64,
    /// How often memory was allocated, in all of the process, at the most.
    pub allocations: f64,
}

/// The counts of a way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedCounts {
    /// The way of listening, or [`crate::SMALL_BUFFER`].
    pub what: String,
    /// Its events.
    #[serde(flatten)]
    pub counts: Counts,
}

impl Cost {
    /// Of all that a run found, and of what was measured without MPI.
    pub(crate) fn new(found: &Found, deliveries_per_second: Option<f64>) -> Self {
        let counts =
            found.events.iter().map(|(what, counts)| NamedCounts { what: (*what).to_owned(), counts: *counts });
        let messages = found.instructions.iter().map(|(count, counted)| Message::new(count.transport, counted));
        Self {
            ratios: ratios(&found.measured, BASE),
            messages: messages.collect(),
            counts: counts.collect(),
            deliveries_per_second,
        }
    }

    /// Of a way, a test and a size over the build without events: `1.012 (0.998 to 1.020)`.
    pub(crate) fn ratio(&self, test: &str, transport: Transport, bytes: u64) -> Option<String> {
        self.find(test, transport, Some(bytes)).map(Ratio::words)
    }

    /// The ratio of a way, a test and a size.
    #[must_use]
    pub fn find(&self, test: &str, transport: Transport, bytes: Option<u64>) -> Option<&Ratio> {
        let wanted = |ratio: &&Ratio| ratio.test == test && ratio.transport == transport.name() && ratio.bytes == bytes;
        self.ratios.iter().find(wanted)
    }

    /// What was counted of a message.
    #[must_use]
    pub fn message(&self, transport: Transport) -> Option<&Message> {
        self.messages.iter().find(|message| message.transport == transport.name())
    }
}

impl Message {
    fn new(transport: Transport, counted: &Counted) -> Self {
        Self {
            transport: transport.name().to_owned(),
            instructions_of_ibex: instructions::of_ibex(&counted.objects),
            instructions: instructions::of_mpi(&counted.objects),
            events: counted.events,
            allocations: counted.allocations,
        }
    }
}
