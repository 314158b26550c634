// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables of a job and their columns; docs/exports.md explains them for users. Called by `csv.rs` and `parquet.rs`.
//! Path: each value. Threads: any. Tests: tests/tables.rs.

use ibex_messages::{Job, Message, Protocol, Reason, ReceiveSide, SendSide, Time};

use super::{Cell, CellOf, Column, Kind, Table};

pub(super) static TABLES: &[Table] = &[
    Table { name: "messages", rows: |job| job.messages.len(), columns: MESSAGES },
    Table { name: "ranks", rows: |job| job.ranks.len(), columns: RANKS },
    Table { name: "threads", rows: |job| job.ranks.iter().map(|rank| rank.threads.len()).sum(), columns: THREADS },
    Table { name: "ports", rows: |job| job.ports.len(), columns: PORTS },
    Table { name: "communicators", rows: |job| job.communicators.len(), columns: COMMUNICATORS },
    Table { name: "members", rows: |job| members(job), columns: MEMBERS },
    Table { name: "calls", rows: |job| job.calls.len(), columns: CALLS },
    Table { name: "fragments", rows: |job| job.fragments.len(), columns: FRAGMENTS },
    Table { name: "waits", rows: |tabled| tabled.waits.len(), columns: WAITS },
    Table { name: "cancelled", rows: |job| job.cancelled.len(), columns: CANCELLED },
    Table { name: "searches", rows: |job| job.searches.len(), columns: SEARCHES },
    Table { name: "pauses", rows: |job| job.pauses.len(), columns: PAUSES },
    Table { name: "operations", rows: |job| job.operations.len(), columns: OPERATIONS },
    Table { name: "connections", rows: |job| job.connections.len(), columns: CONNECTIONS },
    Table { name: "incidents", rows: |job| job.incidents.len(), columns: INCIDENTS },
    Table { name: "losses", rows: |job| job.losses.len(), columns: LOSSES },
    Table { name: "faults", rows: |job| job.faults.len(), columns: FAULTS },
];

const fn number(name: &'static str, cell: CellOf) -> Column {
    Column { name, kind: Kind::Number, cell }
}

const fn time(name: &'static str, cell: CellOf) -> Column {
    Column { name, kind: Kind::Time, cell }
}

const fn text(name: &'static str, cell: CellOf) -> Column {
    Column { name, kind: Kind::Text, cell }
}

const fn truth(name: &'static str, cell: CellOf) -> Column {
    Column { name, kind: Kind::Truth, cell }
}

/// A time of a side: of a message's send or receive, or of a cancelled receive.
macro_rules! at {
    ($name:literal, $of:ident, $field:ident) => {
        time($name, |job, row| $of(job, row, |side| moment(side.$field)))
    };
}
/// Whose clock gave a time of a side.
macro_rules! clock {
    ($name:literal, $of:ident, $field:ident) => {
        text($name, |job, row| $of(job, row, |side| side.$field.map_or(Cell::None, |_| clock(side.by_adapter.$field))))
    };
}

