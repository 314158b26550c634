// SPDX-License-Identifier: MIT OR Apache-2.0
//! A study as tables of Markdown: the content of docs/study.md between its markers. Called by the commands that show a
//! study. Grade: setup. Tests: below.

use std::fmt;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::application::{Application, Times};
use super::cost::Cost;
use super::distribution::Distribution;
use super::planted::{Finding, Waits};
use super::queues::Queue;
use super::rma_threads::{self, RmaThreads};
use super::run_times::RunTimes;
use super::sizes::Sizes;
use super::ways::InWay;
use super::{Study, cost};
use crate::numbers::{self, grouped, number};
use crate::report::saved;

impl Study {
    /// Writes `study.json` and `study.md` into a folder, and returns their paths.
    ///
    /// # Errors
    /// The folder cannot be written to.
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

fn markdown(study: &Study) -> String {
    let mut page = format!("Measured on {}. {}\n\n", study.device, study.remark);
    // The others concern programs outside the study.
    let facts = ["Kernel", "Processors", "Processor", "Virtual machine", "Open MPI", "ibex"];
    let facts = study.environment.iter().filter(|(name, _)| facts.contains(&name.as_str()));
    table(&mut page, &["", ""], facts.map(|(name, value)| vec![name.clone(), value.clone()]));
    page += &cost_of_events(&study.cost);
    page += &by_size(&study.sizes);
    page += &run_times(&study.run_times);
    if let Some(of) = &study.rma_threads {
        page += &rma_threads(of);
    }
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

fn by_size(sizes: &Sizes) -> String {
    let mut page = format!(
        "\n### Latency and bandwidth by size\n\nOver ibex' PML; half a round trip, and 64 messages in flight; rounds: {}. \
         Median, quartiles in brackets, and x: the median over that of no events.\n\n",
        sizes.rounds
    );
    let rows = sizes.rows.iter().map(|row| {
        let size = numbers::size(row.bytes);
        (vec![format!("{}, {}", row.test, row.unit), size], row.ways.as_slice())
    });
    table_of_ways(&mut page, &["", "size"], rows, number);
    page
}

fn run_times(all: &[RunTimes]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut page = "\n### Run times of programs\n".to_owned();
    for of in all {
        let RunTimes { program, words, ranks, of, rounds, ways } = of;
        let _ = writeln!(
            page,
            "\n*{program}*: {words}. {ranks} ranks over ibex' PML; time of {of}, s; rounds: {rounds}.\n"
        );
        let row = |way: &InWay| {
            let [mean, median, least, greatest] =
                [way.value.mean, way.value.median, way.value.least, way.value.greatest].map(number);
            let over = way.over_first.map_or_else(|| "-".to_owned(), |over| format!("{over:.3}"));
            vec![way.way.to_owned(), mean, median, least, greatest, over]
        };
        let names = ["events", "mean", "median", "least", "greatest", "median over no events"];
        table(&mut page, &names, ways.iter().map(row));
    }
    page
}

/// Shows rates by size with the most threads, and by threads with the smallest size, if there are several.
fn rma_threads(of: &RmaThreads) -> String {
    let mut page = format!(
        "\n### Puts and gets of threads\n\nThousand operations a second, of all threads of rank 0 in the memory of rank 1, \
         over ibex' BTL; each thread has 64 in flight; rounds: {}. Median, quartiles in brackets, and x: the median over that \
         of no tool.\n",
        of.rounds
    );
    let (threads, bytes) = (of.rows.iter().map(|row| row.of.threads), of.rows.iter().map(|row| row.of.bytes));
    let (Some(most), Some(least)) = (threads.clone().max(), bytes.clone().min()) else { return page };
    let head = |row: &rma_threads::Row| vec![row.of.operation.clone(), row.of.synchronisation.clone()];
    let number_in_thousands = |value: f64| number(value / 1e3);
    if bytes.max() != Some(least) {
        let _ = writeln!(page, "\nWith {most} threads, by size:\n");
        let rows = of.rows.iter().filter(|row| row.of.threads == most);
        let rows = rows.map(|row| ([head(row), vec![numbers::size(row.of.bytes)]].concat(), row.ways.as_slice()));
        table_of_ways(&mut page, &["", "completed by", "size"], rows, number_in_thousands);
    }
    if threads.min() != Some(most) {
        let _ = writeln!(page, "\nWith {}, by threads:\n", numbers::size(least));
        let mut rows: Vec<_> = of.rows.iter().filter(|row| row.of.bytes == least).collect();
        rows.sort_by_key(|row| row.of.threads);
        let rows =
            rows.into_iter().map(|row| ([head(row), vec![row.of.threads.to_string()]].concat(), row.ways.as_slice()));
        table_of_ways(&mut page, &["", "completed by", "threads"], rows, number_in_thousands);
    }
    page
}

/// Adds a table with a column for each way, behind the columns of these names.
fn table_of_ways<'a>(
    page: &mut String,
    names: &[&str],
    rows: impl Iterator<Item = (Vec<String>, &'a [InWay])>,
    shown: impl Fn(f64) -> String,
) {
    let cell = |way: &InWay| {
        let of = &way.value;
        let quartiles = format!(" ({} to {})", shown(of.lower_quartile), shown(of.upper_quartile));
        let quartiles = if of.count > 1 { quartiles } else { String::new() };
        let over = way.over_first.map_or_else(String::new, |over| format!(", x {over:.2}"));
        shown(of.median) + &quartiles + &over
    };
    let rows: Vec<_> = rows.collect();
    let ways = rows.first().map_or(&[][..], |(_, ways)| *ways).iter().map(|way| way.way);
    let names: Vec<&str> = names.iter().copied().chain(ways).collect();
    table(page, &names, rows.into_iter().map(|(head, ways)| head.into_iter().chain(ways.iter().map(cell)).collect()));
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
    let row =
        |of: &Times| [format!("{} to {}", of.from, of.to), of.of.clone()].into_iter().chain(cells(&of.took)).collect();
    let names = ["", "messages", "count", "median", "quartiles", "99 %", "longest"];
    table(&mut page, &names, of.times.iter().map(row));
    page += "\nThe queues of the matching, and how long an entry stays:\n\n";
    let row = |of: &Queue| {
        let [count, rest @ ..] = cells(&of.took);
        let longest = of.longest.map(|entries| entries.to_string());
        let in_all = [of.took.total(), of.took.mean, of.took.least].map(time);
        let head = [of.rank.to_string(), of.name.to_owned(), count].into_iter().chain(longest).chain(in_all);
        head.chain(rest).collect()
    };
    let names =
        ["rank", "queue", "entries", "at once", "in all", "mean", "least", "median", "quartiles", "99 %", "longest"];
    table(&mut page, &names, of.queues.iter().map(row));
    page += "\nThe searches in them:\n\n";
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

fn cells(of: &Distribution) -> [String; 5] {
    let quartiles = format!("{} to {}", time(of.lower_quartile), time(of.upper_quartile));
    [grouped(of.count as i64), time(of.median), quartiles, time(of.percentile_99), time(of.greatest)]
}

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
    use super::super::sizes;
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
            queues: vec![Queue { rank: 0, name: "posted", longest: Some(1), took }],
            searches: vec![Queue { rank: 0, name: "posted", longest: None, took }],
            waits: Vec::new(),
            faults: vec!["A sentence.".to_owned()],
        };
        let page = of_application(&application);
        assert!(page.contains("300 us") && page.contains("A sentence."), "{page}");
        has_cells_for_names(&page);
    }

