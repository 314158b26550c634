// SPDX-License-Identifier: MIT OR Apache-2.0
//! A study as tables of Markdown: what docs/study.md has between its markers.
//!
//! Grade: setup. Called by who shows a study. Tests: at the end of this file.

use std::fmt;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::application::{Application, Times};
use super::cost::Cost;
use super::distribution::Distribution;
use super::planted::{Finding, Waits};
use super::queues::{Queue, Searches};
use super::{Study, cost};
use crate::finished::saved;
use crate::numbers::{grouped, number};

impl Study {
    /// Writes `study.json` and `study.md` into a folder, and gives their paths.
    ///
    /// # Errors
    /// When the folder cannot be written to.
    pub fn write(&self, folder: &Path) -> Result<[PathBuf; 2]> {
        let json = serde_json::to_string_pretty(self)? + "\n";
        Ok([saved(folder, "study.json", &json)?, saved(folder, "study.md", &self.to_string())?])
    }
}

impl fmt::Display for Study {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&markdown(self))
    }
}

/// All of it.
fn markdown(study: &Study) -> String {
    let mut page = format!("Measured on {}. {}\n\n", study.device, study.remark);
    // Others are of what is not part of it.
    let facts = ["Kernel", "Processors", "Processor", "Virtual machine", "Open MPI", "ibex"];
    let facts = study.environment.iter().filter(|(name, _)| facts.contains(&name.as_str()));
    table(&mut page, &["", ""], facts.map(|(name, value)| vec![name.clone(), value.clone()]));
    page += &cost_of_events(&study.cost);
    for application in &study.applications {
        page += &of_application(application);
    }
    page += &of_planted(&study.planted);
    if !study.left_out.is_empty() {
        page += "\n### What was left out\n\n";
        for one in &study.left_out {
            let _ = writeln!(page, "- {}: {}.", one.what, one.reason);
        }
    }
    page
}

fn cost_of_events(cost: &Cost) -> String {
    let rounds = cost.rounds;
    let mut page = format!(
        "\n### What events cost\n\nLatency of a message of 0 bytes, us: half a round trip; rounds: {rounds}. \
         Instructions: of an `MPI_Send` and an `MPI_Recv` of 8 bytes, without the adapter's.\n\n"
    );
    let row = |row: &cost::Row| {
        let of = &row.latency;
        let quartiles = format!("{} to {}", number(of.lower_quartile), number(of.upper_quartile));
        let over = row.over_first.map_or_else(|| "-".to_owned(), |over| format!("{over:.2}"));
        let instructions = row.instructions.map_or_else(|| "-".to_owned(), number);
        vec![row.face.to_owned(), row.way.to_owned(), number(of.median), quartiles, over, instructions]
    };
    let names = ["ibex'", "events", "median", "quartiles", "over no events", "instructions"];
    table(&mut page, &names, cost.rows.iter().map(row));
    page
}

fn of_application(of: &Application) -> String {
    let span = of.span_nanoseconds.map_or_else(|| "-".to_owned(), |span| time(span as f64));
    let mut page = format!(
        "\n### {}\n\n{}. {} ranks, {span}, {} messages of {} in all; {} events recorded, {} lost.\n",
        of.name,
        of.words,
        of.ranks,
        grouped(of.messages as i64),
        size(of.bytes),
        grouped(of.events as i64),
        of.lost,
    );
    page += "\nWhere the time of messages goes at their receivers:\n\n";
    let row = |of: &Times| [vec![format!("{} to {}", of.from, of.to), of.of.clone()], cells(&of.took)].concat();
    let names = ["", "messages", "count", "median", "quartiles", "99 %", "longest"];
    table(&mut page, &names, of.times.iter().map(row));
    page += "\nThe queues of the matching, and how long an entry stays:\n\n";
    let row = |of: &Queue| {
        let stay = [time(of.stay.total()), time(of.stay.mean), time(of.stay.least)];
        let cells = cells(&of.stay);
        let head = [of.rank.to_string(), of.name.to_owned(), cells[0].clone(), of.longest.to_string()];
        [&head[..], &stay, &cells[1..]].concat()
    };
    let names =
        ["rank", "queue", "entries", "at once", "in all", "mean", "least", "median", "quartiles", "99 %", "longest"];
    table(&mut page, &names, of.queues.iter().map(row));
    page += "\nThe searches in them:\n\n";
    let row = |of: &Searches| {
        let took = [time(of.took.total()), time(of.took.mean), time(of.took.least)];
        let cells = cells(&of.took);
        let head = [of.rank.to_string(), of.name.to_owned(), cells[0].clone()];
        [&head[..], &took, &cells[1..]].concat()
    };
    let names = ["rank", "queue", "searches", "in all", "mean", "least", "median", "quartiles", "99 %", "longest"];
    table(&mut page, &names, of.searches.iter().map(row));
    page += "\nWhat was waited for (`ibex explain --waits`); waits may overlap:\n\n";
    let row = |of: &Waits| {
        let percent = of.percent_of_span.map_or_else(|| "-".to_owned(), |of| format!("{of:.1} %"));
        let pair = of.pairs.first();
        let pair = pair
            .map_or_else(|| "-".to_owned(), |of| format!("{} to {}: {}", of.from, of.to, time(of.nanoseconds as f64)));
        let longest = of.longest.first().map_or_else(|| "-".to_owned(), |of| time(of.nanoseconds as f64));
        vec![of.kind.replace('_', " "), grouped(of.count as i64), time(of.nanoseconds as f64), percent, pair, longest]
    };
    let names = ["wait", "count", "in all", "of the span", "most, between", "longest"];
    table(&mut page, &names, of.waits.iter().map(row));
    for fault in &of.faults {
        let _ = writeln!(page, "\n{fault}");
    }
    page
}

