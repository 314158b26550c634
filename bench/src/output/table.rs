// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is in the tables of a report, for the terminal and for the page: columns, ratios, notes, and the lines of the
//! tables that are not of a test.
//!
//! Grade: setup. Called by [`super::text`] and [`super::html`]. Tests: at the end of this file.

use crate::catalogue::Test;
use crate::catalogue::transport::{self, Transport};
use crate::numbers::{self, grouped, size};
use crate::report::events::Cost;
use crate::report::parts::Part;
use crate::report::{Report, Row};
use crate::run::found::Effort;

/// A value with its spread, and a mark where its rounds lie far apart; a dash where there is none.
pub(crate) fn with_spread(row: Option<&Row>) -> String {
    row.map_or_else(|| "-".to_owned(), |row| marked(numbers::with_spread(row.value, row.spread), row.unsteady))
}

fn marked(value: String, is_unsteady: bool) -> String {
    if is_unsteady { value + " !" } else { value }
}

/// What was measured how often and how long, what the mark means, and what a first table leaves out.
pub(crate) fn effort_lines(report: &Report) -> Vec<String> {
    let is_marked = report.rows.iter().any(|row| row.unsteady);
    let mark = "! the rounds of this value lie far apart: their quartiles by more than a quarter of it";
    let effort = report.effort.map(Effort::words);
    effort.into_iter().chain(is_marked.then(|| mark.to_owned())).chain(report.brief.clone()).collect()
}

/// The transport that a test is about, and those it is compared with: the first and the rest of a table's columns.
pub(crate) fn compared(report: &Report, test: &Test) -> Option<(Transport, Vec<Transport>)> {
    let transports = report.transports(test.name);
    transports.split_first().map(|(first, rest)| (*first, rest.to_vec()))
}

/// Which of two transports is divided by which in a column of ratios: the first of a table by the others; where events
/// are measured, the others by the first.
pub(crate) fn divided(report: &Report, first: Transport, other: Transport) -> (Transport, Transport) {
    if report.events.is_some() { (other, first) } else { (first, other) }
}

/// Such a ratio: `1.08`; where events are measured, `1.012 (0.99 to 1.02)`, or `1.012` of what is exact.
pub(crate) fn over(report: &Report, test: &Test, first: Transport, other: Transport, bytes: u64) -> String {
    let (of, to) = divided(report, first, other);
    let is_unsteady = [of, to].iter().any(|one| report.row(test.name, *one, bytes).is_some_and(|row| row.unsteady));
    let plain = report.ratio(test.name, of, to, bytes);
    match &report.events {
        Some(cost) => cost.ratio(test.name, other, bytes).or_else(|| plain.map(|ratio| format!("{ratio:.3}"))),
        None => plain.map(|ratio| marked(format!("{ratio:.2}"), is_unsteady)),
    }
    .unwrap_or_else(|| "-".to_owned())
}

/// What a test measures, and what it is over those transports that were measured.
pub(crate) fn note(report: &Report, test: &Test) -> String {
    let measured = report.transports(test.name);
    let compared = test.compared.iter().filter(|(transport, _)| measured.contains(transport));
    let compared = compared.map(|(transport, what)| format!("; {}: {what}", transport.name()));
    std::iter::once(test.note.to_owned()).chain(compared).collect()
}

const FEW: f64 = 5.0;

/// The table of the instructions: a header, the sum without the adapter, each object that matters, the adapter. Objects
/// of a few instructions are in the sum alone.
pub(crate) fn part_lines(parts: &[Part]) -> Vec<(String, Vec<String>)> {
    let transports: Vec<Transport> =
        transport::ALL.into_iter().filter(|one| parts.iter().any(|part| part.transport == one.name())).collect();
    if transports.is_empty() {
        return Vec::new();
    }
    let sum = |transport: &Transport, wanted: &dyn Fn(&Part) -> bool| -> f64 {
        let of_transport = parts.iter().filter(|part| part.transport == transport.name());
        of_transport.filter(|part| wanted(part)).map(|part| part.instructions).sum()
    };
    let line = |name: &str, wanted: &dyn Fn(&Part) -> bool| {
        let shown = |value: f64| if value < FEW { "-".to_owned() } else { grouped(value.round() as i64) };
        (name.to_owned(), transports.iter().map(|transport| shown(sum(transport, wanted))).collect::<Vec<_>>())
    };
    let mut objects: Vec<(&str, f64)> = Vec::new();
    for part in parts.iter().filter(|part| !part.adapter && part.instructions >= FEW) {
        match objects.iter_mut().find(|(name, _)| *name == part.object) {
            Some(known) => known.1 = known.1.max(part.instructions),
            None => objects.push((&part.object, part.instructions)),
        }
    }
    objects.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut lines = vec![(String::new(), transports.iter().map(|transport| transport.name().to_owned()).collect())];
    lines.push(line("without the adapter", &|part| !part.adapter));
    lines.extend(objects.iter().map(|(name, _)| line(name, &|part| part.object == *name)));
    lines.push(line("the adapter", &|part| part.adapter));
    lines
}

