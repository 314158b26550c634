// SPDX-License-Identifier: MIT OR Apache-2.0
//! The raw adapter: the two sides of a perftest program, and its table. perftest's MB is 2^20 bytes, its latencies are
//! microseconds; measurements are in the units of the report. Called by [`crate::run`]. Grade: setup. Tests: below,
//! over outputs of perftest 4.5.

use super::Measurement;
use crate::catalogue::{Kind, RawProgram, Reads, Transport};
use crate::nodes::{Outcome, Sides, Where};
use anyhow::{Context, Result, bail};

pub(crate) fn sides(program: &str, place: Where, bytes: u64, iterations: u32, port: u16) -> Sides {
    let (program, options) = program.split_once(' ').unwrap_or((program, ""));
    let line = format!("{program} -F -d {} -s {bytes} -n {iterations} -p {port} {options}", place.device);
    Sides { line, port }
}

/// Number of iterations of the first run ([`crate::run`]), which then takes about a tenth of a second: limited by
/// messages and by bytes.
pub(crate) fn iterations(reads: Reads, bytes: u64, kind: Kind) -> u32 {
    let (least, most, bytes_in_all): (u64, u64, u64) = match (kind, reads.one_at_a_time()) {
        (Kind::SoftRoce, true) => (10, 1000, 12 << 20),
        (Kind::SoftRoce, false) => (20, 5000, 40 << 20),
        (Kind::SoftHca, true) => (100, 300_000, 512 << 20),
        (Kind::SoftHca, false) if reads == Reads::MessageRate => (200, 1_600_000, 1 << 30),
        (Kind::SoftHca, false) => (200, 400_000, 1 << 30),
        (Kind::Adapter, true) => (200, 10_000, 1 << 30),
        (Kind::Adapter, false) => (500, 200_000, 16 << 30),
    };
    (bytes_in_all / bytes.max(1)).clamp(least, most) as u32
}

/// Whether perftest failed to measure the processor's clock. It tries that for a fifth of a second at the end of each
/// run, and fails on a busy machine. With `-F` it goes on, and prints nonsense.
pub(crate) fn was_disturbed(outcome: &Outcome) -> bool {
    [&outcome.stdout, &outcome.stderr].into_iter().any(|text| text.contains(NO_CLOCK))
}

const NO_CLOCK: &str = "Correlation coefficient r^2";

pub(crate) fn parse(output: &str, program: &RawProgram, bytes: u64) -> Result<Measurement> {
    let (header, line) = table(output)?;
    let cells: Vec<f64> = line.split_whitespace().map_while(|cell| cell.parse().ok()).collect();
    if cells.first() != Some(&(bytes as f64)) {
        bail!("perftest's table is not of {bytes} bytes: {line}");
    }
    // Names of columns may hold a space ("BW peak[MB/sec]"), but units do not, so each column is found by its unit.
    let column = |name: &str| {
        let at = header
            .split(']')
            .position(|title| title.contains(name))
            .with_context(|| format!("perftest's table has no {name}: {header}"))?;
        cells.get(at + COLUMNS_WITHOUT_UNIT).copied().with_context(|| format!("perftest's line is too short: {line}"))
    };
    let per_microsecond =
        || -> Result<f64> { Ok(messages_per_microsecond(bytes, column("BW average")?, column("MsgRate")?)) };
    let value = match program.reads {
        Reads::TypicalLatency => column("t_typical"),
        Reads::Bandwidth => per_microsecond().map(|rate| bytes as f64 * rate),
        Reads::MessageRate => per_microsecond().map(|rate| rate * 1e6),
        Reads::TimePerMessage => per_microsecond().map(|rate| 1.0 / rate),
    }?;
    if !value.is_normal() || value < 0.0 {
        bail!("perftest measured nothing, or its numbers are too small to print: {line}");
    }
    let spread = column("t_stdev").unwrap_or(0.0);
    Ok(Measurement { test: program.name.to_owned(), transport: Transport::Raw, bytes, value, spread })
}

/// Returns the more exact of two values: perftest prints the rate with six digits after the point and the average with
/// two. `average` is in perftest's MB per second, `rate` in millions of messages per second.
fn messages_per_microsecond(bytes: u64, average: f64, rate: f64) -> f64 {
    if rate * 1e4 > average { rate } else { average * MEGABYTES_OF_PERFTEST / bytes as f64 }
}

/// `#bytes` and `#iterations` come first and have no unit.
const COLUMNS_WITHOUT_UNIT: usize = 2;

/// perftest's MB is 2^20 bytes.
const MEGABYTES_OF_PERFTEST: f64 = 1.048576;

