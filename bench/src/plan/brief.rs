// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a first table leaves out, which `--full` has: few values that can be trusted tell more than many.
//!
//! Grade: setup. Called by [`super::available`]. Tests: at the end of this file.

use super::Plan;
use super::wanted::Wanted;
use crate::catalogue::TESTS;
use crate::catalogue::device_kind::Kind;
use crate::catalogue::transport::Transport;

/// What the plan leaves out of what was not asked for by name, in one line.
pub(super) fn left_out(kind: Kind, plan: &Plan, wanted: &Wanted) -> Option<String> {
    let tests = TESTS.iter().filter(|test| kind.has(test) && !plan.tests.iter().any(|one| one.name == test.name));
    let tests: Vec<&str> = tests.map(|test| test.name).collect();
    let few = kind.few_transports();
    let transports = kind.transports().into_iter().filter(|transport| !few.contains(transport));
    let transports: Vec<&str> = transports.map(Transport::name).collect();
    let parts = [
        wanted.tests.is_empty().then(|| format!("the tests {}", tests.join(", "))),
        wanted.transports.is_empty().then(|| format!("the transports {}", transports.join(", "))),
        wanted.sizes.is_empty().then(|| "the sizes between these".to_owned()),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty() && !wanted.full).then(|| format!("Left out, and measured with --full: {}.", parts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(wanted: &Wanted) -> String {
        left_out(Kind::SoftHca, &Plan::chosen(Kind::SoftHca, wanted).unwrap(), wanted).unwrap_or_default()
    }

    #[test]
    fn a_first_table_says_which_tests_and_transports_it_leaves_out() {
        let said = said(&Wanted::default());
        assert!(said.contains("bidirectional_bandwidth, put_latency") && !said.contains(" latency,"), "{said}");
        assert!(said.contains("ibex-btl, ofi") && !said.contains("openib") && said.contains("sizes"), "{said}");
    }

    #[test]
    fn what_was_asked_for_by_name_leaves_nothing_out() {
        let named = Wanted { tests: vec!["latency".to_owned()], sizes: vec![8], ..Wanted::default() };
        assert!(!said(&named).contains("tests") && !said(&named).contains("sizes"), "{}", said(&named));
        assert!(said(&named).contains("transports"));
        assert_eq!(said(&Wanted { transports: vec![Transport::Ibex], ..named }), "");
    }
}
