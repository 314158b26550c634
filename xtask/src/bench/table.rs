// SPDX-License-Identifier: MIT OR Apache-2.0
//! A report as text for the terminal: a table per test, and what the speed bars say of it. Also how a number and a size
//! are written, here and in the other forms of the report.
//!
//! Grade: setup. Called by the bench. Tests: at the end of this file.

use super::bars::Verdict;
use super::plan::Test;
use super::report::{Report, Row, Transport};

/// A size as a reader writes it: `8 B`, `64 KiB`, `4 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// A number with three or four digits that matter: `1.53`, `46.2`, `812`, `21 345`.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude < 10.0 => format!("{value:.2}"),
        magnitude if magnitude < 100.0 => format!("{value:.1}"),
        _ => grouped(value.round() as i64),
    }
}

fn grouped(value: i64) -> String {
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

/// A value with its spread: `46.2 ±1.1`.
pub(crate) fn with_spread(row: Option<&Row>) -> String {
    row.map_or_else(|| "-".to_owned(), |row| format!("{} ±{}", number(row.value), number(row.spread)))
}

/// A ratio: `1.08`.
pub(crate) fn ratio(row: Option<&Row>) -> String {
    row.and_then(|row| row.ratio_to_raw).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
}

/// The tables of all tests.
pub(crate) fn tables(report: &Report, tests: &[&'static Test]) -> String {
    tests.iter().map(|test| table(report, test)).collect()
}

/// The speed bars.
pub(crate) fn bars(verdicts: &[Verdict]) -> String {
    let lines: Vec<String> = verdicts.iter().map(bar).collect();
    format!("Speed, as a ratio to the raw adapter in the same boot\n{}", lines.concat())
}

fn bar(verdict: &Verdict) -> String {
    let shown = |(ratio, bytes)| format!("{ratio:.2} ({})", size(bytes));
    format!(
        "  {:<12}  {:<32} {:>16} {}: measured {}\n",
        verdict.word(),
        verdict.bar.what,
        verdict.bar.bound(),
        verdict.bar.against,
        verdict.worst.map_or_else(|| "-".to_owned(), shown),
    )
}

fn table(report: &Report, test: &Test) -> String {
    let sizes = report.sizes(test.name);
    if sizes.is_empty() {
        return String::new();
    }
    let mut lines = vec![["size", "ibex", "raw", "tcp", "ibex/raw", "tcp/raw"].map(str::to_owned)];
    for bytes in sizes {
        let row = |transport| report.row(test.name, transport, bytes);
        lines.push([
            size(bytes),
            with_spread(row(Transport::Ibex)),
            with_spread(row(Transport::Raw)),
            with_spread(row(Transport::Tcp)),
            ratio(row(Transport::Ibex)),
            ratio(row(Transport::Tcp)),
        ]);
    }
    format!("{}, {}\n({})\n{}\n", test.title, test.metric.unit(), test.note, aligned(&lines))
}

/// Columns wide enough for what is in them, aligned to the right.
fn aligned<const N: usize>(lines: &[[String; N]]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let cell = |(text, width): (&String, &usize)| format!("  {text:>width$}");
    let line = |line: &[String; N]| line.iter().zip(&widths).map(cell).collect::<Vec<_>>().concat() + "\n";
    lines.iter().map(line).collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use super::super::report::{summarise, tests::measured};
    use super::super::{bars, plan};
    use super::*;

    #[test]
    fn sizes_and_numbers_are_short_and_exact_enough() {
        assert_eq!([0, 8, 1000, 4096, 1 << 20, 4 << 20].map(size), ["0 B", "8 B", "1000 B", "4 KiB", "1 MiB", "4 MiB"]);
        assert_eq!(
            [0.0, 1.534, 46.25, 812.4, 21345.4, 1234567.0].map(number),
            ["0.00", "1.53", "46.2", "812", "21 345", "1 234 567"]
        );
    }

    #[test]
    fn a_table_has_a_line_per_size_and_a_dash_where_nothing_was_measured() {
        let measurements = [
            measured("latency", Transport::Ibex, 8, 55.0),
            measured("ib_send_lat", Transport::Raw, 8, 50.0),
            measured("latency", Transport::Ibex, 0, 54.0),
        ];
        let tests = [plan::test("latency").unwrap()];
        let text = tables(&summarise("rxe0", &tests, &measurements), &tests);
        let lines: Vec<Vec<&str>> = text.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["0", "B", "54.0", "±0.50", "-", "-", "-", "-"]);
        assert_eq!(lines[2], ["8", "B", "55.0", "±0.50", "50.0", "±0.50", "-", "1.10", "-"]);
    }

    #[test]
    fn a_bar_that_was_not_measured_is_not_called_met() {
        let text = bars(&bars::verdicts(&summarise("rxe0", &[], &[])));
        assert_eq!(text.matches("not measured").count(), 4, "{text}");
    }
}
