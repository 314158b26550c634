// SPDX-License-Identifier: MIT OR Apache-2.0
//! UCX without MPI: the two sides of `ucx_perftest` with a batch of one test, and its table. Its MB is 2^20 bytes, its
//! latencies are microseconds; measurements are in the units of the report. Called by [`crate::run`]. Grade: setup.
//! Tests: below, over output of UCX 1.13.

use super::Measurement;
use super::mpi;
use super::perftest::{MEGABYTES_OF_PERFTEST, iterations};
use crate::catalogue::{Reads, Test, Transport, UcxTest};
use crate::nodes::hosts::quoted;
use crate::nodes::{Sides, Where};
use anyhow::{Context, Result, bail};

/// Option that keeps a `ucx_perftest` built with MPI from using it. One built without MPI refuses the option.
const WITHOUT_MPI: &str = "$(ucx_perftest -h 2>&1 | grep -q -e '-P <' && echo -P 0)";

/// Returns the two sides of a test, `times` as long as at first. They read the same batch of one run, which the shell
/// writes to a file: with a batch both print tables for programs.
pub(crate) fn sides(test: &Test, bytes: u64, times: u32, place: Where, port: u16) -> Result<Sides> {
    let UcxTest { options, reads } = of(test)?;
    let count = iterations(reads, bytes, place.kind) * times;
    let run = format!("{options} -s {bytes} -n {count} -w {}", count.div_ceil(10));
    Ok(Sides {
        line: format!("ucx_perftest {WITHOUT_MPI} -p {port} -b $batch -v -f"),
        before: format!("batch=$(mktemp); echo {} >$batch;", quoted(&format!("{} {run}", test.name))),
        after: "rm -f $batch;",
        env: mpi::ucx_environment(place),
        port,
    })
}

fn of(test: &Test) -> Result<UcxTest> {
    test.ucx.with_context(|| format!("ucx_perftest has no {}", test.name))
}

pub(crate) fn parse(output: &str, test: &Test, bytes: u64) -> Result<Measurement> {
    let reads = of(test)?.reads;
    let header = output.lines().find(|line| line.contains(",iterations,"));
    let header = header.with_context(|| format!("ucx_perftest printed no table:\n{output}"))?;
    let name = format!("{},", test.name);
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
latency,20000,0.349,2.325,2.325,3.28,3.28,430159,430159
bandwidth, 500,3.451,3.668,3.668,17037.83,17000.00,272605,272605
message_rate,20000,0.102,0.398,0.398,19.19,19.19,2514797,2514790
";

    fn found(output: &str, name: &str, bytes: u64) -> Result<Measurement> {
        parse(output, catalogue::test(name).unwrap(), bytes)
    }

    #[test]
    fn each_run_gives_the_values_that_its_test_reads() {
        let runs = [("latency", 8), ("bandwidth", 65536), ("message_rate", 8)];
        let values: Vec<f64> = runs.iter().map(|(name, bytes)| found(OUTPUT, name, *bytes).unwrap().value).collect();
        assert_eq!(values, [0.349, 17000.0 * MEGABYTES_OF_PERFTEST, 2_514_790.0]);
    }

    #[test]
    fn a_run_without_a_line_or_without_a_value_is_an_error() {
        let error = |output: &str, name| found(output, name, 8).unwrap_err().to_string();
        assert!(error(OUTPUT, "get_latency").contains("get_latency,"));
        assert!(error(&OUTPUT.replace("0.349", "0.000"), "latency").contains("nothing"));
        assert!(error("connection refused\n", "latency").contains("connection refused"));
        assert!(error(OUTPUT, "put_latency").contains("has no put_latency"));
    }

    #[test]
    fn both_sides_read_the_same_batch() {
        let sides = sides(catalogue::test("latency").unwrap(), 8, 1, place(), 13400).unwrap();
        assert!(sides.before.contains(" 'latency -t tag_lat -s 8 -n 10000 -w 1000' >$batch;"), "{}", sides.before);
        assert!(sides.line.ends_with(" -p 13400 -b $batch -v -f") && sides.after.contains("$batch"), "{}", sides.line);
    }
}
