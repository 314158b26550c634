// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures what a plan says, and shows what came of it.
//!
//! Grade: setup. Called by whoever benches.

use crate::nodes::environment::environment;
use crate::nodes::job::Nodes;
use crate::nodes::place::Where;
use crate::plan::Plan;
use crate::report::events::Cost;
use crate::report::summary::summarise;
use crate::report::{Report, parts};
use crate::{run, text};
use anyhow::{Context, Result};
use serde::{Serialize, Serializer};
use std::path::{Path, PathBuf};
use std::{fmt, fs};

/// A bench that is done.
#[derive(Debug)]
pub struct Finished<'a> {
    plan: &'a Plan,
    remark: String,
    report: Report,
}

/// Measures. `title` names the device for a reader; `deliveries`: events that a thread raises and delivers through a
/// buffer, per second, where what events cost is measured.
///
/// A program that fails is part of what is found ([`Finished::is_complete`]).
///
/// # Errors
/// When no program can be run any more.
pub fn measure<'a>(
    nodes: &dyn Nodes,
    place: Where,
    plan: &'a Plan,
    title: &str,
    deliveries: Option<f64>,
) -> Result<Finished<'a>> {
    let found = run::run(nodes, place, plan)?;
    let mut report = summarise(title, &plan.tests, &found.measured);
    report.instructions = parts::parts(&found.instructions);
    report.environment = environment(nodes, place)?;
    report.left_out.clone_from(&plan.left_out);
    report.effort = found.effort();
    report.brief.clone_from(&plan.brief);
    report.lacks(&found.failures, &found.measured);
    report.events = plan.is_of_events().then(|| Cost::new(&found, deliveries));
    Ok(Finished { plan, remark: place.remark(), report })
}

impl Finished<'_> {
    /// What was measured.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Whether all that was tried was measured.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.report.is_complete()
    }

    /// Writes `report.json` into a folder, and gives its path.
    ///
    /// # Errors
    /// When the folder cannot be written to.
    pub fn write(&self, folder: &Path) -> Result<PathBuf> {
        saved(folder, "report.json", &(serde_json::to_string_pretty(self)? + "\n"))
    }
}

/// Writes a file into a folder, and gives its path.
pub(crate) fn saved(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

impl fmt::Display for Finished<'_> {
    /// The tables, and what the numbers mean.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables = text::tables(&self.report, &self.plan.tests);
        writeln!(f, "\n{tables}\n{}{}", text::remarks(&self.report), self.remark)
    }
}

impl Serialize for Finished<'_> {
    /// As `report.json`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.report.serialize(serializer)
    }
}
