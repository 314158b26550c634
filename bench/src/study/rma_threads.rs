// SPDX-License-Identifier: MIT OR Apache-2.0
//! Puts and gets per second of several threads that wait for them in three ways, without a tool and with a tool that
//! does nothing (Hermanns et al. 2019, section 5.1 and figure 2, with RMA-MT). The program is
//! `benches/mpi/ibex_rma_threads.c`. One-sided operations go by the BTL. Called by [`super`]. Tests: below.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::ways::{self, InWay, Way};
use crate::catalogue::Transport;
use crate::nodes::{Nodes, Where, job};
use crate::programs::mpi;

/// In the order of the paper's figure.
static WAYS: [Way; 3] = [
    Way::new(ways::NO_TOOL, Transport::Unregistered),
    Way::new(ways::NO_CALLBACKS, Transport::InitialisedBtl),
    Way::new(ways::MPI_T, Transport::Callbacks),
];

pub(super) const PROGRAM: &str = "ibex_rma_threads";

const LIMIT: Duration = Duration::from_mins(5);

/// Number of operations, times number of ways to wait for them.
const ROWS_OF_SIZE: usize = 6;

#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) rounds: usize,
    pub(super) seconds: f64,
    /// Numbers of threads, each with each of these sizes.
    pub(super) runs: &'static [(&'static [u32], &'static [u64])],
}

