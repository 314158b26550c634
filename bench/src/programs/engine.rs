// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine of ibex without MPI: runs the two sides of `ibex bench-engine`, and reads the lines it prints.
//!
//! The difference to the raw adapter is what the engine adds to verbs; that to MPI over ibex is what matching, requests
//! and libmpi add. Its latency and bandwidth are those of the engine's own messages up to the eager limit of the PML,
//! and beyond of a put with a message behind it. Nothing is registered on the way, and nobody copies what has come.
//!
//! Grade: setup. Called by [`crate::run`]. Tests: at the end of this file.

use super::measurement::Measurement;
use super::mpi;
use super::perftest::both_sides;
use crate::catalogue::Test;
use crate::catalogue::transport::Transport;
use crate::nodes::hosts::quoted;
use crate::nodes::place::Where;
use anyhow::{Context, Result, bail};

/// What it measures.
const TESTS: [&str; 7] =
    ["latency", "bandwidth", "message_rate", "put_latency", "get_latency", "put_bandwidth", "get_bandwidth"];

/// Whether it has a test.
pub(crate) fn has(test: &Test) -> bool {
    TESTS.contains(&test.name)
}

/// The command line of either side; the client's has the server's host behind it. `port` is where they meet.
///
/// # Errors
/// The path of the command is no text.
pub(crate) fn line(place: Where, tests: &[&'static Test], sizes: &[u64], port: u16) -> Result<String> {
    let command = place.command.to_str().context("the path of the command ibex is no text")?;
    let names: Vec<&str> = tests.iter().map(|test| test.name).collect();
    let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
    Ok(format!(
        "{} bench-engine --device {} --port {port} --tests {} --sizes {}",
        quoted(command),
        place.device,
        names.join(","),
        sizes.join(",")
    ))
}

/// The command that runs both sides on one node.
pub(crate) fn command(line: &str, place: Where, port: u16) -> Vec<String> {
    vec!["sh".into(), "-c".into(), both_sides(line, place.processors, port, "")]
}

/// Takes the values out of what the client printed.
///
/// # Errors
/// A line that cannot be read, or another number of values than `expected`.
pub(crate) fn parse(output: &str, tests: &[&Test], expected: usize) -> Result<Vec<Measurement>> {
    let lines = output.lines().map(|line| mpi::measurement(line, Transport::Engine, tests));
    let found: Vec<Measurement> = lines.filter_map(Result::transpose).collect::<Result<_>>()?;
    if found.len() != expected {
        bail!("ibex bench-engine measured {} values, and {expected} were expected:\n{output}", found.len());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;
    use crate::nodes::place::tests::place;

    fn latency() -> [&'static Test; 1] {
        [catalogue::test("latency").unwrap()]
    }

    #[test]
    fn both_sides_run_the_command_with_the_same_options() {
        let place = Where { processors: Some([0, 1]), ..place() };
        let line = line(place, &latency(), &[8, 4096], 18600).unwrap();
        assert_eq!(line, "'/t/bin/ibex' bench-engine --device rxe0 --port 18600 --tests latency --sizes 8,4096");
        let script = command(&line, place, 18600).pop().unwrap();
        assert_eq!(script.matches(&line).count(), 2, "{script}");
        assert!(script.contains("taskset -c 0 '/t/bin/ibex'") && script.contains("8,4096 127.0.0.1"), "{script}");
    }

    #[test]
    fn each_line_is_a_value_and_one_that_lacks_is_an_error() {
        let output = r#"{"test":"latency","bytes":8,"unit":"us","value":0.31,"spread":0.02}"#;
        let found = parse(output, &latency(), 1).unwrap();
        assert_eq!((found[0].transport, found[0].bytes, found[0].value), (Transport::Engine, 8, 0.31));
        assert!(parse(output, &latency(), 2).unwrap_err().to_string().contains("2 were expected"));
    }

    #[test]
    fn what_the_engine_has_are_tests_of_the_report() {
        assert!(TESTS.iter().all(|name| catalogue::test(name).is_some()));
        assert!(!has(catalogue::test("instructions").unwrap()));
    }
}
