// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures what a plan says, and shows what came of it.
//!
//! Grade: setup. Called by whoever benches.

use super::bars;
use super::events::Cost;
use super::html;
use super::job::{self, Job, Nodes};
use super::place::Where;
use super::plan::{Kind, Plan};
use super::report::{self, Report};
use super::run;
use super::table;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// A bench that is done.
#[derive(Debug)]
pub struct Finished<'a> {
    plan: &'a Plan,
    kind: Kind,
    remark: String,
    report: Report,
    environment: Vec<(String, String)>,
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
    let environment = environment(nodes, place, found.repeated)?;
    let mut report = report::summarise(title, &plan.tests, &found.measured);
    report.instructions = report::parts(&found.instructions);
    report.left_out.clone_from(&plan.left_out);
    report.lacks(&found.failures, &found.measured);
    report.events = plan.is_of_events().then(|| Cost::new(&found, deliveries));
    Ok(Finished { plan, kind: place.kind, remark: place.remark(), report, environment })
}

impl Finished<'_> {
    /// The tables, what is said of the speeds that are wanted, and what the numbers mean.
    #[must_use]
    pub fn text(&self) -> String {
        let tables = table::tables(&self.report, &self.plan.tests);
        let bars = table::bars(&bars::verdicts(self.kind, &self.report));
        let remarks = table::remarks(&self.report);
        format!("\n{tables}\n{remarks}{bars}{}\n", self.remark)
    }

    /// Whether all that was tried was measured.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.report.is_complete()
    }

    /// `report.json`.
    ///
    /// # Errors
    /// A number that is none.
    pub fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(&self.report)? + "\n")
    }

    /// Writes `report.json` and `report.html` into a folder, and gives their paths.
    ///
    /// # Errors
    /// When the folder cannot be written to, or a plot cannot be drawn.
    pub fn write(&self, folder: &Path) -> Result<[PathBuf; 2]> {
        let save = |name: &str, text: &str| -> Result<PathBuf> {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            Ok(path)
        };
        let page = html::page((self.kind, &self.remark), &self.report, &self.plan.tests, &self.environment)?;
        Ok([save("report.json", &self.json()?)?, save("report.html", &page)?])
    }
}

/// What the numbers depend on, as name and value, from the node they were measured in.
fn environment(nodes: &dyn Nodes, place: Where, repeated: usize) -> Result<Vec<(String, String)>> {
    let facts = [
        ("Kernel", "uname -sr"),
        ("Processors", "nproc"),
        ("Processor", "sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1"),
        ("Virtual machine", "grep -q hypervisor /proc/cpuinfo && echo yes || echo no"),
        ("Open MPI", "mpirun --version | head -n 1"),
        ("UCX", "dpkg-query --show --showformat='${Version}' libucx0 2>/dev/null || echo unknown"),
        ("perftest", "dpkg-query --show --showformat='${Version}' perftest 2>/dev/null || echo unknown"),
    ];
    let mut found = vec![("ibex".to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
    found.push(("Device".to_owned(), place.device.to_owned()));
    found.push(("Interface".to_owned(), place.interface.to_owned()));
    if let Some(hosts) = place.hosts {
        found.push(("Hosts".to_owned(), hosts.names().join(", ")));
    }
    for (name, script) in facts {
        let outcome = job::run(nodes, &Job::new(["sh", "-c", script]))?.checked()?;
        found.push((name.to_owned(), outcome.stdout.trim().to_owned()));
    }
    if repeated > 0 {
        found.push(("Runs of perftest repeated, as the machine was busy".to_owned(), repeated.to_string()));
    }
    Ok(found)
}
