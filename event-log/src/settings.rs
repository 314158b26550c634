// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings from the environment: the events and the output; and the rank as the launcher sets it.
//!
//! `IBEX_LOG_EVENTS`: names, separated by comma, colon, semicolon or space, with or without `ibex_`, and groups
//! ([`ibex_trace::GROUPS`]); unset or empty: a list of all events at the end. `IBEX_LOG_FILE`: a rank's file, with `%r`
//! for the rank, `%h` the host, `%p` the process, or else the rank appended; unset: standard error. `IBEX_TRACE`: the
//! folder of a trace. `IBEX_TRACE_EVENTS`: its events; unset or empty: the group `default`. `IBEX_TRACE_CLOCKS`:
//! whether hosts compare their clocks (`exchange.rs`); `IBEX_TRACE_CLOCKS_EVERY`: how often, in seconds. Called by
//! `session.rs`, `recording.rs` and `meeting.rs`. Grade: setup. Threads: any. Tests: below.

use ibex_trace::{GROUPS, listed, short};
use std::time::Duration;

/// Groups, and the beginnings of their events' names; the first group with one counts.
const BEGINNINGS: [(&str, &[&str]); 9] = [
    ("searches", &["comm_search_"]),
    ("transfers", &["xfer_begin", "xfer_continue"]),
    ("messages", &["comm_", "xfer_", "msg_"]),
    ("calls", &["mpi_call_"]),
    ("communicators", &["communicator_"]),
    ("operations", &["put_", "get_", "atomic_", "flush_"]),
    ("connections", &["connection_"]),
    ("waits", &["queued_", "receiver_not_ready", "registration_"]),
    ("incidents", &["device_", "port_"]),
];

/// Returns the group of an event, by its name. Events of later versions that belong to no group are in `default`.
fn group(name: &str) -> &'static str {
    let has = |beginnings: &[&str]| beginnings.iter().any(|beginning| short(name).starts_with(beginning));
    BEGINNINGS.iter().find(|(_, beginnings)| has(beginnings)).map_or("default", |(group, _)| group)
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chosen(Vec<String>);

