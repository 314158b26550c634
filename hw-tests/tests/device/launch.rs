// SPDX-License-Identifier: MIT OR Apache-2.0
//! mpirun's command lines, and judgements of a run: that it succeeds and checked something, or that it ends in time
//! with certain words. Parameters are written as Open MPI 5 spells them ([`Series::spelled`]). Setup grade; any thread.

use crate::site::{Site, faults_applied};
use anyhow::{Result, bail, ensure};
use hw_tests::openmpi::Series;
use hw_tests::{Ending, Fabric, Job, Outcome};
use std::cell::Cell;
use std::time::Duration;

pub(crate) type Parameters = &'static [(&'static str, &'static str)];

#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) ranks: usize,
    /// A variable for the environment of each rank; empty if all ranks have the same environment.
    environment_of_ranks: Vec<String>,
    program: &'static str,
    arguments: Vec<String>,
    parameters: Vec<(String, String)>,
    options: Vec<&'static str>,
    /// Shell script that runs mpirun as `"$@"`.
    wrapper: Option<String>,
    /// Shell script that runs each rank as `"$@"`.
    rank_wrapper: Option<String>,
    environment: Vec<(String, String)>,
    /// Factor of the program's counts of repetitions.
    scale: f64,
    nodes: usize,
    /// Configuration of emulated adapters for this run alone.
    adapters: Option<String>,
    pub(crate) limit: Duration,
}

impl Launch {
    /// Runs ranks of a program on one node, with ibex as the only transport. Programs of the machine have whole paths.
    pub(crate) fn new(program: &'static str, ranks: usize) -> Self {
        Self {
            ranks,
            environment_of_ranks: Vec::new(),
            program,
            arguments: Vec::new(),
            // Ranks that spin would leave a software device no processor for its work.
            parameters: pairs(&[("pml", pml()), ("btl", "self,ibex"), ("osc", "rdma"), ("mpi_yield_when_idle", "1")]),
            options: Vec::new(),
            wrapper: None,
            rank_wrapper: None,
            environment: Vec::new(),
            scale: 1.0,
            nodes: 1,
            adapters: None,
            limit: Duration::from_mins(2),
        }
    }

    /// Two ranks that exchange checked messages for a moment: enough to see whether a job runs, and by which transport.
    pub(crate) fn of_a_short_exchange() -> Self {
        let arguments = ["--tests", "latency", "--sizes", "8,64K", "--seconds-per-row", "0.05"];
        Self::new("ibex_mpi_bench", 2).arguments(&arguments)
    }

    pub(crate) fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Adds an option of the program, which uses the last value of an option.
    pub(crate) fn with_argument(mut self, name: &str, value: &str) -> Self {
        self.arguments.extend([name.to_owned(), value.to_owned()]);
        self
    }

    /// Sets an MCA parameter, in place of an earlier value.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.parameters.retain(|(there, _)| there != name);
        self.parameters.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn with_all(self, parameters: &[(&str, &str)]) -> Self {
        parameters.iter().fold(self, |launch, (name, value)| launch.with(name, value))
    }