static MESSAGES: &[Column] = &[
    number("message", |_, row| some(row)),
    number("sender", |job, row| some(job.messages[row].sender)),
    number("receiver", |job, row| some(job.messages[row].receiver)),
    number("communicator", |job, row| some(job.messages[row].communicator)),
    number("tag", |job, row| some(job.messages[row].tag)),
    number("bytes", |job, row| large(job.messages[row].bytes)),
    text("protocol", |job, row| word(job.messages[row].protocol.map(Protocol::name))),
    text("reason", |job, row| word(job.messages[row].reason.map(Reason::name))),
    number("port", |job, row| maybe(job.messages[row].port)),
    number("queue_pair", |job, row| maybe(job.messages[row].queue_pair)),
    number("rails", |job, row| some(job.messages[row].rails)),
    number("delay_ns", |job, row| job.messages[row].delay().map_or(Cell::None, Cell::Number)),
    number("send_request", |job, row| of_send(job, row, |side| large(side.request))),
    number("send_thread", |job, row| of_send(job, row, |side| some(side.thread))),
    number("send_call", |job, row| of_send(job, row, |side| maybe(side.call))),
    at!("send_activated", of_send, activated),
    at!("send_announced", of_send, announced),
    at!("send_begun", of_send, begun),
    clock!("send_begun_clock", of_send, begun),
    at!("send_ended", of_send, ended),
    clock!("send_ended_clock", of_send, ended),
    at!("send_completed", of_send, completed),
    at!("send_notified", of_send, notified),
    at!("send_freed", of_send, freed),
    number("receive_message", |job, row| of_receive(job, row, |side| large(side.message))),
    number("receive_request", |job, row| of_receive(job, row, request)),
    number("receive_thread", |job, row| of_receive(job, row, |side| some(side.thread))),
    number("receive_call", |job, row| of_receive(job, row, |side| maybe(side.call))),
    at!("receive_arrived", of_receive, arrived),
    clock!("receive_arrived_clock", of_receive, arrived),
    at!("receive_unexpected", of_receive, unexpected),
    at!("receive_activated", of_receive, activated),
    at!("receive_posted", of_receive, posted),
    at!("receive_removed", of_receive, removed),
    at!("receive_taken", of_receive, taken),
    at!("receive_matched", of_receive, matched),
    at!("receive_begun", of_receive, begun),
    clock!("receive_begun_clock", of_receive, begun),
    at!("receive_ended", of_receive, ended),
    clock!("receive_ended_clock", of_receive, ended),
    at!("receive_completed", of_receive, completed),
    at!("receive_notified", of_receive, notified),
    at!("receive_freed", of_receive, freed),
];

static CANCELLED: &[Column] = &[
    number("rank", |job, row| some(job.cancelled[row].0)),
    number("request", |job, row| of_cancelled(job, row, request)),
    number("thread", |job, row| of_cancelled(job, row, |side| some(side.thread))),
    number("call", |job, row| of_cancelled(job, row, |side| maybe(side.call))),
    at!("activated", of_cancelled, activated),
    at!("posted", of_cancelled, posted),
    at!("removed", of_cancelled, removed),
    at!("cancelled", of_cancelled, cancelled),
    at!("completed", of_cancelled, completed),
    at!("notified", of_cancelled, notified),
    at!("freed", of_cancelled, freed),
];

static WAITS: &[Column] = &[
    text("kind", |tabled, row| Cell::Text(tabled.waits[row].wait.kind.name())),
    number("message", |tabled, row| maybe(tabled.waits[row].message)),
    number("sender", |tabled, row| some(tabled.waits[row].sender)),
    number("receiver", |tabled, row| some(tabled.waits[row].receiver)),
    time("from", |tabled, row| moment(Some(tabled.waits[row].wait.from))),
    time("to", |tabled, row| moment(Some(tabled.waits[row].wait.to))),
];

static RANKS: &[Column] = &[
    number("rank", |_, row| some(row)),
    number("world", |job, row| some(job.ranks[row].world)),
    number("world_rank", |job, row| some(job.ranks[row].rank)),
    text("host", |job, row| words(&job.ranks[row].host)),
    number("pid", |job, row| some(job.ranks[row].pid)),
    text("program", |job, row| words(&job.ranks[row].program)),
    number("clock_error_ns", |job, row| maybe(job.ranks[row].clock_error)),
    truth("is_whole", |job, row| Cell::Truth(job.ranks[row].is_whole)),
    truth("has_calls", |job, row| Cell::Truth(job.ranks[row].has_calls)),
];

static THREADS: &[Column] = &[
    number("rank", |job, row| maybe(thread(job, row).map(|(rank, _)| rank))),
    number("thread", |job, row| maybe(thread(job, row).map(|(_, thread)| thread))),
];

static PORTS: &[Column] = &[
    number("port", |_, row| some(row)),
    number("rank", |job, row| some(job.ports[row].rank)),
    number("index", |job, row| some(job.ports[row].index)),
    text("device", |job, row| words(&job.ports[row].device)),
    number("number", |job, row| some(job.ports[row].number)),
    text("gid", |job, row| words(&job.ports[row].gid)),
];

