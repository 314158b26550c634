// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulated ranks that send to each other, with the events that each would raise (docs/peruse.md).

#![allow(dead_code, reason = "each test uses a part of it")]

use std::path::{Path, PathBuf};

use ibex_messages::Job;
use ibex_trace::{Clock, ClockSample, Element, ElementKind, EventType, Folder, Head, MOST_ELEMENTS, Source, Writer};

/// All types, in the order in which files have them.
const TYPES: &str = "comm_req_activate comm_req_match_unex comm_req_insert_in_posted_q comm_req_remove_from_posted_q \
                     comm_req_xfer_begin comm_req_xfer_continue comm_req_xfer_end comm_req_complete comm_req_notify \
                     comm_req_cancel comm_req_free comm_msg_arrived comm_msg_insert_in_unex_q \
                     comm_msg_remove_from_unex_q comm_msg_match_posted_req \
                     comm_search_posted_q_begin comm_search_posted_q_end comm_search_unex_q_begin \
                     comm_search_unex_q_end comm_req_protocol communicator_created communicator_freed msg_arrived \
                     xfer_begin xfer_continue xfer_end get_started get_complete connection_begin \
                     connection_established mpi_call_begin mpi_call_end mpi_pcontrol";

fn elements(name: &str) -> &'static [&'static str] {
    match name {
        "comm_req_protocol" => {
            &["id", "message", "bytes", "context", "protocol", "reason", "port", "queue_pair", "rails"]
        }
        "communicator_created" => {
            &["context", "kind", "rank", "size", "side", "first", "count", "process", "stride", "job"]
        }
        "communicator_freed" => &["context"],
        "xfer_begin" | "xfer_continue" | "xfer_end" => {
            &["request", "message", "offset", "bytes", "total", "context", "source", "tag", "direction", "peer"]
        }
        "get_complete" => &["operation", "local", "remote", "bytes", "peer", "status", "request"],
        "get_started" => &["operation", "local", "remote", "bytes", "peer", "request"],
        "connection_begin" => &["peer", "port"],
        "connection_established" => &["peer", "port", "queue_pair", "remote_queue_pair"],
        "mpi_call_begin" | "mpi_call_end" => &["call", "number"],
        "mpi_pcontrol" => &["level"],
        "msg_arrived" => &["message", "bytes", "total", "context", "source", "tag", "peer"],
        _ => &["id", "bytes", "peer", "tag", "operation", "context", "posted", "unexpected", "ignore"],
    }
}

