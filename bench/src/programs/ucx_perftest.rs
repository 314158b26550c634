// SPDX-License-Identifier: MIT OR Apache-2.0
//! UCX without MPI: runs the two sides of `ucx_perftest` on one node with a batch of tests, and reads its table.
//!
//! Its MB is 2^20 bytes, its latencies are microseconds; what leaves this file is in the units of the report.
//!
//! Grade: setup. Called by [`crate::run`]. Tests: at the end of this file, over output of UCX 1.13.

use super::measurement::Measurement;
use super::perftest::{MEGABYTES_OF_PERFTEST, both_sides, iterations};
use crate::catalogue::device_kind::Kind;
use crate::catalogue::transport::Transport;
use crate::catalogue::{Reads, Test, UcxTest};
use crate::nodes::hosts::quoted;
use crate::nodes::place::Where;
use anyhow::{Context, Result, bail};

/// The command that runs both sides. They read the same batch, which the shell writes to a file of its own.
pub(crate) fn command(runs: &[(&'static Test, u64)], times: u32, place: Where, port: u16) -> Vec<String> {
    let line_of = |(test, bytes): &(&'static Test, u64)| batch_line(test, *bytes, times, place.kind) + "\n";
    let batch: String = runs.iter().map(line_of).collect();
    let line = line(port);
    let script = format!(
        "batch=$(mktemp)\ncat >$batch <<'END'\n{batch}END\n{}",
        both_sides(&line, place.processors, port, NO_BATCH)
    );
    vec!["sh".into(), "-c".into(), script]
}

/// The option by which a `ucx_perftest` that is built with MPI does without; others refuse it.
const WITHOUT_MPI: &str = "$(ucx_perftest -h 2>&1 | grep -q -e '-P <' && echo -P 0)";

/// The command line of either side.
pub(crate) fn line(port: u16) -> String {
    format!("ucx_perftest {WITHOUT_MPI} -p {port} -b $batch -v -f")
}

/// What writes the batch to a file, on one line.
pub(crate) fn batch(runs: &[(&'static Test, u64)], times: u32, place: Where) -> String {
    let line_of = |(test, bytes): &(&'static Test, u64)| quoted(&batch_line(test, *bytes, times, place.kind));
    let lines: Vec<String> = runs.iter().map(line_of).collect();
    format!("batch=$(mktemp); printf '%s\\n' {} >$batch;", lines.join(" "))
}

/// What removes it.
pub(crate) const NO_BATCH: &str = "rm -f $batch;";

/// A name, and the options of a run, so many times as long as at first.
fn batch_line(test: &Test, bytes: u64, times: u32, kind: Kind) -> String {
    let Some(UcxTest { options, reads }) = test.ucx else { return String::new() };
    let count = iterations(reads, bytes, kind) * times;
    format!("{}.{bytes} {options} -s {bytes} -n {count} -w {}", test.name, count.div_ceil(10))
}

/// Takes the values out of what the client printed.
///
/// # Errors
/// When a run has no line, or a line has no value.
pub(crate) fn parse(output: &str, runs: &[(&'static Test, u64)]) -> Result<Vec<Measurement>> {
    let header = output.lines().find(|line| line.contains(",iterations,"));
    let header = header.with_context(|| format!("ucx_perftest printed no table:\n{output}"))?;
    runs.iter().map(|(test, bytes)| measurement(output, header, test, *bytes)).collect()
}

fn measurement(output: &str, header: &str, test: &Test, bytes: u64) -> Result<Measurement> {
    let reads = test.ucx.map(|ucx| ucx.reads).with_context(|| format!("ucx_perftest has no {}", test.name))?;
    let name = format!("{}.{bytes},", test.name);
    let line = output.lines().find(|line| line.starts_with(&name));
    let line = line.with_context(|| format!("ucx_perftest printed no line {name}:\n{output}"))?;
    let column = |wanted: &str| {
        let at = header.split(',').position(|title| title.ends_with(wanted));
        let cell = at.and_then(|at| line.split(',').nth(at)).and_then(|cell| cell.trim().parse::<f64>().ok());
        cell.with_context(|| format!("ucx_perftest's line has no {wanted}: {line}"))
    };
    let value = match reads {
        Reads::TypicalLatency => column("percentile_lat")?,
        Reads::Bandwidth => column("overall_bw")? * MEGABYTES_OF_PERFTEST,
        Reads::MessageRate => column("overall_mr")?,
        Reads::TimePerMessage => 1e6 / column("overall_mr")?,
    };
    if !value.is_normal() {
        bail!("ucx_perftest measured nothing: {line}");
    }
    Ok(Measurement {
        test: test.name.to_owned(),
        transport: Transport::UcxPerftest,
        bytes,
        value,
        spread: 0.0,
        seconds: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;
    use crate::nodes::place::tests::place;

    const OUTPUT: &str = "\
batch,iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
latency.8,20000,0.349,2.325,2.325,3.28,3.28,430159,430159
bandwidth.65536, 500,3.451,3.668,3.668,17037.83,17000.00,272605,272605
message_rate.8,20000,0.102,0.398,0.398,19.19,19.19,2514797,2514790
";

    fn runs() -> Vec<(&'static Test, u64)> {
        [("latency", 8), ("bandwidth", 65536), ("message_rate", 8)]
            .map(|(name, bytes)| (catalogue::test(name).unwrap(), bytes))
            .into()
    }

    #[test]
    fn each_run_gives_what_its_test_reads() {
        let values: Vec<f64> = parse(OUTPUT, &runs()).unwrap().iter().map(|found| found.value).collect();
        assert_eq!(values, [0.349, 17000.0 * MEGABYTES_OF_PERFTEST, 2_514_790.0]);
    }

    #[test]
    fn a_run_without_a_line_or_without_a_value_is_an_error() {
        let missing = [(catalogue::test("get_latency").unwrap(), 8)];
        assert!(parse(OUTPUT, &missing).unwrap_err().to_string().contains("get_latency.8"));
        assert!(parse(&OUTPUT.replace("0.349", "0.000"), &runs()).unwrap_err().to_string().contains("nothing"));
        assert!(parse("connection refused\n", &runs()).unwrap_err().to_string().contains("connection refused"));
    }

    #[test]
    fn a_batch_of_one_line_is_the_same_file() {
        let script = batch(&runs(), 1, place());
        assert!(script.contains(r"printf '%s\n' 'latency.8 -t tag_lat -s 8 ") && !script.contains('\n'), "{script}");
    }

    #[test]
    fn both_sides_read_the_same_batch() {
        let place = Where { processors: Some([0, 1]), ..place() };
        let script = command(&runs(), 1, place, 13400).pop().unwrap();
        assert_eq!(script.matches(" -p 13400 -b $batch").count(), 2, "{script}");
        assert!(script.contains("\nlatency.8 -t tag_lat -s 8 -n 10000 -w 1000\n"), "{script}");
        assert!(script.contains("taskset -c 1 ucx_perftest"), "{script}");
    }
}