static COMMUNICATORS: &[Column] = &[
    number("communicator", |_, row| some(row)),
    number("context", |job, row| some(job.communicators[row].context)),
    text("name", |job, row| words(&job.communicators[row].name)),
    number("size", |job, row| some(job.communicators[row].members.len())),
    number("remote_size", |job, row| some(job.communicators[row].remote.len())),
];

static MEMBERS: &[Column] = &[
    number("communicator", |job, row| member(job, row, |member| some(member.communicator))),
    text("side", |job, row| member(job, row, |member| Cell::Text(if member.is_remote { "remote" } else { "local" }))),
    number("member", |job, row| member(job, row, |member| some(member.number))),
    number("rank", |job, row| member(job, row, |member| some(member.rank))),
];

static CALLS: &[Column] = &[
    number("call", |_, row| some(row)),
    number("rank", |job, row| some(job.calls[row].rank)),
    number("thread", |job, row| some(job.calls[row].thread)),
    text("function", |job, row| words(job.function(&job.calls[row]))),
    time("begun", |job, row| moment(Some(job.calls[row].begun))),
    time("ended", |job, row| moment(job.calls[row].ended)),
];

static FRAGMENTS: &[Column] = &[
    number("message", |job, row| some(job.fragments[row].message)),
    number("rank", |job, row| some(job.fragments[row].rank)),
    number("thread", |job, row| some(job.fragments[row].thread)),
    text("side", |job, row| Cell::Text(if job.fragments[row].is_received { "receive" } else { "send" })),
    time("time", |job, row| moment(Some(job.fragments[row].time))),
    text("clock", |job, row| clock(job.fragments[row].is_by_adapter)),
    number("offset", |job, row| job.fragments[row].part.map_or(Cell::None, |(offset, _)| large(offset))),
    number("bytes", |job, row| job.fragments[row].part.map_or(Cell::None, |(_, bytes)| large(bytes))),
];

static SEARCHES: &[Column] = &[
    number("rank", |job, row| some(job.searches[row].rank)),
    number("thread", |job, row| some(job.searches[row].thread)),
    text("queue", |job, row| Cell::Text(job.searches[row].queue.name())),
    number("peer", |job, row| some(job.searches[row].peer)),
    number("tag", |job, row| some(job.searches[row].tag)),
    number("length", |job, row| maybe(job.searches[row].length)),
    number("message", |job, row| maybe(job.searches[row].message)),
    truth("is_found", |job, row| job.searches[row].is_found.map_or(Cell::None, Cell::Truth)),
    time("begun", |job, row| moment(Some(job.searches[row].begun))),
    time("ended", |job, row| moment(Some(job.searches[row].ended))),
];

static PAUSES: &[Column] = &[
    number("rank", |job, row| some(job.pauses[row].rank)),
    time("from", |job, row| moment(Some(job.pauses[row].from))),
    time("to", |job, row| moment(job.pauses[row].to)),
];

static OPERATIONS: &[Column] = &[
    number("rank", |job, row| some(job.operations[row].rank)),
    number("peer", |job, row| some(job.operations[row].peer)),
    text("kind", |job, row| Cell::Text(job.operations[row].kind.name())),
    number("bytes", |job, row| large(job.operations[row].bytes)),
    time("begun", |job, row| moment(job.operations[row].begun)),
    time("completed", |job, row| moment(job.operations[row].completed)),
    number("status", |job, row| some(job.operations[row].status)),
];

static CONNECTIONS: &[Column] = &[
    number("rank", |job, row| some(job.connections[row].rank)),
    number("peer", |job, row| some(job.connections[row].peer)),
    number("port", |job, row| maybe(job.connections[row].port)),
    number("queue_pair", |job, row| some(job.connections[row].queue_pair)),
    number("remote_queue_pair", |job, row| some(job.connections[row].remote_queue_pair)),
    time("begun", |job, row| moment(job.connections[row].begun)),
    time("established", |job, row| moment(job.connections[row].established)),
    time("failed", |job, row| moment(job.connections[row].failed)),
    number("status", |job, row| some(job.connections[row].status)),
];

