// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings from the environment: the events and the output.
//!
//! `IBEX_LOG_EVENTS`: names, separated by comma, colon, semicolon or space, with or without `ibex_`, and groups
//! ([`ibex_trace::GROUPS`]); unset or empty: a list of all events at the end. `IBEX_LOG_FILE`: a rank's file, with `%r`
//! for the rank, `%h` the host, `%p` the process, or else the rank appended; unset: standard error. `IBEX_TRACE`: the
//! folder of a trace. `IBEX_TRACE_EVENTS`: its events; unset or empty: the group `default`. `IBEX_TRACE_CLOCKS`:
//! whether hosts compare their clocks (`exchange.rs`); `IBEX_TRACE_CLOCKS_EVERY`: how often, in seconds. Called by
//! `session.rs`, `recording.rs` and `meeting.rs`. Grade: setup. Threads: any. Tests: below.

use std::time::Duration;

/// Variable: seconds between two comparisons of the hosts' clocks; 0: never.
pub(crate) const EVERY: &str = "IBEX_TRACE_CLOCKS_EVERY";

pub(crate) const EVERY_DEFAULT: Duration = Duration::from_secs(10);

/// Shorter intervals do not improve the accuracy.
const EVERY_LEAST: f64 = 0.01;

/// A year: longer intervals mean never.
const EVERY_MOST: f64 = 365.0 * 86400.0;

/// Reads the value of [`EVERY`]; `None`: never.
pub(crate) fn every(value: Option<&str>) -> Result<Option<Duration>, Unclear> {
    let Some(value) = value.map(str::trim).filter(|value| !value.is_empty()) else { return Ok(Some(EVERY_DEFAULT)) };
    match value.parse::<f64>() {
        Ok(0.0) => Ok(None),
        Ok(seconds) if seconds > 0.0 && seconds.is_finite() => {
            Ok(Some(Duration::from_secs_f64(seconds.clamp(EVERY_LEAST, EVERY_MOST))))
        }
        _ => Err(Unclear),
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unclear;

pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Returns the text for the rank; for a process of unknown rank, its process number.
pub(crate) fn rank(known: Option<u32>, process: u32) -> String {
    known.map_or_else(|| format!("p{process}"), |rank| rank.to_string())
}

/// Returns the file of a rank, from the value of `IBEX_LOG_FILE`. `None`: standard error.
pub(crate) fn file(value: Option<&str>, rank: &str, host: &str, process: u32) -> Option<String> {
    let pattern = value.filter(|pattern| !pattern.is_empty())?;
    let name = pattern.replace("%r", rank).replace("%h", host).replace("%p", &process.to_string());
    Some(if name == pattern { format!("{pattern}.{rank}") } else { name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_compared_every_so_many_seconds_or_never() {
        let seconds = |value| every(value).map(|every| every.map(|every| every.as_secs_f64()));
        assert_eq!((seconds(None), seconds(Some(" "))), (Ok(Some(10.0)), Ok(Some(10.0))));
        assert_eq!((seconds(Some("2.5")), seconds(Some("0"))), (Ok(Some(2.5)), Ok(None)));
        assert_eq!((seconds(Some("1e-9")), seconds(Some("1e300"))), (Ok(Some(EVERY_LEAST)), Ok(Some(EVERY_MOST))));
        for strange in ["often", "-1", "nan", "inf", "10s"] {
            assert_eq!(seconds(Some(strange)), Err(Unclear), "{strange}");
        }
    }

    #[test]
    fn every_rank_has_a_file_of_its_own() {
        assert_eq!((rank(Some(3), 77), rank(None, 77)), ("3".to_owned(), "p77".to_owned()));
        assert_eq!(file(None, "3", "n1", 7), None);
        assert_eq!(file(Some(""), "3", "n1", 7), None);
        assert_eq!(file(Some("/tmp/log"), "3", "n1", 7).as_deref(), Some("/tmp/log.3"));
        assert_eq!(file(Some("/tmp/%h-%r-%p.txt"), "3", "n1", 7).as_deref(), Some("/tmp/n1-3-7.txt"));
    }
}
