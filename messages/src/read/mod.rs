// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job from its trace: [`Job::read`]. `pass.rs` reads the file of each process once, and collects its halves of
//! messages (`matching.rs`, `transfers.rs`), MPI calls, searches and communicators (`groups.rs`). `communicators.rs`
//! identifies communicators across processes, `join.rs` joins the halves of each message. Path: pending; a million
//! messages (18 million events) take some seconds. Threads: one. Tests: tests/.

mod align;
mod calls;
mod communicators;
mod groups;
mod half;
mod join;
mod matching;
mod pass;
mod searches;
mod slots;
mod transfers;
mod vocabulary;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use ibex_trace::{Folder, Reader, TAGGED, Timeline, UNTAGGED};

use crate::model::{Fragment, Job, Loss, Message, Queue, Rank, Search};
use crate::read::communicators::{Communicators, Worlds};
use crate::read::groups::{Group, MOST_RANKS};
use crate::read::half::Continued;
use crate::read::pass::Process;
use crate::read::searches::Searched;
use crate::time::Time;

impl Job {
    /// Reads the traces of a folder. Never fails: unreadable data becomes a sentence in [`Job::faults`].
    pub fn read(folder: &Folder) -> Job {
        let mut job = Job::default();
        job.faults.extend(folder.unreadable().iter().map(|error| format!("{error}.")));
        job.faults.extend(notes(folder));
        let files = files(folder, &mut job);
        let mut processes: Vec<Process> = Vec::with_capacity(files.len());
        for file in &files {
            let process = Process::read(file.reader, |time| file.timeline.time(time));
            job.ranks.push(read_rank(file.reader, file.rank, &process));
            processes.push(process);
        }
        job.name = files.first().map(|file| file.reader.head().job.clone()).unwrap_or_default();
        let identities: Vec<(u32, u32)> = job.ranks.iter().map(|rank| (rank.world, rank.rank)).collect();
        let worlds = ranks(&mut job, &mut processes, &files);
        let places: Vec<u32> = identities.iter().filter_map(|(world, rank)| worlds.place(*world, *rank)).collect();
        clock_errors(&mut job, &files, &places);
        gather(&mut job, &mut processes, &places, &worlds);
        let reasons = unblamed(&job, &processes, &places);
        job.faults.extend(reasons);
        let paused = paused(&job);
        job.faults.extend(paused);
        let mut communicators = Communicators::find(&processes, &worlds);
        job.faults.append(&mut communicators.faults);
        let parts = processes.iter_mut().zip(&places).map(|(process, rank)| Parts::take(*rank, process)).collect();
        join::join(&mut job, processes, &places, &communicators);
        job.communicators = communicators.all;
        job.messages.sort_by_cached_key(|message| message.moments().min());
        name_parts(&mut job, parts);
        job
    }
}

struct File<'a> {
    reader: &'a Reader,
    timeline: &'a Timeline,
    /// Error bound of its times against those of other files.
    error: Option<i64>,
    rank: (u32, u32),
}

/// Returns the recorders' remarks about their traces, each once.
fn notes(folder: &Folder) -> Vec<String> {
    let mut notes: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for reader in folder.readers() {
        for note in reader.notes() {
            let rank = reader.head().rank.map_or_else(|| "?".to_owned(), |rank| rank.to_string());
            notes.entry(note).or_default().push(rank);
        }
    }
    notes.into_iter().map(|(note, ranks)| format!("{note} ({})", some(&ranks))).collect()
}

/// Returns `rank 3`, or `ranks 0, 1`, with at most eight of them.
fn some(ranks: &[impl ToString]) -> String {
    let shown: Vec<String> = ranks.iter().take(8).map(ToString::to_string).collect();
    let s = if ranks.len() > 1 { "s" } else { "" };
    let more = if ranks.len() > 8 { format!(" and {} more", ranks.len() - 8) } else { String::new() };
    format!("rank{s} {}{more}", shown.join(", "))
}

