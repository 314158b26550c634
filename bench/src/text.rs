// SPDX-License-Identifier: MIT OR Apache-2.0
//! A report as text for the terminal: a table per test, instructions by object, counts of events, and missing values.
//! Called by [`crate::report`]. Grade: setup. Tests: below.

use crate::catalogue::{Test, Transport, transport};
use crate::numbers::{self, grouped, size};
use crate::report::events::Cost;
use crate::report::{Part, Report, Row};
use crate::run::found::Effort;

pub(crate) fn tables(report: &Report) -> String {
    let tables: String = report.tests.iter().map(|test| table(report, test)).collect();
    let tables = if report.events.is_some() { legend() + &tables } else { tables };
    tables + &parts(&report.instructions) + &report.events.as_ref().map(counts).unwrap_or_default()
}

/// Describes the effort, what was left out, and what failed.
pub(crate) fn remarks(report: &Report) -> String {
    let is_marked = report.rows.iter().any(|row| row.unsteady);
    let mark = "! the rounds of this value lie far apart: their quartiles by more than a quarter of it";
    let words = |effort: Effort| format!("{} rounds; values measured again: {}", effort.rounds, effort.again);
    let effort = report.effort.map(words).into_iter().chain(is_marked.then(|| mark.to_owned()));
    let effort: String = effort.chain(report.brief.clone()).map(|line| line + "\n").collect();
    let lines: String = not_measured(report).iter().flat_map(|line| ["  ", line, "\n"]).collect();
    if lines.is_empty() { effort + "\n" } else { format!("{effort}\nNot measured\n{lines}\n") }
}

fn legend() -> String {
    let line = |transport: &Transport| format!("  {:<14}{}\n", transport.name(), transport.words());
    let all = transport::EVENTS.iter().chain(&transport::EVENTS_OF_MATCHING);
    format!("What events cost\n{}\n", all.map(line).collect::<String>())
}

/// Gives the ratio of the first transport to each other one, or for events the ratio of each other one to the first.
fn table(report: &Report, test: &Test) -> String {
    let transports = report.transports(test.name);
    let Some((first, rest)) = transports.split_first() else { return String::new() };
    let of_events = report.events.is_some();
    let over_name =
        |other: &Transport| if of_events { format!("{}/", other.name()) } else { format!("/{}", other.name()) };
    let mut header = vec!["size".to_owned()];
    header.extend(transports.iter().map(|transport| transport.name().to_owned()));
    header.extend(rest.iter().map(over_name));
    let mut lines = vec![header];
    for bytes in report.sizes(test.name) {
        let mut line = vec![size(bytes)];
        line.extend(transports.iter().map(|transport| with_spread(report.row(test.name, *transport, bytes))));
        line.extend(rest.iter().map(|other| over(report, test, *first, *other, bytes)));
        lines.push(line);
    }
    let compared = test.compared.iter().filter(|(transport, _)| transports.contains(transport));
    let what = |(transport, what): &(Transport, &str)| format!("; {}: {what}", transport.name());
    let mut note = test.note.to_owned() + &compared.map(what).collect::<String>();
    if of_events {
        note = format!("{note}; name/: name over {}, and where that lies over the rounds", first.name());
    } else if !rest.is_empty() {
        note = format!("{note}; /name: {} over name", first.name());
    }
    format!("{}, {}\n({note})\n{}\n", test.title, test.metric.unit(), aligned(&lines))
}

/// Writes a value with its spread, and a mark if its rounds lie far apart; a dash if there is none.
fn with_spread(row: Option<&Row>) -> String {
    row.map_or_else(|| "-".to_owned(), |row| marked(numbers::with_spread(row.value, row.spread), row.unsteady))
}

fn marked(value: String, is_unsteady: bool) -> String {
    if is_unsteady { value + " !" } else { value }
}

