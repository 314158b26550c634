// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faults in the middle of a job: the program reports that it is there, the test gives the emulated adapters a command
//! (`softhca ctl`), and makes the file for which the program waits (hw-tests/mpi/check.h). Setup grade; one at a time.

use crate::launch::Launch;
use crate::site::{Site, counted, fault_to_come, faults_applied};
use anyhow::{Context, Result, bail};
use hw_tests::{Fabric, Folder, Job, Outcome, Running};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Line that ranks print in the middle, up to their number.
const MARK: &str = "in the middle: rank ";

/// No limit here: if a job never prints the line, its own limit ends it.
const NO_LIMIT: Duration = Duration::from_hours(1);

pub(crate) struct Pull<'a> {
    fabric: &'a Fabric,
    file: &'a Path,
    running: Running,
    ranks: usize,
    /// Number of port events that ibex has taken in every rank.
    port_events: usize,
}

impl Pull<'_> {
    /// Gives the adapters a command, which is in force in every rank on return.
    pub(crate) fn ctl(&self, words: &str) -> Result<()> {
        self.fabric.ctl(&words.split(' ').collect::<Vec<_>>()).map(drop)
    }

    /// Makes the adapters raise an event of a port, and waits until ibex in each rank of `rail_down --events` has taken
    /// it: until then a rank uses the port in its old state.
    pub(crate) fn port_event(&mut self, words: &str) -> Result<()> {
        self.ctl(words)?;
        self.port_events += 1;
        for rank in 0..self.ranks {
            self.running.wait_for_line(&format!("port events {}: rank {rank}", self.port_events), NO_LIMIT)?;
        }
        Ok(())
    }

    /// Waits until the job has printed `part`, or has ended.
    pub(crate) fn told(&mut self, part: &str) -> Result<()> {
        self.running.wait_for_text(part)
    }

    /// Runs a shell script on the first node, for adapters that take no commands.
    pub(crate) fn run(&self, script: &str) -> Result<()> {
        self.fabric.run(&Job::new(["sh", "-ec", script]))?.checked().map(drop)
    }

    pub(crate) fn go_on(&self) -> Result<()> {
        fs::write(self.file, "").with_context(|| format!("cannot write {}", self.file.display()))
    }

    /// Takes port 1 of an adapter down while a message on it is unacknowledged; tries again if there was none.
    pub(crate) fn down_in_traffic(&self, device: &str) -> Result<()> {
        for _ in 0..20 {
            let before = self.unacknowledged(device)?;
            self.ctl(&format!("link-down {device}"))?;
            let until = Instant::now() + Duration::from_secs(10);
            while Instant::now() < until {
                if self.unacknowledged(device)? > before {
                    return Ok(());
                }
            }
            self.ctl(&format!("link-up {device}"))?;
        }
        bail!("{device} went down twenty times, and no message was under way on it")
    }

    fn unacknowledged(&self, device: &str) -> Result<u64> {
        counted(self.fabric, device, "local_ack_timeout_err")
    }

    /// Takes these adapters' ports down for a moment, one after the other, `times` times in all.
    pub(crate) fn flap(&self, devices: &[&str], times: usize) -> Result<()> {
        for device in devices.iter().cycle().take(times) {
            // The port comes up by itself, however long the next command takes to start.
            self.ctl(&format!("link-down {device} for_ns=25000000"))?;
            self.ctl(&format!("link-up {device}"))?;
        }
        Ok(())
    }
}

impl Launch {
    /// Runs it to its end; calls `pull` once each rank says that it is in the middle.
    pub(crate) fn pulled(&self, site: &mut Site, pull: impl FnOnce(&mut Pull<'_>) -> Result<()>) -> Result<Outcome> {
        let marks: Vec<String> = (0..self.ranks).map(|rank| format!("{MARK}{rank}")).collect();
        self.pulled_at(site, &marks, pull)
    }

    /// Like [`Self::pulled`], but the job goes on when its faults have taken place, unless they end it.
    pub(crate) fn until_faults(&self, site: &mut Site) -> Result<Outcome> {
        self.pulled_at(site, &[], |pull| {
            let until = Instant::now() + self.limit;
            while fault_to_come(pull.fabric)?.is_some() && Instant::now() < until {}
            pull.go_on()
        })
    }

    /// Like [`Self::pulled`] for a program that repeats its cases: calls `pull` after the first case.
    pub(crate) fn pulled_after_a_case(
        &self,
        site: &mut Site,
        pull: impl FnOnce(&mut Pull<'_>) -> Result<()>,
    ) -> Result<Outcome> {
        self.pulled_at(site, &["ok ".to_owned()], pull)
    }

    fn pulled_at(
        &self,
        site: &mut Site,
        marks: &[String],
        pull: impl FnOnce(&mut Pull<'_>) -> Result<()>,
    ) -> Result<Outcome> {
        let folder = Folder::new("ibex-go-on")?;
        let file = &folder.file("go-on");
        let launch = self.clone().environment("IBEX_TEST_GO_ON", &file.display().to_string());
        let (fabric, job) = launch.prepared(site)?;
        let mut running = fabric.spawn(&job)?;
        for mark in marks {
            running.wait_for_line(mark, NO_LIMIT)?;
        }
        let mut pulled = Pull { fabric, file, running, ranks: self.ranks, port_events: 0 };
        pull(&mut pulled)?;
        let outcome = pulled.running.wait()?;
        faults_applied(fabric, self.configuration(), &outcome)?;
        Ok(outcome)
    }
}
