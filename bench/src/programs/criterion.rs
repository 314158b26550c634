// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the micro-benchmarks print: a median for each bench, as criterion writes it for programs.
//!
//! Grade: setup. Called by who runs them. Tests: at the end of this file.

use anyhow::{Context, Result};

/// The median that criterion printed, of a bench that raises and delivers `batch` events: events per second.
///
/// # Errors
/// When it printed none.
pub fn rate(output: &str, bench: &str, batch: f64) -> Result<f64> {
    let named = output.lines().find(|line| line.starts_with(&format!("test {bench} ")));
    let line = named.with_context(|| format!("the bench {bench} printed nothing:\n{output}"))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "ns/iter").and_then(|at| words.get(at.checked_sub(1)?));
    let nanoseconds: f64 = at
        .and_then(|number| number.replace(',', "").parse().ok())
        .with_context(|| format!("the bench {bench} printed no time: {line}"))?;
    Ok(batch * 1e9 / nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_what_the_bench_prints() {
        let output = "test event/clock ... bench:          20 ns/iter (+/- 1)\n\
                      test event/buffer_in_and_out ... bench:      51,200 ns/iter (+/- 99)\n";
        assert!((rate(output, "event/buffer_in_and_out", 1024.0).unwrap() - 20e6).abs() < 1.0);
        assert!(rate(output, "event/other", 1.0).unwrap_err().to_string().contains("event/other"));
    }
}