/// Name of the type, thread, time, values.
pub(crate) type Event = (&'static str, u32, i64, Vec<i64>);

#[derive(Default, Clone)]
pub(crate) struct Process {
    pub(crate) events: Vec<Event>,
    next: i64,
    pub(crate) thread: u32,
    calls: i64,
}

/// Indexes of MPI calls in the list of [`head`].
pub(crate) const RECV: i64 = 0;
pub(crate) const PROBE: i64 = 1;
pub(crate) const WAIT: i64 = 2;

pub(crate) const START: i64 = 5_000_000_000_000;

impl Process {
    pub(crate) fn raise(&mut self, name: &'static str, time: i64, values: &[i64]) {
        self.events.push((name, self.thread, START + time, values.to_vec()));
    }

    /// Returns the next number of a request or message, as ibex gives them.
    pub(crate) fn name(&mut self) -> i64 {
        self.next += 2;
        self.next
    }

    fn of(&mut self, name: &'static str, time: i64, id: i64, of: &Envelope, operation: i64) {
        self.raise(name, time, &[id, of.bytes, of.peer, of.tag, operation, of.context]);
    }

    pub(crate) fn world(&mut self, rank: i64, size: i64) {
        self.raise("communicator_created", -10, &[0, 0, rank, size, 0, 0, size, 0, 1, 77]);
    }

    /// Raises the begin and end of an MPI call around `within`.
    pub(crate) fn call(&mut self, call: i64, (begin, end): (i64, i64), within: impl FnOnce(&mut Process)) {
        self.calls += 1;
        let number = self.calls;
        self.raise("mpi_call_begin", begin, &[call, number]);
        within(self);
        self.raise("mpi_call_end", end, &[call, number]);
    }

    /// Drops the events that `meanwhile` raises, as if the recording were stopped.
    pub(crate) fn paused(&mut self, (from, to): (i64, i64), meanwhile: impl FnOnce(&mut Process)) {
        self.raise("mpi_pcontrol", from, &[0]);
        let before = self.events.len();
        meanwhile(self);
        self.events.truncate(before);
        self.raise("mpi_pcontrol", to, &[1]);
    }

    pub(crate) fn send(&mut self, time: i64, of: &Envelope) -> i64 {
        let id = self.name();
        self.of("comm_req_activate", time, id, of, 0);
        self.raise("comm_req_protocol", time + 1, &[id, 0, of.bytes, of.context, 1, 0, 0, 99, 1]);
        self.transfer(time + 2, id, of, 0);
        id
    }

    /// Raises the transfer and the end of a request.
    fn transfer(&mut self, time: i64, id: i64, of: &Envelope, operation: i64) {
        let steps = ["comm_req_xfer_begin", "comm_req_xfer_end", "comm_req_complete", "comm_req_notify"];
        for (time, name) in (time..).zip(steps) {
            self.of(name, time, id, of, operation);
        }
    }

    /// Raises a rendezvous send. `protocols`: the first becomes known when the request leaves at `time`, the second
    /// when the receiver asks for copies.
    pub(crate) fn rendezvous(&mut self, (time, answered): (i64, i64), of: &Envelope, protocols: &[i64]) -> i64 {
        let id = self.name();
        self.of("comm_req_activate", time, id, of, 0);
        for (protocol, at) in protocols.iter().zip([time, answered]) {
            self.raise("comm_req_protocol", at + 1, &[id, 0, of.bytes, of.context, *protocol, 0, 0, 99, 1]);
        }
        self.transfer(answered + 2, id, of, 0);
        id
    }

    /// Posts a receive that finds no message.
    pub(crate) fn post(&mut self, time: i64, of: &Envelope) -> i64 {
        let id = self.name();
        self.of("comm_req_activate", time, id, of, 1);
        let search = self.name();
        self.of("comm_search_unex_q_begin", time, search, of, 1);
        self.of("comm_search_unex_q_end", time, search, of, 1);
        self.of("comm_req_insert_in_posted_q", time + 1, id, of, 1);
        id
    }

    /// Raises the arrival of a message, and its match with `receive`.
    pub(crate) fn arrive(&mut self, time: i64, message: &Envelope, receive: Option<(i64, &Envelope)>) -> i64 {
        let id = self.name();
        self.of("comm_msg_arrived", time, id, message, 1);
        let search = self.name();
        self.of("comm_search_posted_q_begin", time, search, message, 1);
        self.of("comm_search_posted_q_end", time, search, message, 1);
        match receive {
            Some((request, of)) => {
                self.of("comm_req_remove_from_posted_q", time + 1, request, of, 1);
                self.of("comm_msg_match_posted_req", time + 2, id, message, 1);
                self.moved(time + 3, (request, of), (id, message));
            }
            None => self.of("comm_msg_insert_in_unex_q", time + 1, id, message, 1),
        }
        id
    }

    /// Raises a receive that finds its message in the unexpected queue.
    pub(crate) fn take(&mut self, time: i64, of: &Envelope, (message, is): (i64, &Envelope)) -> i64 {
        let id = self.name();
        self.of("comm_req_activate", time, id, of, 1);
        self.of("comm_msg_remove_from_unex_q", time + 1, message, is, 1);
        self.of("comm_req_match_unex", time + 2, id, of, 1);
        self.moved(time + 3, (id, of), (message, is));
        id
    }

    pub(crate) fn probe(&mut self, time: i64, (message, is): (i64, &Envelope)) {
        self.of("comm_msg_remove_from_unex_q", time, message, is, 1);
    }

    /// Raises the receive of a probed message.
    pub(crate) fn take_probed(&mut self, time: i64, of: &Envelope, (message, is): (i64, &Envelope)) -> i64 {
        let id = self.name();
        self.of("comm_req_activate", time, id, of, 1);
        self.of("comm_req_match_unex", time + 2, id, of, 1);
        self.moved(time + 3, (id, of), (message, is));
        id
    }

    pub(crate) fn cancel(&mut self, time: i64, id: i64, of: &Envelope) {
        for name in ["comm_req_remove_from_posted_q", "comm_req_cancel", "comm_req_complete", "comm_req_notify"] {
            self.of(name, time, id, of, 1);
        }
    }

    fn moved(&mut self, time: i64, (id, of): (i64, &Envelope), (message, is): (i64, &Envelope)) {
        self.raise("comm_req_protocol", time, &[id, message, is.bytes, of.context, 1, 0, 0, 99, 1]);
        self.transfer(time + 1, id, of, 1);
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Envelope {
    pub(crate) peer: i64,
    pub(crate) tag: i64,
    pub(crate) bytes: i64,
    pub(crate) context: i64,
}

pub(crate) fn envelope(peer: i64, tag: i64, bytes: i64) -> Envelope {
    Envelope { peer, tag, bytes, context: 0 }
}

pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, bound: i64) -> i64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound.cast_unsigned()).cast_signed()
    }
}