    /// Leaves an MCA parameter to its default.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.parameters.retain(|(there, _)| there != name);
        self
    }

    /// Starts one rank with each of these values of a parameter.
    pub(crate) fn each_rank_with(mut self, name: &str, values: &[&str]) -> Self {
        self.parameters.retain(|(there, _)| there != name);
        self.each_rank_with_own(&values.iter().map(|value| format!("{name}={value}")).collect::<Vec<_>>())
    }

    /// Starts one rank with each of these parameters (`NAME=VALUE`).
    pub(crate) fn each_rank_with_own(mut self, parameters: &[String]) -> Self {
        self.ranks = parameters.len();
        self.environment_of_ranks = parameters.iter().map(|parameter| format!("OMPI_MCA_{parameter}")).collect();
        self
    }

    pub(crate) fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Multiplies the program's counts of repetitions; the quick tier takes a share of the product.
    pub(crate) fn scale(mut self, scale: f64) -> Self {
        self.scale = scale;
        self
    }

    /// Runs mpirun inside this shell script, as `"$@"`.
    pub(crate) fn inside(mut self, script: impl Into<String>) -> Self {
        self.wrapper = Some(script.into());
        self
    }

    /// Runs each rank inside this shell script, as `"$@"`, and mpirun outside of it.
    pub(crate) fn ranks_inside(mut self, script: impl Into<String>) -> Self {
        self.rank_wrapper = Some(script.into());
        self
    }

    pub(crate) fn option(mut self, option: &'static str) -> Self {
        self.options.push(option);
        self
    }

    /// Runs on two nodes, with alternating ranks.
    pub(crate) fn on_two_nodes(mut self) -> Self {
        self.nodes = 2;
        self
    }

    /// Runs on emulated adapters of this configuration (docs/softhca.md), made for this run.
    pub(crate) fn on_adapters(mut self, configuration: impl Into<String>) -> Self {
        self.adapters = Some(configuration.into());
        self
    }

    pub(crate) fn limit(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// Runs it to its end, which may be a failure. Each fault of its adapters must have taken place by then.
    pub(crate) fn run(&self, site: &mut Site) -> Result<Outcome> {
        let (fabric, job) = self.prepared(site)?;
        let outcome = fabric.run(&job)?;
        faults_applied(fabric, self.configuration(), &outcome)?;
        Ok(outcome)
    }

    pub(crate) fn configuration(&self) -> &str {
        self.adapters.as_deref().unwrap_or_default()
    }

    pub(crate) fn prepared<'a>(&self, site: &'a mut Site) -> Result<(&'a Fabric, Job)> {
        let scale = self.scale * site.share();
        let program = site.program(self.program)?;
        let components = site.components().to_path_buf();
        let fabric = match &self.adapters {
            None => site.fabric(self.nodes)?,
            Some(configuration) => site.fabric_on(configuration)?,
        };
        let hosts: Vec<String> = (0..fabric.nodes()).map(|node| fabric.host_name(node)).collect();
        let devices = fabric.device_names().join(",");
        let series = Series::here()?;
        let mut job = Job::new(self.command(series, &program, &hosts, &devices)).limit(self.limit);
        job.env.clone_from(&self.environment);
        job.env.push((SCALE.to_owned(), scale.to_string()));
        job.env.extend(Series::environment(&components));
        Ok((fabric, job))
    }

    /// Runs it, expects success, and counts the cases that a program of hw-tests/mpi checked.
    pub(crate) fn passes(&self, site: &mut Site) -> Result<()> {
        let outcome = self.run(site)?;
        self.judge(site, outcome)
    }

    pub(crate) fn judge(&self, site: &mut Site, outcome: Outcome) -> Result<()> {
        let outcome = outcome.checked()?;
        let Some(passed) = cases_passed(&outcome.stdout) else {
            bail!("the program did not say how many cases passed: {outcome}");
        };
        for line in outcome.stdout.lines() {
            if let Some(skip) = line.strip_prefix("skip ") {
                site.skip(self.program, skip);
            }
        }
        site.cases += passed;
        Ok(())
    }

    pub(crate) fn succeeds(&self, site: &mut Site) -> Result<Outcome> {
        self.run(site)?.checked()
    }

    /// Runs it and expects that it ends by itself, without success, and prints all of these words.
    pub(crate) fn is_refused_with(&self, site: &mut Site, words: &[&str]) -> Result<Outcome> {
        let outcome = self.run(site)?;
        was_refused(&outcome)?;
        says(&outcome, words)?;
        Ok(outcome)
    }

    /// Runs it and expects that it ends by itself, with any status, and prints all of these words.
    pub(crate) fn ends_saying(&self, site: &mut Site, words: &[&str]) -> Result<Outcome> {
        let outcome = self.run(site)?;
        ended_by_itself(&outcome)?;
        says(&outcome, words)?;
        Ok(outcome)
    }

    fn command(&self, series: Series, program: &str, hosts: &[String], devices: &str) -> Vec<String> {
        let mut words = vec!["mpirun".to_owned()];
        words.extend(series.oversubscribed(hosts.len() > 1));
        if hosts.len() > 1 {
            // Enough slots for any test; ranks alternate between the nodes.
            let slots: Vec<String> = hosts.iter().map(|host| format!("{host}:16")).collect();
            words.extend(["--host".to_owned(), slots.join(",")]);
        }
        words.extend(self.options.iter().map(|option| (*option).to_owned()));
        words.extend(["-n".to_owned(), self.ranks.to_string()]);
        for (name, value) in self.parameters_of_all(devices) {
            let (name, value) = series.spelled(&name, &value);
            words.extend(["--mca".to_owned(), name, value]);
        }
        let exported = self.environment.iter().map(|(name, _)| name.as_str()).chain([SCALE]);
        words.extend(exported.flat_map(|name| ["-x", name]).map(str::to_owned));
        // mpirun gives all ranks the same value of a parameter; a rank's own environment can differ.
        if !self.environment_of_ranks.is_empty() {
            words.extend(in_a_shell(OF_RANK));
            words.push(self.ranks.to_string());
            words.extend(self.environment_of_ranks.iter().cloned());
        }
        words.extend(self.rank_wrapper.iter().flat_map(|script| in_a_shell(script)));
        words.push(program.to_owned());
        words.extend(self.arguments.iter().cloned());
        match &self.wrapper {
            None => words,
            Some(script) => in_a_shell(script).into_iter().chain(words).collect(),
        }
    }

    fn parameters_of_all(&self, devices: &str) -> Vec<(String, String)> {
        let mut shared = self.parameters.clone();
        // A test that chooses ports itself keeps its choice.
        if !self.parameters.iter().any(|(name, _)| name.starts_with("btl_ibex_if_")) {
            shared.push(("btl_ibex_if_include".to_owned(), devices.to_owned()));
        }
        shared
    }
}

