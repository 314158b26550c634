// SPDX-License-Identifier: MIT OR Apache-2.0
//! rdma-core's own test suite, which Debian packs with its Python binding as documentation; and its results: tests that
//! passed, and tests that it skips with their reasons (features of other vendors, and features that are not emulated).

use std::collections::BTreeMap;
use std::time::Duration;

use super::case::{Case, Judge};

/// Unpacks and runs the suite. That of rdma-core 56 asks the kernel for network interfaces of the adapters by `rdma
/// link show`, which fails where the kernel has no RDMA, and by `cat` for a partition key. Two programs of these names
/// answer for the emulated adapter, which the kernel does not know.
pub(crate) fn pyverbs() -> Case {
    let script = "packed=/usr/share/doc/rdma-core/tests; \
         [ -d $packed ] || { echo \"$packed is not there: is python3-pyverbs installed, with its documentation?\"; exit 1; }; \
         suite=$(mktemp -d) && cp -r $packed $suite/ && cd $suite/tests && \
         mkdir $suite/bin && export PATH=$suite/bin:$PATH && \
         printf '#!/bin/sh\\necho \"[]\"\\n' >$suite/bin/rdma && \
         printf '#!/bin/sh\\ncase $1 in */pkeys/0) echo 0xffff ;; *) exec /bin/cat \"$@\" ;; esac\\n' >$suite/bin/cat && \
         chmod +x $suite/bin/* && \
         find . -name '*.gz' -exec gunzip {} + && /usr/bin/python3 run_tests.py -v --dev softhca0; \
         status=$?; rm -rf $suite; exit $status";
    let (name, script) = ("pyverbs".to_owned(), script.to_owned());
    Case { name, script, judge: Judge::Suite, config: None, limit: Duration::from_mins(20) }
}

/// The output of `unittest -v`: each test's name, and the number of tests skipped for each reason.
#[derive(Default)]
pub(crate) struct Results {
    passed: Vec<String>,
    skipped: BTreeMap<String, usize>,
    ran: usize,
}

impl Results {
    /// Reads it. A test begins with `name (place) ... `, or with a description after its name; then its output follows.
    pub(crate) fn read(said: &str) -> Results {
        let mut results = Results::default();
        let mut current = None;
        for line in said.lines() {
            if let Some((name, _)) = line.split_once(" (tests.").filter(|(name, _)| name.starts_with("test_")) {
                current = Some(name.to_owned());
            }
            if let Some((_, reason)) = line.split_once("... skipped ") {
                let reason = reason.trim_matches(|quote| quote == '\'' || quote == '"');
                *results.skipped.entry(reason.to_owned()).or_default() += 1;
            } else if (line == "ok" || line.ends_with("... ok"))
                && let Some(name) = current.take()
            {
                results.passed.push(name);
            } else if let Some(rest) = line.strip_prefix("Ran ") {
                results.ran = rest.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0);
            }
        }
        results
    }

    pub(crate) fn verdict(&self) -> Result<(), String> {
        let skipped: usize = self.skipped.values().sum();
        if self.passed.len() + skipped != self.ran {
            return Err(format!("{} passed and {skipped} skipped are not the {} it ran", self.passed.len(), self.ran));
        }
        let needed = ["test_rc_traffic_cq_ex", "test_ud_traffic_cq_ex", "test_query_device"];
        match needed.iter().find(|name| !self.passed.iter().any(|passed| passed == *name)) {
            Some(name) => Err(format!("{name} is not among those that passed")),
            None => Ok(()),
        }
    }

    /// The passed tests, in a line; [`Results::skips`] are printed after all cases.
    pub(crate) fn line(&self) -> String {
        format!("{} passed: {}", self.passed.len(), self.passed.join(", "))
    }

    pub(crate) fn skips(&self) -> Vec<String> {
        self.skipped.iter().map(|(reason, count)| format!("skip pyverbs: {count} of its tests: {reason}")).collect()
    }
}
