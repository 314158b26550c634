// SPDX-License-Identifier: MIT OR Apache-2.0
//! MPI calls in Extrae's form, for which Paraver's configurations are made: types and values of events, and states.
//! Each kind of function is a type of event, whose value is the function, or 0 outside of calls; the states are
//! Paraver's own. Numbers from Extrae's headers and Paraver's default labels; other functions get numbers from 1000 on.
//! Called by `mod.rs` and `labels.rs`. Path: once for each call. Threads: plain data. Tests: tests/paraver.rs.

use ibex_messages::{Job, Time};

use crate::functions::{Role, role};
use crate::regions;
use crate::threads::Threads;
use crate::walk;

/// Makes a constant of each number, and a table of numbers, names and, for states, colours.
macro_rules! named {
    ($table:ident: $row:ty: $($name:ident $number:literal $($more:expr),+;)*) => {
        $(const $name: u32 = $number;)*
        pub(super) const $table: &[$row] = &[$(($name, $($more),+)),*];
    };
}

named! { TYPES: (u32, &str):
    POINT_TO_POINT 50_000_001 "MPI Point-to-point";
    COLLECTIVE 50_000_002 "MPI Collective Comm";
    OTHER_CALL 50_000_003 "MPI Other";
    ONE_SIDED 50_000_004 "MPI One-sided";
    FILE 50_000_005 "MPI I/O";
}

named! { STATES: (u32, &str, (u8, u8, u8)):
    RUNNING 1 "Running", (0, 0, 255);
    WAITING_A_MESSAGE 3 "Waiting a message", (255, 0, 0);
    BLOCKING_SEND 4 "Blocking Send", (255, 0, 174);
    SYNCHRONIZATION 5 "Synchronization", (179, 0, 0);
    PROBE 6 "Test/Probe", (0, 255, 0);
    WAIT 8 "Wait/WaitAll", (235, 0, 0);
    FILE_IO 12 "I/O", (172, 174, 41);
    GROUP_COMMUNICATION 13 "Group Communication", (255, 144, 26);
    DISABLED 14 "Tracing Disabled", (2, 255, 177);
    OTHERS 15 "Others", (192, 224, 0);
    SEND_RECEIVE 16 "Send Receive", (66, 66, 66);
}

/// Functions without `MPI_`, each followed by Extrae's value.
const VALUES: &str = "\
    Send 1 Recv 2 Wait 5 Waitall 6 Bcast 7 Barrier 8 Reduce 9 Allreduce 10 Alltoall 11 Alltoallv 12 Gather 13 \
    Gatherv 14 Scatter 15 Scatterv 16 Allgather 17 Allgatherv 18 Comm_create 21 Comm_dup 22 Comm_split 23 \
    Comm_free 25 Scan 30 Bsend 33 Ssend 34 Rsend 35 Sendrecv 41 Sendrecv_replace 42 Cart_create 43 Cart_sub 49 \
    Graph_create 54 Waitany 59 Waitsome 60 Probe 61 Win_create 63 Win_free 64 Win_fence 68 Win_start 69 \
    Win_complete 70 Win_post 71 Win_wait 72 Win_lock 74 Win_unlock 75 Reduce_scatter 80 Intercomm_create 96 \
    Intercomm_merge 97 Buffer_detach 114 File_open 141 File_close 142 File_read_all 144 File_write_all 146 \
    File_read_at_all 148 File_write_at_all 150 Comm_spawn 151 Comm_spawn_multiple 152 Reduce_scatter_block 168";

/// First value for functions that Extrae does not number.
const FIRST_OTHER: u32 = 1000;

/// A function of a job: its name, the type of its events and their value, and the state of a thread in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) kind: u32,
    pub(super) value: u32,
    state: u32,
}

/// Returns the functions of a job, and a last entry for calls without a name.
pub(super) fn functions(job: &Job) -> Vec<Function> {
    let names = job.functions.iter().map(String::as_str).chain(["MPI call"]);
    let of = |(place, name): (u32, &str)| {
        let mut words = VALUES.split_whitespace().skip_while(|word| Some(*word) != name.strip_prefix("MPI_"));
        let known = words.nth(1).and_then(|value| value.parse().ok());
        let (kind, state) = match role(name) {
            Role::Send => (POINT_TO_POINT, BLOCKING_SEND),
            Role::Receive => (POINT_TO_POINT, WAITING_A_MESSAGE),
            Role::SendReceive => (POINT_TO_POINT, SEND_RECEIVE),
            Role::Wait => (POINT_TO_POINT, WAIT),
            Role::Probe => (POINT_TO_POINT, PROBE),
            Role::Barrier => (COLLECTIVE, SYNCHRONIZATION),
            Role::OneToAll | Role::AllToOne | Role::AllToAll | Role::OtherCollective => {
                (COLLECTIVE, GROUP_COMMUNICATION)
            }
            Role::OneSided => (ONE_SIDED, OTHERS),
            Role::File => (FILE, FILE_IO),
            Role::Communicator | Role::Other => (OTHER_CALL, OTHERS),
        };
        let value = known.unwrap_or(FIRST_OTHER + place);
        Function { name: name.to_owned(), kind, value, state }
    };
    (0..).zip(names).map(of).collect()
}

pub(super) fn function(functions: &[Function], number: u32) -> &Function {
    &functions[(number as usize).min(functions.len() - 1)]
}

/// A state of a thread, which ends before the next begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) thread: u32,
    pub(super) state: u32,
}

/// Returns the states of all threads, by their begins: calls, pauses, and running between them if all calls are
/// recorded. The state after the last call, and of a further thread before its first, is unknown.
pub(super) fn spans(job: &Job, threads: &Threads, functions: &[Function]) -> Vec<Span> {
    let (first, last) = (walk::first(job), regions::last(job));
    let span = |thread, begun: Time, ended: Option<Time>, state| {
        let (begin, end) = (walk::since(first, begun), walk::since(first, ended.unwrap_or(last)));
        Span { begin, end, thread, state }
    };
    let calls = job.calls.iter().map(|call| {
        let thread = threads.find(call.rank, call.thread);
        span(thread, call.begun, call.ended, function(functions, call.function).state)
    });
    let pauses = job
        .pauses
        .iter()
        .flat_map(|pause| threads.of_rank(pause.rank).map(move |thread| span(thread, pause.from, pause.to, DISABLED)));
    let mut all: Vec<Span> = calls.chain(pauses).filter(|span| span.begin < span.end).collect();
    all.sort_by_key(|span| (span.thread, span.begin));
    let mut spans = Vec::with_capacity(2 * all.len());
    for of_one in all.chunk_by(|one, other| one.thread == other.thread) {
        let thread = of_one[0].thread;
        let rank = threads.all()[thread as usize].rank;
        let mut until = if thread == threads.first_of(rank) { 0 } else { of_one[0].begin };
        for span in of_one {
            if span.begin > until && job.ranks[rank as usize].has_calls {
                spans.push(Span { begin: until, end: span.begin, thread, state: RUNNING });
            }
            // Spans overlap only if the program stops the recording within a call.
            let begin = span.begin.max(until);
            if begin < span.end {
                spans.push(Span { begin, ..*span });
                until = span.end;
            }
        }
    }
    spans.sort_by_key(|span| span.begin);
    spans
}