/// Variable by which programs multiply their counts of repetitions (hw-tests/mpi/check.h).
pub(crate) const SCALE: &str = "IBEX_TEST_SCALE";

/// Sets one variable for each rank, and runs the program: `NUMBER VARIABLE... PROGRAM...`. On Debian 13 mpirun crashes
/// if it gets several programs.
const OF_RANK: &str = r#"
number=$1; shift; rank=0
while [ "$rank" -lt "$number" ]; do
    if [ "$rank" = "$OMPI_COMM_WORLD_RANK" ]; then export "$1"; fi
    shift; rank=$((rank + 1))
done
exec "$@""#;

thread_local! {
    static IS_OVER_THE_PML: Cell<bool> = const { Cell::new(false) };
}

/// Makes the jobs that `run` starts use ibex's own PML, unless they name another one.
pub(crate) fn over_the_pml<T>(run: impl FnOnce() -> T) -> T {
    let before = IS_OVER_THE_PML.replace(true);
    let result = run();
    IS_OVER_THE_PML.set(before);
    result
}

/// The PML of jobs that name none: ibex's within [`over_the_pml`], else ob1 over the BTL.
fn pml() -> &'static str {
    if IS_OVER_THE_PML.get() { "ibex" } else { "ob1" }
}

/// Two emulated adapters, with these `[[fault]]` tables.
pub(crate) fn with_faults(rules: &str) -> String {
    format!("[[device]]\nname = \"softhca0\"\n[[device]]\nname = \"softhca1\"\n{rules}")
}

/// The beginning of a command line that runs a script with the rest as `"$@"`.
fn in_a_shell(script: &str) -> [String; 4] {
    ["sh", "-c", script, "sh"].map(str::to_owned)
}

pub(crate) fn ended_by_itself(outcome: &Outcome) -> Result<()> {
    ensure!(matches!(outcome.ending, Ending::Exited(_)), "the job did not end by itself: {outcome}");
    Ok(())
}

pub(crate) fn was_refused(outcome: &Outcome) -> Result<()> {
    ended_by_itself(outcome)?;
    ensure!(!outcome.success(), "the job succeeded, and should have been refused: {outcome}");
    Ok(())
}

pub(crate) fn says(outcome: &Outcome, words: &[&str]) -> Result<()> {
    let printed = printed(outcome);
    match words.iter().find(|word| !printed.contains(&word.to_lowercase())) {
        Some(word) => bail!("the job did not say {word:?}: {outcome}"),
        None => Ok(()),
    }
}

pub(crate) fn says_one_of(outcome: &Outcome, words: &[&str]) -> Result<()> {
    let printed = printed(outcome);
    if !words.iter().any(|word| printed.contains(&word.to_lowercase())) {
        bail!("the job said none of {words:?}: {outcome}");
    }
    Ok(())
}

fn printed(outcome: &Outcome) -> String {
    format!("{}\n{}", outcome.stdout, outcome.stderr).to_lowercase()
}

/// The number of cases in a program's last line, `12 passed, 0 failed`; `None` if one failed or none was run.
pub(crate) fn cases_passed(stdout: &str) -> Option<u64> {
    let line = stdout.lines().rev().find(|line| line.ends_with(" failed"))?;
    let (passed, failed) = line.strip_suffix(" failed")?.split_once(" passed, ")?;
    let skipped_all = stdout.lines().any(|line| line.starts_with("skip "));
    let passed: u64 = passed.parse().ok()?;
    (failed == "0" && (passed > 0 || skipped_all)).then_some(passed)
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}