fn of_planted(planted: &[Finding]) -> String {
    if planted.is_empty() {
        return String::new();
    }
    let mut page = "\n### Planted and found\n\n".to_owned();
    let row = |of: &Finding| {
        let wait = of.wait.as_ref();
        let pair = wait.map_or_else(|| "-".to_owned(), |one| format!("{} to {}", one.from, one.to));
        let took = wait.map_or_else(|| "-".to_owned(), |one| time(one.nanoseconds as f64));
        let found = if of.is_found { "yes" } else { "no" }.to_owned();
        let place = of.place.map_or_else(|| "-".to_owned(), |place| place.to_string());
        vec![
            of.kind.replace('_', " "),
            of.rank.to_string(),
            format!("{} ms", of.milliseconds),
            pair,
            took,
            place,
            found,
        ]
    };
    let names = ["fault", "rank", "planted", "wait, from and to", "duration", "place among the longest", "found"];
    table(&mut page, &names, planted.iter().map(row));
    page
}

/// Count, median, quartiles, 99th percentile and greatest.
fn cells(of: &Distribution) -> Vec<String> {
    let quartiles = format!("{} to {}", time(of.lower_quartile), time(of.upper_quartile));
    vec![grouped(of.count as i64), time(of.median), quartiles, time(of.percentile_99), time(of.greatest)]
}

/// Nanoseconds in the unit that fits.
fn time(nanoseconds: f64) -> String {
    match nanoseconds.abs() {
        magnitude if magnitude < 1e3 => format!("{nanoseconds:.0} ns"),
        magnitude if magnitude < 1e6 => format!("{} us", number(nanoseconds / 1e3)),
        magnitude if magnitude < 1e9 => format!("{} ms", number(nanoseconds / 1e6)),
        _ => format!("{} s", number(nanoseconds / 1e9)),
    }
}

fn size(bytes: u64) -> String {
    format!("{} MB", number(bytes as f64 / 1e6))
}

fn table(page: &mut String, names: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    *page += &line(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    let _ = writeln!(page, "|{}", "---|".repeat(names.len()));
    rows.for_each(|row| *page += &line(&row));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_that_fit() {
        assert_eq!([12.0, 1500.0, 2.5e6, 3e9].map(time), ["12 ns", "1.50 us", "2.50 ms", "3.00 s"]);
    }

    #[test]
    fn each_row_of_a_table_has_a_cell_for_each_name() {
        let took = Distribution::of(vec![1.0, 2.0, 300_000.0]).unwrap();
        let application = Application {
            name: "a",
            words: "a program".to_owned(),
            ranks: 2,
            span_nanoseconds: Some(5),
            messages: 3,
            bytes: 8,
            events: 9,
            lost: 0,
            times: vec![Times { from: "arrival", to: "match", of: "unexpected".to_owned(), took }],
            queues: vec![Queue { rank: 0, name: "posted", longest: 1, stay: took }],
            searches: vec![Searches { rank: 0, name: "posted", took }],
            waits: Vec::new(),
            faults: vec!["A sentence.".to_owned()],
        };
        let page = of_application(&application);
        assert!(page.contains("300 us") && page.contains("A sentence."), "{page}");
        for block in page.split("\n\n").filter(|block| block.starts_with('|')) {
            let widths: Vec<usize> = block.lines().map(|line| line.matches('|').count()).collect();
            assert!(widths.iter().all(|width| *width == widths[0]), "{block}");
        }
    }
}
