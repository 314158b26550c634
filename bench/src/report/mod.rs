// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result of a bench, `report.json`: one row per test, transport and size. [`summary`] makes the rows from the
//! measurements of all rounds; [`events`] has the cost of events. Units: latency in microseconds, bandwidth in MB/s
//! (10^6 bytes per second), rate in messages per second. Read by [`crate::text`] and by the thresholds of `cargo xtask
//! bench`. Grade: setup. Tests: in [`summary`].

pub(crate) mod events;
pub(crate) mod summary;

use crate::catalogue::{self, Test, Transport, transport};
use crate::nodes::{Nodes, Where};
use crate::numbers::rounded;
use crate::plan::{LeftOut, Plan};
use crate::programs::Measurement;
use crate::programs::instructions::{Count, Counted, OfObject};
use crate::run::found::{Effort, Failure};
use crate::{run, text};
use anyhow::{Context, Result};
use events::{Cost, Ratio};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fmt, fs};

/// `report.json`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    pub(crate) device: String,
    /// In the order of the plan, sizes ascending.
    pub(crate) rows: Vec<Row>,
    /// Each value of a test of [`crate::catalogue::By::Reads`], divided by that of the read that is not cut.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) pairs: Vec<Ratio>,
    /// Instructions of a message by object; empty if they were not counted.
    pub(crate) instructions: Vec<Part>,
    /// The environment on which the numbers depend, as names and values: kernel, processor, versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) environment: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) effort: Option<Effort>,
    /// Cost of events, if the user asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<Cost>,
    /// Describes what a first table leaves out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) brief: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) failures: Vec<Failure>,
    /// Tests and transports that this machine does not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) left_out: Vec<LeftOut>,
    #[serde(skip)]
    remark: String,
    #[serde(skip)]
    pub(crate) tests: Vec<&'static Test>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) transport: String,
    /// A shared library, or the program.
    pub(crate) object: String,
    pub(crate) adapter: bool,
    pub(crate) instructions: f64,
}

/// One value of `report.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub(crate) test: String,
    /// Name of the transport ([`Transport::name`]).
    pub(crate) transport: String,
    pub(crate) bytes: u64,
    pub(crate) unit: String,
    /// Median over the rounds.
    pub value: f64,
    /// Interquartile range over the rounds.
    pub spread: f64,
    /// Whether the rounds lie too far apart to say anything, even after the value was measured again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsteady: bool,
}

impl Report {
    /// Measures a plan. `deliveries`: events that a thread raises and delivers through a buffer, per second, if the
    /// plan measures the cost of events. A program that fails is part of the report ([`Report::is_complete`]).
    ///
    /// # Errors
    /// No program can be run any more.
    pub fn measured(nodes: &dyn Nodes, place: Where, plan: &Plan, deliveries: Option<f64>) -> Result<Self> {
        let found = run::run(nodes, place, plan)?;
        let mut report = Self {
            instructions: parts(&found.instructions),
            environment: place.environment(nodes)?,
            left_out: plan.left_out.clone(),
            effort: Some(found.effort),
            brief: plan.brief.clone(),
            pairs: events::ratios(&found.measured, Transport::Uncut),
            events: plan.is_of_events().then(|| Cost::new(&found, deliveries)),
            remark: place.remark(),
            ..summary::summarise(&place.title(), &plan.tests, &found.measured)
        };
        report.lacks(&found.failures, &found.measured);
        Ok(report)
    }

    /// Writes `report.json` into a folder, and returns its path.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn write(&self, folder: &Path) -> Result<PathBuf> {
        saved(folder, "report.json", &(serde_json::to_string_pretty(self)? + "\n"))
    }

    /// Whether only a part was measured: the default table of `cargo xtask bench`.
    pub fn is_brief(&self) -> bool {
        self.brief.is_some()
    }

    /// Returns the row of a test, transport and size.
    pub fn row(&self, test: &str, transport: Transport, bytes: u64) -> Option<&Row> {
        self.rows.iter().find(|row| row.test == test && row.transport == transport.name() && row.bytes == bytes)
    }

    /// Adds failures, and notes whether other rounds made up for each.
    pub(crate) fn lacks(&mut self, failures: &[Failure], measured: &[Measurement]) {
        let has = |failure: &Failure, (name, bytes): &(String, u64)| {
            let of = |one: &&Measurement| one.transport.name() == failure.transport && one.test == *name;
            measured.iter().filter(of).any(|one| one.bytes == *bytes)
        };
        let judged = |failure: &Failure| Failure {
            missing: failure.values.iter().any(|value| !has(failure, value)),
            ..failure.clone()
        };
        self.failures = failures.iter().map(judged).collect();
    }

    /// Whether all values were measured, and programs failed only because the machine was busy for a time.
    pub fn is_complete(&self) -> bool {
        self.failures.iter().all(|failure| failure.busy && !failure.missing)
    }

    fn failed(&self, test: &str) -> impl Iterator<Item = &Failure> {
        self.failures.iter().filter(move |failure| failure.missing && failure.tests.iter().any(|name| name == test))
    }

    /// Returns the sizes that the plan had for a test, ascending.
    pub fn sizes(&self, test: &str) -> Vec<u64> {
        let mut sizes: Vec<u64> = self.rows.iter().filter(|row| row.test == test).map(|row| row.bytes).collect();
        let of_test = |name: &str| name == test || catalogue::test(test).is_some_and(|test| test.raw.contains(&name));
        let values = self.failed(test).flat_map(|failure| &failure.values).filter(|(name, _)| of_test(name));
        sizes.extend(values.map(|(_, bytes)| *bytes));
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// Returns the transports that the plan had for a test, in the order of tables.
    pub(crate) fn transports(&self, test: &str) -> Vec<Transport> {
        let measured = |name: &str| self.rows.iter().any(|row| row.test == test && row.transport == name);
        let failed = |name: &str| self.failed(test).any(|failure| failure.transport == name);
        let tried = |transport: &Transport| measured(transport.name()) || failed(transport.name());
        transport::all().filter(tried).collect()
    }

    /// Returns the ratios of a test that were found in pairs of values, sizes ascending.
    pub fn pairs(&self, test: &str) -> impl Iterator<Item = (u64, &Ratio)> {
        self.pairs.iter().filter(move |ratio| ratio.test == test).filter_map(|ratio| Some((ratio.bytes?, ratio)))
    }

    /// Returns the value of a test over a transport, divided by that over another one.
    pub fn ratio(&self, test: &str, of: Transport, to: Transport, bytes: u64) -> Option<f64> {
        let value = |transport| Some(self.row(test, transport, bytes)?.value).filter(|value| *value > 0.0);
        Some(value(of)? / value(to)?)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{}\n{}{}", text::tables(self), text::remarks(self), self.remark)
    }
}

pub(crate) fn saved(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Returns the instructions of an 8-byte message by transport and object, the largest number of a transport first.
fn parts(counted: &BTreeMap<Count, Counted>) -> Vec<Part> {
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