fn files<'a>(folder: &'a Folder, job: &mut Job) -> Vec<File<'a>> {
    let mut known: HashMap<(u32, u32), &Reader> = HashMap::new();
    let (mut files, mut nameless) = (Vec::new(), Vec::new());
    for (number, (reader, timeline)) in folder.readers().iter().zip(folder.lines()).enumerate() {
        let (head, error) = (reader.head(), folder.error(number));
        let rank = head.rank.filter(|rank| *rank < MOST_RANKS);
        let file = File { reader, timeline, error, rank: (head.world, rank.unwrap_or(0)) };
        match known.get(&file.rank) {
            _ if rank.is_none() => nameless.push(file),
            Some(first) => job.faults.push(format!(
                "{} is left out: {} has rank {}, too, so the folder has traces of several jobs.",
                reader.file().display(),
                first.file().display(),
                file.rank.1
            )),
            None => {
                known.insert(file.rank, reader);
                files.push(file);
            }
        }
    }
    for mut file in nameless {
        let next = (0..MOST_RANKS).find(|rank| !known.contains_key(&(file.rank.0, *rank))).unwrap_or(0);
        file.rank.1 = next;
        let name = file.reader.file().display();
        job.faults.push(format!("{name} does not name its rank; it is shown as rank {next}."));
        known.insert(file.rank, file.reader);
        files.push(file);
    }
    files
}

fn read_rank(reader: &Reader, (world, rank): (u32, u32), process: &Process) -> Rank {
    let head = reader.head();
    Rank {
        world,
        rank,
        host: head.host.clone(),
        pid: head.pid,
        program: head.program.clone(),
        threads: process.threads.iter().copied().collect(),
        clock_error: None,
        has_calls: process.has_calls,
        is_whole: reader.is_finished() && process.faults.is_empty() && !process.gaps.within,
    }
}

