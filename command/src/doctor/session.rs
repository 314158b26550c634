// SPDX-License-Identifier: MIT OR Apache-2.0
//! A visit to several hosts: starts their agents, collects their facts, and connects them in pairs. A lost host is a
//! finding, and the others continue. Called by [`super`]; `tournament` gives the order of pairs. Grade: setup; a thread
//! for each host, or pair of hosts, at a time. Tests: with a device, `hw-tests/tests/device/command.rs`.

use super::finding::{Finding, Severity};
use super::launch::{self, Launch};
use super::protocol::{Answer, Ask, Link, Published};
use super::remote::Remote;
use super::tournament;
use super::watch::Seen;
use crate::facts::Facts;
use crate::parameters::Given;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Length of the published address of a host without ports: a header.
const NONE: usize = 8;

#[derive(Clone, Debug, Default)]
pub(super) struct Host {
    pub(super) facts: Facts,
    pub(super) seen: Seen,
    /// Whether it could open a port, if the doctor asked for that.
    pub(super) has_ports: bool,
}

/// Two connected hosts: their indexes among the hosts that answer, and each one's report of its connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Met {
    pub(super) hosts: (usize, usize),
    pub(super) links: (Vec<Link>, Vec<Link>),
}

#[derive(Default)]
pub(super) struct Visit {
    pub(super) hosts: Vec<Host>,
    pub(super) meetings: Vec<Met>,
    pub(super) findings: Vec<Finding>,
}

pub(super) struct Plan<'a> {
    pub(super) hosts: &'a [String],
    pub(super) launch: Launch,
    pub(super) given: &'a Given,
    pub(super) watch: f64,
    pub(super) patience: f64,
}

struct Guest {
    remote: Remote,
    facts: Facts,
    published: Published,
    /// The finding, once the agent is lost.
    lost: Option<Finding>,
}

pub(super) fn visit(plan: &Plan<'_>) -> Visit {
    let patience = Duration::try_from_secs_f64(plan.patience).unwrap_or(Duration::from_secs(20));
    let words = words(plan);
    let launch = plan.launch.chosen();
    let mut visit = Visit::default();
    let mut guests = Vec::new();
    for begun in at_once(named(plan.hosts), |name| greet(&name, launch, &launch::script(&words), patience)) {
        match begun {
            Ok(guest) => guests.push(Mutex::new(guest)),
            Err(finding) => visit.findings.push(finding),
        }
    }
    visit.findings.extend(open(&guests, patience));
    for round in tournament::rounds(guests.len()) {
        let met = at_once(round, |(one, other)| {
            let hosts = (one, other);
            Some(Met { hosts, links: meet((&guests[one], one), (&guests[other], other), patience)? })
        });
        visit.meetings.extend(met.into_iter().flatten());
    }
    let watched = patience + Duration::try_from_secs_f64(plan.watch).unwrap_or_default();
    let ended = at_once(guests.iter().collect(), |guest| {
        ask(guest, &Ask::End, watched)
            .and_then(|answer| if let Answer::Ended(seen) = answer { Some(seen) } else { None })
    });
    for (guest, seen) in guests.into_iter().zip(ended) {
        let guest = guest.into_inner().unwrap_or_else(PoisonError::into_inner);
        let has_ports = guest.published.ports.len() > NONE;
        visit.findings.extend(guest.lost);
        visit.hosts.push(Host { facts: guest.facts, seen: seen.unwrap_or_default(), has_ports });
    }
    visit
}

fn words(plan: &Plan<'_>) -> String {
    let parameters: Vec<String> = plan.given.words().iter().map(|word| launch::quoted(word)).collect();
    format!("doctor --agent --watch {} --patience {} {}", plan.watch, plan.patience / 2.0, parameters.join(" "))
}

/// Returns unique names of the hosts: the second of a name is `localhost (2)`.
fn named(hosts: &[String]) -> Vec<String> {
    let number = |index: usize, host: &String| hosts[..index].iter().filter(|other| *other == host).count();
    let name = |(index, host)| match number(index, host) {
        0 => host.clone(),
        before => format!("{host} ({})", before + 1),
    };
    hosts.iter().enumerate().map(name).collect()
}