static INCIDENTS: &[Column] = &[
    number("rank", |job, row| some(job.incidents[row].rank)),
    time("time", |job, row| moment(Some(job.incidents[row].time))),
    text("kind", |job, row| Cell::Text(job.incidents[row].kind.name())),
    number("peer", |job, row| maybe(job.incidents[row].peer)),
    number("port", |job, row| maybe(job.incidents[row].port)),
    number("value", |job, row| large(job.incidents[row].value)),
];

static LOSSES: &[Column] = &[
    number("rank", |job, row| some(job.losses[row].rank)),
    text("event", |job, row| words(&job.losses[row].event)),
    number("count", |job, row| large(job.losses[row].count)),
];

static FAULTS: &[Column] = &[text("fault", |job, row| words(&job.faults[row]))];

fn some<'j>(number: impl TryInto<i64>) -> Cell<'j> {
    number.try_into().map_or(Cell::None, Cell::Number)
}

/// Converts 64 bits; bytes, numbers of requests and counts leave the highest bit 0.
fn large<'j>(number: u64) -> Cell<'j> {
    Cell::Number(number.cast_signed())
}

fn maybe<'j>(number: Option<impl Into<i64>>) -> Cell<'j> {
    number.map_or(Cell::None, |number| Cell::Number(number.into()))
}

fn moment<'j>(time: Option<Time>) -> Cell<'j> {
    time.map_or(Cell::None, |time| Cell::Number(time.nanoseconds()))
}

/// An empty text is an unknown one.
fn words(text: &str) -> Cell<'_> {
    if text.is_empty() { Cell::None } else { Cell::Text(text) }
}

fn word<'j>(word: Option<&'static str>) -> Cell<'j> {
    word.map_or(Cell::None, Cell::Text)
}

fn clock<'j>(is_by_adapter: bool) -> Cell<'j> {
    Cell::Text(if is_by_adapter { "adapter" } else { "host" })
}

/// Returns the receive's request; 0: no receive has taken the message.
fn request<'j>(side: &ReceiveSide) -> Cell<'j> {
    if side.request == 0 { Cell::None } else { large(side.request) }
}

fn of_send(job: &Job, row: usize, cell: impl FnOnce(&SendSide) -> Cell<'static>) -> Cell<'static> {
    let message: &Message = &job.messages[row];
    message.send.as_ref().map_or(Cell::None, cell)
}

fn of_receive(job: &Job, row: usize, cell: impl FnOnce(&ReceiveSide) -> Cell<'static>) -> Cell<'static> {
    job.messages[row].receive.as_ref().map_or(Cell::None, cell)
}

fn of_cancelled(job: &Job, row: usize, cell: impl FnOnce(&ReceiveSide) -> Cell<'static>) -> Cell<'static> {
    cell(&job.cancelled[row].1)
}

/// Returns the rank and the thread's number for a row: rows count the threads of all ranks.
fn thread(job: &Job, mut row: usize) -> Option<(u32, u32)> {
    for (rank, described) in (0..).zip(&job.ranks) {
        if let Some(thread) = described.threads.get(row) {
            return Some((rank, *thread));
        }
        row -= described.threads.len();
    }
    None
}

struct Member {
    communicator: usize,
    is_remote: bool,
    number: usize,
    rank: u32,
}

fn members(job: &Job) -> usize {
    job.communicators.iter().map(|communicator| communicator.members.len() + communicator.remote.len()).sum()
}

fn member(job: &Job, mut row: usize, cell: impl FnOnce(Member) -> Cell<'static>) -> Cell<'static> {
    for (number, communicator) in job.communicators.iter().enumerate() {
        for (is_remote, side) in [(false, &communicator.members), (true, &communicator.remote)] {
            if row < side.len() {
                return cell(Member { communicator: number, is_remote, number: row, rank: side[row] });
            }
            row -= side.len();
        }
    }
    Cell::None
}