/// Writes a ratio: `1.08`; where events are measured, `1.012 (0.99 to 1.02)`, or `1.012` if it is exact.
fn over(report: &Report, test: &Test, first: Transport, other: Transport, bytes: u64) -> String {
    let is_unsteady =
        || [first, other].iter().any(|one| report.row(test.name, *one, bytes).is_some_and(|row| row.unsteady));
    match &report.events {
        Some(cost) => cost
            .ratio(test.name, other, bytes)
            .or_else(|| report.ratio(test.name, other, first, bytes).map(|ratio| format!("{ratio:.3}"))),
        None => {
            report.pairs(test.name).find(|(size, _)| *size == bytes).map(|(_, ratio)| ratio.words()).or_else(|| {
                report.ratio(test.name, first, other, bytes).map(|ratio| marked(format!("{ratio:.2}"), is_unsteady()))
            })
        }
    }
    .unwrap_or_else(|| "-".to_owned())
}

const FEW: f64 = 5.0;

/// Writes the instructions: a header, the sum without the adapter, each object with more than a few, the adapter.
fn parts(parts: &[Part]) -> String {
    let transports: Vec<Transport> =
        transport::all().filter(|one| parts.iter().any(|part| part.transport == one.name())).collect();
    if transports.is_empty() {
        return String::new();
    }
    let line = |name: &str, is_of_line: &dyn Fn(&Part) -> bool| {
        let sum = |transport: &Transport| {
            let of_transport = parts.iter().filter(|part| part.transport == transport.name() && is_of_line(part));
            let sum: f64 = of_transport.map(|part| part.instructions).sum();
            if sum < FEW { "-".to_owned() } else { grouped(sum.round() as i64) }
        };
        std::iter::once(name.to_owned()).chain(transports.iter().map(sum)).collect::<Vec<_>>()
    };
    let mut objects: Vec<(&str, f64)> = Vec::new();
    for part in parts.iter().filter(|part| !part.adapter && part.instructions >= FEW) {
        match objects.iter_mut().find(|(name, _)| *name == part.object) {
            Some(known) => known.1 = known.1.max(part.instructions),
            None => objects.push((&part.object, part.instructions)),
        }
    }
    objects.sort_by(|a, b| b.1.total_cmp(&a.1));
    let names = transports.iter().map(|transport| transport.name().to_owned());
    let mut lines = vec![std::iter::once(String::new()).chain(names).collect()];
    lines.push(line("without the adapter", &|part| !part.adapter));
    lines.extend(objects.iter().map(|(name, _)| line(name, &|part| part.object == *name)));
    lines.push(line("the adapter", &|part| part.adapter));
    format!("Where the instructions of a message go\n{}\n", aligned(&lines))
}

fn counts(cost: &Cost) -> String {
    if cost.counts.is_empty() {
        return String::new();
    }
    let header = ["", "raised", "delivered", "dropped", "late", "told"].map(str::to_owned).to_vec();
    let lines = cost.counts.iter().map(|named| {
        let counts = named.counts;
        let numbers = [counts.raised, counts.delivered, counts.dropped, counts.late, counts.told];
        std::iter::once(named.what.clone()).chain(numbers.map(|number| grouped(number as i64))).collect()
    });
    let lines: Vec<Vec<String>> = std::iter::once(header).chain(lines).collect();
    format!("What became of the events\n{}\n", aligned(&lines))
}

/// Returns a line for each value that no table has, or that not every round has measured.
fn not_measured(report: &Report) -> Vec<String> {
    let left_out = report.left_out.iter().map(|one| format!("{}: left out, as {}", one.what, one.reason));
    let mut lines: Vec<String> = left_out.collect();
    for failure in &report.failures {
        let made_up = if failure.missing { "" } else { "; other rounds measured it" };
        let mut names: Vec<&str> = failure.values.iter().map(|(name, _)| name.as_str()).collect();
        names.dedup();
        let sizes = match &failure.values[..] {
            [(_, bytes)] => format!(", {}", size(*bytes)),
            _ => String::new(),
        };
        let what = format!("{} over {}{sizes}", names.join(", "), failure.transport);
        lines.push(format!("{what}, round {}: {}{made_up}", failure.round, brief(&failure.reason)));
    }
    lines
}

