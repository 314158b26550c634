// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests which MPI call waited for which message, by the events of simulated ranks.

mod simulated;

use ibex_messages::{Job, Time, WaitKind};
use simulated::{PROBE, Process, RECV, START, WAIT, WHOLE, Written, read, world};

const TO: simulated::Envelope = simulated::Envelope { peer: 1, tag: 5, bytes: 64, context: 0 };
const FROM: simulated::Envelope = simulated::Envelope { peer: 0, tag: 5, bytes: 64, context: 0 };

fn waits(job: &Job) -> Vec<(WaitKind, i64, i64)> {
    let time = |time: Time| time.nanoseconds() - START;
    job.message_waits().iter().map(|(_, wait)| (wait.kind, time(wait.from), time(wait.to))).collect()
}

#[test]
fn the_call_that_reports_a_receive_has_waited_for_it() {
    let mut ranks = world(2);
    ranks[0].send(400, &TO);
    let id = ranks[1].post(50, &FROM);
    ranks[1].call(RECV, (100, 200), |_| {});
    ranks[1].call(WAIT, (300, 500), |process| {
        process.arrive(440, &FROM, Some((id, &FROM)));
    });
    let job = read("told", &ranks);
    assert_eq!((waits(&job), job.faults.as_slice()), (vec![(WaitKind::LateSender, 300, 400)], &[][..]));
    assert!(job.ranks.iter().all(|rank| rank.has_calls));
    assert_eq!(job.messages[0].receive.and_then(|side| side.call), Some(1));
}

#[test]
fn calls_have_the_names_of_functions_whatever_their_numbers_are_in_a_file() {
    let mut ranks = world(2);
    for (rank, calls) in ranks.iter_mut().zip([[WAIT, RECV, WAIT, 99], [RECV, PROBE, WAIT, RECV]]) {
        for (place, call) in (0..).zip(calls) {
            rank.thread = place % 2;
            rank.call(call, (100 * i64::from(place), 100 * i64::from(place) + 50), |_| {});
        }
    }
    let job = read("named", &ranks);
    let found: Vec<_> = job.calls.iter().map(|call| (call.rank, call.thread, job.function(call))).collect();
    let wanted = [
        (0, 0, "MPI_Wait"),
        (0, 1, "MPI_Recv"),
        (0, 0, "MPI_Wait"),
        (0, 1, "MPI call"),
        (1, 0, "MPI_Recv"),
        (1, 1, "MPI_Probe"),
        (1, 0, "MPI_Wait"),
        (1, 1, "MPI_Recv"),
    ];
    assert_eq!(found, wanted);
    assert_eq!(job.functions, ["MPI_Wait", "MPI_Recv", "MPI_Probe"], "those that were called");
}

#[test]
fn a_probe_waits_for_the_message_that_is_received_next() {
    let mut ranks = world(2);
    ranks[0].send(400, &TO);
    let mut message = 0;
    ranks[1].call(PROBE, (300, 450), |process| message = process.arrive(440, &FROM, None));
    ranks[1].call(RECV, (460, 480), |process| {
        process.take(461, &FROM, (message, &FROM));
    });
    assert_eq!(waits(&read("probed", &ranks)), [(WaitKind::LateSender, 300, 400)]);
}

#[test]
fn a_call_whose_end_is_lost_has_no_known_waits() {
    let mut ranks = world(2);
    ranks[0].send(400, &TO);
    ranks[0].send(900, &TO);
    let id = ranks[1].post(50, &FROM);
    ranks[1].call(WAIT, (300, 500), |process| {
        process.arrive(440, &FROM, Some((id, &FROM)));
    });
    let id = ranks[1].post(600, &FROM);
    ranks[1].call(WAIT, (700, 980), |process| {
        process.arrive(940, &FROM, Some((id, &FROM)));
    });
    let ends = |process: &Process| {
        let is_end = |(name, ..): &simulated::Event| *name == "mpi_call_end";
        process.events.iter().position(is_end).expect("one")
    };
    // The lost end of one call and the lost begin of the next do not make them one call.
    let first = ends(&ranks[1]);
    ranks[1].events.remove(first);
    let begin = ranks[1].events.iter().rposition(|(name, ..)| *name == "mpi_call_begin").expect("one");
    ranks[1].events.remove(begin);
    assert_eq!(waits(&read("torn", &ranks)), []);
    let how = [WHOLE, Written { lost: Some(("mpi_call_end", 1)), ..WHOLE }];
    let job = simulated::read_as("told-torn", &ranks, &how);
    assert_eq!((job.ranks[0].has_calls, job.ranks[1].has_calls), (true, false));
    let faults = &job.faults;
    assert!(faults.iter().any(|fault| fault.contains("not have all calls of MPI of rank 1:")), "{faults:?}");
}

#[test]
fn a_trace_without_calls_has_no_waits_and_a_fault_says_so() {
    let mut ranks = world(2);
    ranks[0].send(400, &TO);
    let id = ranks[1].post(50, &FROM);
    ranks[1].arrive(440, &FROM, Some((id, &FROM)));
    let folder = simulated::folder("uncalled");
    for (rank, process) in (0..).zip(&ranks) {
        simulated::write_without(&["mpi_call_begin", "mpi_call_end"], &folder, (rank, 2), process);
    }
    let job = simulated::read_folder(&folder);
    assert_eq!((job.messages.len(), waits(&job)), (1, Vec::new()));
    assert!(job.faults.iter().any(|fault| fault.contains("calls of MPI of ranks 0, 1:")), "{:?}", job.faults);
}