/// Calls `what` for each in parallel; the results are in order.
fn at_once<T: Send, R: Send>(each: Vec<T>, what: impl Fn(T) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let what = &what;
        let done: Vec<_> = each.into_iter().map(|one| scope.spawn(move || what(one))).collect();
        // A panic of a thread has been printed already.
        done.into_iter().filter_map(|done| done.join().ok()).collect()
    })
}

/// Starts an agent, which first reports its host's facts.
fn greet(name: &str, launch: Launch, script: &str, patience: Duration) -> Result<Guest, Finding> {
    let mut remote = Remote::start(name, launch, script)?;
    match remote.hear(patience)? {
        Answer::Here(mut facts) => {
            name.clone_into(&mut facts.host.name);
            let published = Published { name: name.to_owned(), ports: Vec::new() };
            Ok(Guest { remote, facts: *facts, published, lost: None })
        }
        _ => Err(launch.failure(name, "", "its ibex has another version: its first answer is not understood")),
    }
}

/// Makes all agents open their ports and exchange addresses; returns findings about ports that could not be opened.
fn open(guests: &[Mutex<Guest>], patience: Duration) -> Vec<Finding> {
    if guests.len() < 2 {
        return Vec::new();
    }
    let opened = at_once(guests.iter().enumerate().collect(), |(index, guest)| {
        let Some(Answer::Opened { ports, failures }) = ask(guest, &Ask::Open { host: index as u32 }, patience) else {
            return Vec::new();
        };
        let mut guest = guest.lock().unwrap_or_else(PoisonError::into_inner);
        guest.published.ports = ports;
        let finding = |why: String| {
            let finding = Finding::new(Severity::Error, "port-open", guest.published.name.as_str(), why);
            finding
                .expected("a port that can be opened")
                .mended("do as the message says; `ibex info` shows the port and the limits")
        };
        failures.into_iter().map(finding).collect()
    });
    let published = guests.iter().map(|guest| guest.lock().unwrap_or_else(PoisonError::into_inner).published.clone());
    let all = Ask::Know(published.collect());
    let known = at_once(guests.iter().collect(), |guest| match ask(guest, &all, patience) {
        Some(Answer::Known { failures }) => failures,
        _ => Vec::new(),
    });
    let stranger = |why: String| {
        let finding = Finding::new(Severity::Error, "ibex-version", "what hosts publish", why);
        finding.expected("bytes of this ibex").mended("install the same ibex on all hosts")
    };
    let mut strangers: Vec<String> = known.into_iter().flatten().collect();
    strangers.sort();
    strangers.dedup();
    opened.into_iter().flatten().chain(strangers.into_iter().map(stranger)).collect()
}

/// Connects two hosts; `None` if one is lost.
fn meet(
    one: (&Mutex<Guest>, usize),
    other: (&Mutex<Guest>, usize),
    patience: Duration,
) -> Option<(Vec<Link>, Vec<Link>)> {
    let is_lost = |guest: &Mutex<Guest>| guest.lock().unwrap_or_else(PoisonError::into_inner).lost.is_some();
    if is_lost(one.0) || is_lost(other.0) {
        return None;
    }
    let both = at_once(vec![(one.0, other.1), (other.0, one.1)], |(guest, host)| {
        // The agent has to answer before the doctor stops waiting.
        let seconds = patience.as_secs_f64() * 0.8;
        match ask(guest, &Ask::Meet { host: host as u32, seconds }, patience + Duration::from_secs(5))? {
            Answer::Met(links) => Some(links),
            _ => None,
        }
    });
    let [one, other]: [_; 2] = both.try_into().ok()?;
    Some((one?, other?))
}

fn ask(guest: &Mutex<Guest>, what: &Ask, patience: Duration) -> Option<Answer> {
    let mut guest = guest.lock().unwrap_or_else(PoisonError::into_inner);
    if guest.lost.is_some() {
        return None;
    }
    match guest.remote.ask(what, patience) {
        Ok(answer) => Some(answer),
        Err(finding) => {
            guest.lost = Some(finding);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_one_name_get_unique_names() {
        let hosts = ["a", "b", "a", "a"].map(str::to_owned);
        assert_eq!(named(&hosts), ["a", "b", "a (2)", "a (3)"]);
    }

    #[test]
    fn results_of_parallel_calls_are_in_order() {
        assert_eq!(at_once(vec![1, 2, 3], |number| number * 2), [2, 4, 6]);
    }
}