/// Returns the first line of a reason, without command lines, and the most telling line of the output.
fn brief(reason: &str) -> String {
    let (first, printed) = reason.split_once('\n').unwrap_or((reason, ""));
    let outside: Vec<&str> = first.split('`').step_by(2).map(str::trim).filter(|part| !part.is_empty()).collect();
    let said = framed(printed).or_else(|| last_line(printed).map(str::to_owned));
    outside.join(" ") + &said.map_or_else(String::new, |said| format!(" ({said})"))
}

/// Returns the text that Open MPI frames by lines of dashes, in one line.
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
    use crate::programs::tests::measured;
    use crate::report::summary::summarise;
    use crate::run::found::Failure;

    #[test]
    fn a_table_has_a_column_for_each_transport_that_was_measured_and_a_dash_for_a_value_that_was_not() {
        let measurements = [
            measured("latency", Transport::Ibex, 8, 55.0),
            measured("ib_send_lat", Transport::Raw, 8, 50.0),
            measured("latency", Transport::Ucx, 8, 44.0),
            measured("latency", Transport::Ibex, 0, 54.0),
        ];
        let tests = [catalogue::test("latency").unwrap()];
        let text = tables(&summarise("rxe0", &tests, &measurements));
        let lines: Vec<Vec<&str>> = text.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["size", "ibex", "raw", "ucx", "/raw", "/ucx"]);
        assert_eq!(lines[1], ["0", "B", "54.0", "±0.5", "-", "-", "-", "-"]);
        assert_eq!(lines[2], ["8", "B", "55.0", "±0.5", "50.0", "±0.5", "44.0", "±0.5", "1.10", "1.25"]);
    }

    #[test]
    fn an_unsteady_value_and_its_ratio_are_marked_and_the_mark_is_explained() {
        let rounds = |transport, values: [f64; 3]| values.map(|value| measured("latency", transport, 8, value));
        let measurements = [rounds(Transport::Ibex, [50.0; 3]), rounds(Transport::Ucx, [50.0, 90.0, 100.0])].concat();
        let tests = [catalogue::test("latency").unwrap()];
        let report = summarise("rxe0", &tests, &measurements);
        let text = tables(&report);
        assert!(text.contains("90.0 ±25.0 !") && text.contains("0.56 !") && !text.contains("50.0 ±0.0 !"), "{text}");
        assert!(remarks(&report).contains("! the rounds"));
    }

    #[test]
    fn a_report_with_only_failures_names_them_and_the_sizes() {
        let tests = [catalogue::test("latency").unwrap()];
        let mut report = summarise("rxe0", &tests, &[]);
        let failure = Failure {
            transport: "ibex".to_owned(),
            tests: vec!["latency".to_owned()],
            values: [8, 64].map(|bytes| ("latency".to_owned(), bytes)).into(),
            round: 1,
            reason: "no route".to_owned(),
            busy: false,
            missing: true,
        };
        report.lacks(&[failure], &[]);
        assert!(remarks(&report).contains("\n  latency over ibex, round 1: no route\n"), "{}", remarks(&report));
        assert!(tables(&report).contains("\n   8 B     -\n  64 B     -\n"), "{}", tables(&report));
    }

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
        let text = parts(&counted);
        let words: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        let lines: Vec<String> = words.iter().map(|words| words.join(" ")).collect();
        assert_eq!(
            lines,
            ["ibex ucx", "without the adapter 616 500", "libc 184 500", "libibex 430 -", "the adapter 1 745 1 735", ""]
        );
        assert!(parts(&[]).is_empty());
    }

    #[test]
    fn a_reason_is_printed_without_the_command_line_and_with_the_last_words() {
        let reason = "MPI over tcp failed: `mpirun -n 2` exited with status 1\n--- stderr ---\nx\nno route\n-----\n";
        assert_eq!(brief(reason), "MPI over tcp failed: exited with status 1 (no route)");
        assert_eq!(brief("the machine is too busy"), "the machine is too busy");
        let frame = "-".repeat(74);
        let framed = format!("`x` failed\n--- stderr ---\n{frame}\nNo slots\n  are left.\n{frame}\n[vm] aborted\n");
        assert_eq!(brief(&framed), "failed (No slots are left.)");
    }
}
