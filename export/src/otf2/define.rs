// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the definitions of an archive. Called by `mod.rs` after all events are written, because the events determine
//! the texts and lanes. Path: pending. Threads: one. Tests: tests/otf2.rs.

use std::collections::HashMap;

use anyhow::Result;
use ibex_messages::Job;

use super::library::{Definitions, Kind, Role};
use super::{
    FIRST_FUNCTION, LENGTH, PEER, PORT, PROTOCOL, QUEUE_PAIR, RAILS, REASON, SEARCH, Strings, TAG, metric_of_port,
};
use crate::counters::Counter;
use crate::functions;
use crate::life::Phase;
use crate::names;
use crate::threads::{Threads, rank_name};
use crate::walk::{self, Walk};

/// Writes definitions, and the texts that they use at their first use.
struct Defined<'d, 'a> {
    strings: Strings,
    to: &'d mut Definitions<'a>,
}

impl Defined<'_, '_> {
    fn string(&mut self, text: &str) -> Result<u32> {
        let known = self.strings.texts.len();
        let number = self.strings.number(text);
        if self.strings.texts.len() > known {
            self.to.string(number, text)?;
        }
        Ok(number)
    }
}

/// Writes all definitions. `last` is the time of the last event, `strings` are the texts that events name.
pub(super) fn define(
    job: &Job,
    threads: &Threads,
    walk: &Walk<'_>,
    (last, strings): (u64, Strings),
    to: &mut Definitions<'_>,
) -> Result<()> {
    let first = walk::first(job);
    // The clock covers all events, also if no span is known.
    let end = job.span.map_or(0, |(_, end)| end.nanoseconds().saturating_sub(first).max(0).cast_unsigned());
    to.clock(1_000_000_000, 0, end.max(last), first.max(0).cast_unsigned())?;
    for (number, text) in strings.texts.iter().enumerate() {
        to.string(number as u32, text)?;
    }
    let mut defined = Defined { strings, to };
    define_processes(job, &mut defined)?;
    define_locations(job, threads, walk, &mut defined)?;
    for &phase in Phase::ALL {
        let (name, description) = (defined.string(phase.name())?, defined.string(phase.description())?);
        defined.to.region(phase.number(), name, description, Role::Artificial)?;
    }
    define_regions(job, &mut defined)?;
    define_communicators(job, threads, &mut defined)?;
    define_metrics(job, &mut defined)?;
    define_attributes(&mut defined)
}

fn define_regions(job: &Job, defined: &mut Defined<'_, '_>) -> Result<()> {
    for (queue, number) in SEARCH {
        let name = defined.string(names::search(queue))?;
        let description =
            defined.string("a search of the queue, for the receive of a message or the other way round")?;
        defined.to.region(number, name, description, Role::Artificial)?;
    }
    let description = defined.string("a call of MPI in which the process can wait for others")?;
    let is_unnamed = job.calls.iter().any(|call| call.function as usize >= job.functions.len());
    let unnamed = is_unnamed.then_some("MPI call");
    for (number, function) in (FIRST_FUNCTION..).zip(job.functions.iter().map(String::as_str).chain(unnamed)) {
        let name = defined.string(function)?;
        defined.to.region(number, name, description, role(function))?;
    }
    Ok(())
}

fn role(function: &str) -> Role {
    use functions::Role as Of;
    match functions::role(function) {
        Of::Send | Of::Receive | Of::SendReceive | Of::Wait | Of::Probe => Role::PointToPoint,
        Of::Barrier => Role::Barrier,
        Of::OneToAll => Role::OneToAll,
        Of::AllToOne => Role::AllToOne,
        Of::AllToAll => Role::AllToAll,
        Of::OtherCollective | Of::Communicator => Role::OtherCollective,
        Of::OneSided => Role::OneSided,
        Of::File => Role::File,
        Of::Other => Role::Function,
    }
}

