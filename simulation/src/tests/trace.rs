// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traces of simulated programs, as the commands read them.

use std::collections::BTreeSet;

use ibex_messages::{Fragment, Job, Message, Protocol, Time};
use ibex_trace::Folder;

use super::*;
use crate::model::Sent;

/// Returns the job of a trace.
fn job_of(name: &str, write: impl FnOnce(&Path) -> Result<(), Box<dyn Error>>) -> Job {
    let folder = std::env::temp_dir().join(format!("ibex-simulation-{name}-{}", std::process::id()));
    write(&folder).expect("written");
    let job = Job::read(&Folder::open(&folder).expect("opened"));
    std::fs::remove_dir_all(folder).expect("removed");
    job
}

/// Checks that all these times are known and never go back.
fn are_ordered(times: &[Option<Time>], message: &Message) {
    assert!(times.iter().all(Option::is_some) && times.is_sorted(), "{times:?} of {message:?}");
}

/// Checks the times of a message that was sent and received. Returns whether its receive was posted before it came.
fn check_life(message: &Message) -> bool {
    let (Some(send), Some(receive)) = (message.send, message.receive) else { panic!("one side of {message:?}") };
    are_ordered(&[send.activated, send.begun, send.ended], message);
    are_ordered(&[send.activated, send.completed, send.notified], message);
    // A buffered send is complete before its copy is sent.
    assert!(send.completed > send.ended || send.notified < send.begun, "{message:?}");
    are_ordered(&[receive.matched, receive.begun, receive.ended, receive.completed, receive.notified], message);
    let left = if message.protocol == Some(Protocol::Loopback) { send.activated } else { send.left() };
    are_ordered(&[send.activated, left, receive.arrived, receive.matched], message);
    if receive.unexpected.is_some() {
        are_ordered(&[receive.arrived, receive.unexpected, receive.taken, receive.matched], message);
        are_ordered(&[receive.activated, receive.matched], message);
    } else {
        are_ordered(&[receive.activated, receive.posted, receive.arrived, receive.removed, receive.matched], message);
    }
    assert!(send.request != 0 && receive.request != 0 && receive.message != 0, "{message:?}");
    receive.unexpected.is_none()
}

/// Sender, receiver, context number, tag and length of a message.
type Of = (u32, u32, u32, i64, u64);

/// Returns the messages that the processes of a world have sent, sorted.
fn sent(world: &World) -> Vec<Of> {
    let of = |Sent { from, to, comm, tag, length, .. }: &Sent| {
        (*from as u32, *to as u32, world.communicators.numbers[*comm], (*tag).into(), *length as u64)
    };
    let mut messages: Vec<_> = world.model.sent.iter().map(of).collect();
    messages.sort_unstable();
    messages
}

/// Like [`sent`], of a job.
fn messages(job: &Job) -> Vec<Of> {
    let of = |message: &Message| {
        let context = job.communicators[message.communicator as usize].context;
        (message.sender, message.receiver, context, message.tag, message.bytes)
    };
    let mut messages: Vec<_> = job.messages.iter().map(of).collect();
    messages.sort_unstable();
    messages
}

