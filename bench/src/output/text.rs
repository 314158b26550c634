// SPDX-License-Identifier: MIT OR Apache-2.0
//! A report as text for the terminal: a table per test.
//!
//! Grade: setup. Called by the bench. Tests: at the end of this file.

use super::table::{compared, count_lines, effort_lines, note, over, part_lines, remark_lines, with_spread};
use crate::catalogue::Test;
use crate::catalogue::transport::{self, Transport};
use crate::numbers::size;
use crate::report::Report;
use crate::report::events::Cost;
use crate::report::parts::Part;

/// The tables of all tests.
pub(crate) fn tables(report: &Report, tests: &[&'static Test]) -> String {
    let tables: String = tests.iter().map(|test| table(report, test)).collect();
    let tables = if report.events.is_some() { legend() + &tables } else { tables };
    tables + &parts(&report.instructions) + &report.events.as_ref().map(counts).unwrap_or_default()
}

/// What the columns are where events are measured.
fn legend() -> String {
    let line = |transport: &Transport| format!("  {:<14}{}\n", transport.name(), transport.words());
    let all = transport::EVENTS.iter().chain(&transport::EVENTS_OF_MATCHING);
    format!("What events cost\n{}\n", all.map(line).collect::<String>())
}

/// How much was measured, what was left out, and what failed.
pub(crate) fn remarks(report: &Report) -> String {
    let effort = effort_lines(report).iter().flat_map(|line| [line, "\n"]).collect::<String>();
    let lines = remark_lines(report);
    if lines.is_empty() {
        return effort + "\n";
    }
    let lines = lines.iter().flat_map(|line| ["  ", line, "\n"]).collect::<String>();
    format!("{effort}\nNot measured\n{lines}\n")
}

fn table(report: &Report, test: &Test) -> String {
    let Some((first, rest)) = compared(report, test) else { return String::new() };
    let all = || std::iter::once(&first).chain(&rest);
    let mut header = vec!["size".to_owned()];
    header.extend(all().map(|transport| transport.name().to_owned()));
    let of_events = report.events.is_some();
    let over_name =
        |other: &Transport| if of_events { other.name().to_owned() + "/" } else { format!("/{}", other.name()) };
    header.extend(rest.iter().map(over_name));
    let mut lines = vec![header];
    for bytes in report.sizes(test.name) {
        let mut line = vec![size(bytes)];
        line.extend(all().map(|transport| with_spread(report.row(test.name, *transport, bytes))));
        line.extend(rest.iter().map(|other| over(report, test, first, *other, bytes)));
        lines.push(line);
    }
    let mut note = note(report, test);
    if of_events {
        note = format!("{note}; name/: name over {}, and where that lies over the rounds", first.name());
    } else if !rest.is_empty() {
        note = format!("{note}; /name: {} over name", first.name());
    }
    format!("{}, {}\n({note})\n{}\n", test.title, test.metric.unit(), aligned(&lines))
}

/// Where the instructions go: a line for each object, a column for each transport.
fn parts(parts: &[Part]) -> String {
    let lines = part_lines(parts);
    if lines.is_empty() {
        return String::new();
    }
    let lines: Vec<Vec<String>> = lines.into_iter().map(|(name, cells)| [vec![name], cells].concat()).collect();
    format!("Where the instructions of a message go\n{}\n", aligned(&lines))
}

/// What became of events.
fn counts(cost: &Cost) -> String {
    let lines = count_lines(cost);
    if lines.len() > 1 { format!("What became of the events\n{}\n", aligned(&lines)) } else { String::new() }
}

/// Columns wide enough for what is in them, aligned to the right.
fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let length = |line: &Vec<String>, column: usize| line.get(column).map_or(0, |cell| cell.chars().count());
    let width = |column| lines.iter().map(|line| length(line, column)).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let cell = |(text, width): (&String, &usize)| format!("  {text:>width$}");
    let line = |line: &Vec<String>| line.iter().zip(&widths).map(cell).collect::<Vec<_>>().concat() + "\n";
    lines.iter().map(line).collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;
    use crate::programs::measurement::tests::measured;
    use crate::report::summary::summarise;

    #[test]
    fn a_table_has_a_column_for_each_transport_that_was_measured_and_a_dash_for_a_value_that_was_not() {
        let measurements = [
            measured("latency", Transport::Ibex, 8, 55.0),
            measured("ib_send_lat", Transport::Raw, 8, 50.0),
            measured("latency", Transport::Ucx, 8, 44.0),
            measured("latency", Transport::Ibex, 0, 54.0),
        ];
        let tests = [catalogue::test("latency").unwrap()];
        let text = tables(&summarise("rxe0", &tests, &measurements), &tests);
        let lines: Vec<Vec<&str>> = text.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["size", "ibex", "raw", "ucx", "/raw", "/ucx"]);
        assert_eq!(lines[1], ["0", "B", "54.0", "±0.5", "-", "-", "-", "-"]);
        assert_eq!(lines[2], ["8", "B", "55.0", "±0.5", "50.0", "±0.5", "44.0", "±0.5", "1.10", "1.25"]);
    }

    #[test]
    fn a_value_whose_rounds_lie_far_apart_is_marked_with_its_ratio_and_what_a_mark_means_is_said() {
        let rounds = |transport, values: [f64; 3]| values.map(|value| measured("latency", transport, 8, value));
        let measurements = [rounds(Transport::Ibex, [50.0; 3]), rounds(Transport::Ucx, [50.0, 90.0, 100.0])].concat();
        let tests = [catalogue::test("latency").unwrap()];
        let report = summarise("rxe0", &tests, &measurements);
        let text = tables(&report, &tests);
        assert!(text.contains("90.0 ±25.0 !") && text.contains("0.56 !") && !text.contains("50.0 ±0.0 !"), "{text}");
        assert!(remarks(&report).contains("! the rounds"));
    }
}
