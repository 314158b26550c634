// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bars that ibex has to reach, and their verdicts for a report: [`speed`], or the cost of `--events` ([`events`]).
//! Grade: setup. Called by [`super`]. Tests: in each file.

mod events;
mod speed;

use ibex_bench::{Kind, Mpi, Report};

/// A bar, and its value in a report.
#[derive(Debug)]
struct Verdict {
    what: &'static str,
    against: &'static str,
    /// The bound in words: `at most 1.15 x`.
    bound: String,
    /// The value, or why it is not judged, and its message size (of several the worst); `None` if not measured.
    measured: Option<(String, String)>,
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Met,
    NotMet,
    /// The values differ too much.
    Unclear,
    /// The rounds of a value differ too much.
    NotJudged,
    NotMeasured,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::NotMet => "not met",
            Self::Unclear => "unclear",
            Self::NotJudged => "not judged",
            Self::NotMeasured => "not measured",
        }
    }
}

/// Returns the verdict for each bar of such a device and MPI, as text; for a first table, only of the bars that it
/// measures.
pub(super) fn judged(kind: Kind, mpi: Mpi, report: &Report) -> String {
    let mut verdicts = report.events.as_ref().map_or_else(|| speed::verdicts(kind, mpi, report), events::verdicts);
    if report.is_brief() {
        verdicts.retain(|verdict| verdict.outcome != Outcome::NotMeasured);
    }
    lines(&verdicts)
}

/// Returns the lines of a table; empty without verdicts.
fn lines(verdicts: &[Verdict]) -> String {
    if verdicts.is_empty() {
        return String::new();
    }
    let widest = |text: fn(&Verdict) -> &str| verdicts.iter().map(|one| text(one).len()).max().unwrap_or(0);
    let widths = (widest(|one| one.what), widest(|one| &one.bound));
    let lines: String = verdicts.iter().map(|verdict| line(verdict, widths)).collect();
    format!("What is wanted, and what was measured in this run; of several sizes the worst\n{lines}")
}

fn line(verdict: &Verdict, (what, bound): (usize, usize)) -> String {
    let shown = |(value, of): &(String, String)| format!("{value} ({of})");
    format!(
        "  {:<12}  {:<what$}  {:>bound$} {}: {}{}\n",
        verdict.outcome.word(),
        verdict.what,
        verdict.bound,
        verdict.against,
        if verdict.outcome == Outcome::NotJudged { "" } else { "measured " },
        verdict.measured.as_ref().map_or_else(|| "-".to_owned(), shown),
    )
}

#[cfg(test)]
mod tests {
    use super::speed::tests::{report, row};
    use super::*;

    #[test]
    fn a_bar_that_was_not_measured_is_not_called_met() {
        for (kind, count) in [(Kind::Adapter, 5), (Kind::SoftHca, 28)] {
            let text = judged(kind, Mpi::OpenMpi, &report(&[]));
            assert_eq!(text.matches("not measured").count(), count, "{text}");
        }
    }

    #[test]
    fn a_bar_that_is_not_judged_says_how_far_apart_its_rounds_lie() {
        let mut unsteady = row("latency", "ucx", 8, 90.0);
        unsteady["spread"] = 25.2.into();
        unsteady["unsteady"] = true.into();
        let text = judged(Kind::SoftHca, Mpi::OpenMpi, &report(&[row("latency", "ibex", 8, 50.0), unsteady]));
        assert!(text.contains("ucx: spread 28 % (8 B)"), "{text}");
    }

    #[test]
    fn bars_that_a_first_table_leaves_out_are_not_printed() {
        let mut first = serde_json::to_value(report(&[])).expect("a report is JSON");
        first["brief"] = "only latency".into();
        assert_eq!(judged(Kind::SoftHca, Mpi::OpenMpi, &serde_json::from_value(first).expect("of a report")), "");
    }
}
