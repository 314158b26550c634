// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs `host_memory_ratios`, which compares the emulated adapter with the bare memory of the host, and reads its
//! output. Called by [`crate::run`]. Grade: setup. Tests: below.

use super::{Line, Measurement};
use crate::catalogue::{self, Transport};
use crate::nodes::Where;
use anyhow::{Context, Result, bail};

const PROGRAM: &str = "host_memory_ratios";

/// Rounds of the program in one start; together they are one round of the bench.
const ROUNDS: usize = 5;

pub(crate) fn command(place: Where) -> Vec<String> {
    let mut words = vec![place.programs.join(PROGRAM).display().to_string()];
    words.extend(["--device".to_owned(), place.device.to_owned()]);
    if let Some([first, second]) = place.processors {
        words.extend(["--processors".to_owned(), format!("{first},{second}")]);
    }
    words
}

pub(crate) fn parse(output: &str) -> Result<Vec<Measurement>> {
    let found = output.lines().map(measurement).collect::<Result<Vec<_>>>()?;
    let expected = ROUNDS * 4;
    if found.len() != expected {
        bail!("{PROGRAM} printed {} values, and {expected} were expected:\n{output}", found.len());
    }
    Ok(found)
}

fn measurement(line: &str) -> Result<Measurement> {
    let line = Line::read(PROGRAM, line)?;
    let transport = match line.transport.as_deref() {
        Some("raw") => Transport::Raw,
        Some("memory") => Transport::Memory,
        other => bail!("{PROGRAM} measured {other:?}, which is unknown"),
    };
    let test = catalogue::test(&line.test).with_context(|| format!("{PROGRAM} measured {}", line.test))?;
    line.measured(PROGRAM, transport, test)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::place::tests::place;

    const LINES: [&str; 4] = [
        r#"{"test":"host_latency","transport":"memory","bytes":8,"unit":"us","value":0.17,"spread":0.002}"#,
        r#"{"test":"host_latency","transport":"raw","bytes":8,"unit":"us","value":0.28,"spread":0.01}"#,
        r#"{"test":"host_bandwidth","transport":"memory","bytes":1048576,"unit":"MB/s","value":17000,"spread":300}"#,
        r#"{"test":"host_bandwidth","transport":"raw","bytes":1048576,"unit":"MB/s","value":16800,"spread":300}"#,
    ];

    #[test]
    fn the_processes_get_their_processors_each_value_is_read_and_one_that_is_missing_is_an_error() {
        let all = LINES.repeat(ROUNDS).join("\n");
        let found = parse(&all).unwrap();
        assert_eq!((found[1].transport, found[1].value), (Transport::Raw, 0.28));
        assert!(parse(LINES[0]).unwrap_err().to_string().contains("were expected"));
        assert!(parse(&all.replace("MB/s", "MiB/s")).is_err());
        assert!(parse(&all.replace("0.28", "0.0")).is_err());
        let place = Where { processors: Some([0, 2]), ..place() };
        assert!(command(place).join(" ").ends_with("--processors 0,2"));
    }
}
