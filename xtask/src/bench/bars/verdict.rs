// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is wanted, and whether it was measured.
//!
//! Grade: setup. Made and shown by the bars. Plain data.

/// What is wanted, and what a report says of it.
#[derive(Debug)]
pub(super) struct Verdict {
    /// What is measured.
    pub(super) what: &'static str,
    /// What it is compared with.
    pub(super) against: &'static str,
    /// The bound in words: `at most 1.15 x`.
    pub(super) bound: String,
    /// The value, of several sizes the worst, or why it is not judged, and what it is of (its size); none where nothing was
    /// measured.
    pub(super) measured: Option<(String, String)>,
    /// Whether it is so.
    pub(super) outcome: Outcome,
}

/// Whether what is wanted was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was.
    Met,
    /// It was not.
    NotMet,
    /// What was measured moves too much to say.
    Unclear,
    /// The rounds of what was measured lie too far apart.
    NotJudged,
    /// Nothing was measured.
    NotMeasured,
}

impl Outcome {
    /// `met`, `not met`, `unclear`, `not judged` or `not measured`.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::NotMet => "not met",
            Self::Unclear => "unclear",
            Self::NotJudged => "not judged",
            Self::NotMeasured => "not measured",
        }
    }
}