/// Adds ranks that are known only from other files, and sorts all; adds predefined communicators without events.
fn ranks(job: &mut Job, processes: &mut [Process], files: &[File<'_>]) -> Worlds {
    let mut told: BTreeSet<(u32, u32)> = job.ranks.iter().map(|rank| (rank.world, rank.rank)).collect();
    for (process, file) in processes.iter().zip(files) {
        let (world, size) = (file.rank.0, file.reader.head().ranks.unwrap_or(0).min(MOST_RANKS));
        if !process.groups.0.iter().any(|group| group.context == 0) {
            told.extend((0..size).map(|rank| (world, rank)));
        }
        let peers = process.connections.iter().map(|connection| connection.peer);
        let peers = peers.chain(process.operations.iter().map(|operation| operation.peer));
        let peers: HashSet<u32> = peers.filter(|peer| *peer < MOST_RANKS).collect();
        told.extend(peers.into_iter().map(|peer| (world, peer)));
        let of_libfabric = process.envelopes().filter(|of| of.is_of_libfabric());
        let peers = of_libfabric.filter_map(|of| u32::try_from(of.peer).ok().filter(|peer| *peer < MOST_RANKS));
        told.extend(peers.map(|peer| (world, peer)));
    }
    let own: BTreeSet<(u32, u32)> = job.ranks.iter().map(|rank| (rank.world, rank.rank)).collect();
    for (world, rank) in told.difference(&own) {
        job.ranks.push(Rank { world: *world, rank: *rank, ..Rank::default() });
    }
    let mut worlds = Worlds::complete(processes, &mut job.ranks);
    job.ranks.sort_by_key(|rank| (rank.world, rank.rank));
    worlds.sorted(&job.ranks);
    let mut members: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for rank in &job.ranks {
        members.entry(rank.world).or_default().push(rank.rank);
    }
    for (process, file) in processes.iter_mut().zip(files) {
        let (world, rank) = file.rank;
        assume(process, rank, members.get(&world).map_or(&[], Vec::as_slice), worlds.job(world));
    }
    let numbered = |group: &Group| (2..TAGGED).contains(&group.context) && group.made.is_none();
    if processes.iter().any(|process| process.groups.0.iter().any(numbered)) {
        job.faults
            .push("Some communicators have unknown members and are shown with all ranks of the world.".to_owned());
    }
    let silent: Vec<u32> =
        job.ranks.iter().filter(|rank| rank.host.is_empty() && rank.pid == 0).map(|rank| rank.rank).collect();
    if !silent.is_empty() {
        let whose = if silent.len() > 1 { "their" } else { "its" };
        job.faults
            .push(format!("There is no trace of {}; {whose} messages are known only from others.", some(&silent)));
    }
    worlds
}

/// Adds communicators that no event describes: `MPI_COMM_WORLD` and `MPI_COMM_SELF` (contexts 0 and 1 in Open MPI),
/// whose events a late recorder misses, and one of all processes for libfabric's messages. `ranks`: of the world, in
/// order.
fn assume(process: &mut Process, rank: u32, ranks: &[u32], job: u32) {
    let known: HashSet<u32> = process.groups.0.iter().map(|group| group.context).collect();
    let used: BTreeSet<u32> = process.envelopes().map(|of| of.context).collect();
    let is_full = ranks.last().is_some_and(|last| *last as usize == ranks.len() - 1);
    let place = |rank: u32| ranks.binary_search(&rank).map_or(i32::MAX, |place| place as i32);
    for context in used.into_iter().filter(|context| !known.contains(context)) {
        match context {
            0 if is_full => process.groups.0.push(Group::assumed(0, place(rank), ranks, job)),
            1 if is_full => process.groups.0.push(Group::assumed(1, 0, &[rank], job)),
            TAGGED | UNTAGGED => process.groups.0.push(Group::assumed(context, place(rank), ranks, job)),
            _ => {}
        }
    }
    if !is_full {
        // Events name a peer by its rank, which is not its place among the processes.
        let sent = process.sends.iter_mut().map(|sent| &mut sent.envelope);
        let all = sent.chain(process.received.iter_mut().map(|received| &mut received.envelope));
        for of in all.filter(|of| of.is_of_libfabric()) {
            of.peer = u32::try_from(of.peer).map_or(of.peer, place);
        }
    }
}

fn clock_errors(job: &mut Job, files: &[File<'_>], places: &[u32]) {
    let widest = |reader: &Reader| {
        let error = |source: u8| {
            let relation = reader.relation(source)?;
            let spans = reader.summaries().flat_map(|summary| &summary.sources).filter(|span| span.source == source);
            spans.filter_map(|span| relation.widest(span.first, span.last)).max()
        };
        (0..reader.head().sources.len()).filter_map(|source| error(source as u8)).max()
    };
    for (file, place) in files.iter().zip(places) {
        let own = widest(file.reader);
        job.ranks[*place as usize].clock_error = file.error.zip(own).map(|(line, own)| line.saturating_add(own));
    }
}

/// Returns the reasons why lateness is unknown.
fn unblamed(job: &Job, processes: &[Process], places: &[u32]) -> Vec<String> {
    let mut reasons = Vec::new();
    if processes.iter().any(|process| process.is_below_another) {
        reasons.push(
            "ibex has not done the matching (--mca pml ibex), so messages are unknown, and who was late.".to_owned(),
        );
    }
    let has_messages = |process: &Process| !process.sends.is_empty() || !process.received.is_empty();
    let is_silent = |(process, _): &(&Process, &u32)| !process.has_calls && has_messages(process);
    let silent = processes.iter().zip(places).filter(is_silent);
    let mut ranks: Vec<u32> = silent.map(|(_, place)| job.ranks[*place as usize].rank).collect();
    if !ranks.is_empty() {
        ranks.sort_unstable();
        reasons.push(format!(
            "The trace does not have all calls of MPI of {}: who was late for them, and for whom they were late, is not \
             known.",
            some(&ranks)
        ));
    }
    reasons
}

/// Reports that programs have stopped the recording.
fn paused(job: &Job) -> Option<String> {
    let mut ranks: Vec<u32> = job.pauses.iter().map(|pause| job.ranks[pause.rank as usize].rank).collect();
    ranks.dedup();
    (!ranks.is_empty()).then(|| {
        format!(
            "The program stopped the recording of {} for a time (MPI_Pcontrol): messages of that time are not shown, or \
             only in part.",
            some(&ranks)
        )
    })
}

fn gather(job: &mut Job, processes: &mut [Process], places: &[u32], worlds: &Worlds) {
    let mut order: Vec<usize> = (0..processes.len()).collect();
    order.sort_by_key(|at| places[*at]);
    for at in order {
        let (rank, process) = (places[at], &mut processes[at]);
        let world = job.ranks[rank as usize].world;
        let (first, count) = (job.ports.len() as u32, process.ports.len() as u32);
        let port = |index: u32| Some(index).filter(|index| *index < count).map(|index| first + index);
        let peer = |peer: u32| worlds.place(world, peer);
        job.ports.extend(process.ports.drain(..).map(|port| crate::Port { rank, ..port }));
        job.faults.append(&mut process.faults);
        job.losses.extend(process.losses.drain(..).map(|loss| Loss { rank, ..loss }));
        let before = job.calls.len() as u32;
        let functions = functions(&mut job.functions, process);
        let named = |call: crate::Call| {
            let function = functions.get(call.function as usize).copied().flatten().unwrap_or(u32::MAX);
            crate::Call { rank, function, ..call }
        };
        job.calls.extend(process.calls.drain(..).map(named));
        job.pauses.extend(process.pauses.drain(..).map(|pause| crate::Pause { rank, ..pause }));
        let sent = process.sends.iter_mut().map(|sent| &mut sent.side.call);
        let received = process.received.iter_mut().map(|received| &mut received.side.call);
        let cancelled = process.cancelled.iter_mut().map(|side| &mut side.call);
        sent.chain(received).chain(cancelled).flatten().for_each(|call| *call += before);
        job.cancelled.extend(process.cancelled.drain(..).map(|side| (rank, side)));
        for of in process.connections.drain(..) {
            if let Some(peer) = peer(of.peer) {
                job.connections.push(crate::Connection { rank, peer, port: of.port.and_then(port), ..of });
            }
        }
        for of in process.operations.drain(..) {
            if let Some(peer) = peer(of.peer) {
                job.operations.push(crate::Operation { rank, peer, ..of });
            }
        }
        for of in process.incidents.drain(..) {
            job.incidents.push(crate::Incident {
                rank,
                peer: of.peer.and_then(peer),
                port: of.port.and_then(port),
                ..of
            });
        }
        let ends = job.span.into_iter().chain(process.span);
        job.span = ends.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
    }
    job.connections.sort_by_key(|of| of.begun.or(of.established).or(of.failed));
    job.operations.sort_by_key(|of| of.begun.or(of.completed));
    job.incidents.sort_by_key(|of| of.time);
    if !job.losses.is_empty() {
        let all: u64 = job.losses.iter().map(|loss| loss.count).fold(0, u64::saturating_add);
        job.faults.push(format!("{all} events were lost, so the data may be incomplete."));
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Number {
    Send(u32, u64),
    Receive(u32, u64),
    Message(u32, u64),
}

struct Parts {
    rank: u32,
    fragments: Vec<Continued>,
    searches: Vec<Searched>,
}

impl Parts {
    fn take(rank: u32, process: &mut Process) -> Parts {
        let (fragments, searches) = (std::mem::take(&mut process.fragments), std::mem::take(&mut process.searches));
        Parts { rank, fragments, searches }
    }

    fn of_fragment(&self, of: &Continued) -> Number {
        if of.is_received { Number::Receive(self.rank, of.request) } else { Number::Send(self.rank, of.request) }
    }

    fn of_search(&self, of: &Searched) -> Number {
        match of.search.queue {
            Queue::Posted => Number::Message(self.rank, of.of),
            Queue::Unexpected => Number::Receive(self.rank, of.of),
        }
    }
}

/// Adds all fragments and searches to the job, by rank. Leaves out fragments of messages that were left out.
fn name_parts(job: &mut Job, mut all: Vec<Parts>) {
    all.sort_by_key(|parts| parts.rank);
    let mut messages: HashMap<Number, Option<u32>> = HashMap::new();
    for parts in &all {
        messages.extend(parts.fragments.iter().map(|of| (parts.of_fragment(of), None)));
        let searches = parts.searches.iter().filter(|of| of.of != 0);
        messages.extend(searches.map(|of| (parts.of_search(of), None)));
    }
    for (place, message) in (0..).zip(&job.messages) {
        let sent = message.send.map(|side| Number::Send(message.sender, side.request));
        let received = message.receive.map(|side| {
            let rank = message.receiver;
            [Number::Receive(rank, side.request), Number::Message(rank, side.message)]
        });
        for number in sent.into_iter().chain(received.into_iter().flatten()) {
            if let Some(known) = messages.get_mut(&number) {
                *known = Some(place);
            }
        }
    }
    let message = |number| messages.get(&number).copied().flatten();
    for parts in &all {
        let rank = parts.rank;
        job.fragments.extend(parts.fragments.iter().filter_map(|of| {
            let Continued { is_received, thread, time, is_by_adapter, part, .. } = *of;
            let message = message(parts.of_fragment(of))?;
            Some(Fragment { rank, thread, message, is_received, time, is_by_adapter, part })
        }));
        let search = |of: &Searched| Search { rank, message: message(parts.of_search(of)), ..of.search };
        job.searches.extend(parts.searches.iter().map(search));
    }
}

/// Returns the index in the job of each function of a process; `None` if the process has not called it.
fn functions(known: &mut Vec<String>, process: &Process) -> Vec<Option<u32>> {
    let mut places = vec![None; process.functions.len()];
    for call in &process.calls {
        if let Some(place @ None) = places.get_mut(call.function as usize) {
            let name = &process.functions[call.function as usize];
            let at = known.iter().position(|known| known == name).unwrap_or(known.len());
            if at == known.len() {
                known.push(name.clone());
            }
            *place = Some(at as u32);
        }
    }
    places
}

impl Message {
    /// Returns the first known time.
    pub fn first(&self) -> Option<Time> {
        self.moments().min()
    }
}