impl Extent {
    /// As in the paper, 16 threads with all sizes; and 8 bytes with all numbers of threads.
    pub(super) const FULL: Self =
        Self { rounds: 5, seconds: 0.1, runs: &[(&[16], &[8, 512, 8192, 65536]), (&[1, 2, 4, 8], &[8])] };
    pub(super) const QUICK: Self = Self { rounds: 1, seconds: 0.05, runs: &[(&[1, 4], &[8])] };
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct RmaThreads {
    pub(super) rounds: usize,
    pub(super) rows: Vec<Row>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    #[serde(flatten)]
    pub(super) of: Key,
    /// Operations of all threads a second.
    pub(super) ways: Vec<InWay>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Key {
    pub(super) operation: String,
    pub(super) synchronisation: String,
    pub(super) threads: u32,
    pub(super) bytes: u64,
}

/// A line of the program, which has more fields.
#[derive(Clone, Debug, Deserialize)]
struct Line {
    #[serde(flatten)]
    of: Key,
    value: f64,
}

pub(super) fn measured(nodes: &dyn Nodes, place: Where, extent: Extent, has_tool: bool) -> Result<RmaThreads> {
    let ways = ways::possible(&WAYS, place, has_tool);
    let found = ways::in_turns(&ways, extent.rounds, |way| once(nodes, way.place(place), way.transport, extent))?;
    Ok(RmaThreads { rounds: extent.rounds, rows: rows(&ways, &found) })
}

fn once(nodes: &dyn Nodes, place: Where, transport: Transport, extent: Extent) -> Result<Vec<Line>> {
    let mut all = Vec::new();
    for (threads, sizes) in extent.runs {
        let argv = command(place, transport, threads, sizes, extent.seconds)?;
        let job = mpi::job(place, transport, argv).limit(LIMIT);
        let found = lines(&job::run(nodes, &job)?.checked()?.stdout)?;
        let wanted = threads.len() * sizes.len() * ROWS_OF_SIZE;
        ensure!(found.len() == wanted, "{PROGRAM} measured {} rows, and {wanted} were expected", found.len());
        all.extend(found);
    }
    Ok(all)
}

fn command(place: Where, transport: Transport, threads: &[u32], sizes: &[u64], seconds: f64) -> Result<Vec<String>> {
    let mut words = mpi::mpirun(place, transport)?;
    words.extend(["-n".to_owned(), "2".to_owned(), place.programs.join(PROGRAM).display().to_string()]);
    words.extend(["--threads".to_owned(), list(threads), "--sizes".to_owned(), list(sizes)]);
    words.extend(["--seconds-per-row".to_owned(), seconds.to_string()]);
    Ok(words)
}

fn list(numbers: &[impl ToString]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn lines(stdout: &str) -> Result<Vec<Line>> {
    let rows = stdout.lines().filter(|line| line.starts_with('{'));
    let read = |line: &str| {
        let row: Line = serde_json::from_str(line)
            .with_context(|| format!("{PROGRAM} printed a line that cannot be read: {line}"))?;
        ensure!(row.value > 0.0 && row.value.is_finite(), "{PROGRAM} gives a rate that is none: {line}");
        Ok(row)
    };
    rows.map(read).collect()
}

fn rows(ways: &[Way], found: &[Vec<Vec<Line>>]) -> Vec<Row> {
    let keys = found.first().and_then(|rounds| rounds.first()).into_iter().flatten().map(|line| &line.of);
    let row = |of: &Key| {
        let is_of_row = |line: &&Line| line.of == *of;
        let values =
            found.iter().map(|rounds| rounds.iter().flatten().filter(is_of_row).map(|line| line.value).collect());
        Row { of: of.clone(), ways: ways::compared(ways, values, ways::NO_TOOL) }
    };
    keys.map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::place::tests::place;

    const LINE: &str = r#"{"operation":"put","synchronisation":"flush_all","threads":16,"bytes":8,"unit":"operations/s","value":2.5e+06,"spread":1e+05,"samples":20}"#;

    #[test]
    fn the_tool_listens_to_the_btl_which_carries_puts_and_gets() {
        let of = |transport| command(place(), transport, &[1, 4], &[8, 512], 0.05).unwrap().join(" ");
        let plain = of(Transport::Unregistered);
        assert!(plain.contains("--mca pml ob1 --mca btl self,ibex") && plain.contains("--mca osc rdma"), "{plain}");
        assert!(
            plain.ends_with("-n 2 /t/mpi/ibex_rma_threads --threads 1,4 --sizes 8,512 --seconds-per-row 0.05"),
            "{plain}"
        );
        assert!(!plain.contains("LD_PRELOAD"), "{plain}");
        for way in &WAYS[1..] {
            assert!(of(way.transport).contains("--mca pml ob1") && of(way.transport).contains("every_event.so"));
        }
    }

    #[test]
    fn a_row_has_the_rates_of_all_rounds_in_each_way() {
        let round = |value: &str| {
            let put = LINE.replace("2.5e+06", value);
            lines(&format!("every_event: rank 0 raised 1\n{put}\n{}\n", put.replace("put", "get"))).unwrap()
        };
        let found = [[round("4e6"), round("2e6")], [round("2.7e6"), round("3.3e6")], [round("1e6"), round("2e6")]];
        let rows = rows(&WAYS, &found.map(Vec::from));
        let key =
            |row: &Row| format!("{} {} {} {}", row.of.operation, row.of.synchronisation, row.of.threads, row.of.bytes);
        assert_eq!(rows.iter().map(key).collect::<Vec<_>>(), ["put flush_all 16 8", "get flush_all 16 8"]);
        let of = |way: &InWay| (way.way, way.value.median, way.over_first);
        let ways: Vec<_> = rows[0].ways.iter().map(of).collect();
        assert_eq!(
            ways,
            [(ways::NO_TOOL, 3e6, None), (ways::NO_CALLBACKS, 3e6, Some(1.0)), (ways::MPI_T, 1.5e6, Some(0.5))]
        );
        let json = serde_json::to_value(&rows[0]).unwrap();
        assert_eq!((&json["operation"], &json["ways"][2]["over_first"]), (&"put".into(), &0.5.into()));
    }

    #[test]
    fn a_line_that_is_none_is_refused_and_so_is_a_rate_of_nothing() {
        assert!(lines("{half a line").is_err());
        assert!(lines(&LINE.replace("2.5e+06", "0")).is_err());
        assert_eq!(lines("[host:1] a remark\n").unwrap().len(), 0);
    }
}