fn define_processes(job: &Job, defined: &mut Defined<'_, '_>) -> Result<()> {
    let (machine, kind) = (defined.string("job")?, defined.string("machine")?);
    defined.to.tree_node(0, machine, kind, None)?;
    let kind = defined.string("node")?;
    let mut hosts: HashMap<&str, u32> = HashMap::new();
    for (number, rank) in job.ranks.iter().enumerate() {
        let node = hosts.len() as u32 + 1;
        let host = if let Some(host) = hosts.get(rank.host.as_str()) {
            *host
        } else {
            let name = defined.string(if rank.host.is_empty() { "unknown host" } else { &rank.host })?;
            defined.to.tree_node(node, name, kind, Some(0))?;
            hosts.insert(&rank.host, node);
            node
        };
        let name = defined.string(&rank_name(rank))?;
        defined.to.process(number as u32, name, host)?;
    }
    Ok(())
}

fn define_locations(job: &Job, threads: &Threads, walk: &Walk<'_>, defined: &mut Defined<'_, '_>) -> Result<()> {
    let name = |place: u32| threads.name_in_job(job, place);
    for (number, thread) in threads.all().iter().enumerate() {
        let text = defined.string(&name(number as u32))?;
        defined.to.location(number as u32, text, thread.rank)?;
    }
    for (number, lane) in walk.lanes().iter().enumerate() {
        let text = format!("{} {} {}", name(lane.thread), lane.used_for.name(), lane.number);
        let text = defined.string(&text)?;
        let number = threads.all().len() + number;
        defined.to.location(number as u32, text, threads.all()[lane.thread as usize].rank)?;
    }
    Ok(())
}

/// Defines communicators and their groups. Group 0 has all ranks; each communicator has a further one, or one per side.
/// Readers need group numbers without gaps.
fn define_communicators(job: &Job, threads: &Threads, defined: &mut Defined<'_, '_>) -> Result<()> {
    let empty = defined.string("")?;
    let locations: Vec<u64> = (0..job.ranks.len() as u32).map(|rank| u64::from(threads.first_of(rank))).collect();
    defined.to.ranks(0, empty, &locations)?;
    let places = |members: &[u32]| members.iter().map(|place| u64::from(*place)).collect::<Vec<_>>();
    let mut group = 1;
    for (number, communicator) in job.communicators.iter().enumerate() {
        let number = number as u32;
        let name = defined.string(&names::communicator(job, number))?;
        defined.to.group(group, empty, &places(&communicator.members))?;
        if communicator.remote.is_empty() {
            defined.to.communicator(number, name, group)?;
        } else {
            defined.to.group(group + 1, empty, &places(&communicator.remote))?;
            defined.to.intercommunicator(number, name, (group, group + 1))?;
            group += 1;
        }
        group += 1;
    }
    Ok(())
}

fn define_metrics(job: &Job, defined: &mut Defined<'_, '_>) -> Result<()> {
    for counter in Counter::of_ranks() {
        define_metric(counter.number(), counter, counter.name(), defined)?;
    }
    for (place, port) in job.ports.iter().enumerate() {
        for counter in Counter::of_ports() {
            let name = format!("{} {}", names::port(port), counter.name());
            define_metric(metric_of_port(place as u32, counter), counter, &name, defined)?;
        }
    }
    Ok(())
}

fn define_metric(number: u32, counter: Counter, name: &str, defined: &mut Defined<'_, '_>) -> Result<()> {
    let (name, description) = (defined.string(name)?, defined.string(counter.description())?);
    let unit = defined.string(if counter.is_bytes() { "B" } else { "#" })?;
    defined.to.metric(number, name, description, unit)
}

fn define_attributes(defined: &mut Defined<'_, '_>) -> Result<()> {
    let attributes = [
        (PROTOCOL, "ibex protocol", "the protocol of the message", Kind::Text),
        (REASON, "ibex reason", "the reason for the protocol", Kind::Text),
        (PORT, "ibex port", "the sender's adapter and port", Kind::Text),
        (QUEUE_PAIR, "ibex queue pair", "the sender's queue pair", Kind::Number),
        (RAILS, "ibex rails", "the number of ports that carried it, if more than one", Kind::Number),
        (PEER, "ibex peer", "the rank that the search is for; -1: any", Kind::Signed),
        (TAG, "ibex tag", "the tag that the search is for; -1: any", Kind::Signed),
        (LENGTH, "ibex queue length", "the length of the queue that is searched", Kind::Number),
    ];
    for (number, name, description, kind) in attributes {
        let (name, description) = (defined.string(name)?, defined.string(description)?);
        defined.to.attribute(number, name, description, kind)?;
    }
    Ok(())
}
