// SPDX-License-Identifier: MIT OR Apache-2.0
//! What ibex is held to, and whether a report meets it: [`speed`], or what `--events` costs ([`events`]).
//!
//! Grade: setup. Called by the bench; shown by [`crate::output`].

mod events;
mod speed;
pub(crate) mod verdict;

use crate::catalogue::device_kind::Kind;
use crate::report::Report;
use verdict::Verdict;

/// What a report says of each bar of such a device.
pub(crate) fn verdicts(kind: Kind, report: &Report) -> Vec<Verdict> {
    report.events.as_ref().map_or_else(|| speed::verdicts(kind, report), events::verdicts)
}