/// A line for each thing that is not in the tables, or not from every round.
pub(crate) fn remark_lines(report: &Report) -> Vec<String> {
    let left_out = report.left_out.iter().map(|one| format!("{}: left out, as {}", one.what, one.reason));
    let mut lines: Vec<String> = left_out.collect();
    for failure in &report.failures {
        let made_up = if failure.missing { "" } else { "; other rounds measured it" };
        let names: Vec<&str> = failure.values.iter().map(|(name, _)| name.as_str()).collect();
        let sizes = match &failure.values[..] {
            [(_, bytes)] => format!(", {}", size(*bytes)),
            _ => String::new(),
        };
        let what = format!("{} over {}{sizes}", distinct(&names).join(", "), failure.transport);
        lines.push(format!("{what}, round {}: {}{made_up}", failure.round, brief(&failure.reason)));
    }
    lines
}

fn distinct<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let mut distinct: Vec<&str> = Vec::new();
    for name in names {
        if !distinct.contains(name) {
            distinct.push(name);
        }
    }
    distinct
}

/// Of a reason its first line, without command lines, and what says most of what was printed.
fn brief(reason: &str) -> String {
    let (first, printed) = reason.split_once('\n').unwrap_or((reason, ""));
    let outside: Vec<&str> = first.split('`').step_by(2).map(str::trim).filter(|part| !part.is_empty()).collect();
    let said = framed(printed).or_else(|| last_line(printed).map(str::to_owned));
    outside.join(" ") + &said.map_or_else(String::new, |said| format!(" ({said})"))
}

/// What Open MPI frames by lines of dashes, in one line.
fn framed(printed: &str) -> Option<String> {
    let is_frame = |line: &&str| line.len() > 40 && line.bytes().all(|byte| byte == b'-');
    let mut lines = printed.lines().skip_while(|line| !is_frame(line)).skip(1);
    let words: Vec<&str> = lines.by_ref().take_while(|line| !is_frame(line)).flat_map(str::split_whitespace).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

fn last_line(printed: &str) -> Option<&str> {
    let said = |line: &&str| line.contains(char::is_alphabetic) && !line.starts_with("---");
    printed.lines().rfind(said).map(str::trim)
}

/// The table of counts: a header, then a line for each way.
pub(crate) fn count_lines(cost: &Cost) -> Vec<Vec<String>> {
    let header = ["", "raised", "delivered", "dropped", "late", "told"].map(str::to_owned).to_vec();
    let lines = cost.counts.iter().map(|named| {
        let counts = named.counts;
        let numbers = [counts.raised, counts.delivered, counts.dropped, counts.late, counts.told];
        std::iter::once(named.what.clone()).chain(numbers.map(|number| grouped(number as i64))).collect()
    });
    std::iter::once(header).chain(lines).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_instructions_of_each_object_are_beside_each_other_and_the_adapters_apart() {
        let part = |transport: &str, object: &str, instructions| Part {
            transport: transport.to_owned(),
            object: object.to_owned(),
            adapter: object == "libsofthca",
            instructions,
        };
        let counted = [
            part("ibex", "libsofthca", 1745.0),
            part("ibex", "libibex", 430.0),
            part("ibex", "libc", 184.0),
            part("ibex", "ld-linux", 2.0),
            part("ucx", "libsofthca", 1735.0),
            part("ucx", "libc", 500.0),
        ];
        let lines: Vec<String> =
            part_lines(&counted).into_iter().map(|(name, cells)| format!("{name}: {}", cells.join(" "))).collect();
        assert_eq!(
            lines,
            [
                ": ibex ucx",
                "without the adapter: 616 500",
                "libc: 184 500",
                "libibex: 430 -",
                "the adapter: 1 745 1 735"
            ]
        );
        assert!(part_lines(&[]).is_empty());
    }

    #[test]
    fn a_reason_is_told_without_its_command_line_and_with_its_last_words() {
        let reason = "MPI over tcp failed: `mpirun -n 2` exited with status 1\n--- stderr ---\nx\nno route\n-----\n";
        assert_eq!(brief(reason), "MPI over tcp failed: exited with status 1 (no route)");
        assert_eq!(brief("the machine is too busy"), "the machine is too busy");
        let frame = "-".repeat(74);
        let framed = format!("`x` failed\n--- stderr ---\n{frame}\nNo slots\n  are left.\n{frame}\n[vm] aborted\n");
        assert_eq!(brief(&framed), "failed (No slots are left.)");
    }
}