pub(crate) fn types() -> Vec<&'static str> {
    TYPES.split(' ').collect()
}

pub(crate) fn head(rank: u32, ranks: u32) -> Head {
    head_of(&types(), rank, ranks)
}

fn head_of(types: &[&'static str], rank: u32, ranks: u32) -> Head {
    let of = |name: &&str| EventType {
        name: if name.starts_with("mpi_") { (*name).to_owned() } else { format!("ibex_{name}") },
        description: "What there is in MPI_Recv MPI_Probe MPI_Wait".to_owned(),
        elements: elements(name).iter().map(|name| Element::new(name, ElementKind::I64, "")).collect(),
    };
    let source = |name: &str, description: &str| Source {
        name: name.into(),
        description: description.into(),
        ticks_per_second: 1_000_000_000,
        max_ticks: 0,
        ordered: true,
    };
    Head {
        job: "4711".into(),
        rank: Some(rank),
        ranks: Some(ranks),
        host: "n1".into(),
        pid: 1000 + rank,
        program: "./app".into(),
        types: types.iter().map(of).collect(),
        sources: vec![source("host:0", ""), source("mlx5_0:1", "completions of a port, GID fe80::1")],
        ..Head::default()
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Written {
    pub(crate) is_finished: bool,
    /// Name of a type, and number of its events that the file reports as lost.
    pub(crate) lost: Option<(&'static str, u64)>,
    pub(crate) block: usize,
}

pub(crate) const WHOLE: Written = Written { is_finished: true, lost: None, block: 512 };

pub(crate) fn write(folder: &Path, place: (u32, u32), process: &Process, how: &Written) -> PathBuf {
    write_of(&types(), folder, place, process, how)
}

/// Writes the file of a recorder that lacks these types.
pub(crate) fn write_without(unknown: &[&str], folder: &Path, place: (u32, u32), process: &Process) -> PathBuf {
    let types: Vec<&'static str> = types().into_iter().filter(|name| !unknown.contains(name)).collect();
    write_of(&types, folder, place, process, &WHOLE)
}

fn write_of(
    types: &[&'static str],
    folder: &Path,
    (rank, ranks): (u32, u32),
    process: &Process,
    how: &Written,
) -> PathBuf {
    let head = head_of(types, rank, ranks);
    let layouts = head.layouts();
    let mut writer = Writer::create(folder, &head, how.block).expect("made");
    let compare = |writer: &mut Writer<std::fs::File>, at: i64| {
        for source in [0, 1] {
            // Reading the adapter's clock takes 80 ns.
            let (clock, shown, half) = (Clock::Source(source), at.cast_unsigned(), 40 * i64::from(source));
            writer.clock(ClockSample { clock, shown, before: at - half, after: at + half });
        }
    };
    compare(&mut writer, START - 1000);
    for (name, thread, time, numbers) in &process.events {
        let number = types.iter().position(|known| known == name).expect("known");
        let mut values = [0; MOST_ELEMENTS];
        for (value, number) in values.iter_mut().zip(numbers) {
            *value = number.cast_unsigned();
        }
        let source = u8::from(name.starts_with("xfer_") || *name == "msg_arrived");
        let records = layouts[number].pack(source, time.cast_unsigned(), &values);
        writer.write(*thread, &records).expect("written");
    }
    if let Some((name, count)) = how.lost {
        writer.lost(types.iter().position(|known| *known == name).expect("known") as u8, count);
    }
    compare(&mut writer, START + 1_000_000_000);
    if how.is_finished {
        writer.finish().expect("finished");
    } else {
        writer.flush().expect("flushed");
    }
    folder.join(head.file_name())
}

/// Returns the processes of a world of so many ranks.
pub(crate) fn world(ranks: usize) -> Vec<Process> {
    let mut processes = vec![Process::default(); ranks];
    (0..).zip(&mut processes).for_each(|(rank, process)| process.world(rank, ranks as i64));
    processes
}

/// Writes the processes' whole traces to a new folder, and reads the job.
pub(crate) fn read(name: &str, processes: &[Process]) -> Job {
    read_as(name, processes, &vec![WHOLE; processes.len()])
}

pub(crate) fn read_as(name: &str, processes: &[Process], how: &[Written]) -> Job {
    let folder = folder(name);
    for (rank, (process, how)) in (0..).zip(processes.iter().zip(how)) {
        write(&folder, (rank, processes.len() as u32), process, how);
    }
    read_folder(&folder)
}

/// Reads the job in a folder, and removes it.
pub(crate) fn read_folder(folder: &Path) -> Job {
    let job = Job::read(&Folder::open(folder).expect("opened"));
    std::fs::remove_dir_all(folder).expect("removed");
    job
}

pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("ibex-messages-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("made");
    folder
}