#[test]
fn the_trace_of_a_program_has_the_life_of_each_message() {
    let (context, persistent) = (2, false);
    let send = |tag, length, mode| {
        let (from, to, gaps) = (u32::from(tag == 6), 1, tag == 3);
        Operation::Send { from, to, context, tag, length, mode, gaps, persistent }
    };
    let receive = |tag, room| {
        let (at, from, tag, gaps) = (1, None, Some(tag), false);
        Operation::Receive { at, from, context, tag, room, gaps, persistent }
    };
    let lengths = [8, 200, 600, 1000, 8, 1100, 300, 500];
    let mut operations: Vec<_> = (0..).zip(lengths).map(|(tag, length)| send(tag, length, Mode::Standard)).collect();
    operations[4] = send(4, 8, Mode::Synchronous);
    operations[7] = send(7, 500, Mode::Buffered);
    let mut sends: Vec<_> = (0..)
        .zip(lengths)
        .map(|(tag, length)| (u32::from(tag == 6), 1, context, i64::from(tag), length as u64))
        .collect();
    sends.sort_unstable();
    let received = [2, 0, 5, 1, 4, 3, 6, 7];
    operations.extend(received.map(|tag| receive(tag, if tag == 5 { 100 } else { 1000 })));
    operations.push(receive(9, 8));
    let mut seen = [0; 2];
    for schedule in 0..20 {
        let program = Program { schedule, operations: operations.clone(), ..Program::default() };
        let job = job_of("life", |folder| {
            let (outcome, written) = record(&program, folder);
            outcome.expect("no check fails");
            written
        });
        assert_eq!((&job.faults[..], job.ranks.len(), job.cancelled.len()), (&[][..], 2, 1));
        assert_eq!(messages(&job), sends);
        job.messages.iter().for_each(|message| seen[usize::from(check_life(message))] += 1);
        let protocol = |tag| job.messages.iter().find(|message| message.tag == tag).and_then(|one| one.protocol);
        let (inline, read) = (Some(Protocol::Inline), Some(Protocol::Read));
        assert_eq!([0, 1, 2].map(protocol), [inline, Some(Protocol::Copied), read]);
        assert_eq!([3, 4, 5].map(protocol), [Some(Protocol::Fragments), inline, read]);
        assert_eq!(protocol(6), Some(Protocol::Loopback));
        // Of four fragments, each side records the second and the third.
        let is_copied = |of: &&Fragment| job.messages[of.message as usize].tag == 3;
        assert_eq!(job.fragments.iter().filter(is_copied).count(), 4, "{:?}", job.fragments);
        // The receives have their numbers in the order of the program, so each has the message with its tag.
        let mut matched: Vec<_> =
            job.messages.iter().map(|one| (one.receive.map(|side| side.request), one.tag)).collect();
        matched.sort_unstable();
        assert!(matched.iter().map(|(_, tag)| *tag).eq(received.map(i64::from)), "{matched:?}");
    }
    assert!(seen[0] > 10 && seen[1] > 10, "{seen:?}");
}

#[test]
fn recording_changes_no_history_and_misses_no_message() {
    let (mut all, mut starts, mut all_dropped) = (0, 0, 0);
    for seed in 0..100 {
        let program = Program::of_seed(seed, None);
        let mut world = World::new(&program);
        let trace = world.record();
        world.run();
        let job = job_of("random", |folder| trace.write(folder, None));
        let report = Report { history: world.schedule.history.hash(), steps: world.schedule.history.count };
        assert_eq!(report, check(&program), "seed {seed}");
        // These may end processes or connections.
        let may_lose = |one: &Operation| {
            matches!(one, Operation::Die { .. } | Operation::Fail { .. } | Operation::Part { fails: true, .. })
        };
        if !program.operations.iter().any(may_lose) {
            assert!(job.faults.is_empty(), "seed {seed}: {:?}", job.faults);
            assert_eq!(messages(&job), sent(&world), "seed {seed}");
            let (received, dropped): (Vec<_>, Vec<_>) =
                job.messages.iter().partition(|one| one.receive.is_some_and(|side| side.matched.is_some()));
            for message in &received {
                check_life(message);
            }
            assert_eq!(dropped.len(), world.communicators.dropped.len(), "seed {seed}");
            let requests: BTreeSet<_> =
                received.iter().map(|one| (one.sender, one.send.map(|side| side.request))).collect();
            assert_eq!(requests.len(), received.len(), "seed {seed}: each start has its number");
            all += received.len();
            starts += program.operations.iter().filter(|one| matches!(one, Operation::Start { .. })).count();
            all_dropped += dropped.len();
        }
    }
    assert!(all > 500 && starts > 50 && all_dropped > 0, "{all}, {starts}, {all_dropped}");
}

#[test]
fn the_trace_of_a_run_that_failed_says_so_and_ends_with_it() {
    let mut world = World::new(&Program::default());
    let (trace, folder) = (world.record(), std::env::temp_dir().join(format!("ibex-failed-{}", std::process::id())));
    let failure = Failure { what: "message 3 is lost".to_owned(), steps: Vec::new(), connections: Vec::new() };
    trace.write(&folder, Some(&failure)).expect("written");
    assert!(trace.write(&folder, None).is_err(), "the folder has a trace");
    let job = Job::read(&Folder::open(&folder).expect("opened"));
    std::fs::remove_dir_all(folder).expect("removed");
    assert_eq!(job.faults[0], "A check ended the run: message 3 is lost (ranks 0, 1)");
    assert!(job.faults[1].contains("was not finished") && job.ranks.iter().all(|rank| !rank.is_whole));
}
