// SPDX-License-Identifier: MIT OR Apache-2.0
//! Run times of whole programs without a tool, with a tool that does nothing, and with the recorder (Hermanns et al.
//! 2019, section 5.1 and figure 1). The time is that of a program's main loop, if the program prints it, as in the
//! paper; else that of `mpirun` in all. Called by [`super`]. Grade: setup. Tests: below.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use serde::Serialize;

use super::program::{self, Program};
use super::ways::{self, InWay, Way};
use crate::catalogue::Transport;
use crate::nodes::{Nodes, Where, job};
use crate::programs::mpi;

/// In the order of the paper's figure; the recorder has the place of its Score-P.
static WAYS: [Way; 6] = [
    Way::without_events(Transport::Ibex),
    Way::new(ways::NO_TOOL, Transport::Ibex),
    Way::new(ways::NO_CALLBACKS, Transport::Initialised),
    Way::new(ways::PERUSE, Transport::Peruse),
    Way::new(ways::MPI_T, Transport::MpiT),
    Way::recorded(Transport::Ibex),
];

#[derive(Clone, Debug, Serialize)]
pub(super) struct RunTimes {
    pub(super) program: &'static str,
    pub(super) words: String,
    pub(super) ranks: u32,
    pub(super) of: &'static str,
    pub(super) rounds: usize,
    pub(super) ways: Vec<InWay>,
}

pub(super) fn measured(
    nodes: &dyn Nodes,
    place: Where,
    program: &Program,
    rounds: usize,
    has_tool: bool,
) -> Result<RunTimes> {
    let folder = place.reports.join("study/run-times");
    let ways = ways::possible(&WAYS, place, has_tool);
    let found = ways::in_turns(&ways, rounds, |way| seconds(nodes, way.place(place), way, program, &folder))?;
    fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    Ok(RunTimes {
        program: program.name,
        words: program.words.clone(),
        ranks: program.ranks,
        of: if program.loop_time.is_some() { "main loop" } else { "mpirun" },
        rounds,
        ways: ways::compared(&ways, found, ways::NO_EVENTS),
    })
}

fn seconds(nodes: &dyn Nodes, place: Where, way: Way, program: &Program, folder: &Path) -> Result<f64> {
    program.prepare(folder)?;
    let recorder = if way.is_recorded { program::recorder(place, &folder.join("trace"), false) } else { Vec::new() };
    let job = mpi::job(place, way.transport, program.command(place, way.transport, folder, &recorder)?);
    let began = Instant::now();
    let outcome = job::run(nodes, &job)?.checked().with_context(|| format!("{} with {}", program.name, way.name))?;
    let wall = began.elapsed().as_secs_f64();
    match program.loop_time {
        Some(before) => loop_time(&outcome.stdout, before)
            .with_context(|| format!("{} does not say how long its main loop took", program.name)),
        None => Ok(wall),
    }
}

/// Returns the number behind these words, at the beginning of a line.
fn loop_time(stdout: &str, before: &str) -> Option<f64> {
    let number = stdout.lines().find_map(|line| line.strip_prefix(before)?.split_whitespace().next()?.parse().ok())?;
    Some(number).filter(|number| *number > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::place::tests::place;
    use crate::nodes::{Job, Outcome, Stream};
    use std::cell::RefCell;

    /// Nodes that keep the scripts they are given, and answer each with these lines.
    struct Made {
        scripts: RefCell<Vec<String>>,
        stdout: &'static str,
    }

    impl Nodes for Made {
        fn run(&self, job: &Job, _: &mut dyn FnMut(Stream, &str)) -> Result<Outcome> {
            self.scripts.borrow_mut().extend(job.argv.last().cloned());
            Ok(job::ended(0, self.stdout, ""))
        }
    }

    #[test]
    fn the_time_is_that_of_the_main_loop_in_each_of_six_ways() {
        let folder = std::env::temp_dir().join(format!("ibex-run-times-{}", std::process::id()));
        let place = Where { reports: &folder, ..place() };
        let stdout =
            "Setting up\nLoop time of 2.5 on 2 procs for 100 steps with 4000 atoms\nTotal wall time: 0:00:03\n";
        let nodes = Made { scripts: RefCell::new(Vec::new()), stdout };
        let of = measured(&nodes, place, &Program::lammps(100), 2, true).unwrap();
        assert!(!folder.join("study/run-times").exists());
        fs::remove_dir_all(&folder).unwrap();
        let medians: Vec<f64> = of.ways.iter().map(|way| way.value.median).collect();
        assert_eq!((of.of, of.ways[0].value.count, medians), ("main loop", 2, vec![2.5; 6]));
        assert_eq!((of.ways[0].over_first, of.ways[5].over_first), (None, Some(1.0)));
        let scripts = nodes.scripts.into_inner();
        let told = |word: &str| scripts.iter().filter(|script| script.contains(word)).count();
        assert_eq!((scripts.len(), told("LD_PRELOAD")), (12, 6));
        assert_eq!((told("EVERY_EVENT=nothing"), told("'trace' '-o'"), told("'--events'")), (2, 2, 0));
    }

    #[test]
    fn a_program_that_does_not_say_its_time_is_not_timed() {
        assert_eq!(loop_time("Loop time of 0.125 on 1 procs", "Loop time of "), Some(0.125));
        assert_eq!(loop_time("The Loop time of 0.125\nLoop time of it\nLoop time of 0\n", "Loop time of "), None);
    }
}