impl Chosen {
    /// Reads the value of `IBEX_LOG_EVENTS` or `IBEX_TRACE_EVENTS`. Without names in it, it is read as `default`.
    pub(crate) fn from(value: Option<&str>, default: &str) -> Chosen {
        let value = value.filter(|value| listed(value).next().is_some()).unwrap_or(default);
        let mut seen = std::collections::BTreeSet::new();
        Chosen(listed(value).filter(|name| seen.insert(*name)).map(str::to_owned).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the indexes of the chosen types among these names, and the chosen names that no type or group has.
    ///
    /// The group `default` lacks events that add little: searches; beginnings of transfers; the
    /// freeing of a request, usually at its end; flushes, because the ends of one-sided operations show the wait.
    pub(crate) fn choose(&self, types: &[&str]) -> (Vec<usize>, Vec<String>) {
        let is = |name: &str, known: &str| match name {
            "all" => true,
            "default" => {
                group(known) != "searches"
                    && !matches!(short(known), "xfer_begin" | "comm_req_free" | "flush_started" | "flush_complete")
            }
            name => short(known) == short(name) || group(known) == name,
        };
        let wanted = |known: &&str| self.0.iter().any(|name| is(name, known));
        let chosen = types.iter().enumerate().filter(|(_, known)| wanted(known)).map(|(index, _)| index).collect();
        let is_known = |name: &str| GROUPS.contains(&name) || types.iter().any(|known| is(name, known));
        let unknown = self.0.iter().filter(|name| !is_known(name)).cloned().collect();
        (chosen, unknown)
    }
}

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

/// Returns the rank that the launcher gave this process.
pub(crate) fn launched_rank() -> Option<u32> {
    launched(variable)
}

fn launched(variable: impl Fn(&str) -> Option<String>) -> Option<u32> {
    ["OMPI_COMM_WORLD_RANK", "PMIX_RANK"].iter().find_map(|name| variable(name)?.parse().ok())
}

/// Returns the job's name: that of the batch system, or else of the launcher.
pub(crate) fn job(variable: impl Fn(&str) -> Option<String>) -> String {
    let site = ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID"].iter().find_map(|name| variable(name));
    let launcher = || Some((variable("PMIX_NAMESPACE")?.parse::<u32>().ok()? >> 16).to_string());
    site.or_else(launcher).unwrap_or_default()
}

/// Returns the number of the `MPI_COMM_WORLD`: 0, or for spawned processes Open MPI's number, by the name in PMIx.
pub(crate) fn world(namespace: Option<&str>, is_spawned: bool) -> u32 {
    let number = |name: &str| match name.rsplit_once('@') {
        // Open MPI 5: `prterun-host-77@2`.
        Some((_, number)) => number.parse().ok(),
        // Open MPI 4: the job in the upper half, the world in the lower.
        None => name.parse::<u32>().ok().map(|name| name & 0xffff),
    };
    if is_spawned { namespace.and_then(number).unwrap_or(1).max(1) } else { 0 }
}

pub(crate) fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// Returns an identifier of this process' monotonic clock: processes of the same boot and time namespace share one.
pub(crate) fn clock() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let times = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    format!("{} {}", boot.trim(), times.display())
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
    fn comma_colon_semicolon_and_space_separate_names() {
        let names = |value| Chosen::from(value, "default").0;
        assert_eq!(names(Some("a,b:c;d e")), ["a", "b", "c", "d", "e"]);
        assert_eq!(names(Some(" a, ,b a")), ["a", "b"]);
        for nothing in [None, Some(""), Some(" ,;: ")] {
            assert_eq!(names(nothing), ["default"]);
            assert!(Chosen::from(nothing, "").is_empty());
        }
    }

    #[test]
    fn choose_accepts_the_prefix_and_returns_unknown_names() {
        let types = ["ibex_xfer_begin", "ibex_xfer_end", "other"];
        let chosen = |text| Chosen::from(Some(text), "").choose(&types);
        assert_eq!(chosen("xfer_end,ibex_xfer_begin"), (vec![0, 1], vec![]));
        assert_eq!(chosen("ibex_xfer_end"), (vec![1], vec![]));
        assert_eq!(chosen("other xfer"), (vec![2], vec!["xfer".to_owned()]));
        assert_eq!(chosen("all"), (vec![0, 1, 2], vec![]));
        assert_eq!(chosen(""), (vec![], vec![]));
    }

    #[test]
    fn groups_stand_for_their_events_and_searches_are_left_out_unless_they_are_named() {
        let types = "ibex_xfer_end ibex_comm_msg_arrived ibex_comm_search_unex_q_end ibex_new ibex_queued_end \
                     ibex_xfer_begin ibex_comm_req_cancel ibex_comm_req_free ibex_flush_started ibex_flush_complete";
        let types: Vec<&str> = types.split(' ').collect();
        let chosen = |text| Chosen::from(text, "default").choose(&types);
        assert_eq!(chosen(None), (vec![0, 1, 3, 4, 6], vec![]));
        assert_eq!(chosen(Some("messages")), (vec![0, 1, 6, 7], vec![]));
        assert_eq!(chosen(Some("waits,searches,new")), (vec![2, 3, 4], vec![]));
        assert_eq!(chosen(Some("default,searches,transfers,comm_req_free,operations")), chosen(Some("all")));
        assert_eq!(chosen(Some("mesages,xfer_end,operations")), (vec![0, 8, 9], vec!["mesages".to_owned()]));
    }

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
    fn each_world_has_its_own_number_and_the_first_has_0() {
        assert_eq!(world(Some("1431502849"), false), 0);
        assert_eq!(world(Some("1431502850"), true), 2);
        assert_eq!((world(Some("prterun-n1-77@2"), true), world(Some("prterun-n1-77@1"), false)), (2, 0));
        assert_eq!((world(None, true), world(Some("slurm.pmix.5.0"), true), world(None, false)), (1, 1, 0));
    }

    fn value(given: &[(&str, &str)], name: &str) -> Option<String> {
        given.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn a_job_has_the_sites_name_or_the_launchers() {
        let of = |given: &[(&str, &str)]| job(|name| value(given, name));
        assert_eq!(of(&[("PMIX_NAMESPACE", "1431502849"), ("SLURM_JOB_ID", "12")]), "12");
        assert_eq!(of(&[("PMIX_NAMESPACE", "1431502849")]), (1431502849_u32 >> 16).to_string());
        assert_eq!(of(&[]), "");
    }

    #[test]
    fn a_rank_is_known_from_the_launcher_or_else_the_process_is_named() {
        let launched_with = |given: &[(&str, &str)]| launched(|name| value(given, name));
        assert_eq!(launched_with(&[("PMIX_RANK", "3")]), Some(3));
        assert_eq!(launched_with(&[("PMIX_RANK", "x"), ("OMPI_COMM_WORLD_RANK", "0")]), Some(0));
        assert_eq!(launched_with(&[]), None);
        assert_eq!((rank(Some(3), 77), rank(None, 77)), ("3".to_owned(), "p77".to_owned()));
    }

    #[test]
    fn every_rank_has_a_file_of_its_own() {
        assert_eq!(file(None, "3", "n1", 7), None);
        assert_eq!(file(Some(""), "3", "n1", 7), None);
        assert_eq!(file(Some("/tmp/log"), "3", "n1", 7).as_deref(), Some("/tmp/log.3"));
        assert_eq!(file(Some("/tmp/%h-%r-%p.txt"), "3", "n1", 7).as_deref(), Some("/tmp/n1-3-7.txt"));
    }
}