fn table(output: &str) -> Result<(&str, &str)> {
    let mut lines = output.lines().map(str::trim).skip_while(|line| !line.starts_with("#bytes"));
    let header = lines.next().with_context(|| format!("perftest printed no table:\n{output}"))?;
    let starts_with_digit = |line: &&str| line.starts_with(|c: char| c.is_ascii_digit());
    let line = lines.find(starts_with_digit).with_context(|| format!("perftest's table is empty:\n{output}"))?;
    Ok((header, line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::job::ended;
    use crate::nodes::place::tests::place;

    const SEND_LAT: &str = include_str!("perftest-4.5/ib_send_lat.txt");
    const WRITE_BW: &str = include_str!("perftest-4.5/ib_write_bw.txt");
    const READ_BW_BOTH_WAYS: &str = include_str!("perftest-4.5/ib_read_bw-b.txt");
    const WRITE_BW_ONE: &str = include_str!("perftest-4.5/ib_write_bw-t1.txt");

    fn parse(output: &str, reads: Reads, bytes: u64) -> Result<Measurement> {
        super::parse(output, &RawProgram { name: "", reads }, bytes)
    }

    #[test]
    fn the_value_is_read_from_the_rate_or_the_average_whichever_has_more_digits() {
        for (what, output, reads, bytes, expected) in [
            ("the third of the latencies", SEND_LAT, Reads::TypicalLatency, 8, 76.31),
            ("a small bandwidth, from the rate", WRITE_BW, Reads::Bandwidth, 8, 0.007955 * 8.0),
            ("the rate", WRITE_BW, Reads::MessageRate, 8, 7955.0),
            ("millions of bytes, from the average", READ_BW_BOTH_WAYS, Reads::Bandwidth, 1 << 20, 27.45 * 1.048576),
            ("the inverse of the rate", WRITE_BW_ONE, Reads::TimePerMessage, 8, 1.0 / 0.000151),
        ] {
            let value = parse(output, reads, bytes).unwrap().value;
            assert!((value / expected - 1.0).abs() < 1e-9, "{what}: {value} is not {expected}");
        }
        assert!((parse(SEND_LAT, Reads::TypicalLatency, 8).unwrap().spread - 1624.15).abs() < 1e-9);
    }

    #[test]
    fn a_table_of_another_size_or_none_is_an_error() {
        assert!(parse(WRITE_BW, Reads::Bandwidth, 64).unwrap_err().to_string().contains("not of 64 bytes"));
        let error = parse("Couldn't connect to 127.0.0.1:18600\n", Reads::Bandwidth, 8).unwrap_err().to_string();
        assert!(error.contains("no table") && error.contains("Couldn't connect"), "{error}");
        let without_rate = WRITE_BW.replace("MsgRate", "Rate");
        assert!(parse(&without_rate, Reads::MessageRate, 8).unwrap_err().to_string().contains("no MsgRate"));
    }

    #[test]
    fn a_zero_and_an_infinity_are_no_measurements() {
        let zero = WRITE_BW.replace("0.007955", "0.000000").replace("0.06", "0.00");
        for (text, reads) in [(zero.as_str(), Reads::Bandwidth), (&zero, Reads::TimePerMessage)] {
            assert!(parse(text, reads, 8).unwrap_err().to_string().contains("nothing"), "{text}");
        }
        let infinite = SEND_LAT.replace("76.31", "inf");
        assert!(parse(&infinite, Reads::TypicalLatency, 8).unwrap_err().to_string().contains("nothing"), "{infinite}");
    }

    #[test]
    fn a_failed_calibration_is_recognised_and_another_failure_is_not() {
        let outcome = |stderr: &str| ended(0, SEND_LAT, stderr);
        assert!(was_disturbed(&outcome("Correlation coefficient r^2: 0.81 < 0.9\n")));
        assert!(!was_disturbed(&outcome("Couldn't connect to 127.0.0.1:18600\n")));
    }

    #[test]
    fn both_sides_meet_at_the_same_port_and_get_the_same_options() {
        let sides = sides("ib_write_bw -b", place(), 64, 1000, 18600);
        let script = |processors| sides.on_one_node(processors).argv.pop().unwrap();
        let unbound = script(None);
        assert_eq!(unbound.matches("ib_write_bw -F -d rxe0 -s 64 -n 1000 -p 18600 -b").count(), 2, "{unbound}");
        assert!(unbound.contains(":48A8 ") && !unbound.contains("taskset"), "{unbound}");
        let bound = script(Some([0, 2]));
        assert!(bound.contains("taskset -c 2 ib_write_bw") && bound.contains("taskset -c 0 ib_write_bw"), "{bound}");
    }

    #[test]
    fn small_messages_are_counted_and_large_ones_are_measured_by_their_bytes() {
        assert_eq!(iterations(Reads::TypicalLatency, 8, Kind::SoftRoce), 1000);
        assert_eq!(iterations(Reads::Bandwidth, 1 << 20, Kind::SoftRoce), 40);
        assert_eq!(iterations(Reads::Bandwidth, 4 << 20, Kind::SoftRoce), 20);
        assert!(iterations(Reads::MessageRate, 8, Kind::Adapter) > iterations(Reads::MessageRate, 8, Kind::SoftRoce));
    }
}
