// SPDX-License-Identifier: MIT OR Apache-2.0
//! A report as text for the terminal: a table per test, and what the speed bars say of it. Also how a number and a size
//! are written, here and in the other forms of the report.
//!
//! Grade: setup. Called by the bench. Tests: at the end of this file.

use super::bars::Verdict;
use super::catalogue::Test;
use super::events::Cost;
use super::report::{Part, Report, Row};
use super::transport::{self, Transport};

/// A size as a reader writes it: `8 B`, `64 KiB`, `4 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// A number with three or four digits that matter: `0.451`, `1.53`, `46.2`, `812`, `21 345`.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude < 1.0 => format!("{value:.3}"),
        magnitude if magnitude < 10.0 => format!("{value:.2}"),
        magnitude if magnitude < 100.0 => format!("{value:.1}"),
        _ => grouped(value.round() as i64),
    }
}

/// A whole number with its digits in groups of three.
pub(crate) fn grouped(value: i64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) && !text.ends_with('-') {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A value with its spread, which has no more digits: `46.2 ±1.1`, `2.95 ±0.14 M`.
pub(crate) fn with_spread(row: Option<&Row>) -> String {
    let Some(row) = row else { return "-".to_owned() };
    let (scale, suffix) = match row.value {
        value if value >= 1e6 => (1e6, " M"),
        value if value >= 1e5 => (1e3, " k"),
        _ => (1.0, ""),
    };
    let (value, spread) = (number(row.value / scale), row.spread / scale);
    let spread = match value.split_once('.') {
        Some((_, digits)) => format!("{spread:.*}", digits.len()),
        None => grouped(spread.round() as i64),
    };
    format!("{value} ±{spread}{suffix}")
}

/// The transport that a test is about, and those it is compared with: the first and the rest of a table's columns.
pub(crate) fn compared(report: &Report, test: &Test) -> Option<(Transport, Vec<Transport>)> {
    let transports = report.transports(test.name);
    transports.split_first().map(|(first, rest)| (*first, rest.to_vec()))
}

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

/// The speed bars; empty where there are none.
pub(crate) fn bars(verdicts: &[Verdict]) -> String {
    if verdicts.is_empty() {
        return String::new();
    }
    let widest = |text: fn(&Verdict) -> &str| verdicts.iter().map(|one| text(one).len()).max().unwrap_or(0);
    let widths = (widest(|one| one.what), widest(|one| &one.bound));
    let lines: Vec<String> = verdicts.iter().map(|verdict| bar(verdict, widths)).collect();
    format!("What is wanted, and what was measured in this run; of several sizes the worst\n{}", lines.concat())
}

fn bar(verdict: &Verdict, (what, bound): (usize, usize)) -> String {
    let shown = |(value, of): &(String, String)| format!("{value} ({of})");
    format!(
        "  {:<12}  {:<what$}  {:>bound$} {}: measured {}\n",
        verdict.outcome.word(),
        verdict.what,
        verdict.bound,
        verdict.against,
        verdict.measured.as_ref().map_or_else(|| "-".to_owned(), shown),
    )
}

/// Which of two transports is divided by which in a column of ratios: the first of a table by the others; where events
/// are measured, the others by the first.
pub(crate) fn divided(report: &Report, first: Transport, other: Transport) -> (Transport, Transport) {
    if report.events.is_some() { (other, first) } else { (first, other) }
}

/// Such a ratio: `1.08`; where events are measured, `1.012 (0.99 to 1.02)`, or `1.012` of what is exact.
pub(crate) fn over(report: &Report, test: &Test, first: Transport, other: Transport, bytes: u64) -> String {
    let (of, to) = divided(report, first, other);
    let plain = report.ratio(test.name, of, to, bytes);
    match &report.events {
        Some(cost) => cost.ratio(test.name, other, bytes).or_else(|| plain.map(|ratio| format!("{ratio:.3}"))),
        None => plain.map(|ratio| format!("{ratio:.2}")),
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

/// What was left out, and what failed; empty where all was measured.
pub(crate) fn remarks(report: &Report) -> String {
    let lines = remark_lines(report);
    if lines.is_empty() {
        return String::new();
    }
    let lines = lines.iter().flat_map(|line| ["  ", line, "\n"]).collect::<String>();
    format!("Not measured\n{lines}\n")
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

/// What became of events.
fn counts(cost: &Cost) -> String {
    let lines = count_lines(cost);
    if lines.len() > 1 { format!("What became of the events\n{}\n", aligned(&lines)) } else { String::new() }
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
    use super::super::plan::Kind;
    use super::super::report::{summarise, tests::measured};
    use super::super::{bars, catalogue};
    use super::*;

    #[test]
    fn sizes_and_numbers_are_short_and_exact_enough() {
        assert_eq!([0, 8, 1000, 4096, 1 << 20, 4 << 20].map(size), ["0 B", "8 B", "1000 B", "4 KiB", "1 MiB", "4 MiB"]);
        assert_eq!(
            [0.4512, 1.534, 46.25, 812.4, 21345.4, 1234567.0].map(number),
            ["0.451", "1.53", "46.2", "812", "21 345", "1 234 567"]
        );
    }

    #[test]
    fn a_spread_has_no_more_digits_than_its_value() {
        let shown = |value, spread| {
            let measurement =
                super::super::report::Measurement { spread, ..measured("latency", Transport::Ibex, 8, value) };
            let report = summarise("x", &[catalogue::test("latency").unwrap()], &[measurement]);
            with_spread(report.rows.first())
        };
        assert_eq!(shown(0.451, 0.0123), "0.451 ±0.012");
        assert_eq!(shown(46.25, 0.123), "46.2 ±0.1");
        assert_eq!(shown(9644.0, 683.4), "9 644 ±683");
        assert_eq!(shown(9644.0, 0.4), "9 644 ±0");
        assert_eq!(shown(543_954.0, 224_066.0), "544 ±224 k");
        assert_eq!(shown(2_948_320.0, 1_404_480.0), "2.95 ±1.40 M");
    }

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
    fn a_bar_that_was_not_measured_is_not_called_met() {
        for (kind, count) in [(Kind::Adapter, 4), (Kind::SoftHca, 25)] {
            let text = bars(&bars::verdicts(kind, &summarise("rxe0", &[], &[])));
            assert_eq!(text.matches("not measured").count(), count, "{text}");
        }
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