    fn has_cells_for_names(page: &str) {
        for block in page.split("\n\n").filter(|block| block.starts_with('|')) {
            let widths: Vec<usize> = block.lines().map(|line| line.matches('|').count()).collect();
            assert!(widths.iter().all(|width| *width == widths[0]), "{block}");
        }
    }

    /// Values of `rounds` rounds in two ways, the second slower by a half.
    fn ways(value: f64, rounds: usize) -> Vec<InWay> {
        let of = |factor: f64| Distribution::of(vec![value * factor; rounds]).unwrap();
        vec![
            InWay { way: "no events", value: of(1.0), over_first: None },
            InWay { way: "a tool", value: of(1.5), over_first: Some(1.5) },
        ]
    }

    #[test]
    fn a_table_has_the_values_of_all_ways_with_their_ratios() {
        let row = |test, bytes| sizes::Row { test, unit: "us", bytes, ways: ways(2.0, 3) };
        let page = by_size(&Sizes { rounds: 3, rows: vec![row("latency", 0), row("latency", 65536)] });
        assert!(page.contains("| latency, us | 64 KiB | 2.00 (2.00 to 2.00) | 3.00 (3.00 to 3.00), x 1.50"), "{page}");
        has_cells_for_names(&page);
        let (words, of) = ("a program".to_owned(), "main loop");
        let page = run_times(&[RunTimes { program: "p", words, ranks: 2, of, rounds: 1, ways: ways(2.0, 1) }]);
        assert!(page.contains("| a tool | 3.00 | 3.00 | 3.00 | 3.00 | 1.500 |"), "{page}");
        has_cells_for_names(&page);
        assert_eq!(run_times(&[]), "");
    }

    #[test]
    fn rates_of_threads_are_shown_by_size_and_by_threads_as_far_as_there_are_several() {
        let row = |threads, bytes| {
            let (operation, synchronisation) = ("put".to_owned(), "flush".to_owned());
            let of = rma_threads::Key { operation, synchronisation, threads, bytes };
            rma_threads::Row { of, ways: ways(2e6, 1) }
        };
        let page = rma_threads(&RmaThreads { rounds: 1, rows: vec![row(16, 8), row(16, 512), row(1, 8)] });
        let (by_size, by_threads) = page.split_once("With 8 B, by threads:").unwrap();
        assert!(by_size.contains("With 16 threads, by size:") && !by_size.contains("| 1 |"), "{page}");
        assert!(by_size.contains("| put | flush | 512 B | 2 000 | 3 000, x 1.50 |"), "{page}");
        assert!(by_threads.find("| 1 |").unwrap() < by_threads.find("| 16 |").unwrap(), "{page}");
        has_cells_for_names(&page);
        let page = rma_threads(&RmaThreads { rounds: 1, rows: vec![row(1, 8), row(4, 8)] });
        assert!(!page.contains("by size") && page.contains("by threads"), "{page}");
    }
}
